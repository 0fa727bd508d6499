package gate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// town is a closed loop in virtual time: clients that obey, instances with a desk each, one gate, one promise. Every decision is
// the core's; reads of the promise are as old as the lag.
type town struct {
	*testing.T
	rng      *rand.Rand
	state    State
	now      Micros
	events   agenda
	seq      int
	patience time.Duration
	lag      Micros
	promise  []was
	desks    []*desk
	without  bool // everybody is told the gate's own time
	heard    func(Refusal)
	takes    func() time.Duration

	tries, in        int
	last             Micros
	refusals, writes int
	failed, reads    int
}

type was struct {
	at Micros
	p  Promise
}

type desk struct {
	*Desk
	busy    bool // one caller at a time
	waiting []func()
	seen    Promise
	seenAt  Micros
	any     bool
}

type occasion struct {
	at  Micros
	seq int
	do  func()
}
type agenda []occasion

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(occasion)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}

func newTown(t *testing.T, seed uint64, k Knobs, instances int, patience time.Duration) *town {
	w := &town{T: t, rng: rand.New(rand.NewPCG(seed, 1)), state: NewState(k, noon, false), now: noon, patience: patience, lag: 10_000}
	w.takes = func() time.Duration { return 300 * time.Millisecond }
	w.state.Latency = 300
	w.promise = []was{{noon, Promise{}}}
	for range instances {
		w.desks = append(w.desks, &desk{Desk: NewDesk(w.rng.Uint64())})
	}
	return w
}

func (w *town) at(t Micros, do func()) {
	w.seq++
	heap.Push(&w.events, occasion{max(t, w.now), w.seq, do})
}

func (w *town) run(until Micros) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(occasion)
		w.now = e.at
		e.do()
	}
	w.now = max(w.now, min(until, w.now))
}

func (w *town) seenBefore(t Micros) Promise {
	for i := len(w.promise) - 1; i > 0; i-- {
		if w.promise[i].at <= t {
			return w.promise[i].p
		}
	}
	return w.promise[0].p
}

// call is one client's try; done gets the Retry-After, 0: it was served.
func (w *town) call(name string, instance int, done func(time.Duration)) {
	w.seq++
	r := Request{ID: fmt.Sprintf("%-5.5s%07d", FlowOf(name), w.seq), Key: Key{Interactive, name}, Patience: w.patience}
	served := func(l *Lease) {
		took := w.takes()
		w.at(w.now+micros(took), func() {
			f := w.state.PlanRelease(w.now, l, Outcome{Kind: Succeeded, Took: took})
			w.state = f.Apply(w.state)
		})
		done(0)
	}
	a, q, refusal := w.state.Plan(w.now, r)
	switch {
	case a != nil:
		w.state = a.Apply(w.state)
		served(w.state.Lease(r.ID, r.Key, w.now, a.End))
	case refusal != nil:
		w.send(instance, r, *refusal, done)
	default:
		w.state = q.Apply(w.state)
		began := w.now
		var look func()
		look = func() {
			c, rest, refusal := w.state.PlanClaim(w.now, r, nil)
			left := w.patience - time.Duration(w.now-began)*time.Microsecond
			switch {
			case refusal == nil && left <= 0:
				refusal = w.state.WaitedInVain(w.now, r.ID)
				fallthrough
			case refusal != nil:
				cancel, _ := w.state.PlanCancel(r.ID, r.Key)
				w.state = cancel.Apply(w.state)
				w.send(instance, r, *refusal, done)
			case rest > 0:
				w.at(w.now+micros(min(rest, left)), look)
			case c.Holds(w.state):
				w.state = c.Apply(w.state)
				served(w.state.Lease(r.ID, r.Key, w.now, c.End))
			default:
				w.Errorf("a claim does not hold where it was planned")
			}
		}
		look()
	}
}

// send is what the store does with a refusal.
func (w *town) send(instance int, r Request, refusal Refusal, done func(time.Duration)) {
	w.refusals++
	if w.heard != nil {
		w.heard(refusal)
	}
	d := w.desks[instance]
	c, shared := w.state.Send(w.now, r, refusal)
	if !shared || w.without {
		done(refusal.RetryAfter)
		return
	}
	answer := func(place Micros) {
		done(c.RetryAfter(place))
		if d.busy = len(d.waiting) > 0; d.busy {
			next := d.waiting[0]
			d.waiting = d.waiting[1:]
			next()
		}
	}
	ask := func() {
		w.seq++
		place, write := d.Ask(c, fmt.Sprint(w.seq), d.seen)
		if write == nil {
			answer(place)
			return
		}
		w.at(w.now+w.lag, func() {
			w.writes++
			p := w.promise[len(w.promise)-1].p
			held := write.Holds(p)
			if held {
				p = write.Apply(p)
				w.promise = append(w.promise, was{w.now, p})
			} else {
				w.failed++
			}
			d.seen, d.seenAt = p, w.now
			switch {
			case place != 0:
			case held:
				place = d.Took(c, *write, p)
			default:
				place = d.Missed(c, p)
			}
			answer(place)
		})
	}
	serve := func() {
		if place, ok := d.Deal(c); ok {
			answer(place)
			return
		}
		if d.any && w.now-d.seenAt <= 100_000 {
			ask()
			return
		}
		w.reads++ // look first
		asked := w.now
		w.at(w.now+w.lag, func() {
			d.any, d.seen, d.seenAt = true, w.seenBefore(asked-w.lag), w.now
			ask()
		})
	}
	if d.busy {
		d.waiting = append(d.waiting, serve)
		return
	}
	d.busy = true
	serve()
}

// obey is a client that comes back when it is told to until it is served.
func (w *town) obey(name string, at Micros) {
	var try func()
	try = func() {
		w.tries++
		w.call(name, w.rng.IntN(len(w.desks)), func(after time.Duration) {
			if after == 0 {
				w.in++
				w.last = max(w.last, w.now)
				return
			}
			w.at(w.now+micros(after)+Micros(20_000+w.rng.IntN(80_000)), try)
		})
	}
	w.at(at, try)
}

func crowdKnobs() Knobs {
	k := testKnobs()
	k.MaxInFlight, k.RatePerSecond, k.Burst, k.MaxQueued = 4, 5, 10, 24
	return k
}

// P10, whether callers may wait in a line or not. A crowd of a hundred on ten instances takes eleven or twelve writes: one of each instance, so that a
// lone caller is told the gate's own time, and one more of those that send away more than twelve. What a flood costs: TestAFlood....
func TestACrowdThatObeysNeedsTwoTries(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine: run without the race detector")
	}
	const size, seeds = 100, 40
	k := crowdKnobs()
	bucket := k.Bucket()
	for _, c := range []struct {
		patience, over time.Duration
		instances      int
		tries, writes  float64
	}{
		{0, 200 * time.Millisecond, 1, 2.1, 0.11},
		{0, 200 * time.Millisecond, 10, 2.1, 0.12},
		{0, 200 * time.Millisecond, 50, 2.1, 0.22},
		{0, 200 * time.Millisecond, 100, 2.1, 0.24},
		{0, 0, 10, 2.7, 0.13},
		{0, 0, 50, 2.7, 0.45},
		{0, 0, 100, 2.7, 0.63},
		{0, 5 * time.Second, 50, 2.1, 0.17},
		{3 * time.Second, 200 * time.Millisecond, 10, 2.1, 0.15},
		{3 * time.Second, 200 * time.Millisecond, 50, 2.1, 0.29},
		{3 * time.Second, 200 * time.Millisecond, 100, 2.1, 0.32},
		{3 * time.Second, 0, 10, 2.7, 0.15},
		{3 * time.Second, 0, 100, 2.7, 0.70},
	} {
		ideal := (size - float64(bucket.Tokens(0, int64(noon)))) / k.RatePerSecond
		var tries, last, worst, writes, reads, refusals float64
		for seed := range seeds {
			w := newTown(t, uint64(seed), k, c.instances, c.patience)
			for i := range size {
				w.obey(fmt.Sprint("client", i), noon+Micros(w.rng.Int64N(int64(micros(c.over))+1)))
			}
			w.run(noon + 1e9)
			if w.in != size {
				t.Fatalf("%d of %d are in", w.in, size)
			}
			tries += float64(w.tries) / size / seeds
			in := time.Duration(w.last-noon) * time.Microsecond
			last += in.Seconds() / seeds
			worst = max(worst, in.Seconds())
			writes, reads, refusals = writes+float64(w.writes), reads+float64(w.reads), refusals+float64(w.refusals)
		}
		t.Logf("seeds 0-%d, MAX_WAIT %v, %d over %v on %d instances: %.2f tries, last in after %.1f s (longest %.1f, ideal %.1f), %.3f writes and %.2f reads for each refusal",
			seeds-1, c.patience, size, c.over, c.instances, tries, last, worst, ideal, writes/refusals, reads/refusals)
		if tries > c.tries || last > 2*ideal || writes/refusals > c.writes {
			t.Errorf("more than %v tries, %.1f s or %v writes", c.tries, 2*ideal, c.writes)
		}
	}
}

// What the places are for: told the gate's own time only, the same crowd tries again and again.
func TestWithoutPlacesACrowdNeedsManyTries(t *testing.T) {
	for _, patience := range []time.Duration{0, 3 * time.Second} {
		w := newTown(t, 0, crowdKnobs(), 10, patience)
		w.without = true
		for i := range 100 {
			w.obey(fmt.Sprint("client", i), noon+Micros(w.rng.Int64N(200_000)))
		}
		w.run(noon + 1e9)
		t.Logf("seed 0, MAX_WAIT %v: %.2f tries", patience, float64(w.tries)/100)
		if w.in != 100 || w.tries < 280 {
			t.Errorf("%d of 100 are in after %d tries: the places are for nothing", w.in, w.tries)
		}
	}
}
