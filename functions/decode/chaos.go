//go:build chaos

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
	"time"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

// What a build with the tag chaos reads, for `make chaos`: how far this instance's clock is off, and which promise it breaks.
const (
	skewVariable  = "CHAOS_CLOCK_SKEW"
	breakVariable = "CHAOS_BREAK"
)

// wallClock is a clock that is off. (libfaketime does not reach a Go program, which asks the kernel itself.) Beside it, each second, it says how many
// goroutines there are, which nobody outside could tell.
func wallClock() func() time.Time {
	go func() {
		for range time.Tick(time.Second) {
			fmt.Fprintf(os.Stderr, "goroutines %d\n", runtime.NumGoroutine())
		}
	}()
	if os.Getenv(skewVariable) == "" {
		return time.Now
	}
	skew, err := time.ParseDuration(os.Getenv(skewVariable))
	exitOn(err)
	return func() time.Time { return time.Now().Add(skew) }
}

// underTest breaks the promise that is named, so that the judge of `make chaos` can be seen to find it.
func underTest(cfg decode.Config) decode.Config {
	switch p := os.Getenv(breakVariable); p {
	case "":
	case "P1":
		cfg.Gate = slotless{cfg.Gate}
	case "P2":
		cfg.Gate = rateless{cfg.Gate}
	case "P3":
		cfg.Gate = asking{cfg.Gate, func(r *gate.Request) { r.Key.Tenant, r.Own = rand.Text(), 0 }} // places of its own for each request
	case "P4":
		cfg.Gate = asking{cfg.Gate, func(r *gate.Request) { // first come, first served: a part of the line of its own for each request
			if r.Own = 0; r.ID == "" {
				r.ID = rand.Text()[:11]
			}
		}}
	case "P5":
		cfg.Gate = hopeful{cfg.Gate}
	case "P6":
		cfg.Gate = keeping{cfg.Gate}
	case "P7":
		cfg.Gate = twice{cfg.Gate}
	case "P8":
		cfg.Upstream = neighbour{cfg.Upstream}
	case "P9":
		cfg.Gate = deaf{cfg.Gate}
	case "P10":
		cfg.Gate, cfg.Tenants = soon{cfg.Gate}, sooner{cfg.Tenants}
	case "P11":
		cfg.Gate, cfg.Tenants = open{cfg.Gate}, trusting{cfg.Tenants}
	default:
		exitOn(fmt.Errorf("%s: no promise %q to break", breakVariable, p))
	}
	return cfg
}

// forged is a lease that nobody granted.
func forged(r gate.Request) *gate.Lease {
	now := time.Now()
	return &gate.Lease{ID: "forged" + rand.Text()[:6], Key: r.Key, Granted: now, StartBy: now.Add(time.Second), CallBy: now.Add(10 * time.Second), End: now.Add(15 * time.Second)}
}

// slotless gives its slot back before the call, so that calls pile up.
type slotless struct{ decode.Gate }

func (g slotless) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	lease, refusal, err := g.Gate.Acquire(ctx, r)
	if lease != nil {
		_ = g.Gate.Release(ctx, lease, gate.Outcome{Kind: gate.Abandoned})
	}
	return lease, refusal, err
}

// rateless does not ask.
type rateless struct{ decode.Gate }

func (rateless) Foresee(context.Context, *gate.Request) (*gate.Refusal, error) { return nil, nil }

func (rateless) Acquire(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	return forged(r), nil, nil
}

func (rateless) Release(context.Context, *gate.Lease, gate.Outcome) error { return nil }

// asking changes what is asked for.
type asking struct {
	decode.Gate
	change func(*gate.Request)
}

func (g asking) Foresee(ctx context.Context, r *gate.Request) (*gate.Refusal, error) {
	g.change(r)
	return g.Gate.Foresee(ctx, r)
}

func (g asking) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	g.change(&r)
	return g.Gate.Acquire(ctx, r)
}

// hopeful tries again for ten seconds before it says no, also when nobody has time for its answer any more.
type hopeful struct{ decode.Gate }

func (hopeful) Foresee(context.Context, *gate.Request) (*gate.Refusal, error) { return nil, nil }

func (g hopeful) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	ctx, r.ID = context.WithoutCancel(ctx), "" // each time it is asked it is another
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		lease, refusal, err := g.Gate.Acquire(ctx, r)
		if refusal == nil || time.Now().After(until) {
			return lease, refusal, err
		}
	}
}

// keeping gives nothing back.
type keeping struct{ decode.Gate }

func (keeping) Release(context.Context, *gate.Lease, gate.Outcome) error { return nil }

// twice asks again under another id when it has a lease, as after an answer that was lost, and gives the first back.
type twice struct{ decode.Gate }

func (g twice) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	first, refusal, err := g.Gate.Acquire(ctx, r)
	if first == nil {
		return nil, refusal, err
	}
	r.ID, r.Patience, r.BulkheadWait = "", 0, 0
	second, _, _ := g.Gate.Acquire(ctx, r)
	if second == nil {
		return first, nil, nil
	}
	_ = g.Gate.Release(ctx, first, gate.Outcome{Kind: gate.Abandoned})
	return second, nil, nil
}

// deaf does not hear that NHTSA asks for a pause.
type deaf struct{ decode.Gate }

func (g deaf) Release(ctx context.Context, l *gate.Lease, o gate.Outcome) error {
	if o.Kind == gate.Throttled {
		o = gate.Outcome{Kind: gate.Succeeded, Took: o.Took}
	}
	return g.Gate.Release(ctx, l, o)
}

// soon tells everybody to come back in a second, whatever the shared budget says; sooner, whatever the tenant's does.
type (
	soon   struct{ decode.Gate }
	sooner struct{ decode.Tenants }
)

func (g soon) Foresee(ctx context.Context, r *gate.Request) (*gate.Refusal, error) {
	refusal, err := g.Gate.Foresee(ctx, r)
	if refusal != nil {
		refusal.RetryAfter = time.Second
	}
	return refusal, err
}

func (g soon) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	lease, refusal, err := g.Gate.Acquire(ctx, r)
	if refusal != nil {
		refusal.RetryAfter = time.Second
	}
	return lease, refusal, err
}

func (t sooner) Look(ctx context.Context, c tenant.Caller, cost int) (*tenant.Refusal, error) {
	refusal, err := t.Tenants.Look(ctx, c, cost)
	if refusal != nil {
		refusal.RetryAfter = time.Second
	}
	return refusal, err
}

// open lets everybody through while the budget cannot be read or written.
type open struct{ decode.Gate }

func (g open) Foresee(ctx context.Context, r *gate.Request) (*gate.Refusal, error) {
	refusal, err := g.Gate.Foresee(ctx, r)
	if err != nil {
		return nil, nil
	}
	return refusal, nil
}

func (g open) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	lease, refusal, err := g.Gate.Acquire(ctx, r)
	if err != nil {
		return forged(r), nil, nil
	}
	return lease, refusal, nil
}

// trusting lets through whose bucket cannot be read.
type trusting struct{ decode.Tenants }

func (t trusting) Look(ctx context.Context, c tenant.Caller, cost int) (*tenant.Refusal, error) {
	refusal, err := t.Tenants.Look(ctx, c, cost)
	if err != nil {
		return nil, nil
	}
	return refusal, nil
}

// neighbour asks NHTSA for the next vehicle off the line.
type neighbour struct{ decode.Upstream }

func (u neighbour) Decode(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
	next := []byte(q.VIN)
	last := &next[len(next)-1]
	if *last++; *last > '9' || *last < '0' {
		*last = '0'
	}
	q.VIN = string(next)
	return u.Upstream.Decode(ctx, q)
}
