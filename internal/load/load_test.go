package load

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSameSeedOffersTheSameCalls(t *testing.T) {
	shape := Shape{PerSecond: 100, For: 10 * time.Second, Poisson: true, Instances: 3, Tenants: 30, Seed: 7,
		Call: func(r *rand.Rand, c *Call) { c.Upstream = time.Duration(r.IntN(1000)) }}
	a, b := shape.Draw(), shape.Draw()
	if !reflect.DeepEqual(a, b) {
		t.Error("two draws of one seed differ")
	}
	shape.Seed++
	if reflect.DeepEqual(a, shape.Draw()) {
		t.Error("another seed draws the same")
	}
	if n := len(a); n < 850 || n > 1150 {
		t.Errorf("%d calls in 10 s at 100/s", n)
	}
	for what, shape := range map[string]Shape{"at random": shape, "all at once": {Tenants: 1000, Instances: 1}} {
		calls := shape.Draw()
		for i, c := range calls {
			if c.Number != i || i > 0 && c.At <= calls[i-1].At {
				t.Errorf("%s: call %d has number %d and comes at %v after one at %v", what, i, c.Number, c.At, calls[max(0, i-1)].At)
			}
		}
	}
	names := map[string]bool{}
	for _, c := range (Shape{Tenants: 1000, Instances: 1}).Draw() {
		names[c.Tenant] = true
	}
	if len(names) != 1000 {
		t.Errorf("1000 tenants have %d names", len(names))
	}
}

// slots is a gate of n slots without a rate.
type slots struct {
	free atomic.Int64
	late time.Duration
}

func (s *slots) Acquire(ctx context.Context, c Call) (func(context.Context, time.Duration) error, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.late):
	}
	if s.free.Add(-1) < 0 {
		s.free.Add(1)
		return nil, nil
	}
	return func(context.Context, time.Duration) error { s.free.Add(1); return nil }, nil
}

func TestCallsDoNotWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slots{late: time.Minute}
		g.free.Store(100)
		r := Run(t.Context(), []Gate{g}, Shape{PerSecond: 10, For: 2 * time.Second, Instances: 1, Tenants: 1}.Draw())
		for _, d := range r.Calls {
			if d.Arrived != r.Start.Add(d.At) || d.Answered.Sub(d.Arrived) != time.Minute {
				t.Errorf("due after %v, came after %v, answered after %v more", d.At, d.Arrived.Sub(r.Start), d.Answered.Sub(d.Arrived))
			}
		}
		if n := r.Count(Admitted); n != len(r.Calls) || n < 18 {
			t.Errorf("%d of %d admitted", n, len(r.Calls))
		}
	})
}

func TestOutcomesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &slots{late: time.Second}
		g.free.Store(1)
		broken := gateFunc(func(context.Context, Call) (func(context.Context, time.Duration) error, error) {
			return nil, errors.New("broken")
		})
		r := Run(t.Context(), []Gate{g, broken}, []Call{
			{Upstream: time.Minute}, {At: time.Millisecond}, {At: 2 * time.Millisecond, Leaves: time.Millisecond}, {At: 3 * time.Millisecond, Instance: 1}})
		for i, want := range []struct{ admitted, refused, left, broken bool }{{admitted: true}, {refused: true}, {refused: true, left: true}, {broken: true}} {
			d := r.Calls[i]
			if d.Admitted != want.admitted || Refused(d) != want.refused || d.Left != want.left || Broken(d) != want.broken {
				t.Errorf("call %d: %+v", i, d)
			}
		}
	})
}

type gateFunc func(context.Context, Call) (func(context.Context, time.Duration) error, error)

func (f gateFunc) Acquire(ctx context.Context, c Call) (func(context.Context, time.Duration) error, error) {
	return f(ctx, c)
}

func granted(start time.Time, upstream time.Duration, at ...time.Duration) Report {
	r := Report{Start: start}
	for _, a := range at {
		r.Calls = append(r.Calls, Done{Call: Call{Upstream: upstream}, Admitted: true, Answered: start.Add(a)})
	}
	return r
}

func TestOverCountsWhatNoBudgetAllows(t *testing.T) {
	const ms = time.Millisecond
	start := time.Now()
	for name, c := range map[string]struct {
		r    Report
		want int
	}{
		"a burst of two and then at the rate":     {granted(start, ms, 0, 0, 1000*ms, 2000*ms), 0},
		"three at once on a burst of two":         {granted(start, ms, 0, 0, 0), 1},
		"one too early":                           {granted(start, ms, 0, 0, 900*ms, 1000*ms), 1},
		"a slot is free when its call has ended":  {granted(start, 1000*ms, 0, 1000*ms, 2000*ms), 0},
		"four at once on three slots, rate aside": {granted(start, 5000*ms, 0, 0, 1000*ms, 2000*ms), 1},
	} {
		if n := c.r.Over(2, 1, 3); n != c.want {
			t.Errorf("%s: %d over, %d expected", name, n, c.want)
		}
	}
}

func TestUseIsOfWhatTheBucketAllows(t *testing.T) {
	r := granted(time.Now(), 0, 0, 0, time.Second, 3*time.Second)
	if u := r.Use(3, 0.5, 2*time.Second); u != 0.75 { // 3 of 3 + 1; the last came after the span
		t.Errorf("%v", u)
	}
}

func TestJainAndQuantiles(t *testing.T) {
	r := Report{}
	for _, tenant := range []string{"a", "a", "b", "b"} {
		r.Calls = append(r.Calls, Done{Call: Call{Tenant: tenant}, Admitted: true})
	}
	if j := r.Jain(); j != 1 {
		t.Errorf("equal shares: %v", j)
	}
	r.Calls[2].Admitted, r.Calls[3].Admitted = false, false
	if j := r.Jain(); math.Abs(j-0.5) > 1e-9 {
		t.Errorf("one of two got all: %v", j)
	}
	sorted := []time.Duration{1, 2, 3, 4}
	for q, want := range map[float64]time.Duration{0.5: 2, 0.99: 4, 1: 4, 0.25: 1} {
		if got := Quantile(sorted, q); got != want {
			t.Errorf("quantile %v: %v", q, got)
		}
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}
