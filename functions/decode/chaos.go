//go:build chaos

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
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

// wallClock is a clock that is off. (libfaketime does not reach a Go program, which asks the kernel itself.)
func wallClock() func() time.Time {
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
	case "P8":
		cfg.Upstream = neighbour{cfg.Upstream}
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
