package config

import (
	"slices"
	"time"

	"vingate/internal/gate"
)

// Knobs lists the variables whose numbers live in the shared budget itself.
func Knobs() []Variable {
	var out []Variable
	for _, v := range Variables() {
		if slices.Contains(knobVariables, v.Name) {
			out = append(out, v)
		}
	}
	return out
}

// Change is knobs that are in force with some of them changed: changes holds texts by the variables' names, written as in the environment.
// They are checked together with those that stay, and with UPSTREAM_TIMEOUT and BATCH_TOKEN_COST, which getenv must give as the functions
// have them. The error is a *Error and holds every fault.
func Change(inForce gate.Knobs, changes map[string]string, getenv func(string) string) (gate.Knobs, error) {
	stays := map[string]string{}
	for _, n := range inForce.Named() {
		stays[n.Knob] = n.Value
	}
	r := newReader(func(name string) string {
		if v, changed := changes[name]; changed {
			return v
		}
		if v, knob := stays[name]; knob {
			return v
		}
		if name == upstreamTimeout || name == batchTokenCost {
			return getenv(name)
		}
		return "" // the default, which is no fault
	})
	c := Config{Gate: r.gate()}
	c.UpstreamTimeout = r.duration(upstreamTimeout, 100*time.Millisecond, time.Minute)
	c.BatchTokenCost = r.integer(batchTokenCost, 1, 100)
	r.callWithinLease(c)
	r.fullBatchWithinBudget(c)
	for name := range changes {
		if _, knob := stays[name]; !knob {
			r.fault(name, "is no number of the shared budget", "set it where the functions are deployed")
		}
	}
	return c.Knobs, r.err()
}
