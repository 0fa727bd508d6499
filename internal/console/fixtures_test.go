package console

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/tenant"
	keys "vingate/internal/tenant/dynamo"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden holds what was printed against a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// ring is a table of keys in memory.
type ring struct {
	keys  []tenant.Key
	usage map[string]map[tenant.Day]int
	err   error
}

func (r *ring) Usage(context.Context) (map[string]map[tenant.Day]int, error) { return r.usage, r.err }

func (r *ring) Create(_ context.Context, k tenant.Key) error {
	if r.err != nil {
		return r.err
	}
	r.keys = append(r.keys, k)
	return nil
}

func (r *ring) List(context.Context) ([]tenant.Key, error) { return slices.Clone(r.keys), r.err }

func (r *ring) Revoke(_ context.Context, h tenant.Hash, at time.Time) error {
	for i := range r.keys {
		if r.keys[i].Hash == h {
			r.keys[i].Revoked = at
			return nil
		}
	}
	return keys.ErrKeyGone
}

func (r *ring) Rotate(ctx context.Context, old tenant.Hash, end time.Time, k tenant.Key) error {
	if err := r.Revoke(ctx, old, end); err != nil {
		return err
	}
	return r.Create(ctx, k)
}

// budget is a gate in memory: the core itself.
type budget struct {
	state   gate.State
	none    bool
	ahead   time.Duration
	now     time.Time
	err     error
	reads   int
	fails   int               // from this read on, with err; 0: all with err
	between func(*gate.State) // happens between look and write
}

func newBudget() *budget {
	k := gate.Knobs{MaxInFlight: 4, RatePerSecond: 2, Burst: 10, MaxQueued: 24, BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt}
	return &budget{state: gate.NewState(k, gate.MicrosOf(noon), false), now: noon}
}

func (b *budget) Inspect(context.Context) (dynamo.Inspection, error) {
	i := dynamo.Inspection{State: b.state.Clone(), At: b.now, Ahead: b.ahead}
	if b.reads++; b.reads < b.fails {
		return i, nil
	}
	return i, b.err
}

func (b *budget) ClockAhead(context.Context) (time.Duration, error) { return b.ahead, b.err }

func (b *budget) write(w gate.Write) (dynamo.Change, error) {
	c := dynamo.Change{Before: b.state}
	b.state = w.Apply(b.state)
	c.After = b.state
	return c, nil
}

func (b *budget) Tune(_ context.Context, version int, k gate.Knobs) (dynamo.Change, error) {
	if b.between != nil {
		b.between(&b.state)
	}
	if b.state.Version != version {
		return dynamo.Change{}, &dynamo.Error{Op: "set", Kind: dynamo.KindContended, Err: dynamo.ErrChanged}
	}
	return b.write(b.state.PlanTune(gate.MicrosOf(b.now), k))
}

func (b *budget) Pause(_ context.Context, d time.Duration) (dynamo.Change, error) {
	return b.write(b.state.PlanPause(gate.MicrosOf(b.now), d))
}

func (b *budget) Lift(_ context.Context, force bool) (dynamo.Change, error) {
	w, ok := b.state.PlanLift(gate.MicrosOf(b.now), force)
	if !ok {
		return dynamo.Change{}, &dynamo.Error{Op: "clear", Kind: dynamo.KindContended, Err: dynamo.ErrNothingToDo}
	}
	return b.write(w)
}

func (b *budget) Init(_ context.Context, k gate.Knobs, start dynamo.Start) error {
	if !b.none {
		return &dynamo.Error{Op: "init", Kind: dynamo.KindContended, Err: dynamo.ErrExists}
	}
	b.state, b.none = gate.NewState(k, gate.MicrosOf(b.now), start == dynamo.EmptyAndHeld), false
	return nil
}

// busy fills a gate: leases of which one is dead, a line, a limit that NHTSA has cut.
func busy() *budget {
	b := newBudget()
	now := gate.MicrosOf(noon).Millis()
	s := &b.state
	s.Version, s.Limit, s.TAT, s.Latency = 3, 2, gate.MicrosOf(noon)+900_000, 412
	s.Episodes, s.Turned = 1, now-14_000
	put := func(id, who string, route gate.Route) {
		p := gate.Key{Route: route, Tenant: who}.Place()
		s.Places[p] = append(s.Places[p], id)
		slices.Sort(s.Places[p])
	}
	lease := func(id, flow, who string, route gate.Route, age gate.Millis) {
		id = string(gate.FlowOf(flow)) + id
		s.Leases[id] = now - age + 15_000
		put(id, who, route)
		if route == gate.Batch {
			s.Batch = append(s.Batch, id)
		}
	}
	ticket := func(id, flow, who string, waited, patience gate.Millis, weight int) {
		f := gate.FlowOf(flow)
		id = string(f) + id
		s.Tickets[id] = gate.Ticket{Arrival: now - waited, Deadline: now - waited + patience, Cost: 1, Weight: weight}
		put(id, who, gate.Interactive)
		turn := s.Flows[f]
		turn.Count++
		s.Flows[f] = turn
	}
	lease("l1", "dealer", "dealer", gate.Interactive, 400)
	lease("l2", "dealer", "dealer", gate.Batch, 2300)
	lease("l3", "visitor", gate.Anonymous, gate.Interactive, 15_600)
	ticket("t1", "dealer", "dealer", 1200, 3000, 2)
	ticket("t2", "dealer", "dealer", 900, 3000, 2)
	ticket("t3", "other visitor", gate.Anonymous, 300, 3000, 1)
	ticket("t4", "gone", gate.Anonymous, 9000, 3000, 1)
	return b
}

func gateOf(b *budget) *Gate { return &Gate{Budget: b, Name: "nhtsa", Table: "vingate-coordination"} }

// printed runs a command and returns what it printed.
func printed(t *testing.T, do func(*bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := do(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
