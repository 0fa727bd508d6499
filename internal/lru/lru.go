// Package lru keeps what was used last, within a bound, so that no stream of different names can fill an instance's memory.
package lru

import (
	"container/list"
	"sync"
)

// Cache holds at most Limit values. It is safe for use by many goroutines.
type Cache[K comparable, V any] struct {
	limit int

	mu    sync.Mutex
	order *list.List // of entry[K, V], the one used last in front
	byKey map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New makes an empty cache for at least one value.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: max(1, limit), order: list.New(), byKey: map[K]*list.Element{}}
}

// Get is the value of key, which counts as used now.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// Update gives key the value that change makes of the one it has, in one step. The value unused for longest may go for it.
func (c *Cache[K, V]) Update(key K, change func(old V, ok bool) V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		v := e.Value.(*entry[K, V])
		v.value = change(v.value, true)
		c.order.MoveToFront(e)
		return
	}
	var none V
	c.byKey[key] = c.order.PushFront(&entry[K, V]{key, change(none, false)})
	if c.order.Len() > c.limit {
		last := c.order.Back()
		delete(c.byKey, c.order.Remove(last).(*entry[K, V]).key)
	}
}

// Put gives key a value.
func (c *Cache[K, V]) Put(key K, value V) { c.Update(key, func(V, bool) V { return value }) }

// Len is the number of values kept.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}
