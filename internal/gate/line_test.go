package gate

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

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

// aCrowd is a gate with leases and tickets of some tenants, some of them over.
func aCrowd(t *testing.T, r *rapid.T) *ward {
	w := newWard(t, rapid.IntRange(1, 6).Draw(r, "slots"), 100)
	w.state.Knobs.BatchSlots = rapid.IntRange(0, max(1, w.state.Limit-1)).Draw(r, "batch slots")
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
	}
	w.state.VirtualTime = rapid.Int64Range(0, 3*tagUnit).Draw(r, "virtual time")
	for _, f := range slices.Sorted(maps.Keys(w.state.Flows)) {
		turn := w.state.Flows[f]
		turn.Tag, turn.Since = rapid.Int64Range(0, 3).Draw(r, "tag")*tagUnit, w.now.Millis()+Millis(rapid.IntRange(-2, 1).Draw(r, "since"))
		w.state.Flows[f] = turn
	}
	return w
}

func TestProperty_TheLineIsTheOneThatIsPlainlySaid(t *testing.T) {
	longest := 0
	rapid.Check(t, func(r *rapid.T) {
		w := aCrowd(t, r)
		passed := map[string]bool{}
		for _, id := range slices.Sorted(maps.Keys(w.state.Tickets)) {
			if rapid.IntRange(0, 9).Draw(r, "passed") == 0 {
				passed[id] = true
			}
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

// Who asks to join is placed without making the state that its write would leave.
func TestProperty_WhoJoinsStandsWhereItsWritePutsIt(t *testing.T) {
	joined := 0
	rapid.Check(t, func(r *rapid.T) {
		w := aCrowd(t, r)
		key := Key{rapid.SampledFrom([]Route{Interactive, Batch}).Draw(r, "route"), rapid.SampledFrom([]string{"A", "B", "E"}).Draw(r, "tenant")}
		ask := Request{ID: fmt.Sprintf("%-5.5s%04d", key.Tenant, rapid.SampledFrom([]int{0, 3, 99}).Draw(r, "id")), Key: key,
			Cost: rapid.IntRange(1, 5).Draw(r, "cost"), Weight: rapid.IntRange(1, 10).Draw(r, "weight"), Patience: time.Hour}
		if p := w.state.placeOf(ask.ID); p != "" && p != key.Place() {
			return // an id has one key
		}
		write, _ := w.state.planEnqueue(w.now, ask, key.Place(), 100, Refusal{})
		if write.Turn.Flow == "" {
			return // its flow, or the line, is full
		}
		joined++
		ms := w.now.Millis()
		after := write.Apply(w.state)
		want := after.line(ms, nil)
		for what, s := range map[string]State{"plain": w.state, "lasting": w.state.Lasting()} {
			if got := s.lineWith(&write, ms, nil, nil); !slices.Equal(got, want) {
				t.Fatalf("%s: %v\nafter the write %v\n%+v\n%+v", what, got, want, write, w.state)
			}
		}
	})
	if joined == 0 {
		t.Error("nobody joined")
	}
}

// A lasting state says whatever the plain one says, at any time, also when it is asked twice.
func TestProperty_ALastingStateAnswersTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := aCrowd(t, r)
		w.state.TAT = w.now + Micros(rapid.Int64Range(-5e6, 5e6).Draw(r, "tat"))
		lasting := w.state.Lasting()
		tickets := append(slices.Sorted(maps.Keys(w.state.Tickets)), "B    9999")
		for range 4 {
			span := rapid.SampledFrom([]int64{3e3, 2e6}).Draw(r, "span")
			now := w.now + Micros(rapid.Int64Range(-span, span).Draw(r, "now"))
			id := rapid.SampledFrom(tickets).Draw(r, "id")
			ask := Request{ID: id, Key: Key{rapid.SampledFrom([]Route{Interactive, Batch}).Draw(r, "route"), string(id[0])}, Cost: rapid.IntRange(1, 3).Draw(r, "cost"),
				Own: rapid.IntRange(0, 2).Draw(r, "own"), Patience: time.Duration(rapid.IntRange(0, 5).Draw(r, "patience")) * time.Second}
			passed := map[string]bool{rapid.SampledFrom(tickets).Draw(r, "passed"): true}
			answers := func(s State) []any {
				admit, enqueue, refusal := s.Plan(now, ask)
				claim, rest, lost := s.PlanClaim(now, ask, nil)
				sent, shared := s.Send(now, ask, Refusal{Cause: NoToken})
				sweep, something := s.PlanSweep(now)
				release := s.PlanRelease(now, &Lease{ID: id, Key: ask.Key}, Outcome{Kind: Succeeded, Took: time.Second})
				return []any{admit, enqueue, refusal, claim, rest, lost, sent, shared, sweep, something, release, s.WaitedInVain(now, id), s.Heads(now, id, nil), s.Heads(now, id, passed),
					s.Certain(now, ask), s.View(now)}
			}
			if got, want := answers(lasting), answers(w.state); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v\nplainly %+v\n%+v", got, want, w.state)
			}
		}
	})
}
