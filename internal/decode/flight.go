package decode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

const (
	// A follower looks how its leader fares after leastWatch, then less often: an item is read 6,000 times a second at most, and on the day all
	// instances follow one flight they are a thousand.
	leastWatch, mostWatch = 50 * time.Millisecond, 250 * time.Millisecond
	// flightSlack is what a flight may take beyond its waits, its call and what follows: the writes between them.
	flightSlack = 500 * time.Millisecond
	// idleLook is how long a stale answer is shown without another look, where the caller alone is why it is not refreshed.
	idleLook = time.Second
)

// fly answers a question on behalf of all who ask it in this instance: with what is stored, or by following the flight of another instance, or by
// one of its own on behalf of all instances. What is refused without a write is refused before the election, which is one.
func (s *Service) fly(ctx context.Context, c claim, q vpic.Query, deadline time.Time, tell func(landing)) landing {
	row, err := s.look(ctx, q, "cache")
	if err != nil {
		// Trouble with the table is no reason to refuse. What is in memory is shown; else the decode goes on without it.
		if kept, ok := s.Results.Remembered(q); ok {
			s.Results.Hush(q, s.Now().Add(idleLook), string(CoordinationDown))
			return landing{answer: kept.Answer, source: FromCache, trouble: CoordinationDown}
		}
		return s.alone(ctx, c, q, deadline, tell)
	}
	followed := map[string]bool{} // leaders
	for looks := 0; ; {
		// One whom this flight has followed was sent away on behalf of all.
		if followed[row.Verdict.Leader] && !row.Has() {
			if refusal := s.shared(row.Verdict); refusal != nil {
				return landing{refusal: refusal, verdict: onEveryone}
			}
		}
		switch row.Kind {
		case results.Fresh, results.Stale:
			return s.stored(q, row, len(followed) > 0, deadline)
		case results.Refused:
			return landing{refusal: s.tooSlow(row), verdict: onEveryone}
		case results.Lead:
			if refusal, of := s.mayLead(ctx, &c, deadline); refusal != nil {
				return landing{refusal: refusal, verdict: of, leader: c.caller}
			}
			led, met, err := s.elect(ctx, c, q, row, deadline)
			if led != nil || err != nil {
				return s.lead(ctx, c, q, led, deadline, tell)
			}
			row = met // somebody else was elected meanwhile, or has landed
			continue
		}
		followed[row.Flight.Leader] = true
		tell(landing{refusal: following(), verdict: onRequest})
		for failures := 0; ; {
			if !s.watch(ctx, row.Until.Time(), looks) {
				return landing{refusal: following(), verdict: onRequest}
			}
			looks++
			again, err := s.look(ctx, q, "watch")
			if err == nil {
				row = again
				break
			}
			if failures++; failures > 1 {
				return s.alone(ctx, c, q, deadline, tell)
			}
		}
	}
}

// stored is the landing with an answer that was found. Who finds one past its freshness that nobody refreshes may do it: outside of the flight, so that
// nobody else waits for it.
func (s *Service) stored(q vpic.Query, row results.Found, followed bool, deadline time.Time) landing {
	l := landing{answer: row.Answer, source: FromCache}
	if row.Kind == results.Fresh {
		if followed && row.Answer.Age(s.Now()) < s.flightTime(claim{wait: s.MaxWait}) {
			l.source, l.followed = FromNHTSA, true // it came while this request waited for it
		}
		return l
	}
	l.trouble = Code(row.Reason)
	if row.Until == 0 && s.worthACall(deadline) {
		s.Results.Hush(q, s.Now().Add(s.flightTime(claim{optional: true})), "")
		l.refresh = &row
	}
	return l
}

// tooSlow is the refusal of a question that NHTSA did not answer in time, again and again.
func (s *Service) tooSlow(row results.Found) *Refusal {
	return refuse(UpstreamTimeout, sayTooSlow, s.silent(row.Until.Time().Sub(s.Now())))
}

// silent is when to come back to a question that is not asked for that long: then it is over on everybody's clock.
func (s *Service) silent(left time.Duration) time.Duration {
	return gate.RetryAfter(left + 2*s.SkewBound)
}

// timedOut says that NHTSA did not answer, although it had the usual time.
func timedOut(r *Refusal) bool {
	return r != nil && r.Code == UpstreamTimeout && r.Sentence == sayTimeout
}

// watch sleeps until a follower looks again: not past the flight's end by more than a moment, at which the followers do not all come at once.
// False: no time is left.
func (s *Service) watch(ctx context.Context, until time.Time, looks int) bool {
	pause := min(mostWatch, leastWatch<<min(looks, 8))
	pause = min(pause/2+rand.N(pause), max(0, until.Sub(s.Now().Round(0)))+rand.N(leastWatch))
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}

// mayLead is what can be refused without a write: too little time, a pause of everybody, a dry tenant, and what the gate would say at once.
func (s *Service) mayLead(ctx context.Context, c *claim, deadline time.Time) (*Refusal, verdict) {
	if !s.worthACall(deadline) {
		return busy(), onRequest
	}
	// 4. tenant
	if refusal, of := s.mayAsk(ctx, *c, deadline); refusal != nil {
		return refusal, of
	}
	c.id = "" // each time it is asked it is another
	return s.foresee(ctx, c, deadline)
}

// elect asks to lead. Neither led nor err: another does, and met says what to do.
func (s *Service) elect(ctx context.Context, c claim, q vpic.Query, row results.Found, deadline time.Time) (led *results.Led, met results.Found, err error) {
	until := s.Now().Add(s.flightTime(c))
	if deadline.Before(until) {
		until = deadline
	}
	until = until.Round(0) // on the wall: an instance that was frozen finds by it that its flight is over
	err = s.Trace(ctx, "elect", func(ctx context.Context) (err error) {
		led, met, err = s.Results.Elect(ctx, q, row, until)
		return err
	})
	if err != nil {
		s.tableTrouble(ctx, q, "nobody elected", err)
	}
	return led, met, err
}

// flightTime is how long a flight may take: its longest waits, its call, and what follows.
func (s *Service) flightTime(c claim) time.Duration {
	wait := time.Duration(0)
	if !c.optional {
		wait = max(c.wait, s.BulkheadWait)
	}
	return wait + gateAttempts + s.UpstreamTimeout + s.AfterCall + flightSlack
}

// alone leads without a flight: the table cannot be read.
func (s *Service) alone(ctx context.Context, c claim, q vpic.Query, deadline time.Time, tell func(landing)) landing {
	if refusal, of := s.mayLead(ctx, &c, deadline); refusal != nil {
		return landing{refusal: refusal, verdict: of, leader: c.caller}
	}
	return s.lead(ctx, c, q, nil, deadline, tell)
}

// lead makes the one call, on behalf of all who follow led, and ends the flight: with the answer, or with what the others are to know. led is nil
// where there is no flight.
func (s *Service) lead(ctx context.Context, c claim, q vpic.Query, led *results.Led, deadline time.Time, tell func(landing)) (l landing) {
	if led != nil {
		deadline = led.Until
	}
	ended := led == nil
	defer func() { // also when something in here panics
		if !ended {
			s.quit(ctx, led, c, l.refusal, l.verdict)
		}
	}()
	// 5. gate
	asked := s.Now()
	lease, refusal, of := s.acquire(ctx, c, deadline)
	if refusal != nil {
		return landing{refusal: refusal, verdict: of, leader: c.caller}
	}
	waited := s.Now().Sub(asked)
	// What was granted is charged beside the call, since a lease that waits for the charge might be too late for its call.
	defer s.charge(ctx, c, lease)()
	// 6. vpic, 7. release
	l.refusal, l.verdict = s.callUnder(ctx, lease, deadline, vin.Descriptor(q.VIN),
		func(ctx context.Context) (vpic.Quota, time.Duration, error) {
			answer, err := s.Upstream.Decode(ctx, q)
			if err == nil {
				l.answer, l.source, l.waited = s.Results.Live(answer), FromNHTSA, waited
			}
			return answer.Quota, answer.Took, err
		},
		func(refusal *Refusal, of verdict) { // nil: the answer is there
			now := l
			now.refusal, now.verdict = refusal, of
			tell(now)
		})
	if led != nil && timedOut(l.refusal) {
		if silence := led.Silence(s.Now()); silence > 0 {
			last := *l.refusal // what was told may be in other hands
			last.RetryAfter = max(last.RetryAfter, s.silent(silence))
			l.refusal = &last
		}
	}
	// 8. store
	if l.refusal == nil {
		var err error
		l.saved, err = s.land(ctx, led, l.answer.Answer)
		ended = ended || err == nil
	}
	return l
}

// land stores a live answer, ends its flight and says whether the answer is in the table now.
func (s *Service) land(ctx context.Context, led *results.Led, a vpic.Answer) (stored bool, err error) {
	err = s.Trace(ctx, "store", func(ctx context.Context) (err error) {
		stored, err = s.Results.Land(ctx, led, a)
		return err
	})
	if err != nil {
		s.tableTrouble(ctx, a.Query(), "answer not stored", err)
	}
	return stored, err
}

// quit ends a flight without an answer.
func (s *Service) quit(ctx context.Context, led *results.Led, c claim, refusal *Refusal, of verdict) {
	var f results.Failure
	if refusal != nil {
		if of == onEveryone {
			f.Reason, f.RetryAfter = reasonOf(refusal), refusal.RetryAfter
		}
		f.TimedOut = timedOut(refusal)
	}
	if c.optional {
		f.Rest = string(Internal)
		if refusal != nil {
			f.Rest = string(refusal.Code)
		}
	}
	err := s.Trace(ctx, "quit", func(ctx context.Context) error { return s.Results.Quit(ctx, led, f) })
	if err != nil {
		s.tableTrouble(ctx, led.Query, "flight not ended; it ends by itself", err)
	}
}

// refresh asks NHTSA again for an answer past its freshness, in the request of the one who found it. It waits for nothing but its call, and takes
// nothing that somebody else might miss. Whatever comes between, the answer that there is goes out.
func (s *Service) refresh(ctx context.Context, c claim, q vpic.Query, row results.Found, deadline time.Time) (l landing) {
	kept := landing{answer: row.Answer, source: FromCache}
	defer func() {
		if p := recover(); p != nil {
			s.Log.ErrorContext(ctx, "panic in a refresh", "vin", vin.Descriptor(q.VIN), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			l = kept
			l.trouble = Internal
		}
	}()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline) // like a flight, it ends before the response
	defer cancel()
	c.optional, c.wait = true, 0

	if refusal, of := s.mayAsk(ctx, c, deadline); refusal != nil {
		rest := results.RestTime
		if of != onEveryone { // another caller may do it
			rest = idleLook
		}
		s.Results.Hush(q, s.Now().Add(rest), string(refusal.Code))
		kept.trouble = refusal.Code
		return kept
	}
	if refusal, _ := s.foresee(ctx, &c, deadline); refusal != nil {
		kept.trouble = refusal.Code
		err := s.Trace(ctx, "defer", func(ctx context.Context) error { return s.Results.Defer(ctx, q, row, string(refusal.Code)) })
		if err != nil {
			s.tableTrouble(ctx, q, "refresh not deferred", err)
		}
		return kept
	}
	led, met, err := s.elect(ctx, c, q, row, deadline)
	switch {
	case err != nil:
		s.Results.Hush(q, s.Now().Add(idleLook), "")
		kept.trouble = CoordinationDown
		return kept
	case led == nil && met.Has():
		return landing{answer: met.Answer, source: FromCache, trouble: Code(met.Reason)}
	case led == nil:
		return kept
	}
	began := s.Now()
	if l = s.lead(ctx, c, q, led, deadline, func(landing) {}); l.refusal != nil {
		kept.trouble, kept.waited = l.refusal.Code, s.Now().Sub(began)
		return kept
	}
	l.replaced = true
	return l
}

// look reads the row of a question, in a step of the trace. What is damaged in it counts as absent.
func (s *Service) look(ctx context.Context, q vpic.Query, step string) (row results.Found, err error) {
	err = s.Trace(ctx, step, func(ctx context.Context) (err error) {
		row, err = s.Results.Look(ctx, q)
		return err
	})
	switch {
	case err != nil:
		s.tableTrouble(ctx, q, "stored answer not available", err)
	case row.Damage != nil:
		s.Log.WarnContext(ctx, "stored answer not available", "vin", vin.Descriptor(q.VIN), "error", row.Damage.Error())
	}
	return row, err
}

// tableTrouble tells of trouble with the results table: it goes into the log and the metrics, and not to the caller.
func (s *Service) tableTrouble(ctx context.Context, q vpic.Query, what string, err error) {
	s.Log.WarnContext(ctx, what, "vin", vin.Descriptor(q.VIN), "error", err.Error())
	var e *results.StoreError
	if errors.As(err, &e) {
		s.Observe.Uncached(ctx, string(e.Fault))
	}
}

// following is the refusal for a request whose own time ends while it follows another instance's flight: it cannot know whether that one waits for a
// place or for NHTSA.
func following() *Refusal { return refuse(WaitTimeout, sayFollowing, retrySoon) }

// reasons are the words under which instances tell each other of a refusal on behalf of all: about the shared budget, or what NHTSA did. What is
// about one instance alone, such as a table it cannot reach, is not among them.
var reasons = map[string]Refusal{
	"throttled":    {Code: UpstreamThrottled, Sentence: sayThrottled},
	"blocked":      {Code: UpstreamThrottled, Sentence: sayBlocked},
	"unavailable":  {Code: UpstreamUnavailable, Sentence: sayUnavailable},
	"timeout":      {Code: UpstreamTimeout, Sentence: sayTimeout},
	"bad-response": {Code: UpstreamBadResponse, Sentence: sayBadResponse},
	"starting":     {Code: RateLimited, Scope: ScopeUpstream, Sentence: sayStarting},
	"paused":       {Code: RateLimited, Scope: ScopeUpstream, Sentence: sayOperator},
	"budget":       {Code: RateLimited, Scope: ScopeUpstream, Sentence: sayBudget},
	"queue-full":   {Code: QueueFull, Sentence: sayQueueFull},
	"no-slot":      {Code: WaitTimeout, Sentence: sayWaitTimeout},
}

// reasonOf is the word for a refusal, "" where there is none.
func reasonOf(r *Refusal) string {
	for word, known := range reasons {
		if known.Code == r.Code && known.Scope == r.Scope && known.Sentence == r.Sentence {
			return word
		}
	}
	return ""
}

// shared is the refusal that a verdict stands for, nil for a word that is not known here.
func (s *Service) shared(v results.Verdict) *Refusal {
	known, ok := reasons[v.Reason]
	if !ok {
		return nil
	}
	known.RetryAfter = gate.RetryAfter(v.RetryAt.Time().Sub(s.Now()))
	return &known
}
