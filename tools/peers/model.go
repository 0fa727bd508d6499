package main

import (
	"context"
	"sync"
	"time"
)

// What AWS has of its own cannot be run here. These are its documented rules at their best, exact and at once, in this process and in virtual time.

// local is a limiter in memory: a bucket, slots, or both.
type local struct {
	bucket *bucket       // nil: no rate
	slots  chan struct{} // nil: no slots
	waits  bool          // for a slot, as long as it takes and in order
}

func (l local) Acquire(context.Context, string, time.Duration) (func(context.Context), time.Duration, error) {
	leave := func(context.Context) {}
	if l.slots != nil {
		if l.waits {
			l.slots <- struct{}{}
		} else {
			select {
			case l.slots <- struct{}{}:
			default:
				return nil, -1, nil
			}
		}
		leave = func(context.Context) { <-l.slots }
	}
	if l.bucket != nil && !l.bucket.take(time.Now()) {
		leave(nil)
		return nil, -1, nil
	}
	return leave, 0, nil
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

// queued is SQS before a function, with a maximum concurrency.
var queued = shared(func(b budget) limiter { return local{slots: make(chan struct{}, b.Slots), waits: true} })

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
