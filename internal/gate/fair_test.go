package gate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ward serves a line in virtual time: every waiter sees the state as it is and claims when the core says so; calls last as long
// as they are told.
type ward struct {
	*testing.T
	state  State
	now    Micros
	n      int
	grants []string // flows, in the order in which they were granted
	ends   []running
	takes  time.Duration
	seats  map[string]time.Duration // seat-seconds by flow
}

type running struct {
	at    Micros
	lease *Lease
}

func newWard(t *testing.T, slots int, rate float64) *ward {
	k := testKnobs()
	k.MaxInFlight, k.RatePerSecond, k.MaxQueued = slots, rate, 64
	k.Burst = 1 + int(math.Ceil(3*rate))
	k.BulkheadInteractive, k.BulkheadAnon, k.BulkheadBatch = 64, 64, 64
	return &ward{T: t, state: NewState(k, noon, false), now: noon, takes: 100 * time.Millisecond, seats: map[string]time.Duration{}}
}

func tenantKey(name string) Key { return Key{Interactive, name} }

// queue puts n tickets of a tenant into the line, however many it has already; it returns their ids. The turn they get is the one that the
// gate's own write gives.
func (w *ward) queue(tenant string, n, weight int) []string {
	w.Helper()
	var ids []string
	for range n {
		w.n++
		id := fmt.Sprintf("%-5.5s%04d", tenant, w.n)
		own := w.joined(id, Request{ID: id, Key: tenantKey(tenant), Weight: weight, Patience: 1e7 * time.Millisecond})
		w.state = queued(w.state, id, tenantKey(tenant))
		t := w.state.Tickets[id]
		t.Arrival, t.Deadline, t.Weight = w.now.Millis(), w.now.Millis()+1e7, weight
		if turn := w.state.Flows[flowOf(id)]; turn.Count == 1 {
			turn.Tag, turn.Since = w.state.VirtualTime+t.advance(), w.now.Millis()
			w.state.Flows[flowOf(id)] = turn
		}
		if turn := w.state.Flows[flowOf(id)]; own != nil && *own != turn {
			w.Fatalf("%s gets the turn %+v, and not %+v", id, *own, turn)
		}
		w.state.Tickets[id] = t
		ids = append(ids, id)
	}
	return ids
}

// joined is the turn of its flow that the gate's own write leaves, in a line that has room for all; nil where it would drop tickets besides.
func (w *ward) joined(id string, r Request) *Turn {
	w.Helper()
	roomy := w.state
	roomy.Knobs.MaxQueued = 10_000
	write, refusal := roomy.planEnqueue(w.now, r, r.Key.Place(), 10_000, Refusal{})
	if refusal != nil {
		w.Fatalf("%s may not wait: %+v", id, *refusal)
	}
	if len(write.Drops.Tickets) > 0 {
		return nil
	}
	turn := write.Apply(w.state).Flows[flowOf(id)]
	return &turn
}

func (w *ward) cancel(ids []string) {
	w.Helper()
	for _, id := range ids {
		c, there := w.state.PlanCancel(id, tenantKey(strings.TrimSpace(id[:5])))
		if !there || !c.Holds(w.state) {
			w.Fatalf("cannot cancel %s", id)
		}
		w.state = c.Apply(w.state)
	}
}

// serve goes on until n more tickets have been granted; between runs before each look.
func (w *ward) serve(n int, between func()) []string {
	w.Helper()
	first := len(w.grants)
	for steps := 0; len(w.grants) < first+n; steps++ {
		if steps > 100_000 {
			w.Fatalf("only %d of %d are granted: %+v", len(w.grants)-first, n, w.state)
		}
		if between != nil {
			between()
		}
		next := Micros(math.MaxInt64)
		granted := false
		for _, id := range w.state.line(w.now.Millis(), nil) {
			tenant := strings.TrimSpace(id[:5])
			c, rest, refusal := w.state.PlanClaim(w.now, Request{ID: id, Key: tenantKey(tenant)}, nil)
			if refusal != nil {
				w.Fatalf("%s: %+v", id, *refusal)
			}
			if rest > 0 {
				next = min(next, w.now+Micros(rest.Microseconds()))
				continue
			}
			if !c.Holds(w.state) {
				w.Fatalf("a claim does not hold where it was planned: %+v on %+v", c, w.state)
			}
			w.state = c.Apply(w.state)
			checkInvariants(w.T, w.state, w.state.Limit)
			w.grants = append(w.grants, tenant)
			w.ends = append(w.ends, running{w.now + Micros(w.takes.Microseconds()), w.state.Lease(c.ID, tenantKey(tenant), c.Now, c.End)})
			granted = true
			break
		}
		if granted {
			continue
		}
		slices.SortFunc(w.ends, func(a, b running) int { return int(a.at - b.at) })
		if len(w.ends) > 0 && w.ends[0].at <= next {
			next = w.ends[0].at
		}
		for _, r := range w.ends {
			w.seats[r.lease.Key.Tenant] += time.Duration(next-w.now) * time.Microsecond
		}
		w.now = next
		for len(w.ends) > 0 && w.ends[0].at <= w.now {
			w.state = w.state.PlanRelease(w.now, w.ends[0].lease, Outcome{Kind: Succeeded, Took: w.takes}).Apply(w.state)
			w.ends = w.ends[1:]
		}
	}
	return w.grants[first:]
}

func count(grants []string, tenant string) (n int) {
	for _, g := range grants {
		if g == tenant {
			n++
		}
	}
	return n
}

// everyWard runs a test slot-bound and token-bound, with one slot and with several.
func everyWard(t *testing.T, test func(w *ward)) {
	for _, slots := range []int{1, 2, 4, 10} {
		for _, rate := range []float64{2, 100} {
			t.Run(fmt.Sprintf("%d slots, %v a second", slots, rate), func(t *testing.T) { test(newWard(t, slots, rate)) })
		}
	}
}

func TestNewcomersAreServedBesideAPasteOfForty(t *testing.T) {
	everyWard(t, func(w *ward) {
		w.queue("A", 40, 1)
		w.serve(2, nil)
		w.queue("B", 1, 1)
		w.queue("C", 1, 1)
		if got := w.serve(3, nil); count(got, "B") != 1 || count(got, "C") != 1 {
			w.Errorf("the next three grants: %v", got)
		}
	})
}

func TestWhoCancelsHalfLosesNoTurn(t *testing.T) {
	everyWard(t, func(w *ward) {
		a := w.queue("A", 40, 1)
		w.queue("B", 40, 1)
		w.serve(2, nil)
		waiting := slices.DeleteFunc(a, func(id string) bool { _, still := w.state.Tickets[id]; return !still })
		w.cancel(waiting[:20])
		if got := w.serve(20, nil); count(got, "A") < 9 || count(got, "A") > 11 {
			w.Errorf("A got %d of 20: %v", count(got, "A"), got)
		}
	})
}

func TestAStreamOfNewTenantsLeavesEverybodyItsShare(t *testing.T) {
	everyWard(t, func(w *ward) {
		w.queue("A", 40, 1)
		fresh := 0
		newcomer := func() {
			for _, id := range w.state.line(w.now.Millis(), nil) {
				if id[0] == 'n' {
					return
				}
			}
			fresh++
			w.queue(fmt.Sprintf("n%d", fresh), 1, 1)
		}
		if got := w.serve(40, newcomer); count(got, "A") < 19 || count(got, "A") > 21 {
			w.Errorf("A got %d of 40 beside a stream of %d: %v", count(got, "A"), fresh, got)
		}
	})
}

func TestGrantsGoRoundRobin(t *testing.T) {
	everyWard(t, func(w *ward) {
		names := []string{"A", "B", "C", "D"}
		for _, name := range names {
			w.queue(name, 20, 1)
		}
		got := w.serve(72, nil)
		for from := range got { // over any n grants
			for to := from + 1; to <= len(got); to++ {
				for _, name := range names {
					if n, fair := count(got[from:to], name), float64(to-from)/4; math.Abs(float64(n)-fair) > 1 {
						w.Fatalf("%s got %d of the grants %d to %d: %v", name, n, from, to, got)
					}
				}
			}
		}
		sum, squares := 0.0, 0.0
		for _, name := range names {
			x := w.seats[name].Seconds()
			sum, squares = sum+x, squares+x*x
		}
		if jain := sum * sum / (float64(len(names)) * squares); jain < 0.99 {
			w.Errorf("Jain index of the seat-seconds %v: %v", jain, w.seats)
		}
	})
}

func TestWeightsOneToTwoGiveOneToTwo(t *testing.T) {
	everyWard(t, func(w *ward) {
		if w.state.Limit == 2 {
			return // each key may hold one of the two slots: that comes first
		}
		w.queue("A", 30, 1)
		w.queue("B", 30, 2)
		got := w.serve(42, nil)
		for n := 3; n <= len(got); n += 3 {
			if a := count(got[:n], "A"); a < n/3-1 || a > n/3+1 {
				w.Fatalf("A got %d of the first %d: %v", a, n, got)
			}
		}
	})
}

// kubernetes#95979, redisson#3573: who was idle has saved nothing up.
func TestKubernetes95979_IdleFlowsBuildNoCredit(t *testing.T) {
	everyWard(t, func(w *ward) {
		w.queue("A", 60, 1)
		w.serve(20, nil)
		w.queue("B", 20, 1)
		if got := w.serve(20, nil); count(got, "B") > 11 {
			w.Errorf("B got %d of 20 after idling: %v", count(got, "B"), got)
		}
	})
}

func TestAFlowWithoutTicketsIsForgotten(t *testing.T) {
	w := newWard(t, 2, 100)
	w.cancel(w.queue("A", 3, 1))
	w.queue("B", 2, 1)
	w.serve(2, nil)
	if len(w.state.Flows) != 0 || len(w.state.Tickets) != 0 {
		t.Errorf("remembered: %+v", w.state.Flows)
	}
}

func TestTwoDeadHeadsArePassed(t *testing.T) {
	w := newWard(t, 1, 100)
	dead := append(w.queue("A", 1, 1), w.queue("B", 1, 1)...)
	c := w.queue("C", 1, 1)[0]
	passed := map[string]bool{}
	for range 2 {
		heads := w.state.Heads(w.now, c, passed)
		if len(heads) != 1 {
			t.Fatalf("heads %v", heads)
		}
		if _, rest, _ := w.state.PlanClaim(w.now, Request{ID: c, Key: tenantKey("C")}, passed); rest == 0 {
			t.Fatal("C may claim although it is not its turn")
		}
		passed[heads[0]] = true
	}
	if _, rest, _ := w.state.PlanClaim(w.now, Request{ID: c, Key: tenantKey("C")}, passed); rest != 0 {
		t.Errorf("C may not claim although %v are passed", dead)
	}
}

// With free capacity nobody has to wait for a dead head: rank r claims with r+1 slots and tokens.
func TestFreeCapacityGoesAroundADeadHead(t *testing.T) {
	w := newWard(t, 4, 100)
	w.queue("A", 1, 1)
	b := w.queue("B", 1, 1)[0]
	if c, rest, refusal := w.state.PlanClaim(w.now, Request{ID: b, Key: tenantKey("B")}, nil); rest != 0 || refusal != nil || !c.Holds(w.state) {
		t.Errorf("B waits %v, %+v", rest, refusal)
	}
}

// kubernetes#119799, #100634: expired tickets are dropped by whoever writes next; nobody has to arrive for a wait to end.
func TestKubernetes119799_DeadTicketsGoWithTheNextWrite(t *testing.T) {
	for _, next := range []string{"enter", "claim"} {
		w := newWard(t, 1, 100)
		w.queue("A", 3, 1)
		w.queue("B", 2, 1)
		for id, ticket := range w.state.Tickets {
			ticket.Deadline = ticket.Arrival + 100
			w.state.Tickets[id] = ticket
		}
		w.now += 1_000_000
		if next == "claim" {
			w.queue("B", 1, 1)
			w.serve(1, nil)
		} else {
			a, _, refusal := w.state.Plan(w.now, Request{ID: "A    new", Key: tenantKey("A"), Patience: time.Second})
			if refusal != nil || a == nil || !a.Holds(w.state) {
				t.Fatalf("%+v %+v", a, refusal)
			}
			w.state = a.Apply(w.state)
		}
		checkInvariants(t, w.state, 1)
		if len(w.state.Tickets) != 0 || len(w.state.Flows) != 0 {
			t.Errorf("%s: left in the line: %+v", next, w.state.Tickets)
		}
	}
}

func TestWhoCannotBeServedInTimeIsToldAtOnce(t *testing.T) {
	w := newWard(t, 4, 2)
	w.state.TAT = w.now + Micros(w.state.Knobs.Bucket().Tau+2_000_000) // dry for two seconds
	ask := func(patience time.Duration) (*Enqueue, *Refusal) {
		_, e, refusal := w.state.Plan(w.now, Request{ID: "A    0000", Key: tenantKey("A"), Patience: patience})
		return e, refusal
	}
	if _, r := ask(1900 * time.Millisecond); r == nil || r.Cause != NoToken || r.RetryAfter != 2*time.Second {
		t.Errorf("%+v", r)
	}
	if e, r := ask(2100 * time.Millisecond); e == nil {
		t.Errorf("%+v", r)
	}
	for _, tenant := range []string{"B", "C", "D"} {
		w.queue(tenant, 1, 1)
	}
	w.now += 1000                                                                                      // they came first
	if _, r := ask(3 * time.Second); r == nil || r.Cause != NoToken || r.RetryAfter != 4*time.Second { // three tokens ahead
		t.Errorf("%+v", r)
	}
	w.state.TAT = 0
	w.state.Latency = 2000
	for i := range 4 {
		w.state.Leases[fmt.Sprint("l", i)] = w.now.Millis() + 15000
	}
	if _, r := ask(1900 * time.Millisecond); r == nil || r.Cause != NoSlot || r.RetryAfter != 2*time.Second { // four at 0.5 s each
		t.Errorf("%+v", r)
	}
}

func TestOneTenantCannotFillTheLine(t *testing.T) {
	w := newWard(t, 1, 100)
	w.state.Leases["busy"] = w.now.Millis() + 15000
	w.state.Latency = 1
	enter := func(tenant string, i int) *Refusal {
		id := fmt.Sprintf("%-5.5s%04d", tenant, i)
		_, e, refusal := w.state.Plan(w.now, Request{ID: id, Key: tenantKey(tenant), Patience: time.Minute})
		if refusal == nil {
			w.state = e.Apply(w.state)
		}
		return refusal
	}
	for i := range 17 {
		if r := enter("A", i); (r != nil) != (i == 16) || r != nil && r.Cause != FlowFull {
			t.Fatalf("ticket %d of one tenant in a line of 64: %+v", i+1, r)
		}
	}
	for tenant := range 6 {
		for i := range 8 {
			if r := enter(fmt.Sprint("B", tenant), i); r != nil {
				t.Fatalf("tenant %d: %+v", tenant, *r)
			}
		}
	}
	if r := enter("late", 0); r == nil || r.Cause != QueueFull {
		t.Errorf("ticket 65: %+v", r)
	}
}

// A batch at its share of the slots does not stand in the way of those behind it.
func TestABlockedBatchBlocksNobodyElse(t *testing.T) {
	w := newWard(t, 4, 100)
	w.state.Knobs.BatchSlots = 1
	w.state.Leases["batch"] = w.now.Millis() + 15000
	w.state.Batch = []string{"batch"}
	w.state.Places[lot.Place()] = []string{"batch"}
	w.state = queued(w.state, "lot  0000", Key{Batch, "other"})
	w.queue("A", 2, 1)
	if got := w.serve(2, nil); count(got, "A") != 2 {
		t.Errorf("%v", got)
	}
	if _, still := w.state.Tickets["lot  0000"]; !still {
		t.Error("the batch lost its ticket")
	}
}

func TestLineIsAPermutationAndItsOrderIsThatOfTheGrants(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWard(t, rapid.IntRange(1, 4).Draw(r, "slots"), 100)
		for i := range rapid.IntRange(1, 12).Draw(r, "tickets") {
			w.queue(rapid.SampledFrom([]string{"A", "B", "C"}).Draw(r, "tenant"), 1, 1+i%3)
		}
		var want []string
		for _, id := range w.state.line(w.now.Millis(), nil) {
			want = append(want, strings.TrimSpace(id[:5]))
		}
		if w.state.Limit > 3 && len(want) != len(w.state.Tickets) && len(want) < 3 {
			t.Fatalf("%d of %d in the line", len(want), len(w.state.Tickets))
		}
		if got := w.serve(len(want), nil); w.state.Limit > 1 && !slices.Equal(got[:1], want[:1]) || len(got) != len(want) {
			t.Fatalf("predicted %v, granted %v", want, got)
		}
	})
}

// A waiter's estimate of its slot comes from the leases: when each began, and how long calls usually take.
func TestAWaiterExpectsItsSlotFromTheLeases(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		limit int
		ages  []time.Duration // of the leases; calls take 800 ms
		rank  int
		want  time.Duration
	}{
		"the first of two slots":                    {2, []time.Duration{100 * ms, 600 * ms}, 0, 250 * ms},
		"the second of two slots":                   {2, []time.Duration{100 * ms, 600 * ms}, 1, 750 * ms},
		"the third has to wait for another call":    {2, []time.Duration{100 * ms, 600 * ms}, 2, 250*ms + 900*ms},
		"a free slot goes to those ahead":           {2, []time.Duration{100 * ms}, 1, 750 * ms},
		"a free slot, and two ahead":                {2, []time.Duration{100 * ms}, 2, 900 * ms},
		"a call that is late may be over soon":      {1, []time.Duration{850 * ms}, 0, 100 * ms},
		"one that is very late less so":             {1, []time.Duration{5800 * ms}, 0, 5000 * ms},
		"it does not hide the other slot":           {2, []time.Duration{5800 * ms, 600 * ms}, 0, 250 * ms},
		"after a cut the first end leaves none":     {1, []time.Duration{100 * ms, 600 * ms}, 0, 750 * ms},
		"a dead lease is no call":                   {2, []time.Duration{100 * ms, time.Minute}, 0, 0},
		"one slot, nobody in it, the second waiter": {1, nil, 1, 900 * ms},
	} {
		s := fresh(testKnobs())
		s.Limit, s.Latency = c.limit, 800
		for i, age := range c.ages {
			s.Leases[fmt.Sprint("lease", i)] = after(s.Knobs.LeaseTTL - age).Millis()
		}
		if got := s.slotAfter(noon, c.rank); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

func TestAWaiterSleepsUntilItsTurnOrLooksInBetween(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ expected, grant, want time.Duration }{
		{0, 50 * ms, 5 * ms},
		{60 * ms, 50 * ms, 60 * ms},
		{100 * ms, 50 * ms, 100 * ms},
		{120 * ms, 50 * ms, 60 * ms},
		{900 * ms, 50 * ms, 200 * ms},
		{60 * time.Second, 500 * ms, time.Second},
	} {
		if got := pause(c.expected, c.grant); got != c.want {
			t.Errorf("expecting %v, a grant taking %v: %v, not %v", c.expected, c.grant, got, c.want)
		}
	}
}

// P5, of callers who share one key, as all without an API key do: no more of them than may be live are in the line at a time, but those
// behind wait for tokens and slots all the same.
func TestWhoSharesAKeyWithThoseThatWaitIsToldAtOnce(t *testing.T) {
	for _, slots := range []int{1, 2, 4} {
		w := newWard(t, slots, 2)
		w.state.Latency = 400
		w.state.TAT = w.now + Micros(w.state.Knobs.Bucket().Tau) + 500_000 // a token comes each half second
		waiting := 0
		for i := range 20 {
			r := Request{ID: fmt.Sprintf("f%04d%04d", i, i), Key: Key{Interactive, Anonymous}, Patience: 3 * time.Second}
			_, ticket, refusal := w.state.Plan(w.now, r)
			if ticket == nil {
				if refusal == nil || refusal.Cause != NoToken && refusal.Cause != NoSlot {
					t.Fatalf("%d slots: caller %d: %+v", slots, i, refusal)
				}
				break
			}
			w.state = ticket.Apply(w.state)
			waiting++
		}
		if waiting < 5 || waiting > 6 {
			t.Errorf("%d slots: %d wait for the 6 tokens of their 3 s", slots, waiting)
		}
	}
}
