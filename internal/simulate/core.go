package simulate

import (
	"time"

	"vingate/internal/gate"
)

// In a flood the same item is asked the same question again and again, and most of an answer does not depend on who asks. What the core
// said once about a version is therefore said again to callers of whom the version has nothing (no ticket, and no place but the one all
// anonymous callers share), for as long as it stays true: until a token would come within their patience, or a lease or ticket ends.
// TestTheCoreWouldSayTheSame asks both, each time.

// question is all of a caller that a refusal depends on.
type question struct {
	batch, anonymous bool
	cost             int
	waits            bool
	spare, spareTail int // what a shy instance leaves
	weight           int
	ceiling          int
}

type knownRefusal struct {
	question
	from, until gate.Micros
	patience    time.Duration
	refusal     gate.Refusal
}

type knownSent struct {
	cost        int
	waits       bool
	from, until gate.Micros
	sent        gate.Sent
}

// certain is the core's refusal that stays right whatever has changed since this version, nil when there is none.
func (v *version) certain(now gate.Micros, r gate.Request) *gate.Refusal { return v.s.Certain(now, r) }

// question is nil (ok false) for a caller whom the version knows.
func (s *sim) question(r *request, v *version, asks gate.Request) (q question, ok bool) {
	c := &s.callers[r.tenant]
	if asks.Optional {
		return q, false
	}
	if len(v.s.Owned) > 0 {
		if _, holds := v.s.Owned[c.flow]; holds {
			return q, false
		}
	}
	if len(v.s.Flows) > 0 {
		if _, waits := v.s.Flows[c.flow]; waits {
			return q, false
		}
	}
	i := 0
	if r.size > 0 {
		i = 1
	}
	if c.keyed || i == 1 {
		if _, there := v.s.Places[c.places[i]]; there {
			return q, false
		}
	}
	most := s.Knobs.MaxQueued / 4
	tail := int(s.bucket.Tau / s.bucket.T / 2)
	return question{batch: i == 1, anonymous: !c.keyed, cost: asks.Cost, waits: asks.Patience > 0, weight: asks.Weight, ceiling: asks.Ceiling,
		spare: min(most, int(asks.Shy*float64(most+1))), spareTail: min(tail, int(asks.Shy*float64(tail+1)))}, true
}

// decide is State.Plan on the request's view.
func (s *sim) decide(r *request, now gate.Micros, asks gate.Request) (*gate.Admit, *gate.Enqueue, *gate.Refusal) {
	v := r.view
	q, ok := s.question(r, v, asks)
	if ok {
		for i := range v.refusals {
			if k := &v.refusals[i]; k.question == q && k.stands(v.s.TAT, now, asks.Patience, s.Knobs.MaxQueued == 0) {
				r.refusal = k.refusal
				if k.refusal.Cause == gate.NoToken {
					r.refusal.Token = k.token(v.s.TAT, now)
					r.refusal.RetryAfter = gate.RetryAfter(r.refusal.Token)
				}
				if s.check != nil {
					_, _, refusal := v.s.Plan(now, asks)
					s.check("refusal", remembered(&r.refusal), remembered(refusal))
				}
				r.refusal.Estimated = r.refusal.Estimated || !r.exact && r.refusal.Cause != gate.NoToken
				return nil, nil, &r.refusal
			}
		}
	}
	s.book.asked++
	admission, ticket, refusal := v.s.Plan(now, asks)
	if refusal == nil {
		return admission, ticket, nil
	}
	if ok && v.until() > now {
		switch refusal.Cause {
		case gate.NoSlot, gate.QueueFull, gate.BulkheadFull:
			v.refusals = append(v.refusals, knownRefusal{q, now, v.until(), asks.Patience, *refusal})
		case gate.NoToken:
			if refusal.Token > 0 { // else a shy instance's
				v.refusals = append(v.refusals, knownRefusal{q, now, v.until(), asks.Patience, *refusal})
			}
		}
	}
	r.refusal = *refusal
	// tat never moves back: a dry bucket seen is dry.
	r.refusal.Estimated = refusal.Estimated || !r.exact && refusal.Cause != gate.NoToken
	return nil, nil, &r.refusal
}

// remembered is what counts of a refusal: its cause, and the time to come back where that is not the promise's to say.
func remembered(r *gate.Refusal) any {
	if r == nil {
		return nil
	}
	w := *r
	switch w.Cause {
	case gate.QueueFull, gate.NoSlot: // its own time grows less with each token that comes; the place in time decides
		w.RetryAfter, w.Token = 0, 0
	}
	return w
}

// stands says whether the core would say the same to an equal caller of that patience at a later time.
func (k *knownRefusal) stands(tat, now gate.Micros, patience time.Duration, noLine bool) bool {
	if now < k.from || now >= k.until {
		return false
	}
	token := k.token(tat, now)
	switch k.refusal.Cause {
	case gate.NoToken: // the token comes nearer
		if noLine {
			patience = 0
		}
		return token > patience
	case gate.NoSlot: // the estimate of the slot does not, but more patience may reach it, and less not even the token
		return patience <= k.patience && token <= patience || patience == k.patience
	}
	return true
}

// token is how far away the caller's token is at a later time: it comes nearer until the bucket's time is now.
func (k *knownRefusal) token(tat, now gate.Micros) time.Duration {
	nearer := max(0, tat-k.from) - max(0, tat-now)
	return k.refusal.Token - time.Duration(nearer)*time.Microsecond
}

// steady is how far ahead a caller's place may be reckoned in one step, where it does not move meanwhile; else it is taken for so long as it
// was, which is less than the network's jitter.
const steady, unsteady = 500_000, 5_000

// send is State.Send on the newest view of the instance.
func (s *sim) send(r *request, now gate.Micros, refusal gate.Refusal) (gate.Sent, bool) {
	v := s.instances[r.in].seen
	switch refusal.Cause {
	case gate.NoToken, gate.NoSlot, gate.QueueFull:
	default:
		return gate.Sent{}, false
	}
	if v == nil {
		return gate.Sent{}, false
	}
	waits := r.gr.Patience > 0
	for i := range v.sent {
		if k := &v.sent[i]; k.cost == r.gr.Cost && k.waits == waits && now >= k.from && now < k.until {
			sent := k.sent
			sent.ID, sent.Now, sent.Least = r.gr.ID, now, refusal.RetryAfter
			sent.From = max(sent.From, now)
			if s.check != nil {
				want, _ := v.s.Send(now, r.gr, refusal)
				if late := want.From - sent.From; late > -unsteady && late < unsteady {
					want.From = sent.From
				}
				s.check("place", sent, want)
			}
			return sent, true
		}
	}
	sent, ok := v.s.Send(now, r.gr, refusal)
	if !ok {
		return sent, false
	}
	until := min(v.until(), now+steady)
	if later, _ := v.s.Send(until, r.gr, refusal); later.From != sent.From {
		until = min(v.until(), now+unsteady)
	}
	if len(v.sent) > 16 {
		v.sent = v.sent[:0]
	}
	v.sent = append(v.sent, knownSent{r.gr.Cost, waits, now, until, sent})
	return sent, true
}

// sendAway gives a refusal its own time to come back.
func (s *sim) sendAway(r *request, refusal gate.Refusal) {
	r.outcome = refusedBy(refusal)
	now := s.clock(r)
	if r.refreshes { // nobody comes back for it
		s.refuse(r, r.outcome, refusal.RetryAfter)
		return
	}
	if refusal.Cause == gate.Held {
		s.refuse(r, r.outcome, gate.AfterHold(refusal, r.gr.ID))
		return
	}
	sent, shared := s.send(r, now, refusal)
	if !shared {
		s.refuse(r, r.outcome, refusal.RetryAfter)
		return
	}
	r.sent = sent
	s.turn(&s.instances[r.in].counter, r, deals)
}

func (s *sim) deals(r *request) {
	in := &s.instances[r.in]
	if place, ok := in.desk.Deal(r.sent); ok {
		s.sent(r, place)
		return
	}
	now := s.clock(r)
	if age := now - in.failedAt; in.failedAt != 0 && age >= 0 && age < micros(promiseRest) {
		s.sent(r, r.sent.Unpromised())
		return
	}
	if age := now - in.promiseAt; in.promiseAt == 0 || age < 0 || age > micros(gate.PromiseAge) {
		r.server = s.now + s.wire()
		r.broken = !in.item.promiseReads.read(r.server, 0.5, s.ItemReads)
		s.book.read(s.now, promises, 0.5)
		r.reads = 2
		s.plan(r.server+s.wire(), asksPromise, r.index)
		return
	}
	s.asksPromise(r)
}

func (s *sim) asksPromise(r *request) {
	in := &s.instances[r.in]
	if r.reads == 2 {
		r.reads = 0
		if r.broken {
			s.noPromise(r)
			return
		}
		lag := gate.Micros(0)
		if s.Lag > 0 {
			lag = gate.Micros(s.rng.Int64N(s.Lag.Microseconds() + 1))
		}
		in.promise, in.promiseAt = in.item.promiseAsOf(r.server-lag), s.clock(r)
	}
	r.ID = s.newID("")
	r.place, r.reserve = in.desk.Ask(r.sent, r.ID, in.promise)
	if r.reserve == nil {
		s.sent(r, r.place)
		return
	}
	s.plan(s.now+s.wire(), reserves, r.index)
}

func (s *sim) noPromise(r *request) {
	r.broken = false
	s.instances[r.in].failedAt = s.clock(r)
	s.sent(r, r.sent.Unpromised())
}

// reserves is the write of a block reaching the table.
func (s *sim) reserves(r *request) {
	in := &s.instances[r.in]
	cost := units(60 + 19*len(in.item.promise.Blocks))
	s.book.write(s.now, promises, cost)
	r.bill += cost
	if r.broken = !in.item.promiseReads.write(s.now, cost, s.ItemWrites); !r.broken {
		r.ok, r.promise = in.item.reserve(s.now, *r.reserve)
	}
	s.plan(s.now+s.wire(), reserved, r.index)
}

func (s *sim) reserved(r *request) {
	in := &s.instances[r.in]
	if r.broken {
		s.noPromise(r)
		return
	}
	in.promise, in.promiseAt = r.promise, s.clock(r)
	switch {
	case r.place != 0: // a guest's, and the write is for others
	case r.ok:
		r.place = in.desk.Took(r.sent, *r.reserve, in.promise)
	default:
		r.place = in.desk.Missed(r.sent, in.promise)
	}
	s.sent(r, r.place)
}

func (s *sim) sent(r *request, place gate.Micros) {
	s.leave(&s.instances[r.in].counter)
	s.refuse(r, r.outcome, r.sent.RetryAfter(place))
}
