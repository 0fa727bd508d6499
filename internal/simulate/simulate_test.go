package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/meter"
	"vingate/internal/tenant"
)

// aModel is the product at its defaults.
func aModel(streams ...Stream) Setup {
	m := Setup{Seed: 1, For: time.Hour, Gates: 1, Knobs: gate.Knobs{MaxInFlight: 4, RatePerSecond: 2, Burst: 10, MaxQueued: 24,
		BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16, LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond,
		StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt},
		MaxWait: 3 * time.Second, MaxWaitBatch: 15 * time.Second, BulkheadWait: 2 * time.Second, UpstreamTimeout: 10 * time.Second,
		RequestDeadline: 27 * time.Second, BatchTokenCost: 1,
		Keyed: tenant.Plan{RatePerSecond: 1, Burst: 20}, Anonymous: tenant.Plan{RatePerSecond: 1, Burst: 20}, CacheTTL: 720 * time.Hour, CacheSoftTTL: 168 * time.Hour,
		Instances: 1000, Warm: 10, Concurrency: 1, WireLeast: 1500 * time.Microsecond, WireMost: 4 * time.Millisecond, Lag: 10 * time.Millisecond,
		ClockError: 5 * time.Millisecond, Work: time.Millisecond, VINs: 1_000_000, Zipf: 1, Stored: 0.8,
		ItemReads: ItemReadUnits, ItemWrites: ItemWriteUnits, Streams: streams}
	var err error
	if m.Upstream, err = ParseLatency("lognormal:600ms,0.5"); err != nil {
		panic(err)
	}
	return m
}

func people(rate float64) Stream {
	return Stream{Name: "people", Arrivals: Poisson, Rate: rate, Tenants: 1000}
}

// situations are models that differ in what binds.
func situations() map[string]Setup {
	four := 4 * time.Minute
	all := map[string]Setup{}
	add := func(name string, change func(*Setup), streams ...Stream) {
		m := aModel(streams...)
		m.For = four
		if change != nil {
			change(&m)
		}
		all[name] = m
	}
	add("people", nil, people(100))
	add("keys", nil, Stream{Name: "keys", Arrivals: Diurnal, Rate: 50, Tenants: 30, Keyed: true, Tries: 3})
	add("everybody", nil, people(40), Stream{Name: "dealers", Arrivals: Dealer, Size: 120, Every: 20 * time.Second, Tenants: 10, Keyed: true},
		Stream{Name: "scraper", Arrivals: Scraper, Rate: 30, Tenants: 1, Unique: true})
	add("bursts", nil, Stream{Name: "crowd", Arrivals: Burst, Size: 100, Every: time.Minute, Tenants: 100, Tries: 5})
	add("slots are short", func(m *Setup) {
		m.Knobs.MaxInFlight, m.Knobs.RatePerSecond, m.Knobs.Burst, m.Stored = 3, 10, 20, 0
	}, people(20))
	add("no line", func(m *Setup) { m.MaxWait, m.Knobs.MaxQueued = 0, 0 }, people(60))
	add("one instance, many at once", func(m *Setup) { m.Instances, m.Concurrency, m.VINs, m.Stored = 2, 64, 300, 0.1 }, people(60))
	add("NHTSA fails", func(m *Setup) { m.Failing = 0.5 }, people(40))
	add("NHTSA asks for pauses", func(m *Setup) {
		m.Troubles = []Trouble{{Kind: Says429, At: time.Minute, Every: 90 * time.Second, For: 10 * time.Second, RetryAfter: 5 * time.Second}}
	}, people(40))
	add("NHTSA blocks", func(m *Setup) {
		m.Troubles = []Trouble{{Kind: Says403, At: time.Minute, For: 10 * time.Second, RetryAfter: 20 * time.Second}, {Kind: Says503, At: 100 * time.Second, For: 20 * time.Second}}
	}, people(40), Stream{Name: "keys", Arrivals: Dealer, Size: 50, Every: 20 * time.Second, Tenants: 5, Keyed: true})
	add("NHTSA has a limit of its own", func(m *Setup) {
		m.Gates, m.Troubles = 2, []Trouble{{Kind: Limits, Rate: 1, Burst: 15, RetryAfter: 3 * time.Second}}
	}, people(60))
	add("answers grow old", func(m *Setup) {
		m.CacheSoftTTL, m.CacheTTL, m.VINs, m.Concurrency = 20*time.Second, 60*time.Second, 2000, 3
	}, people(20))
	add("few addresses", func(m *Setup) {
		m.Anonymous.RatePerSecond, m.Anonymous.Burst, m.Knobs.MaxInFlight, m.Knobs.RatePerSecond, m.Knobs.Burst = 100, 1000, 8, 5, 20
		m.Upstream, _ = ParseLatency("fixed:2s")
	}, Stream{Name: "few", Arrivals: Poisson, Rate: 40, Tenants: 3, Unique: true})
	add("a long wait", func(m *Setup) { m.Knobs.MaxQueued, m.MaxWait, m.Knobs.BulkheadAnon = 64, 13*time.Second, 64 }, people(60))
	add("DynamoDB throttles", func(m *Setup) { m.ItemReads, m.ItemWrites = 3, 8 }, people(100))
	add("two gates", func(m *Setup) { m.Gates, m.ClockError = 2, 200*time.Millisecond }, people(80))
	return all
}

func TestWhateverHappensThePromisesAreKept(t *testing.T) {
	for name, m := range situations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if r.Peak > r.Slots {
				t.Errorf("%d calls at once, %d are allowed", r.Peak, r.Slots)
			}
			if r.Window > float64(r.Burst) {
				t.Errorf("a window with %v starts beyond its rate, %d are allowed", r.Window, r.Burst)
			}
			if r.Use > 1.02 {
				t.Errorf("%.3f of the budget was used", r.Use)
			}
			var n int64
			for _, c := range r.Counts {
				n += c.N
			}
			if n != r.Requests || r.Requests != r.Offered+r.Retried || r.Requests == 0 {
				t.Errorf("%d outcomes of %d requests, %d of them came back, %d were offered", n, r.Requests, r.Retried, r.Offered)
			}
			if r.Fairness <= 0 || r.Fairness > 1 {
				t.Errorf("fairness %v", r.Fairness)
			}
			for _, g := range r.Routes {
				longest := m.MaxWait
				if g.Name == "batches" {
					longest = m.MaxWaitBatch
				}
				if wait := time.Duration(g.Wait.P99 * 1e9); wait > (longest+m.BulkheadWait)*11/10+time.Second {
					t.Errorf("%s waited %v", g.Name, wait)
				}
			}
		})
	}
}

// Nothing is left behind: when the last request is over, every lease and ticket is gone.
func TestAtTheEndNothingIsHeld(t *testing.T) {
	for name, m := range situations() {
		if m.ItemWrites < ItemWriteUnits {
			continue // a release that is throttled for a second leaves its lease
		}
		s := newSim(m)
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, g := range s.items {
			if st := g.cur.s; len(st.Leases)+len(st.Tickets)+len(st.Places)+len(st.Flows)+len(st.Batch) > 0 {
				t.Errorf("%s: left: %+v", name, st)
			}
		}
		for vin := range s.rests {
			if s.rests[vin] > s.now+micros(refreshRest) {
				t.Errorf("%s: VIN %d rests until %v", name, vin, s.rests[vin])
			}
		}
		if len(s.spare) != len(s.chunks)*chunk || len(s.flights) > 0 || s.live != 0 || len(s.local) > 0 {
			t.Errorf("%s: %d of %d requests are over, %d flights, %d calls, %d shared", name, len(s.spare), len(s.chunks)*chunk, len(s.flights), s.live, len(s.local))
		}
		free := map[int32]int{}
		for _, i := range s.idle {
			free[i]++
		}
		for i, in := range s.instances[:s.warm] {
			if free[int32(i)] != m.Concurrency || in.entrance.taken || in.counter.taken || len(in.entrance.waiting)+len(in.counter.waiting) > 0 {
				t.Errorf("%s: instance %d is free %d times of %d: %+v %+v", name, i, free[int32(i)], m.Concurrency, in.entrance, in.counter)
			}
		}
	}
}

// bare is what a report says, without what is the model's or the machine's.
func bare(t *testing.T, m Setup) string {
	t.Helper()
	r, err := Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	r.Asked = 0
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheSameModelGivesTheSameReport(t *testing.T) {
	m := situations()["everybody"]
	first := bare(t, m)
	if again := bare(t, m); again != first {
		t.Error("another report the second time")
	}
	m.Seed = 2
	if other := bare(t, m); other == first {
		t.Error("the seed decides nothing")
	}
}

// The core is not asked again what it has said about the same item to an equal caller. It would say the same: each time it is asked, so is
// the memory, and the two agree on the cause, the time to come back and the caller's place in time.
func TestTheCoreWouldSayTheSame(t *testing.T) {
	for name, m := range situations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.check = func(what string, got, want any) {
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %+v from memory, %+v by the core", what, got, want)
				}
			}
			m.For = 2 * time.Minute
			r, err := Run(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d requests, %d questions to the core", r.Requests, r.Asked)
		})
	}
}

// The size that decides about write units is that of the item as it is written.
func TestProperty_TheSizeIsTheItems(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		k := aModel().Knobs
		now := gate.MicrosOf(time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC)) + gate.Micros(rapid.Int64Range(0, 1e13).Draw(r, "now"))
		s := gate.NewState(k, now, rapid.Bool().Draw(r, "held"))
		s.TAT += gate.Micros(rapid.Int64Range(0, 1e15).Draw(r, "tat"))
		s.Latency, s.Pause = gate.Millis(rapid.IntRange(0, 5000).Draw(r, "latency")), gate.Millis(rapid.IntRange(0, 1e9).Draw(r, "pause"))
		s.VirtualTime = rapid.Int64Range(0, 1e12).Draw(r, "vt")
		for i := range rapid.IntRange(0, 30).Draw(r, "ids") {
			route := rapid.SampledFrom([]gate.Route{gate.Interactive, gate.Batch}).Draw(r, "route")
			who := fmt.Sprint(rapid.IntRange(0, 5).Draw(r, "who"))
			id := string(gate.FlowOf(who)) + fmt.Sprintf("%06d", i)
			p := gate.Key{Route: route, Tenant: who}.Place()
			s.Places[p] = append(s.Places[p], id)
			if rapid.Bool().Draw(r, "live") {
				s.Leases[id] = now.Millis() + gate.Millis(rapid.IntRange(0, 15000).Draw(r, "end"))
				if route == gate.Batch {
					s.Batch = append(s.Batch, id)
				}
				continue
			}
			s.Tickets[id] = gate.Ticket{Arrival: now.Millis(), Deadline: now.Millis() + gate.Millis(100*rapid.IntRange(1, 600).Draw(r, "patience")),
				Cost: rapid.IntRange(1, 5).Draw(r, "cost"), Weight: rapid.IntRange(1, 10).Draw(r, "weight")}
			s.Flows[gate.FlowOf(who)] = gate.Turn{Tag: rapid.Int64Range(0, 1e10).Draw(r, "tag"), Since: now.Millis(), Count: rapid.IntRange(1, 24).Draw(r, "n")}
		}
		item := dynamo.Encode(s)
		want := meter.Size(item) + len("pk") + len("gate#nhtsa")
		if got := size(&s, len(k.Pack())); got != want {
			t.Fatalf("%d bytes, the item has %d: %+v", got, want, s)
		}
		if len(s.Leases)+len(s.Tickets) <= fewIDs && want > 1024 {
			t.Fatalf("%d ids take %d bytes", len(s.Leases)+len(s.Tickets), want)
		}
	})
}

func TestTheOracleFindsTheFullestWindow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := oracle{rate: 2}
		var at []float64
		now := 0.0
		for range rapid.IntRange(1, 40).Draw(r, "starts") {
			now += rapid.Float64Range(0, 1).Draw(r, "gap")
			at = append(at, now)
			o.start(now)
		}
		want := 0.0
		for i := range at {
			for j := i; j < len(at); j++ {
				want = max(want, float64(j-i+1)-2*(at[j]-at[i]))
			}
		}
		if math.Abs(want-o.fullest) > 1e-6 {
			t.Fatalf("%v, not %v: %v", o.fullest, want, at)
		}
	})
}

func TestQuantilesAreNear(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * 10 * time.Millisecond)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{.5, 5 * time.Second}, {.95, 9500 * time.Millisecond}, {.99, 9900 * time.Millisecond}} {
		if got := float64(h.quantile(c.q)) / float64(c.want); got < 1/1.012 || got > 1.012 {
			t.Errorf("the %v quantile of 10 ms to 10 s is %v of %v", c.q, got, c.want)
		}
	}
}

func TestFairnessIsOfTheShares(t *testing.T) {
	for name, c := range map[string]struct {
		own  []mine
		want float64
	}{
		"all get the same":                   {[]mine{{asked: 100, live: 10}, {asked: 50, live: 10}}, 1},
		"who asks less gets it all":          {[]mine{{asked: 100, live: 10}, {asked: 3, live: 3}}, 1},
		"one of four gets everything":        {[]mine{{asked: 9, live: 8}, {asked: 9}, {asked: 9}, {asked: 9}}, 0.25},
		"who asks nothing is not left short": {[]mine{{asked: 9, live: 8}, {}}, 1},
	} {
		if got := fairness(c.own); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAModelSaysEverythingThatIsWrong(t *testing.T) {
	m := aModel(Stream{Name: "x", Arrivals: Poisson, Tenants: 1})
	m.Instances, m.Stored, m.Knobs.Burst = 0, 2, 1
	m.Warm, m.Work, m.Lag = -1, -time.Second, time.Hour
	m.Streams = append(m.Streams, Stream{Name: "late", Arrivals: Poisson, Rate: 1, Tenants: 1, From: time.Hour}, Stream{Name: "many", Arrivals: Poisson, Rate: 1e6, Tenants: 1})
	m.Troubles = []Trouble{{Kind: Says429, At: time.Hour, For: time.Minute}}
	_, err := Run(t.Context(), m)
	for _, want := range []string{"instances: 0", "stored: 2", "RATE_BURST", "x: rate=0 is no number of requests", "warm: -1", "work: -1s", "lag: 1h", "late: it begins after 1h",
		"3600 million requests take hours", "429: it comes first after 1h"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// Whatever streams there may be, time goes on: none of them asks without end in one moment, nor in the past.
func TestProperty_StreamsGoForward(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := Stream{Name: "x", Arrivals: rapid.SampledFrom([]Arrivals{Constant, Poisson, Diurnal, Burst, Dealer, Scraper}).Draw(r, "arrivals"), Tenants: 1,
			Rate: math.Pow(10, rapid.Float64Range(-310, 7).Draw(r, "power")), Size: rapid.IntRange(1, 100_000).Draw(r, "size"),
			Every: time.Duration(rapid.Int64Range(1, int64(mostTime)).Draw(r, "every")) >> rapid.IntRange(0, 40).Draw(r, "shift")}
		m := aModel(s)
		if m.For = mostTime; s.Check() != nil {
			return
		}
		sim := newSim(aModel(people(1)))
		src := source{Stream: s, from: sim.start}
		src.begin(sim.rng)
		began := src.next
		for n := range 300_000 {
			before := src.next
			if before < sim.start {
				t.Fatalf("%+v: request %d comes before the start", s, n)
			}
			if src.left = max(0, src.left-1); s.Arrivals == Burst { // which counts by itself
				src.left++
			}
			src.advance(sim.rng)
			if src.next < before {
				t.Fatalf("%+v: request %d goes back by %d", s, n, before-src.next)
			}
			if src.next > sim.start+micros(mostTime) {
				return
			}
			if n == 299_999 && src.next-began < 200_000 {
				t.Fatalf("%+v: %d requests in %d us", s, n+1, src.next-began)
			}
		}
	})
}

func TestARunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, aModel(people(1e5))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func noFile(string) (io.ReadCloser, error) { return nil, os.ErrNotExist }

func TestStreamsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Stream{
		"poisson:rate=5":                         {Name: "poisson", Arrivals: Poisson, Rate: 5, Tenants: 1000},
		"diurnal:rate=5,tenants=7,keyed,tries=2": {Name: "diurnal", Arrivals: Diurnal, Rate: 5, Tenants: 7, Keyed: true, Tries: 2},
		"dealer:name=lots,every=30s":             {Name: "lots", Arrivals: Dealer, Size: 50, Every: 30 * time.Second, Tenants: 20, Keyed: true},
		"scraper:rate=20,from=1h,for=10m":        {Name: "scraper", Arrivals: Scraper, Rate: 20, Tenants: 1, Unique: true, From: time.Hour, For: 10 * time.Minute},
	} {
		if got, err := ParseStream(text, noFile); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"posson:rate=5": `no "posson" arrivals`, "poisson": "no number of requests", "poisson:rate=x": `"x" is no number`, "poisson:speed=3": "no such key: rate",
		"burst:size=0": "needs a size", "trace:": "needs file", "trace:file=x.csv": "not exist", "poisson:rate=5,tenants=0": "tenants",
		"poisson:rate=1e-300": "from 0.000001", "constant:rate=NaN": "no number of requests", "poisson:rate=1,from=-1h": "before the start", "poisson:rate=1,for=-1s": "before the start",
		"poisson:rate=1,weight=-3": "weight=-3", "poisson:rate=1,weight=11": "weight=11", "poisson:rate=1,keyed=maybe": "neither true nor false", "poisson:rate=1,for=1h30": "such as 90s",
		"poisson:rate=1,tenants=1.5": "no whole number", "burst:size=100000,every=1ms": "more than a million a second", "burst:every=9000h": "to 31 days",
	} {
		if _, err := ParseStream(text, noFile); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestATraceIsPlayed(t *testing.T) {
	const file = "\ufeffat,tenant,vin,size\n2026-11-30T08:00:01Z,a,V1,\n2026-11-30T08:00:00Z,b,V1,\n2026-11-30T08:00:30Z,a,,20\n"
	s, err := ParseStream("trace:file=x.csv", func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(file)), nil })
	if err != nil || s.Tenants != 2 || len(s.rows) != 3 || s.rows[1].at != 1e6 || s.rows[2].size != 20 {
		t.Fatalf("%+v, %v", s, err)
	}
	m := aModel(s)
	m.Stored = 0
	r, err := Run(t.Context(), m)
	if err != nil || r.Requests != 3 || r.Calls != 2 { // the second asks what the first has brought, or shares its call
		t.Errorf("%d requests, %d calls, %v", r.Requests, r.Calls, err)
	}
	for broken, want := range map[string]string{"": "header", "at\na\"b\n": "line 2", "at\n\"1\"x\n": "line 2", "at\n\"1": "line 2", "when\n1\n": `no column "at"`, "at\n": "no rows", "at\nnoon\n": "line 2", "at,size\n1,99\n": "0 to 50"} {
		if err := new(Stream).ReadTrace(strings.NewReader(broken)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add("at,tenant,vin,size\n1.5,a,b,0\n")
	f.Add("at\n2026-11-30T08:00:00Z\nNaN\n")
	f.Add("at\na\"b\n")
	f.Fuzz(func(t *testing.T, text string) {
		var s Stream
		if s.ReadTrace(strings.NewReader(text)) != nil {
			return
		}
		if s.Tenants < 1 || s.rows[0].at != 0 {
			t.Fatalf("%+v", s)
		}
		for i := range s.rows[1:] {
			if s.rows[i+1].at < s.rows[i].at {
				t.Fatalf("row %d goes back", i+1)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("poisson:rate=5,tenants=3")
	f.Add("lognormal:600ms,0.5")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseStream(text, noFile); err == nil && s.Check() != nil {
			t.Fatalf("%q is taken and wrong", text)
		}
		if l, err := ParseLatency(text); err == nil && (l.A <= 0 || l.Kind == "") {
			t.Fatalf("%q is %+v", text, l)
		}
	})
}

func TestLatenciesAreDrawnAsTheyAreWritten(t *testing.T) {
	m := aModel(people(5))
	for text, want := range map[string][2]time.Duration{
		"fixed:300ms":         {300 * time.Millisecond, 300 * time.Millisecond},
		"uniform:100ms,200ms": {150 * time.Millisecond, 195 * time.Millisecond},
		"lognormal:600ms,0.5": {600 * time.Millisecond, 1365 * time.Millisecond},
	} {
		l, err := ParseLatency(text)
		if err != nil {
			t.Fatal(err)
		}
		s := newSim(m)
		var h histogram
		for range 20000 {
			h.add(l.draw(s.rng))
		}
		for i, q := range []float64{.5, .95} {
			if got := float64(h.quantile(q)) / float64(want[i]); got < 0.95 || got > 1.09 {
				t.Errorf("%s: quantile %v is %v", text, q, h.quantile(q))
			}
		}
	}
	for _, text := range []string{"", "fixed", "fixed:0s", "fixed:1s,2s", "uniform:2s,1s", "uniform:1s", "lognormal:1s,-1", "lognormal:1s,NaN", "normal:1s,1"} {
		if _, err := ParseLatency(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestTheReportIsJSON(t *testing.T) {
	r, err := Run(t.Context(), situations()["people"])
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["calls"].(float64) < 400 || got["seed"] != 1.0 {
		t.Errorf("%v: %v", err, got)
	}
	b.Reset()
	if err := r.Print(&b); err != nil || !strings.Contains(b.String(), "a call to NHTSA") || !strings.Contains(b.String(), "not modelled:") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// A day at 100 requests a second is simulated while one waits: docs/scaling.md has how long it takes. This is a part of it.
func BenchmarkAnHourAtAHundredASecond(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(b.Context(), aModel(people(100))); err != nil {
			b.Fatal(err)
		}
	}
}

// What makes it quick is counted: events and questions to the core, and what is allocated, for each request.
func TestARequestTakesFewStepsAndLittleMemory(t *testing.T) {
	m := aModel(people(100))
	m.For = 20 * time.Minute
	s := newSim(m)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	requests := float64(s.book.requests)
	for what, c := range map[string]struct{ n, most float64 }{
		"events":                {float64(s.seq), 3.9},
		"questions to the core": {float64(s.book.asked), 0.12},
		"allocations":           {float64(after.Mallocs - before.Mallocs), 2.8},
		"bytes":                 {float64(after.TotalAlloc - before.TotalAlloc), 550},
	} {
		t.Logf("%.3f %s for each of %.0f requests", c.n/requests, what, requests)
		if c.n/requests > c.most {
			t.Errorf("%.3f %s for each request, %v are allowed", c.n/requests, what, c.most)
		}
	}
}

// The page is one file that asks nobody for anything.
func TestThePageNeedsNothingElse(t *testing.T) {
	m := situations()["everybody"]
	m.Streams[0].Name = `<b>"people"</b>`
	r, err := Run(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	r.Command = "vingate simulate --traffic 'x<y'"
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"4 minutes at", "What became of the requests", "What NHTSA had to be asked for", "DynamoDB", "a month", "x&lt;y", "color-mix(in srgb,var(--t", "&lt;b&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, "Pauses") {
		t.Error("pauses where NHTSA says yes")
	}
	if n := strings.Count(page, "<svg"); n < 6 {
		t.Errorf("%d pictures", n)
	}
	alone := strings.NewReplacer("http://www.w3.org/2000/svg", "", "http://www.w3.org/1999/xlink", "").Replace(page)
	for _, no := range []string{"http:", "https:", "//", "<script", "<link", "<img", "@import", "url(", `<b>"`, "rgb(1,2", "NaN", "ZgotmplZ", "%!"} {
		if i := strings.Index(alone, no); i >= 0 {
			t.Errorf("%q in the page: %s", no, alone[max(0, i-60):min(len(alone), i+60)])
		}
	}
	if size := len(page); size > 400_000 {
		t.Errorf("%d bytes", size)
	}
}

func TestPicturesHaveAxesThatReadWell(t *testing.T) {
	for highest, want := range map[float64]float64{0: 1, 3.9: 4, 9.9: 12, 34: 40, 101: 120, 2500: 3000, 0.013: 0.015} {
		top, steps := niceTop(highest)
		if top < highest || steps > 6 || math.Abs(top-want) > 1e-9 {
			t.Errorf("an axis for %v ends at %v in %d steps, not at %v", highest, top, steps, want)
		}
	}
	f := figure{Title: "x", labels: []string{"1", "10", "100"}, log: true, dots: true, legend: true, lines: []line{{"a", blue, []float64{1, 0, 1000}}, {"b", red, []float64{20, 30, 0.5}}}}
	svg, err := f.svg(300)
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{">0.1<", ">1<", ">1000<"} {
		if !strings.Contains(svg, label) {
			t.Errorf("no label %s", label)
		}
	}
	if own := onItsOwn(svg); strings.Contains(own, "(1,2,") || !strings.Contains(own, light[blue]) || strings.Contains(own, "NaN") {
		t.Error("a picture of its own lacks its colours")
	}
}
