package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
)

// arbitraryChange is any write an operator or the keeper can plan on a state, nil when the draw gives none.
func arbitraryChange(t *rapid.T, seen gate.State) (gate.Write, *expression) {
	switch rapid.SampledFrom([]string{"tune", "pause", "lift", "sweep", "sweep"}).Draw(t, "change") {
	case "sweep":
		if w, some := seen.PlanSweep(noon); some {
			return w, sweep(w)
		}
	case "tune":
		k := seen.Knobs
		k.MaxInFlight = rapid.IntRange(1, 6).Draw(t, "MaxInFlight")
		k.RatePerSecond = rapid.SampledFrom([]float64{20, 20, 5, 18.5}).Draw(t, "rate")
		k.MaxQueued = rapid.IntRange(0, 30).Draw(t, "MaxQueued")
		w := seen.PlanTune(noon, k)
		return w, tune(w)
	case "pause":
		w := seen.PlanPause(noon, time.Duration(rapid.IntRange(1, 90).Draw(t, "for"))*time.Second)
		return w, pauseOf(w)
	case "lift":
		if w, ok := seen.PlanLift(noon, rapid.Bool().Draw(t, "force")); ok {
			return w, pauseOf(w)
		}
	}
	return nil, nil
}

// What an operator or the keeper writes, too, is applied by DynamoDB exactly if the core says it holds, and leaves exactly the state the core says.
func TestEveryChangeMeansTheSameInTheCoreAndInTheStore(t *testing.T) {
	store := newStore(t, nil)
	applied, failed := map[string]int{}, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		state := arbitrary(t)
		if rapid.Bool().Draw(t, "held") {
			state.Hold = noon.Millis() + gate.Millis(rapid.SampledFrom([]int{0, 1, 60_000}).Draw(t, "until"))
			state.Reason = rapid.SampledFrom([]gate.HoldReason{gate.HoldFailing, gate.HoldThrottled, gate.HoldStarting}).Draw(t, "reason")
		}
		seen := state
		switch rapid.IntRange(0, 4).Draw(t, "moved on") {
		case 0:
			seen = arbitrary(t)
		case 1, 2:
			if w, _ := arbitraryWrite(t, state, "between"); w != nil && w.Holds(state) {
				state = w.Apply(state)
			}
		case 3:
			if w, _ := arbitraryChange(t, state); w != nil && w.Holds(state) {
				state = w.Apply(state)
			}
		}
		w, x := arbitraryChange(t, seen)
		if w == nil {
			t.Skip("nothing to write")
		}
		put(store, state)
		after, item, err := store.send(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		kind := fmt.Sprintf("%T", w)
		if holds := w.Holds(state); holds != (item == nil) {
			t.Fatalf("the core says %v, DynamoDB says %v\n%+v\non %+v", holds, item == nil, w, state)
		}
		want := w.Apply(state)
		if item != nil {
			failed[kind]++
			want = state
			if after, err = decode(item); err != nil {
				t.Fatal(err)
			}
		} else {
			applied[kind]++
		}
		if !reflect.DeepEqual(normal(after), normal(want)) {
			t.Fatalf("DynamoDB has\n%+v, the core\n%+v\nafter %+v", after, want, w)
		}
	})
	for _, kind := range []string{"gate.Tune", "gate.Pause", "gate.Sweep"} {
		if !testing.Short() && (applied[kind] < 5 || failed[kind] < 2) {
			t.Errorf("%s: %d applied and %d failed: this shows little", kind, applied[kind], failed[kind])
		}
	}
}

func inspected(t testing.TB, s *Store) Inspection {
	t.Helper()
	i, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestAnOperatorsHoldWorksOnEveryInstanceAndComesOffAgain(t *testing.T) {
	s := initialised(t, nil)
	other := New(s.Config)
	mustAcquire(t, other, alice)
	throttled := state(t, s)
	throttled.Hold, throttled.Reason = noon.Millis()+20_000, gate.HoldThrottled
	put(s, throttled)

	held, err := s.Pause(t.Context(), time.Minute)
	if err != nil || held.After.Pause != noon.Millis()+61_000 || held.After.Version != 2 || held.Before.Pause != 0 {
		t.Fatalf("%+v, %v", held, err)
	}
	if i := inspected(t, s); i.State.Pause != noon.Millis()+61_000 || i.State.Hold != throttled.Hold || i.State.Reason != gate.HoldThrottled {
		t.Errorf("%+v", i)
	}
	// An instance with an old view plans for nothing: its write meets another version.
	if l, refusal, err := other.Acquire(t.Context(), gate.Request{Key: alice}); l != nil || err != nil || refusal.Hold != gate.HoldOperator {
		t.Errorf("%+v, %+v, %v", l, refusal, err)
	}
	if _, err := s.Pause(t.Context(), 30*time.Second); err != nil {
		t.Errorf("changed for a shorter one: %v", err)
	}
	left, err := s.Lift(t.Context(), false)
	if err != nil || left.After.InForce(noon) != (gate.Hold{Until: noon.Millis() + 20_000, Reason: gate.HoldThrottled}) {
		t.Errorf("%+v, %v", left, err)
	}
	before := stored(t, s)
	if _, there := before[attrPause]; there || len(state(t, s).Leases) != 1 {
		t.Errorf("left of the pause: %+v", before)
	}
	if _, err := s.Lift(t.Context(), false); !errors.Is(err, ErrNothingToDo) || !reflect.DeepEqual(stored(t, s), before) {
		t.Errorf("lifting what NHTSA asked for: %v", err)
	}
	if left, err := s.Lift(t.Context(), true); err != nil || left.After.Hold != 0 || left.Before.Hold == 0 {
		t.Errorf("by force: %+v, %v", left, err)
	}
	mustAcquire(t, New(s.Config), alice)
}

// What NHTSA says while the operator's pause stands is in force when that is cleared early, however long either is.
func TestA429HeardDuringAnOperatorsPauseIsInForceAfterIt(t *testing.T) {
	for name, longer := range map[string]time.Duration{"the operator's is longer": time.Hour, "NHTSA's is longer": 5 * time.Second} {
		s := initialised(t, nil)
		other := beside(s)
		l := mustAcquire(t, other, alice)
		if _, err := s.Pause(t.Context(), longer); err != nil {
			t.Fatal(err)
		}
		if err := other.Release(t.Context(), l, gate.Outcome{Kind: gate.Throttled, RetryAfter: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Lift(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if _, refusal, err := beside(s).Acquire(t.Context(), gate.Request{Key: alice}); err != nil || refusal == nil || refusal.Hold != gate.HoldThrottled || refusal.RetryAfter < time.Minute {
			t.Errorf("%s: %+v, %v", name, refusal, err)
		}
	}
}

func TestKnobsAreChangedOnceAndOnlyThoseThatWereSeen(t *testing.T) {
	s := initialised(t, nil)
	mustAcquire(t, s, alice)
	k := testKnobs()
	k.MaxInFlight, k.RatePerSecond = 6, 10
	change, err := s.Tune(t.Context(), 1, k)
	after := change.After
	if err != nil || change.Before.Knobs != testKnobs() || after.Version != 2 || after.Limit != 6 || after.Knobs != k || len(after.Leases) != 1 {
		t.Fatalf("%+v, %v", after, err)
	}
	if got := state(t, s); !reflect.DeepEqual(normal(got), normal(after)) {
		t.Errorf("stored is %+v, told was %+v", got, after)
	}
	before := stored(t, s)
	k.MaxInFlight = 8
	if _, err := s.Tune(t.Context(), 1, k); !errors.Is(err, ErrChanged) || !reflect.DeepEqual(stored(t, s), before) {
		t.Errorf("on a version that is over: %v", err)
	}
	k.MaxInFlight = 0
	if _, err := s.Tune(t.Context(), 2, k); err == nil || !strings.Contains(err.Error(), "MAX_IN_FLIGHT") || !reflect.DeepEqual(stored(t, s), before) {
		t.Errorf("with a fault: %v", err)
	}
	var e *Error
	if _, err := newStore(t, nil).Tune(t.Context(), 1, testKnobs()); !errors.As(err, &e) || e.Kind != KindMissingGate {
		t.Errorf("without a gate: %v", err)
	}
}

// An instance obeys the item, and says once for each version which knobs are in force. That costs no read.
func TestEachVersionOfTheKnobsIsToldOnce(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	admin := beside(s)
	type told struct {
		version int
		knobs   gate.Knobs
	}
	var heard []told
	s.Knobs = func(_ context.Context, version int, inForce gate.Knobs) {
		heard = append(heard, told{version, inForce})
	}
	k := testKnobs()
	want := []told{{1, k}}
	for n := range 3 {
		for range 3 {
			l := mustAcquire(t, s, alice)
			if err := s.Release(t.Context(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
				t.Fatal(err)
			}
		}
		if n < 2 {
			k.MaxQueued++
			if _, err := admin.Tune(t.Context(), n+1, k); err != nil {
				t.Fatal(err)
			}
			want = append(want, told{n + 2, k})
		}
	}
	if !reflect.DeepEqual(heard, want) {
		t.Errorf("told %+v, want %+v", heard, want)
	}
	if n := w.Count("GetItem"); n != 1+2 { // its own first, and the operator's two
		t.Errorf("%d reads", n)
	}
}

// After an operator's change an instance goes by its old view for a second at the most, and then by nothing that it has learned before: no bucket
// that was dry for certain, no hold that was in force, no quiet that it kept.
func TestAnOldViewRefusesForASecondAtTheMost(t *testing.T) {
	dryAt := func(now gate.Micros) func(*gate.State) {
		return func(st *gate.State) { st.TAT = now + gate.Micros(st.Knobs.Bucket().Tau) + 1e8 }
	}
	for name, c := range map[string]struct {
		before func(*gate.State)
		change func(t *testing.T, s *Store) error
	}{
		"a bucket that was dry": {dryAt(noon), func(t *testing.T, s *Store) error {
			k := testKnobs()
			k.RatePerSecond, k.Burst = 1000, 4000
			_, err := s.Tune(t.Context(), 1, k)
			return err
		}},
		"an operator's pause": {func(st *gate.State) { st.Pause = noon.Millis() + 3_600_000 }, func(t *testing.T, s *Store) error {
			_, err := s.Lift(t.Context(), false)
			return err
		}},
		"a hold that is ended by force": {func(st *gate.State) { st.Hold, st.Reason = noon.Millis()+3_600_000, gate.HoldThrottled }, func(t *testing.T, s *Store) error {
			_, err := s.Lift(t.Context(), true)
			return err
		}},
		"an instance that keeps quiet": {dryAt(noon), func(t *testing.T, s *Store) error {
			k := testKnobs()
			k.RatePerSecond, k.Burst = 1000, 4000
			_, err := s.Tune(t.Context(), 1, k)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			s := initialised(t, w)
			st := state(t, s)
			c.before(&st)
			put(s, st)
			now := noon.Time()
			s.Now = func() time.Time { return now }
			ask := func() *gate.Lease {
				t.Helper()
				l, _, err := s.Acquire(t.Context(), gate.Request{Key: alice})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			if ask() != nil {
				t.Fatal("admitted: this shows nothing")
			}
			if name == "an instance that keeps quiet" {
				for range 10 {
					s.manners.WentInVain(noon)
				}
			}
			if err := c.change(t, beside(s)); err != nil {
				t.Fatal(err)
			}
			reads := w.Count("GetItem")
			now = now.Add(time.Second)
			if l := ask(); l != nil || w.Count("GetItem") != reads {
				t.Errorf("it looked again before the second was over: %+v", l)
			}
			now = now.Add(time.Millisecond)
			if ask() == nil {
				t.Error("it still goes by what it saw more than a second ago")
			}
		})
	}
}

// A gate in use never stands still: the rate, whose change depends on it, is changed all the same, and no slot gets lost by it.
func TestKnobsAreChangedUnderLoad(t *testing.T) {
	s := initialised(t, nil)
	s.Now = time.Now
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			other := New(s.Config)
			for ctx.Err() == nil {
				if l, _, _ := other.Acquire(context.Background(), gate.Request{Key: alice}); l != nil {
					if err := other.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	k := testKnobs()
	for n := range 6 {
		k.RatePerSecond = 10 + float64(n)
		change, err := s.Tune(t.Context(), n+1, k)
		if err != nil || change.After.Knobs != k {
			t.Errorf("change %d: %v", n, err)
		}
	}
	stop()
	wg.Wait()
	if st := state(t, s); st.Version != 7 || len(st.Leases) != 0 || len(st.Places) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestALostAnswerOfAChangeIsNoError(t *testing.T) {
	for name, f := range map[string]fault{"connection lost": {Lost: true}, "timed out": {Hang: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for op, do := range map[string]func(*Store) (Change, error){
				"set": func(s *Store) (Change, error) {
					k := testKnobs()
					k.MaxInFlight = 2
					return s.Tune(t.Context(), 1, k)
				},
				"hold": func(s *Store) (Change, error) { return s.Pause(t.Context(), time.Minute) },
				"clear": func(s *Store) (Change, error) {
					st := state(t, s)
					st.Hold, st.Reason, st.Pause = noon.Millis()+60_000, gate.HoldThrottled, noon.Millis()+30_000
					put(s, st)
					return s.Lift(t.Context(), true)
				},
			} {
				w := &wire{}
				s := initialised(t, w)
				w.Script(func(op string, n int) fault {
					if op == "UpdateItem" && n == 1 {
						return f
					}
					return fault{}
				})
				change, err := do(s)
				after := change.After
				if err != nil || change.Before.Version != 1 || after.Version != 2 || !reflect.DeepEqual(normal(after), normal(state(t, s))) {
					t.Errorf("%s: %+v, %v", op, after, err)
				}
				if n := w.Count("UpdateItem"); n != 1 {
					t.Errorf("%s: written %d times", op, n)
				}
			}
		})
	}
}

// A hold by a clock that is off would be too long or none at all.
func TestInspectSaysWhenThisMachinesClockIsOff(t *testing.T) {
	s := initialised(t, nil)
	for _, off := range []time.Duration{0, 5 * time.Second, -5 * time.Second, 90 * time.Second, -time.Hour} {
		s.Now = func() time.Time { return time.Now().Add(off) }
		i := inspected(t, s)
		if i.Ahead < off-2*time.Second || i.Ahead > off+2*time.Second {
			t.Errorf("off by %v: said to be %v", off, i.Ahead)
		}
	}
}
