package results

import (
	"context"
	"errors"
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
				v, shared, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context) string {
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
		_, shared, _ := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context) string { flown.Add(1); return "" })
		if shared || flown.Load() != 2 {
			t.Error("a landed flight is not forgotten")
		}
		f.Do(t.Context(), "other", time.Now().Add(time.Minute), func(context.Context) string { flown.Add(1); return "" })
		if flown.Load() != 3 {
			t.Error("another key did not fly")
		}
	})
}

type ctxKey struct{}

func TestWhoeverLeavesLeavesAloneAndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string]
		gone := errors.New("hung up")
		leader, hangUp := context.WithCancelCause(context.WithValue(t.Context(), ctxKey{}, "leader's"))
		began := time.Now()
		fly := func(ctx context.Context) string {
			if ctx.Value(ctxKey{}) != "leader's" {
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
			if _, _, err := f.Do(leader, "k", began.Add(time.Minute), fly); err != gone || time.Since(began) != time.Second {
				t.Errorf("the leader left after %v with %v", time.Since(began), err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, _, err := f.Do(ctx, "k", began.Add(time.Minute), fly); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
				t.Errorf("the impatient follower left after %v with %v", time.Since(began), err)
			}
		})
		wg.Go(func() {
			v, shared, err := f.Do(t.Context(), "k", began.Add(time.Minute), fly)
			if v != "answer" || !shared || err != nil || time.Since(began) != 5*time.Second {
				t.Errorf("the patient follower has %q, %v, %v after %v", v, shared, err, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		hangUp(gone)
		wg.Wait()
	})
}

func TestAFlightEndsByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flights[error]
		began := time.Now()
		v, _, err := f.Do(t.Context(), "k", began.Add(3*time.Second), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
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
				_, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context) string {
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
		if v, _, err := f.Do(t.Context(), "k", time.Now().Add(time.Minute), func(context.Context) string { return "answer" }); v != "answer" || err != nil {
			t.Errorf("afterwards: %q, %v", v, err)
		}
	})
}
