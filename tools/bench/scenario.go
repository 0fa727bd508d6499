package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"vingate/internal/gate"
	"vingate/internal/load"
)

// scenario is a load on a gate of 20 calls a second, 10 slots and calls of 100 to 300 ms.
type scenario struct {
	name      string
	says      string // for people
	instances int
	tenants   int
	patience  time.Duration
	perSecond float64
	poisson   bool
	crowd     int // so many more at the start of each second
}

var scenarios = []scenario{
	{name: "light", says: "18/s, evenly, at 10 instances", instances: 10, tenants: 10, perSecond: 18},
	{name: "saturation", says: "40/s, at random, at 10 instances", instances: 10, tenants: 10, perSecond: 40, poisson: true},
	{name: "flood", says: "300/s, at random, at 10 instances", instances: 10, tenants: 10, perSecond: 300, poisson: true},
	{name: "flood50", says: "300/s, at random, at 50 instances", instances: 50, tenants: 10, perSecond: 300, poisson: true},
	{name: "queue", says: "40/s, at random, at 10 instances, each waits up to 3 s in a line of 24", instances: 10, tenants: 10, patience: 3 * time.Second, perSecond: 40, poisson: true},
	{name: "contention", says: "40 at once at the start of each second, at 20 instances", instances: 20, tenants: 10, crowd: 40},
}

// knobs of the gate, the same for every scheme.
func knobs() gate.Knobs {
	return gate.Knobs{
		MaxInFlight: 10, RatePerSecond: 20, Burst: 40, MaxQueued: 24,
		BulkheadInteractive: 16, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt,
	}
}

// calls draws the load: the same for every scheme.
func (s scenario) calls(span time.Duration, seed uint64) []load.Call {
	each := func(r *rand.Rand, c *load.Call) {
		c.Patience, c.Upstream = s.patience, time.Duration(100+r.IntN(201))*time.Millisecond
	}
	var calls []load.Call
	if s.perSecond > 0 {
		calls = load.Shape{PerSecond: s.perSecond, Poisson: s.poisson, For: span, Instances: s.instances, Tenants: s.tenants, Seed: seed, Call: each}.Draw()
	}
	for second := time.Duration(0); s.crowd > 0 && second < span; second += time.Second {
		crowd := load.Shape{Instances: s.instances, Tenants: s.crowd, Seed: seed + uint64(second/time.Second), Call: each}.Draw()
		for i := range crowd {
			crowd[i].At += second
			crowd[i].Tenant = crowd[i%s.tenants].Tenant
		}
		calls = append(calls, crowd...)
	}
	slices.SortStableFunc(calls, func(a, b load.Call) int { return int(a.At - b.At) })
	for i := range calls {
		calls[i].Number = i
	}
	return calls
}
