package results

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"
)

// The explorer walks every interleaving of three instances that ask one question: each step of each of them at any moment, a write whose answer is
// lost, a write that lands later than everything else, a leader that dies or freezes anywhere, and clocks that differ by the bound. It plays the
// rules of package decode's flights in small: look; follow, or ask to be elected; call; land or quit.
//
// One tick is a millisecond here, the bound is one tick, a flight lasts two on its leader's clock.
const (
	tickBound  = 1
	tickFlight = 2
	tickLife   = 100 // of an answer
	tickStart  = 10  // of the walk
	tickEnd    = 22
)

// phase is where an instance is.
type phase byte

const (
	asks      phase = iota // is about to look
	found                  // has looked and knows what to do
	leads                  // was elected, has not called
	calls                  // its call is under way
	lands                  // has an answer
	quits                  // has none, and says so
	served                 // has an answer for its caller
	sentAway               // has a refusal for its caller
	dead                   // was killed
	thawsLast              // froze with its last write under way
)

// inst is one instance.
type inst struct {
	phase  phase
	clock  Millis // what its clock is off by
	seen   row
	id     string
	until  Millis // of its flight, on its own clock
	doubt  bool   // it does not know whether it was elected
	since  Millis // since when it has followed one leader, true time; 0: it does not
	leader string
	came   bool // it has looked at least once
	looked bool // in this tick
}

// late is a write under way that will land at some time, or never.
type late struct {
	w         write
	what, key string
}

func under(w write, what string) late { return late{w, what, fmt.Sprint(what, w)} }

// world is everything there is.
type world struct {
	now    Millis // true time
	row    row
	insts  [3]inst
	late   []late
	calls  int // made so far
	deaths int
	fails  int // calls that brought nothing
	unseen int // landings that came late: others could not know
	ids    int
	faults int // that may still happen
}

// row is a Row that can be compared. What the walk does not use is left out.
type row struct {
	fetched Millis
	flight  Flight
	verdict Verdict
}

func rowOf(r Row) row { return row{r.Fetched, r.Flight, r.Verdict} }

func (r row) whole() Row {
	return Row{Fetched: r.fetched, Flight: r.flight, Verdict: r.verdict}
}

var seed = maphash.MakeSeed()

// key is 64 bits of hash: among a million situations two are taken for one with a chance of 1 in 30 million.
func (w world) key() uint64 {
	type total struct {
		now                                  Millis
		row                                  row
		calls, deaths, fails, unseen, faults int
		insts                                [3]uint64
		late                                 [2]string
	}
	k := total{now: w.now, row: w.row, calls: w.calls, deaths: w.deaths, fails: w.fails, unseen: w.unseen, faults: w.faults}
	for n, i := range w.insts {
		if !i.alive() {
			i = inst{phase: i.phase, id: i.id} // nobody asks what else it knew
		}
		if i.phase != found {
			i.seen = row{}
		}
		k.insts[n] = maphash.Comparable(seed, i)
	}
	slices.Sort(k.insts[:]) // who is who makes no difference
	for n, l := range w.late {
		k.late[n] = l.key
	}
	return maphash.Comparable(seed, k)
}

func (w world) clone() world {
	w.late = slices.Clone(w.late)
	return w
}

// kept is the life of the row's answer.
func keptOf(r row) Span {
	if r.fetched == 0 {
		return Span{}
	}
	return Span{Fresh: r.fetched + tickLife, End: r.fetched + tickLife}
}

// alive says that an instance may still do something.
func (i inst) alive() bool { return i.phase < served }

// flying says that an instance leads, and lives.
func (i inst) flying() bool { return i.phase >= leads && i.phase <= quits }

// explorer walks, and keeps what it has seen.
type explorer struct {
	t       reporter
	broke   func(write) write  // leaves a clause out
	bound   time.Duration      // what flights allow for clocks
	outcome func(world) []bool // may a call answer, may it fail
	seen    map[uint64]bool
	ends    map[string]int
	trail   []string
	broken  bool
}

func (e *explorer) fault(format string, args ...any) {
	if !e.broken {
		e.t.Errorf("%s\nafter %s", fmt.Sprintf(format, args...), strings.Join(e.trail, "\n      "))
	}
	e.broken = true
}

func (e *explorer) walk(w world) {
	key := w.key()
	if e.broken || e.seen[key] {
		return
	}
	e.seen[key] = true
	moved := false
	step := func(what string, next world) {
		moved = true
		e.trail = append(e.trail, what)
		e.check(w, next)
		e.walk(next)
		e.trail = e.trail[:len(e.trail)-1]
	}
	for n := range w.insts {
		e.instance(w, n, step)
	}
	for n, l := range w.late { // a write lands late, or never
		next := w.clone()
		next.late = slices.Delete(next.late, n, n+1)
		if l.w.Holds(next.row.whole()) {
			next.row = rowOf(l.w.Apply(next.row.whole()))
			step("late: "+l.what, next)
		}
	}
	if w.now < tickEnd && e.mayPass(w) {
		next := w.clone()
		next.now++
		for n := range next.insts {
			next.insts[n].looked = false
		}
		step(fmt.Sprintf("time passes to %d", next.now), next)
	}
	if !moved {
		e.end(w)
	}
}

// mayPass: a leader that lives is over by its own end, whatever it does, so time does not go on without it. Nor does it without one who has to look:
// who has come looks at least once in a tick.
func (e *explorer) mayPass(w world) bool {
	for _, i := range w.insts {
		if i.flying() && w.now+i.clock >= i.until {
			return false
		}
		if i.phase == found || i.phase == asks && i.came && !i.looked {
			return false
		}
	}
	return true
}

func (e *explorer) instance(w world, n int, step func(string, world)) {
	i := w.insts[n]
	name := fmt.Sprintf("instance %d ", n)
	set := func(w world, change func(*inst)) world {
		next := w.clone()
		change(&next.insts[n])
		return next
	}
	// write sends a write of this instance: it is applied, or applied with its answer lost, or lands late.
	write := func(what string, x write, after func(w world, applied, known bool) world) {
		x = e.broke(x)
		now := w.clone()
		applied := x.Holds(now.row.whole())
		if applied {
			now.row = rowOf(x.Apply(now.row.whole()))
		}
		step(name+what+fmt.Sprintf(" (%v)", applied), after(now, applied, true))
		if w.faults > 0 {
			lost := now.clone()
			lost.faults--
			step(name+what+", answer lost", after(lost, applied, false))
			behind := w.clone()
			behind.faults--
			behind.late = append(behind.late, under(x, what))
			if i.phase == lands {
				behind.unseen++
			}
			step(name+what+", under way", after(behind, false, false))
			twice := now.clone()
			twice.faults--
			twice.late = append(twice.late, under(x, what+" again"))
			step(name+what+", sent twice", after(twice, applied, true))
		}
	}
	switch i.phase {
	case asks:
		step(name+"looks", e.decide(w, n))
	case found:
		until := i.until
		if !i.doubt || until <= w.now+i.clock { // an election that is tried again is the same one
			i.id, until = fmt.Sprint(w.ids), w.now+i.clock+tickFlight
		}
		x := i.seen.whole().PlanElect(i.id, endOf(until, e.bound), keptOf(i.seen))
		write("asks to lead", x, func(w world, applied, known bool) world {
			next := set(w, func(j *inst) {
				j.id, j.doubt = i.id, false
				if known && applied {
					j.phase, j.until = leads, until
				} else {
					j.phase, j.until, j.doubt = asks, until, true // it looks: what it met tells
				}
			})
			next.ids++
			if known && !applied { // the failed condition shows the row
				return e.decide(next, n)
			}
			return next
		})
	case leads:
		next := set(w, func(j *inst) { j.phase = calls })
		next.calls++
		step(name+"calls", next)
	case calls:
		may := e.outcome(w)
		if may[0] {
			step(name+"is answered", set(w, func(j *inst) { j.phase = lands }))
		}
		if may[1] {
			next := set(w, func(j *inst) { j.phase = quits })
			next.fails++
			step(name+"is not answered", next)
		}
	case lands:
		x := Land{Leader: i.id, Format: 1, Fetched: w.now + i.clock, Expires: 1}
		write("lands", x, func(w world, applied, known bool) world {
			return set(w, func(j *inst) { j.phase = served })
		})
	case quits:
		x := Quit{Leader: i.id, Verdict: Verdict{i.id, "budget", 1}}
		write("quits", x, func(w world, applied, known bool) world {
			return set(w, func(j *inst) { j.phase = sentAway })
		})
	}
	if i.alive() && i.phase != asks && w.faults > 0 {
		next := set(w, func(j *inst) { j.phase = dead })
		next.faults--
		if i.flying() {
			next.deaths++
		}
		step(name+"dies", next)
		if i.phase == lands { // it froze with its answer, and goes on when all is over
			next := set(w, func(j *inst) { j.phase = thawsLast })
			next.faults--
			next.deaths++
			next.late = append(next.late, under(e.broke(Land{Leader: i.id, Format: 1, Fetched: w.now + i.clock, Expires: 1}), "a frozen leader's landing"))
			step(name+"freezes", next)
		}
	}
}

// decide is a look, or the row that a failed condition showed, and what follows from it.
func (e *explorer) decide(w world, n int) world {
	next := w.clone()
	i := &next.insts[n]
	row, now := next.row.whole(), next.now+i.clock
	i.seen, i.came, i.looked = next.row, true, true
	if i.doubt && i.id != "" && row.Flight.Leader == i.id && row.Flight.End != 0 {
		i.phase, i.doubt, i.since = leads, false, 0
		return next
	}
	if i.leader != "" && row.Verdict.Leader == i.leader { // whom it follows was sent away on behalf of all
		i.phase, i.since = sentAway, 0
		return next
	}
	switch s := row.Stands(now, keptOf(next.row)); s.Kind {
	case Fresh, Stale:
		i.phase, i.since = served, 0
	case Follow:
		if i.leader != row.Flight.Leader {
			i.leader, i.since = row.Flight.Leader, next.now
		}
		i.phase = asks
	default:
		i.phase, i.since = found, 0
	}
	return next
}

// check holds for every step.
func (e *explorer) check(before, after world) {
	flying := 0
	for n, i := range after.insts {
		if i.flying() {
			flying++
		}
		// A follower sits behind one leader for no longer than the flight on the slowest clock, and one look.
		if i.since != 0 && after.now-i.since > tickFlight+4*tickBound+2 {
			e.fault("instance %d follows %s for %d ticks", n, i.leader, after.now-i.since)
		}
	}
	for n, i := range after.insts {
		if (i.phase == served || i.phase == sentAway) && i.id != "" && i.id == after.row.flight.Leader && after.row.flight.End != 0 && !slices.ContainsFunc(after.late, func(l late) bool { return ends(l.w, i.id) }) {
			e.fault("instance %d is done, and its flight is not", n)
		}
	}
	if flying > 1 {
		e.fault("%d leaders that live", flying)
	}
	if after.row.fetched < before.row.fetched {
		e.fault("an answer of %d gave way to one of %d", before.row.fetched, after.row.fetched)
	}
	if after.calls > 1+after.deaths+after.fails+after.unseen {
		e.fault("%d calls with %d deaths and %d failures", after.calls, after.deaths, after.fails)
	}
}

// ends says that a write ends a leader's flight.
func ends(w write, leader string) bool {
	if u, ok := w.(unless); ok {
		w = u.write
	}
	switch w := w.(type) {
	case Land:
		return w.Leader == leader
	case Quit:
		return w.Leader == leader
	}
	return false
}

// end holds when nothing more can happen.
func (e *explorer) end(w world) {
	kinds := ""
	for n, i := range w.insts {
		if i.alive() {
			e.fault("instance %d waits for ever: %+v", n, i)
		}
		kinds += []string{served: "served ", sentAway: "refused ", dead: "dead ", thawsLast: "frozen "}[i.phase]
	}
	e.ends[fmt.Sprintf("%s%d calls", kinds, w.calls)]++
}

// reporter is what is used of a test.
type reporter interface {
	Helper()
	Errorf(string, ...any)
	Logf(string, ...any)
}

// deep skips a walk where it would take minutes.
func deep(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("walked without the race detector: one goroutine has no races")
	}
}

func newExplorer(t reporter, outcome func(world) []bool) *explorer {
	return &explorer{t: t, outcome: outcome, broke: func(w write) write { return w }, bound: tickBound * time.Millisecond,
		seen: map[uint64]bool{}, ends: map[string]int{}}
}

func (e *explorer) run(clocks [3]Millis, faults int) {
	e.t.Helper()
	w := world{now: tickStart, faults: faults}
	for n := range w.insts {
		w.insts[n].clock = clocks[n]
	}
	e.walk(w)
	e.t.Logf("clocks %v, %d faults: %d situations, %d kinds of end", clocks, faults, len(e.seen), len(e.ends))
}

func answers(world) []bool { return []bool{true, false} }
func mayFail(world) []bool { return []bool{true, true} }

func TestEveryInterleavingOfThreeInstances(t *testing.T) {
	deep(t)
	for _, clocks := range [][3]Millis{{0, 0, 0}, {-tickBound, tickBound, 0}} {
		e := newExplorer(t, answers)
		e.run(clocks, 1)
		if t.Failed() {
			return
		}
		for _, want := range []string{"served served served 1 calls", "dead served served 1 calls", "dead served served 2 calls", "frozen served served 2 calls"} {
			if e.ends[want] == 0 {
				t.Errorf("never seen: %s, of %v", want, e.ends)
			}
		}
		for end := range e.ends {
			if strings.Contains(end, "refused") {
				t.Errorf("somebody was sent away although NHTSA answers: %s", end)
			}
		}
	}
}

// A leader that is sent away on behalf of all takes those who follow it along, and nobody else is kept waiting.
func TestEveryInterleavingOfCallsThatMayFail(t *testing.T) {
	e := newExplorer(t, mayFail)
	e.run([3]Millis{0, tickBound, -tickBound}, 0)
	for _, want := range []string{"served served served 1 calls", "refused refused refused 1 calls", "refused served served 2 calls"} {
		if !t.Failed() && e.ends[want] == 0 {
			t.Errorf("never seen: %s, of %v", want, e.ends)
		}
	}
}

// quiet takes down that something broke.
type quiet struct{ said string }

func (*quiet) Helper()                             {}
func (*quiet) Logf(string, ...any)                 {}
func (q *quiet) Errorf(format string, args ...any) { q.said = fmt.Sprintf(format, args...) }

// unless is a write whose condition or update lacks something.
type unless struct {
	write
	holds func(Row) bool
	apply func(Row) Row
}

func (u unless) Holds(r Row) bool {
	if u.holds != nil {
		return u.holds(r)
	}
	return u.write.Holds(r)
}

func (u unless) Apply(r Row) Row {
	if u.apply != nil {
		return u.apply(r)
	}
	return u.write.Apply(r)
}

// Each of these is left out once, and the walk must find what it is for.
func TestEveryClauseIsNeeded(t *testing.T) {
	deep(t)
	for name, tc := range map[string]struct {
		outcome func(world) []bool
		change  func(*explorer)
	}{
		"an election's look at the leader": {answers, func(e *explorer) {
			e.broke = func(w write) write {
				if x, ok := w.(Elect); ok {
					return unless{write: w, holds: func(r Row) bool { return r.Fetched == x.Seen.Fetched }}
				}
				return w
			}
		}},
		"an election's look at the answer": {answers, func(e *explorer) {
			e.broke = func(w write) write {
				if x, ok := w.(Elect); ok {
					return unless{write: w, holds: func(r Row) bool { return r.Flight.Leader == x.Seen.Leader }}
				}
				return w
			}
		}},
		"a landing's look at the answer": {answers, func(e *explorer) {
			e.broke = func(w write) write {
				if x, ok := w.(Land); ok {
					return unless{write: w, holds: func(r Row) bool { return r.Flight.Leader == "" || r.Flight.Leader == x.Leader }}
				}
				return w
			}
		}},
		"the leader whom a quit is for": {mayFail, func(e *explorer) {
			e.broke = func(w write) write {
				if _, ok := w.(Quit); ok {
					return unless{write: w, holds: func(Row) bool { return true }}
				}
				return w
			}
		}},
		"the leader's id that a quit leaves": {mayFail, func(e *explorer) {
			e.broke = func(w write) write {
				if _, ok := w.(Quit); ok {
					return unless{write: w, apply: func(r Row) Row { r = w.Apply(r); r.Flight = Flight{}; return r }}
				}
				return w
			}
		}},
		"what flights allow for clocks": {answers, func(e *explorer) { e.bound = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			var heard quiet
			for _, clocks := range [][3]Millis{{0, 0, 0}, {-tickBound, tickBound, 0}} {
				if e := newExplorer(&heard, tc.outcome); heard.said == "" {
					tc.change(e)
					e.run(clocks, 1)
				}
			}
			first, _, _ := strings.Cut(heard.said, "\n")
			t.Log(first)
			if heard.said == "" {
				t.Error("nothing breaks without it")
			}
		})
	}
}
