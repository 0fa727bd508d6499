package gate

import (
	"cmp"
	"slices"

	"vingate/internal/gcra"
)

// line is the order in which the waiting tickets would be granted if nobody came or went: smallest tag first, equal tags by
// when they were set, within a flow by arrival. A ticket whose key or route is at its share of the slots is passed over, its turn
// keeps: it is not in the line. So are those in passed, whose owners were seen to leave a free slot unclaimed.
func (s *State) line(now Millis, passed map[string]bool) []string {
	switch {
	case len(s.Tickets) == 0:
		return nil
	case s.settled(now) && len(passed) == 0 && now >= s.known.lineupOf(s).turned:
		if s.known.line == nil {
			s.known.line = s.lineWith(nil, now, nil, nil)
		}
		return s.known.line
	}
	return s.lineWith(nil, now, passed, nil)
}

// lineup is what the order of the line is made of.
type lineup struct {
	places  []linePlace
	flows   []lineFlow
	waiters []lineWaiter // by flow, within it by arrival
	turned  Millis       // when the last turn was set: from then on the line is always the same
}

type linePlace struct {
	place Place
	taken int // live slots
}

type lineFlow struct {
	name     Flow
	turn     Turn
	from, to int // its waiters
}

type lineWaiter struct {
	id          string
	arrival     Millis
	advance     int64
	flow, place int32
	inLine      bool
}

const fewInLine = 16 // stand on the stack

// lineWith is the line as it would be once somebody had joined: that of the state that the write leaves, without making it. The tickets that
// the write drops are expired, and stand in no line. It is written into line, which is empty.
func (s *State) lineWith(joins *Enqueue, now Millis, passed map[string]bool, line []string) []string {
	l := lineup{places: make([]linePlace, 0, fewInLine), flows: make([]lineFlow, 0, fewInLine), waiters: make([]lineWaiter, 0, fewInLine)}
	if s.settled(now) && len(passed) == 0 && (joins == nil || !s.has(joins.ID)) {
		known := s.known.lineupOf(s)
		l.places, l.flows, l.waiters = append(l.places, known.places...), append(l.flows, known.flows...), append(l.waiters, known.waiters...)
		if joins != nil {
			l = l.join(s, joins)
		}
	} else {
		l = s.lineup(l, joins, now, passed)
	}
	batch, interactive, vt := s.live(s.Batch, now), 0, s.VirtualTime
	for i := range l.waiters {
		if !l.places[l.waiters[i].place].place.batch() {
			interactive++
		}
	}
	keySlots, batchSlots := s.Knobs.keySlots(s.Limit), s.Knobs.batchSlots(s.Limit)
	next := func(f *lineFlow) int { // its first waiter who may have a slot, -1: none
		for i := f.from; i < f.to; i++ {
			if p := &l.places[l.waiters[i].place]; !l.waiters[i].inLine && p.taken < keySlots &&
				(!p.place.batch() || batch < batchSlots && (s.Limit > 1 || interactive == 0)) {
				return i
			}
		}
		return -1
	}
	if cap(line) < len(l.waiters) {
		line = make([]string, 0, len(l.waiters))
	}
	for {
		var first *lineFlow
		at := -1
		for i := range l.flows {
			f := &l.flows[i]
			if first != nil && !f.before(first) {
				continue
			}
			if n := next(f); n >= 0 {
				first, at = f, n
			}
		}
		if first == nil {
			return line
		}
		w := &l.waiters[at]
		w.inLine = true
		line = append(line, w.id)
		p := &l.places[w.place]
		p.taken++
		if p.place.batch() {
			batch++
		} else {
			interactive--
		}
		for first.from < first.to && l.waiters[first.from].inLine {
			first.from++
		}
		vt = max(vt, first.turn.Tag)
		if first.from < first.to {
			// A tag set now is younger than all that were set before, and each than the one before it.
			first.turn = Turn{Tag: vt + l.waiters[first.from].advance, Since: now + Millis(len(line))}
		}
	}
}

func (f *lineFlow) before(o *lineFlow) bool {
	if f.turn.Tag == o.turn.Tag && f.turn.Since == o.turn.Since {
		return f.name < o.name
	}
	return f.turn.before(o.turn, false)
}

func (a *lineWaiter) compare(b *lineWaiter) int {
	switch {
	case a.flow != b.flow:
		return cmp.Compare(a.flow, b.flow)
	case a.arrival != b.arrival:
		return cmp.Compare(a.arrival, b.arrival)
	}
	return cmp.Compare(a.id, b.id)
}

// lineup finds all who wait, and the one who joins, and puts them into an empty one.
func (s *State) lineup(l lineup, joins *Enqueue, now Millis, passed map[string]bool) lineup {
	for p, ids := range s.Places {
		if joins == nil || p != joins.Place {
			l = l.with(s, p, ids, joins, now, passed)
		}
	}
	if joins != nil {
		l = l.with(s, joins.Place, insert(s.Places[joins.Place], joins.ID), joins, now, passed)
	}
	slices.SortFunc(l.waiters, func(a, b lineWaiter) int { return a.compare(&b) })
	for i, w := range l.waiters {
		if i == 0 || l.waiters[i-1].flow != w.flow {
			l.flows[w.flow].from = i
		}
		l.flows[w.flow].to = i + 1
	}
	return l
}

// with adds the ids of one place.
func (l lineup) with(s *State, p Place, ids []string, joins *Enqueue, now Millis, passed map[string]bool) lineup {
	at := linePlace{place: p}
	for _, id := range ids {
		if end, leased := s.Leases[id]; leased && !s.dead(end, now) {
			at.taken++
		}
		t, queued := s.Tickets[id]
		if joins != nil && id == joins.ID {
			t, queued = joins.Ticket, true
		}
		if !queued || passed[id] || s.expired(t, now) {
			continue
		}
		var f int
		l.flows, f = l.flow(s, flowOf(id), joins)
		l.waiters = append(l.waiters, lineWaiter{id: id, arrival: t.Arrival, advance: t.advance(), flow: int32(f), place: int32(len(l.places))})
	}
	l.places = append(l.places, at)
	return l
}

// flow is the flows with one among them, and where it stands.
func (l lineup) flow(s *State, name Flow, joins *Enqueue) ([]lineFlow, int) {
	for i := range l.flows {
		if l.flows[i].name == name {
			return l.flows, i
		}
	}
	turn := s.Flows[name]
	if joins != nil && name == flowOf(joins.ID) {
		turn = joins.Turn.next(s)
	}
	return append(l.flows, lineFlow{name: name, turn: turn, from: len(l.waiters), to: len(l.waiters)}), len(l.flows)
}

// join adds one who was not there.
func (l lineup) join(s *State, w *Enqueue) lineup {
	p := 0
	for p < len(l.places) && l.places[p].place != w.Place {
		p++
	}
	if p == len(l.places) {
		l.places = append(l.places, linePlace{place: w.Place})
	}
	var f int
	l.flows, f = l.flow(s, flowOf(w.ID), w)
	flow := &l.flows[f]
	flow.turn = w.Turn.next(s)
	joiner := lineWaiter{id: w.ID, arrival: w.Ticket.Arrival, advance: w.Ticket.advance(), flow: int32(f), place: int32(p)}
	at := flow.to
	l.waiters = append(l.waiters, joiner)
	copy(l.waiters[at+1:], l.waiters[at:])
	for ; at > flow.from && joiner.compare(&l.waiters[at-1]) < 0; at-- {
		l.waiters[at] = l.waiters[at-1]
	}
	l.waiters[at] = joiner
	for i := range l.flows[f+1:] {
		l.flows[f+1+i].from++
		l.flows[f+1+i].to++
	}
	flow.to++
	return l
}

// known is what is remembered of a state that nobody changes any more.
type known struct {
	over   Millis // until then none of its leases and tickets is over
	bucket gcra.Bucket
	lineup *lineup
	line   []string
}

// Lasting is the state for somebody who asks it many questions and does not change it: what they have in common is found out once. The answers are the same.
// It is not safe for use by many goroutines.
func (s State) Lasting() State {
	k := known{over: 1 << 62, bucket: s.Knobs.Bucket()}
	skew := Millis(s.Knobs.SkewBound.Milliseconds())
	for _, end := range s.Leases {
		k.over = min(k.over, end+skew)
	}
	for _, t := range s.Tickets {
		k.over = min(k.over, t.Deadline+skew)
	}
	s.known = &k
	return s
}

// Lasts is how long nothing is over in a lasting state.
func (s State) Lasts() Micros { return Micros(s.known.over) * 1000 }

// settled says that it is known that nothing in the state is over.
func (s *State) settled(now Millis) bool { return s.known != nil && now <= s.known.over }

// has says whether an id is there already.
func (s *State) has(id string) bool {
	_, queued := s.Tickets[id]
	_, leased := s.Leases[id]
	return queued || leased
}

// lineupOf is that of a settled state.
func (k *known) lineupOf(s *State) *lineup {
	if k.lineup == nil {
		n := len(s.Tickets)
		l := s.lineup(lineup{places: make([]linePlace, 0, len(s.Places)), flows: make([]lineFlow, 0, n), waiters: make([]lineWaiter, 0, n)}, nil, k.over, nil)
		for i := range l.flows {
			l.turned = max(l.turned, l.flows[i].turn.Since)
		}
		k.lineup = &l
	}
	return k.lineup
}

func (s *State) bucket() gcra.Bucket {
	if s.known != nil {
		return s.known.bucket
	}
	return s.Knobs.Bucket()
}
