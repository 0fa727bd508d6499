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

// Config of a store. All fields are required.
type Config struct {
	Client Client
	Table  string
	Name   string           // of the upstream budget; the item is gate#<Name>
	Now    func() time.Time // wall clock of this instance
	NewID  func() string    // 48 random bits or more, 8 characters or more
}

// Store is safe for concurrent use.
type Store struct {
	Config
	pk string

	mu     sync.Mutex
	seen   gate.State
	seenAt time.Time // zero: nothing seen yet
	owed   pause     // NHTSA asked for it, and the item does not have it yet
	asked  int       // numbers the requests, so that a late answer never replaces a younger view
	shown  int
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

	viewAge     = 100 * time.Millisecond // a write is planned on a view no older than this
	maxAttempts = 4
	retryPause  = 20 * time.Millisecond
)

// New makes a store; it makes no call.
func New(c Config) *Store { return &Store{Config: c, pk: "gate#" + c.Name} }

// Acquire asks for one upstream call. Exactly one of its results is not nil.
// A refusal leaves the gate as it was. An error is an *Error; whatever may have been taken has been given back, or expires.
func (s *Store) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	if r.ID == "" {
		r.ID = s.NewID()
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, acquireBudget)
	defer cancel()

	view, exact, err := s.view(ctx, viewAge)
	if err != nil {
		return nil, nil, s.fail(caller, "acquire", err)
	}
	stamped := map[gate.Millis]gate.Admit{} // the first write that was sent for each end
	doubt := false                          // an attempt may have been applied without our knowing
	last := error(&Error{Kind: KindContended, Err: errors.New("the gate changed under every attempt")})
	for range maxAttempts {
		w, refusal := view.Plan(gate.MicrosOf(s.Now()), r)
		if refusal != nil {
			refusal.Estimated = !exact && refusal.Cause != gate.NoToken // tat never moves back: a dry bucket seen is dry
			return nil, refusal, nil
		}
		if _, sent := stamped[w.End]; !sent {
			stamped[w.End] = w
		}
		after, met, err := s.update(ctx, admit(w))
		switch {
		case err == nil && met == nil:
			return after.Lease(w, r.Key), nil, nil
		case err == nil:
			view, exact = *met, true
		default:
			kind, unknown := classify(caller, err)
			doubt, last = doubt || unknown, err
			if !worthRetrying(kind) || ctx.Err() != nil {
				return nil, nil, s.giveUp(caller, doubt, r, err)
			}
			if view, err = s.read(ctx, true); err != nil {
				return nil, nil, s.giveUp(caller, doubt, r, err)
			}
			exact = true
		}
		if w, mine := stamped[view.Leases[r.ID]]; mine { // an answer was lost, or the SDK asked twice
			return view.Lease(w, r.Key), nil, nil
		}
	}
	return nil, nil, s.giveUp(caller, doubt, r, last)
}

// giveUp is an acquire's error; with a doubt, the lease is given back first.
func (s *Store) giveUp(caller context.Context, doubt bool, r gate.Request, err error) error {
	if doubt {
		s.cleanUp(caller, r)
	}
	return s.fail(caller, "acquire", err)
}

// cleanUp releases a lease that may or may not have been granted. What it cannot release expires.
func (s *Store) cleanUp(caller context.Context, r gate.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), cleanupBudget)
	defer cancel()
	_, _, _ = s.update(ctx, free(gate.Free{ID: r.ID, Place: r.Key.Place(), Batch: r.Key.Route == gate.Batch, Episodes: -1}))
}

// Release gives a lease back with what its call taught, in a context of its own: the caller's may have ended. ErrStale: the lease had been reclaimed, and
// nothing was changed. Any other error: the lease stays until its end.
func (s *Store) Release(ctx context.Context, l *gate.Lease, o gate.Outcome) error {
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
		case <-time.After(retryPause):
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
	if faults := k.Validate(); len(faults) > 0 {
		return &Error{Op: "init", Kind: KindInvalid, Err: errors.New(faults[0].String())}
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
	s.mu.Lock()
	state, age := s.seen, s.Now().Round(0).Sub(s.seenAt.Round(0))
	fresh := !s.seenAt.IsZero() && age >= 0 && age <= maxAge
	state = s.obeying(state)
	s.mu.Unlock()
	if fresh {
		return state, false, nil
	}
	state, err = s.read(ctx, false)
	return state, false, err
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
		case <-time.After(retryPause):
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
	return s.saw(asked, out.Item)
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
		old, err := s.saw(asked, failed.Item)
		return after, &old, err
	case err != nil:
		return after, nil, err
	}
	after, err = s.saw(asked, out.Attributes)
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

// saw keeps a state as the newest view, unless a request sent later has been answered already.
func (s *Store) saw(asked int, it item) (gate.State, error) {
	state, err := decode(it)
	if err != nil {
		return gate.State{}, &Error{Op: "read", Kind: KindInvalid, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state.Hold >= s.owed.until {
		s.owed = pause{}
	}
	if asked > s.shown {
		s.shown, s.seen, s.seenAt = asked, state, s.Now()
	}
	return s.obeying(state), nil
}
