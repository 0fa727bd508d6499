package decode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"vingate/internal/config"
	"vingate/internal/gate"
	"vingate/internal/logtest"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

const accord = "1HGCM82633A004352"

var (
	somebody = tenant.Caller{ID: "anonymous001", Anonymous: true}
	alice    = tenant.Caller{ID: "alice0000001"}
	bob      = tenant.Caller{ID: "bob000000001"}
)

// envelope is a small answer in NHTSA's shape.
func envelope(vin, code string) []byte {
	return fmt.Appendf(nil, `{"Count":1,"Message":"Results returned successfully","SearchCriteria":"VIN(s): %[1]s","Results":[{"ErrorCode":"%[2]s","ErrorText":"%[2]s - text","Make":"HONDA","Manufacturer":"AMERICAN HONDA MOTOR CO., INC.","Model":"Accord","ModelYear":"2003","VIN":"%[1]s"}]}`, vin, code)
}

// world is everything around a service, with time that does not pass outside of the bubble.
type world struct {
	t *testing.T

	mu       sync.Mutex
	journal  []string // what happened, in order
	outcomes []gate.Outcome
	held     int // leases out
	stored   map[string]results.Stored
	rows     map[string]results.Row // flights, verdicts, ...
	ids      int                    // of leaders
	hushed   map[string]results.Standing
	logged   logtest.Buffer

	// What the parts do. The defaults are those of a good day.
	acquire func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error)
	release func(context.Context) error
	call    func(context.Context, vpic.Query) (vpic.Answer, error)
	batch   func(context.Context, []vpic.Query) (vpic.BatchAnswer, error)
	lost    map[string]bool // VINs for which NHTSA sends no row of a batch
	get     func() error
	watch   func() error // the looks of those who follow
	elect   func() error
	put     func() error
	quit    func() error
	foresee func(gate.Request) (*gate.Refusal, error)
	view    gate.View
	viewErr error
	look    func(tenant.Caller) (*tenant.Refusal, error)
	charge  func(context.Context) error
	charges []string // what tenants were charged for, in any order: beside the calls
}

func newWorld(t *testing.T) (*world, *Service) {
	w := &world{t: t, stored: map[string]results.Stored{}, rows: map[string]results.Row{}}
	w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) { return w.lease(), nil, nil }
	w.release = func(context.Context) error { return nil }
	w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
		return w.answer(ctx, q, 400*time.Millisecond)
	}
	w.batch = func(ctx context.Context, qs []vpic.Query) (vpic.BatchAnswer, error) {
		return w.answers(ctx, qs, 900*time.Millisecond)
	}
	w.look = func(tenant.Caller) (*tenant.Refusal, error) { return nil, nil }
	w.charge = func(context.Context) error { return nil }
	fine := func() error { return nil }
	w.get, w.watch, w.elect, w.put, w.quit = fine, fine, fine, fine, fine
	w.foresee = func(gate.Request) (*gate.Refusal, error) { return nil, nil }
	return w, New(Config{
		Gate: (*fakeGate)(w), Tenants: (*fakeTenants)(w), Upstream: (*fakeUpstream)(w), Results: (*fakeResults)(w),
		MaxWaitBatch: 15 * time.Second, BatchTokenCost: 2, UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second, AfterCall: config.AfterCall, SkewBound: skewBound, Trace: traced,
		Log: slog.New(slog.NewJSONHandler(&w.logged, nil)),
	})
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, fmt.Sprintf(format, args...))
}

// count says how often something happened.
func (w *world) count(what string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.journal {
		if strings.HasPrefix(line, what) {
			n++
		}
	}
	return n
}

func (w *world) happened() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.journal, ", ")
}

// lease is what the gate grants now, with the times of the default knobs.
func (w *world) lease() *gate.Lease {
	now := time.Now().Round(0)
	return &gate.Lease{ID: "lease", Granted: now, StartBy: now.Add(250 * time.Millisecond), CallBy: now.Add(13500 * time.Millisecond), End: now.Add(15 * time.Second)}
}

// answer is NHTSA's after a while, or the error of the real client when the time is over.
func (w *world) answer(ctx context.Context, q vpic.Query, after time.Duration) (vpic.Answer, error) {
	began := time.Now()
	select {
	case <-ctx.Done():
		return vpic.Answer{}, &vpic.Error{Kind: vpic.Timeout, Started: true, Reason: "no answer in time", Took: time.Since(began)}
	case <-time.After(after):
	}
	a, err := vpic.Read(envelope(q.VIN, "0"), q)
	if err != nil {
		w.t.Error(err)
	}
	a.FetchedAt, a.Took = time.Now(), after
	return a, nil
}

type fakeGate world

func (g *fakeGate) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	w := (*world)(g)
	w.note("acquire %s:%s cost %d", r.Key.Route, r.Key.Tenant, r.Cost)
	lease, refusal, err := w.acquire(ctx, r)
	if lease != nil {
		w.mu.Lock()
		w.held++
		w.mu.Unlock()
	}
	return lease, refusal, err
}

// releaseBound is the real store's: TestWhatFollowsACallFitsIntoItsTime holds it against the time kept free.
const releaseBound = time.Second

func (g *fakeGate) Release(ctx context.Context, l *gate.Lease, o gate.Outcome) error {
	w := (*world)(g)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer cancel()
	w.note("release %s", o.Kind)
	w.mu.Lock()
	w.held--
	w.outcomes = append(w.outcomes, o)
	w.mu.Unlock()
	return w.release(ctx)
}

func (g *fakeGate) Foresee(_ context.Context, r *gate.Request) (*gate.Refusal, error) {
	w := (*world)(g)
	w.note("foresee")
	return w.foresee(*r)
}

func (g *fakeGate) View(context.Context) (gate.View, error) {
	(*world)(g).note("view")
	return g.view, g.viewErr
}

type fakeTenants world

func (f *fakeTenants) Look(_ context.Context, c tenant.Caller, cost int) (*tenant.Refusal, error) {
	w := (*world)(f)
	w.note("look %s cost %d", c.ID, cost)
	return w.look(c)
}

func (f *fakeTenants) Charge(ctx context.Context, c tenant.Caller, id string, cost int) error {
	w := (*world)(f)
	w.mu.Lock()
	w.charges = append(w.charges, fmt.Sprintf("%s for %s cost %d", c.ID, id, cost))
	w.mu.Unlock()
	return w.charge(ctx)
}

type fakeUpstream world

func (u *fakeUpstream) Decode(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
	w := (*world)(u)
	w.note("call %s %d", q.VIN, q.ModelYear)
	return w.call(ctx, q)
}

func (u *fakeUpstream) DecodeBatch(ctx context.Context, qs []vpic.Query) (vpic.BatchAnswer, error) {
	w := (*world)(u)
	var asked []string
	for _, q := range qs {
		asked = append(asked, fmt.Sprintf("%s %d", q.VIN, q.ModelYear))
	}
	w.note("batch %s", strings.Join(asked, "; "))
	return w.batch(ctx, qs)
}

// answers is NHTSA's to a batch, after a while.
func (w *world) answers(ctx context.Context, qs []vpic.Query, after time.Duration) (vpic.BatchAnswer, error) {
	took := after
	var rows []string
	for _, q := range qs {
		a, err := w.answer(ctx, q, after)
		if err != nil {
			return vpic.BatchAnswer{}, err
		}
		after = 0
		if !w.lost[q.VIN] {
			var e struct{ Results []json.RawMessage }
			if err := json.Unmarshal(a.Body(), &e); err != nil {
				w.t.Error(err)
			}
			rows = append(rows, string(e.Results[0]))
		}
	}
	all, err := vpic.ReadBatch([]byte(`{"Message":"Results returned successfully","Results":[`+strings.Join(rows, ",")+`]}`), qs)
	all.FetchedAt, all.Took = time.Now(), took
	return all, err
}

// fakeResults is a results table in memory, by the rules of the real one. It remembers nothing unless hushed is made.
type fakeResults world

// stepKey is the key of the step's name in its context.
type stepKey struct{}

func traced(ctx context.Context, name string, step func(context.Context) error) error {
	return step(context.WithValue(ctx, stepKey{}, name))
}

const skewBound = 250 * time.Millisecond

// found is what is there about a question. The world is locked.
func (r *fakeResults) found(q vpic.Query) results.Found {
	now := time.Now()
	f := results.Found{Row: r.rows[results.Key(q)]}
	var span results.Span
	if s, ok := r.stored[results.Key(q)]; ok && s.Age(now) < s.Life {
		s.Took = 0
		f.Answer, f.Fetched = s, results.MillisOf(s.FetchedAt)
		span = results.Span{Fresh: results.MillisOf(s.FetchedAt.Add(s.FreshFor)), End: results.MillisOf(s.FetchedAt.Add(s.Life))}
	}
	f.Standing = f.Stands(results.MillisOf(now), span)
	return f
}

func (r *fakeResults) Remembered(q vpic.Query) (results.Found, bool) {
	w := (*world)(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := r.found(q)
	if f.Until = 0; f.Kind == results.Stale && w.hushed[results.Key(q)].Until > results.MillisOf(time.Now()) {
		f.Standing = w.hushed[results.Key(q)]
	}
	return f, w.hushed != nil && f.Has()
}

func (r *fakeResults) Look(ctx context.Context, q vpic.Query) (results.Found, error) {
	w := (*world)(r)
	what, step := "get", w.get
	if ctx.Value(stepKey{}) == "watch" {
		what, step = "watch", w.watch
	}
	w.note("%s", what)
	var corrupt *results.CorruptError
	if err := step(); errors.As(err, &corrupt) {
		return results.Found{Damage: err}, nil
	} else if err != nil {
		return results.Found{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.found(q), nil
}

func (r *fakeResults) Elect(_ context.Context, q vpic.Query, f results.Found, until time.Time) (*results.Led, results.Found, error) {
	w := (*world)(r)
	w.note("elect")
	w.mu.Lock()
	w.ids++
	led := &results.Led{ID: fmt.Sprint("leader", w.ids), Query: q, Until: until, Slow: f.Slow}
	w.mu.Unlock()
	err := w.elect()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return led, results.Found{}, err
	}
	met := r.found(q)
	kept := results.Span{}
	if f.Has() {
		kept.End = 1
	}
	x := f.PlanElect(led.ID, results.MillisOf(until.Add(2*skewBound))+1, kept)
	if !x.Holds(met.Row) {
		return nil, met, nil
	}
	w.rows[results.Key(q)] = x.Apply(met.Row)
	return led, met, nil
}

func (r *fakeResults) Land(_ context.Context, led *results.Led, a vpic.Answer) (bool, error) {
	w := (*world)(r)
	w.note("put")
	if err := w.put(); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := results.Land{Fetched: results.MillisOf(a.FetchedAt), Expires: 1}
	if led != nil {
		x.Leader = led.ID
	}
	met := r.found(a.Query()).Row
	x, ok := x.PlanLand(met)
	if ok {
		w.rows[results.Key(a.Query())] = x.Apply(met)
		w.stored[results.Key(a.Query())] = r.Live(a)
	}
	return ok, nil
}

func (r *fakeResults) Quit(_ context.Context, led *results.Led, f results.Failure) error {
	w := (*world)(r)
	w.note("%s", strings.TrimSpace("quit "+f.Reason+" "+f.Rest))
	if err := w.quit(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := results.MillisOf(time.Now())
	x := results.Quit{Leader: led.ID}
	if f.Reason != "" {
		x.Verdict = results.Verdict{Leader: led.ID, Reason: f.Reason, RetryAt: results.MillisOf(time.Now().Add(f.RetryAfter))}
	}
	if f.TimedOut {
		x.Slow = results.Slow{Calls: led.Slow.Calls + 1, Last: now}
	}
	if f.Rest != "" {
		x.Rest = results.Rest{Until: results.MillisOf(time.Now().Add(results.RestTime)), Reason: f.Rest}
		w.rest(led.Query, x.Rest)
	}
	if row := w.rows[results.Key(led.Query)]; x.Holds(row) {
		w.rows[results.Key(led.Query)] = x.Apply(row)
	}
	return nil
}

func (r *fakeResults) Defer(_ context.Context, q vpic.Query, f results.Found, reason string) error {
	w := (*world)(r)
	w.note("defer %s", reason)
	w.mu.Lock()
	defer w.mu.Unlock()
	x := results.Defer{Seen: f.Seen(), Rest: results.Rest{Until: results.MillisOf(time.Now().Add(results.RestTime)), Reason: reason}}
	w.rest(q, x.Rest)
	if met := r.found(q).Row; x.Holds(met) {
		w.rows[results.Key(q)] = x.Apply(met)
	}
	return nil
}

// rest is remembered. The world is locked.
func (w *world) rest(q vpic.Query, r results.Rest) {
	if w.hushed != nil {
		w.hushed[results.Key(q)] = results.Standing{Kind: results.Stale, Until: r.Until, Reason: r.Reason}
	}
}

func (r *fakeResults) Hush(q vpic.Query, until time.Time, reason string) {
	w := (*world)(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest(q, results.Rest{Until: results.MillisOf(until), Reason: reason})
}

// keep stores an answer of that age.
func (w *world) keep(q vpic.Query, age time.Duration) {
	a, err := vpic.Read(envelope(q.VIN, "0"), q)
	if err != nil {
		w.t.Fatal(err)
	}
	a.FetchedAt = time.Now().Add(-age)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored[results.Key(q)] = (*fakeResults)(w).Live(a)
}

func (r *fakeResults) Live(a vpic.Answer) results.Stored {
	return results.Stored{Answer: a, FreshFor: 168 * time.Hour, Life: 720 * time.Hour}
}

// refused is err as the refusal it must be.
func refused(t *testing.T, err error) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("Decode: %v (%T), want a *Refusal", err, err)
	}
	return r
}
