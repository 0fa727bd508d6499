package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"vingate/internal/gate"
	"vingate/internal/gcra"
	"vingate/internal/tenant"
)

// step is what happens next to a request. Of a write there are two: when it reaches the table, and when its answer is back.
type step byte

const (
	arrives step = iota // the next request of a source
	returns             // a refused caller, as Retry-After said
	ends                // the answer goes out

	looked  // the row of its answer has been read
	watched // and again, by one who follows another's flight
	knowsHold
	knowsAccount
	foresees // it is its turn in the instance
	foreseen // the gate has been read
	puts     // the refresh of a stale answer off
	put
	elects
	elected

	enters  // its turn in the instance
	outside // it has waited for a place of its own
	comes   // and it is its turn again
	planned
	rested // the instance's quiet is over
	admits
	admitted
	looks // a waiter
	waits
	soon // after a claim in vain
	claims
	claimed
	leaves // a waiter gives up
	cancels
	cancelled

	deals // its turn at the places of the instance
	asksPromise
	reserves
	reserved

	calls // NHTSA has answered
	frees
	freed
	lands
	landed
	quits
	quit
)

// instance is one Lambda instance.
type instance struct {
	item    *item
	skew    gate.Micros
	seen    *version
	seenAt  gate.Micros // on its clock
	asked   int
	shown   int
	manners gate.Manners

	entrance, counter turnstile

	desk      *gate.Desk
	promise   gate.Promise
	promiseAt gate.Micros // on its clock; 0: not seen
	failedAt  gate.Micros

	accounts map[int32]account
	memory   memory
	hushed   map[int32]gate.Micros // by VIN: a stale answer is shown without a look until then
}

// turnstile lets one request of an instance through at a time.
type turnstile struct {
	taken   bool
	waiting []int32
}

// account is what an instance remembers of a tenant.
type account struct {
	tat, at gate.Micros
}

// mostAccounts bounds what an instance remembers, as tenant/dynamo does.
const mostAccounts = 4096

// memory is an instance's memory of answers. It forgets what falls into the same place: popular VINs have small numbers and a place each, so
// that is nearly what was used longest ago.
type memory struct {
	slots []uint64 // VIN + 1, and when the answer was fetched
	n     int
}

const leastSlots, mostSlots = 64, 1 << 14 // answers of a kilobyte in 16 MB

func (m *memory) place(vin int32, n int) int { return int(vin) & (n - 1) }

func (m *memory) fetched(vin int32) (uint32, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	e := m.slots[m.place(vin, len(m.slots))]
	return uint32(e), e>>32 == uint64(vin)+1
}

func (m *memory) keep(vin int32, fetched uint32) {
	if m.n*2 >= len(m.slots) && len(m.slots) < mostSlots {
		old := m.slots
		m.slots, m.n = make([]uint64, max(leastSlots, 2*len(old))), 0
		for _, e := range old {
			if e != 0 {
				m.put(e)
			}
		}
	}
	m.put((uint64(vin)+1)<<32 | uint64(fetched))
}

func (m *memory) put(e uint64) {
	at := &m.slots[m.place(int32(e>>32-1), len(m.slots))]
	if *at == 0 {
		m.n++
	}
	*at = e
}

// caller is one tenant.
type caller struct {
	id     string
	flow   gate.Flow
	keyed  bool
	weight int
	places [2]gate.Place // interactive, batch
	tat    gate.Micros
	reads  window // of his account
}

// flight is one instance on the way to NHTSA on behalf of all who ask for a VIN.
type flight struct {
	over  bool
	all   bool // its refusal is everybody's
	why   Outcome
	retry time.Duration
	watch int // who follow it
}

// request is one request under way.
type request struct {
	brief
	dealings
}

// brief is what every request has.
type brief struct {
	index  int32
	source int32
	tenant int32
	vin    int32 // -1: nobody else asks for it
	size   int16 // VINs of a batch, 0: a single decode
	asks   int16 // of these: not stored
	try    int16
	in     int32 // instance
	began  gate.Micros
	asked  gate.Micros // the gate
	joined gate.Micros // the line

	view             *version
	exact            bool
	consistent, sure bool
	reads            byte // 1: of the gate, 2: of the promise, is under way
	server           gate.Micros
	number           int     // of its request to the table
	bill             float64 // write units on gate and promise
	broken           bool    // the table was throttled
	ok               bool
	resume           step // when its turn comes

	flight    *flight
	leads     bool
	refreshes bool // a stale answer, which goes out if nothing newer comes
	stale     bool // what goes out
	looks     int
	followers []int32 // of its own instance
	outcome   Outcome
	retry     time.Duration
	charged   gate.Micros
}

// dealings are those with the gate, of the few that have any: most requests find a stored answer.
type dealings struct {
	gr     gate.Request
	lots   [2]float64 // drawn once, for foreseeing and asking
	shy    float64
	age    time.Duration // of the view it foresees on
	fresh  bool
	wrote  bool
	writes int
	door   time.Duration // between two looks for a place of its own

	admit    *gate.Admit
	enqueue  *gate.Enqueue
	claim    gate.Claim
	cancel   gate.Cancel
	free     gate.Free
	attempts int
	met      *version
	watch    gate.Watch

	lease  *gate.Lease
	result gate.Outcome

	refusal gate.Refusal
	sent    gate.Sent
	place   gate.Micros
	reserve *gate.Reserve
	promise gate.Promise
	ID      string // of a block
}

const chunk = 1024

type sim struct {
	Setup
	rng    *rand.Rand
	now    gate.Micros
	start  gate.Micros
	end    gate.Micros
	events agenda
	shown  queue // of answers from memory
	seq    uint64

	chunks    [][]request
	spare     []int32
	items     []*item
	instances []instance
	idle      []int32 // an entry for each request a warm instance can take
	warm      int
	sources   []source
	callers   []caller
	bucketsT  [2]gate.Micros // a tenant's time for one token: anonymous, keyed

	fetched  []uint32              // by VIN: when its answer came, in seconds after one CacheTTL before the start, + 1; 0: none
	rests    map[int32]gate.Micros // by VIN: its stale answer is not refreshed until then
	flights  map[int32]*flight
	local    map[uint64]int32 // instance and VIN -> the request that flies
	zipf     ranks
	live     int // calls under way
	liveFrom gate.Micros
	oracle   oracle
	bucket   gcra.Bucket
	troubled bool // NHTSA may say no

	book *book
}

// Run simulates, until ctx ends.
func Run(ctx context.Context, m Setup) (*Report, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	s := newSim(m)
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	return s.book.report(s), nil
}

// run lets happen what happens until nothing is left.
func (s *sim) run(ctx context.Context) error {
	const look = 1 << 16 // events between two looks at ctx: some hundredths of a second
	for n := 1; s.step(); n++ {
		if n%look == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// step lets the next event happen; false: there is none.
func (s *sim) step() bool {
	e, waits := s.shown.first()
	switch {
	case waits && (len(s.events) == 0 || e.before(s.events[0])):
		s.shown.head++
	case len(s.events) == 0:
		return false
	default:
		e = s.events.pop()
	}
	s.now = e.at
	if e.do == arrives {
		s.arrive(&s.sources[e.who], e.who)
	} else {
		s.do(e.do, s.request(e.who))
	}
	return true
}

func newSim(m Setup) *sim {
	// A Monday at midnight, one week after the epoch of the gate's times.
	start := gate.MicrosOf(time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC))
	s := &sim{Setup: m, rng: rand.New(rand.NewPCG(m.Seed, 1)), now: start, start: start, end: start + micros(m.For),
		flights: map[int32]*flight{}, rests: map[int32]gate.Micros{}, zipf: newRanks(m.VINs, m.Zipf), bucket: m.Knobs.Bucket(), troubled: len(m.Troubles) > 0 || m.Failing > 0}
	if m.Concurrency > 1 {
		s.local = map[uint64]int32{}
	}
	knobs := len(m.Knobs.Pack())
	for n := range m.Gates {
		g := &item{knobs: knobs, number: n, nhtsa: newNHTSA(m.Troubles), pause: pausing{since: start}}
		g.put(start, gate.NewState(m.Knobs, start, false))
		s.items = append(s.items, g)
	}
	s.instances = make([]instance, m.Instances)
	for i := range s.instances {
		in := &s.instances[i]
		in.item = s.items[i%m.Gates]
		if m.ClockError > 0 {
			in.skew = gate.Micros(s.rng.Int64N(2*m.ClockError.Microseconds()+1) - m.ClockError.Microseconds())
		}
		in.desk = gate.NewDesk(s.rng.Uint64())
	}
	for s.warm < min(m.Warm, m.Instances) {
		for range m.Concurrency {
			s.idle = append(s.idle, int32(s.warm))
		}
		s.warm++
	}
	s.bucketsT = [2]gate.Micros{tokenTime(m.Anonymous), tokenTime(m.Keyed)}
	s.fetched = make([]uint32, m.VINs)
	ages := rand.New(rand.NewPCG(m.Seed, 2))
	for i := range s.zipf.upTo(m.Stored) {
		s.fetched[i] = s.second() - uint32(ages.Int64N(int64(m.CacheSoftTTL/time.Second)))
	}
	s.oracle = oracle{rate: m.Knobs.RatePerSecond * float64(m.Gates)}
	s.book = newBook(s)
	for i, stream := range m.Streams {
		src := source{Stream: stream, first: int32(len(s.callers)), from: start + micros(stream.From), until: s.end}
		if stream.For > 0 {
			src.until = min(s.end, src.from+micros(stream.For))
		}
		for n := range stream.Tenants {
			s.callers = append(s.callers, newCaller(i, n, stream))
		}
		src.begin(s.rng)
		s.sources = append(s.sources, src)
		if src.next < src.until {
			s.plan(src.next, arrives, int32(i))
		}
	}
	s.book.tenants(s)
	return s
}

func tokenTime(p tenant.Plan) gate.Micros { return gate.Micros(math.Round(1e6 / p.RatePerSecond)) }

func newCaller(stream, n int, of Stream) caller {
	id := name(stream, n)
	c := caller{id: id, flow: gate.FlowOf(id), keyed: of.Keyed, weight: max(1, of.Weight)}
	for i, route := range []gate.Route{gate.Interactive, gate.Batch} {
		c.places[i] = c.key(route).Place()
	}
	return c
}

func (c *caller) key(route gate.Route) gate.Key {
	if c.keyed {
		return gate.Key{Route: route, Tenant: c.id}
	}
	return gate.Key{Route: route, Tenant: gate.Anonymous}
}

// own is how many of the places that all anonymous callers share it may hold.
func (c *caller) own() int { return tenant.Caller{Anonymous: !c.keyed}.Own() }

func (c *caller) plan(m *Setup) tenant.Plan {
	if c.keyed {
		return m.Keyed
	}
	return m.Anonymous
}

// plan puts something into the agenda.
func (s *sim) plan(at gate.Micros, do step, who int32) {
	s.seq++
	s.events.push(event{at: max(at, s.now), seq: s.seq, who: who, do: do})
}

func (s *sim) after(r *request, d time.Duration, do step) { s.plan(s.now+micros(d), do, r.index) }

// wire is one way between an instance and DynamoDB.
func (s *sim) wire() gate.Micros {
	if s.WireMost == s.WireLeast {
		return micros(s.WireLeast)
	}
	return gate.Micros(s.WireLeast.Microseconds() + s.rng.Int64N((s.WireMost - s.WireLeast).Microseconds()))
}

func (s *sim) request(i int32) *request { return &s.chunks[i/chunk][i%chunk] }

// take is an unused request.
func (s *sim) take() *request {
	if len(s.spare) == 0 {
		n := int32(len(s.chunks) * chunk)
		s.chunks = append(s.chunks, make([]request, chunk))
		for i := int32(chunk) - 1; i >= 0; i-- {
			s.spare = append(s.spare, n+i)
		}
	}
	i := s.spare[len(s.spare)-1]
	s.spare = s.spare[:len(s.spare)-1]
	r := s.request(i)
	r.index = i
	return r
}

func (s *sim) give(r *request) {
	r.brief = brief{followers: r.followers[:0]} // the index is set again by take
	if r.gr.ID != "" {
		r.dealings = dealings{}
	}
}

func (r *request) route() gate.Route {
	if r.size > 0 {
		return gate.Batch
	}
	return gate.Interactive
}

func (s *sim) clock(r *request) gate.Micros { return s.now + s.instances[r.in].skew }

func (s *sim) do(do step, r *request) {
	switch do {
	case returns:
		s.begin(r)
	case ends:
		s.finish(r)
	case looked:
		s.looked(r)
	case watched:
		s.watched(r)
	case knowsHold:
		s.sawGate(r)
		s.knowsHold(r)
	case knowsAccount:
		s.knowsAccount(r)
	case foresees:
		if s.look(r, r.age, foreseen) {
			s.foreseen(r)
		}
	case foreseen:
		s.sawGate(r)
		s.foreseen(r)
	case puts:
		s.puts(r)
	case put:
		s.show(r)
	case elects:
		s.elects(r)
	case elected:
		s.elected(r)
	case enters:
		s.enters(r)
	case planned:
		s.sawGate(r)
		s.planned(r)
	case outside:
		s.turn(&s.instances[r.in].entrance, r, comes)
	case comes:
		if s.look(r, gate.FreshAge, planned) {
			s.planned(r)
		}
	case soon:
		if s.look(r, gate.RetryPause, waits) {
			s.waits(r)
		}
	case rested:
		r.writes++
		if s.look(r, gate.ViewAge, planned) {
			s.planned(r)
		}
	case admits:
		s.admits(r)
	case admitted:
		s.admitted(r)
	case looks:
		s.readGate(r, waits)
	case waits:
		s.sawGate(r)
		s.waits(r)
	case claims:
		s.sends(r, &r.claim, claimed)
	case claimed:
		s.claimed(r)
	case leaves:
		s.sawGate(r)
		s.leaves(r)
	case cancels:
		s.sends(r, &r.cancel, cancelled)
	case cancelled:
		s.cancelled(r)
	case deals:
		s.deals(r)
	case asksPromise:
		s.asksPromise(r)
	case reserves:
		s.reserves(r)
	case reserved:
		s.reserved(r)
	case calls:
		s.called(r)
	case frees:
		s.sends(r, &r.free, freed)
	case freed:
		s.freed(r)
	case lands:
		s.lands(r)
	case landed:
		s.plan(max(s.now, r.charged), ends, r.index)
	case quits:
		s.quits(r)
	case quit:
		if r.refreshes {
			s.show(r)
			return
		}
		s.plan(max(s.now, r.charged), ends, r.index)
	}
}
