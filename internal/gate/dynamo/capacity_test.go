package dynamo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	request "vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/load"
	"vingate/internal/meter"
	"vingate/internal/results"
	"vingate/internal/tables"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
	"vingate/internal/vpic"
)

// instance is the n-th instance's way to the gate in a table, through the client that its calls are metered by.
type instance func(n int, client meter.API, in string) load.Gate

// gateOnly is the store alone.
func gateOnly(n int, client meter.API, in string) load.Gate { return way{opened(n, client, in)} }

func opened(n int, client meter.API, in string) *Store {
	ids := 0 // an instance asks for one at a time
	var mu sync.Mutex
	return New(Config{Client: client, Table: in, Name: "nhtsa", Now: time.Now, NewID: func() string {
		mu.Lock()
		defer mu.Unlock()
		ids++
		return fmt.Sprintf("%02d%04d", n, ids)
	}})
}

type way struct{ *Store }

func (w way) Acquire(ctx context.Context, c load.Call) (func(context.Context, time.Duration) error, error) {
	l, _, err := w.Store.Acquire(ctx, gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: c.Tenant}, Patience: c.Patience})
	if l == nil {
		return nil, err
	}
	return func(ctx context.Context, took time.Duration) error {
		return w.Release(ctx, l, gate.Outcome{Kind: gate.Succeeded, Took: took})
	}, nil
}

// wholeWay is the way of a request through package decode, as it is shipped but for two parts: nothing is stored, and NHTSA answers when the
// load says so.
func wholeWay(plan tenant.Plan, patience time.Duration) instance {
	return func(n int, client meter.API, in string) load.Gate {
		return front{request.New(request.Config{
			Gate:     opened(n, client, in),
			Tenants:  tenants.New(tenants.Config{Client: client, Table: in, Now: time.Now, SkewBound: testKnobs().SkewBound}),
			Upstream: nhtsa{}, Results: results.New(results.Config{Client: client, Table: in + "-results", SkewBound: testKnobs().SkewBound, NewID: ids(n),
				Lives: results.Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour}}),
			MaxWait: patience, UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second, AfterCall: 2 * time.Second,
		}), plan}
	}
}

// ids are an instance's, the same on every run.
func ids(n int) func() string {
	var made atomic.Int64
	return func() string { return fmt.Sprintf("%d-%d", n, made.Add(1)) }
}

type front struct {
	*request.Service
	plan tenant.Plan
}

// called is one call's end of the wire to nhtsa.
type called struct {
	began chan struct{}
	takes chan time.Duration
}

type calledKey struct{}

// Acquire returns when NHTSA is called, or when the request is refused. The release lets NHTSA answer, and returns when the request is over.
func (w front) Acquire(ctx context.Context, c load.Call) (func(context.Context, time.Duration) error, error) {
	call, over := called{make(chan struct{}), make(chan time.Duration)}, make(chan error, 1)
	go func() {
		_, err := w.Decode(context.WithValue(ctx, calledKey{}, call), request.Request{VIN: fmt.Sprintf("1HGCM82633A%06d", c.Number),
			Caller: tenant.Caller{ID: fmt.Sprintf("%012s", c.Tenant), Plan: w.plan}})
		over <- err
	}()
	select {
	case err := <-over:
		var refusal *request.Refusal
		if errors.As(err, &refusal) && refusal.Code.Status() == http.StatusTooManyRequests {
			return nil, nil
		}
		return nil, fmt.Errorf("neither a call nor a 429: %w", err)
	case <-call.began:
	}
	return func(_ context.Context, took time.Duration) error {
		call.takes <- took
		return <-over
	}, nil
}

// nhtsa answers when it is told to.
type nhtsa struct{ request.Upstream }

func (nhtsa) Decode(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
	call := ctx.Value(calledKey{}).(called)
	close(call.began)
	took := <-call.takes
	a, err := vpic.Read(fmt.Appendf(nil, `{"Count":1,"Message":"","Results":[{"ErrorCode":"0","ErrorText":"0 - VIN decoded clean","Make":"HONDA","VIN":"%s"}]}`, q.VIN), q)
	a.FetchedAt, a.Took = time.Now(), took
	return a, err
}

// ownTables are for one test: what tenants have used is in the table, under names that other tests may use too.
func ownTables(t *testing.T) tables.Names {
	t.Helper()
	own := fmt.Sprint("capacity", gates.Add(1))
	names := tables.Names{Coordination: own, Results: own + "-results"}
	if _, err := tables.Create(t.Context(), realClient, names); err != nil {
		t.Fatal(err)
	}
	return names
}

// inVirtualTime runs the calls on a gate of its own, with 1.5 to 4 ms on every way to the store and back. Every write and every
// read is one that the real store answered and billed.
func inVirtualTime(t *testing.T, k gate.Knobs, open instance, shape load.Shape) (r load.Report) {
	t.Helper()
	if raceDetector || testing.Short() {
		t.Skip("load in virtual time is offered without the race detector, and not with -short: make capacity")
	}
	desk := meter.NewOutside(realClient)
	defer desk.Close()
	in := ownTables(t).Coordination
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon.Time())) // the bubble's clock begins before the gate's epoch
		m := &meter.Meter{Next: desk, Wire: meter.Wire{Least: 1500 * time.Microsecond, Most: 4 * time.Millisecond, Seed: shape.Seed}}
		if err := opened(0, m, in).Init(context.Background(), k, FullBucket); err != nil {
			t.Fatal(err)
		}
		instances := make([]load.Gate, shape.Instances)
		for i := range instances {
			instances[i] = open(i, m, in)
		}
		r = load.Run(context.Background(), instances, shape.Draw())
	})
	for _, d := range r.Calls {
		if d.Err != nil {
			t.Fatalf("seed %d: the call at %v: %v", shape.Seed, d.At, d.Err)
		}
	}
	if over := r.Over(k.Burst, k.RatePerSecond, k.MaxInFlight); over > 0 {
		t.Errorf("seed %d: %d calls over the budget", shape.Seed, over)
	}
	return r
}

// cost is what the calls of one kind cost each.
type cost struct {
	n                     int
	writes, units, failed float64
	reads                 float64 // eventually consistent ones
	ahead                 float64 // grants to others while it stood in the line
}

func costOf(r load.Report, which func(load.Done) bool, kinds ...string) cost {
	b, c := r.Bill(which, kinds...), cost{n: r.Count(which)}
	per := func(x float64) float64 { return x / float64(max(1, c.n)) }
	c.writes, c.units, c.failed, c.reads = per(float64(b.Writes)), per(b.WriteUnits), per(float64(b.Failed)), per(b.ReadUnits)
	for _, d := range r.Calls {
		if which(d) {
			c.ahead += per(float64(d.Ahead))
		}
	}
	return c
}

func (c cost) String() string {
	return fmt.Sprintf("%d calls of %.3f writes (%.3f failed), %.3f write units, %.2f reads, %.1f ahead", c.n, c.writes, c.failed, c.units, c.reads, c.ahead)
}

// bucket20 is the gate of these tests: 20/s, 10 slots.
func bucket20(change func(*gate.Knobs)) gate.Knobs {
	k := testKnobs()
	k.MaxInFlight = 10
	if change != nil {
		change(&k)
	}
	return k
}

// callsOf draws calls of 100 to 300 ms with that patience.
func callsOf(patience time.Duration) func(*rand.Rand, *load.Call) {
	return func(r *rand.Rand, c *load.Call) {
		c.Patience, c.Upstream = patience, time.Duration(100+r.IntN(201))*time.Millisecond
	}
}

func use(r load.Report, k gate.Knobs, span time.Duration) float64 {
	b := k.Bucket()
	return r.Use(b.Tokens(-b.H-1, 0), k.RatePerSecond, span)
}

// P12: admission and release of a call that need not wait.
func TestCapacityWithoutALine(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		t.Run(fmt.Sprint("poisson ", poisson), func(t *testing.T) {
			t.Parallel()
			shape := load.Shape{PerSecond: 18, For: 10 * time.Second, Poisson: poisson, Instances: 10, Tenants: 1000, Seed: 1, Call: callsOf(0)}
			r := inVirtualTime(t, bucket20(nil), gateOnly, shape)
			c := costOf(r, load.Admitted)
			t.Logf("seed %d: %v", shape.Seed, c)
			if c.n != len(r.Calls) || c.n < 100 {
				t.Errorf("%d of %d admitted", c.n, len(r.Calls))
			}
			if c.units > 2.1 {
				t.Errorf("%.3f write units, 2.1 are allowed", c.units)
			}
			if c.reads > 1.2 {
				t.Errorf("%.2f reads, 1.2 are allowed", c.reads)
			}
		})
	}
}

// P12: admission and release of a call that waits in the line.
func TestCapacityInTheLine(t *testing.T) {
	tokens := func(k *gate.Knobs) { k.MaxQueued = 64 }
	slots3 := func(k *gate.Knobs) { k.MaxInFlight, k.MaxQueued = 3, 64 }
	slots4 := func(k *gate.Knobs) { k.MaxInFlight = 4 }
	long := func(r *rand.Rand, c *load.Call) {
		c.Patience, c.Upstream = 3*time.Second, time.Duration(300+r.IntN(701))*time.Millisecond
	}
	for name, c := range map[string]struct {
		knobs  func(*gate.Knobs)
		shape  load.Shape
		seeds  uint64
		writes float64
	}{
		"token-bound, seventy at once":            {tokens, load.Shape{Tenants: 70}, 5, 3.3},
		"token-bound, seventy within 200 ms":      {tokens, load.Shape{PerSecond: 350, For: 200 * time.Millisecond, Tenants: 1000}, 1, 3.3},
		"token-bound, half as much again":         {tokens, load.Shape{PerSecond: 30, For: 4 * time.Second, Tenants: 1000}, 1, 3.3},
		"slot-bound, sixty at once":               {slots3, load.Shape{Tenants: 60}, 1, 3.6},
		"slot-bound, a third more than it serves": {slots3, load.Shape{PerSecond: 20, For: 4 * time.Second, Tenants: 1000}, 1, 3.6},
		"slot-bound, long calls and a short line": {slots4, load.Shape{PerSecond: 6, Poisson: true, For: 20 * time.Second, Tenants: 1000, Call: long}, 4, 3.6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.shape.Instances = 10
			if c.shape.Call == nil {
				c.shape.Call = callsOf(20 * time.Second)
			}
			var all load.Report // one seed is luck: means are of many calls
			for c.shape.Seed = 1; c.shape.Seed <= c.seeds; c.shape.Seed++ {
				r := inVirtualTime(t, bucket20(c.knobs), gateOnly, c.shape)
				t.Logf("seed %d: %v; slowest %v", c.shape.Seed, costOf(r, load.Waited), load.Quantile(r.Waits(load.Waited), 1).Round(time.Millisecond))
				all.Calls = append(all.Calls, r.Calls...)
			}
			got := costOf(all, load.Waited)
			if got.n < 50 {
				t.Fatalf("%d waited: this shows nothing", got.n)
			}
			if got.writes > c.writes {
				t.Errorf("%.3f writes, %.1f are allowed", got.writes, c.writes)
			}
			if most := 2 + 0.5*got.ahead; got.reads > most {
				t.Errorf("%.2f reads with %.1f grants ahead, %.2f are allowed", got.reads, got.ahead, most)
			}
		})
	}
}

// The figures are no draw: who asks, when, how long its ways take and what it leaves to chance all come from the seed.
func TestCapacityIsTheSameOnEveryRun(t *testing.T) {
	t.Parallel()
	shape := load.Shape{Tenants: 40, Instances: 5, Seed: 1, Call: callsOf(20 * time.Second)}
	figures := func() (all []string) {
		r := inVirtualTime(t, bucket20(func(k *gate.Knobs) { k.MaxQueued = 64 }), gateOnly, shape)
		for _, d := range r.Calls {
			all = append(all, fmt.Sprintf("%d: %v, %+v", d.Number, d.Answered.Sub(r.Start), d.Account.Bill()))
		}
		return all
	}
	first, again := figures(), figures()
	for i := range first {
		if first[i] != again[i] {
			t.Fatalf("seed %d: once call %s, then %s", shape.Seed, first[i], again[i])
		}
	}
}

// A crowd that waits is served as fast as tokens and slots come, also before anybody knows how long calls take.
func TestCapacityOfSlotsIsUsedByACrowd(t *testing.T) {
	t.Parallel()
	k := bucket20(func(k *gate.Knobs) { k.MaxInFlight, k.MaxQueued = 3, 64 })
	shape := load.Shape{Tenants: 50, Instances: 10, Seed: 1, Call: func(_ *rand.Rand, c *load.Call) {
		c.Patience, c.Upstream = 20*time.Second, 200*time.Millisecond
	}}
	r := inVirtualTime(t, k, gateOnly, shape)
	slowest := load.Quantile(r.Waits(load.Admitted), 1)
	t.Logf("seed %d: the last of fifty after %v", shape.Seed, slowest.Round(time.Millisecond))
	if n := r.Count(load.Admitted); n != 50 || slowest > 5*time.Second { // 47/3 x 200 ms, and a second to learn that calls are short
		t.Errorf("%d of 50 served, the last after %v", n, slowest)
	}
}

// P12: refusals in a flood of fifteen times the budget, which meanwhile is used to the full. The flood goes the whole way of a request, and all it
// writes is counted: the gate, the tenants' items and the promise to those who are sent away.
func TestCapacityInAFlood(t *testing.T) {
	for _, c := range []struct {
		instances int
		patience  time.Duration
		span      time.Duration // without a line long enough that the tokens an instance may leave to others do not count
		units     float64
	}{{10, 0, 10 * time.Second, 0.1}, {10, 3 * time.Second, 8 * time.Second, 0.1}, {50, 0, 14 * time.Second, 0.2}, {50, 3 * time.Second, 5 * time.Second, 0.2}} {
		t.Run(fmt.Sprintf("%d instances, patience %v", c.instances, c.patience), func(t *testing.T) {
			t.Parallel()
			k := bucket20(nil)
			shape := load.Shape{PerSecond: 15 * k.RatePerSecond, For: c.span, Instances: c.instances, Tenants: 1000, Seed: 1, Call: callsOf(c.patience)}
			r := inVirtualTime(t, k, wholeWay(tenant.Plan{RatePerSecond: 1, Burst: 20, Weight: 1}, c.patience), shape)
			got, used := costOf(r, load.Refused, "gate", "tenant", "promise"), use(r, k, shape.For)
			t.Logf("seed %d: budget use %.3f; refused %v; admitted %v", shape.Seed, used, got, costOf(r, load.Admitted))
			// Every VIN is another one, so every caller that is let to the gate has been elected before. Who is sent away then has written twice.
			if vin := costOf(r, load.Refused, "vin"); vin.units > 0.1 || vin.reads > 1.01 {
				t.Errorf("%.3f write units and %.2f reads of the answers' table for a refusal, 0.1 and one are allowed", vin.units, vin.reads)
			}
			if vin := costOf(r, load.Admitted, "vin"); vin.writes != 2 || vin.reads > 1.01 {
				t.Errorf("%.3f writes and %.2f reads of the answers' table for a decode, two and one are allowed", vin.writes, vin.reads)
			}
			for _, kind := range []string{"gate", "tenant", "promise", "vin"} {
				t.Logf("  refused, %s: %v", kind, costOf(r, load.Refused, kind))
			}
			if got.units > c.units {
				t.Errorf("%.3f write units for a refusal, %.1f are allowed", got.units, c.units)
			}
			if used < 0.98 {
				t.Errorf("%.3f of the budget was used, 0.98 are asked for", used)
			}
			if costOf(r, load.Refused, "promise").units == 0 || costOf(r, load.Refused, "tenant").reads == 0 || costOf(r, load.Admitted, "tenant").writes < 1 {
				t.Error("the flood did not go the whole way: this shows little")
			}
		})
	}
}

// P12: one caller's flood is stopped at its own bucket, mostly from memory.
func TestCapacityOfOneTenantsFlood(t *testing.T) {
	t.Parallel()
	plan := tenant.Plan{RatePerSecond: 1, Burst: 20, Weight: 1}
	shape := load.Shape{PerSecond: 300, For: 3 * time.Second, Instances: 10, Tenants: 1, Seed: 1, Call: callsOf(3 * time.Second)}
	r := inVirtualTime(t, bucket20(nil), wholeWay(plan, 3*time.Second), shape)
	got := costOf(r, load.Refused, "gate", "tenant", "promise")
	t.Logf("seed %d: refused %v; admitted %v", shape.Seed, got, costOf(r, load.Admitted))
	if vin := costOf(r, load.Refused, "vin"); vin.units > 0.1 || vin.reads > 1.01 {
		t.Errorf("%.3f write units and %.2f reads of the answers' table for a refusal, 0.1 and one are allowed", vin.units, vin.reads)
	}
	if got.units > 0.1 || got.reads > 0.5 {
		t.Errorf("%.3f write units and %.2f reads for a refusal, 0.1 and 0.5 are allowed", got.units, got.reads)
	}
	// Within a second of the view that let them through, its places bound how far it comes into debt.
	if n := r.Count(load.Admitted); n < plan.Burst || n > plan.Burst+3+10*bucket20(nil).BulkheadInteractive {
		t.Errorf("%d calls of a burst of %d", n, plan.Burst)
	}
}

// P12: a stored answer costs the shared budget nothing, not even a look.
func TestCapacityOfAStoredAnswerIsNone(t *testing.T) {
	own := ownTables(t)
	m := &meter.Meter{Next: realClient}
	k := bucket20(nil)
	if err := opened(0, m, own.Coordination).Init(t.Context(), k, FullBucket); err != nil {
		t.Fatal(err)
	}
	// Each is asked of an instance that has nothing in its memory.
	ask := func(n int) (request.Source, *meter.Account) {
		t.Helper()
		service := request.New(request.Config{
			Gate:     opened(n, m, own.Coordination),
			Tenants:  tenants.New(tenants.Config{Client: m, Table: own.Coordination, Now: time.Now, SkewBound: k.SkewBound}),
			Upstream: nhtsa{},
			Results: results.New(results.Config{Client: m, Table: own.Results,
				Lives: results.Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour}}),
			UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second, AfterCall: 2 * time.Second,
		})
		call := called{make(chan struct{}), make(chan time.Duration, 1)}
		call.takes <- time.Millisecond
		account := &meter.Account{}
		got, err := service.Decode(context.WithValue(meter.Charge(t.Context(), account), calledKey{}, call), request.Request{VIN: "1HGCM82633A004352",
			Caller: tenant.Caller{ID: fmt.Sprintf("caller%06d", n%2), Plan: tenant.Plan{RatePerSecond: 1, Burst: 3, Weight: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		return got.Source, account
	}
	if from, paid := ask(0); from != request.FromNHTSA || paid.Bill("gate").Writes != 2 || paid.Bill("tenant").Writes != 1 {
		t.Fatalf("the first answer is from %s and cost %+v", from, paid.Bill())
	}
	for n := range 10 {
		from, paid := ask(1 + n)
		if all, stored := paid.Bill(), paid.Bill("vin"); from != request.FromCache || all != stored || all.Writes != 0 || all.Reads != 1 {
			t.Fatalf("an answer from %s cost %+v, of it %+v for the answer itself", from, all, stored)
		}
	}
}

// Waiters that give up leave their turns to others.
func TestCapacityWhenHalfOfTheWaitersGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		slots  int
		shape  load.Shape
		leaves float64 // of those who come; some of these are refused at once, or served before
	}{
		"token-bound": {10, load.Shape{PerSecond: 80, For: 3 * time.Second}, 0.95},
		"slot-bound":  {3, load.Shape{PerSecond: 40, For: 6 * time.Second}, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, shape := bucket20(func(k *gate.Knobs) { k.MaxInFlight = c.slots }), c.shape
			shape.Instances, shape.Tenants, shape.Seed = 10, 1000, 1
			served := func(leave bool) (n, left, waited int) {
				shape.Call = func(r *rand.Rand, call *load.Call) {
					call.Patience, call.Upstream = 3*time.Second, 200*time.Millisecond
					if goes, after := r.Float64() < c.leaves, 100*time.Millisecond+time.Duration(r.Int64N(int64(900*time.Millisecond))); goes && leave {
						call.Leaves = after
					}
				}
				r := inVirtualTime(t, k, gateOnly, shape)
				end := r.Start.Add(shape.For)
				n = r.Count(func(d load.Done) bool { return d.Admitted && !d.Answered.After(end) })
				left = r.Count(func(d load.Done) bool { return d.Left })
				return n, left, r.Count(load.Waited) + left
			}
			all, _, _ := served(false)
			half, left, waited := served(true)
			t.Logf("seed %d: %d served when all stay, %d when of %d waiters %d leave", shape.Seed, all, half, waited, left)
			if share := float64(left) / float64(waited); share < 0.45 || share > 0.6 {
				t.Errorf("%d of %d waiters left: this is not half", left, waited)
			}
			if float64(half) < 0.95*float64(all) {
				t.Errorf("%d of %d, 0.95 are asked for", half, all)
			}
		})
	}
}

// P12: one write unit is enough for normal work.
func TestCapacityOfOneUnitHoldsSixLeasesAndTenTickets(t *testing.T) {
	s := newStore(t, nil)
	st := gate.NewState(bucket20(nil), noon, false)
	late := gate.MicrosOf(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)) // its times have as many digits as they will have
	st.TAT, st.Turned, st.Hold, st.Reason, st.Latency, st.VirtualTime = late, late.Millis(), late.Millis(), gate.HoldThrottled, 612, 2520*1e6
	for i := range 16 {
		tenant := fmt.Sprint("tenant", i)
		f, key := gate.FlowOf(tenant), gate.Key{Route: gate.Interactive, Tenant: tenant}
		id := string(f) + fmt.Sprintf("%06d", i)
		st.Places[key.Place()] = []string{id}
		if i < 6 {
			st.Leases[id] = late.Millis() + 15_000
			continue
		}
		st.Tickets[id] = gate.Ticket{Arrival: late.Millis(), Deadline: late.Millis() + 3000, Cost: 1, Weight: 1}
		st.Flows[f] = gate.Turn{Tag: st.VirtualTime + 2520, Since: late.Millis(), Count: 1}
	}
	it := encode(s.pk, st)
	out, err := realClient.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: it, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Places) != 16 || len(st.Flows) != 10 {
		t.Fatalf("%d keys, %d flows", len(st.Places), len(st.Flows))
	}
	n, units := meter.Size(it), *out.ConsumedCapacity.CapacityUnits
	t.Logf("%d bytes", n)
	if n > 1024 || units != 1 {
		t.Errorf("%d bytes, billed %v units", n, units)
	}
}
