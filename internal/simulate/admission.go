package simulate

import (
	"time"

	"vingate/internal/gate"
)

// The way in and the line, as in package gate/dynamo.

// turn lets one request of an instance through at a time.
func (s *sim) turn(t *turnstile, r *request, then step) {
	if t.taken {
		t.waiting = append(t.waiting, r.index)
		r.resume = then
		return
	}
	t.taken = true
	s.do(then, r)
}

func (s *sim) leave(t *turnstile) {
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	next := t.waiting[0]
	t.waiting = t.waiting[:copy(t.waiting, t.waiting[1:])]
	s.plan(s.now, s.request(next).resume, next)
}

// left is what remains of the caller's patience.
func (s *sim) left(r *request) time.Duration {
	return r.gr.Patience - time.Duration(s.now-r.asked)*time.Microsecond
}

// known is a refusal that an older view proves.
func (s *sim) known(r *request) *gate.Refusal {
	in := &s.instances[r.in]
	now := s.clock(r)
	if in.seen == nil {
		return nil
	}
	if age := now - in.seenAt; age < 0 || age > micros(gate.KnownAge) {
		return nil
	}
	asks := r.gr
	asks.Patience = max(0, s.left(r))
	r.view = in.seen
	return in.seen.certain(now, asks)
}

// foresee is what Acquire would refuse at once, judged without a write.
func (s *sim) foresee(r *request) {
	if refusal := s.known(r); refusal != nil {
		s.sendAway(r, *refusal)
		return
	}
	r.shy = s.instances[r.in].manners.Shyness(s.clock(r), r.lots[0], r.lots[1])
	s.foreseeOn(r, gate.ViewAge)
}

// foreseeOn judges on a view of that age, which one caller at a time reads.
func (s *sim) foreseeOn(r *request, age time.Duration) {
	if s.remembered(r, age) {
		s.judge(r, age)
		return
	}
	r.age = age
	s.turn(&s.instances[r.in].entrance, r, foresees)
}

// foreseen has read what it is judged on.
func (s *sim) foreseen(r *request) {
	s.leave(&s.instances[r.in].entrance)
	if r.broken {
		s.throttled(r)
		return
	}
	s.judge(r, r.age)
}

func (s *sim) judge(r *request, age time.Duration) {
	in := &s.instances[r.in]
	now := s.clock(r)
	asks := r.gr
	asks.Patience, asks.Shy = max(0, s.left(r)), r.shy
	_, _, refusal := s.decide(r, now, asks)
	switch quiet := in.manners.Quiet(now); {
	case refusal == nil && quiet > gate.PatientQuiet:
		s.sendAway(r, gate.Refusal{Cause: gate.QueueFull, Estimated: true, RetryAfter: gate.RetryAfter(quiet)})
		return
	case refusal.AtTheDoor() && r.gr.BulkheadWait > 0:
	case refusal != nil:
		s.sendAway(r, *refusal)
		return
	case r.shy > 0 && age > gate.FreshAge: // a shy one looks again before it writes
		s.foreseeOn(r, gate.FreshAge)
		return
	}
	s.book.write(s.now, rows, 1)
	s.plan(s.now+s.wire(), elects, r.index)
}

// elects is the election reaching the table: of all who ask for a VIN one leads.
func (s *sim) elects(r *request) {
	r.ok = true
	if r.vin >= 0 {
		if f := s.flights[r.vin]; f != nil && !f.over || s.usable(s.fetched[r.vin]) && !(r.refreshes && s.isStale(s.fetched[r.vin])) {
			r.ok = false
		} else {
			r.flight = &flight{}
			s.flights[r.vin] = r.flight
		}
	}
	r.leads = r.ok
	s.plan(s.now+s.wire(), elected, r.index)
}

func (s *sim) elected(r *request) {
	if !r.ok {
		if r.refreshes { // somebody else does, or has done
			s.show(r)
			return
		}
		s.looked(r)
		return
	}
	s.ask(r)
	s.turn(&s.instances[r.in].entrance, r, enters)
}

func (s *sim) enters(r *request) {
	in := &s.instances[r.in]
	if refusal := s.known(r); refusal != nil {
		s.leave(&in.entrance)
		s.sendAway(r, *refusal)
		return
	}
	r.shy = in.manners.Shyness(s.clock(r), r.lots[0], r.lots[1])
	r.fresh, r.door = r.shy == 0, gate.BulkheadLook
	if s.look(r, gate.ViewAge, planned) {
		s.planned(r)
	}
}

// planned is the store's way in: refuse, wait outside, keep quiet, or write.
func (s *sim) planned(r *request) {
	in := &s.instances[r.in]
	for r.writes < gate.MaxTries {
		if r.broken {
			s.leave(&in.entrance)
			s.throttled(r)
			return
		}
		now := s.clock(r)
		asks := r.gr
		asks.Patience, asks.Shy = max(0, s.left(r)), r.shy
		admission, ticket, refusal := s.decide(r, now, asks)
		if waited := time.Duration(s.now-r.asked) * time.Microsecond; refusal.AtTheDoor() && waited < r.gr.BulkheadWait {
			if r.wrote { // others were quicker: that is a full bulkhead, and no trouble with the gate
				r.door, r.writes, r.wrote = min(2*r.door, gate.RarestLook), 0, false
			}
			s.stepBack(r, min(r.door+s.upTo(2*r.door), max(r.gr.BulkheadWait-waited, gate.BulkheadLook)))
			return
		}
		if refusal != nil {
			if r.wrote && refusal.Cause != gate.Held && !refusal.AtTheDoor() {
				in.manners.WentInVain(now)
			}
			s.leave(&in.entrance)
			s.sendAway(r, *refusal)
			return
		}
		if r.writes == 0 {
			if quiet := in.manners.Quiet(now); quiet > gate.PatientQuiet {
				s.leave(&in.entrance)
				s.sendAway(r, gate.Refusal{Cause: gate.QueueFull, Estimated: true, RetryAfter: gate.RetryAfter(quiet)})
				return
			} else if quiet > 0 {
				s.after(r, quiet, rested)
				return
			}
			if !r.fresh {
				r.fresh = true
				if !s.look(r, gate.FreshAge, planned) {
					return
				}
				continue
			}
		}
		r.writes++
		r.wrote = true
		r.admit, r.enqueue = admission, ticket
		s.ship(r, admits)
		return
	}
	// Others were quicker each time. That is a crowd, and no trouble with the gate: step back while there is time.
	waited := time.Duration(s.now-r.asked) * time.Microsecond
	if waited < max(r.gr.BulkheadWait, r.gr.Patience) && acquireBudget+r.gr.BulkheadWait-waited > lookBudget {
		d := r.door + s.upTo(2*r.door)
		r.door, r.writes = min(2*r.door, gate.RarestLook), 0
		s.stepBack(r, d)
		return
	}
	s.leave(&in.entrance)
	s.throttled(r)
}

// stepBack waits without keeping the entrance from others.
func (s *sim) stepBack(r *request, d time.Duration) {
	s.leave(&s.instances[r.in].entrance)
	s.after(r, d, outside)
}

// ship sends a write to the gate.
func (s *sim) ship(r *request, do step) {
	in := &s.instances[r.in]
	in.asked++
	r.number = in.asked
	s.plan(s.now+s.wire(), do, r.index)
}

// sends is a write reaching the table.
func (s *sim) sends(r *request, w gate.Write, then step) {
	g := s.instances[r.in].item
	if r.broken = !g.reads.write(s.now, g.cur.units, s.ItemWrites); r.broken {
		s.book.write(s.now, gates, 0)
	} else {
		var cost float64
		before := g.cur
		if r.ok, cost, r.met = g.commit(s.now, w); r.ok && s.troubled {
			g.pause.turns(s, &before.s, &g.cur.s, g.number)
		}
		s.book.write(s.now, gates, cost)
		r.bill += cost
		if !r.ok {
			s.book.vain++
		}
	}
	s.plan(s.now+s.wire(), then, r.index)
}

func (s *sim) admits(r *request) {
	if r.admit != nil {
		s.sends(r, r.admit, admitted)
	} else {
		s.sends(r, r.enqueue, admitted)
	}
	if r.ok && !r.broken {
		s.book.line(s, r)
	}
}

func (s *sim) admitted(r *request) {
	in := &s.instances[r.in]
	if r.broken {
		s.leave(&in.entrance)
		s.throttled(r)
		return
	}
	s.saw(r, r.met)
	if !r.ok {
		r.view, r.exact = r.met, true
		s.planned(r)
		return
	}
	in.manners.WentWell()
	s.leave(&in.entrance)
	if r.admit != nil {
		s.grant(r, r.admit.Now, r.admit.End)
		return
	}
	r.joined = s.now
	if s.look(r, gate.ViewAge, waits) {
		s.waits(r)
	}
}

// waits is a waiter's look at the line.
func (s *sim) waits(r *request) {
	if r.broken {
		s.throttled(r)
		return
	}
	// A view may be older than the ticket.
	if _, queued := r.view.s.Tickets[r.gr.ID]; !queued && !r.sure {
		r.sure = true
		s.readGateAs(r, waits, true)
		return
	}
	r.sure = false
	now := s.clock(r)
	w, rest, refusal := r.watch.Plan(r.view.s, now, r.gr)
	left := s.left(r)
	switch {
	case refusal != nil:
		s.goes(r, *refusal)
	case left <= 0:
		s.goes(r, *r.view.s.WaitedInVain(now, r.gr.ID))
	case rest > 0:
		s.after(r, min(rest+s.upTo(rest/8+time.Millisecond), left), looks)
	default:
		r.claim = w
		s.ship(r, claims)
	}
}

func (s *sim) claimed(r *request) {
	if r.broken {
		s.throttled(r)
		return
	}
	s.saw(r, r.met)
	if r.ok {
		s.book.line(s, r)
		s.grant(r, r.claim.Now, r.claim.End)
		return
	}
	// Somebody else moved: never try again without a pause.
	s.after(r, gate.RetryPause/2+s.upTo(gate.RetryPause), soon)
}

// goes gives a ticket back.
func (s *sim) goes(r *request, refusal gate.Refusal) {
	r.refusal = refusal
	r.attempts = 0
	s.readGate(r, leaves)
}

func (s *sim) leaves(r *request) {
	if w, queued := r.view.s.PlanCancel(r.gr.ID, r.gr.Key); queued && !r.broken {
		r.cancel = w
		s.ship(r, cancels)
		return
	}
	s.sendAway(r, r.refusal)
}

func (s *sim) cancelled(r *request) {
	if !r.broken {
		s.saw(r, r.met)
		if r.attempts++; !r.ok && r.attempts < gate.MaxTries {
			r.view = r.met
			s.leaves(r)
			return
		}
		s.book.line(s, r)
	}
	s.sendAway(r, r.refusal)
}
