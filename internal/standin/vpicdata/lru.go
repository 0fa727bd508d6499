package vpicdata

import (
	"container/list"
	"sync"
)

// lru keeps the values used last. It is safe for parallel use; two callers that
// miss the same key may both load it, which costs time only.
type lru[K comparable, V any] struct {
	mu    sync.Mutex
	limit int
	order *list.List // of lruEntry[K, V], the one used last in front
	byKey map[K]*list.Element
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) *lru[K, V] {
	return &lru[K, V]{limit: limit, order: list.New(), byKey: make(map[K]*list.Element)}
}

// get gives the value of key, loading it when it is not kept. A failed load is not kept.
func (l *lru[K, V]) get(key K, load func() (V, error)) (V, error) {
	l.mu.Lock()
	if e, ok := l.byKey[key]; ok {
		l.order.MoveToFront(e)
		v := e.Value.(lruEntry[K, V]).value
		l.mu.Unlock()
		return v, nil
	}
	l.mu.Unlock()

	v, err := load()
	if err != nil {
		return v, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byKey[key]; ok {
		l.order.MoveToFront(e)
		return e.Value.(lruEntry[K, V]).value, nil
	}
	l.byKey[key] = l.order.PushFront(lruEntry[K, V]{key, v})
	for l.order.Len() > l.limit {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.byKey, last.Value.(lruEntry[K, V]).key)
	}
	return v, nil
}

func (l *lru[K, V]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.Len()
}
