package gate

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lineByMaps says the order of the line as plainly as it can be said. The one that is shipped takes half of its time, and nothing while nobody waits.
func lineByMaps(s State, now Millis, passed map[string]bool) []string {
	type flow struct {
		name    Flow
		turn    Turn
		waiting []string
	}
	byName := map[Flow]*flow{}
	var flows []*flow
	interactive := 0
	places := map[string]Place{}
	taken := map[Place]int{}
	for p, ids := range s.Places {
		for _, id := range ids {
			places[id] = p
			if end, leased := s.Leases[id]; leased && !s.dead(end, now) {
				taken[p]++
			}
			t, queued := s.Tickets[id]
			if !queued || passed[id] || s.expired(t, now) {
				continue
			}
			f := byName[flowOf(id)]
			if f == nil {
				f = &flow{name: flowOf(id), turn: s.Flows[flowOf(id)]}
				byName[f.name] = f
				flows = append(flows, f)
			}
			f.waiting = append(f.waiting, id)
			if !p.batch() {
				interactive++
			}
		}
	}
	for _, f := range flows {
		slices.SortFunc(f.waiting, func(a, b string) int {
			return cmp.Or(cmp.Compare(s.Tickets[a].Arrival, s.Tickets[b].Arrival), cmp.Compare(a, b))
		})
	}
	batch, vt := s.live(s.Batch, now), s.VirtualTime
	can := func(id string) bool {
		p := places[id]
		return taken[p] < s.Knobs.keySlots(s.Limit) &&
			(!p.batch() || batch < s.Knobs.batchSlots(s.Limit) && (s.Limit > 1 || interactive == 0))
	}
	var line []string
	for {
		var first *flow
		var at int
		for _, f := range flows {
			i := slices.IndexFunc(f.waiting, can)
			if i >= 0 && (first == nil || cmp.Or(cmp.Compare(f.turn.Tag, first.turn.Tag),
				cmp.Compare(f.turn.Since, first.turn.Since), cmp.Compare(f.name, first.name)) < 0) {
				first, at = f, i
			}
		}
		if first == nil {
			return line
		}
		id := first.waiting[at]
		first.waiting = slices.Delete(first.waiting, at, at+1)
		line = append(line, id)
		taken[places[id]]++
		if places[id].batch() {
			batch++
		} else {
			interactive--
		}
		vt = max(vt, first.turn.Tag)
		if len(first.waiting) > 0 {
			// A tag set now is younger than all that were set before, and each than the one before it.
			first.turn = Turn{Tag: vt + s.Tickets[first.waiting[0]].advance(), Since: now + Millis(len(line))}
		}
	}
}

func TestProperty_TheLineIsTheOneThatIsPlainlySaid(t *testing.T) {
	longest := 0
	rapid.Check(t, func(r *rapid.T) {
		w := newWard(t, rapid.IntRange(1, 6).Draw(r, "slots"), 100)
		w.state.Knobs.BatchSlots = rapid.IntRange(0, max(1, w.state.Limit-1)).Draw(r, "batch slots")
		passed := map[string]bool{}
		for i := range rapid.IntRange(0, 24).Draw(r, "ids") {
			tenant := rapid.SampledFrom([]string{"A", "B", "C", "D"}).Draw(r, "tenant")
			id := fmt.Sprintf("%-5.5s%04d", tenant, i)
			key := Key{rapid.SampledFrom([]Route{Interactive, Interactive, Batch}).Draw(r, "route"), tenant}
			if rapid.IntRange(0, 3).Draw(r, "lease") == 0 {
				w.state.Leases[id] = w.now.Millis() + Millis(rapid.IntRange(-1000, 15000).Draw(r, "end"))
				w.state.Places[key.Place()] = insert(w.state.Places[key.Place()], id)
				if key.Route == Batch {
					w.state.Batch = insert(w.state.Batch, id)
				}
				continue
			}
			w.state = queued(w.state, id, key)
			ticket := w.state.Tickets[id]
			ticket.Arrival = w.now.Millis() - Millis(rapid.IntRange(0, 3).Draw(r, "waited"))
			ticket.Deadline = w.now.Millis() + Millis(rapid.SampledFrom([]int{-1000, 1000, 1000, 1000}).Draw(r, "left"))
			ticket.Cost, ticket.Weight = rapid.IntRange(1, 5).Draw(r, "cost"), rapid.IntRange(1, 10).Draw(r, "weight")
			w.state.Tickets[id] = ticket
			if rapid.IntRange(0, 9).Draw(r, "passed") == 0 {
				passed[id] = true
			}
		}
		w.state.VirtualTime = rapid.Int64Range(0, 3*tagUnit).Draw(r, "virtual time")
		for f, turn := range w.state.Flows {
			turn.Tag, turn.Since = rapid.Int64Range(0, 3).Draw(r, "tag")*tagUnit, Millis(rapid.IntRange(0, 2).Draw(r, "since"))
			w.state.Flows[f] = turn
		}
		got, want := w.state.line(w.now.Millis(), passed), lineByMaps(w.state, w.now.Millis(), passed)
		if longest = max(longest, len(got)); !slices.Equal(got, want) {
			t.Fatalf("%v\nplainly %v\n%+v", got, want, w.state)
		}
	})
	if longest < 4 {
		t.Errorf("no line was longer than %d: this shows little", longest)
	}
}
