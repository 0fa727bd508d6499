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
// The first caller of a key starts the flight, which does not end with that caller's context, so that it goes on for the others, up to the deadline
// its starter gave it. The starter stays with it until it lands, or until that deadline: on Lambda nothing runs once the response is
// out. Whoever else's context ends leaves at once, and takes along what the flight has told so far. When it is over the key is forgotten, so the
// next caller starts anew. A panic in a flight reaches everyone who waits as a *PanicError; the process lives.
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
	for {
		value, role, err := f.join(ctx, key, deadline, fly)
		if role != stoodUp {
			return value, role == joined, err
		}
		// Its starter had left before it began.
	}
}

// role is what a caller was in a flight.
type role int32

const (
	joined  role = iota
	started      // its own fly runs
	left         // its own fly never will
	stoodUp      // waited for a flight that did not begin
)

// landed is how a flight ended.
type landed[T any] struct {
	value    T
	panicked *PanicError
	begun    bool
}

func (f *Flights[T]) join(ctx context.Context, key string, deadline time.Time, fly func(ctx context.Context, tell func(T)) T) (value T, _ role, err error) {
	var own atomic.Int32 // a role
	flight := f.group.DoChan(key, func() (any, error) {
		if !own.CompareAndSwap(int32(joined), int32(started)) {
			return landed[T]{}, nil
		}
		var told atomic.Pointer[T]
		f.told.Store(key, &told)
		defer f.told.Delete(key)
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		l := landed[T]{panicked: &PanicError{Value: errExited}, begun: true}
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
	land := func(r singleflight.Result) (T, role, error) {
		l := r.Val.(landed[T])
		switch {
		case !l.begun:
			return value, stoodUp, nil
		case l.panicked != nil:
			return value, role(own.Load()), l.panicked
		}
		return l.value, role(own.Load()), nil
	}
	select {
	case r := <-flight:
		return land(r)
	case <-ctx.Done():
	}
	if !own.CompareAndSwap(int32(joined), int32(left)) { // its own flight is in the air
		late := time.NewTimer(time.Until(deadline))
		defer late.Stop()
		select {
		case r := <-flight:
			return land(r)
		case <-late.C:
		}
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
	if role(own.Load()) == started {
		return value, started, context.Cause(ctx)
	}
	return value, joined, context.Cause(ctx)
}

// errExited stands for the panic of a flight that ended its goroutine without one.
var errExited = errors.New("the flight ended without landing")
