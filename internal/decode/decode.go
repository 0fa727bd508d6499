// Package decode is the way of one request, from what somebody typed to NHTSA's answer or to a refusal.
//
// It promises that a decode is NHTSA's own answer for exactly that VIN and model year, live or stored and labelled so;
// that no call leaves without a lease, or after the lease says it must not start; that a lease is given back before the
// caller it was leased for has the answer, whatever happened in between; that the same question asked at the same time costs
// one call; and that everything else is a *Refusal, which says in plain words whose limit it was and when to come back, and
// holds nothing about a vehicle. Whose own time ends is told what it was spent on: while it waits for a place here, that
// vingate is busy; while the call runs, that NHTSA did not answer in time; once NHTSA has answered, that answer.
//
// NHTSA is never asked twice for one request, and a refusal is never tried again here: that is the caller's to decide.
package decode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// Gate is what is used of the shared budget.
type Gate interface {
	// Foresee is Acquire's refusal where that needs no wait and no write, and gives the request the id to acquire with. An error means that the
	// budget could not be read.
	Foresee(context.Context, *gate.Request) (*gate.Refusal, error)
	// Acquire returns exactly one of a lease, a refusal and an error. An error means that the budget could not be read or written.
	Acquire(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error)
	// Release goes on when its context has ended, and bounds itself within AfterCall.
	Release(context.Context, *gate.Lease, gate.Outcome) error
	View(context.Context) (gate.View, error)
}

// Tenants is what is used of the callers' own buckets.
type Tenants interface {
	// Look says whether the caller may ask for a call of this cost; nil, nil means yes. An error means that nobody knows.
	Look(context.Context, tenant.Caller, int) (*tenant.Refusal, error)
	// Charge takes the cost of what was granted under id, once. It goes on when its context has ended, and bounds itself within AfterCall.
	Charge(ctx context.Context, c tenant.Caller, id string, cost int) error
}

// Upstream makes exactly one call. Its error is a *vpic.Error.
type Upstream interface {
	Decode(context.Context, vpic.Query) (vpic.Answer, error)
	// DecodeBatch has an item for each query, in the queries' order; its own error is about all of them.
	DecodeBatch(context.Context, []vpic.Query) (vpic.BatchAnswer, error)
}

// Results is what is used of the stored answers, and of the flights to them. An error is a *results.StoreError, with Land also a *results.CorruptError.
type Results interface {
	// Remembered makes no call. Look makes one.
	Remembered(vpic.Query) (results.Found, bool)
	Look(context.Context, vpic.Query) (results.Found, error)
	// Elect gives a flight, or what to do instead. With an error both is possible: whoever goes on alone ends the flight he may have.
	Elect(ctx context.Context, q vpic.Query, f results.Found, until time.Time) (*results.Led, results.Found, error)
	// Land and Quit go on when their context has ended, and bound themselves within AfterCall.
	Land(context.Context, *results.Led, vpic.Answer) (stored bool, err error)
	Quit(context.Context, *results.Led, results.Failure) error
	Defer(ctx context.Context, q vpic.Query, f results.Found, reason string) error
	Hush(q vpic.Query, until time.Time, reason string)
	Live(vpic.Answer) results.Stored
}

// Trace runs a step under its name in the request's trace.
type Trace func(ctx context.Context, name string, step func(context.Context) error) error

// Observer is told of the two waits of a request, each from inside of its step of the trace, and of what it had to do without.
type Observer interface {
	// Gate: what came of asking the shared budget, GateGranted or the cause of the refusal, and the time until then.
	Gate(ctx context.Context, outcome string, waited time.Duration)
	// Upstream: what came of a call to NHTSA, UpstreamAnswered or the code it led to, and the time it took.
	Upstream(ctx context.Context, outcome string, took time.Duration)
	// Uncached: the results table could not be read or written, and why.
	Uncached(ctx context.Context, fault string)
}

// Outcomes that are none of a refusal's.
const (
	GateGranted      = "granted"
	GateUnreadable   = "unreadable"
	UpstreamAnswered = "answered"
)

type nobody struct{}

func (nobody) Gate(context.Context, string, time.Duration)     {}
func (nobody) Upstream(context.Context, string, time.Duration) {}
func (nobody) Uncached(context.Context, string)                {}

// Config of a service. Trace, Observe, Log and Now may be nil.
type Config struct {
	Gate     Gate
	Tenants  Tenants
	Upstream Upstream
	Results  Results

	MaxWait         time.Duration // for a slot and a token, in the line
	MaxWaitBatch    time.Duration // the same of a batch
	BulkheadWait    time.Duration // for a place of one's own key, before it
	UpstreamTimeout time.Duration // of one call
	RequestDeadline time.Duration // of everything one request does
	BatchTokenCost  int           // tokens for every ten VINs begun in a batch; 0 means 1
	SkewBound       time.Duration // how far any instance's clock may be off
	AfterCall       time.Duration // kept free after a call: at least what the release and then the store, or a look at the gate and the end of the flight, take

	Trace   Trace
	Observe Observer
	Log     *slog.Logger
	Now     func() time.Time
}

// Service decodes. It is safe for use by many goroutines.
type Service struct {
	Config
	flights results.Flights[landing]
}

// New makes a service.
func New(cfg Config) *Service {
	if cfg.Trace == nil {
		cfg.Trace = func(ctx context.Context, _ string, step func(context.Context) error) error { return step(ctx) }
	}
	if cfg.Observe == nil {
		cfg.Observe = nobody{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.BatchTokenCost = max(1, cfg.BatchTokenCost)
	return &Service{Config: cfg}
}

// Request is one question.
type Request struct {
	VIN        string // as typed
	ModelYear  int    // 0 when none is given
	Caller     tenant.Caller
	AsNHTSA    bool // ask what NHTSA itself takes, see vin.ForNHTSA, rather than what is a VIN
	Extended   bool // NHTSA's extended decode
	StoredOnly bool // never cause a call: HEAD, prefetch, robots
	// Barred, if there is one, is why this caller can cause no call: what is not stored is refused with it.
	Barred *Refusal
}

// bar is what a request is refused with that may not cause a call; nil for one that may.
func (r Request) bar() *Refusal {
	if r.StoredOnly {
		return NewNotStored()
	}
	return r.Barred
}

// Source says where an answer comes from.
type Source string

const (
	FromNHTSA Source = "nhtsa" // a live call, this request's or one it shared
	FromCache Source = "cache" // a stored answer
)

// Result is a decode.
type Result struct {
	results.Stored // NHTSA's answer and its life
	VIN            vin.VIN
	Source         Source
	Age            time.Duration
	Waited         time.Duration // for a place at NHTSA, for the request whose call was shared, or for a newer answer in vain
	Upstream       time.Duration // the call itself; 0 from the cache, and where another instance made it
	Shared         bool          // the call was another request's
	Saved          bool          // the live answer is in the table now
	Replaced       bool          // the live answer takes the place of a stored one that was past its freshness
	Trouble        Code          // with a stale answer: why it was not refreshed; "" when it has just been left to another
}

// Stale says that the answer is past its freshness: stored, and not refreshed yet.
func (r Result) Stale() bool { return r.Age >= r.FreshFor }

// FirstModelYear is the first year with 17-character VINs (49 CFR 565).
const FirstModelYear = 1980

// LastModelYear is the last year a vehicle can be sold under at a time: the year after next.
func LastModelYear(now time.Time) int { return now.UTC().Year() + 2 }

const (
	// gateAttempts is kept for the gate's own calls beyond the wait.
	gateAttempts = time.Second
	// askTime bounds the looks at gate and tenant together: with the look at the stored answer before them, a table that is down is told
	// of within a second.
	askTime = 600 * time.Millisecond
	// leastCall is the least time worth starting a call with, unless UpstreamTimeout is less. Most answers take less;
	// with less the call would only burden NHTSA.
	leastCall = 2 * time.Second

	// When to come back, where nobody else says it.
	retrySoon  = time.Second     // the next token is there by then
	retryStore = 2 * time.Second // a table that comes back is used again within this
	retryFault = 5 * time.Second // the gate's first pause after failures
)

// verdict says whom a refusal is about: it decides who else may be answered with it.
type verdict int

const (
	onRequest  verdict = iota // this one request, such as the time it had left
	onKey                     // the bulkhead of the key
	onTenant                  // the tenant's own bucket
	onEveryone                // the shared budget, or NHTSA's answer
)

// landing is how a flight ended, or how it stands. The zero value: neither an answer nor a call yet.
type landing struct {
	answer   results.Stored
	source   Source
	waited   time.Duration
	saved    bool
	followed bool           // another instance's call brought the answer while this flight watched it
	replaced bool           // see Result
	trouble  Code           // see Result
	refresh  *results.Found // the answer may be refreshed, by the one who started the flight

	refusal *Refusal
	verdict verdict
	leader  tenant.Caller
}

// concerns says whether the flight's refusal is also one of this follower.
func (l landing) concerns(c tenant.Caller) bool {
	switch l.verdict {
	case onEveryone:
		return true
	case onTenant:
		return l.leader.ID == c.ID
	case onKey:
		return l.leader.Key(gate.Interactive) == c.Key(gate.Interactive)
	}
	return false
}

// Decode answers one request. The error is a *Refusal.
func (s *Service) Decode(ctx context.Context, req Request) (Result, error) {
	began := s.Now()
	refused := func(r *Refusal) (Result, error) {
		own := *r // a flight's refusal belongs to many
		own.Waited = s.Now().Sub(began)
		return Result{}, &own
	}
	deadline := began.Add(s.RequestDeadline)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	// 1. vin: what cannot be one is refused here and spends nothing.
	var query vpic.Query
	var v vin.VIN
	var invalid *Refusal
	_ = s.Trace(ctx, "vin", func(context.Context) error {
		if query, v, invalid = read(Question{req.VIN, req.ModelYear}, req.AsNHTSA, began); invalid != nil {
			return invalid
		}
		return nil
	})
	if invalid != nil {
		return refused(invalid)
	}
	query.Extended = req.Extended

	if bar := req.bar(); bar != nil {
		answer, ok, err := s.lookUp(ctx, query)
		if err != nil {
			return refused(refuse(CoordinationDown, sayStoreDown, retryStore))
		}
		if !ok {
			return refused(bar)
		}
		return Result{VIN: v, Stored: answer, Source: FromCache, Age: answer.Age(s.Now())}, nil
	}
	// 2. results, from memory: no call at all.
	if kept, ok := s.Results.Remembered(query); ok && (kept.Kind == results.Fresh || kept.Until != 0) {
		return Result{VIN: v, Stored: kept.Answer, Source: FromCache, Age: kept.Answer.Age(s.Now()), Trouble: Code(kept.Reason)}, nil
	}
	one := claim{caller: req.Caller, route: gate.Interactive, cost: 1, wait: s.MaxWait}
	for {
		joined := s.Now()
		// 2. results, 3. single-flight. The stored answer is looked up inside, so that a request that arrives between another's call and
		// its store cannot start a second call.
		flight, shared, err := s.join(ctx, results.Key(query), deadline, func(ctx context.Context, tell func(landing)) landing {
			return s.fly(ctx, one, query, deadline, tell)
		})
		if err == nil && !shared && flight.refresh != nil {
			flight = s.refresh(ctx, one, query, *flight.refresh, deadline)
		}
		var panicked *results.PanicError
		if errors.As(err, &panicked) {
			s.Log.ErrorContext(ctx, "panic in a decode", "vin", v.Descriptor(), "panic", panicked.Error(), "stack", string(panicked.Stack))
			return refused(NewInternal())
		}
		refusal := flight.refusal
		switch {
		case err != nil: // this request's own time is over; the flight, which goes on for the others, has told how it stands
			if flight.source == "" && refusal == nil {
				refusal = busy()
			}
		case refusal != nil && shared && !flight.concerns(req.Caller): // the verdict was on the leader alone
			if s.worthACall(deadline) {
				continue // this request stands for itself
			}
			if flight.verdict != onRequest { // otherwise as little time is left here as the leader had
				refusal = busy()
			}
		}
		if refusal != nil {
			return refused(refusal)
		}
		result := Result{VIN: v, Stored: flight.answer, Source: flight.source, Age: flight.answer.Age(s.Now()), Waited: flight.waited,
			Saved: flight.saved, Replaced: flight.replaced, Trouble: flight.trouble}
		if flight.source == FromNHTSA {
			result.Upstream, result.Shared = flight.answer.Took, shared || flight.followed
			if result.Shared {
				result.Waited = s.Now().Sub(joined)
			}
		}
		return result, nil
	}
}

// join is Flights.Do under its step of the trace.
func (s *Service) join(ctx context.Context, key string, deadline time.Time, fly func(context.Context, func(landing)) landing) (flight landing, shared bool, err error) {
	err = s.Trace(ctx, "flight", func(ctx context.Context) (err error) {
		flight, shared, err = s.flights.Do(ctx, key, deadline, fly)
		return err
	})
	return flight, shared, err
}

// lookUp finds a stored answer, for those who fly no flight. The error is about the table: nobody knows whether there is one. An item that
// cannot be used counts as absent.
func (s *Service) lookUp(ctx context.Context, q vpic.Query) (answer results.Stored, ok bool, err error) {
	kept, remembered := s.Results.Remembered(q)
	if remembered && (kept.Kind == results.Fresh || kept.Until != 0) {
		return kept.Answer, true, nil
	}
	row, err := s.look(ctx, q, "cache")
	if err != nil && remembered {
		return kept.Answer, true, nil
	}
	return row.Answer, row.Has(), err
}

// worthACall says whether enough time is left until deadline to begin with a call.
func (s *Service) worthACall(deadline time.Time) bool {
	return deadline.Sub(s.Now()) >= s.leastCall()+s.AfterCall
}

func (s *Service) leastCall() time.Duration { return min(leastCall, s.UpstreamTimeout) }

// claim is who asks for a call, and what for.
type claim struct {
	caller tenant.Caller
	route  gate.Route
	cost   int           // tokens of a bucket, the tenant's or the shared one
	wait   time.Duration // for a slot and a token, in the line

	optional bool   // nobody needs the call now: it waits for nothing, and leaves something to others
	id       string // by which the gate knows it, once it was asked
}

func (c claim) key() gate.Key { return c.caller.Key(c.route) }

// mayAsk says whether a place at NHTSA may be asked for: not while everybody is stopped, and not by a tenant whose bucket is dry. Nothing is
// spent by asking, whatever the answer is.
//
// Who cannot be looked up is not let through. The shared budget lies in the same table: when that is down no call is made anyway (and here it
// is said before a tenant is blamed); when only one tenant's item cannot be read, it is because of a crowd that asks for it, and a bucket that
// opens under load is none.
func (s *Service) mayAsk(ctx context.Context, c claim, deadline time.Time) (refusal *Refusal, of verdict) {
	ctx, cancel := context.WithDeadline(ctx, s.latest(deadline))
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, askTime)
	defer cancel()
	late := s.latest(deadline)
	down := func(err error) (*Refusal, verdict) {
		s.Log.ErrorContext(ctx, "the tenant's budget is not available", "error", err.Error())
		if !s.Now().Before(late) {
			return NewCoordinationDown(), onRequest // with more time it might have been read
		}
		return NewCoordinationDown(), onEveryone
	}
	_ = s.Trace(ctx, "tenant", func(ctx context.Context) error {
		view, err := s.Gate.View(ctx)
		if err != nil {
			refusal, of = down(err)
			return err
		}
		if view.HeldFor > 0 {
			held := &gate.Refusal{Cause: gate.Held, Hold: view.Hold, RetryAfter: gate.RetryAfter(view.HeldFor)}
			refusal, of = fromGate(held, c.key()), about(held)
			return nil
		}
		dry, err := s.Tenants.Look(ctx, c.caller, c.cost)
		switch {
		case err != nil:
			refusal, of = down(err)
		case dry != nil:
			refusal, of = refuse(RateLimited, sayTenant, dry.RetryAfter), onTenant
			refusal.Scope = ScopeTenant
		}
		return err
	})
	return refusal, of
}

// charge begins to charge the caller for a lease; what it returns waits for the end. Once a call is granted, a charge that fails does not stop
// it: the shared budget was read and written, and what may be lost is the tenant's to owe, not NHTSA's.
func (s *Service) charge(ctx context.Context, c claim, lease *gate.Lease) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil { // nobody else is there to catch it
				s.Log.ErrorContext(ctx, "panic in a charge", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
		}()
		err := s.Trace(ctx, "charge", func(ctx context.Context) error { return s.Tenants.Charge(ctx, c.caller, lease.ID, c.cost) })
		if err != nil {
			s.Log.ErrorContext(ctx, "tenant perhaps not charged for a call", "tenant", c.caller.ID, "error", err.Error())
		}
	}()
	return func() { <-done }
}

// latest is when a place must be there, for what is left to be worth a call.
func (s *Service) latest(deadline time.Time) time.Time {
	return deadline.Add(-s.AfterCall - s.leastCall())
}

// asks is a claim as the gate takes it.
func (s *Service) asks(c claim, latest time.Time) gate.Request {
	r := gate.Request{ID: c.id, Key: c.key(), Ceiling: c.caller.Plan.Ceiling(c.route), Cost: c.cost, Tenant: c.caller.ID, Own: c.caller.Own(),
		Weight: c.caller.Plan.Weight, Optional: c.optional}
	if room := max(0, latest.Sub(s.Now())-gateAttempts); !c.optional {
		r.Patience, r.BulkheadWait = min(c.wait, room), min(s.BulkheadWait, room)
	}
	return r
}

// foresee is what acquire would refuse at once.
func (s *Service) foresee(ctx context.Context, c *claim, deadline time.Time) (refusal *Refusal, of verdict) {
	latest := s.latest(deadline)
	ctx, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	_ = s.Trace(ctx, "foresee", func(ctx context.Context) error {
		asked := s.Now()
		r := s.asks(*c, latest)
		denied, err := s.Gate.Foresee(ctx, &r)
		c.id = r.ID
		switch {
		case err != nil:
			s.Observe.Gate(ctx, GateUnreadable, s.Now().Sub(asked))
			refusal, of = s.unreadable(ctx, err)
		case denied != nil:
			s.Observe.Gate(ctx, string(denied.Cause), s.Now().Sub(asked))
			refusal, of = fromGate(denied, c.key()), about(denied)
		}
		return err
	})
	return refusal, of
}

// unreadable is the refusal when the gate cannot be read or written.
func (s *Service) unreadable(ctx context.Context, err error) (*Refusal, verdict) {
	s.Log.ErrorContext(ctx, "the shared budget is not available", "error", err.Error())
	if ctx.Err() != nil {
		return NewCoordinationDown(), onRequest // with more time it might have been read
	}
	return NewCoordinationDown(), onEveryone
}

// acquire leases a place at NHTSA, or says why there is none.
func (s *Service) acquire(ctx context.Context, c claim, deadline time.Time) (lease *gate.Lease, refusal *Refusal, of verdict) {
	latest := s.latest(deadline) // the last attempt is over by then
	ctx, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	_ = s.Trace(ctx, "gate", func(ctx context.Context) error {
		asked := s.Now()
		granted, denied, err := s.Gate.Acquire(ctx, s.asks(c, latest))
		became := GateGranted
		defer func() { s.Observe.Gate(ctx, became, s.Now().Sub(asked)) }()
		switch {
		case err != nil:
			became = GateUnreadable
			refusal, of = s.unreadable(ctx, err)
		case denied != nil:
			became = string(denied.Cause)
			refusal, of = fromGate(denied, c.key()), about(denied)
		default:
			lease = granted
		}
		return err
	})
	return lease, refusal, of
}

// callUnder makes the one call a lease allows, and gives the lease back with what the call says about NHTSA. It returns why there
// is no answer and whom that is about, or nil. From the start of the call on it tells how things stand; nil then says that the
// answer is there. about stands for what is asked in the log.
func (s *Service) callUnder(ctx context.Context, lease *gate.Lease, deadline time.Time, about string,
	call func(context.Context) (vpic.Quota, time.Duration, error), tell func(*Refusal, verdict)) (refusal *Refusal, of verdict) {
	outcome := gate.Outcome{Kind: gate.Abandoned}
	err := func() (err error) {
		// Also when the call panics.
		defer func() { s.release(ctx, lease, outcome) }()
		now := s.Now()
		byLease, byRequest := lease.CallBy.Sub(now), deadline.Add(-s.AfterCall).Sub(now)
		left := min(byLease, byRequest)
		late, whose := now.After(lease.StartBy), onEveryone // the lease's times are what anybody would have had
		if !late && byRequest < byLease {
			whose = onRequest
		}
		if late || left < s.leastCall() {
			refusal, of = fromUpstream(errLate), whose
			return errLate
		}
		tell(fromUpstream(errCutShort), onRequest)
		ctx, cancel := context.WithTimeout(vpic.WithStartBy(ctx, lease.StartBy), min(left, s.UpstreamTimeout))
		defer cancel()
		var quota vpic.Quota
		var took time.Duration
		err = s.Trace(ctx, "upstream", func(ctx context.Context) (err error) {
			began := s.Now()
			quota, took, err = call(ctx)
			became := UpstreamAnswered
			if err != nil {
				became = string(fromUpstream(err).Code)
			}
			s.Observe.Upstream(ctx, became, s.Now().Sub(began))
			return err
		})
		outcome, err = outcomeOf(quota, took, err, left < s.UpstreamTimeout)
		switch {
		case err == nil:
		case errors.Is(err, errLate), errors.Is(err, errCutShort):
			refusal, of = fromUpstream(err), whose
		default:
			refusal, of = fromUpstream(err), onEveryone
		}
		tell(refusal, of)
		return err
	}()
	if err == nil {
		return nil, of
	}
	s.Log.WarnContext(ctx, "no answer from NHTSA", "vin", about, "error", forLog(err), "tookMs", outcome.Took.Milliseconds())
	if outcome.Kind == gate.Throttled || outcome.Kind == gate.Failed {
		// The release may have begun a longer pause for everybody.
		if view, err := s.Gate.View(ctx); err == nil && view.HeldFor > refusal.RetryAfter {
			longer := *refusal // what was told may be in other hands
			longer.RetryAfter = gate.RetryAfter(view.HeldFor)
			refusal = &longer
		}
	}
	return refusal, of
}

// release gives a lease back. A release that fails costs its place until the lease ends, not the answer.
func (s *Service) release(ctx context.Context, lease *gate.Lease, outcome gate.Outcome) {
	err := s.Trace(ctx, "release", func(ctx context.Context) error { return s.Gate.Release(ctx, lease, outcome) })
	if err != nil {
		s.Log.ErrorContext(ctx, "lease not given back; it ends by itself", "error", err.Error(), "end", lease.End)
	}
}
