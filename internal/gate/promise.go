package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"time"
)

// A crowd that is told the same second comes back in the same second. So whoever is sent away for want of the shared budget
// takes the next place in time, a grant behind the one before, and its Retry-After is its own place's. The end of what all
// instances have promised is one number, Promise.Until. An instance moves it by a block of places at a time and deals the block out in order (Desk).
const (
	// A block is that many places, but no longer than blockSpan: what an instance does not give away of it, others wait for in vain.
	block     = 12
	blockSpan = 3 * time.Second

	// An instance takes a block for the first it sends away unless this many lie ahead. Beyond that its callers are guests, who take any place
	// among those that are promised. One guest in guestSample adds a block for them; guestsToBlock of one instance within aloneFor are a
	// crowd of its own, and take a block.
	blocksAhead   = 10
	guestSample   = 128
	guestsToBlock = 5

	// Nobody was sent away here for aloneFor, and no block was taken anywhere for blockAlone: a caller is alone, and its time is the gate's own.
	aloneFor   = 500 * time.Millisecond
	blockAlone = 200 * time.Millisecond

	// The distance of two places in percent of a grant's time. What is left takes up that places become whole seconds, in which all who
	// were sent away in one moment come back in one moment. Where callers may wait in a line, the line does most of that.
	spacing, spacingWithoutLine = 110, 125

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

// recent says whether anybody took a block a moment ago.
func (p Promise) recent(now Micros) bool {
	for _, at := range p.Blocks {
		if at > now-micros(blockAlone) {
			return true
		}
	}
	return false
}

// Reserve takes a block of places. Like every Write it is a condition and an update; it is not one of the gate's.
//
// It goes on where the last block ends; or, when everybody promised so far has been, it begins anew at From. Many instances may find that
// in the same moment: the first of them begins the next round, and the same write of the others goes on in it.
type Reserve struct {
	ID     string // of the block: a repeated write finds it and changes nothing
	Now    Micros
	From   Micros // where a round begins: nobody can be served before
	Step   Micros // the length of the block
	Most   Micros // where the last block may end at most
	Round  int    // that was seen
	Fresh  bool   // begins the next round, or goes on in it
	Absurd Micros // a later Until is a mistake: begin anew
	Forget []string
}

// Bounds are where Until must lie for a block to be taken after it. A block before From may pass: a view that is slightly old is
// then still good enough.
func (w Reserve) Bounds() (lo, hi Micros) { return w.From - w.Step, w.Most }

// Over is where Until must lie before for a round to begin: what is left of the old one is a block at most, and nobody's any more.
func (w Reserve) Over() Micros { return w.From + w.Step }

// Checks is the condition, clause by clause.
func (w Reserve) Checks(p Promise) []Check {
	_, taken := p.Blocks[w.ID]
	lo, hi := w.Bounds()
	goesOn := p.Until >= lo && p.Until <= hi
	until := p.Round == w.Round && goesOn
	if w.Fresh {
		until = p.Round == w.Round && (p.Round == 0 || p.Until < w.Over() || p.Until > w.Absurd) || p.Round == w.Round+1 && goesOn
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

// reserve is the write that takes a block for a caller, after a last one that ends by most; nil: there is none within the horizon. Anew begins
// a round, whatever is left of the old one.
func (p Promise) reserve(id string, c Sent, most Micros, anew bool) *Reserve {
	step := c.step()
	w := Reserve{ID: id, Now: c.Now, From: c.begin(), Step: step, Most: min(most, c.horizon()-step), Round: p.Round, Absurd: c.absurd()}
	lo, hi := w.Bounds()
	w.Fresh = anew || p.Round == 0 || p.Until < lo || p.Until > w.Absurd
	if lo > hi || !w.Fresh && p.Until > hi {
		return nil
	}
	for other, at := range p.Blocks {
		if at < c.Now-micros(blockMemory) {
			w.Forget = append(w.Forget, other)
		}
	}
	slices.Sort(w.Forget)
	return &w
}

// Sent is a caller who is sent away, as the gate sees it.
type Sent struct {
	ID     string // of the request: the caller's own bit of chance
	Now    Micros
	From   Micros        // nobody who comes anew can be served before
	Pace   Micros        // between two places
	Places int           // it takes
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
	cost, apart := max(1, r.Cost), time.Duration(spacingWithoutLine)
	if r.Patience > 0 && s.Knobs.MaxQueued > 0 {
		apart = spacing
	}
	return Sent{ID: r.ID, Now: now, From: now + micros(s.soonest(now, cost)), Pace: micros(s.grantTime() * apart / 100),
		Places: cost, Least: refusal.RetryAfter}, true
}

// soonest is how long a caller who comes anew has to wait if everybody in the line takes what it waits for.
func (s *State) soonest(now Micros, cost int) time.Duration {
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

// step is the length of the block that is taken for a caller.
func (c Sent) step() Micros {
	places := max(1, min(block, micros(blockSpan)/max(1, c.Pace)))
	return max(places, Micros(c.Places)) * c.Pace
}

// begin is where a block begins whose first caller is served as soon as anybody can be: who takes several places has the last of them.
func (c Sent) begin() Micros { return c.From - Micros(c.Places-1)*c.Pace }

// horizon is where the last place may be.
func (c Sent) horizon() Micros { return max(c.From, c.Now+micros(PromiseHorizon)) }

// ahead is how much is promised beyond the moment at which the caller could be served.
func (c Sent) ahead(p Promise) Micros {
	if p.Until > c.absurd() {
		return 0
	}
	return max(0, p.Until-c.From)
}

// among is a place among those that are promised and a few more: the caller's own bit of chance.
func (c Sent) among(p Promise, more Micros) Micros { return c.From + chance(c.ID, c.ahead(p)+more) }

// Unpromised is the place of a caller when the promise cannot be read or written: it may be one of a crowd.
func (c Sent) Unpromised() Micros { return c.among(Promise{}, c.step()) }

// RetryAfter is that of a place: whole seconds, never before the gate's own. Without a place within the horizon, or the gate's
// own time where that is later, it lies in the overflow behind it.
func (c Sent) RetryAfter(place Micros) time.Duration {
	if end := c.horizon(); place > end {
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

// Desk gives places to those whom one instance sends away.
//
// The first of a crowd takes a block, whose first place is its own; the next callers are dealt the rest in order, without a look at
// the promise. So whoever is alone is told the gate's own time, and ten instances that send a hundred away write ten times and tell no two of
// them the same place. Where ten blocks lie ahead already, many instances may have sent one away each: from then on a first caller is a guest.
type Desk struct {
	last   Micros // when it last sent somebody away
	sample int    // guests until it adds a block for them

	// Since it was last alone:
	blocks, guests int
	next, end      Micros // places left of its block
}

// NewDesk is the desk of an instance that has sent nobody away. It begins to count its guests at a random number, so that of many instances
// with one guest each the right share adds a block.
func NewDesk(random uint64) *Desk { return &Desk{sample: int(random % guestSample)} }

// Deal gives a caller a place of the instance's own block, if it has one left.
func (d *Desk) Deal(c Sent) (place Micros, ok bool) {
	d.rest(c.Now)
	d.next = max(d.next, c.From-c.Pace)
	if d.blocks == 0 || d.next+Micros(c.Places)*c.Pace > d.end+c.Pace/2 { // half a place: paces change a little
		return 0, false
	}
	d.last = c.Now
	return d.take(c), true
}

// take is the caller's place where it is dealt the next ones: the last of those it takes.
func (d *Desk) take(c Sent) Micros {
	d.next += Micros(c.Places) * c.Pace
	return max(c.From, d.next-c.Pace)
}

// rest forgets a crowd that is over.
func (d *Desk) rest(now Micros) {
	if now < d.last || now-d.last > micros(aloneFor) {
		d.blocks, d.guests = 0, 0
	}
}

// Ask decides on a view of the promise about a caller for whom there was no place to deal. A write is to be made, once, if there is one. If
// place is 0, Took or Missed then gives it; else the caller is a guest, and the write counts others like it.
func (d *Desk) Ask(c Sent, id string, p Promise) (place Micros, w *Reserve) {
	d.rest(c.Now)
	d.last = c.Now
	few, most := c.From+blocksAhead*c.step(), c.horizon()
	switch recent := p.recent(c.Now); {
	case d.blocks > 0, d.guests >= guestsToBlock:
		w = p.reserve(id, c, most, false)
	case !recent && (p.Until < c.begin()+c.step() || p.Until > c.absurd()):
		w = p.reserve(id, c, few, true)
	case recent && p.Until < few:
		w = p.reserve(id, c, few, false)
	default:
		if d.sample -= c.Places; d.sample < 0 {
			d.sample = max(0, d.sample+guestSample)
			w = p.reserve(id, c, most, false)
		}
		return d.Missed(c, p), w
	}
	if w == nil {
		return d.Missed(c, p), nil
	}
	return 0, w
}

// Took is the place of a caller for whom a block was taken; p is the promise it is in.
func (d *Desk) Took(c Sent, w Reserve, p Promise) Micros {
	d.blocks++
	d.next, d.end = max(p.Until-w.Step, w.From), p.Until
	return d.take(c)
}

// Missed is the place of a guest: any of those that are promised, and of a few more while others are being promised theirs. Where nothing is left
// within the horizon, it is none.
func (d *Desk) Missed(c Sent, p Promise) Micros {
	d.guests++
	more := Micros(0)
	if p.recent(c.Now) {
		more = c.step() / 2
	}
	if c.ahead(p) > c.horizon()-c.From-c.step() {
		return c.horizon() + 1
	}
	return c.among(p, more)
}
