package results

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Flights lets callers who ask the same thing at the same time share one execution, inside this instance. The zero value is
// ready.
//
// The first caller of a key starts the flight. It is detached from that caller: whoever's context ends leaves at once, and
// the flight goes on for the others, up to the deadline its starter gave it. Whoever leaves takes along what the flight has
// told so far. When it is over the key is forgotten, so the next caller starts anew. A panic in a flight reaches everyone
// who waits as a *PanicError; the process lives.
type Flights[T any] struct {
	group singleflight.Group
	told  sync.Map // key -> *atomic.Pointer[T] of the flight under way
}

// PanicError: the flight panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Do returns what fly returns for key, from an own flight or from one under way; shared says which. fly gets a context
// with the starter's values and the deadline, without its cancellation, and may tell how things stand on the way.
//
// The error is a *PanicError, or the cause of ctx's end: then value is what the flight told last, zero when it had told nothing.
func (f *Flights[T]) Do(ctx context.Context, key string, deadline time.Time, fly func(ctx context.Context, tell func(T)) T) (value T, shared bool, err error) {
	type landed struct {
		value    T
		panicked *PanicError
	}
	var own atomic.Bool
	flight := f.group.DoChan(key, func() (any, error) {
		own.Store(true)
		var told atomic.Pointer[T]
		f.told.Store(key, &told)
		defer f.told.Delete(key)
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		l := landed{panicked: &PanicError{Value: errExited}}
		done := make(chan struct{})
		go func() { // of its own, so that one that ends it without landing leaves nobody waiting
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					l.panicked = &PanicError{Value: p, Stack: debug.Stack()}
				}
			}()
			l.value = fly(ctx, func(v T) { told.Store(&v) })
			l.panicked = nil
		}()
		<-done
		return l, nil
	})
	land := func(r singleflight.Result) (T, bool, error) {
		l := r.Val.(landed)
		if l.panicked != nil {
			return value, !own.Load(), l.panicked
		}
		return l.value, !own.Load(), nil
	}
	select {
	case r := <-flight:
		return land(r)
	case <-ctx.Done():
	}
	select {
	case r := <-flight: // it has landed too
		return land(r)
	default:
	}
	if told, underWay := f.told.Load(key); underWay {
		if v := told.(*atomic.Pointer[T]).Load(); v != nil {
			value = *v
		}
	}
	return value, !own.Load(), context.Cause(ctx)
}

// errExited stands for the panic of a flight that ended its goroutine without one.
var errExited = errors.New("the flight ended without landing")
