package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestShow(t *testing.T) {
	held := busy()
	held.state.Hold, held.state.Reason = gate.MicrosOf(noon).Millis()+29_000, gate.HoldThrottled
	held.state.Pause = gate.MicrosOf(noon).Millis() + 90_000
	held.ahead = -4200 * time.Millisecond
	for name, b := range map[string]*budget{"show-idle": newBudget(), "show-busy": busy(), "show-held": held} {
		golden(t, name, printed(t, func(w *bytes.Buffer) error { return gateOf(b).Show(t.Context(), w, false) }))
		out := printed(t, func(w *bytes.Buffer) error { return gateOf(b).Show(t.Context(), w, true) })
		golden(t, name+"-json", out)
		var r report
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Limit != b.state.Limit {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetShowsOldAndNew(t *testing.T) {
	b := newBudget()
	golden(t, "set", printed(t, func(w *bytes.Buffer) error {
		return gateOf(b).Set(t.Context(), w, map[string]string{"MAX_IN_FLIGHT": "6", "RATE_PER_SECOND": "3.5", "LEASE_TTL": "20s"}, env())
	}))
	if b.state.Knobs.MaxInFlight != 6 || b.state.Limit != 6 || b.state.Version != 2 {
		t.Errorf("%+v", b.state)
	}
	golden(t, "set-nothing", printed(t, func(w *bytes.Buffer) error {
		return gateOf(b).Set(t.Context(), w, map[string]string{"MAX_IN_FLIGHT": "6"}, env())
	}))
	if b.state.Version != 2 {
		t.Error("written all the same")
	}
	shrunk := busy()
	golden(t, "set-shrunk", printed(t, func(w *bytes.Buffer) error {
		return gateOf(shrunk).Set(t.Context(), w, map[string]string{"MAX_IN_FLIGHT": "8", "KEY_SLOTS": "5"}, env())
	}))
	if shrunk.state.Limit != 2 {
		t.Errorf("the limit is %d while NHTSA throttles", shrunk.state.Limit)
	}
}

func TestSetRefusesAllFaultsAtOnceAndWritesNothing(t *testing.T) {
	b := newBudget()
	before := b.state.Clone()
	var out bytes.Buffer
	err := gateOf(b).Set(t.Context(), &out, map[string]string{"LEASE_TTL": "9s", "BATCH_SLOTS": "7", "RATE_PER_SECOND": "20", "MAX_QUEUED": "-1"}, env("UPSTREAM_TIMEOUT", "8s"))
	if err == nil || out.Len() > 0 || !reflect.DeepEqual(b.state, before) {
		t.Fatalf("%v, %s", err, out.String())
	}
	golden(t, "set-faults", err.Error()+"\n")
}

func TestSetWritesOnlyOverWhatItShowed(t *testing.T) {
	b := newBudget()
	b.between = func(s *gate.State) { s.Version++; s.Knobs.MaxInFlight = 9 }
	if err := gateOf(b).Set(t.Context(), &bytes.Buffer{}, map[string]string{"MAX_IN_FLIGHT": "6"}, env()); err == nil ||
		!strings.Contains(err.Error(), "somebody else changed the gate meanwhile") || b.state.Knobs.MaxInFlight != 9 {
		t.Errorf("%v, %+v", err, b.state.Knobs)
	}
}

func TestHoldAndClear(t *testing.T) {
	b := busy()
	b.state.Hold, b.state.Reason = gate.MicrosOf(noon).Millis()+120_000, gate.HoldThrottled
	g := gateOf(b)
	hold := func(d time.Duration) func(*bytes.Buffer) error {
		return func(w *bytes.Buffer) error { return g.Hold(t.Context(), w, d) }
	}
	clear := func(force bool) func(*bytes.Buffer) error {
		return func(w *bytes.Buffer) error { return g.Clear(t.Context(), w, force) }
	}
	golden(t, "hold-shorter", printed(t, hold(time.Minute)))
	golden(t, "clear-shorter", printed(t, clear(false)))
	if err := g.Clear(t.Context(), &bytes.Buffer{}, false); err == nil || !strings.Contains(err.Error(), "NHTSA asked for it") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("%v", err)
	}
	golden(t, "hold", printed(t, hold(10*time.Minute)))
	golden(t, "clear", printed(t, clear(false)))
	golden(t, "clear-force", printed(t, clear(true)))
	golden(t, "clear-nothing", printed(t, clear(true)))
	golden(t, "hold-free", printed(t, hold(time.Hour)))
	golden(t, "clear-free", printed(t, clear(false)))
	// NHTSA asks for a pause while the operator's stands: it is in force when that is cleared.
	golden(t, "hold-twice", printed(t, hold(time.Hour)))
	b.state.Hold, b.state.Reason = gate.MicrosOf(noon).Millis()+30_000, gate.HoldThrottled
	golden(t, "clear-heard-meanwhile", printed(t, clear(false)))
	golden(t, "hold-thrice", printed(t, hold(time.Hour)))
	golden(t, "clear-force-both", printed(t, clear(true)))
}

func TestInit(t *testing.T) {
	for name, fresh := range map[string]bool{"init": false, "init-new-tables": true} {
		b := newBudget()
		k := b.state.Knobs
		b.none = true
		golden(t, name, printed(t, func(w *bytes.Buffer) error { return gateOf(b).Init(t.Context(), w, k, fresh) }))
		if held := b.state.InForce(gate.MicrosOf(noon)).Reason == gate.HoldStarting; held == fresh {
			t.Errorf("%s: held %v", name, held)
		}
		if err := gateOf(b).Init(t.Context(), &bytes.Buffer{}, k, fresh); err == nil || !strings.Contains(err.Error(), "has a gate already; nothing was changed: `vingate gate set`") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The gate goes by clocks: nothing is changed by one that is off.
func TestAClockThatIsOffChangesNothing(t *testing.T) {
	for _, ahead := range []time.Duration{1300 * time.Millisecond, -1300 * time.Millisecond, time.Hour} {
		b := newBudget()
		b.ahead = ahead
		before := b.state.Clone()
		for name, do := range map[string]func(*Gate) error{
			"set": func(g *Gate) error {
				return g.Set(t.Context(), &bytes.Buffer{}, map[string]string{"MAX_IN_FLIGHT": "3"}, env())
			},
			"hold":  func(g *Gate) error { return g.Hold(t.Context(), &bytes.Buffer{}, time.Minute) },
			"clear": func(g *Gate) error { return g.Clear(t.Context(), &bytes.Buffer{}, true) },
			"init":  func(g *Gate) error { return g.Init(t.Context(), &bytes.Buffer{}, before.Knobs, true) },
		} {
			if err := do(gateOf(b)); err == nil || !strings.Contains(err.Error(), "this machine's clock is at least") || !reflect.DeepEqual(b.state, before) {
				t.Errorf("%s with a clock %v ahead: %v", name, ahead, err)
			}
		}
		b.ahead = ahead / 4000 // what whole seconds and the bound allow
		if err := gateOf(b).Hold(t.Context(), &bytes.Buffer{}, time.Minute); err != nil {
			t.Error(err)
		}
	}
}

func TestFrame(t *testing.T) {
	wide := newReport("nhtsa", "vingate-coordination", inspect(t, busy())).frame(100, 40, time.Second)
	golden(t, "frame", strings.Join(wide, "\n")+"\n")
	golden(t, "frame-idle", strings.Join(newReport("nhtsa", "vingate-coordination", inspect(t, newBudget())).frame(100, 40, time.Second), "\n")+"\n")

	crowd := newBudget()
	for n := range 30 {
		id := string(gate.FlowOf(strings.Repeat("x", n))) + "id"
		crowd.state.Tickets[id] = gate.Ticket{Arrival: gate.MicrosOf(noon).Millis() - gate.Millis(n*10), Deadline: gate.MicrosOf(noon).Millis() + 5000, Cost: 1, Weight: 1}
	}
	for _, size := range [][2]int{{40, 12}, {80, 24}, {200, 60}, {1, 1}, {0, 0}} {
		lines := newReport("nhtsa", "vingate-coordination", inspect(t, crowd)).frame(size[0], size[1], time.Second)
		for _, line := range lines {
			if size[0] > 0 && len([]rune(line)) > size[0] {
				t.Errorf("%v: a line of %d: %q", size, len(line), line)
			}
		}
		if size[1] >= 12 && len(lines) > size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		if rest := lines[len(lines)-1]; size[1] == 12 && rest != "and 28 more" || size[1] == 24 && rest != "and 16 more" {
			t.Errorf("%v ends with %q", size, rest)
		}
	}
}

func inspect(t *testing.T, b *budget) dynamo.Inspection {
	t.Helper()
	i, err := b.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// a screen of a size.
func a(width, height int, ok bool) Screen {
	return func() (int, int, bool) { return width, height, ok }
}

func TestWatchElsewhereWritesALineEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := busy()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		out := printed(t, func(w *bytes.Buffer) error { return gateOf(b).Watch(ctx, w, a(0, 0, false), time.Second, 0) })
		if strings.Count(out, "\n") != 4 || strings.Contains(out, "\x1b") {
			t.Errorf("%q", out)
		}
		golden(t, "watch-line", out[:strings.Index(out, "\n")+1])
		if out := printed(t, func(w *bytes.Buffer) error { return gateOf(b).Watch(t.Context(), w, a(0, 0, false), time.Second, 2) }); strings.Count(out, "\n") != 2 {
			t.Errorf("two looks: %q", out)
		}
	})
}

func TestWatchGivesTheTerminalBackAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*budget, context.CancelFunc){
			"interrupted": func(_ *budget, cancel context.CancelFunc) { time.AfterFunc(2500*time.Millisecond, cancel) },
			"the table is gone": func(b *budget, cancel context.CancelFunc) {
				b.err, b.fails = errors.New("gone\x1b[2J"), 3
				time.AfterFunc(3500*time.Millisecond, cancel)
			},
		} {
			b := busy()
			ctx, cancel := context.WithCancel(t.Context())
			end(b, cancel)
			out := printed(t, func(w *bytes.Buffer) error { return gateOf(b).Watch(ctx, w, a(80, 24, true), time.Second, 0) })
			if !strings.HasPrefix(out, enter) || !strings.HasSuffix(out, leave) || strings.Count(out, enter) != 1 || strings.Count(out, leave) != 1 {
				t.Errorf("%s: %q", name, out)
			}
			if n := strings.Count(out, home); n < 3 {
				t.Errorf("%s: drawn %d times", name, n)
			}
			if lost := strings.Contains(out, "cannot be read, trying again: gone?[2J"); lost != (name != "interrupted") {
				t.Errorf("%s: %q", name, out)
			}
			cancel()
		}
	})
}

func TestWatchOfATableThatCannotBeReadIsAnErrorAndLeavesTheTerminalAlone(t *testing.T) {
	b := newBudget()
	b.err = errors.New("no such table")
	var out bytes.Buffer
	if err := gateOf(b).Watch(t.Context(), &out, a(80, 24, true), time.Second, 0); err == nil || out.Len() != 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
