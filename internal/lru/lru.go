// Package lru keeps what was used last, within a bound, so that no stream of different names can fill an instance's memory.
//
// The list is ttlcache's; what is kept here is that nothing in it expires by itself or runs beside the requests, and that a value can be
// changed in one step. What an old value is worth is for its user to judge, by a clock that can be turned in tests.
package lru

import (
	"sync"

	"github.com/jellydator/ttlcache/v3"
)

// Cache holds values up to a bound. It is safe for use by many goroutines.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex // of changes: each sees the one before it
	items   *ttlcache.Cache[K, V]
	tooMuch func(K, V) bool // for the whole cache; nil: nothing is
}

// New makes an empty cache for that many values, at least one.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{items: ttlcache.New(ttlcache.WithCapacity[K, V](uint64(max(1, limit))))}
}

// Sized makes an empty cache for values that together have at most that size. A value that is larger by itself is not kept, and drives
// nothing out.
func Sized[K comparable, V any](limit uint64, size func(K, V) uint64) *Cache[K, V] {
	return &Cache[K, V]{
		items:   ttlcache.New(ttlcache.WithMaxCost(max(1, limit), func(i ttlcache.CostItem[K, V]) uint64 { return size(i.Key, i.Value) })),
		tooMuch: func(k K, v V) bool { return size(k, v) > limit },
	}
}

// Get is the value of key, which counts as used now.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	item := c.items.Get(key)
	if item == nil {
		return value, false
	}
	return item.Value(), true
}

// Update gives key the value that change makes of the one it has, in one step. The values unused for longest may go for it.
func (c *Cache[K, V]) Update(key K, change func(old V, ok bool) V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value := change(c.Get(key))
	if c.tooMuch != nil && c.tooMuch(key, value) {
		c.items.Delete(key)
		return
	}
	c.items.Set(key, value, ttlcache.NoTTL)
}

// Put gives key a value.
func (c *Cache[K, V]) Put(key K, value V) { c.Update(key, func(V, bool) V { return value }) }

// Len is the number of values kept.
func (c *Cache[K, V]) Len() int { return c.items.Len() }
