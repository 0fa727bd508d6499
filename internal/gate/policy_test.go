package gate

import (
	"testing"
	"time"
)

func TestAnInstanceThatWroteInVainIsShyThenQuietAndForgets(t *testing.T) {
	var m Manners
	if got := m.Shyness(noon, 0.9, 0.2); got != 0 {
		t.Errorf("shy of nobody: %v", got)
	}
	m.WentInVain(noon)
	if got := m.Shyness(noon, 0.25, 0.5); got != 0.5 {
		t.Errorf("leaves %v of what is scarce, not the larger of two draws", got)
	}
	if quiet := m.Quiet(noon); quiet > 0 {
		t.Errorf("quiet for %v after the first failure", quiet)
	}
	for _, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000} {
		if m.WentInVain(noon); m.Quiet(noon) != want*time.Millisecond {
			t.Errorf("quiet for %v, not %d ms", m.Quiet(noon), want)
		}
	}
	m.WentWell()
	m.WentInVain(noon) // 0.9 shy after the success: wholly shy again, and not quiet for longer
	if got := m.Shyness(noon, 0.5, 0); got != 0.5 {
		t.Errorf("after a success and a failure: %v", got)
	}
	if m.WentInVain(noon); m.Quiet(noon) != 2*time.Second {
		t.Errorf("quiet for %v", m.Quiet(noon))
	}
	if got := m.Shyness(noon+micros(shyFor)+1, 0.9, 0.9); got != 0 {
		t.Errorf("does not forget: %v", got)
	}
}

func TestAWaiterPassesAHeadThatLeavesItsTurnUnused(t *testing.T) {
	w := newWard(t, 1, 100)
	head := w.queue("A", 1, 1)[0]
	mine := w.queue("B", 1, 1)[0]
	r := Request{ID: mine, Key: tenantKey("B")}
	var watch Watch
	for _, c := range []struct {
		after  Micros
		passed bool
	}{{0, false}, {micros(headGrace) - 1, false}, {micros(headGrace), true}} {
		if _, rest, refusal := watch.Plan(w.state, w.now+c.after, r); rest == 0 || refusal != nil || watch.passed[head] != c.passed || watch.passed[mine] {
			t.Fatalf("after %d: sleeps %v, %+v, passed %v", c.after, rest, refusal, watch.passed)
		}
	}
	if _, rest, _ := watch.Plan(w.state, w.now+micros(headGrace)+1, r); rest != 0 {
		t.Errorf("does not take the turn that was left: sleeps %v", rest)
	}
}
