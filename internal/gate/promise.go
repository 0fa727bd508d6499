package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"time"
)

// A crowd that is told the same second comes back in the same second. So whoever is sent away for want of the shared budget
// takes the next place in time, one grant behind the one before, and its Retry-After is its own place's. The places of all
// instances are one number, Promise.Until. To move it for everybody would cost a write each, so one in twelve moves it by
// twelve (Desk), and each takes a place near it (Sent.Place).
const (
	// block is how many places one write takes.
	block = 12

	// How far from Promise.Until a caller's place may lie. The count is a sample and uneven: places drawn from more than one block even
	// it out. Where callers may wait in a line, the line does most of that, and nobody needs to be told a later time for it.
	placesAround, placesAroundWithoutLine = 12, 30

	// spacing is the distance of two places in percent of a grant's time: what is left takes up the unevenness of places that
	// become whole seconds.
	spacing = 110

	// PromiseHorizon bounds the places: nobody is given one that is further away. Those who find none come back in the
	// PromiseOverflow after it. So a flood that does not come back costs a later caller at most the two together, and is
	// forgotten as fast as time goes by.
	PromiseHorizon  = time.Minute
	PromiseOverflow = PromiseHorizon / 4

	// HoldSpread is the time after the end of a hold over which those who were sent away by it come back.
	HoldSpread = 5 * time.Second

	// blockMemory is how long the id of a block is kept: longer than a write of it can be under way and two clocks may differ, and short
	// enough for an item of one write unit in a flood.
	blockMemory = time.Second
)

func micros(d time.Duration) Micros { return Micros(d.Microseconds()) }

// Promise is what all instances share about those they sent away.
type Promise struct {
	Round  int               // which time it is that the places begin anew; 0: there is no promise yet
	Until  Micros            // the last place that was taken
	Blocks map[string]Micros // ids of the blocks of the last moments, and when they were taken
}

// Reserve takes a block of places. Like every Write it is a condition and an update; it is not one of the gate's.
//
// It goes on where the last block ends; or, when everybody promised so far has been, it begins anew at From. Many instances may find that
// in the same moment: the first of them begins the next round, and the same write of the others goes on in it.
type Reserve struct {
	ID     string // of the block: a repeated write finds it and changes nothing
	Now    Micros
	From   Micros // nobody can be served before
	Step   Micros // the length of the block
	Round  int    // that was seen
	Fresh  bool   // begins the next round, or goes on in it
	Absurd Micros // a later Until is a mistake: begin anew
	Forget []string
}

// Bounds are where Until must lie for a block to be taken after it. A block before From may pass: a view that is slightly old is
// then still good enough. After a block that ends at the last moment, no place of another is within the horizon.
func (w Reserve) Bounds() (lo, hi Micros) {
	return w.From - w.Step, w.Now + micros(PromiseHorizon) - w.Step
}

// Checks is the condition, clause by clause.
func (w Reserve) Checks(p Promise) []Check {
	_, taken := p.Blocks[w.ID]
	lo, hi := w.Bounds()
	goesOn := p.Until >= lo && p.Until <= hi
	until := p.Round == w.Round && goesOn
	if w.Fresh {
		until = p.Round == w.Round && (p.Round == 0 || p.Until < w.From || p.Until > w.Absurd) || p.Round == w.Round+1 && goesOn
	}
	return []Check{{"id", !taken}, {"until", until}}
}

// Holds is the condition.
func (w Reserve) Holds(p Promise) bool { return all(w.Checks(p)) }

// Apply is the update.
func (w Reserve) Apply(p Promise) Promise {
	next := Promise{Round: p.Round, Until: p.Until + w.Step, Blocks: map[string]Micros{w.ID: w.Now}}
	if w.Fresh && p.Round == w.Round {
		next.Round, next.Until = w.Round+1, w.From+w.Step
	}
	for id, at := range p.Blocks {
		if !slices.Contains(w.Forget, id) {
			next.Blocks[id] = at
		}
	}
	return next
}

// planReserve is the write that takes a block; false: there is none within the horizon.
func (p Promise) planReserve(id string, c Sent, places int) (Reserve, bool) {
	step := min(Micros(places)*c.Pace, micros(PromiseHorizon/4))
	w := Reserve{ID: id, Now: c.Now, From: c.From, Step: step, Round: p.Round, Absurd: c.absurd()}
	for other, at := range p.Blocks {
		if at < c.Now-micros(blockMemory) {
			w.Forget = append(w.Forget, other)
		}
	}
	slices.Sort(w.Forget)
	lo, hi := w.Bounds()
	w.Fresh = p.Round == 0 || p.Until < lo || p.Until > w.Absurd
	return w, lo <= hi && (w.Fresh || p.Until <= hi)
}

// Sent is a caller who is sent away, as the gate sees it.
type Sent struct {
	ID     string // of the request: the caller's own bit of chance
	Now    Micros
	From   Micros        // nobody who comes anew can be served before
	Pace   Micros        // between two places
	Places int           // it takes
	Around int           // places, to either side of the end of the promise, among which its own is
	Least  time.Duration // the gate's own Retry-After
}

// Send prepares the Retry-After of a request that was refused, on the same view. False: another kind of refusal than one for
// want of the shared budget.
func (s State) Send(now Micros, r Request, refusal Refusal) (Sent, bool) {
	switch refusal.Cause {
	case NoToken, NoSlot, QueueFull:
	default:
		return Sent{}, false
	}
	cost, around := max(1, r.Cost), placesAroundWithoutLine
	if r.Patience > 0 && s.Knobs.MaxQueued > 0 {
		around = placesAround
	}
	return Sent{ID: r.ID, Now: now, From: now + micros(s.soonest(now, cost)), Pace: micros(s.grantTime() * spacing / 100),
		Places: cost, Around: around, Least: refusal.RetryAfter}, true
}

// soonest is how long a caller who comes anew has to wait if everybody in the line takes what it waits for.
func (s State) soonest(now Micros, cost int) time.Duration {
	line := s.line(now.Millis(), nil)
	st := stand{rank: len(line)}
	for _, id := range line {
		st.ahead += s.Tickets[id].Cost
	}
	token, slot := s.expect(now, st, cost)
	if slot == 0 {
		return token
	}
	// The ends of the leases say when their calls began. One is over after twice the usual time, or was none.
	usual := s.slotTime(1)
	var rest []time.Duration
	for _, end := range s.Leases {
		if s.dead(end, now.Millis()) {
			continue
		}
		left := end.Time().Sub(now.Time())
		age := s.Knobs.LeaseTTL - left
		rest = append(rest, min(max(2*usual-age, usual/2), left+s.Knobs.SkewBound))
	}
	slices.Sort(rest)
	needed := len(rest) - s.Limit + st.rank + 1
	switch {
	case len(rest) == 0:
		return max(token, slot)
	case needed <= len(rest):
		return max(token, rest[needed-1])
	}
	return max(token, rest[len(rest)-1]+time.Duration(needed-len(rest))*s.slotTime(s.Limit))
}

// chance is a number in [0, below) that belongs to a request, and grows with below.
func chance(id string, below Micros) Micros {
	sum := sha256.Sum256([]byte(id))
	part, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), uint64(max(0, below)))
	return Micros(part)
}

// Place is the caller's place on a view of the promise: near its end, never before anybody can be served.
func (c Sent) Place(p Promise) Micros {
	until := p.Until
	if until > c.absurd() {
		until = 0
	}
	around := Micros(c.Around) * c.Pace
	first, last := max(c.From, until-around), max(c.From, until)+around
	return first + chance(c.ID, last-first)
}

// RetryAfter is that of a place: whole seconds, never before the gate's own. Without a place within the horizon, or the gate's
// own time where that is later, it lies in the overflow behind it.
func (c Sent) RetryAfter(place Micros) time.Duration {
	if end := max(c.From, c.Now+micros(PromiseHorizon)); place > end {
		place = end + chance(c.ID, micros(PromiseOverflow))
	}
	return max(c.Least, RetryAfter(place.Time().Sub(c.Now.Time())))
}

// absurd is later than any write leaves Until, by whatever clock: the mistake of one, and no promise.
func (c Sent) absurd() Micros {
	return max(c.From, c.Now+micros(PromiseHorizon)) + micros(PromiseHorizon)
}

// AfterHold is the Retry-After of a caller who is sent away by a hold: never before its end, and not all in one second.
func AfterHold(refusal Refusal, id string) time.Duration {
	return refusal.RetryAfter + RetryAfter(time.Duration(chance(id, micros(HoldSpread)))*time.Microsecond) - time.Second
}

// Desk counts those whom one instance sends away, and writes once for every twelve of them. That is systematic sampling: an
// instance that sends n away has written n/12 times, give or take one. It begins to count anywhere, so of many instances that
// send a few away each, the right share writes.
type Desk struct {
	due int // places until it writes again
}

// NewDesk begins to count at a random number.
func NewDesk(random uint64) *Desk { return &Desk{due: int(random % block)} }

// Reserve counts a caller, and gives the write to make for it if one is due. The next one is due a block later, whatever becomes
// of this one: it is never sent twice.
func (d *Desk) Reserve(c Sent, id string, p Promise) (w Reserve, due bool) {
	if d.due -= c.Places; d.due >= 0 {
		return w, false
	}
	places := max(block, c.Places)
	d.due = max(0, d.due+places)
	return p.planReserve(id, c, places)
}
