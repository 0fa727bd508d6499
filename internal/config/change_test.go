package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vingate/internal/gate"
)

func inForce(t *testing.T) gate.Knobs {
	t.Helper()
	g, err := LoadGate(env())
	if err != nil {
		t.Fatal(err)
	}
	return g.Knobs
}

func TestAChangeTakesWhatIsGivenAndLeavesTheRest(t *testing.T) {
	k := inForce(t)
	k.MaxInFlight, k.KeySlots = 3, 1 // not the defaults
	got, err := Change(k, map[string]string{"RATE_PER_SECOND": "1.5", "LEASE_TTL": "20s"}, env("MAX_IN_FLIGHT", "50", "UPSTREAM_TIMEOUT", "12s"))
	want := k
	want.RatePerSecond, want.LeaseTTL = 1.5, 20*time.Second
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, v := range Knobs() { // every one can be given as it is
		for _, n := range k.Named() {
			if n.Knob == v.Name {
				if got, err := Change(k, map[string]string{n.Knob: n.Value}, env()); err != nil || got != k {
					t.Errorf("%s=%s: %+v, %v", n.Knob, n.Value, got, err)
				}
			}
		}
	}
	if len(Knobs()) != len(k.Named())-1 { // the attempt's time is the program's own
		t.Errorf("%d variables for %d knobs", len(Knobs()), len(k.Named()))
	}
}

func TestAChangeIsRefusedWithEveryFaultInOneMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		changes map[string]string
		env     []string
		want    []string
	}{
		"a lease shorter than the call":      {map[string]string{"LEASE_TTL": "10s"}, nil, []string{"UPSTREAM_TIMEOUT"}},
		"a call longer than the lease":       {map[string]string{"MAX_QUEUED": "3"}, []string{"UPSTREAM_TIMEOUT", "14s"}, []string{"UPSTREAM_TIMEOUT"}},
		"a burst below what clocks take":     {map[string]string{"RATE_PER_SECOND": "20"}, nil, []string{"RATE_BURST"}},
		"a burst below the dearest batch":    {map[string]string{"RATE_BURST": "5"}, nil, []string{"BATCH_TOKEN_COST"}},
		"more batch slots than slots":        {map[string]string{"BATCH_SLOTS": "5"}, nil, []string{"BATCH_SLOTS"}},
		"no slot, no rate, a negative place": {map[string]string{"MAX_IN_FLIGHT": "0", "RATE_PER_SECOND": "-1", "BULKHEAD_ANON": "-3", "LEASE_TTL": "soon"}, nil, []string{"MAX_IN_FLIGHT", "RATE_PER_SECOND", "BULKHEAD_ANON", "LEASE_TTL"}},
		"what is none of the budget's":       {map[string]string{"MAX_WAIT": "5s"}, nil, []string{"MAX_WAIT"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Change(inForce(t), tc.changes, env(tc.env...))
			var e *Error
			if !errors.As(err, &e) || len(e.Faults) != len(tc.want) {
				t.Fatalf("%v, want faults of %v", err, tc.want)
			}
			for _, name := range tc.want {
				if !strings.Contains(err.Error(), "\n  "+name+"=") {
					t.Errorf("%v, want a fault of %s", err, name)
				}
			}
		})
	}
}

// One knob that cannot be read hides the faults of no other, but for those that hang on it.
func TestAnUnreadableKnobHidesOnlyWhatHangsOnIt(t *testing.T) {
	for name, tc := range map[string]struct {
		changes map[string]string
		want    string // the variables at fault, in their order
	}{
		"the line":           {map[string]string{"MAX_QUEUED": "many", "BATCH_SLOTS": "7", "RATE_PER_SECOND": "20"}, "RATE_BURST MAX_QUEUED BATCH_SLOTS"},
		"the slots":          {map[string]string{"MAX_IN_FLIGHT": "many", "BATCH_SLOTS": "7", "RATE_PER_SECOND": "20"}, "MAX_IN_FLIGHT RATE_BURST"},
		"the clocks":         {map[string]string{"CLOCK_SKEW_BOUND": "small", "BATCH_SLOTS": "7", "RATE_PER_SECOND": "20"}, "BATCH_SLOTS CLOCK_SKEW_BOUND"},
		"none":               {map[string]string{"MAX_IN_FLIGHT": "65", "BATCH_SLOTS": "65"}, "MAX_IN_FLIGHT BATCH_SLOTS"},
		"the slots and more": {map[string]string{"MAX_IN_FLIGHT": "0", "RATE_PER_SECOND": "-1", "RATE_BURST": "0", "LEASE_TTL": "1h"}, "MAX_IN_FLIGHT RATE_PER_SECOND RATE_BURST LEASE_TTL"},
	} {
		_, err := Change(inForce(t), tc.changes, env())
		var e *Error
		var got []string
		if errors.As(err, &e) {
			for _, f := range e.Faults {
				got = append(got, f.Variable)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want faults of %s", name, err, tc.want)
		}
	}
}
