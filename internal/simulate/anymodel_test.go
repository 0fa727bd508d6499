package simulate

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/tenant"
)

// anyModel is one that Check may take or not.
func anyModel(r *rapid.T) Setup {
	m := aModel()
	n := func(name string, least, most int) int { return rapid.IntRange(least, most).Draw(r, name) }
	ms := func(name string, least, most int) time.Duration {
		return time.Duration(n(name, least, most)) * time.Millisecond
	}
	f := func(name string, least, most float64) float64 { return rapid.Float64Range(least, most).Draw(r, name) }
	m.For, m.Seed = ms("for", 1000, 120_000), rapid.Uint64().Draw(r, "seed")
	m.Gates, m.Instances, m.Warm, m.Concurrency = n("gates", 1, 3), n("instances", 1, 60), n("warm", 0, 70), n("concurrency", 1, 5)
	m.Knobs.MaxInFlight, m.Knobs.RatePerSecond, m.Knobs.Burst, m.Knobs.MaxQueued = n("slots", 1, 20), f("rate", 0.2, 30), n("burst", 5, 100), n("queued", 0, 64)
	m.MaxWait, m.MaxWaitBatch, m.BulkheadWait = ms("wait", 0, 9000), ms("batch's wait", 0, 12_000), ms("bulkhead wait", 0, 3000)
	m.VINs, m.Zipf, m.Stored = rapid.SampledFrom([]int{0, 1, 2, 1000}).Draw(r, "VINs"), f("zipf", 0, 3), f("stored", 0, 1)
	m.CacheSoftTTL = ms("soft TTL", 1000, 100_000)
	m.CacheTTL = m.CacheSoftTTL + ms("more TTL", 0, 100_000)
	m.Work, m.Lag, m.ClockError = ms("work", 0, 50), ms("lag", 0, 3000), ms("clock error", 0, 250)
	m.ItemReads, m.ItemWrites = rapid.SampledFrom([]float64{0, 3, 3000}).Draw(r, "reads"), rapid.SampledFrom([]float64{0, 4, 1000}).Draw(r, "writes")
	m.Keyed = tenant.Plan{RatePerSecond: f("keyed rate", 0.1, 5), Burst: n("keyed burst", 1, 30)}
	m.Upstream, _ = ParseLatency(rapid.SampledFrom([]string{"fixed:1us", "fixed:600ms", "lognormal:600ms,2", "uniform:1ms,20s", "lognormal:1h,5"}).Draw(r, "upstream"))
	m.Failing = rapid.SampledFrom([]float64{0, 0, 0.1, 1}).Draw(r, "failing")
	for i := range n("streams", 1, 4) {
		m.Streams = append(m.Streams, Stream{Name: fmt.Sprint(i), Arrivals: rapid.SampledFrom([]Arrivals{Constant, Poisson, Diurnal, Burst, Dealer, Scraper}).Draw(r, "arrivals"),
			Rate: f("asked", 0.01, 40), Size: n("size", 1, 200), Every: ms("every", 500, 60_000), Tenants: n("tenants", 1, 50), Keyed: rapid.Bool().Draw(r, "keyed"),
			Unique: rapid.Bool().Draw(r, "unique"), Tries: n("tries", 0, 4), Weight: n("weight", 0, 10), From: ms("from", 0, 900), For: ms("asks for", 0, 20_000)})
	}
	for range n("troubles", 0, 2) {
		t := Trouble{Kind: rapid.SampledFrom([]TroubleKind{Says429, Says403, Says503, Limits}).Draw(r, "kind"), At: ms("at", 0, 900), For: ms("lasts", 1, 20_000), RetryAfter: ms("retry after", 0, 60_000)}
		if t.Kind == Limits {
			t.Rate, t.Burst = 1, 3
		}
		m.Troubles = append(m.Troubles, t)
	}
	return m
}

// Whatever is asked of it, each request has one outcome, and the budget is never exceeded.
func TestProperty_AnyModelKeepsTheBudgetAndLosesNobody(t *testing.T) {
	ran := 0
	rapid.Check(t, func(r *rapid.T) {
		m := anyModel(r)
		if m.Check() != nil {
			return
		}
		ran++
		got, err := Run(t.Context(), m)
		if err != nil {
			r.Fatal(err)
		}
		var outcomes int64
		for _, c := range got.Counts {
			outcomes += c.N
		}
		if outcomes != got.Requests || got.Requests != got.Offered+got.Retried {
			r.Fatalf("%d outcomes of %d requests, %d of them came back, %d were offered", outcomes, got.Requests, got.Retried, got.Offered)
		}
		if got.Peak > got.Slots || got.Window > float64(got.Burst) {
			r.Fatalf("%d calls at once in %d slots, a window with %v starts beyond its rate, and a burst of %d", got.Peak, got.Slots, got.Window, got.Burst)
		}
	})
	if ran < 10 {
		t.Errorf("only %d models could be run", ran)
	}
}
