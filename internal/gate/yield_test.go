package gate

import (
	"testing"
	"time"
)

// ends plays n calls that are all under way at once and end the same way.
func ends(t *testing.T, s State, now Micros, o Outcome, n int) State {
	t.Helper()
	var leases []*Lease
	for i := range n {
		key := Key{Interactive, string(rune('a' + i))}
		w := Admit{ID: string(rune('a' + i)), Place: key.Place(), End: after(time.Hour).Millis(), Step: 1}
		s = w.Apply(s)
		leases = append(leases, s.Lease(w.ID, key, w.Now, w.End))
	}
	view := s // all of them decide on one view
	for _, l := range leases {
		writes := 1
		w := view.PlanRelease(now, l, o)
		if !w.Holds(s) {
			w, writes = s.PlanRelease(now, l, o), 2
		}
		if !w.Holds(s) {
			t.Fatalf("release of %s takes more than %d writes", l.ID, writes)
		}
		s = w.Apply(s)
	}
	return s
}

func TestFortyEightThat429TogetherCutOnceAndCostTwoWritesEach(t *testing.T) {
	k := perfectClocks()
	k.MaxInFlight = 48
	s := ends(t, fresh(k), noon, Outcome{Kind: Throttled}, 48)
	if s.Limit != 24 || s.Episodes != 1 || s.Reason != HoldThrottled || s.Hold != after(30*time.Second).Millis() {
		t.Errorf("%+v", s)
	}
}

func TestThePauseDoublesWithEachEpisodeAndTheLimitHalvesToOne(t *testing.T) {
	for _, c := range []struct {
		outcome        Outcome
		first, longest time.Duration
	}{
		{Outcome{Kind: Throttled}, 30 * time.Second, 15 * time.Minute},
		{Outcome{Kind: Throttled, Blocked: true}, 15 * time.Minute, 6 * time.Hour},
	} {
		k := perfectClocks()
		k.MaxInFlight = 8
		s, now, want := fresh(k), noon, c.first
		for i, limit := range []int{4, 2, 1, 1, 1, 1, 1, 1} {
			s = ends(t, s, now, c.outcome, 1)
			if pause := s.Hold.Time().Sub(now.Time()); pause != want || s.Limit != limit {
				t.Fatalf("episode %d: a pause of %v and a limit of %d, want %v and %d", i+1, pause, s.Limit, want, limit)
			}
			want = min(2*want, c.longest)
			now += Micros((c.longest + time.Minute).Microseconds())
		}
	}
}

func TestALongRetryAfterDoesNotStretchTheCooldown(t *testing.T) {
	s := ends(t, fresh(perfectClocks()), noon, Outcome{Kind: Throttled, RetryAfter: 10 * time.Minute}, 1)
	s = ends(t, s, after(10*time.Minute), Outcome{Kind: Succeeded}, 1)
	if s.Limit != 3 || s.Episodes != 0 {
		t.Errorf("after the pause: %+v", s)
	}
}

// Additive recovery: one slot per cooldown, however many calls succeed.
func TestTheLimitGrowsByOnePerCooldown(t *testing.T) {
	k := perfectClocks()
	k.MaxInFlight = 8
	s := ends(t, fresh(k), noon, Outcome{Kind: Throttled, RetryAfter: time.Second}, 1)
	for i, want := range []int{4, 4, 5, 5, 6, 6, 7, 7, 8, 8} {
		now := after(time.Duration(i) * 8 * time.Second)
		if i == 0 {
			now = after(2 * time.Second) // the pause is over, the cooldown is not
		}
		if s = ends(t, s, now, Outcome{Kind: Succeeded}, 3); s.Limit != want {
			t.Errorf("%v: limit %d, want %d", now.Time().Sub(noon.Time()), s.Limit, want)
		}
	}
}

// Every episode cuts: also one that begins while the limit has only just grown again.
func TestA429SoonAfterTheLimitHasGrownCutsItAgain(t *testing.T) {
	k := perfectClocks()
	k.MaxInFlight = 8
	s := ends(t, fresh(k), noon, Outcome{Kind: Throttled, RetryAfter: time.Second}, 3)
	s = ends(t, s, after(k.LeaseTTL), Outcome{Kind: Succeeded}, 1)
	if s.Limit != 5 {
		t.Fatalf("it has not grown: %+v", s)
	}
	s = ends(t, s, after(k.LeaseTTL+time.Second), Outcome{Kind: Throttled, RetryAfter: time.Second}, 3)
	if s.Limit != 2 || s.Episodes != 1 {
		t.Errorf("%+v", s)
	}
	if s = ends(t, s, after(k.LeaseTTL+3*time.Second), Outcome{Kind: Throttled, RetryAfter: time.Second}, 3); s.Limit != 2 || s.Episodes != 1 {
		t.Errorf("the same episode cut again: %+v", s)
	}
}

func TestASuccessFromBeforeThe429ProvesNothing(t *testing.T) {
	s := ends(t, fresh(perfectClocks()), noon, Outcome{Kind: Throttled, RetryAfter: time.Minute}, 1)
	for _, at := range []time.Duration{0, time.Second, 59 * time.Second} {
		if s = ends(t, s, after(at), Outcome{Kind: Succeeded}, 1); s.Limit != 2 || s.Episodes != 1 {
			t.Errorf("%v: %+v", at, s)
		}
	}
}

func TestFiveFailuresInARowHoldTheGateAndLeaveAProbe(t *testing.T) {
	s := ends(t, fresh(perfectClocks()), noon, Outcome{Kind: Failed}, 4)
	if s.Hold != 0 || s.Limit != 4 || s.Failures != 4 {
		t.Fatalf("after four: %+v", s)
	}
	forgiven := ends(t, s, noon, Outcome{Kind: Succeeded}, 1)
	if forgiven.Failures != 0 {
		t.Fatalf("a success in between: %+v", forgiven)
	}
	s = ends(t, s, noon, Outcome{Kind: Failed}, 1)
	if s.Reason != HoldFailing || s.Limit != 1 || s.Hold != after(5*time.Second).Millis() {
		t.Fatalf("after five: %+v", s)
	}
	// Those that were under way fail too: they are of the same episode.
	if late := ends(t, s, after(time.Second), Outcome{Kind: Failed}, 3); late.Hold != s.Hold || late.Failures != s.Failures {
		t.Errorf("late failures made it longer: %+v", late)
	}
	// Each probe that fails doubles the pause.
	now := noon
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		now = Micros(s.Hold) * 1000
		s = ends(t, s, now, Outcome{Kind: Failed}, 1)
		if pause := s.Hold.Time().Sub(now.Time()); pause != want*time.Second || s.Limit != 1 {
			t.Errorf("a pause of %v and a limit of %d, want %v s and 1", pause, s.Limit, int(want))
		}
	}
	s = ends(t, s, Micros(s.Hold)*1000, Outcome{Kind: Succeeded}, 1)
	if s.Failures != 0 || s.Limit != 2 {
		t.Errorf("after a good probe: %+v", s)
	}
}

func TestNoLocalRefusalFeedsTheFailingHold(t *testing.T) {
	s := ends(t, fresh(perfectClocks()), noon, Outcome{Kind: Abandoned}, 4)
	if s = ends(t, s, noon, Outcome{Kind: Abandoned}, 4); s.Failures != 0 || s.Hold != 0 {
		t.Errorf("%+v", s)
	}
}

// perfectClocks are knobs under which a pause is exactly as long as it was asked for.
func perfectClocks() Knobs {
	k := testKnobs()
	k.SkewBound = 0
	return k
}

// A slow clock writes the hold, a fast one reads it: nobody starts before the pause is over in truth.
func TestNoClockWithinTheBoundEndsAPauseEarly(t *testing.T) {
	k := testKnobs()
	skew := Micros(k.SkewBound.Microseconds())
	s := ends(t, fresh(k), noon-skew, Outcome{Kind: Throttled, RetryAfter: 5 * time.Second}, 1)
	if _, refusal := plan(s, after(5*time.Second)+skew-1, Request{ID: "early", Key: alice}); refusal == nil {
		t.Error("admitted before the pause was over")
	}
}

// However long the window, rounding never adds a call.
func TestNoRateIsExceededByRounding(t *testing.T) {
	for _, rate := range []float64{0.3, 3, 7, 60, 300, 900, 1000} {
		k := testKnobs()
		k.RatePerSecond = rate
		if perSecond := float64(time.Second) / float64(k.T()); perSecond > rate {
			t.Errorf("rate %v: a token every %v makes %v", rate, k.T(), perSecond)
		}
	}
}
