package results

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAHundredCallersShareOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		var flown, own atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				v, shared, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context, func(string)) string {
					flown.Add(1)
					time.Sleep(time.Second)
					return "answer"
				})
				if v != "answer" || err != nil {
					t.Errorf("Do = %q, %v", v, err)
				}
				if !shared {
					own.Add(1)
				}
			})
		}
		wg.Wait()
		if flown.Load() != 1 || own.Load() != 1 {
			t.Errorf("%d flights, %d callers say it was theirs", flown.Load(), own.Load())
		}
		_, shared, _ := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context, func(string)) string { flown.Add(1); return "" })
		if shared || flown.Load() != 2 {
			t.Error("a landed flight is not forgotten")
		}
		f.Do(t.Context(), "other", time.Now().Add(time.Minute), func(context.Context, func(string)) string { flown.Add(1); return "" })
		if flown.Load() != 3 {
			t.Error("another key did not fly")
		}
	})
}

type ctxKey struct{}

// Nothing runs once a response is out: the starter stays, however early its own context ends. Followers leave when theirs does.
func TestTheStarterStaysAndFollowersLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		starter, hangUp := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "starter's"))
		began := time.Now()
		fly := func(ctx context.Context, _ func(string)) string {
			if ctx.Value(ctxKey{}) != "starter's" {
				t.Error("the flight has not the starter's values")
			}
			select {
			case <-ctx.Done():
				return "cut off"
			case <-time.After(5 * time.Second):
				return "answer"
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, shared, err := f.Do(starter, "k", began.Add(time.Minute), fly); v != "answer" || shared || err != nil || time.Since(began) != 5*time.Second {
				t.Errorf("the starter has %q, %v, %v after %v", v, shared, err, time.Since(began))
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, shared, err := f.Do(ctx, "k", began.Add(time.Minute), fly); !errors.Is(err, context.DeadlineExceeded) || !shared || time.Since(began) != 2*time.Second {
				t.Errorf("the impatient follower left after %v with %v, %v", time.Since(began), shared, err)
			}
		})
		wg.Go(func() {
			v, shared, err := f.Do(t.Context(), "k", began.Add(time.Minute), fly)
			if v != "answer" || !shared || err != nil || time.Since(began) != 5*time.Second {
				t.Errorf("the patient follower has %q, %v, %v after %v", v, shared, err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		hangUp()
		wg.Wait()
	})
}

// A flight that is deaf to its deadline does not keep its starter's response from going out.
func TestTheStarterLeavesAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		gone := errors.New("time is over")
		began := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, gone)
		defer cancel()
		v, shared, err := f.Do(ctx, "k", began.Add(3*time.Second), func(_ context.Context, tell func(string)) string {
			tell("called")
			time.Sleep(time.Minute)
			return "answer"
		})
		if v != "called" || shared || err != gone || time.Since(began) != 3*time.Second {
			t.Errorf("the starter has %q, %v, %v after %v", v, shared, err, time.Since(began))
		}
		time.Sleep(time.Minute)
	})
}

// Who is gone before his flight begins starts none, and those who counted on it are served by one of their own.
func TestNobodyStartsAFlightWhenHeIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		flown := 0
		for range 1000 {
			var wg sync.WaitGroup
			fly := func(context.Context, func(string)) string { flown++; return "answer" }
			wg.Go(func() { _, _, _ = f.Do(gone, "k", time.Now().Add(time.Minute), fly) })
			wg.Go(func() {
				if v, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), fly); v != "answer" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			})
			wg.Wait()
			synctest.Wait()
		}
		if flown == 0 {
			t.Error("nobody flew")
		}
	})
}

// Whoever leaves knows what the flight had told by then.
func TestWhoeverLeavesTakesAlongWhatWasToldLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		began := time.Now()
		fly := func(_ context.Context, tell func(string)) string {
			time.Sleep(time.Second)
			tell("called")
			time.Sleep(time.Second)
			tell("answered")
			time.Sleep(time.Second)
			return "landed"
		}
		var wg sync.WaitGroup
		for i, tc := range []struct {
			patience time.Duration
			knows    string
			leaves   bool
		}{
			{time.Minute, "landed", false}, // the starter
			{500 * time.Millisecond, "", true},
			{1500 * time.Millisecond, "called", true},
			{2500 * time.Millisecond, "answered", true},
			{3500 * time.Millisecond, "landed", false},
		} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
				defer cancel()
				v, shared, err := f.Do(ctx, "k", began.Add(time.Minute), fly)
				if v != tc.knows || errors.Is(err, context.DeadlineExceeded) != tc.leaves || shared != (i > 0) {
					t.Errorf("caller %d has %q, %v, %v after %v", i, v, shared, err, time.Since(began))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		// What one flight told is nothing the next one's callers get.
		wg.Go(func() { _, _, _ = f.Do(t.Context(), "k", time.Now().Add(time.Minute), fly) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if v, shared, err := f.Do(ctx, "k", began.Add(time.Minute), fly); v != "" || !shared || err == nil {
			t.Errorf("the next flight begins with %q, %v, %v", v, shared, err)
		}
		wg.Wait()
	})
}

// runtime.Goexit, as a test's FailNow does it, is no panic and leaves nobody waiting.
func TestAFlightThatEndsItsGoroutineLeavesNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		var p *PanicError
		_, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context, func(string)) string { runtime.Goexit(); return "" })
		if !errors.As(err, &p) {
			t.Errorf("Do: %v", err)
		}
		if v, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context, func(string)) string { return "answer" }); v != "answer" || err != nil {
			t.Errorf("afterwards: %q, %v", v, err)
		}
	})
}

func TestAFlightEndsByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[error]
		began := time.Now()
		v, _, err := f.Do(t.Context(), "k", began.Add(3*time.Second), func(ctx context.Context, _ func(error)) error { <-ctx.Done(); return ctx.Err() })
		if err != nil || !errors.Is(v, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("landed with %v, %v after %v", v, err, time.Since(began))
		}
	})
}

func TestAPanicReachesEveryoneAndTheKeyIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context, func(string)) string {
					time.Sleep(time.Second)
					panic("broken wing")
				})
				var p *PanicError
				if !errors.As(err, &p) || p.Value != "broken wing" || !strings.Contains(string(p.Stack), "flights_test.go") {
					t.Errorf("Do: %v", err)
				}
			})
		}
		wg.Wait()
		if v, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context, func(string)) string { return "answer" }); v != "answer" || err != nil {
			t.Errorf("afterwards: %q, %v", v, err)
		}
	})
}
