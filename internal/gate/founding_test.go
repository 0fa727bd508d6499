package gate

import (
	"fmt"
	"testing"
	"time"
)

// The scenarios that the gate was asked for in the first place, in virtual time over the core's own decisions. Package gate/dynamo has them on a real
// store. The bucket of two at one a second is in promise_test.go.

// (a) Two slots, two places in the line, 50 ms of patience, calls of 80 ms, five different callers at once.
func TestFiveAtOnceOnTwoSlots(t *testing.T) {
	for _, usual := range []Millis{0, 40, 80, 300} { // what the gate believes that calls take
		k := testKnobs()
		k.MaxInFlight, k.MaxQueued = 2, 2
		w := newTown(t, uint64(usual), k, 5, 50*time.Millisecond)
		w.state.Latency = usual
		served, peak := 0, 0
		w.takes = func() time.Duration {
			served++
			peak = max(peak, len(w.state.Leases))
			return 80 * time.Millisecond
		}
		refused := map[Cause]int{}
		w.heard = func(r Refusal) { refused[r.Cause]++ }
		for i := range 5 {
			w.at(noon, func() {
				w.call(fmt.Sprint("caller", i), i, func(after time.Duration) {
					if after != 0 && (after < time.Second || after%time.Second != 0) {
						t.Errorf("told %v", after)
					}
				})
			})
		}
		w.run(noon + 10e6)
		if served < 2 || served > 4 || served+refused[QueueFull]+refused[NoSlot] != 5 || served == 5 || peak > 2 {
			t.Errorf("calls are believed to take %d ms: %d served, %d at once, refused %v", usual, served, peak, refused)
		}
		if len(w.state.Leases)+len(w.state.Tickets)+len(w.state.Places)+len(w.state.Flows) != 0 {
			t.Errorf("left: %+v", w.state)
		}
	}
}

// (b) A pastes forty, and from a moment later on others look one up each, one after the other: none of them is behind A's forty, and they do not
// keep A's forty from being served.
func TestAPasteOfFortyBesideAStreamOfSingleLookups(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight, k.RatePerSecond, k.Burst, k.MaxQueued, k.BulkheadInteractive = 2, 100, 400, 64, 64
	w := newTown(t, 1, k, 4, 20*time.Second)
	w.takes = func() time.Duration { return 50 * time.Millisecond }
	w.state.Latency = 50
	pasted, singles, behind := 0, 0, 0
	share := w.state.Knobs.share() // of the line: more than that A cannot have waiting
	for range 40 {
		w.at(noon, func() {
			w.call("A", 0, func(after time.Duration) {
				if after == 0 {
					pasted++
				}
			})
		})
	}
	for i := range 20 {
		w.at(noon+Micros(1000+i*50_000), func() {
			before, asked := pasted, w.now
			w.call(fmt.Sprint("B", i), 1, func(after time.Duration) {
				if after != 0 {
					t.Errorf("B%d is sent away", i)
					return
				}
				singles++
				behind = max(behind, pasted-before)
				if waited := (w.now - asked).Time().Sub(Epoch); waited > 300*time.Millisecond {
					t.Errorf("B%d waited %v", i, waited)
				}
			})
		})
	}
	w.run(noon + 60e6)
	if singles != 20 || behind > 3 { // the one whose turn it was, and the two under way
		t.Errorf("%d of 20 single lookups served, at most behind %d of A's", singles, behind)
	}
	if pasted < share {
		t.Errorf("%d of A's forty were served, %d could wait", pasted, share)
	}
}

// zae-limiter#428: once drained it never recovered. Here every way in is closed in turn, waited for, and open again.
func TestZaeLimiter428_WhatIsExhaustedIsThereAgainOnEveryPath(t *testing.T) {
	k := testKnobs()
	k.MaxInFlight, k.BulkheadInteractive, k.BulkheadAnon = 4, 2, 2
	other := func(i int) Key { return Key{Interactive, fmt.Sprint("other", i)} }
	bucket := k.Bucket()
	for name, tc := range map[string]struct {
		exhaust func(*State)
		request Request
		cause   Cause
		wait    time.Duration
	}{
		"the bucket, a little":  {func(s *State) { s.TAT = noon + Micros(bucket.Tau+1) }, Request{Key: alice}, NoToken, time.Millisecond},
		"the bucket, for long":  {func(s *State) { s.TAT = noon + 3600e6 }, Request{Key: alice}, NoToken, time.Hour},
		"the bucket, forgotten": {func(s *State) { s.TAT = noon + 1e6 }, Request{Key: alice, Cost: 3}, NoToken, 24 * time.Hour},
		"the slots, by holders who died": {func(s *State) {
			for i := range 4 {
				holding(nil, fmt.Sprint("other", i), other(i), 15*time.Second)(s)
			}
		}, Request{Key: alice}, NoSlot, 16 * time.Second},
		"one's own bulkhead, by holders who died": {func(s *State) {
			holding(holding(nil, "alice1", alice, 15*time.Second), "alice2", alice, 15*time.Second)(s)
		}, Request{Key: alice}, BulkheadFull, 16 * time.Second},
		"one's own places, by a holder who died": {func(s *State) {
			holding(nil, "flowAold", anon, 15*time.Second)(s)
			s.Owned["flowA"] = []string{"flowAold"}
		}, Request{Key: anon, Own: 1}, OwnFull, 16 * time.Second},
		"the line, by owners who died": {func(s *State) { *s = queued(*s, "bob  gone", bob) }, Request{Key: alice}, QueueFull, 4 * time.Second},
		"a hold":                       {func(s *State) { s.Hold, s.Reason = noon.Millis()+60_000, HoldThrottled }, Request{Key: alice}, Held, time.Minute},
		"an operator's pause":          {func(s *State) { s.Pause = noon.Millis() + 60_000 }, Request{Key: alice}, Held, time.Minute},
		"everything at once": {func(s *State) {
			s.TAT, s.Hold, s.Pause = noon+1e6, noon.Millis()+1000, noon.Millis()+1000
			for i := range 4 {
				holding(nil, fmt.Sprint("other", i), other(i), 15*time.Second)(s)
			}
			*s = queued(*s, "bob  gone", bob)
		}, Request{Key: alice}, Held, 16 * time.Second},
	} {
		s := NewState(k, noon, false)
		tc.exhaust(&s)
		tc.request.ID = "flowAnew"
		if _, refusal := plan(s, noon, tc.request); refusal == nil || refusal.Cause != tc.cause {
			t.Errorf("%s: not exhausted: %+v", name, refusal)
		}
		w, refusal := plan(s, after(tc.wait), tc.request)
		if refusal != nil || !w.Holds(s) {
			t.Errorf("%s: closed for good: %+v", name, refusal)
			continue
		}
		if end := w.Apply(s); len(end.Leases) != 1 || len(end.Tickets) != 0 || len(end.Places) != 1 {
			t.Errorf("%s: left over: %+v", name, end)
		}
	}
}
