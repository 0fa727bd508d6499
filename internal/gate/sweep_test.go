package gate

import (
	"maps"
	"reflect"
	"testing"
)

// leftBehind is a gate with two leases and two tickets, one of each past its end.
func leftBehind() State {
	s := NewState(slowKnobs(), noon, false)
	over := noon.Millis() - Millis(s.Knobs.SkewBound.Milliseconds()) - 1
	s.Leases = map[string]Millis{"liveA": noon.Millis() + 1, "deadB": over}
	s.Tickets = map[string]Ticket{"flowA1": {Arrival: over, Deadline: noon.Millis() + 1, Cost: 1, Weight: 1}, "flowB2": {Arrival: over, Deadline: over, Cost: 1, Weight: 1}}
	s.Flows = map[Flow]Turn{"flowA": {Tag: 1, Count: 1}, "flowB": {Tag: 2, Count: 1}}
	s.Places = map[Place][]string{alice.Place(): {"deadB", "flowA1", "flowB2", "liveA"}}
	return s
}

func TestASweepRemovesWhatIsOverAndNothingElse(t *testing.T) {
	s := leftBehind()
	w, ok := s.PlanSweep(noon)
	if !ok || !w.Holds(s) {
		t.Fatalf("planned %v: %+v", ok, w)
	}
	want := s.Clone()
	delete(want.Leases, "deadB")
	delete(want.Tickets, "flowB2")
	delete(want.Flows, "flowB")
	want.Places[alice.Place()] = []string{"flowA1", "liveA"}
	got := w.Apply(s)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("left\n%+v, want\n%+v", got, want)
	}
	if got.TAT != s.TAT || got.Version != s.Version {
		t.Error("a sweep spends")
	}
	if w, again := got.PlanSweep(noon); again {
		t.Errorf("there is more to sweep: %+v", w)
	}
}

// At its end plus the clocks' bound a lease may still be somebody's: one millisecond later it is not.
func TestASweepWaitsForTheSlowestClock(t *testing.T) {
	s := NewState(slowKnobs(), noon, false)
	s.Leases["a"] = noon.Millis() - Millis(s.Knobs.SkewBound.Milliseconds())
	if w, ok := s.PlanSweep(noon); ok {
		t.Errorf("%+v", w)
	}
	if w, ok := s.PlanSweep(noon + 1000); !ok || len(w.Dead) != 1 {
		t.Errorf("a millisecond later: %v %+v", ok, w)
	}
}

func TestASweepMeetsAStateThatMovedOn(t *testing.T) {
	s := leftBehind()
	w, _ := s.PlanSweep(noon)
	for name, change := range map[string]func(*State){
		"the dead lease is gone":            func(s *State) { delete(s.Leases, "deadB") },
		"its id is somebody's again":        func(s *State) { s.Leases["deadB"] = noon.Millis() + 1000 },
		"the ticket is gone":                func(s *State) { delete(s.Tickets, "flowB2") },
		"another ticket of its flow joined": func(s *State) { s.Flows["flowB"] = Turn{Tag: 2, Count: 2} },
	} {
		met := s.Clone()
		change(&met)
		if w.Holds(met) {
			t.Errorf("it holds although %s", name)
		}
	}
	met := s.Clone()
	met.Leases["newC"] = noon.Millis() + 15000
	met.TAT += 500_000
	if !w.Holds(met) || !maps.Equal(w.Apply(met).Leases, map[string]Millis{"liveA": noon.Millis() + 1, "newC": noon.Millis() + 15000}) {
		t.Error("an admission in between must not matter")
	}
}
