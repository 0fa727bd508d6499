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
		"raised in the operator's own pause":  {4, 4, 6, func(s *State) { s.Hold, s.Reason = noon.Millis()+1, HoldOperator }, 6},
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
	pause, _ := s.PlanPause(noon, time.Minute, Hold{})
	lift, _ := pause.Apply(s).PlanLift(noon, Hold{}, false)
	tune := s.PlanTune(noon, s.Knobs)
	for name, w := range map[string]Write{"tune": tune, "pause": pause} {
		if !w.Holds(s) || w.Holds(w.Apply(s)) || admission.Holds(w.Apply(s)) {
			t.Errorf("%s: it holds twice, or an old admission holds after it", name)
		}
	}
	if after := lift.Apply(pause.Apply(s)); admission.Holds(after) || after.Hold != 0 || after.Reason != "" {
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

func TestAnOperatorsHoldStopsEverybodyAndGivesBackWhatItCovered(t *testing.T) {
	k := slowKnobs()
	free := NewState(k, noon, false)
	throttled := free
	throttled.Hold, throttled.Reason = noon.Millis()+600_000, HoldThrottled
	for name, tc := range map[string]struct {
		on      State
		holds   time.Duration
		lasts   Millis // from noon; 0: nothing to write
		left    Hold
		leftFor Millis
	}{
		"a free gate":                           {free, time.Minute, 61_000, Hold{}, 0},
		"a gate NHTSA paused for longer":        {throttled, time.Minute, 0, Hold{}, 0},
		"a gate NHTSA paused for a shorter one": {throttled, time.Hour, 3_601_000, Hold{throttled.Hold, HoldThrottled}, 600_000},
	} {
		w, ok := tc.on.PlanPause(noon, tc.holds, Hold{})
		if ok != (tc.lasts > 0) {
			t.Errorf("%s: to write %v", name, ok)
		}
		if !ok {
			continue
		}
		held := w.Apply(tc.on)
		if held.Hold != noon.Millis()+tc.lasts || held.Reason != HoldOperator || held.Version != 2 {
			t.Errorf("%s: %+v", name, held)
		}
		if _, _, refusal := held.Plan(noon, Request{ID: "x", Key: alice}); refusal == nil || refusal.Hold != HoldOperator {
			t.Errorf("%s: %+v", name, refusal)
		}
		// Changed twice, longer and shorter, and lifted: what it covered is still there.
		beneath := w.Beneath
		for _, d := range []time.Duration{2 * time.Hour, 15 * time.Minute} {
			w, ok = held.PlanPause(noon, d, beneath)
			if !ok {
				t.Fatalf("%s: the own hold cannot be changed", name)
			}
			held, beneath = w.Apply(held), w.Beneath
		}
		lift, ok := held.PlanLift(noon, beneath, false)
		after := lift.Apply(held)
		if !ok || after.InForce(noon) != tc.left || lift.Beneath != (Hold{}) {
			t.Errorf("%s: lifted to %+v", name, after.InForce(noon))
		}
		late := noon + Micros(tc.leftFor+1)*1000
		lift, _ = held.PlanLift(late, beneath, false)
		if in := lift.Apply(held).InForce(late); in != (Hold{}) {
			t.Errorf("%s: lifted later to %+v", name, in)
		}
		lift, _ = held.PlanLift(noon, beneath, true)
		if in := lift.Apply(held).InForce(noon); in != (Hold{}) {
			t.Errorf("%s: lifted by force to %+v", name, in)
		}
	}
}

// A hold that NHTSA asked for is not shortened by the back door of an operator's shorter one.
func TestAnOperatorsHoldIsNeverShorterThanWhatItCovers(t *testing.T) {
	s := NewState(slowKnobs(), noon, false)
	beneath := Hold{noon.Millis() + 600_000, HoldThrottled}
	s.Hold, s.Reason = noon.Millis()+3_600_000, HoldOperator
	w, ok := s.PlanPause(noon, time.Second, beneath)
	if !ok || w.Hold < beneath.Until || w.Beneath != beneath {
		t.Errorf("%+v", w)
	}
}

func TestOnlyForceLiftsWhatNHTSAAskedFor(t *testing.T) {
	for reason, plain := range map[HoldReason]bool{HoldThrottled: false, HoldFailing: false, HoldStarting: false, HoldOperator: true} {
		s := NewState(slowKnobs(), noon, false)
		s.Hold, s.Reason = noon.Millis()+1000, reason
		if _, ok := s.PlanLift(noon, Hold{}, false); ok != plain {
			t.Errorf("%s: lifted without force: %v", reason, ok)
		}
		if w, ok := s.PlanLift(noon, Hold{}, true); !ok || w.Apply(s).InForce(noon) != (Hold{}) {
			t.Errorf("%s: not lifted with force", reason)
		}
		if _, ok := s.PlanLift(noon+1_000_000, Hold{}, true); ok {
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
	pause, _ := s.PlanPause(noon, time.Minute, Hold{})
	for _, tc := range []struct {
		clause string
		checks func(State) []Check
		on     State
	}{
		{"version", s.PlanTune(noon, k).Checks, other(func(s *State) { s.Version++ })},
		{"limit", s.PlanTune(noon, k).Checks, other(func(s *State) { s.Limit = 1 })}, // a cut meanwhile
		{"tat", s.PlanTune(noon, k).Checks, other(func(s *State) { s.TAT += 500_000 })},
		{"version", pause.Checks, other(func(s *State) { s.Version++ })},
		{"hold", pause.Checks, other(func(s *State) { s.Hold = noon.Millis() + 3_600_000 })}, // NHTSA asked for longer meanwhile
	} {
		for _, c := range tc.checks(tc.on) {
			if c.OK == (c.Name == tc.clause) {
				t.Errorf("%s is %v", c.Name, c.OK)
			}
		}
	}
	if !slices.ContainsFunc(pause.Checks(s), func(c Check) bool { return c.OK }) {
		t.Error("it holds nowhere")
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
