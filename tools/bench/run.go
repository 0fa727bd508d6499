package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/load"
	"vingate/internal/meter"

	"vingate/tools/bench/versioned"
)

// variants are the schemes that are compared.
var variants = []string{"vingate", "cas", "read-put"}

// gateway is a scheme's store.
type gateway interface {
	Acquire(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error)
	Release(context.Context, *gate.Lease, gate.Outcome) error
}

// instance is one instance of a scheme as a load.Gate.
type instance struct {
	gateway
	now func() time.Time
}

func (i instance) Acquire(ctx context.Context, c load.Call) (func(context.Context, time.Duration) error, error) {
	l, _, err := i.gateway.Acquire(ctx, gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: c.Tenant}, Patience: c.Patience})
	if l == nil {
		return nil, err
	}
	if i.now().After(l.StartBy) { // the answer came too late: no call is made
		return nil, i.Release(ctx, l, gate.Outcome{Kind: gate.Abandoned})
	}
	return func(ctx context.Context, took time.Duration) error {
		return i.Release(ctx, l, gate.Outcome{Kind: gate.Succeeded, Took: took})
	}, nil
}

// bench is where a scenario runs.
type bench struct {
	api   meter.API
	table string
	now   func() time.Time
	span  time.Duration
	seed  uint64
}

// run plays one scenario under one variant, on a gate of its own, with 1.5 to 4 ms on every way to the store and back.
func (b bench) run(ctx context.Context, s scenario, variant string) (row, error) {
	m := &meter.Meter{Next: b.api, Wire: meter.Wire{Least: 1500 * time.Microsecond, Most: 4 * time.Millisecond, Seed: b.seed}}
	name := rand.Text()
	newID := func() string { return rand.Text()[:6] }
	var open func() gateway
	switch variant {
	case "vingate":
		c := dynamo.Config{Client: m, Table: b.table, Name: name, Now: b.now, NewID: newID}
		if err := dynamo.New(c).Init(ctx, knobs(), dynamo.FullBucket); err != nil {
			return row{}, err
		}
		open = func() gateway { return dynamo.New(c) }
	case "cas", "read-put":
		c := versioned.Config{Scheme: versioned.CAS, Client: m, Table: b.table, Name: name, Now: b.now, NewID: newID}
		if variant == "read-put" {
			c.Scheme = versioned.ReadPut
		}
		if err := versioned.New(c).Init(ctx, knobs()); err != nil {
			return row{}, err
		}
		open = func() gateway { return versioned.New(c) }
	default:
		return row{}, fmt.Errorf("there is no variant %q", variant)
	}
	instances := make([]load.Gate, s.instances)
	for i := range instances {
		instances[i] = instance{open(), b.now}
	}
	return summarise(s, variant, load.Run(ctx, instances, s.calls(b.span, b.seed)), b.span), nil
}
