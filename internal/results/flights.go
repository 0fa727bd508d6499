package results

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/singleflight"
)

// Flights lets callers who ask the same thing at the same time share one execution, inside this instance. The zero value is
// ready.
//
// The first caller of a key starts the flight. It is detached from that caller: whoever's context ends leaves at once, and
// the flight goes on for the others, up to the deadline its starter gave it. When it is over the key is forgotten, so the
// next caller starts anew. A panic in a flight reaches everyone who waits as a *PanicError; the process lives.
type Flights[T any] struct{ group singleflight.Group }

// PanicError: the flight panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Do returns what fly returns for key, from an own flight or from one under way; shared says which. fly gets a context
// with the starter's values and the deadline, without its cancellation. The error is the cause of ctx's end, or a *PanicError.
func (f *Flights[T]) Do(ctx context.Context, key string, deadline time.Time, fly func(context.Context) T) (value T, shared bool, err error) {
	type landed struct {
		value    T
		panicked *PanicError
	}
	own := false // written before the flight's result is sent, read after it was received
	results := f.group.DoChan(key, func() (any, error) {
		own = true
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		var l landed
		func() {
			defer func() {
				if p := recover(); p != nil {
					l.panicked = &PanicError{Value: p, Stack: debug.Stack()}
				}
			}()
			l.value = fly(ctx)
		}()
		return l, nil
	})
	select {
	case r := <-results:
		l := r.Val.(landed)
		if l.panicked != nil {
			return value, !own, l.panicked
		}
		return l.value, !own, nil
	case <-ctx.Done():
		return value, false, context.Cause(ctx)
	}
}
