package gate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// alone is a copy that shares nothing.
func alone(s State) State {
	s.known = nil
	s.Leases, s.Tickets, s.Flows, s.Batch = maps.Clone(s.Leases), maps.Clone(s.Tickets), maps.Clone(s.Flows), slices.Clone(s.Batch)
	places, owned := map[Place][]string{}, map[Flow][]string{}
	for p, ids := range s.Places {
		places[p] = slices.Clone(ids)
	}
	for f, ids := range s.Owned {
		owned[f] = slices.Clone(ids)
	}
	s.Places, s.Owned = places, owned
	return s
}

// A write makes a state of its own. The one that it was made for, and all that others have made of that, stay as they were, whatever they have in common.
func TestProperty_AWriteLeavesTheStateItMetAsItWas(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		w := aCrowd(t, r)
		w.state.TAT = w.now + Micros(rapid.Int64Range(-5e6, 1e6).Draw(r, "tat"))
		for id := range w.state.Leases {
			if id[0] == 'A' {
				w.state.Owned[flowOf(id)] = insert(w.state.Owned[flowOf(id)], id)
			}
		}
		type made struct {
			what  string
			state State
			was   State
		}
		history := []made{{"", w.state.Lasting(), alone(w.state)}}
		for range rapid.IntRange(1, 6).Draw(r, "writes") {
			met := &history[rapid.IntRange(0, len(history)-1).Draw(r, "met")].state
			ids := append(slices.Sorted(maps.Keys(met.Tickets)), "B    9999", "E    9999")
			id := rapid.SampledFrom(append(ids, slices.Sorted(maps.Keys(met.Leases))...)).Draw(r, "id")
			ask := Request{ID: id, Key: Key{rapid.SampledFrom([]Route{Interactive, Batch}).Draw(r, "route"), string(id[0])}, Cost: rapid.IntRange(1, 3).Draw(r, "cost"),
				Own: rapid.IntRange(0, 2).Draw(r, "own"), Patience: time.Hour}
			if p := met.placeOf(id); p != "" && p != ask.Key.Place() {
				ask.Key.Route = map[bool]Route{true: Batch, false: Interactive}[p.batch()] // an id has one key
			}
			now := w.now + Micros(rapid.Int64Range(-1e6, 3e6).Draw(r, "now"))
			apply := map[string]func(State) State{}
			admit, enqueue, _ := met.Plan(now, ask)
			if admit != nil {
				apply["admit"] = admit.Apply
			}
			if enqueue != nil {
				apply["enqueue"] = enqueue.Apply
			}
			if _, queued := met.Tickets[id]; queued {
				if claim, rest, lost := met.PlanClaim(now, ask, nil); rest == 0 && lost == nil {
					apply["claim"] = claim.Apply
				}
				if cancel, ok := met.PlanCancel(id, ask.Key); ok {
					apply["cancel"] = cancel.Apply
				}
			}
			if end, leased := met.Leases[id]; leased {
				outcome := Outcome{Kind: rapid.SampledFrom([]OutcomeKind{Succeeded, Throttled, Failed}).Draw(r, "outcome"), Took: time.Second}
				apply["release"] = met.PlanRelease(now, &Lease{ID: id, Key: ask.Key, End: end.Time()}, outcome).Apply
			}
			if sweep, something := met.PlanSweep(now); something {
				apply["sweep"] = sweep.Apply
			}
			k := met.Knobs
			k.MaxInFlight = max(1, k.MaxInFlight-1)
			apply["tune"] = met.PlanTune(now, k).Apply
			what := rapid.SampledFrom(slices.Sorted(maps.Keys(apply))).Draw(r, "write")
			seen[what]++
			want := apply[what](alone(*met))
			history = append(history, made{what, apply[what](*met), alone(want)})
			for i, h := range history {
				if got := alone(h.state); !reflect.DeepEqual(got, h.was) {
					t.Fatalf("%s: state %d of %d (%s) is\n%+v\nand was\n%+v", what, i, len(history), h.what, got, h.was)
				}
			}
		}
	})
	for _, what := range []string{"admit", "enqueue", "claim", "cancel", "release", "sweep", "tune"} {
		if seen[what] == 0 {
			t.Errorf("no %s: %v", what, fmt.Sprint(seen))
		}
	}
}
