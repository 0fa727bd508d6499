package dynamo

import (
	"context"
	"errors"
	"testing"
	"time"

	"vingate/internal/gate"
)

// In each of these situations Foresee and Acquire agree, and Foresee writes nothing.
func TestForeseeSaysWhatAcquireWould(t *testing.T) {
	for name, tc := range map[string]struct {
		state   func(*gate.State)
		request gate.Request
		cause   gate.Cause // "": it may be admitted, or may wait
	}{
		"an idle gate":            {func(*gate.State) {}, gate.Request{Key: alice}, ""},
		"held":                    {func(s *gate.State) { s.Hold, s.Reason = noon.Millis()+5000, gate.HoldThrottled }, gate.Request{Key: alice}, gate.Held},
		"a dry bucket":            {func(s *gate.State) { s.TAT = noon + 5_000_000 }, gate.Request{Key: alice}, gate.NoToken},
		"a dry bucket, patient":   {func(s *gate.State) { s.TAT = noon + 2_000_000 }, gate.Request{Key: alice, Patience: 3 * time.Second}, ""},
		"no slot":                 {busy(4), gate.Request{Key: alice}, gate.NoSlot},
		"no slot, patient":        {busy(4), gate.Request{Key: alice, Patience: 3 * time.Second}, ""},
		"a slot, optional":        {busy(2), gate.Request{Key: alice, Optional: true}, ""},
		"the last slot, optional": {busy(3), gate.Request{Key: alice, Optional: true}, gate.NoSlot},
		"its places taken":        {func(s *gate.State) { takePlaces(s, alice, 8) }, gate.Request{Key: alice}, gate.BulkheadFull},
		"no slot, a batch":        {busy(4), gate.Request{Key: gate.Key{Route: gate.Batch, Tenant: "alice"}, Ceiling: 1}, gate.NoSlot},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			s := initialised(t, w)
			s.Now = noon.Time
			st := gate.NewState(testKnobs(), noon, false)
			tc.state(&st)
			put(s, st)
			s.seenAt = time.Time{}
			writes := w.Count("UpdateItem")
			asked := tc.request
			foreseen, err := s.Foresee(context.Background(), &asked)
			if asked.ID == "" {
				t.Error("it has no id")
			}
			if err != nil || causeOf(foreseen) != tc.cause || w.Count("UpdateItem") != writes && foreseen == nil {
				t.Errorf("foreseen %+v, %v, with %d writes", foreseen, err, w.Count("UpdateItem")-writes)
			}
			if foreseen != nil && foreseen.RetryAfter < time.Second {
				t.Errorf("retry after %v", foreseen.RetryAfter)
			}
			if tc.request.Patience > 0 {
				return // it would wait
			}
			_, refusal, err := s.Acquire(context.Background(), tc.request)
			if err != nil || causeOf(refusal) != tc.cause {
				t.Errorf("acquire: %+v, %v", refusal, err)
			}
		})
	}
}

func causeOf(r *gate.Refusal) gate.Cause {
	if r == nil {
		return ""
	}
	return r.Cause
}

// busy is a gate with so many live leases of others.
func busy(n int) func(*gate.State) {
	return func(s *gate.State) { takePlaces(s, gate.Key{Route: gate.Interactive, Tenant: "bob"}, n) }
}

func takePlaces(s *gate.State, k gate.Key, n int) {
	for i := range n {
		id := string(rune('a'+i)) + "lease"
		s.Leases[id] = noon.Millis() + 10_000
		s.Places[k.Place()] = append(s.Places[k.Place()], id)
	}
}

// A caller who would wait for a place of its own is not refused for it beforehand.
func TestAFullBulkheadThatIsWaitedForIsNotForeseen(t *testing.T) {
	s := initialised(t, &wire{})
	s.Now = noon.Time
	st := gate.NewState(testKnobs(), noon, false)
	takePlaces(&st, alice, 8)
	st.Knobs.MaxInFlight, st.Limit = 20, 20
	put(s, st)
	s.seenAt = time.Time{}
	for wait, want := range map[time.Duration]gate.Cause{0: gate.BulkheadFull, time.Second: ""} {
		if r, err := s.Foresee(context.Background(), &gate.Request{Key: alice, BulkheadWait: wait}); err != nil || causeOf(r) != want {
			t.Errorf("who waits %v: %+v, %v", wait, r, err)
		}
	}
}

func TestNothingIsForeseenOfAGateThatCannotBeRead(t *testing.T) {
	s := initialised(t, &wire{})
	s.Table = "nowhere"
	r, err := s.Foresee(context.Background(), &gate.Request{Key: alice})
	var e *Error
	if r != nil || !errors.As(err, &e) || e.Kind != KindMissingTable {
		t.Errorf("%+v, %v", r, err)
	}
}
