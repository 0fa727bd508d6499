package gate

import (
	"cmp"
	"slices"
	"time"

	"vingate/internal/gcra"
)

// Write is one conditional write. Holds is its condition on the state it meets, Apply its update; a store does both
// in one atomic step, or neither. Writes are values: they can be repeated, delayed and reordered.
type Write interface {
	Holds(State) bool
	Apply(State) State
}

// DeadLease is a lease that an admission removes: exactly this one, with exactly this end.
type DeadLease struct {
	ID    string
	End   Millis
	Place Place // the bulkhead that holds it, "" when none does
	Batch bool
	Owned bool // it counts against a bound of its flow's own
}

// Admit takes a slot, a token and a place.
type Admit struct {
	ID    string
	Place Place
	Batch bool

	Version int // of the knobs it was planned with
	Limit   int // in force when it was planned
	Now     Micros
	End     Millis
	Cost    int
	Band    gcra.Band
	Lo, Hi  Micros // where TAT must lie: Busy [Lo, Hi], Reset < Now
	Step    Micros // Cost x T

	PlaceCap, BatchCap int // sizes the sets must be below
	OwnCap             int // that of the flow's own; 0: the request names none

	// Dead leases are removed with it. DynamoDB refuses to add to and delete from one set in one update, so a set that
	// holds both the caller and a dead lease is replaced whole, on condition that it is still the one that was seen.
	Dead                 []DeadLease
	SeenPlace, SeenBatch []string
	SeenOwn              []string

	Drops Drops // the line may hold nobody else
}

// Check is one clause of a condition.
type Check struct {
	Name string
	OK   bool
}

func all(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
}

// Checks is the condition, clause by clause: a test leaves each one out and must see a promise broken.
func (w Admit) Checks(s State) []Check {
	_, mine := s.Leases[w.ID]
	inBand := s.TAT < w.Now
	if w.Band == gcra.Busy {
		inBand = s.TAT >= w.Lo && s.TAT <= w.Hi
	}
	return []Check{
		{"version", s.Version == w.Version},
		{"limit", s.Limit == w.Limit},
		{"no waiters", len(s.Tickets) == len(w.Drops.Tickets)},
		{"no hold", s.Hold <= w.Now.Millis()},
		{"no pause", s.Pause <= w.Now.Millis()},
		{"id", !mine},
		{"slots", len(s.Leases) < w.Limit+len(w.Dead)},
		{"tat", inBand},
		{"dead", holdsDead(w.Dead, s)},
		{"place", mayJoin(s.Places[w.Place], w.SeenPlace, w.PlaceCap)},
		{"own", w.OwnCap == 0 || mayJoin(s.Owned[flowOf(w.ID)], w.SeenOwn, w.OwnCap)},
		{"batch", !w.Batch || mayJoin(s.Batch, w.SeenBatch, w.BatchCap)},
		{"drops", w.Drops.holds(s)},
	}
}

// holdsDead: every dead lease is there, with the end that was seen.
func holdsDead(dead []DeadLease, s State) bool {
	for _, d := range dead {
		if end, there := s.Leases[d.ID]; !there || end != d.End {
			return false
		}
	}
	return true
}

// mayJoin: the set is the one that was seen, or, where none had to be seen, has room.
func mayJoin(set, seen []string, below int) bool {
	if seen != nil {
		return slices.Equal(set, seen)
	}
	return len(set) < below
}

// Holds is the condition.
func (w Admit) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Admit) Apply(s State) State {
	change := inLeases | inPlaces | inOwned
	if len(w.Drops.Tickets)+len(w.Drops.Turns) > 0 {
		change |= inLine
	}
	s = s.with(change)
	w.Drops.apply(&s)
	dead, deadOwn := w.Drops.at(w.Place), w.Drops.of(flowOf(w.ID))
	for _, d := range w.Dead {
		s.drop(d.ID, d.Place, d.Batch, d.Owned)
		dead, deadOwn = append(dead, d.ID), append(deadOwn, d.ID)
	}
	s.Leases[w.ID] = w.End
	s.Places[w.Place] = join(s.Places[w.Place], w.SeenPlace, dead, w.ID)
	if w.OwnCap > 0 {
		s.Owned[flowOf(w.ID)] = join(s.Owned[flowOf(w.ID)], w.SeenOwn, deadOwn, w.ID)
	}
	if w.Batch {
		s.Batch = join(s.Batch, w.SeenBatch, dead, w.ID)
	}
	if w.Band == gcra.Busy {
		s.TAT += w.Step
	} else {
		s.TAT = w.Now + w.Step
	}
	return s
}

// join adds an id to a set, or to the one that was seen without its dead.
func join(set, seen, dead []string, id string) []string {
	if seen != nil {
		set = remove(seen, dead...)
	}
	return insert(set, id)
}

// drop removes a lease and its places from a state of its own.
func (s *State) drop(id string, place Place, batch, owned bool) {
	delete(s.Leases, id)
	s.leave(id, place)
	if owned {
		s.disown(id)
	}
	if batch {
		s.Batch = remove(s.Batch, id)
	}
}

// Free gives a slot and a place back, and carries what the call taught.
type Free struct {
	ID      string
	Place   Place
	Batch   bool
	Latency Millis // smoothed upstream time to keep, 0 leaves it

	Now    Millis
	Hold   Millis // 0 leaves it; else it must be later than the hold in force
	Reason HoldReason

	// A turn of the limit, from the one that was seen. 0 leaves it.
	SeenLimit, NewLimit int

	Failures FailureCount
	Episodes int // throttle episodes in a row to keep; -1 leaves them
}

// FailureCount says what a release does to the count of hard failures in a row.
type FailureCount byte

const (
	KeepFailures FailureCount = iota
	CountFailure
	ForgetFailures
)

// Checks is the condition, clause by clause: the lease is still there, so the release of a reclaimed lease changes
// nothing; a hold only ever grows; the limit turns from what was seen, and not wider while the gate is held. (The cooldown
// needs no clause: between a view and its write no two turns can have brought the limit back.)
func (w Free) Checks(s State) []Check {
	_, there := s.Leases[w.ID]
	return []Check{
		{"lease", there},
		{"later hold", w.Hold == 0 || s.Hold < w.Hold},
		{"same limit", w.NewLimit == 0 || s.Limit == w.SeenLimit},
		{"not held", !w.Grows() || s.Hold <= w.Now},
	}
}

// Grows: the limit becomes wider, which it never does while the gate is held.
func (w Free) Grows() bool { return w.NewLimit > w.SeenLimit }

// Holds is the condition.
func (w Free) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Free) Apply(s State) State {
	s = s.with(inLeases | inPlaces | inOwned)
	s.drop(w.ID, w.Place, w.Batch, true)
	if w.Latency > 0 {
		s.Latency = w.Latency
	}
	if w.Hold > 0 {
		s.Hold, s.Reason = w.Hold, w.Reason
	}
	if w.NewLimit > 0 {
		s.Limit, s.Turned = w.NewLimit, w.Now
	}
	switch w.Failures {
	case CountFailure:
		s.Failures++
	case ForgetFailures:
		s.Failures = 0
	}
	if w.Episodes >= 0 {
		s.Episodes = w.Episodes
	}
	return s
}

// Plan decides a request at now on a view of the state: the write that admits it, the write that puts it into the line, or
// a refusal. Exactly one of the three is given. The order of the checks is the order in which refusals win.
func (s State) Plan(now Micros, r Request) (*Admit, *Enqueue, *Refusal) {
	k, ms := s.Knobs, now.Millis()
	left := 0 // slots that stay free
	if r.Optional {
		r.Patience, r.Shy = 0, 1
		if s.Limit > 1 {
			left = 1
		}
	}
	cost := max(1, r.Cost)
	ceiling := r.Ceiling
	if ceiling == 0 {
		ceiling = k.ceiling(r.Key)
	}
	if refusal := s.held(now); refusal != nil {
		return nil, nil, refusal
	}
	place := r.Key.Place()
	mine := s.Places[place]
	mineLive := s.live(mine, ms)
	own := s.Owned[flowOf(r.ID)]
	if r.Own > 0 && s.live(own, ms) >= r.Own {
		return nil, nil, &Refusal{Cause: OwnFull, RetryAfter: RetryAfter(s.slotTime(k.keySlots(s.Limit)))}
	}
	if mineLive >= ceiling {
		return nil, nil, &Refusal{Cause: BulkheadFull, RetryAfter: RetryAfter(s.slotTime(k.keySlots(s.Limit)))}
	}
	enqueue := func(instead Refusal) (*Admit, *Enqueue, *Refusal) {
		w, refusal := s.planEnqueue(now, r, place, ceiling, instead)
		if refusal != nil {
			return nil, nil, refusal
		}
		return nil, &w, nil
	}

	drops, ofOwnFlow := s.drops(ms, r.ID)
	if ofOwnFlow > 0 {
		drops.Turns = append(drops.Turns, s.fewer(flowOf(r.ID), ofOwnFlow))
	}
	if len(drops.Tickets) < len(s.Tickets) {
		return enqueue(Refusal{Cause: QueueFull, RetryAfter: RetryAfter(s.slotTime(s.Limit) * time.Duration(len(s.Tickets)))})
	}
	bucket := s.bucket()
	w := Admit{
		ID: r.ID, Place: place, Batch: r.Key.Route == Batch,
		Version: s.Version, Limit: s.Limit, Now: now,
		End:  millisUp(now + Micros(k.LeaseTTL.Microseconds())),
		Cost: cost, Step: Micros(int64(cost) * bucket.T),
		Dead: s.deadLeases(ms, r.ID), Drops: drops,
	}
	if w.Band = bucket.Choose(int64(s.TAT), int64(now), cost); w.Band == gcra.Dry {
		wait := time.Duration(bucket.Wait(int64(s.TAT), int64(now), cost)) * time.Microsecond
		return enqueue(Refusal{Cause: NoToken, RetryAfter: RetryAfter(wait), Token: wait})
	}
	lo, hi := bucket.BusyRange(int64(now), cost)
	w.Lo, w.Hi = Micros(lo), Micros(hi)
	if r.Shy > 0 && (r.Patience <= 0 || k.MaxQueued == 0) { // else it would stand in the line for a token that is there
		most := int(bucket.Tau / bucket.T / 2)
		if bucket.Wait(int64(s.TAT), int64(now), cost+spare(r.Shy, most)) > 0 {
			wait := bucket.Wait(int64(s.TAT), int64(now), cost+most) // then no shyness refuses it again
			return nil, nil, &Refusal{Cause: NoToken, Estimated: true, RetryAfter: RetryAfter(time.Duration(wait) * time.Microsecond)}
		}
	}

	w.OwnCap = r.Own
	w.PlaceCap, w.BatchCap = min(ceiling, k.keySlots(s.Limit)), k.batchSlots(s.Limit)
	switch {
	case len(s.Leases)-len(w.Dead) >= s.Limit-left:
		return enqueue(Refusal{Cause: NoSlot, RetryAfter: RetryAfter(s.slotTime(s.Limit))})
	case mineLive >= w.PlaceCap:
		return enqueue(Refusal{Cause: NoKeySlot, RetryAfter: RetryAfter(s.slotTime(w.PlaceCap))})
	case w.Batch && s.live(s.Batch, ms) >= w.BatchCap:
		return enqueue(Refusal{Cause: NoKeySlot, RetryAfter: RetryAfter(s.slotTime(w.BatchCap))})
	}
	for _, d := range w.Dead {
		if d.Place == place {
			w.SeenPlace = mine
		}
		if d.Batch && w.Batch {
			w.SeenBatch = s.Batch
		}
		if d.Owned && w.OwnCap > 0 && flowOf(d.ID) == flowOf(r.ID) {
			w.SeenOwn = own
		}
	}
	if drops.at(place) != nil {
		w.SeenPlace = mine
	}
	if w.OwnCap > 0 && drops.of(flowOf(r.ID)) != nil {
		w.SeenOwn = own
	}
	return &w, nil, nil
}

// Certain is a refusal that stays right whatever has changed since this view, nil when there is none: a hold is never shortened
// but by an operator, and tat never moves back, so a bucket that is dry for longer than the caller's patience stays so.
func (s State) Certain(now Micros, r Request) *Refusal {
	if refusal := s.held(now); refusal != nil {
		return refusal
	}
	wait := time.Duration(s.bucket().Wait(int64(s.TAT), int64(now), max(1, r.Cost))) * time.Microsecond
	if wait > r.Patience {
		return &Refusal{Cause: NoToken, RetryAfter: RetryAfter(wait), Token: wait}
	}
	return nil
}

// spare is what a shy caller leaves to others, of the most that anybody leaves.
func spare(shy float64, most int) int { return min(most, int(shy*float64(most+1))) }

// deadLeases lists every lease that may be given away, in a fixed order. Not the caller's own: a write that names its id
// twice is invalid, and does not hold anyway.
func (s *State) deadLeases(now Millis, own string) []DeadLease {
	if s.settled(now) {
		return nil
	}
	var dead []DeadLease
	for id, end := range s.Leases {
		if id == own || !s.dead(end, now) {
			continue
		}
		d := DeadLease{ID: id, End: end, Batch: slices.Contains(s.Batch, id), Owned: s.owns(id)}
		for place, ids := range s.Places {
			if slices.Contains(ids, id) {
				d.Place = place
			}
		}
		dead = append(dead, d)
	}
	slices.SortFunc(dead, func(a, b DeadLease) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.ID, b.ID)) })
	return dead
}

// slotTime is the expected time until one of n slots comes free.
func (s *State) slotTime(n int) time.Duration {
	latency := time.Duration(s.Latency) * time.Millisecond
	if latency == 0 {
		latency = time.Second // before the first call: NHTSA's usual 0.3-1 s, rounded up
	}
	return latency / time.Duration(max(1, n))
}

// RetryAfter is a Retry-After: whole seconds, rounded up, at least one.
func RetryAfter(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// Lease is what the holder of this admission may do, once it has been applied. The call must start within Attempt +
// StartGrace of the stamp, whenever the answer came: that is P2's a + d, also when an answer was lost on the way.
func (s State) Lease(id string, key Key, stamp Micros, until Millis) *Lease {
	k, end := s.Knobs, until.Time()
	return &Lease{
		ID: id, Key: key, Granted: stamp.Time(), End: end,
		StartBy: stamp.Time().Add(k.Attempt + k.StartGrace),
		CallBy:  end.Add(-2*k.SkewBound - Margin),
	}
}
