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

func (s *sim) foresees(r *request) {
	if refusal := s.known(r); refusal != nil {
		s.leave(&s.instances[r.in].entrance)
		s.sendAway(r, *refusal)
		return
	}
	if s.look(r, gate.ViewAge, foreseen) {
		s.foreseen(r)
	}
}

func (s *sim) foreseen(r *request) {
	in := &s.instances[r.in]
	if r.broken {
		s.leave(&in.entrance)
		s.throttled(r)
		return
	}
	now := s.clock(r)
	asks := r.gr
	asks.Patience, asks.Shy = max(0, s.left(r)), in.manners.Shyness(now, s.rng.Float64(), s.rng.Float64())
	_, _, refusal := s.decide(r, now, asks)
	s.leave(&in.entrance)
	switch quiet := in.manners.Quiet(now); {
	case refusal == nil && quiet > gate.PatientQuiet:
		s.sendAway(r, gate.Refusal{Cause: gate.QueueFull, Estimated: true, RetryAfter: gate.RetryAfter(quiet)})
		return
	case refusal == nil, refusal.Cause == gate.BulkheadFull && r.gr.BulkheadWait > 0:
		s.book.write(s.now, rows, 1)
		s.plan(s.now+s.wire(), elects, r.index)
		return
	}
	s.sendAway(r, *refusal)
}

// elects is the election reaching the table: of all who ask for a VIN one leads.
func (s *sim) elects(r *request) {
	r.ok = true
	if r.vin >= 0 {
		if f := s.flights[r.vin]; f != nil && !f.over || s.usable(s.fetched[r.vin]) {
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
	r.shy = in.manners.Shyness(s.clock(r), s.rng.Float64(), s.rng.Float64())
	r.fresh = r.shy == 0
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
		if refusal != nil && refusal.Cause == gate.BulkheadFull && s.now-r.asked < micros(r.gr.BulkheadWait) {
			s.leave(&in.entrance)
			s.after(r, gate.BulkheadLook+s.upTo(2*gate.BulkheadLook), outside)
			return
		}
		if refusal != nil {
			if r.wrote && refusal.Cause != gate.Held && refusal.Cause != gate.BulkheadFull {
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
	s.leave(&in.entrance)
	s.throttled(r)
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
		r.ok, cost, r.met = g.commit(s.now, w)
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
