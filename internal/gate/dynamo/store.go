// Package dynamo keeps a gate in one DynamoDB item. Every transition of package gate is one UpdateItem whose
// condition and update say the same as the transition's Holds and Apply; a test holds the two against each other.
//
// It promises that an answer lost on the way costs nothing: after any attempt whose outcome is unknown it looks, with a
// consistent read, whether the lease is there. A lease it cannot account for is given back, or expires.
// It admits nobody when the item cannot be read or written.
//
// A denial is a value, a *gate.Refusal; a broken store is an *Error.
package dynamo

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
)

// Client is the part of *dynamodb.Client that is used.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Config of a store. All fields are required but Reclaimed and Knobs.
type Config struct {
	Client Client
	Table  string
	Name   string           // of the upstream budget; the item is gate#<Name>
	Now    func() time.Time // wall clock of this instance
	NewID  func() string    // 30 random bits or more in base64url or the like; an id is the flow and this

	// Reclaimed, if not nil, is told how many dead leases an admission took along: their instances crashed, or could not release them.
	Reclaimed func(ctx context.Context, leases int)

	// Knobs, if not nil, is told the knobs in force, once for each version that this instance sees. It costs no read.
	Knobs func(ctx context.Context, version int, inForce gate.Knobs)
}

// Store is safe for concurrent use.
type Store struct {
	Config
	pk string

	entrance chan struct{} // one caller of this instance at a time plans its way in, on what the one before it saw

	mu      sync.Mutex
	manners gate.Manners
	seen    gate.State
	seenAt  time.Time // zero: nothing seen yet
	owed    pause     // NHTSA asked for it, and the item does not have it yet
	owing   []owing   // this instance could not give it back yet
	asked   int       // numbers the requests, so that a late answer never replaces a younger view
	shown   int
	told    int // the version that Knobs was told of

	promises promises // of those who were sent away
}

// pause is a hold.
type pause struct {
	until gate.Millis
	why   gate.HoldReason
}

// Budgets of one operation, all attempts and looks together.
const (
	acquireBudget = 700 * time.Millisecond // with the clean-up less than the second that P11 allows
	cleanupBudget = 250 * time.Millisecond
	releaseBudget = time.Second
	lookBudget    = 700 * time.Millisecond

	// DownAfter is for the guard of the table. It is longer than a stumble of the table lasts, and short enough that the first who finds out
	// is told within a second.
	DownAfter = 280 * time.Millisecond
)

// New makes a store; it makes no call.
func New(c Config) *Store {
	return &Store{Config: c, pk: "gate#" + c.Name, entrance: make(chan struct{}, 1), promises: promises{turn: make(chan struct{}, 1)}}
}

// Acquire asks for one upstream call, and waits for it at most r.BulkheadWait for a place of its own key and r.Patience in all. Exactly
// one of its results is not nil.
// A refusal leaves the gate as it was; its Retry-After is a place of its own, see gate.Promise. An error is an *Error. Whatever may have been taken has been given back, or expires.
func (s *Store) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	c := s.caller(ctx, r)
	lease, refusal, err := c.enter()
	if lease == nil && refusal == nil && err == nil {
		lease, refusal, err = c.wait()
	}
	if refusal != nil {
		c.sendAway(refusal)
	}
	return lease, refusal, err
}

func (s *Store) caller(ctx context.Context, r gate.Request) *caller {
	if r.Tenant == "" {
		r.Tenant = r.Key.Tenant
	}
	if r.ID == "" {
		r.ID = string(gate.FlowOf(r.Tenant)) + s.NewID()
	}
	return &caller{Store: s, r: r, ctx: ctx, dice: diceOf(r.ID), began: s.Now(), stamped: map[gate.Millis]gate.Micros{}}
}

// sendAway gives a refusal its own time to come back. Nobody comes back for optional work.
func (c *caller) sendAway(refusal *gate.Refusal) {
	if !c.r.Optional {
		refusal.RetryAfter = c.retryAfter(*refusal)
	}
	refusal.Waited = c.Now().Sub(c.began)
}

// caller is one Acquire under way.
type caller struct {
	*Store
	r       gate.Request
	ctx     context.Context // the caller's own
	began   time.Time
	dice    *rand.Rand
	stamped map[gate.Millis]gate.Micros // first stamp of every lease end that was sent
	doubt   bool                        // something may have been applied without our knowing

	watch gate.Watch // of those ahead in the line
}

// diceOf decides what a caller leaves to chance, from the random bits of its id: who hands in ids hands in chance.
func diceOf(id string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(id))
	return rand.New(rand.NewPCG(h.Sum64(), 0))
}

// upTo is a time below d.
func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(c.dice.Int64N(int64(d))) }

// left is what remains of the caller's patience.
func (c *caller) left() time.Duration { return c.r.Patience - c.Now().Sub(c.began) }

// enter takes a lease, a ticket (all results nil), or says why neither is to be had.
func (c *caller) enter() (*gate.Lease, *gate.Refusal, error) {
	ctx, cancel := context.WithTimeout(c.ctx, acquireBudget+max(c.r.BulkheadWait, 0))
	defer cancel()
	select {
	case c.entrance <- struct{}{}:
		defer func() { <-c.entrance }()
	case <-ctx.Done():
		return nil, nil, c.fail(c.ctx, "acquire", ctx.Err())
	}
	c.settle(ctx)
	if refusal := c.known(); refusal != nil {
		return nil, refusal, nil
	}
	view, exact, err := c.view(ctx, gate.ViewAge)
	if err != nil {
		return nil, nil, c.fail(c.ctx, "acquire", err)
	}
	var last error
	shy, wrote, door := c.shyness(), false, gate.BulkheadLook
	for tries, fresh := 0, shy == 0; tries < gate.MaxTries; {
		now := gate.MicrosOf(c.Now())
		r := c.r
		r.Patience, r.Shy = max(0, c.left()), shy
		admission, ticket, refusal := view.Plan(now, r)
		if refusal.AtTheDoor() && c.Now().Sub(c.began) < c.r.BulkheadWait {
			if wrote { // others were quicker: that is a full bulkhead, and no trouble with the gate
				door, tries, wrote = min(2*door, gate.RarestLook), 0, false
			}
			left := c.r.BulkheadWait - c.Now().Sub(c.began)
			if err := c.outside(ctx, min(door+c.upTo(2*door), max(left, gate.BulkheadLook))); err != nil {
				return nil, nil, c.giveUp(err)
			}
			if view, exact, err = c.view(ctx, gate.FreshAge); err != nil {
				return nil, nil, c.giveUp(err)
			}
			continue
		}
		if refusal != nil {
			if wrote && refusal.Cause != gate.Held && !refusal.AtTheDoor() {
				c.wentInVain()
			}
			// tat never moves back: a dry bucket seen is dry.
			refusal.Estimated = refusal.Estimated || !exact && refusal.Cause != gate.NoToken
			return nil, refusal, nil
		}
		if tries == 0 {
			if quiet := c.quietFor(); quiet > gate.PatientQuiet {
				return nil, &gate.Refusal{Cause: gate.QueueFull, Estimated: true, RetryAfter: gate.RetryAfter(quiet)}, nil
			} else if quiet > 0 {
				if err := sleep(ctx, quiet); err != nil {
					return nil, nil, c.giveUp(err)
				}
				if view, exact, err = c.view(ctx, gate.ViewAge); err != nil {
					return nil, nil, c.giveUp(err)
				}
				tries++
				continue
			}
			if !fresh {
				fresh = true
				if view, exact, err = c.view(ctx, gate.FreshAge); err != nil {
					return nil, nil, c.giveUp(err)
				}
				continue
			}
		}
		tries++
		wrote = true
		var x *expression
		if admission != nil {
			c.stamp(admission.End, now)
			x = admit(*admission)
		} else {
			x = enqueue(*ticket)
		}
		after, met, err := c.update(ctx, x)
		switch {
		case err == nil && met == nil:
			c.wentWell()
			if admission != nil {
				c.reclaimed(len(admission.Dead))
				return after.Lease(c.r.ID, c.r.Key, now, admission.End), nil, nil
			}
			return nil, nil, nil
		case err == nil:
			view, exact = *met, true
		default:
			last = err
			if view, err = c.look(ctx, err); err != nil {
				return nil, nil, c.giveUp(err)
			}
			exact = true
		}
		if lease := c.mine(view); lease != nil {
			return lease, nil, nil
		}
		if _, queued := view.Tickets[c.r.ID]; queued {
			return nil, nil, nil
		}
		if deadline, _ := ctx.Deadline(); tries == gate.MaxTries && last == nil && c.mayWait() && time.Until(deadline) > lookBudget {
			// Others were quicker each time. That is a crowd, and no trouble with the gate: step back while there is time.
			if err := c.outside(ctx, door+c.upTo(2*door)); err != nil {
				return nil, nil, c.giveUp(err)
			}
			door, tries = min(2*door, gate.RarestLook), 0
			if view, exact, err = c.view(ctx, gate.FreshAge); err != nil {
				return nil, nil, c.giveUp(err)
			}
		}
	}
	if last == nil {
		last = &Error{Kind: KindContended, Err: errors.New("the gate changed under every attempt")}
	}
	return nil, nil, c.giveUp(last)
}

// mayWait says whether the caller has time left, at its own door or in the line.
func (c *caller) mayWait() bool {
	return c.Now().Sub(c.began) < max(c.r.BulkheadWait, c.r.Patience)
}

// known is a refusal that an older view proves, without a call: tat never moves back, and a hold is not shortened but by an
// operator, who is noticed within gate.KnownAge.
func (c *caller) known() *gate.Refusal {
	c.mu.Lock()
	view, age := c.obeying(c.seen), c.Now().Round(0).Sub(c.seenAt.Round(0))
	fresh := !c.seenAt.IsZero() && age >= 0 && age <= gate.KnownAge
	c.mu.Unlock()
	if !fresh {
		return nil
	}
	r := c.r
	r.Patience = max(0, c.left())
	return view.Certain(gate.MicrosOf(c.Now()), r)
}

// outside sleeps without keeping the entrance from others.
func (c *caller) outside(ctx context.Context, d time.Duration) error {
	<-c.entrance
	err := sleep(ctx, d)
	c.entrance <- struct{}{}
	return err
}

// wait holds a ticket until its turn comes, its patience ends or NHTSA asks for a pause.
func (c *caller) wait() (*gate.Lease, *gate.Refusal, error) {
	ctx, cancel := context.WithTimeout(c.ctx, max(0, c.left())+acquireBudget)
	defer cancel()
	view, _, err := c.view(ctx, gate.ViewAge)
	for sure := false; ; {
		if err != nil {
			return nil, nil, c.giveUp(err)
		}
		if lease := c.mine(view); lease != nil {
			return lease, nil, nil
		}
		// A view may be older than the ticket: an eventual read, or one that was sent after the ticket's write and served before it.
		if _, queued := view.Tickets[c.r.ID]; !queued && !sure {
			view, err = c.read(ctx, true)
			sure = true
			continue
		}
		sure = false
		now := gate.MicrosOf(c.Now())
		w, rest, refusal := c.watch.Plan(view, now, c.r)
		switch {
		case refusal != nil:
			c.leave()
			return nil, refusal, nil
		case c.left() <= 0:
			c.leave()
			return nil, view.WaitedInVain(now, c.r.ID), nil
		case rest > 0:
			if err = sleep(ctx, min(rest+c.upTo(rest/8+time.Millisecond), c.left())); err == nil {
				view, _, err = c.view(ctx, 0)
			}
			continue
		}
		c.stamp(w.End, now)
		after, met, failed := c.update(ctx, claim(w))
		switch {
		case failed == nil && met == nil:
			c.reclaimed(len(w.Dead))
			return after.Lease(c.r.ID, c.r.Key, now, w.End), nil, nil
		case failed == nil:
			view = *met
			if lease := c.mine(view); lease != nil {
				return lease, nil, nil
			}
			// Somebody else moved: never try again without a pause.
			if err = sleep(ctx, gate.RetryPause/2+c.upTo(gate.RetryPause)); err == nil {
				view, _, err = c.view(ctx, gate.RetryPause)
			}
		default:
			view, err = c.look(ctx, failed)
		}
	}
}

// look finds out, with a consistent read, what became of a write whose answer did not come; err is that write's.
func (c *caller) look(ctx context.Context, err error) (gate.State, error) {
	kind, unknown := classify(c.ctx, err)
	c.doubt = c.doubt || unknown
	if !worthRetrying(kind) || ctx.Err() != nil {
		return gate.State{}, err
	}
	return c.read(ctx, true)
}

func (c *caller) reclaimed(leases int) {
	if leases > 0 && c.Reclaimed != nil {
		c.Reclaimed(c.ctx, leases)
	}
}

func (c *caller) stamp(end gate.Millis, now gate.Micros) {
	if _, sent := c.stamped[end]; !sent {
		c.stamped[end] = now
	}
}

// mine is the caller's lease if the state has one that it asked for: an answer was lost, or the SDK asked twice.
func (c *caller) mine(view gate.State) *gate.Lease {
	end, there := view.Leases[c.r.ID]
	stamp, sent := c.stamped[end]
	if !there || !sent {
		return nil
	}
	return view.Lease(c.r.ID, c.r.Key, stamp, end)
}

// giveUp is an error on the way in or in the line; whatever may have been taken is given back first.
func (c *caller) giveUp(err error) error {
	if _, unknown := classify(c.ctx, err); unknown || c.doubt {
		c.leave()
	}
	return c.fail(c.ctx, "acquire", err)
}

// leave gives back ticket or lease, whichever there is, in a short time of its own. What it cannot reach is owed.
func (c *caller) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), cleanupBudget)
	defer cancel()
	if err := c.giveBack(ctx, c.r.ID, c.r.Key); err != nil {
		c.mu.Lock()
		k := c.seen.Knobs
		c.mu.Unlock()
		c.owe(c.r.ID, c.r.Key, c.Now().Add(max(c.r.Patience, k.LeaseTTL)+k.SkewBound))
	}
}

func (s *Store) quietFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manners.Quiet(gate.MicrosOf(s.Now()))
}

// shyness draws how much to leave to others this time.
func (c *caller) shyness() float64 {
	s := c.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manners.Shyness(gate.MicrosOf(s.Now()), c.dice.Float64(), c.dice.Float64())
}

func (s *Store) wentWell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manners.WentWell()
}

func (s *Store) wentInVain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.manners.WentInVain(gate.MicrosOf(s.Now()))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Release gives a lease back with what its call taught, in a context of its own: the caller's may have ended. ErrStale: the lease had been reclaimed, and
// nothing was changed. Any other error: the lease stays until this instance reaches the table again, or until its end.
func (s *Store) Release(ctx context.Context, l *gate.Lease, o gate.Outcome) error {
	err := s.release(ctx, l, o)
	if err != nil && !errors.Is(err, ErrStale) {
		s.owe(l.ID, l.Key, l.End)
	}
	return err
}

func (s *Store) release(ctx context.Context, l *gate.Lease, o gate.Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBudget)
	defer cancel()

	w := s.planRelease(nil, l, o)
	for doubt, replanned := false, false; ; {
		_, met, err := s.update(ctx, free(w))
		switch {
		case err == nil && met == nil:
			return nil
		case err == nil:
			if _, there := met.Leases[l.ID]; !there {
				if doubt { // our own first attempt took it away
					return nil
				}
				return &Error{Op: "release", Kind: KindContended, Err: ErrStale}
			}
			// Others held the gate or turned the limit meanwhile: once more on what they left, then without.
			switch again := s.planRelease(met, l, o); {
			case w == w.Plain():
				return &Error{Op: "release", Kind: KindInvalid, Err: errors.New("refused although the lease is there")}
			case replanned:
				w = again.Plain()
			default:
				w, replanned = again, true
			}
			continue
		}
		kind, unknown := classify(ctx, err)
		doubt = doubt || unknown
		if !worthRetrying(kind) && kind != KindThrottled {
			return &Error{Op: "release", Kind: kind, Err: err}
		}
		select {
		case <-ctx.Done():
			return &Error{Op: "release", Kind: kind, Err: err}
		case <-time.After(gate.RetryPause):
		}
	}
}

// planRelease plans on the state that was met, or on the last one seen. A release may fail, or find its lease reclaimed, and
// NHTSA's word must not be lost with it: its pause is owed, obeyed here from now on and carried by every release until the
// item is seen to have it.
func (s *Store) planRelease(met *gate.State, l *gate.Lease, o gate.Outcome) gate.Free {
	s.mu.Lock()
	defer s.mu.Unlock()
	if met == nil {
		met = &s.seen
	}
	w := met.PlanRelease(gate.MicrosOf(s.Now()), l, o)
	if w.Hold > s.owed.until {
		s.owed = pause{w.Hold, w.Reason}
	} else if s.owed.until > w.Now {
		w.Hold, w.Reason = s.owed.until, s.owed.why
	}
	return w
}

// View is what the outside may see, from a state at most a second old.
func (s *Store) View(ctx context.Context) (gate.View, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, lookBudget)
	defer cancel()
	state, _, err := s.view(ctx, time.Second)
	if err != nil {
		return gate.View{}, s.fail(caller, "read", err)
	}
	return state.View(gate.MicrosOf(s.Now())), nil
}

// Seen is what View would say without a call; ok is false when that needs one.
func (s *Store) Seen() (view gate.View, ok bool) {
	state, fresh := s.memory(time.Second)
	if !fresh {
		return gate.View{}, false
	}
	return state.View(gate.MicrosOf(s.Now())), true
}

// Prime opens the connection and fills the view with one read. It spends nothing.
func (s *Store) Prime(ctx context.Context) error {
	if _, err := s.read(ctx, false); err != nil {
		return s.fail(ctx, "read", err)
	}
	return nil
}

// Start says how a new gate begins.
type Start int

const (
	// FullBucket is for new tables: nobody can have called NHTSA through them.
	FullBucket Start = iota
	// EmptyAndHeld is for old or restored tables: calls granted before may still run, so nobody starts for one lease time.
	EmptyAndHeld
)

// Init makes the gate. It never changes one that exists: ErrExists.
func (s *Store) Init(ctx context.Context, k gate.Knobs, start Start) error {
	if err := gate.Faulty(k.Validate()); err != nil {
		return &Error{Op: "init", Kind: KindInvalid, Err: err}
	}
	state := gate.NewState(k, gate.MicrosOf(s.Now()), start == EmptyAndHeld)
	_, err := s.Client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String(s.Table), Item: encode(s.pk, state),
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return &Error{Op: "init", Kind: KindContended, Err: ErrExists}
	}
	if err != nil {
		return s.fail(ctx, "init", err)
	}
	return nil
}

func (s *Store) fail(ctx context.Context, op string, err error) error {
	kind, _ := classify(ctx, err)
	var known *Error
	if errors.As(err, &known) {
		err = known.Err
	}
	return &Error{Op: op, Kind: kind, Err: err}
}

// view is the last state seen if it is young enough, else one eventually consistent read. Exact is false for both: the
// state may have moved on since.
func (s *Store) view(ctx context.Context, maxAge time.Duration) (state gate.State, exact bool, err error) {
	if state, fresh := s.memory(maxAge); fresh {
		return state, false, nil
	}
	state, err = s.read(ctx, false)
	return state, false, err
}

// memory is the last state seen, and whether it is no older than maxAge.
func (s *Store) memory(maxAge time.Duration) (state gate.State, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := s.Now().Round(0).Sub(s.seenAt.Round(0))
	return s.obeying(s.seen), !s.seenAt.IsZero() && age >= 0 && age <= maxAge
}

// read fetches the item. It has no consequences, so it is repeated while ctx lasts: a first dial that took too long goes on
// behind, and the next attempt finds its connection.
func (s *Store) read(ctx context.Context, consistent bool) (gate.State, error) {
	var last error
	for {
		state, err := s.readOnce(ctx, consistent)
		if err == nil {
			return state, nil
		}
		if kind, _ := classify(ctx, err); !worthRetrying(kind) {
			return state, err
		}
		if ctx.Err() != nil { // our own time is over: what went wrong before says more
			return state, cmp.Or(last, err)
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(gate.RetryPause):
		}
	}
}

func (s *Store) readOnce(ctx context.Context, consistent bool) (gate.State, error) {
	ctx, cancel := context.WithTimeout(ctx, gate.Attempt)
	defer cancel()
	asked := s.ask()
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(s.Table), Key: item{attrKey: text(s.pk)}, ConsistentRead: aws.Bool(consistent),
	}, once)
	if err != nil {
		return gate.State{}, err
	}
	if out.Item == nil {
		return gate.State{}, errNoGate
	}
	return s.saw(ctx, asked, out.Item)
}

// update sends one write once. It was applied: after is the new state. Its condition failed: met is the state it met.
func (s *Store) update(ctx context.Context, x *expression) (after gate.State, met *gate.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, gate.Attempt)
	defer cancel()
	asked := s.ask()
	out, err := s.Client.UpdateItem(ctx, x.input(s.Table, s.pk), once)
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed) && failed.Item == nil:
		return after, nil, errNoGate
	case errors.As(err, &failed):
		old, err := s.saw(ctx, asked, failed.Item)
		return after, &old, err
	case err != nil:
		return after, nil, err
	}
	after, err = s.saw(ctx, asked, out.Attributes)
	return after, nil, err
}

// once forbids the SDK to repeat: every attempt of ours takes a new time stamp.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// obeying adds a pause that the item does not have yet.
func (s *Store) obeying(state gate.State) gate.State {
	if s.owed.until > state.Hold {
		state.Hold, state.Reason = s.owed.until, s.owed.why
	}
	return state
}

func (s *Store) ask() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.asked
}

// saw keeps a state as the newest view, unless a request sent later has been answered already. With a new version of the knobs everything is
// forgotten that this instance has learned of the old one: what it refused for certain, and how it behaved towards the others.
func (s *Store) saw(ctx context.Context, asked int, it item) (gate.State, error) {
	state, err := decode(it)
	if err != nil {
		return gate.State{}, &Error{Op: "read", Kind: KindInvalid, Err: err}
	}
	s.mu.Lock()
	if state.Hold >= s.owed.until {
		s.owed = pause{}
	}
	news := false
	// Within a version holds only grow. So neither an answer that comes too late for the view nor an eventual read that is older than it takes one back.
	longer, why := state.Hold, state.Reason
	if state.Version == s.seen.Version && s.seen.Hold > longer {
		longer, why = s.seen.Hold, s.seen.Reason
	}
	if asked > s.shown {
		if state.Version != s.seen.Version {
			s.manners = gate.Manners{}
		}
		s.shown, s.seen, s.seenAt = asked, state, s.Now()
		news, s.told = state.Version != s.told, state.Version
	}
	if state.Version == s.seen.Version {
		s.seen.Hold, s.seen.Reason = longer, why
	}
	obeyed := s.obeying(state)
	s.mu.Unlock()
	if news && s.Knobs != nil {
		s.Knobs(ctx, state.Version, state.Knobs)
	}
	return obeyed, nil
}
