package tenant

import (
	"cmp"
	"fmt"
	"math"

	"vingate/internal/gate"
	"vingate/internal/gcra"
)

// Plan is what a caller may use. A zero takes the default: of the environment for rate and burst, 1 for the weight, the gate's for the places.
type Plan struct {
	RatePerSecond float64 // decodes that reach for NHTSA
	Burst         int     // of them at once

	Weight int // turns in the line for each turn of weight 1, up to gate.MaxWeight

	Interactive, Batch int // places, queued or live
}

// maxPlaces bounds the places of a plan, as the gate bounds its own.
const maxPlaces = 1000

// Or is the plan with its zeros taken from another.
func (p Plan) Or(d Plan) Plan {
	return Plan{
		RatePerSecond: cmp.Or(p.RatePerSecond, d.RatePerSecond), Burst: cmp.Or(p.Burst, d.Burst),
		Weight: cmp.Or(p.Weight, d.Weight, 1), Interactive: cmp.Or(p.Interactive, d.Interactive), Batch: cmp.Or(p.Batch, d.Batch),
	}
}

// Ceiling is the number of places on a route, 0 for the gate's own.
func (p Plan) Ceiling(route gate.Route) int {
	if route == gate.Batch {
		return p.Batch
	}
	return p.Interactive
}

// Validate returns every fault at once. Zeros are none. Knob is the name of the number.
func (p Plan) Validate() []gate.Fault {
	var faults []gate.Fault
	between := func(knob string, n, hi int) {
		if n < 0 || n > hi {
			faults = append(faults, gate.Fault{Knob: knob, Problem: fmt.Sprintf("%d is not between 1 and %d", n, hi)})
		}
	}
	if r := p.RatePerSecond; r != 0 && !(r >= 0.001 && r <= 1000) { // also refuses NaN
		faults = append(faults, gate.Fault{Knob: "rate", Problem: fmt.Sprintf("%v is not between 0.001 and 1000 decodes a second", r)})
	}
	between("burst", p.Burst, 10000)
	between("weight", p.Weight, gate.MaxWeight)
	between("interactive", p.Interactive, maxPlaces)
	between("batch", p.Batch, maxPlaces)
	return faults
}

// bucket is the caller's own. The whole burst is his: unlike the shared bucket, it keeps no promise to somebody who counts by
// a clock of his own, so nothing is taken out of it for clocks that differ, and a tenant who was told "20 at once" gets 20. The price is
// that clocks which differ by d let d x rate more of his calls through. Nor has it a hysteresis: a charge has no upper bound to miss,
// and tat only grows, so a charge planned as busy always is; and without it no credit is forfeited or made up.
func (p Plan) bucket() gcra.Bucket {
	t := int64(math.Round(1e6 / p.RatePerSecond))
	return gcra.Bucket{T: t, Tau: int64(p.Burst-1) * t}
}
