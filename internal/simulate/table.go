package simulate

import (
	"strconv"
	"strings"
	"time"

	"vingate/internal/gate"
)

// version is the gate item between two writes. It never changes, so that views of it can be kept.
type version struct {
	at    gate.Micros
	s     gate.State
	units float64 // of a write that leaves it

	// What the core says about it, for callers of whom it has nothing: see plan and send.
	refusals []knownRefusal
	sent     []knownSent
}

// ringLength is more versions than fit into the oldest read at any rate a gate can have.
const ringLength = 256

// item is one gate in the table, with its promise.
type item struct {
	knobs int // bytes they take, packed
	cur   *version
	ring  [ringLength]*version
	n     int
	reads window
	// the promise
	promise  gate.Promise
	promises [ringLength]struct {
		at gate.Micros
		p  gate.Promise
	}
	promised     int
	promiseReads window

	number int   // from 0 on
	nhtsa  nhtsa // as the calls of this gate's address find it
	pause  pausing
}

// window counts the units of one item in the second that is on.
type window struct {
	second        int64
	reads, writes float64
	mostReads     float64
	mostWrites    float64
}

func (w *window) turn(now gate.Micros) {
	if second := int64(now) / 1e6; second != w.second {
		w.second, w.reads, w.writes = second, 0, 0
	}
}

// read counts a read; false: the item is throttled.
func (w *window) read(now gate.Micros, units, most float64) bool {
	w.turn(now)
	w.reads += units
	w.mostReads = max(w.mostReads, w.reads)
	return most == 0 || w.reads <= most
}

func (w *window) write(now gate.Micros, units, most float64) bool {
	w.turn(now)
	w.writes += units
	w.mostWrites = max(w.mostWrites, w.writes)
	return most == 0 || w.writes <= most
}

// asOf is the item as a read of that time sees it.
func (g *item) asOf(t gate.Micros) *version {
	for i := 1; i < min(g.n, ringLength); i++ {
		if v := g.ring[(g.n-i)%ringLength]; v.at <= t {
			return v
		}
	}
	return g.ring[(g.n-min(g.n, ringLength))%ringLength]
}

func (g *item) put(now gate.Micros, s gate.State) {
	v := &version{at: now, s: s.Lasting(), units: 1}
	if len(s.Leases)+len(s.Tickets) > fewIDs {
		v.units = units(size(&s, g.knobs))
	}
	g.cur = v
	g.ring[g.n%ringLength] = v
	g.n++
}

// fewIDs leases and tickets, each with a place and a flow of its own, are far from one unit.
const fewIDs = 8

// until is when the first of its leases and tickets ends for anybody.
func (v *version) until() gate.Micros { return v.s.Lasts() }

// commit is a conditional write: it was applied, or its condition failed. Either way v is the item it left.
func (g *item) commit(now gate.Micros, w gate.Write) (ok bool, cost float64, v *version) {
	before := g.cur.units
	if !w.Holds(g.cur.s) {
		return false, before, g.cur
	}
	g.put(now, w.Apply(g.cur.s))
	return true, max(before, g.cur.units), g.cur
}

func (g *item) promiseAsOf(t gate.Micros) gate.Promise {
	for i := 1; i <= min(g.promised, ringLength); i++ {
		if p := &g.promises[(g.promised-i)%ringLength]; p.at <= t {
			return p.p
		}
	}
	return gate.Promise{}
}

func (g *item) reserve(now gate.Micros, w gate.Reserve) (ok bool, p gate.Promise) {
	if ok = w.Holds(g.promise); ok {
		g.promise = w.Apply(g.promise)
		last := &g.promises[g.promised%ringLength]
		last.at, last.p = now, g.promise
		g.promised++
	}
	return ok, g.promise
}

func units(bytes int) float64 { return float64(max(1, (bytes+1023)/1024)) }

// size is DynamoDB's of the item that package gate/dynamo makes of a state, whose knobs take so many bytes packed; a test holds it to that.
func size(s *gate.State, knobs int) int {
	n := len("pk") + len("gate#nhtsa") +
		1 + number(int64(s.Version)) + 1 + number(int64(s.Limit)) + 1 + knobs +
		1 + number(int64(s.TAT)) + 1 + number(int64(s.Hold)) + 1 + len(s.Reason) + 1 + number(int64(s.Latency)) +
		1 + number(int64(s.Turned)) + 1 + number(int64(s.Episodes)) + 1 + number(int64(s.Failures)) + 3*(1+3)
	for id, end := range s.Leases {
		n += 1 + len(id) + number(int64(end))
	}
	for id, t := range s.Tickets {
		tenths := int64(t.Deadline-t.Arrival) / 100
		n += 1 + len(id) + number(((int64(t.Arrival)*1000+tenths)*10+int64(t.Weight%10))*1000+int64(t.Cost))
	}
	for f, t := range s.Flows {
		n += 1 + len(f) + turn(t.Tag, int64(t.Since), t.Count)
	}
	n++
	if s.VirtualTime == 0 {
		n += number(0)
	} else {
		n += turn(s.VirtualTime, 0, 0)
	}
	for p, ids := range s.Places {
		n += len(p)
		for _, id := range ids {
			n += len(id)
		}
	}
	for f, ids := range s.Owned {
		n += 1 + len(f)
		for _, id := range ids {
			n += len(id) - len(f)
		}
	}
	if s.Pause != 0 {
		n += 1 + number(int64(s.Pause))
	}
	if len(s.Batch) > 0 {
		n++
		for _, id := range s.Batch {
			n += len(id)
		}
	}
	return n
}

// number is DynamoDB's size of a whole number.
func number(n int64) int {
	size := 1
	if n < 0 {
		n, size = -n, 2
	}
	for n > 0 && n%10 == 0 {
		n /= 10
	}
	digits := 0
	for ; n > 0; n /= 10 {
		digits++
	}
	return size + (digits+1)/2
}

// turn is the size of the number that a flow's turn is packed into: the tag, 12 digits of a time, 2 of a count.
func turn(tag, since int64, count int) int {
	text := strconv.AppendInt(make([]byte, 0, 40), tag, 10)
	text = padded(text, since, 12)
	text = padded(text, int64(count), 2)
	digits := strings.Trim(string(text), "0")
	return 1 + (len(digits)+1)/2
}

func padded(to []byte, n int64, width int) []byte {
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], n, 10)
	for range width - len(d) {
		to = append(to, '0')
	}
	return append(to, d...)
}

func micros(d time.Duration) gate.Micros { return gate.Micros(d.Microseconds()) }
