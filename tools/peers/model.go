package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// What AWS has of its own cannot be run here. These are its documented rules at their best, exact and at once, in this process and in virtual time.

// local is a limiter in memory: a bucket, slots, or both.
type local struct {
	bucket *bucket       // nil: no rate
	slots  chan struct{} // nil: no slots
}

func (l local) Acquire(context.Context, string, time.Duration) (func(context.Context), time.Duration, error) {
	leave := func(context.Context) {}
	if l.slots != nil {
		select {
		case l.slots <- struct{}{}:
			leave = func(context.Context) { <-l.slots }
		default:
			return nil, -1, nil
		}
	}
	if l.bucket != nil && !l.bucket.take(time.Now()) {
		leave(nil)
		return nil, -1, nil
	}
	return leave, 0, nil
}

// queue is a line without bounds before some slots. Of those who wait, the one whose tenant has the least running is next; among equals, who came first.
type queue struct {
	mu      sync.Mutex
	free    int
	running map[string]int
	waiting []waiter
}

type waiter struct {
	tenant string
	turn   chan struct{}
}

func (q *queue) Acquire(_ context.Context, tenant string, _ time.Duration) (func(context.Context), time.Duration, error) {
	w := waiter{tenant, make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	q.serve()
	q.mu.Unlock()
	<-w.turn
	return func(context.Context) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.free++
		q.running[tenant]--
		q.serve()
	}, 0, nil
}

func (q *queue) serve() {
	for q.free > 0 && len(q.waiting) > 0 {
		next := 0
		for i, w := range q.waiting {
			if q.running[w.tenant] < q.running[q.waiting[next].tenant] {
				next = i
			}
		}
		w := q.waiting[next]
		q.waiting = slices.Delete(q.waiting, next, next+1)
		q.free--
		q.running[w.tenant]++
		close(w.turn)
	}
}

// bucket is a token bucket.
type bucket struct {
	perSecond, size float64

	mu     sync.Mutex
	tokens float64
	at     time.Time
}

func newBucket(perSecond, size float64) *bucket {
	return &bucket{perSecond: perSecond, size: size, tokens: size}
}

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.tokens = min(b.size, b.tokens+now.Sub(b.at).Seconds()*b.perSecond)
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// model makes the limiters of a new budget, by instance.
type model func(budget) func(instance int) limiter

func shared(of func(budget) limiter) model {
	return func(b budget) func(int) limiter {
		l := of(b)
		return func(int) limiter { return l }
	}
}

// usagePlan is API Gateway's throttle as if it were exact, which it does not promise to be.
var usagePlan = shared(func(b budget) limiter {
	return local{bucket: newBucket(float64(b.Rate), float64(b.Burst))}
})

// reserved is Lambda's reserved concurrency.
var reserved = shared(func(b budget) limiter { return local{slots: make(chan struct{}, b.Slots)} })

// queued is SQS before a function, with a maximum concurrency and tenants told apart, as its fair queues do.
var queued = shared(func(b budget) limiter { return &queue{free: b.Slots, running: map[string]int{}} })

// alone is the whole budget in the memory of each instance.
func alone(b budget) func(int) limiter {
	return func(int) limiter {
		return local{bucket: newBucket(float64(b.Rate), float64(b.Burst)), slots: make(chan struct{}, b.Slots)}
	}
}

// split is an equal share of the budget in the memory of each instance.
func split(b budget) func(int) limiter {
	return func(int) limiter {
		return local{bucket: newBucket(float64(b.Rate)/instances, float64(b.Burst)/instances), slots: make(chan struct{}, b.Slots/instances)}
	}
}
