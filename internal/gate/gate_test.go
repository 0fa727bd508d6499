package gate

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gcra"
)

func testKnobs() Knobs {
	return Knobs{
		MaxInFlight: 4, RatePerSecond: 20, Burst: 40, MaxQueued: 24,
		BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: Attempt,
	}
}

func fresh(k Knobs) State { return NewState(k, noon, false) }

const noon = Micros(12 * 3600 * 1e6)

func after(d time.Duration) Micros { return noon + Micros(d.Microseconds()) }

// plan is Plan for a caller without patience: it is admitted or refused.
func plan(s State, now Micros, r Request) (Admit, *Refusal) {
	r.Patience = 0
	admit, _, refusal := s.Plan(now, r)
	if refusal != nil {
		return Admit{}, refusal
	}
	return *admit, nil
}

// take plans and applies, and fails the test when the plan is a refusal or does not hold.
func take(t *testing.T, s State, now Micros, id string, key Key) State {
	t.Helper()
	w, refusal := plan(s, now, Request{ID: id, Key: key})
	if refusal != nil {
		t.Fatalf("%s was refused: %+v", id, *refusal)
	}
	if !w.Holds(s) {
		t.Fatalf("%s: a plan does not hold on the very state it was made from: %+v", id, w)
	}
	return w.Apply(s)
}

func refused(t *testing.T, s State, now Micros, key Key) Refusal {
	t.Helper()
	_, refusal := plan(s, now, Request{ID: "refused", Key: key})
	if refusal == nil {
		t.Fatalf("%v was admitted", key)
	}
	if refusal.RetryAfter < time.Second || refusal.RetryAfter%time.Second != 0 {
		t.Fatalf("Retry-After of %v", refusal.RetryAfter)
	}
	return *refusal
}

var (
	anon  = Key{Interactive, Anonymous}
	alice = Key{Interactive, "alice"}
	bob   = Key{Interactive, "bob"}
	lot   = Key{Batch, "alice"}
)

func TestOneKeyNeverHoldsEveryLiveSlot(t *testing.T) {
	s := fresh(testKnobs())
	for i := range 3 {
		s = take(t, s, noon, fmt.Sprint("a", i), anon)
	}
	if r := refused(t, s, noon, anon); r.Cause != NoKeySlot {
		t.Errorf("the fourth anonymous call: %v", r.Cause)
	}
	s = take(t, s, noon, "b0", bob)
	if r := refused(t, s, noon, alice); r.Cause != NoSlot {
		t.Errorf("a fifth call on 4 slots: %v", r.Cause)
	}
}

func TestBatchLeavesASlotToInteractiveAtEveryLimit(t *testing.T) {
	for limit := 1; limit <= 8; limit++ {
		k := testKnobs()
		k.MaxInFlight, k.BulkheadBatch, k.BatchSlots = limit, 8, max(1, limit-1)
		s := fresh(k)
		for i := 0; ; i++ {
			w, refusal := plan(s, noon, Request{ID: fmt.Sprint(i), Key: Key{Batch, fmt.Sprint("tenant", i)}})
			if refusal != nil {
				break
			}
			s = w.Apply(s)
		}
		if want := max(1, limit-1); len(s.Leases) != want {
			t.Errorf("limit %d: batch holds %d slots, want %d", limit, len(s.Leases), want)
		}
	}
}

func TestFullBulkheadHurtsItsOwnKeyOnly(t *testing.T) {
	k := testKnobs()
	k.BulkheadInteractive = 1
	s := take(t, fresh(k), noon, "a", alice)
	if r := refused(t, s, noon, alice); r.Cause != BulkheadFull {
		t.Errorf("alice again: %v", r.Cause)
	}
	s = take(t, s, noon, "b", bob)
	take(t, s, noon, "l", lot) // interactive:alice and batch:alice are two bulkheads
}

func TestHeldGateRefusesEverybodyUntilThenAndNotLonger(t *testing.T) {
	s := fresh(testKnobs())
	s.Hold, s.Reason = after(3*time.Second).Millis(), HoldThrottled
	if r := refused(t, s, noon, alice); r.Cause != Held || r.Hold != HoldThrottled || r.RetryAfter != 3*time.Second {
		t.Errorf("%+v", r)
	}
	if r := refused(t, s, after(2*time.Second+time.Microsecond), alice); r.RetryAfter != time.Second {
		t.Errorf("%+v", r)
	}
	take(t, s, after(3*time.Second), "a", alice)
}

// queued adds a ticket by hand.
func queued(s State, id string, key Key) State {
	s = s.Clone()
	s.Tickets[id] = Ticket{Arrival: noon.Millis(), Deadline: noon.Millis() + 3000, Cost: 1, Weight: 1}
	s.Places[key.Place()] = insert(s.Places[key.Place()], id)
	turn := s.Flows[flowOf(id)]
	if turn.Count++; turn.Count == 1 {
		turn.Tag, turn.Since = s.VirtualTime+tagUnit, noon.Millis()
	}
	s.Flows[flowOf(id)] = turn
	return s
}

func TestTicketsCloseTheFastPath(t *testing.T) {
	s := fresh(testKnobs())
	w, _ := plan(s, noon, Request{ID: "a", Key: alice})
	s = queued(s, "waiter", bob)
	if w.Holds(s) {
		t.Error("a newcomer passed a waiter")
	}
	if r := refused(t, s, noon, alice); r.Cause != QueueFull {
		t.Errorf("%v", r.Cause)
	}
}

// The bucket of the founding scenario: two at once, then one a second. Clocks and delays are taken to be perfect.
func TestBucketOfTwoAtOneASecond(t *testing.T) {
	k := testKnobs()
	k.RatePerSecond, k.Burst, k.SkewBound, k.StartGrace, k.Attempt = 1, 2, 0, 0, 0
	s := take(t, fresh(k), noon, "1", alice)
	s = take(t, s, noon, "2", bob)
	if r := refused(t, s, noon, alice); r.Cause != NoToken || r.RetryAfter != time.Second {
		t.Errorf("%+v", r)
	}
	take(t, s, after(time.Second), "3", alice)
}

func TestRetryAfterOfADryBucketIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := testKnobs()
		k.RatePerSecond = rapid.SampledFrom([]float64{0.1, 1, 2, 20}).Draw(t, "rate")
		k.Burst, k.MaxInFlight = 100, 64
		k.BulkheadInteractive = 1000
		s, now := fresh(k), noon
		for i := 0; ; i++ {
			w, refusal := plan(s, now, Request{ID: fmt.Sprint(i), Key: Key{Interactive, fmt.Sprint(i)}})
			if refusal != nil && refusal.Cause == NoToken {
				if _, early := plan(s, now+Micros((refusal.RetryAfter-time.Second).Microseconds()), Request{ID: "x", Key: bob}); early == nil && refusal.RetryAfter > time.Second {
					t.Fatalf("Retry-After %v is a second too long", refusal.RetryAfter)
				}
				s.Leases, s.Places = map[string]Millis{}, map[Place][]string{}
				if _, late := plan(s, now+Micros(refusal.RetryAfter.Microseconds()), Request{ID: "x", Key: bob}); late != nil {
					t.Fatalf("refused after exactly Retry-After %v: %+v", refusal.RetryAfter, *late)
				}
				return
			}
			if refusal == nil {
				s = w.Apply(s)
			}
			s.Leases, s.Places = map[string]Millis{}, map[Place][]string{} // all calls are over at once: only tokens count here
			now += Micros(rapid.Int64Range(0, 1000).Draw(t, "gap"))
		}
	})
}

// bottleneck#194, #197: a killed holder's slot is back within the lease time plus the skew bound, and not early.
func TestBottleneck194_KilledHolderGivesItsSlotBackInTimeAndNotEarly(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight = 1
	for _, next := range []Key{bob, alice} { // also by the dead holder's own key
		s := take(t, fresh(k), noon, "dead", alice)
		gone := after(k.LeaseTTL + k.SkewBound)
		if r := refused(t, s, gone, next); r.Cause != NoSlot {
			t.Errorf("%v took the slot early", next)
		}
		s = take(t, s, gone+1000, "next", next)
		if len(s.Leases) != 1 || s.Leases["next"] == 0 || len(s.Places) != 1 || !slices.Equal(s.Places[next.Place()], []string{"next"}) {
			t.Errorf("something of the dead lease is left: %+v", s)
		}
	}
}

func TestEveryDeadLeaseGoesWithTheNextAdmissionWhateverTheLimitIsNow(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight, k.Burst, k.BulkheadAnon = maxSlots, 1000, 1000
	s := fresh(k)
	for i := range maxSlots {
		key := []Key{anon, {Interactive, fmt.Sprint("t", i)}, {Batch, fmt.Sprint("t", i)}}[i%3]
		s = take(t, s, noon, fmt.Sprint("dead", i), key)
	}
	s.Limit = 1
	for _, key := range []Key{anon, bob, {Batch, "t2"}} {
		next := take(t, s, after(time.Minute), "next", key)
		if len(next.Leases) != 1 || len(next.Places) != 1 {
			t.Errorf("%v: %d leases and %d places are left", key, len(next.Leases), len(next.Places))
		}
	}
}

// redisson#4086, dynamodb-lock-client#116: a stale holder's release frees nothing, and nothing revives a dead lease.
func TestRedisson4086_StaleReleaseChangesNothing(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight = 1
	s := take(t, fresh(k), noon, "stale", alice)
	lease := &Lease{ID: "stale", Key: alice}
	s = take(t, s, after(time.Minute), "next", alice)
	w := s.PlanRelease(after(time.Minute), lease, Outcome{Kind: Throttled})
	if w.Holds(s) || w.Plain().Holds(s) {
		t.Error("the stale release would have been applied")
	}
}

// aws-stepfunctions-examples#3: an acquire that lands after its own release expires like any lease.
func TestStepfunctionsExamples3_AcquireLandingAfterItsReleaseExpires(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight = 1
	s := fresh(k)
	w, _ := plan(s, noon, Request{ID: "late", Key: alice})
	s = w.Apply(s)
	s = s.PlanRelease(noon, &Lease{ID: "late", Key: alice}, Outcome{Kind: Succeeded}).Apply(s)
	if len(s.Leases) != 0 {
		t.Fatal("not released")
	}
	if w.Holds(s) { // busy or reset: it may land on an idle gate
		s = w.Apply(s)
	}
	take(t, s, after(k.LeaseTTL+k.SkewBound+time.Second), "next", bob)
}

// envoy ratelimit#427, #440: a refusal is no write; and planning never touches the state it looks at.
func TestEnvoyRatelimit427_PlanningLeavesTheStateAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := arbitraryState(t)
		before := s.Clone()
		w, refusal := plan(s, now, arbitraryRequest(t))
		if refusal == nil {
			w.Apply(s)
		}
		if fmt.Sprintf("%#v", s) != fmt.Sprintf("%#v", before) {
			t.Fatalf("state changed from %#v to %#v", before, s)
		}
	})
}

// zae-limiter commit eb345b3: the second of two writes planned on one view must see the first. Every pair of variants.
func TestZaeLimiterEb345b3_NoPairOfWritesOverAdmits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := arbitraryState(t)
		a, refusal := plan(s, now, arbitraryRequest(t))
		if refusal != nil {
			t.Skip()
		}
		r := arbitraryRequest(t)
		r.ID += " other"
		b, refusal := plan(s, now+Micros(rapid.Int64Range(-250_000, 250_000).Draw(t, "skew")), r)
		if refusal != nil {
			t.Skip()
		}
		next := a.Apply(s)
		if b.Holds(next) {
			next = b.Apply(next)
		}
		checkInvariants(t, next, max(len(s.Leases), s.Limit))
		if most := max(a.OwnCap, r.Own, len(s.Owned["lease"])); a.OwnCap > 0 && r.Own > 0 && len(next.Owned["lease"]) > most {
			t.Fatalf("one holds %d of its %d", len(next.Owned["lease"]), most)
		}
	})
}

// Where many share a key, one of them holds only so many of its places, queued or live, whatever else of the key is free.
func TestOneOfManyHoldsOnlyItsOwnOfASharedBulkhead(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight, k.KeySlots, k.BulkheadAnon = 6, 2, 6
	request := func(address string, n int, patience time.Duration) Request {
		return Request{ID: fmt.Sprintf("%-5.5s%04d", address, n), Key: anon, Own: 3, Patience: patience}
	}
	s, calls := fresh(k), 0
	enter := func(address string, patience time.Duration) *Refusal {
		t.Helper()
		calls++
		a, e, refusal := s.Plan(noon, request(address, calls, patience))
		switch {
		case a != nil && a.Holds(s):
			s = a.Apply(s)
		case e != nil && e.Holds(s):
			s = e.Apply(s)
		case refusal == nil:
			t.Fatal("a plan does not hold where it was made")
		}
		checkInvariants(t, s, s.Limit)
		return refusal
	}
	for n := range 3 { // two live, the third waits
		if r := enter("homeA", time.Minute); r != nil {
			t.Fatalf("place %d: %+v", n+1, r)
		}
	}
	if len(s.Leases) != 2 || len(s.Tickets) != 1 {
		t.Fatalf("%d live, %d wait", len(s.Leases), len(s.Tickets))
	}
	if r := enter("homeA", time.Minute); r == nil || r.Cause != OwnFull || r.RetryAfter < time.Second || !r.AtTheDoor() {
		t.Errorf("the fourth: %+v", r)
	}
	for n := range 3 {
		if r := enter("homeB", time.Minute); r != nil {
			t.Errorf("another address, place %d: %+v", n+1, r)
		}
	}
	if r := enter("homeC", time.Minute); r == nil || r.Cause != BulkheadFull {
		t.Errorf("with all places of the key taken: %+v", r)
	}
	if w, refusal := plan(s, noon, Request{ID: "homeA0099", Key: lot, Own: 3}); refusal == nil || refusal.Cause != OwnFull {
		t.Errorf("by another route: %+v %+v", w, refusal)
	}
	// A ticket that is given up, a lease that is given back and one that is dead make room.
	cancel, _ := s.PlanCancel("homeA0003", anon)
	s = cancel.Apply(s)
	free := s.PlanRelease(noon, &Lease{ID: "homeA0001", Key: anon}, Outcome{Kind: Succeeded})
	s = free.Apply(s)
	if got := s.Owned["homeA"]; !slices.Equal(got, []string{"homeA0002"}) {
		t.Errorf("homeA holds %v", got)
	}
	w, refusal := plan(s, after(2*time.Minute), request("homeA", 50, 0))
	if refusal != nil || !w.Holds(s) {
		t.Fatalf("after two minutes: %+v", refusal)
	}
	s = w.Apply(s)
	if len(s.Owned) != 1 || !slices.Equal(s.Owned["homeA"], []string{"homeA0050"}) {
		t.Errorf("left of the dead: %v", s.Owned)
	}
}

// checkInvariants is what no sequence of writes may break. Slots: a state that held too many already may keep them.
func checkInvariants(t interface{ Fatalf(string, ...any) }, s State, slots int) {
	if len(s.Leases) > slots {
		t.Fatalf("%d leases on %d slots", len(s.Leases), slots)
	}
	placed := 0
	for place, ids := range s.Places {
		if len(ids) == 0 || !slices.IsSorted(ids) {
			t.Fatalf("place %s is %v", place, ids)
		}
		placed += len(ids)
	}
	if placed != len(s.Leases)+len(s.Tickets) {
		t.Fatalf("%d places taken by %d leases and %d tickets", placed, len(s.Leases), len(s.Tickets))
	}
	waiting := map[Flow]int{}
	for id := range s.Tickets {
		waiting[flowOf(id)]++
	}
	for f, turn := range s.Flows {
		if turn.Count != waiting[f] {
			t.Fatalf("flow %s counts %d tickets, has %d", f, turn.Count, waiting[f])
		}
	}
	if len(waiting) != len(s.Flows) {
		t.Fatalf("%d flows wait, %d are remembered", len(waiting), len(s.Flows))
	}
	for f, ids := range s.Owned {
		if len(ids) == 0 || !slices.IsSorted(ids) {
			t.Fatalf("the own places of %s are %v", f, ids)
		}
		for _, id := range ids {
			_, leased := s.Leases[id]
			_, queued := s.Tickets[id]
			if flowOf(id) != f || leased == queued {
				t.Fatalf("%s is said to hold %s", f, id)
			}
		}
	}
	for _, id := range s.Batch {
		if _, there := s.Leases[id]; !there {
			t.Fatalf("batch slot of %s without a lease", id)
		}
	}
}

// arbitraryState is a reachable-looking state: every lease in one place, any mix of live and dead ones.
func arbitraryState(t *rapid.T) (State, Micros) {
	k := testKnobs()
	k.MaxInFlight = rapid.IntRange(1, 6).Draw(t, "slots")
	s := NewState(k, noon, false)
	s.Limit = rapid.IntRange(1, k.MaxInFlight).Draw(t, "limit")
	s.TAT = noon + Micros(rapid.SampledFrom([]int64{-10_000_000, -100_000, -1, 0, 1, 100_000, 500_000, 3_000_000}).Draw(t, "tat"))
	for i := range rapid.IntRange(0, k.MaxInFlight).Draw(t, "leases") {
		id := fmt.Sprint("lease", i)
		key := rapid.SampledFrom([]Key{anon, alice, bob, lot, {Batch, "bob"}}).Draw(t, "key")
		s.Leases[id] = after(rapid.SampledFrom([]time.Duration{-time.Minute, -time.Second, -251 * time.Millisecond, -250 * time.Millisecond, 0, time.Second, 15 * time.Second}).Draw(t, "end")).Millis()
		s.Places[key.Place()] = insert(s.Places[key.Place()], id)
		if key.Route == Batch {
			s.Batch = insert(s.Batch, id)
		}
		if rapid.Bool().Draw(t, "owned") {
			s.Owned[flowOf(id)] = insert(s.Owned[flowOf(id)], id)
		}
	}
	return s, noon
}

func arbitraryRequest(t *rapid.T) Request {
	return Request{ID: rapid.SampledFrom([]string{"new", "leasenew"}).Draw(t, "id"), Own: rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "own"), Key: rapid.SampledFrom([]Key{anon, alice, bob, lot, {Batch, "bob"}}).Draw(t, "asks"),
		Cost: rapid.IntRange(0, 3).Draw(t, "cost")}
}

func TestPlansHoldWhereTheyWereMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := arbitraryState(t)
		r := arbitraryRequest(t)
		w, refusal := plan(s, now, r)
		if refusal != nil {
			return
		}
		if !w.Holds(s) {
			t.Fatalf("%+v does not hold on %+v", w, s)
		}
		next := w.Apply(s)
		checkInvariants(t, next, s.Limit)
		if next.TAT <= s.TAT {
			t.Fatalf("tat went from %d to %d", s.TAT, next.TAT)
		}
		if w.Holds(next) {
			t.Fatal("the same write would be applied twice")
		}
		free := next.PlanRelease(now, next.Lease(w.ID, r.Key, w.Now, w.End), Outcome{Kind: Abandoned})
		if end := free.Apply(next); len(end.Leases) != len(next.Leases)-1 || free.Holds(end) {
			t.Fatal("the release does not take back exactly its lease, once")
		}
	})
}

func TestThrottledReleaseHoldsTheGateInWholeSeconds(t *testing.T) {
	s := take(t, fresh(testKnobs()), noon, "a", alice)
	lease := &Lease{ID: "a", Key: alice}
	for _, c := range []struct {
		outcome Outcome
		pause   time.Duration
	}{
		{Outcome{Kind: Throttled, RetryAfter: 7 * time.Second}, 7 * time.Second},
		{Outcome{Kind: Throttled}, 30 * time.Second},
		{Outcome{Kind: Throttled, Blocked: true}, 15 * time.Minute},
		{Outcome{Kind: Throttled, RetryAfter: 40 * time.Hour}, time.Hour},
	} {
		w := s.PlanRelease(noon+1, lease, c.outcome)
		next := w.Apply(s)
		held := next.Hold.Time().Sub(noon.Time())
		if held < c.pause || held > c.pause+time.Second || next.Hold%1000 != 0 || next.Reason != HoldThrottled || len(next.Leases) != 0 {
			t.Errorf("%+v holds for %v", c.outcome, held)
		}
		// A second instance that heard the same does not write the hold again, but its release still counts.
		again := s.PlanRelease(noon+2, lease, c.outcome)
		s2 := take(t, fresh(testKnobs()), noon, "a", alice)
		s2.Hold = next.Hold
		if again.Holds(s2) || !again.Plain().Holds(s2) {
			t.Errorf("%+v: second hold written, or its release lost", c.outcome)
		}
	}
	if w := s.PlanRelease(noon, lease, Outcome{Kind: Failed}); w.Hold != 0 {
		t.Error("a failure is no throttle")
	}
}

func TestLatencyIsSmoothedAndOnlyFromCalls(t *testing.T) {
	s := take(t, fresh(testKnobs()), noon, "a", alice)
	lease := &Lease{ID: "a", Key: alice}
	if w := s.PlanRelease(noon, lease, Outcome{Kind: Abandoned, Took: time.Second}); w.Latency != 0 {
		t.Error("an abandoned lease made no call")
	}
	if w := s.PlanRelease(noon, lease, Outcome{Kind: Succeeded, Took: 400 * time.Millisecond}); w.Latency != 400 {
		t.Errorf("first: %d", w.Latency)
	}
	s.Latency = 400
	if w := s.PlanRelease(noon, lease, Outcome{Kind: Succeeded, Took: 1200 * time.Millisecond}); w.Latency != 500 {
		t.Errorf("then: %d", w.Latency)
	}
}

func TestLeaseIsOverBeforeAnybodyMayTakeItsSlot(t *testing.T) {
	s := fresh(testKnobs())
	w, _ := plan(s, noon, Request{ID: "a", Key: alice})
	l := s.Lease(w.ID, alice, w.Now, w.End)
	if got, want := l.StartBy.Sub(l.Granted), Attempt+250*time.Millisecond; got != want {
		t.Errorf("StartBy after %v, want %v", got, want)
	}
	if got, want := l.End.Sub(l.CallBy), 2*250*time.Millisecond+Margin; got != want {
		t.Errorf("CallBy %v before the end, want %v", got, want)
	}
	if l.End.Sub(l.Granted) != 15*time.Second {
		t.Errorf("lease of %v", l.End.Sub(l.Granted))
	}
}

func TestNewStateOfAnOldTableStartsEmptyAndHeld(t *testing.T) {
	s := NewState(testKnobs(), noon, true)
	if r := refused(t, s, noon, alice); r.Cause != Held || r.Hold != HoldStarting || r.RetryAfter != 15*time.Second {
		t.Errorf("%+v", r)
	}
	if n := s.View(noon).Tokens; n != 0 {
		t.Errorf("%d tokens", n)
	}
	if n := fresh(testKnobs()).View(noon).Tokens; n < 10 {
		t.Errorf("a new gate has %d tokens", n)
	}
}

func TestViewCountsLiveLeasesOnly(t *testing.T) {
	s := take(t, fresh(testKnobs()), noon, "a", alice)
	if v := s.View(noon); v.InFlight != 1 || v.Limit != 4 || v.HeldFor != 0 {
		t.Errorf("%+v", v)
	}
	if v := s.View(after(time.Minute)); v.InFlight != 0 {
		t.Errorf("%+v", v)
	}
}

func TestPlaceNamesAreShortAndApart(t *testing.T) {
	seen := map[Place]Key{}
	for _, k := range []Key{anon, alice, bob, lot, {Batch, "bob"}, {Batch, Anonymous}} {
		p := k.Place()
		if len(p) != 9 || !IsPlace(string(p)) || seen[p] != (Key{}) {
			t.Errorf("%v is %q", k, p)
		}
		seen[p] = k
	}
	for _, attr := range []string{"pk", "e", "L", "k", "t", "h", "r", "u", "l", "q", "z"} {
		if IsPlace(attr) {
			t.Errorf("%q taken for a place", attr)
		}
	}
}

func TestKnobsPackIsExactAndSmall(t *testing.T) {
	k := testKnobs()
	got, err := UnpackKnobs(k.Pack())
	if err != nil || got != k {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(k.Pack()) > 48 {
		t.Errorf("%q is %d bytes", k.Pack(), len(k.Pack()))
	}
	for _, bad := range []string{"", "1", k.Pack() + ",1", strings.Replace(k.Pack(), "4,", "x,", 1), strings.Replace(k.Pack(), "4,20,", "0,20,", 1), strings.Replace(k.Pack(), "20", "NaN", 1)} {
		if _, err := UnpackKnobs(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzUnpackKnobs(f *testing.F) {
	f.Add(testKnobs().Pack())
	f.Add("1,NaN,3,,,,,,,,,,")
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := UnpackKnobs(s); err == nil {
			if again, err := UnpackKnobs(k.Pack()); err != nil || again != k {
				t.Fatalf("%+v packs to %q: %v", k, k.Pack(), err)
			}
		}
	})
}

func TestBadKnobsAreAllNamedAtOnce(t *testing.T) {
	k := Knobs{MaxInFlight: 0, RatePerSecond: math.NaN(), Burst: -1, KeySlots: 9, BatchSlots: 9, MaxQueued: -1, SkewBound: -1, LeaseTTL: time.Second, StartGrace: time.Hour}
	named := fmt.Sprint(k.Validate())
	for _, knob := range []string{"MAX_IN_FLIGHT", "RATE_PER_SECOND", "KEY_SLOTS", "BATCH_SLOTS", "MAX_QUEUED", "BULKHEAD_INTERACTIVE", "BULKHEAD_BATCH", "BULKHEAD_ANON", "LEASE_TTL", "CLOCK_SKEW_BOUND", "START_GRACE"} {
		if !strings.Contains(named, knob) {
			t.Errorf("%s is not named in %s", knob, named)
		}
	}
	if faults := testKnobs().Validate(); faults != nil {
		t.Errorf("good knobs: %v", faults)
	}
}

func TestBurstBelowTheWindowInequalityIsRefusedAndTheLeastOneIsNot(t *testing.T) {
	for _, rate := range []float64{0.5, 2, 20, 100} {
		k := testKnobs()
		k.RatePerSecond = rate
		k.Burst = 1 + int(math.Ceil(float64(k.uncertainty())/float64(k.T())))
		if faults := k.Validate(); faults != nil {
			t.Errorf("rate %v, burst %d: %v", rate, k.Burst, faults)
		}
		if b := k.Bucket(); b.Tau < 0 || b.H < 0 || b.Choose(0, 1e12, 1) == gcra.Dry {
			t.Errorf("rate %v: bucket %+v admits nobody", rate, b)
		}
		k.Burst--
		if faults := k.Validate(); len(faults) != 1 || faults[0].Knob != "RATE_BURST" {
			t.Errorf("rate %v, burst %d: %v", rate, k.Burst, faults)
		}
	}
}

// What is certain on a view is refused on every state that may have come of it.
func TestWhatIsCertainStaysRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := arbitraryState(t)
		if rapid.Bool().Draw(t, "held") {
			s.Hold, s.Reason = now.Millis()+Millis(rapid.IntRange(-1, 2000).Draw(t, "hold")), HoldThrottled
		}
		r := arbitraryRequest(t)
		r.ID, r.Patience = "later", time.Duration(rapid.IntRange(0, 3000).Draw(t, "patience"))*time.Millisecond
		later := now + Micros(rapid.IntRange(0, 1_000_000).Draw(t, "later"))
		sure := s.Certain(later, r)
		if sure == nil {
			return
		}
		if w, refusal := plan(s, now, arbitraryRequest(t)); refusal == nil { // others come and go meanwhile
			s = w.Apply(s)
		}
		s.Leases, s.Places, s.Batch = map[string]Millis{}, map[Place][]string{}, nil
		if a, e, refusal := s.Plan(later, r); refusal == nil {
			t.Fatalf("refused with certainty (%+v), then %+v %+v", *sure, a, e)
		}
	})
}

// A store that met others at the last token leaves some to them. What it is told then is late enough for any shyness.
func TestAShyCallerLeavesTokensAndPlaces(t *testing.T) {
	k := testKnobs()
	bucket := k.Bucket()
	total := bucket.Tokens(0, int64(noon))
	most := int(bucket.Tau / bucket.T / 2)
	for left := 1; left <= total; left++ {
		s := fresh(k)
		s.TAT = noon + Micros(int64(total-left)*bucket.T)
		if got := bucket.Tokens(int64(s.TAT), int64(noon)); got != left {
			t.Fatalf("%d tokens left, not %d", got, left)
		}
		if _, refusal := plan(s, noon, Request{ID: "bold", Key: alice}); refusal != nil {
			t.Errorf("%d tokens left, refused without being shy: %+v", left, *refusal)
		}
		_, refusal := plan(s, noon, Request{ID: "shy", Key: alice, Shy: 1})
		if want := left <= most; (refusal != nil) != want {
			t.Errorf("%d tokens left of %d, shy: %+v", left, total, refusal)
		}
		if refusal == nil {
			continue
		}
		if refusal.Cause != NoToken || !refusal.Estimated {
			t.Errorf("%d tokens left: %+v", left, *refusal)
		}
		if _, again := plan(s, after(refusal.RetryAfter), Request{ID: "back", Key: alice, Shy: 1}); again != nil {
			t.Errorf("%d tokens left: told %v, and refused again then: %+v", left, refusal.RetryAfter, *again)
		}
		if w, _, refusal := s.Plan(noon, Request{ID: "patient", Key: alice, Shy: 1, Patience: time.Second}); w == nil {
			t.Errorf("%d tokens left: one who could wait in the line is not admitted: %+v", left, refusal)
		}
	}
	for waiting := range k.MaxQueued {
		s := fresh(k)
		for i := range waiting {
			tenant := fmt.Sprint("tenant", i)
			s.queue(string(FlowOf(tenant))+"x", Key{Interactive, tenant})
		}
		_, ticket, refusal := s.Plan(noon, Request{ID: "shy00", Key: alice, Shy: 1, Patience: time.Minute})
		if room := k.MaxQueued - waiting; room <= k.MaxQueued/4 && (refusal == nil || refusal.Cause != QueueFull) ||
			room > k.MaxQueued/4 && waiting > 0 && ticket == nil {
			t.Errorf("%d waiting of %d: %+v %+v", waiting, k.MaxQueued, ticket, refusal)
		}
	}
}

// queue puts a ticket into a state of its own.
func (s *State) queue(id string, key Key) {
	s.Tickets[id] = Ticket{Arrival: noon.Millis(), Deadline: noon.Millis() + 60_000, Cost: 1, Weight: 1}
	s.Places[key.Place()] = insert(s.Places[key.Place()], id)
	s.Flows[flowOf(id)] = Turn{Tag: tagUnit, Since: noon.Millis(), Count: 1}
}

// Shyness only ever refuses: it opens no way that is closed without it.
func TestShynessOpensNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := arbitraryState(t)
		r := arbitraryRequest(t)
		r.Patience = time.Duration(rapid.IntRange(0, 3000).Draw(t, "patience")) * time.Millisecond
		bold, boldTicket, refusal := s.Plan(now, r)
		r.Shy = rapid.Float64Range(0, 1).Draw(t, "shy")
		shy, shyTicket, refused := s.Plan(now, r)
		if refusal != nil && refused == nil {
			t.Fatalf("refused (%+v), and when shy not", *refusal)
		}
		if refused == nil && (!reflect.DeepEqual(bold, shy) || !reflect.DeepEqual(boldTicket, shyTicket)) {
			t.Fatal("a shy caller writes something else")
		}
	})
}

// Optional work takes what nobody else would miss: it never waits, and leaves half of the bucket and a slot to others.
func TestOptionalWorkLeavesSomethingToOthers(t *testing.T) {
	k := testKnobs()
	bucket := k.Bucket()
	total, most := bucket.Tokens(0, int64(noon)), int(bucket.Tau/bucket.T/2)
	optional := Request{ID: "optional", Key: alice, Optional: true, Patience: time.Minute}
	for left := range total + 1 {
		s := fresh(k)
		s.TAT = noon + Micros(int64(total-left)*bucket.T)
		w, ticket, refusal := s.Plan(noon, optional)
		if admitted := w != nil; admitted != (left > most) || ticket != nil || !admitted && refusal.Cause != NoToken {
			t.Errorf("%d tokens left of %d: %+v, %+v, %+v", left, total, w, ticket, refusal)
		}
	}
	for limit := 1; limit <= 4; limit++ {
		for taken := range limit + 1 {
			s := fresh(k)
			s.Limit = limit
			for i := range taken {
				s.Leases[fmt.Sprint("lease", i)] = noon.Millis() + 10_000
			}
			w, ticket, refusal := s.Plan(noon, optional)
			want := limit-taken >= 2 || limit == 1 && taken == 0
			if (w != nil) != want || ticket != nil || !want && refusal.Cause != NoSlot {
				t.Errorf("%d of %d slots taken: %+v, %+v, %+v", taken, limit, w, ticket, refusal)
			}
		}
	}
	s := fresh(k)
	s.queue("flowAx", Key{Interactive, "bob"})
	if w, ticket, refusal := s.Plan(noon, optional); w != nil || ticket != nil || refusal.Cause != QueueFull {
		t.Errorf("with somebody in the line: %+v, %+v, %+v", w, ticket, refusal)
	}
}

// What may not be admitted may not be admitted as optional either.
func TestOptionalOpensNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := arbitraryState(t)
		r := arbitraryRequest(t)
		plain, _, _ := s.Plan(now, r)
		r.Optional = true
		optional, ticket, _ := s.Plan(now, r)
		if ticket != nil || optional != nil && !reflect.DeepEqual(plain, optional) {
			t.Fatalf("plain %+v, optional %+v, ticket %+v", plain, optional, ticket)
		}
	})
}
