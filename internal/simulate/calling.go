package simulate

import (
	"time"

	"vingate/internal/gate"
)

// The lanes behind the gate: the call, the release, the store, and the answer.

// grant is the way from a lease to NHTSA. The tenant is charged beside the call.
func (s *sim) grant(r *request, stamp gate.Micros, end gate.Millis) {
	r.lease = s.instances[r.in].item.cur.s.Lease(r.gr.ID, r.gr.Key, stamp, end)
	s.charge(r)
	now := s.clock(r)
	byLease := time.Duration(gate.MicrosOf(r.lease.CallBy)-now) * time.Microsecond
	byRequest := s.RequestDeadline - afterCall - time.Duration(s.now-r.began)*time.Microsecond
	left := min(byLease, byRequest)
	r.result = gate.Outcome{Kind: gate.Abandoned}
	if now > gate.MicrosOf(r.lease.StartBy) || left < min(leastCall, s.UpstreamTimeout) {
		r.outcome, r.retry = TooLate, time.Second
		s.release(r)
		return
	}
	s.callStarts(r)
	took := s.Upstream.draw(s.rng)
	r.result.Kind, r.outcome = gate.Succeeded, Live
	if r.refreshes {
		r.outcome = Refreshed
	}
	if s.Failing > 0 && s.rng.Float64() < s.Failing {
		r.result.Kind, r.outcome, r.retry = gate.Failed, UpstreamFailed, retryFault
	}
	switch t := s.troubleAt(r); {
	case t == nil:
	case t.Kind == Says503:
		r.result.Kind, r.outcome, r.retry = gate.Failed, UpstreamFailed, max(retryFault, t.RetryAfter)
		if t.RetryAfter > 0 { // whoever names a time is obeyed
			r.result.Kind, r.result.RetryAfter = gate.Throttled, t.RetryAfter
		}
	default:
		r.result = gate.Outcome{Kind: gate.Throttled, RetryAfter: t.RetryAfter, Blocked: t.Kind == Says403}
		r.outcome, r.retry = UpstreamThrottled, gate.PauseThrottled
		if r.result.Blocked {
			r.retry = gate.PauseBlocked
		}
		if t.RetryAfter > 0 {
			r.retry = t.RetryAfter
		}
	}
	if most := min(left, s.UpstreamTimeout); took > most {
		took = most
		r.result.Kind, r.outcome, r.retry = gate.Failed, UpstreamTimedOut, retryFault
	}
	r.result.Took = took
	s.after(r, took, calls)
}

// charge takes the cost out of the tenant's account: max(tat, now) + cost x T, as package tenant proves its three writes to be.
func (s *sim) charge(r *request) {
	c := &s.callers[r.tenant]
	now := s.clock(r)
	wait := s.wire() + s.wire()
	if seen, known := s.instances[r.in].accounts[r.tenant]; !known || now-seen.at > micros(accountAge) {
		s.book.read(s.now, accounts, 0.5)
		wait += s.wire() + s.wire()
	}
	step := s.bucketsT[0]
	if c.keyed {
		step = s.bucketsT[1]
	}
	c.tat = max(c.tat, now) + gate.Micros(s.cost(r))*step
	s.book.write(s.now, accounts, 1)
	s.remember(r, c.tat, now)
	r.charged = s.now + wait
}

func (s *sim) callStarts(r *request) {
	s.book.calls(s, r)
	s.oracle.start(float64(s.now-s.start) / 1e6)
	s.countLive(1)
}

func (s *sim) countLive(n int) {
	s.book.liveFor(s, s.live, s.liveFrom)
	s.live, s.liveFrom = s.live+n, s.now
	s.book.peak = max(s.book.peak, s.live)
}

func (s *sim) called(r *request) {
	s.countLive(-1)
	s.instances[r.in].item.pause.hears(r.result.Kind)
	s.release(r)
}

func (s *sim) release(r *request) {
	r.attempts = 0
	r.free = s.instances[r.in].seen.s.PlanRelease(s.clock(r), r.lease, r.result)
	s.ship(r, frees)
}

func (s *sim) freed(r *request) {
	if r.broken {
		if r.attempts++; r.attempts <= 50 {
			s.after(r, gate.RetryPause, frees)
			return
		}
	} else {
		s.saw(r, r.met)
		if _, there := r.met.s.Leases[r.lease.ID]; !r.ok && there {
			next := r.met.s.PlanRelease(s.clock(r), r.lease, r.result)
			if r.attempts++; r.attempts > 1 {
				next = next.Plain()
			}
			r.free = next
			s.ship(r, frees)
			return
		}
	}
	if !r.outcome.answer() {
		// The release may have begun a longer pause for everybody.
		if h := s.instances[r.in].seen.s.InForce(s.clock(r)); r.result.Kind != gate.Abandoned && h != (gate.Hold{}) {
			r.retry = max(r.retry, gate.RetryAfter(h.Until.Time().Sub(s.clock(r).Time())))
		}
		s.quitFlight(r)
		return
	}
	n := 1
	wait := s.wire()
	if r.size > 0 {
		n = int(r.asks)
		for range (n-1)/tableAtOnce + 1 {
			wait += s.wire() + s.wire()
		}
	}
	s.book.write(s.now, rows, float64(n))
	s.plan(s.now+wait, lands, r.index)
}

// lands is the answer reaching the table.
func (s *sim) lands(r *request) {
	if r.vin >= 0 {
		delete(s.rests, r.vin)
		s.fetched[r.vin] = s.second()
		s.instances[r.in].memory.keep(r.vin, s.second())
	}
	s.endFlight(r)
	s.plan(s.now+s.wire(), landed, r.index)
}

func (s *sim) endFlight(r *request) {
	if f := r.flight; f != nil && r.leads {
		f.over = true
		if f.watch == 0 && s.flights[r.vin] == f {
			delete(s.flights, r.vin)
		}
	}
	r.flight, r.leads = nil, false
}

// throttled is the refusal when the budget cannot be read or written.
func (s *sim) throttled(r *request) {
	r.broken = false
	s.refuse(r, Unreadable, 2*time.Second)
}

// refuse ends a request without places in time.
func (s *sim) refuse(r *request, why Outcome, retry time.Duration) {
	r.outcome, r.retry = why, retry
	if foreseen := r.refreshes && !r.leads && r.gr.ID != "" && why != Unreadable; foreseen { // all are to know that it rests
		s.book.write(s.now, rows, 1)
		s.plan(s.now+s.wire(), puts, r.index)
		return
	}
	s.quitFlight(r)
}

// quitFlight ends the flight that it led, if it did, and then the request.
func (s *sim) quitFlight(r *request) {
	if r.leads {
		s.book.write(s.now, rows, 1)
		s.plan(s.now+s.wire(), quits, r.index)
		return
	}
	if r.refreshes {
		s.show(r)
		return
	}
	s.plan(max(s.now, r.charged), ends, r.index)
}

func (s *sim) quits(r *request) {
	if f := r.flight; f != nil && r.leads {
		f.all, f.why, f.retry = r.outcome.everybodys(), r.outcome, r.retry
	}
	if r.refreshes {
		s.rests[r.vin] = s.now + micros(refreshRest)
		s.hush(r, refreshRest)
	}
	s.endFlight(r)
	s.plan(s.now+s.wire(), quit, r.index)
}

// finish is the answer going out.
func (s *sim) finish(r *request) {
	if r.in >= 0 {
		s.idle = append(s.idle, r.in)
		if s.local != nil && r.vin >= 0 && r.size == 0 {
			if key := s.localKey(r); s.local[key] == r.index {
				delete(s.local, key)
			}
		}
	}
	s.book.ended(s, r)
	for _, i := range r.followers {
		s.settle(s.request(i), r)
	}
	src := &s.sources[r.source]
	if r.outcome.refusal() && int(r.try) < src.Tries && s.now < s.end {
		back := r.retry + 20*time.Millisecond + s.upTo(80*time.Millisecond)
		n := *r
		*r = request{brief: brief{index: n.index, source: n.source, tenant: n.tenant, vin: n.vin, size: n.size, try: n.try + 1, followers: n.followers[:0]}}
		s.plan(s.now+micros(back), returns, r.index)
		return
	}
	i := r.index
	s.give(r)
	s.spare = append(s.spare, i)
}

// settle ends one who shared another's call in the same instance, or lets it stand for itself.
func (s *sim) settle(f, leader *request) {
	switch {
	case leader.outcome.stored():
		f.outcome, f.stale = leader.outcome, leader.stale
	case leader.outcome.answer():
		f.outcome = Shared
	case leader.outcome.everybodys(), leader.tenant == f.tenant:
		f.outcome, f.retry = leader.outcome, leader.retry
	default:
		if next, flies := s.local[s.localKey(f)]; flies {
			l := s.request(next)
			l.followers = append(l.followers, f.index)
			return
		}
		s.local[s.localKey(f)] = f.index
		s.plan(s.now, looked, f.index)
		return
	}
	s.plan(s.now, ends, f.index)
}
