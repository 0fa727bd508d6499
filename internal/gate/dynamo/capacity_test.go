package dynamo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
	"vingate/internal/load"
	"vingate/internal/meter"
)

// way is a store as a load.Gate.
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

// inVirtualTime runs the calls on a gate of its own, with 1.5 to 4 ms on every way to the store and back. Every write and every
// read is one that the real store answered and billed.
func inVirtualTime(t *testing.T, k gate.Knobs, shape load.Shape) (r load.Report) {
	t.Helper()
	if os.Getenv("VINGATE_CAPACITY") == "" {
		t.Skip("a minute of load in virtual time: make capacity")
	}
	desk := meter.NewOutside(realClient)
	defer desk.Close()
	name := fmt.Sprint("g", gates.Add(1))
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		noise := rand.New(rand.NewPCG(shape.Seed, 2))
		m := &meter.Meter{Next: desk, Delay: func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return 1500*time.Microsecond + time.Duration(noise.Int64N(2500))*time.Microsecond
		}}
		shift := time.Until(noon.Time()) // the bubble's clock begins before the gate's epoch
		var ids atomic.Int64
		instance := func() *Store {
			return New(Config{Client: m, Table: table, Name: name, Now: func() time.Time { return time.Now().Add(shift) },
				NewID: func() string { return fmt.Sprintf("%06d", ids.Add(1)) }})
		}
		if err := instance().Init(context.Background(), k, FullBucket); err != nil {
			t.Fatal(err)
		}
		instances := make([]load.Gate, shape.Instances)
		for i := range instances {
			instances[i] = way{instance()}
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

func costOf(r load.Report, which func(load.Done) bool) cost {
	b, c := r.Bill(which), cost{n: r.Count(which)}
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
			r := inVirtualTime(t, bucket20(nil), shape)
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
	slots3 := func(k *gate.Knobs) { k.MaxInFlight, k.MaxQueued = 3, 64 }
	tokens := func(k *gate.Knobs) { k.MaxQueued = 64 }
	for name, c := range map[string]struct {
		knobs  func(*gate.Knobs)
		shape  load.Shape
		writes float64
	}{
		"token-bound, seventy at once":        {tokens, load.Shape{Tenants: 70}, 3.3},
		"token-bound, seventy within 200 ms":  {tokens, load.Shape{PerSecond: 350, For: 200 * time.Millisecond, Tenants: 1000}, 3.3},
		"token-bound, half as much again":     {tokens, load.Shape{PerSecond: 30, For: 4 * time.Second, Tenants: 1000}, 3.3},
		"slot-bound, sixty at once":           {slots3, load.Shape{Tenants: 60}, 3.6},
		"slot-bound, a third more than it is": {slots3, load.Shape{PerSecond: 20, For: 4 * time.Second, Tenants: 1000}, 3.6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.shape.Instances, c.shape.Seed, c.shape.Call = 10, 1, callsOf(20*time.Second)
			r := inVirtualTime(t, bucket20(c.knobs), c.shape)
			got := costOf(r, load.Waited)
			t.Logf("seed %d: %v; slowest %v", c.shape.Seed, got, load.Quantile(r.Waits(load.Waited), 1).Round(time.Millisecond))
			if got.n < 30 {
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

// A crowd that waits is served as fast as tokens and slots come, also before anybody knows how long calls take.
func TestACrowdIsServedAsFastAsSlotsComeFree(t *testing.T) {
	t.Parallel()
	k := bucket20(func(k *gate.Knobs) { k.MaxInFlight, k.MaxQueued = 3, 64 })
	shape := load.Shape{Tenants: 50, Instances: 10, Seed: 1, Call: func(_ *rand.Rand, c *load.Call) {
		c.Patience, c.Upstream = 20*time.Second, 200*time.Millisecond
	}}
	r := inVirtualTime(t, k, shape)
	slowest := load.Quantile(r.Waits(load.Admitted), 1)
	t.Logf("seed %d: the last of fifty after %v", shape.Seed, slowest.Round(time.Millisecond))
	if n := r.Count(load.Admitted); n != 50 || slowest > 5*time.Second { // 47/3 x 200 ms, and a second to learn that calls are short
		t.Errorf("%d of 50 served, the last after %v", n, slowest)
	}
}

// P12: refusals in a flood of fifteen times the budget, which meanwhile is used to the full.
func TestCapacityInAFlood(t *testing.T) {
	for _, c := range []struct {
		instances int
		patience  time.Duration
		span      time.Duration // without a line long enough that the tokens an instance may leave to others do not count
		units     float64
	}{{10, 0, 10 * time.Second, 0.1}, {10, 3 * time.Second, 8 * time.Second, 0.1}, {50, 0, 10 * time.Second, 0.2}, {50, 3 * time.Second, 8 * time.Second, 0.2}} {
		t.Run(fmt.Sprintf("%d instances, patience %v", c.instances, c.patience), func(t *testing.T) {
			t.Parallel()
			k := bucket20(nil)
			shape := load.Shape{PerSecond: 15 * k.RatePerSecond, For: c.span, Instances: c.instances, Tenants: 1000, Seed: 1, Call: callsOf(c.patience)}
			r := inVirtualTime(t, k, shape)
			got, used := costOf(r, load.Refused), use(r, k, shape.For)
			t.Logf("seed %d: budget use %.3f; refused %v; admitted %v", shape.Seed, used, got, costOf(r, load.Admitted))
			if got.units > c.units {
				t.Errorf("%.3f write units for a refusal, %.1f are allowed", got.units, c.units)
			}
			if used < 0.98 {
				t.Errorf("%.3f of the budget was used, 0.98 are asked for", used)
			}
		})
	}
}

// Waiters that give up leave their turns to others.
func TestCapacityWhenHalfOfTheWaitersGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		slots int
		shape load.Shape
	}{
		"token-bound": {10, load.Shape{PerSecond: 50, For: 4 * time.Second}},
		"slot-bound":  {3, load.Shape{PerSecond: 40, For: 8 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, shape := bucket20(func(k *gate.Knobs) { k.MaxInFlight = c.slots }), c.shape
			shape.Instances, shape.Tenants, shape.Seed = 10, 1000, 1
			served := func(leave bool) (n, left int) {
				shape.Call = func(r *rand.Rand, c *load.Call) {
					c.Patience, c.Upstream = 3*time.Second, 200*time.Millisecond
					if goes, after := r.IntN(2) == 0, time.Duration(100+r.IntN(900))*time.Millisecond; goes && leave {
						c.Leaves = after
					}
				}
				r := inVirtualTime(t, k, shape)
				end := r.Start.Add(shape.For)
				return r.Count(func(d load.Done) bool { return d.Admitted && !d.Answered.After(end) }), r.Count(func(d load.Done) bool { return d.Left })
			}
			all, _ := served(false)
			half, left := served(true)
			t.Logf("seed %d: %d served when all stay, %d when half would leave and %d did", shape.Seed, all, half, left)
			if left < all/2 {
				t.Errorf("only %d left: this shows nothing", left)
			}
			if float64(half) < 0.95*float64(all) {
				t.Errorf("%d of %d, 0.95 are asked for", half, all)
			}
		})
	}
}

// P12: one write unit is enough for normal work.
func TestSixLeasesAndTenTicketsAreOneWriteUnit(t *testing.T) {
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
	if n, units := meter.Size(it), *out.ConsumedCapacity.CapacityUnits; n > 1024 || units != 1 {
		t.Errorf("%d bytes, billed %v units", n, units)
	}
}
