package simulate

import (
	"time"

	"vingate/internal/gate"
	"vingate/internal/tenant"
)

// The lanes before the gate, as in package decode: what is stored, who is on the way already, a hold, the tenant, and what the gate would refuse
// at once.

// arrive draws a request of a source, and plans the next.
func (s *sim) arrive(src *source, index int32) {
	r := s.take()
	r.source = index
	r.tenant = src.first
	r.vin = -1
	switch src.Arrivals {
	case Trace:
		w := src.rows[src.row]
		r.tenant += w.tenant
		r.size = w.size
		if w.vin >= 0 && s.VINs > 0 {
			r.vin = w.vin % int32(s.VINs)
		}
	case Dealer:
		if src.left == 0 {
			src.left, src.who = src.Size, s.rng.Int32N(int32(src.Tenants))
		}
		r.tenant += src.who
		r.size = int16(min(src.left, mostBatch))
		src.left -= int(r.size)
	default:
		r.tenant += s.rng.Int32N(int32(src.Tenants))
	}
	if r.size == 0 && r.vin < 0 && !src.Unique && src.Arrivals != Trace {
		r.vin = s.zipf.draw(s.rng)
	}
	src.advance(s.rng)
	if src.next < src.until {
		s.plan(src.next, arrives, index)
	}
	s.book.offered(s, r)
	s.begin(r)
}

// begin hands a request to an instance that is free.
func (s *sim) begin(r *request) {
	r.began = s.now
	if len(s.idle) == 0 && s.warm < s.Instances { // one more is started
		for range s.Concurrency {
			s.idle = append(s.idle, int32(s.warm))
		}
		s.warm++
	}
	if len(s.idle) == 0 {
		r.in = -1
		r.outcome, r.retry = NoInstance, time.Second
		s.finish(r)
		return
	}
	n := s.rng.IntN(len(s.idle))
	r.in = s.idle[n]
	s.idle[n] = s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	if r.size > 0 {
		s.beginBatch(r)
		return
	}
	if r.vin >= 0 {
		in := &s.instances[r.in]
		if at, there := in.memory.fetched(r.vin); there && s.usable(at) && (!s.isStale(at) || in.hushed[r.vin] > s.clock(r)) {
			r.outcome, r.stale = FromMemory, s.isStale(at)
			s.seq++
			s.shown.push(event{at: s.now + micros(s.Work), seq: s.seq, who: r.index, do: ends})
			return
		}
		if s.local != nil {
			key := s.localKey(r)
			if leader, flies := s.local[key]; flies {
				l := s.request(leader)
				l.followers = append(l.followers, r.index)
				return
			}
			s.local[key] = r.index
		}
	}
	s.readRow(r, 0.5, looked)
}

func (s *sim) localKey(r *request) uint64 { return uint64(r.in)<<32 | uint64(uint32(r.vin)) }

func (s *sim) readRow(r *request, units float64, then step) {
	s.book.read(s.now, rows, units)
	s.plan(s.now+s.wire()+s.wire()+micros(s.Work), then, r.index)
}

// usable says whether an answer that was fetched in that second may be shown.
func (s *sim) usable(fetched uint32) bool {
	return fetched > 0 && s.now < s.start+gate.Micros(fetched)*1e6 // fetched is as long before
}

// isStale says whether it should be refreshed.
func (s *sim) isStale(fetched uint32) bool {
	return s.now >= s.start+gate.Micros(fetched)*1e6-micros(s.CacheTTL-s.CacheSoftTTL)
}

func (s *sim) second() uint32 { return uint32((s.now-s.start+micros(s.CacheTTL))/1e6) + 1 }

func (s *sim) beginBatch(r *request) {
	src := &s.sources[r.source]
	for range r.size {
		if s.VINs > 0 && !src.Unique && s.usable(s.fetched[s.zipf.draw(s.rng)]) {
			continue
		}
		r.asks++
	}
	s.book.read(s.now, rows, 0.5*float64(r.size))
	trips := (int(r.size) + tableAtOnce - 1) / tableAtOnce
	wait := micros(s.Work)
	for range trips {
		wait += s.wire() + s.wire()
	}
	if r.asks == 0 {
		r.outcome = FromTable
		s.plan(s.now+wait, ends, r.index)
		return
	}
	s.plan(s.now+wait, looked, r.index)
}

func (s *sim) looked(r *request) {
	if r.size == 0 && r.vin >= 0 {
		if at := s.fetched[r.vin]; s.usable(at) {
			s.instances[r.in].memory.keep(r.vin, at)
			r.outcome, r.stale = FromTable, s.isStale(at)
			if r.stale {
				s.foundStale(r)
				return
			}
			s.plan(s.now, ends, r.index)
			return
		}
		if f := s.flights[r.vin]; f != nil && !f.over {
			s.follow(r, f)
			return
		}
	}
	s.mayAsk(r)
}

// foundStale shows a stale answer that somebody else refreshes, or that rests; else this request tries to refresh it. Who follows it
// in its instance does not wait for that.
func (s *sim) foundStale(r *request) {
	rest := s.rests[r.vin]
	switch f := s.flights[r.vin]; {
	case f != nil && !f.over:
		s.hush(r, lookAgain)
	case rest > s.now:
		s.hush(r, time.Duration(rest-s.now)*time.Microsecond)
	case s.now-r.began > micros(s.RequestDeadline-afterCall-leastCall):
	default:
		delete(s.rests, r.vin)
		s.hush(r, gateAttempts+s.UpstreamTimeout+afterCall+flightSlack)
		r.refreshes, r.gr.ID = true, ""
		if s.local != nil && s.local[s.localKey(r)] == r.index {
			delete(s.local, s.localKey(r))
		}
		for _, i := range r.followers {
			f := s.request(i)
			f.outcome, f.stale = FromTable, true
			s.plan(s.now, ends, i)
		}
		r.followers = r.followers[:0]
		s.mayAsk(r)
		return
	}
	s.plan(s.now, ends, r.index)
}

// hush lets the instance show a stale answer without a look.
func (s *sim) hush(r *request, d time.Duration) {
	in := &s.instances[r.in]
	if in.hushed == nil || len(in.hushed) >= mostSlots {
		in.hushed = map[int32]gate.Micros{}
	}
	in.hushed[r.vin] = s.clock(r) + micros(d)
}

// show lets the stale answer go out that could not be refreshed.
func (s *sim) show(r *request) {
	r.outcome, r.stale, r.retry = FromTable, s.isStale(s.fetched[r.vin]), 0
	if r.stale {
		s.book.putOff++
	}
	s.plan(max(s.now, r.charged), ends, r.index)
}

// puts is the rest reaching the table, which all instances obey.
func (s *sim) puts(r *request) {
	s.rests[r.vin] = s.now + micros(refreshRest)
	s.hush(r, refreshRest)
	s.plan(s.now+s.wire(), put, r.index)
}

// follow watches another instance's flight.
func (s *sim) follow(r *request, f *flight) {
	if r.flight != f {
		r.flight = f
		f.watch++
		r.looks = 0
	}
	pause := min(mostWatch, leastWatch<<min(r.looks, 8))
	pause = pause/2 + s.upTo(pause)
	r.looks++
	s.book.read(s.now, rows, 1)
	s.plan(s.now+micros(pause)+s.wire()+s.wire(), watched, r.index)
}

// upTo is a time between 0 and that.
func (s *sim) upTo(d time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(max(1, d))))
}

func (s *sim) watched(r *request) {
	f := r.flight
	switch {
	case s.usable(s.fetched[r.vin]):
		s.instances[r.in].memory.keep(r.vin, s.fetched[r.vin])
		r.outcome = Shared
	case f.over && f.all:
		r.outcome, r.retry = f.why, f.retry
	case f.over:
		s.unfollow(r)
		s.looked(r) // it stands for itself, or follows the next
		return
	case s.now-r.began > micros(s.RequestDeadline-afterCall-leastCall):
		r.outcome, r.retry = NoSlotInTime, time.Second
	default:
		s.follow(r, f)
		return
	}
	s.unfollow(r)
	s.plan(s.now, ends, r.index)
}

func (s *sim) unfollow(r *request) {
	f := r.flight
	r.flight = nil
	if f.watch--; f.watch == 0 && f.over && s.flights[r.vin] == f {
		delete(s.flights, r.vin)
	}
}

// readGate asks for the item, eventually consistent.
func (s *sim) readGate(r *request, then step) { s.readGateAs(r, then, false) }

func (s *sim) readGateAs(r *request, then step, consistent bool) {
	units := 0.5
	r.consistent = consistent
	if consistent {
		units = 1
	}
	in := &s.instances[r.in]
	in.asked++
	r.number = in.asked
	r.server = s.now + s.wire()
	r.broken = !in.item.reads.read(r.server, units, s.ItemReads)
	s.book.read(s.now, gates, units)
	r.reads = 1
	s.plan(r.server+s.wire(), then, r.index)
}

// sawGate is the answer of a read, if one was under way.
func (s *sim) sawGate(r *request) {
	if r.reads == 0 {
		return
	}
	r.reads = 0
	if r.broken {
		return
	}
	lag := gate.Micros(0)
	if s.Lag > 0 && !r.consistent {
		lag = gate.Micros(s.rng.Int64N(s.Lag.Microseconds() + 1))
	}
	r.view, r.exact = s.instances[r.in].item.asOf(r.server-lag), false
	s.saw(r, r.view)
}

// saw keeps a version as the newest view, unless a request sent later has been answered already.
func (s *sim) saw(r *request, v *version) {
	in := &s.instances[r.in]
	if r.number > in.shown {
		in.shown, in.seen, in.seenAt = r.number, v, s.clock(r)
	}
}

// remembered makes the instance's view the request's, if it is no older than that.
func (s *sim) remembered(r *request, age time.Duration) bool {
	if in := &s.instances[r.in]; in.seen != nil {
		if old := s.clock(r) - in.seenAt; old >= 0 && old <= micros(age) {
			r.view, r.exact = in.seen, false
			return true
		}
	}
	return false
}

// look is the instance's view if it is no older than that; else it is read, and then comes next.
func (s *sim) look(r *request, age time.Duration, then step) bool {
	if s.remembered(r, age) {
		return true
	}
	s.readGate(r, then)
	return false
}

func (s *sim) mayAsk(r *request) {
	if s.now-r.began > micros(s.RequestDeadline-afterCall-leastCall) {
		s.refuse(r, NoSlotInTime, time.Second)
		return
	}
	if s.look(r, gate.KnownAge, knowsHold) {
		s.knowsHold(r)
	}
}

func (s *sim) knowsHold(r *request) {
	if r.broken {
		s.throttled(r)
		return
	}
	c := &s.callers[r.tenant]
	now := s.clock(r)
	if h := r.view.s.InForce(now); h != (gate.Hold{}) {
		if r.refreshes {
			s.hush(r, refreshRest)
		}
		s.refuse(r, heldBy(h.Reason), gate.RetryAfter(h.Until.Time().Sub(now.Time())))
		return
	}
	in := &s.instances[r.in]
	if seen, known := in.accounts[r.tenant]; known {
		if refusal := (tenant.Account{There: seen.tat != 0, TAT: seen.tat}).Look(now, c.plan(&s.Setup), s.cost(r), s.Knobs.SkewBound); refusal != nil {
			s.dry(r, refusal)
			return
		}
		if age := now - seen.at; age >= 0 && age <= micros(accountAge) {
			s.mayLead(r)
			return
		}
	}
	s.book.read(s.now, accounts, 0.5)
	r.server = s.now + s.wire()
	r.broken = !c.reads.read(r.server, 0.5, s.ItemReads)
	s.plan(r.server+s.wire(), knowsAccount, r.index)
}

func (s *sim) cost(r *request) int {
	if r.size > 0 {
		return s.batchCost(int(r.asks))
	}
	return 1
}

func (s *sim) remember(r *request, tat gate.Micros, at gate.Micros) {
	in := &s.instances[r.in]
	if in.accounts == nil || len(in.accounts) >= mostAccounts {
		in.accounts = make(map[int32]account)
	}
	in.accounts[r.tenant] = account{tat, at}
}

func (s *sim) knowsAccount(r *request) {
	if r.broken {
		s.throttled(r)
		return
	}
	c := &s.callers[r.tenant]
	now := s.clock(r)
	s.remember(r, c.tat, now)
	if refusal := (tenant.Account{There: c.tat != 0, TAT: c.tat}).Look(now, c.plan(&s.Setup), s.cost(r), s.Knobs.SkewBound); refusal != nil {
		s.dry(r, refusal)
		return
	}
	s.mayLead(r)
}

func (s *sim) dry(r *request, refusal *tenant.Refusal) {
	if r.refreshes { // another caller may do it
		s.hush(r, idleLook)
	}
	s.refuse(r, TenantDry, refusal.RetryAfter)
}

// ask makes the request to the gate, as it is made anew for Foresee and for Acquire.
func (s *sim) ask(r *request) {
	c := &s.callers[r.tenant]
	r.asked = s.now
	wait := s.MaxWait
	if r.size > 0 {
		wait = s.MaxWaitBatch
	}
	room := max(0, s.RequestDeadline-afterCall-leastCall-time.Duration(s.now-r.began)*time.Microsecond-gateAttempts)
	if r.gr.ID == "" {
		r.gr.ID, r.lots = s.newID(c.flow), [2]float64{s.rng.Float64(), s.rng.Float64()}
	}
	r.gr = gate.Request{ID: r.gr.ID, Key: c.key(r.route()), Ceiling: c.plan(&s.Setup).Ceiling(r.route()), Own: c.own(), Cost: s.cost(r),
		Tenant: c.id, Weight: c.weight, Optional: r.refreshes}
	if !r.refreshes {
		r.gr.Patience, r.gr.BulkheadWait = min(wait, room), min(s.BulkheadWait, room)
	}
	r.writes, r.wrote, r.fresh = 0, false, false
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// newID is 36 random bits behind the flow.
func (s *sim) newID(flow gate.Flow) string {
	var id [11]byte
	n := copy(id[:], flow)
	for bits := s.rng.Uint64(); n < len(id); n++ {
		id[n] = letters[bits&63]
		bits >>= 6
	}
	return string(id[:])
}

func (s *sim) mayLead(r *request) {
	r.gr.ID = "" // each time it asks it is another
	s.ask(r)
	if r.size > 0 { // a batch flies no flight
		s.turn(&s.instances[r.in].entrance, r, enters)
		return
	}
	s.foresee(r)
}
