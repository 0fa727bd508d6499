package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"time"

	"vingate/internal/gcra"
)

// Flow is one of those between whom the line is fair: a tenant; for callers without a key, an address. Every lease and ticket id begins with
// its flow, so that an id says whose it is.
type Flow string

const flowLength = 5 // 30 bits: two of 64 waiting tenants share a flow once in half a million times

// FlowOf is the flow of a tenant.
func FlowOf(tenant string) Flow {
	sum := sha256.Sum256([]byte(tenant))
	return Flow(base64.RawURLEncoding.EncodeToString(sum[:6])[:flowLength])
}

// FlowOfID is the flow that an id begins with.
func FlowOfID(id string) Flow { return Flow(id[:min(flowLength, len(id))]) }

func flowOf(id string) Flow { return FlowOfID(id) }

// Ticket is a place in the line.
type Ticket struct {
	Arrival  Millis
	Deadline Millis // of its owner's patience; past it by more than the clocks may differ, anybody may drop it
	Cost     int    // tokens
	Weight   int    // turns of its flow come this much more often, 1-10
}

// Turn is where a flow with waiting tickets stands in virtual time.
type Turn struct {
	Tag   int64  // virtual time at which its first ticket is paid for: the smallest goes first
	Since Millis // when the tag was set: among equal tags the older goes first
	Count int    // waiting tickets
}

// tagUnit is the virtual time of one token at weight 1; every weight from 1 to 10 divides it.
const tagUnit = 2520

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 10

// before is the order of turns; byName decides between equal ones.
func (t Turn) before(o Turn, byName bool) bool {
	switch {
	case t.Tag != o.Tag:
		return t.Tag < o.Tag
	case t.Since != o.Since:
		return t.Since < o.Since
	}
	return byName
}

func (t Ticket) advance() int64 {
	return int64(max(1, t.Cost)) * tagUnit / int64(min(max(1, t.Weight), MaxWeight))
}

// expired tells a ticket whose owner has given up, or died.
func (s *State) expired(t Ticket, now Millis) bool {
	return now > t.Deadline+Millis(s.Knobs.SkewBound.Milliseconds())
}

// DeadTicket is a ticket that a write drops.
type DeadTicket struct {
	ID     string
	Ticket Ticket
	Place  Place
	Owned  bool // it counts against a bound of its flow's own
}

// TurnChange is what a write does to one flow's turn.
type TurnChange struct {
	Flow Flow
	How  TurnHow
	Seen Turn // Exact, Join: the turn it was planned on
	Next Turn // Exact: what it becomes; with Count 0 it goes. Newcomer: Since, and Tag from the virtual time of the moment
	Most int  // Join: tickets the flow may have before
}

// TurnHow says how exact a change of a turn is.
type TurnHow byte

const (
	Exact    TurnHow = iota // from exactly Seen to Next
	Join                    // one ticket more, whatever joined meanwhile: same Tag and Since, Count at most Most
	Newcomer                // the flow has no turn; it gets the virtual time of the moment
)

func (c TurnChange) holds(s State) bool {
	turn, there := s.Flows[c.Flow]
	switch c.How {
	case Join:
		return there && turn.Tag == c.Seen.Tag && turn.Since == c.Seen.Since && turn.Count <= c.Most
	case Newcomer:
		return !there
	}
	return there && turn == c.Seen
}

// next is the turn that it leaves.
func (c TurnChange) next(s *State) Turn {
	switch c.How {
	case Join:
		turn := s.Flows[c.Flow]
		turn.Count++
		return turn
	case Newcomer:
		return Turn{Tag: s.VirtualTime + c.Next.Tag, Since: c.Next.Since, Count: 1}
	}
	return c.Next
}

func (c TurnChange) apply(s *State) {
	turn := c.next(s)
	if turn.Count == 0 {
		delete(s.Flows, c.Flow)
		return
	}
	s.Flows[c.Flow] = turn
}

// Drops are the expired tickets a write takes along, with what becomes of their flows.
type Drops struct {
	Tickets []DeadTicket
	Turns   []TurnChange // of flows other than the writer's own
}

func (d Drops) holds(s State) bool {
	for _, t := range d.Tickets {
		if ticket, there := s.Tickets[t.ID]; !there || ticket != t.Ticket {
			return false
		}
	}
	for _, c := range d.Turns {
		if !c.holds(s) {
			return false
		}
	}
	return true
}

func (d Drops) apply(s *State) {
	for _, t := range d.Tickets {
		delete(s.Tickets, t.ID)
		s.leave(t.ID, t.Place)
		if t.Owned {
			s.disown(t.ID)
		}
	}
	for _, c := range d.Turns {
		c.apply(s)
	}
}

func (d Drops) drop(id string) bool {
	return slices.ContainsFunc(d.Tickets, func(t DeadTicket) bool { return t.ID == id })
}

// IDs of the dropped tickets that stand in a place.
func (d Drops) at(p Place) []string {
	var ids []string
	for _, t := range d.Tickets {
		if t.Place == p {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// IDs of the dropped tickets that count against a flow's own bound.
func (d Drops) of(f Flow) []string {
	var ids []string
	for _, t := range d.Tickets {
		if t.Owned && flowOf(t.ID) == f {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// maxDrops bounds one write; more are dropped by the next ones.
const maxDrops = 24

// drops collects expired tickets, but not the writer's own, and says how many of the writer's flow are among them.
func (s *State) drops(now Millis, own string) (d Drops, ofOwnFlow int) {
	if s.settled(now) {
		return d, 0
	}
	var ids []string
	for id, t := range s.Tickets {
		if id != own && s.expired(t, now) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return d, 0
	}
	slices.Sort(ids)
	gone := map[Flow]int{}
	for _, id := range ids[:min(len(ids), maxDrops)] {
		d.Tickets = append(d.Tickets, DeadTicket{id, s.Tickets[id], s.placeOf(id), s.owns(id)})
		gone[flowOf(id)]++
	}
	for _, id := range ids[:min(len(ids), maxDrops)] {
		f := flowOf(id)
		n := gone[f]
		delete(gone, f)
		switch {
		case n == 0:
		case f == flowOf(own):
			ofOwnFlow = n
		default:
			turn := s.Flows[f]
			next := turn
			next.Count -= n
			d.Turns = append(d.Turns, TurnChange{Flow: f, Seen: turn, Next: next})
		}
	}
	return d, ofOwnFlow
}

func (s *State) placeOf(id string) Place {
	for p, ids := range s.Places {
		if slices.Contains(ids, id) {
			return p
		}
	}
	return ""
}

// leave takes an id out of a place of a state of its own.
func (s *State) leave(id string, place Place) {
	if ids := remove(s.Places[place], id); len(ids) > 0 {
		s.Places[place] = ids
	} else {
		delete(s.Places, place)
	}
}

// owns says whether an id counts against its flow's own bound.
func (s *State) owns(id string) bool { return slices.Contains(s.Owned[flowOf(id)], id) }

// disown takes an id out of its flow's own set, in a state of its own.
func (s *State) disown(id string) {
	f := flowOf(id)
	if ids := remove(s.Owned[f], id); len(ids) > 0 {
		s.Owned[f] = ids
	} else {
		delete(s.Owned, f)
	}
}

// stand is where a ticket stands.
type stand struct {
	rank, ahead int  // tickets ahead, and the tokens they take
	runs        bool // it is in the line: its key, and the batch route, have room for it
}

func (s *State) standing(id string, line []string) stand {
	st := stand{}
	for _, other := range line {
		if other == id {
			st.runs = true
			return st
		}
		st.rank++
		st.ahead += s.Tickets[other].Cost
	}
	return st
}

// expect is how long a caller of that standing has to wait for its token and for its slot, if everybody ahead takes theirs.
func (s *State) expect(now Micros, st stand, cost int) (token, slot time.Duration) {
	bucket := s.bucket()
	tat := max(int64(s.TAT), int64(now)) // what an idle bucket holds beyond is forfeited by the first
	token = time.Duration(bucket.Wait(tat, int64(now), st.ahead+cost)) * time.Microsecond
	if free := s.Limit - (len(s.Leases) - len(s.deadLeases(now.Millis(), ""))); st.rank >= free {
		slot = time.Duration(st.rank+1-free) * s.slotTime(s.Limit)
	}
	return token, slot
}

// Enqueue takes a place in the line.
type Enqueue struct {
	ID       string
	Place    Place
	Version  int
	Now      Micros
	Ticket   Ticket
	QueueCap int // tickets there may be before it, those that are dropped not counted
	PlaceCap int
	OwnCap   int // of the flow's own; 0: the request names none
	Turn     TurnChange
	Drops    Drops
	Seen     []string // the caller's place, where dropped tickets stand in it too
	SeenOwn  []string // likewise its flow's own set
}

// Checks is the condition.
func (w Enqueue) Checks(s State) []Check {
	_, leased := s.Leases[w.ID]
	_, queued := s.Tickets[w.ID]
	return []Check{
		{"version", s.Version == w.Version},
		{"no hold", s.Hold <= w.Now.Millis()},
		{"no pause", s.Pause <= w.Now.Millis()},
		{"id", !leased && !queued},
		{"queue", len(s.Tickets) < w.QueueCap+len(w.Drops.Tickets)},
		{"place", mayJoin(s.Places[w.Place], w.Seen, w.PlaceCap)},
		{"own", w.OwnCap == 0 || mayJoin(s.Owned[flowOf(w.ID)], w.SeenOwn, w.OwnCap)},
		{"turn", w.Turn.holds(s)},
		{"drops", w.Drops.holds(s)},
	}
}

// Holds is the condition.
func (w Enqueue) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Enqueue) Apply(s State) State {
	s = s.with(inPlaces | inOwned | inLine)
	w.Drops.apply(&s)
	w.Turn.apply(&s)
	s.Tickets[w.ID] = w.Ticket
	s.Places[w.Place] = join(s.Places[w.Place], w.Seen, w.Drops.at(w.Place), w.ID)
	if w.OwnCap > 0 {
		f := flowOf(w.ID)
		s.Owned[f] = join(s.Owned[f], w.SeenOwn, w.Drops.of(f), w.ID)
	}
	return s
}

// Claim turns a ticket into a lease. The place was taken with the ticket.
type Claim struct {
	ID    string
	Place Place
	Batch bool

	Version int
	Limit   int
	Now     Micros
	End     Millis
	Ticket  Ticket
	Slots   int // leases there must be fewer of
	Band    gcra.Band
	Lo, Hi  Micros // where TAT must lie; Hi also bounds the admissions since the view, which keeps the key's share
	Step    Micros

	BatchCap int
	QueueMax int // tickets there may be at most, 0 for any number: a batch at limit 1 goes only while nobody new waits

	Turn     TurnChange // its own flow's, exact
	Tag      int64      // of the grant
	Advances bool       // virtual time moves to Tag; else it is there already
	Drops    Drops

	Dead                 []DeadLease
	SeenPlace, SeenBatch []string
}

// Checks is the condition.
func (w Claim) Checks(s State) []Check {
	_, leased := s.Leases[w.ID]
	ticket, queued := s.Tickets[w.ID]
	return []Check{
		{"version", s.Version == w.Version},
		{"limit", s.Limit == w.Limit},
		{"no hold", s.Hold <= w.Now.Millis()},
		{"no pause", s.Pause <= w.Now.Millis()},
		{"ticket", queued && ticket == w.Ticket && !leased},
		{"slots", len(s.Leases) < w.Slots+len(w.Dead)},
		{"tat", s.TAT >= w.Lo && s.TAT <= w.Hi},
		{"dead", holdsDead(w.Dead, s)},
		{"place", w.SeenPlace == nil || slices.Equal(s.Places[w.Place], w.SeenPlace)},
		{"batch", !w.Batch || mayJoin(s.Batch, w.SeenBatch, w.BatchCap)},
		{"queue", w.QueueMax == 0 || len(s.Tickets) <= w.QueueMax},
		{"turn", w.Turn.holds(s)},
		{"virtual time", w.Advances && s.VirtualTime <= w.Tag || !w.Advances && s.VirtualTime >= w.Tag},
		{"drops", w.Drops.holds(s)},
	}
}

// Holds is the condition.
func (w Claim) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Claim) Apply(s State) State {
	change := inLeases | inLine
	if w.SeenPlace != nil || len(w.Dead)+len(w.Drops.Tickets) > 0 {
		change |= inPlaces | inOwned
	}
	s = s.with(change)
	w.Drops.apply(&s)
	var dead []string
	for _, d := range w.Dead {
		s.drop(d.ID, d.Place, d.Batch, d.Owned)
		dead = append(dead, d.ID)
	}
	delete(s.Tickets, w.ID)
	s.Leases[w.ID] = w.End
	if w.SeenPlace != nil {
		s.Places[w.Place] = remove(w.SeenPlace, append(dead, w.Drops.at(w.Place)...)...)
	}
	if w.Batch {
		s.Batch = join(s.Batch, w.SeenBatch, dead, w.ID)
	}
	w.Turn.apply(&s)
	if w.Advances {
		s.VirtualTime = w.Tag
	}
	if w.Band == gcra.Busy {
		s.TAT += w.Step
	} else {
		s.TAT = w.Now + w.Step
	}
	return s
}

// Cancel gives a ticket up.
type Cancel struct {
	ID    string
	Place Place
	Turn  TurnChange // its own flow's, exact
}

// Checks is the condition: the ticket is still there, and its flow as it was seen.
func (w Cancel) Checks(s State) []Check {
	_, queued := s.Tickets[w.ID]
	return []Check{{"ticket", queued}, {"turn", w.Turn.holds(s)}}
}

// Holds is the condition.
func (w Cancel) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Cancel) Apply(s State) State {
	s = s.with(inPlaces | inOwned | inLine)
	delete(s.Tickets, w.ID)
	s.leave(w.ID, w.Place)
	s.disown(w.ID)
	w.Turn.apply(&s)
	return s
}

// PlanCancel gives up the ticket of an id; false: there is none.
func (s State) PlanCancel(id string, key Key) (Cancel, bool) {
	if _, queued := s.Tickets[id]; !queued {
		return Cancel{}, false
	}
	return Cancel{ID: id, Place: key.Place(), Turn: s.fewer(flowOf(id), 1)}, true
}

// fewer is a flow's turn with n tickets less.
func (s *State) fewer(f Flow, n int) TurnChange {
	turn := s.Flows[f]
	next := turn
	next.Count -= n
	return TurnChange{Flow: f, Seen: turn, Next: next}
}

// share is how many tickets one flow may have in the line: a quarter of it, at least eight.
func (k Knobs) share() int { return max(8, k.MaxQueued/4) }

// planEnqueue decides whether a caller may wait. It is told at once when it cannot be served within its patience.
func (s *State) planEnqueue(now Micros, r Request, place Place, ceiling int, instead Refusal) (Enqueue, *Refusal) {
	ms, cost := now.Millis(), max(1, r.Cost)
	patience := Millis(r.Patience.Milliseconds()+99) / 100 * 100 // the item keeps tenths of a second
	w := Enqueue{ID: r.ID, Place: place, Version: s.Version, Now: now, PlaceCap: ceiling, OwnCap: r.Own, QueueCap: s.Knobs.MaxQueued,
		Ticket: Ticket{Arrival: ms, Deadline: ms + patience, Cost: cost, Weight: max(1, r.Weight)}}
	if patience <= 0 || s.Knobs.MaxQueued == 0 {
		refusal := instead
		return w, &refusal
	}
	var gone int
	w.Drops, gone = s.drops(ms, r.ID)
	f := flowOf(r.ID)
	turn, waits := s.Flows[f]
	switch {
	case turn.Count-gone >= s.Knobs.share():
		return w, &Refusal{Cause: FlowFull, RetryAfter: RetryAfter(time.Duration(turn.Count-gone-s.Knobs.share()+1) * s.grantTime())}
	case len(s.Tickets)-len(w.Drops.Tickets) >= s.Knobs.MaxQueued-spare(r.Shy, s.Knobs.MaxQueued/4):
		token, slot := s.expect(now, stand{rank: len(s.Tickets), ahead: len(s.Tickets)}, cost)
		return w, &Refusal{Cause: QueueFull, RetryAfter: RetryAfter(max(token, slot))}
	case !waits:
		w.Turn = TurnChange{Flow: f, How: Newcomer, Next: Turn{Tag: w.Ticket.advance(), Since: ms}}
	case gone > 0:
		w.Turn = s.fewer(f, gone-1)
		if turn.Count == gone { // all of its tickets were dead: it comes anew
			w.Turn.Next = Turn{Tag: max(turn.Tag, s.VirtualTime+w.Ticket.advance()), Since: ms, Count: 1}
		}
	default:
		w.Turn = TurnChange{Flow: f, How: Join, Seen: turn, Most: s.Knobs.share() - 1}
	}
	if w.Drops.at(w.Place) != nil {
		w.Seen = s.Places[w.Place]
	}
	if w.OwnCap > 0 && w.Drops.of(f) != nil {
		w.SeenOwn = s.Owned[f]
	}
	line := s.lineWith(&w, ms, nil, make([]string, 0, fewInLine))
	st := s.standing(r.ID, line)
	if !st.runs { // nor do others of its key, who came before it
		for _, id := range s.Places[w.Place] {
			if t, queued := s.Tickets[id]; queued && id != r.ID && !w.Drops.drop(id) && !slices.Contains(line, id) {
				st.rank++
				st.ahead += t.Cost
			}
		}
	}
	token, slot := s.expect(now, st, cost)
	if token > r.Patience {
		return w, &Refusal{Cause: NoToken, RetryAfter: RetryAfter(token), Token: token}
	}
	if slot > r.Patience {
		return w, &Refusal{Cause: NoSlot, RetryAfter: RetryAfter(slot), Token: token}
	}
	return w, nil
}

// PlanClaim decides about a waiter: its claim when its turn has come; else how long it may sleep before it looks again; else
// why it cannot go on waiting. Lost: the ticket is gone without a lease.
func (s State) PlanClaim(now Micros, r Request, passed map[string]bool) (w Claim, sleep time.Duration, refusal *Refusal) {
	return s.planClaim(now, r, s.line(now.Millis(), passed))
}

func (s *State) planClaim(now Micros, r Request, line []string) (w Claim, sleep time.Duration, refusal *Refusal) {
	ms, k := now.Millis(), s.Knobs
	ticket, queued := s.Tickets[r.ID]
	if refusal := s.held(now); refusal != nil {
		return w, 0, refusal
	}
	if !queued {
		return w, 0, &Refusal{Cause: NoSlot, RetryAfter: RetryAfter(s.slotTime(s.Limit))}
	}
	st := s.standing(r.ID, line)
	bucket, cost := s.bucket(), ticket.Cost
	w = Claim{ID: r.ID, Batch: r.Key.Route == Batch, Version: s.Version, Limit: s.Limit, Now: now,
		End: millisUp(now + Micros(k.LeaseTTL.Microseconds())), Ticket: ticket, Slots: s.Limit - st.rank,
		Step: Micros(int64(cost) * bucket.T), BatchCap: k.batchSlots(s.Limit), Dead: s.deadLeases(ms, r.ID)}
	w.Band = bucket.Choose(int64(s.TAT), int64(now), st.ahead+cost)
	token, slot := s.expect(now, st, cost)
	if !st.runs {
		slot = max(slot, s.slotTime(k.keySlots(s.Limit)))
	}
	if w.Band == gcra.Dry || slot > 0 {
		if slot > 0 && st.runs {
			slot = s.slotAfter(now, st.rank)
		}
		return w, pause(max(token, slot), s.grantTime()), nil
	}

	w.Place = r.Key.Place()
	lo, hi := bucket.BusyRange(int64(now), st.ahead+cost)
	w.Lo, w.Hi = Micros(lo), Micros(hi)
	if w.Band == gcra.Reset {
		w.Lo, w.Hi = -1<<62, now-1
	}
	// Each admission moves TAT on by a token at least. So TAT counts the admissions since the view, and a bound on it
	// keeps the key within its share of the slots whoever else of it is admitted meanwhile.
	mine := s.Places[w.Place]
	taken := 0
	for _, id := range mine {
		if end, leased := s.Leases[id]; leased && !s.dead(end, ms) {
			taken++
		}
	}
	w.Hi = min(w.Hi, s.TAT+Micros(int64(k.keySlots(s.Limit)-taken-1)*bucket.T))
	if w.Batch && s.Limit == 1 {
		w.QueueMax = len(s.Tickets)
	}

	var gone int
	w.Drops, gone = s.drops(ms, r.ID)
	f := flowOf(r.ID)
	turn := s.Flows[f]
	w.Tag, w.Advances = turn.Tag, turn.Tag >= s.VirtualTime
	w.Turn = s.fewer(f, gone+1)
	if next, waits := s.firstOf(f, ms, r.ID); waits && w.Turn.Next.Count > 0 {
		w.Turn.Next.Tag, w.Turn.Next.Since = max(s.VirtualTime, turn.Tag)+next.advance(), ms
	}
	for _, d := range w.Dead {
		if d.Place == w.Place {
			w.SeenPlace = mine
		}
		if d.Batch && w.Batch {
			w.SeenBatch = s.Batch
		}
	}
	if w.Drops.at(w.Place) != nil && w.SeenPlace == nil {
		w.SeenPlace = mine
	}
	return w, 0, nil
}

// WaitedInVain is the refusal of a waiter whose patience is over.
func (s State) WaitedInVain(now Micros, id string) *Refusal {
	st := s.standing(id, s.line(now.Millis(), nil))
	token, slot := s.expect(now, st, max(1, s.Tickets[id].Cost))
	return &Refusal{Cause: NoSlot, RetryAfter: RetryAfter(max(token, slot))}
}

// firstOf is the flow's oldest waiting ticket, but for one.
func (s *State) firstOf(f Flow, now Millis, but string) (first Ticket, found bool) {
	oldest := ""
	for id, t := range s.Tickets {
		if flowOf(id) == f && id != but && !s.expired(t, now) &&
			(!found || cmp.Or(cmp.Compare(t.Arrival, first.Arrival), cmp.Compare(id, oldest)) < 0) {
			first, oldest, found = t, id, true
		}
	}
	return first, found
}

// grantTime is the time between two grants.
func (s *State) grantTime() time.Duration {
	return max(s.Knobs.T(), s.slotTime(s.Limit))
}

// slotAfter is when a waiter of that rank may expect its slot, if everybody ahead takes theirs. The ends of the leases say when
// their calls began. One that takes longer than usual may be over any moment, the less so the longer it takes; a lease that nobody gives back
// is such a one. Some of what passes between two calls in one slot is known: a release, a look and a claim take their time.
func (s *State) slotAfter(now Micros, rank int) time.Duration {
	usual := s.slotTime(1)
	var free []time.Duration // when each slot comes free
	for _, end := range s.Leases {
		if !s.dead(end, now.Millis()) {
			age := s.Knobs.LeaseTTL - end.Time().Sub(now.Time())
			free = append(free, max(usual+usual/16-age, usual/8, age-usual))
		}
	}
	slices.Sort(free)
	free = free[max(0, len(free)-s.Limit):] // after a cut the first ones leave none free
	for len(free) < s.Limit {
		free = slices.Insert(free, 0, 0)
	}
	for range rank {
		next := free[0] + usual + usual/8
		at, _ := slices.BinarySearch(free, next)
		free = slices.Insert(free, at, next)[1:]
	}
	return free[0]
}

// longestPause bounds a waiter's sleep: what it expects may be far too much, as before the first call has told how long calls take.
const longestPause = time.Second

// pause is how long a waiter sleeps that expects its turn in that time. When it is at most two grants away, until then. Else half of
// it, and no longer than four grants take: others give up, and it has to notice before its turn is over.
func pause(expected, grant time.Duration) time.Duration {
	if expected > 2*grant {
		expected = min(expected/2, 4*grant, longestPause)
	}
	return max(5*time.Millisecond, expected)
}

// Heads lists the waiters ahead of id who could claim now. One that is seen among them for a grace time has an owner that is
// dead or slow, and is passed.
func (s State) Heads(now Micros, id string, passed map[string]bool) []string {
	return s.heads(now, id, s.line(now.Millis(), passed))
}

func (s *State) heads(now Micros, id string, line []string) []string {
	for i, other := range line {
		st := s.standing(other, line)
		token, slot := s.expect(now, st, s.Tickets[other].Cost)
		if other == id || token > 0 || slot > 0 {
			return line[:i]
		}
	}
	return line
}
