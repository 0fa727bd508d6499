package simulate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vingate/internal/gate"
)

// spans is how many parts of the time the report shows.
const spans = 240

// mostHistograms is how many tenants have their waits kept one by one.
const mostHistograms = 4096

// span is one part of the time.
type span struct {
	counts        [outcomes]uint32
	writes, reads [kinds]float32
	calls         uint32
	busy, lined   float64 // request-microseconds: calls under way, tickets in the line
	slots, held   float64 // microseconds: slots in force, a hold; of all gates together
	waits         histogram
}

// tally is what became of some requests.
type tally struct {
	counts  [outcomes]int64
	waits   histogram // at the gate, of those who were admitted
	refused histogram // until a refusal went out
	stored  histogram // until a stored answer went out
}

// mine is what one tenant got.
type mine struct {
	asked, live, refused uint32 // of the gate: stored answers not counted
}

// book keeps what is reported.
type book struct {
	length gate.Micros // of a span
	spans  []span
	on     int         // the span that is on
	next   gate.Micros // when the next one begins
	routes [2]tally
	stream []tally
	own    []mine
	waits  []histogram // by tenant, nil where there are too many

	offer, requests, retried int64
	calls_, peak, peakLine   int
	vain, tokens             int64
	refused                  int64   // for want of the shared budget
	refusedUnits             float64 // that they cost
	asked                    int64   // questions to the core's Plan
	stale, putOff            int64   // stale answers that went out, refreshes that were put off
	pauses                   []*Pause
	busy                     float64
	writes, reads            [kinds]float64
	nWrites, nReads          [kinds]int64

	lineLive int
	lineFrom gate.Micros
	start    gate.Micros
}

func newBook(s *sim) *book {
	length := max(1, micros(s.For)/spans)
	return &book{length: length, spans: make([]span, spans+1), stream: make([]tally, len(s.Streams)), start: s.start, next: s.start + length, lineFrom: s.start}
}

func (b *book) tenants(s *sim) {
	b.own = make([]mine, len(s.callers))
	if len(s.callers) <= mostHistograms {
		b.waits = make([]histogram, len(s.callers))
	}
	s.liveFrom = s.start
}

// span of a time, which never goes back; what goes on after the last request came belongs to the last.
func (b *book) span(now gate.Micros) *span {
	for now >= b.next && b.on < spans-1 {
		b.on++
		b.next += b.length
	}
	return &b.spans[b.on]
}

func (b *book) offered(*sim, *request) { b.offer++ }

func (b *book) read(now gate.Micros, k kind, units float64) {
	b.reads[k] += units
	b.nReads[k]++
	b.span(now).reads[k] += float32(units)
}

func (b *book) write(now gate.Micros, k kind, units float64) {
	b.writes[k] += units
	b.nWrites[k]++
	b.span(now).writes[k] += float32(units)
}

// spread adds n for the time from then to now.
func (b *book) spread(from, to gate.Micros, n int, add func(*span, float64)) {
	for from < to {
		i := min(spans-1, max(0, int((from-b.start)/b.length)))
		end := to
		if i < spans-1 {
			end = min(to, b.start+gate.Micros(i+1)*b.length)
		}
		add(&b.spans[i], float64(n)*float64(end-from))
		from = end
	}
}

func (b *book) liveFor(s *sim, n int, from gate.Micros) {
	if n > 0 {
		b.spread(from, s.now, n, func(p *span, x float64) { p.busy += x })
	}
}

// line notes that a ticket was taken or given back.
func (b *book) line(s *sim, r *request) {
	if b.lineLive > 0 {
		b.spread(b.lineFrom, s.now, b.lineLive, func(p *span, x float64) { p.lined += x })
	}
	b.lineFrom, b.lineLive = s.now, 0
	for _, g := range s.items {
		b.lineLive += len(g.cur.s.Tickets)
	}
	b.peakLine = max(b.peakLine, b.lineLive)
}

func (b *book) calls(s *sim, r *request) {
	b.calls_++
	if s.now <= s.end {
		b.tokens += int64(s.cost(r))
	}
	b.span(s.now).calls++
	if r.refreshes { // it waits for nothing
		return
	}
	wait := time.Duration(s.now-r.asked) * time.Microsecond
	b.span(s.now).waits.add(wait)
	route := 0
	if r.size > 0 {
		route = 1
	}
	b.routes[route].waits.add(wait)
	b.stream[r.source].waits.add(wait)
	if b.waits != nil {
		b.waits[r.tenant].add(wait)
	}
}

func (b *book) ended(s *sim, r *request) {
	if r.try > 0 {
		b.retried++
	}
	b.requests++
	o := r.outcome
	b.span(s.now).counts[o]++
	route := 0
	if r.size > 0 {
		route = 1
	}
	switch o {
	case NoToken, LineFull, NoSlotInTime, PlacesFull, OwnFull:
		b.refused++
		b.refusedUnits += r.bill
	case Throttled, Unavailable, UpstreamThrottled, UpstreamFailed:
		if p := s.instances[r.in].item.pause.now; p != nil {
			p.Refused++
		}
	}
	if r.stale {
		b.stale++
	}
	took := time.Duration(s.now-r.began) * time.Microsecond
	b.busy += took.Seconds()
	bucket := bucketOf(took)
	for _, t := range [2]*tally{&b.routes[route], &b.stream[r.source]} {
		t.counts[o]++
		switch {
		case o.stored():
			t.stored[bucket]++
		case o.refusal():
			t.refused[bucket]++
		}
	}
	if !o.stored() && o != Shared && o != Refreshed && o != NoInstance {
		m := &b.own[r.tenant]
		m.asked++
		if o == Live {
			m.live++
		} else {
			m.refused++
		}
	}
}

// Prices in USD, us-east-1: for a million, but for log volume, which is for a GB, and computing, for a million GB-seconds. internal/deploytest
// computes the operator's guide with the same.
const (
	priceWrites, priceReads     = 0.625, 0.125 // DynamoDB, on demand
	priceRequests, priceCompute = 0.20, 13.3334
	priceAPI, priceLogs         = 1.00, 0.50
	memoryGB, loggedKB          = 0.5, 2.0
)

// Report is what came of a run.
type Report struct {
	Command     string        `json:"command,omitempty"` // that made it
	Seed        uint64        `json:"seed"`
	For         time.Duration `json:"-"`
	ForSeconds  float64       `json:"forSeconds"`
	Offered     int64         `json:"offered"`  // requests, without those that came back
	Requests    int64         `json:"requests"` // with them
	Retried     int64         `json:"retried"`
	Counts      []Count       `json:"outcomes"`
	Refused     float64       `json:"refusedShare"` // of all requests
	Stored      float64       `json:"storedShare"`
	Calls       int           `json:"calls"` // to NHTSA
	Use         float64       `json:"budgetUse"`
	Peak        int           `json:"peakInFlight"`
	Slots       int           `json:"slots"`
	Window      float64       `json:"fullestWindow"` // starts beyond rate x its length, in the fullest window
	Burst       int           `json:"burst"`
	PeakLine    int           `json:"longestLine"`
	Fairness    float64       `json:"fairness"` // Jain's index of what each tenant got of its fair share
	Routes      []Group       `json:"routes"`
	Streams     []Group       `json:"streams"`
	Tenants     []Tenant      `json:"tenants"` // the ten that asked NHTSA most
	NTenants    int           `json:"tenantCount"`
	Dynamo      []Units       `json:"dynamo"`
	PerRefusal  float64       `json:"writesPerRefusal"` // write units on gate and promise, of those refused for want of the shared budget
	PerCall     float64       `json:"gateWriteUnitsPerCall"`
	InVain      int64         `json:"writesInVain"`
	GateWrites  float64       `json:"gateWritesPerSecond"` // on average
	MostWrites  float64       `json:"mostGateWrites"`      // in a second, on one gate
	MostReads   float64       `json:"mostGateReads"`       // units
	MostAccount float64       `json:"mostAccountReads"`    // units in a second, on one tenant's account
	MostPromise float64       `json:"mostPromiseReads"`    // units in a second
	PromiseW    float64       `json:"mostPromiseWrites"`   // in a second
	Month       []Cost        `json:"usdPerMonth"`         // of 30 days
	PerMillion  float64       `json:"usdPerMillion"`       // requests
	Busy        float64       `json:"busyInstances"`       // on average
	Instances   int           `json:"instances"`           // that were used
	Course      []Point       `json:"course"`
	Waits       []WaitBucket  `json:"waits"`
	Asked       int64         `json:"questionsToTheCore"`
	Stale       int64         `json:"staleShown"`      // answers past CACHE_SOFT_TTL that went out
	PutOff      int64         `json:"refreshesPutOff"` // of those, where a refresh was tried and there was no room
	Pauses      []*Pause      `json:"pauses"`          // that NHTSA's trouble led to
	Took        time.Duration `json:"-"`
	NotModelled []string      `json:"notModelled"`
	Setup       Setup         `json:"-"`
}

// Count is how many requests had an outcome.
type Count struct {
	Outcome Outcome `json:"-"`
	Name    string  `json:"name"`
	Code    string  `json:"code"`
	Text    string  `json:"text"`
	N       int64   `json:"n"`
	Share   float64 `json:"share"`
}

// Quantiles of some waits, in seconds.
type Quantiles struct {
	N   uint64  `json:"n"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func (h *histogram) quantiles() Quantiles {
	return Quantiles{h.n(), h.quantile(.5).Seconds(), h.quantile(.95).Seconds(), h.quantile(.99).Seconds()}
}

// Group is a route, or a kind of callers.
type Group struct {
	Name     string    `json:"name"`
	Requests int64     `json:"requests"`
	Answered int64     `json:"answered"`
	Live     int64     `json:"live"`
	Refused  int64     `json:"refused"`
	Fairness float64   `json:"fairness,omitempty"` // of a stream's callers among themselves
	Wait     Quantiles `json:"wait"`               // for a place at NHTSA, of those who got one
	Refusals Quantiles `json:"refusals"`           // until a refusal went out
	Stored   Quantiles `json:"stored"`             // until a stored answer went out
}

// Tenant is what one caller got of what has to be asked of NHTSA.
type Tenant struct {
	ID     string     `json:"id"`
	Stream string     `json:"stream"`
	Asked  int64      `json:"asked"`
	Live   int64      `json:"live"`
	Wait   *Quantiles `json:"wait,omitempty"`
}

// Units of DynamoDB.
type Units struct {
	Item       string  `json:"item"`
	Writes     int64   `json:"writes"`
	WriteUnits float64 `json:"writeUnits"`
	Reads      int64   `json:"reads"`
	ReadUnits  float64 `json:"readUnits"`
}

// Cost is a part of the bill.
type Cost struct {
	What string  `json:"what"`
	USD  float64 `json:"usd"`
}

// Point is one part of the time; rates are per second.
type Point struct {
	At         float64            `json:"at"` // hours after the start
	Rates      [outcomes]float64  `json:"-"`
	ByName     map[string]float64 `json:"rates"`
	Calls      float64            `json:"calls"`
	InFlight   float64            `json:"inFlight"`
	Line       float64            `json:"line"`
	P50        float64            `json:"waitP50"`
	P95        float64            `json:"waitP95"`
	Slots      float64            `json:"slots,omitempty"` // in force, where NHTSA may say no
	Held       float64            `json:"held,omitempty"`  // share of the time
	WriteUnits float64            `json:"writeUnits"`
	ReadUnits  float64            `json:"readUnits"`
}

// WaitBucket counts waits up to Seconds.
type WaitBucket struct {
	Seconds float64 `json:"seconds"`
	N       uint64  `json:"n"`
}

func (b *book) report(s *sim) *Report {
	b.line(s, nil)
	s.countLive(0)
	if s.troubled {
		for _, g := range s.items {
			g.pause.passes(s, &g.cur.s)
		}
	}
	seconds := s.For.Seconds()
	r := &Report{Seed: s.Seed, For: s.For, ForSeconds: seconds, Offered: b.offer, Requests: b.requests, Retried: b.retried, Calls: b.calls_,
		Peak: b.peak, Slots: s.Knobs.MaxInFlight * s.Gates, Window: s.oracle.fullest, Burst: s.Knobs.Burst * s.Gates, PeakLine: b.peakLine,
		NTenants: len(s.callers), InVain: b.vain, Asked: b.asked, Stale: b.stale, PutOff: b.putOff, Pauses: b.pauses, NotModelled: NotModelled, Setup: s.Setup, Busy: b.busy / seconds, Instances: s.warm}
	var all tally
	for i, name := range []string{"single decodes", "batches"} {
		t := &b.routes[i]
		for o, n := range t.counts {
			all.counts[o] += n
		}
		all.waits.merge(&t.waits)
		if g := group(name, t); g.Requests > 0 {
			r.Routes = append(r.Routes, g)
		}
	}
	for i := range b.stream {
		g := group(s.Streams[i].Name, &b.stream[i])
		first := s.sources[i].first
		g.Fairness = fairness(b.own[first : first+int32(s.Streams[i].Tenants)])
		r.Streams = append(r.Streams, g)
	}
	var refused, stored, live int64
	for o, n := range all.counts {
		o := Outcome(o)
		r.Counts = append(r.Counts, Count{o, o.String(), o.Code(), o.Text(), n, share(n, b.requests)})
		switch {
		case o.refusal():
			refused += n
		case o.stored():
			stored += n
		case o == Live, o == Refreshed:
			live += n
		}
	}
	r.Refused, r.Stored = share(refused, b.requests), share(stored, b.requests)
	tokens := s.bucket.Tokens(-s.bucket.H-1, 0)
	r.Use = float64(b.tokens) / (float64(s.Gates) * (float64(tokens) + s.Knobs.RatePerSecond*seconds))
	r.Fairness = fairness(b.own)
	r.Tenants = b.top(s)
	var writes, reads float64
	for k := range kinds {
		r.Dynamo = append(r.Dynamo, Units{kindNames[k], b.nWrites[k], b.writes[k], b.nReads[k], b.reads[k]})
		writes += b.writes[k]
		reads += b.reads[k]
	}
	for _, g := range s.items {
		r.MostWrites, r.MostReads = max(r.MostWrites, g.reads.mostWrites), max(r.MostReads, g.reads.mostReads)
		r.MostPromise, r.PromiseW = max(r.MostPromise, g.promiseReads.mostReads), max(r.PromiseW, g.promiseReads.mostWrites)
	}
	for i := range s.callers {
		r.MostAccount = max(r.MostAccount, s.callers[i].reads.mostReads)
	}
	if b.refused > 0 {
		r.PerRefusal = b.refusedUnits / float64(b.refused)
	}
	r.GateWrites = b.writes[gates] / seconds
	if live > 0 {
		r.PerCall = b.writes[gates] / float64(live)
	}
	month := 30 * 24 * 3600 / seconds / 1e6
	r.Month = []Cost{
		{"DynamoDB writes", writes * priceWrites * month},
		{"DynamoDB reads", reads * priceReads * month},
		{"Lambda", (float64(b.requests)*priceRequests + b.busy*memoryGB*priceCompute) * month},
		{"API Gateway", float64(b.requests) * priceAPI * month},
		{"logs", float64(b.requests) * loggedKB * priceLogs * month},
	}
	total := 0.0
	for _, c := range r.Month {
		total += c.USD
	}
	r.Month = append(r.Month, Cost{"together", total})
	if b.requests > 0 {
		r.PerMillion = total / month / float64(b.requests)
	}
	for i := range b.spans[:spans] {
		p := &b.spans[i]
		at := float64(b.length) / 1e6
		pt := Point{At: (float64(i) + .5) * at / 3600, ByName: map[string]float64{}, Calls: float64(p.calls) / at, InFlight: p.busy / float64(b.length),
			Line: p.lined / float64(b.length), Slots: p.slots / float64(b.length), Held: p.held / float64(b.length) / float64(s.Gates), P50: p.waits.quantile(.5).Seconds(), P95: p.waits.quantile(.95).Seconds()}
		for o, n := range p.counts {
			pt.Rates[o] = float64(n) / at
			if n > 0 {
				pt.ByName[Outcome(o).String()] = pt.Rates[o]
			}
		}
		for k := range kinds {
			pt.WriteUnits += float64(p.writes[k]) / at
			pt.ReadUnits += float64(p.reads[k]) / at
		}
		r.Course = append(r.Course, pt)
	}
	for i, n := range all.waits {
		if n > 0 {
			r.Waits = append(r.Waits, WaitBucket{edges[i].Seconds(), uint64(n)})
		}
	}
	return r
}

func share(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func group(name string, t *tally) Group {
	g := Group{Name: name, Wait: t.waits.quantiles(), Refusals: t.refused.quantiles(), Stored: t.stored.quantiles(), Live: t.counts[Live] + t.counts[Refreshed]}
	for o, n := range t.counts {
		g.Requests += n
		if Outcome(o).answer() {
			g.Answered += n
		} else {
			g.Refused += n
		}
	}
	return g
}

// fairness is Jain's index of what each of some callers got of its fair share of the calls that these got (max-min: all it asked for, or as much as
// anybody who wanted more). More than the share counts as all of it, so 1 means that nobody was left short, and 1/n that one got everything.
func fairness(own []mine) float64 {
	var asks, have []float64
	got := 0.0
	for _, m := range own {
		if m.asked > 0 {
			asks, have = append(asks, float64(m.asked)), append(have, float64(m.live))
			got += float64(m.live)
		}
	}
	if got == 0 {
		return 1
	}
	level := waterLevel(slices.Clone(asks), got)
	var sum, squares float64
	for i := range asks {
		x := min(1, have[i]/min(asks[i], level))
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(asks)) * squares)
}

// waterLevel is the most that anybody gets when so much is dealt out fairly.
func waterLevel(asks []float64, left float64) float64 {
	slices.Sort(asks)
	for i, a := range asks {
		each := left / float64(len(asks)-i)
		if a >= each {
			return each
		}
		left -= a
	}
	return math.Inf(1)
}

func (b *book) top(s *sim) []Tenant {
	var ids []int
	for i, m := range b.own {
		if m.asked > 0 {
			ids = append(ids, i)
		}
	}
	slices.SortFunc(ids, func(x, y int) int { return cmp.Or(cmp.Compare(b.own[y].asked, b.own[x].asked), cmp.Compare(x, y)) })
	var out []Tenant
	for _, i := range ids[:min(len(ids), 10)] {
		m := b.own[i]
		t := Tenant{ID: s.callers[i].id, Asked: int64(m.asked), Live: int64(m.live)}
		for n, src := range s.sources {
			if int32(i) >= src.first {
				t.Stream = s.Streams[n].Name
			}
		}
		if b.waits != nil {
			q := b.waits[i].quantiles()
			t.Wait = &q
		}
		out = append(out, t)
	}
	return out
}
