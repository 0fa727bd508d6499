package main

import (
	"context"
	"fmt"
	"sync/atomic"
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
type instance struct{ gateway }

func (i instance) Acquire(ctx context.Context, c load.Call) (func(context.Context, time.Duration) error, error) {
	l, _, err := i.gateway.Acquire(ctx, gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: c.Tenant}, Patience: c.Patience})
	if l == nil {
		return nil, err
	}
	if time.Now().After(l.StartBy) { // the answer came too late: no call is made
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
	span  time.Duration
	seed  uint64
}

// run plays one scenario under one variant, on a gate of its own, with 1.5 to 4 ms on every way to the store and back.
func (b bench) run(ctx context.Context, s scenario, variant string) (row, error) {
	m := &meter.Meter{Next: b.api, Wire: meter.Wire{Least: 1500 * time.Microsecond, Most: 4 * time.Millisecond, Seed: b.seed}}
	name := s.name + "-" + variant
	var open func(newID func() string) gateway
	var err error
	switch variant {
	case "vingate":
		c := dynamo.Config{Client: m, Table: b.table, Name: name, Now: time.Now}
		err = dynamo.New(c).Init(ctx, knobs(), dynamo.FullBucket)
		open = func(newID func() string) gateway { c.NewID = newID; return dynamo.New(c) }
	case "cas", "read-put":
		c := versioned.Config{Scheme: versioned.CAS, Client: m, Table: b.table, Name: name, Now: time.Now}
		if variant == "read-put" {
			c.Scheme = versioned.ReadPut
		}
		err = versioned.New(c).Init(ctx, knobs())
		open = func(newID func() string) gateway { c.NewID = newID; return versioned.New(c) }
	default:
		err = fmt.Errorf("there is no variant %q", variant)
	}
	if err != nil {
		return row{}, err
	}
	instances := make([]load.Gate, s.instances)
	for i := range instances {
		var last atomic.Int64
		instances[i] = instance{open(func() string { return fmt.Sprintf("%02d%04d", i, last.Add(1)) })}
	}
	return summarise(s, variant, load.Run(ctx, instances, s.calls(b.span, b.seed)), b.span), nil
}
