package gate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTheLimitFollowsMaxInFlightButNeverWhileItIsShrunk(t *testing.T) {
	for name, tc := range map[string]struct {
		was, limit, becomes int
		arrange             func(*State)
		want                int
	}{
		"raised":                              {4, 4, 6, nil, 6},
		"lowered":                             {4, 4, 2, nil, 2},
		"raised after a cut":                  {4, 2, 6, nil, 2},
		"lowered after a cut, above it":       {4, 2, 3, nil, 2},
		"lowered after a cut, below it":       {4, 3, 1, nil, 1},
		"raised from one after a cut":         {1, 1, 4, func(s *State) { s.Episodes = 1 }, 1},
		"raised from one while it fails":      {1, 1, 4, func(s *State) { s.Failures = failuresToHold }, 1},
		"raised in a pause NHTSA asked for":   {4, 4, 6, func(s *State) { s.Hold, s.Reason = noon.Millis()+1, HoldThrottled }, 4},
		"raised in the operator's own pause":  {4, 4, 6, func(s *State) { s.Pause = noon.Millis() + 1 }, 6},
		"raised after such a pause was over":  {4, 4, 6, func(s *State) { s.Hold, s.Reason = noon.Millis(), HoldThrottled }, 6},
		"raised after some failures in a row": {4, 4, 6, func(s *State) { s.Failures = failuresToHold - 1 }, 6},
	} {
		k := slowKnobs()
		k.MaxInFlight = tc.was
		s := NewState(k, noon, false)
		s.Limit = tc.limit
		if tc.arrange != nil {
			tc.arrange(&s)
		}
		k.MaxInFlight = tc.becomes
		w := s.PlanTune(noon, k)
		if !w.Holds(s) {
			t.Fatalf("%s: does not hold on the state it was planned on", name)
		}
		if after := w.Apply(s); after.Limit != tc.want || after.Version != s.Version+1 || after.Knobs != k || after.TAT != s.TAT {
			t.Errorf("%s: limit %d, want %d; %+v", name, after.Limit, tc.want, after)
		}
	}
}

// What was planned before a change is planned anew: nobody is admitted by numbers that are not in force.
func TestAChangeOfAnyKindFailsWhatWasPlannedBefore(t *testing.T) {
	s := NewState(slowKnobs(), noon, false)
	admission, _, refusal := s.Plan(noon, Request{ID: "new", Key: alice})
	if refusal != nil {
		t.Fatal(refusal)
	}
	pause := s.PlanPause(noon, time.Minute)
	lift, _ := pause.Apply(s).PlanLift(noon, false)
	tune := s.PlanTune(noon, s.Knobs)
	for name, w := range map[string]Write{"tune": tune, "pause": pause} {
		if !w.Holds(s) || w.Holds(w.Apply(s)) || admission.Holds(w.Apply(s)) {
			t.Errorf("%s: it holds twice, or an old admission holds after it", name)
		}
	}
	if after := lift.Apply(pause.Apply(s)); admission.Holds(after) || after.Pause != 0 {
		t.Errorf("after the pause: %+v", after)
	}
	if tune.Holds(pause.Apply(s)) || pause.Holds(tune.Apply(s)) {
		t.Error("two operators overwrite one another")
	}
}

func TestARateThatChangesKeepsWhatWasUsedInCalls(t *testing.T) {
	k := slowKnobs() // 2/s
	k.SkewBound, k.Attempt, k.StartGrace = 0, 0, 0
	uncertain := int(TuneAttempt / k.T()) // calls that count as used: 2
	used := func(n int) State {
		s := NewState(k, noon, false)
		s.TAT = noon + Micros(n-uncertain)*500_000
		return s
	}
	for name, tc := range map[string]struct {
		used  int
		rate  float64
		burst int
		want  int // tokens afterwards
	}{
		"half the rate":                    {4, 1, 10, 6},
		"ten times the rate":               {4, 20, 10, 6},
		"a rate so high that time matters": {10, 1000, 10, 0},
		"all used":                         {10, 0.1, 10, 0},
		"a larger burst with it":           {10, 1, 15, 5},
		"a smaller burst with it":          {4, 1, 3, 0},
		"nothing used":                     {0, 1, 10, 10},
	} {
		s, next := used(tc.used), k
		next.RatePerSecond, next.Burst = tc.rate, tc.burst
		w := s.PlanTune(noon, next)
		after := w.Apply(s)
		if got := after.View(noon).Tokens; !w.Holds(s) || got != tc.want {
			t.Errorf("%s: %d tokens, want %d", name, got, tc.want)
		}
		if moved := s; tc.used > 0 {
			if moved.TAT++; w.Holds(moved) {
				t.Errorf("%s: it holds though somebody was admitted meanwhile", name)
			}
		}
	}
	next := k
	next.Burst, next.MaxQueued = 20, 5
	if w := used(4).PlanTune(noon, next); w.TAT != 0 {
		t.Errorf("the same rate moves tat: %+v", w)
	}
}

// P2 over changes: greedy callers, any knobs at any time, clocks within the bound. A window holds at most the largest burst in it, and each
// rate for as long as it was in force.
func TestProperty_ChangesOfTheRateNeverAddToAWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := slowKnobs()
		k.MaxInFlight, k.BulkheadAnon = 64, 1000
		skew, late := k.SkewBound.Microseconds(), (k.Attempt + k.StartGrace).Microseconds()
		s := NewState(k, noon, false)
		type change struct {
			at    Micros
			knobs Knobs
		}
		changes := []change{{-1 << 60, k}}
		var starts []Micros
		now := noon
		clock := func() Micros { return now + Micros(rapid.SampledFrom([]int64{0, -skew, skew}).Draw(t, "clock")) }
		for n := range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += Micros(rapid.SampledFrom([]int64{0, 0, 0, 200_000, 500_000, 3_000_000}).Draw(t, "pause"))
			if rapid.IntRange(0, 2).Draw(t, "step") == 0 {
				next := k
				next.RatePerSecond = rapid.SampledFrom([]float64{0.5, 2, 20}).Draw(t, "rate")
				next.Burst = rapid.SampledFrom([]int{10, 40}).Draw(t, "burst")
				if len(next.Validate()) > 0 {
					continue
				}
				w := s.PlanTune(clock(), next)
				now += Micros(rapid.SampledFrom([]int64{0, TuneAttempt.Microseconds()}).Draw(t, "way"))
				s = w.Apply(s)
				changes = append(changes, change{now, next})
				continue
			}
			stamp, start := clock(), now+Micros(rapid.SampledFrom([]int64{0, late}).Draw(t, "start"))
			for g := range rapid.SampledFrom([]int{1, 5, 50}).Draw(t, "callers") {
				w, _, refusal := s.Plan(stamp, Request{ID: fmt.Sprint("id", n, "-", g), Key: Key{Route: Interactive, Tenant: fmt.Sprint(n, g)}})
				if refusal != nil || w == nil {
					break
				}
				s = w.Apply(s)
				s.Leases, s.Places = map[string]Millis{}, map[Place][]string{} // slots are not what this is about
				starts = append(starts, start)
			}
		}
		slices.Sort(starts)
		for i := range starts {
			for j := i; j < len(starts); j++ {
				allowed, burst := 0.0, 0
				for c, ch := range changes {
					// A call granted under one rate may start under the next.
					begin, end := max(starts[i], ch.at), starts[j]
					if c+1 < len(changes) {
						end = min(end, changes[c+1].at+Micros(late))
					}
					if begin <= end {
						burst = max(burst, ch.knobs.Burst)
					}
					if c+1 < len(changes) {
						end = min(end, changes[c+1].at)
					}
					allowed += max(0, float64(end-begin)) / 1e6 * ch.knobs.RatePerSecond
				}
				if n := float64(j - i + 1); n > float64(burst)+allowed+1e-6 {
					t.Fatalf("%v calls within %d us over %d changes, allowed %v + %v", n, starts[j]-starts[i], len(changes)-1, burst, allowed)
				}
			}
		}
	})
}

func TestAnOperatorsPauseStopsEverybodyAndLeavesNHTSAsHoldAlone(t *testing.T) {
	k := slowKnobs()
	free := NewState(k, noon, false)
	throttled := free
	throttled.Hold, throttled.Reason = noon.Millis()+600_000, HoldThrottled
	hour := Hold{noon.Millis() + 3_601_000, HoldOperator}
	for name, tc := range map[string]struct {
		on     State
		lasts  time.Duration
		told   Hold // while both are in force
		beside Hold // once it is lifted
	}{
		"a free gate":                           {free, time.Hour, hour, Hold{}},
		"a gate NHTSA paused for longer":        {throttled, time.Minute, Hold{throttled.Hold, HoldThrottled}, Hold{throttled.Hold, HoldThrottled}},
		"a gate NHTSA paused for a shorter one": {throttled, time.Hour, hour, Hold{throttled.Hold, HoldThrottled}},
	} {
		pause := tc.on.PlanPause(noon, tc.lasts)
		if !pause.Holds(tc.on) {
			t.Fatalf("%s: does not hold where it was planned", name)
		}
		paused := pause.Apply(tc.on)
		if paused.InForce(noon) != tc.told || paused.Version != 2 || paused.Hold != tc.on.Hold || paused.Reason != tc.on.Reason {
			t.Errorf("%s: %+v", name, paused)
		}
		if v := paused.View(noon); v.Hold != tc.told.Reason || v.HeldFor != tc.told.Until.Time().Sub(noon.Time()) {
			t.Errorf("%s: seen from outside: %+v", name, v)
		}
		waiting := queued(paused, "bob  0001", bob)
		_, _, entering := paused.Plan(noon, Request{ID: "x", Key: alice, Patience: time.Minute})
		_, _, claiming := waiting.PlanClaim(noon, Request{ID: "bob  0001", Key: bob}, nil)
		for what, r := range map[string]*Refusal{"entering": entering, "claiming": claiming, "for certain": paused.Certain(noon, Request{ID: "x", Key: alice})} {
			if r == nil || r.Cause != Held || r.Hold != tc.told.Reason || r.RetryAfter != RetryAfter(tc.told.Until.Time().Sub(noon.Time())) {
				t.Errorf("%s, %s: %+v", name, what, r)
			}
		}
		// Changed twice, longer and shorter: an operator's word takes the place of the one before.
		for _, d := range []time.Duration{2 * time.Hour, 15 * time.Minute} {
			paused = paused.PlanPause(noon, d).Apply(paused)
			if want := noon.Millis() + Millis(d.Milliseconds()) + 1000; paused.Pause != want {
				t.Errorf("%s: changed to end at %d, not %d", name, paused.Pause, want)
			}
		}
		lift, ok := paused.PlanLift(noon, false)
		if after := lift.Apply(paused); !ok || !lift.Holds(paused) || after.InForce(noon) != tc.beside || after.Pause != 0 {
			t.Errorf("%s: lifted to %+v", name, after.InForce(noon))
		}
		force, _ := paused.PlanLift(noon, true)
		if in := force.Apply(paused).InForce(noon); in != (Hold{}) {
			t.Errorf("%s: lifted by force to %+v", name, in)
		}
		if in := paused.InForce(noon + 901_000_000); in != (Hold{}) {
			t.Errorf("%s: not over by itself: %+v", name, in)
		}
	}
}

// What a call that was under way hears of NHTSA while the operator's pause stands is in force when that is lifted early, also where it is the shorter one.
func TestA429HeardDuringAnOperatorsPauseIsNotLost(t *testing.T) {
	for _, longer := range []time.Duration{time.Minute, time.Hour} {
		s := take(t, NewState(slowKnobs(), noon, false), noon, "a", alice)
		lease := &Lease{ID: "a", Key: alice}
		s = s.PlanPause(noon, longer).Apply(s)
		release := s.PlanRelease(noon, lease, Outcome{Kind: Throttled, RetryAfter: 5 * time.Minute})
		if !release.Holds(s) {
			t.Fatal("the release does not hold")
		}
		s = release.Apply(s)
		if s.Limit != 2 || s.Episodes != 1 {
			t.Errorf("the limit is %d", s.Limit)
		}
		lift, _ := s.PlanLift(noon, false)
		if in := lift.Apply(s).InForce(noon); in.Reason != HoldThrottled || in.Until != noon.Millis()+301_000 {
			t.Errorf("a pause of %v lifted: %+v", longer, in)
		}
	}
}

func TestOnlyForceLiftsWhatNHTSAAskedFor(t *testing.T) {
	for _, reason := range []HoldReason{HoldThrottled, HoldFailing, HoldStarting} {
		s := NewState(slowKnobs(), noon, false)
		s.Hold, s.Reason = noon.Millis()+1000, reason
		if _, ok := s.PlanLift(noon, false); ok {
			t.Errorf("%s: lifted without force", reason)
		}
		w, ok := s.PlanLift(noon, true)
		if !ok || w.Apply(s).InForce(noon) != (Hold{}) {
			t.Errorf("%s: not lifted with force", reason)
		}
		if _, ok := s.PlanLift(noon+1_000_000, true); ok {
			t.Errorf("%s: lifted after it was over", reason)
		}
	}
}

// Each clause is there for something: without it one of these goes wrong.
func TestEveryClauseOfAnOperatorsWriteIsNeeded(t *testing.T) {
	k := slowKnobs()
	s := NewState(k, noon, false)
	s.TAT = noon + 1
	k.RatePerSecond = 1
	other := func(change func(*State)) State { o := s.Clone(); change(&o); return o }
	pause := s.PlanPause(noon, time.Minute)
	held := other(func(s *State) { s.Hold, s.Reason = noon.Millis()+1000, HoldThrottled })
	force, _ := held.PlanLift(noon, true)
	for _, tc := range []struct {
		clause string
		checks func(State) []Check
		on     State
	}{
		{"version", s.PlanTune(noon, k).Checks, other(func(s *State) { s.Version++ })},
		{"limit", s.PlanTune(noon, k).Checks, other(func(s *State) { s.Limit = 1 })}, // a cut meanwhile
		{"tat", s.PlanTune(noon, k).Checks, other(func(s *State) { s.TAT += 500_000 })},
		{"version", pause.Checks, other(func(s *State) { s.Version++ })},
		{"hold", force.Checks, other(func(s *State) { s.Hold = noon.Millis() + 3_600_000 })}, // NHTSA asked for longer meanwhile, unseen
	} {
		for _, c := range tc.checks(tc.on) {
			if c.OK == (c.Name == tc.clause) {
				t.Errorf("%s is %v", c.Name, c.OK)
			}
		}
	}
	if !pause.Holds(s) || !pause.Holds(held) || !force.Holds(held) {
		t.Error("it holds nowhere, or asks for more than it relies on")
	}
}

// slowKnobs are the defaults of the configuration: two calls a second.
func slowKnobs() Knobs {
	return Knobs{
		MaxInFlight: 4, RatePerSecond: 2, Burst: 10, MaxQueued: 24,
		BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: Attempt,
	}
}
