// Package versioned keeps the same gate in one item by two other schemes, written for the benchmark only. Both decide with the same
// core (gate.State.Plan, PlanClaim, PlanRelease) and put the whole state back on condition that the item still has the version it was
// decided on. So everything differs from vingate in one thing: a write holds only if nobody else has written.
//
//   - CAS is what one would write with care: it looks at a view at most 100 ms old before it writes, as vingate does, and when
//     a put fails decides anew on the item that came back with the failure.
//   - ReadPut is a re-creation, from its description, of what public Go limiters with a DynamoDB backend do: every decision begins with a
//     strongly consistent read, and ends with a put on condition of the version; a put that failed starts over. Those limiters keep tokens only
//     and leave starting over to their callers; here the scheme keeps what the gate keeps, slots and line included, so that it can be compared.
//
// Neither is for production: what a crash leaves behind is reclaimed by the core, but an answer that is lost is not looked for.
package versioned

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/meter"
)

// Scheme is one of the two.
type Scheme int

const (
	CAS Scheme = iota
	ReadPut
)

const (
	viewAge     = 100 * time.Millisecond // as vingate's
	maxAttempts = 4                      // as vingate's
	// restart is the longest pause before starting over; without one, those that collided would collide again.
	restart = 10 * time.Millisecond
	// releaseBudget bounds a release, as vingate's.
	releaseBudget = time.Second
)

// ErrContended says that every attempt met somebody else's write.
var ErrContended = errors.New("the item changed under every attempt")

// Config of a store; all fields are required.
type Config struct {
	Scheme Scheme
	Client meter.API
	Table  string
	Name   string
	Now    func() time.Time
	NewID  func() string
}

// Store is one instance's way to the gate. It is safe for concurrent use.
type Store struct {
	Config
	entrance chan struct{} // one caller at a time plans its way in, as with vingate and with the limiters

	mu     sync.Mutex
	seen   view
	seenAt time.Time
}

// view is a state and the version of the item it was in.
type view struct {
	gate.State
	version int
}

type item = map[string]types.AttributeValue

const (
	attrKey     = "pk"
	attrVersion = "version"
)

// New makes a store; it makes no call.
func New(c Config) *Store { return &Store{Config: c, entrance: make(chan struct{}, 1)} }

func (s *Store) key() types.AttributeValue {
	return &types.AttributeValueMemberS{Value: "versioned#" + s.Name}
}

// Init puts a gate with a full bucket.
func (s *Store) Init(ctx context.Context, k gate.Knobs) error {
	_, _, err := s.put(ctx, view{gate.NewState(k, gate.MicrosOf(s.Now()), false), 0})
	return err
}

// put writes a state on condition that the item has the version it was made from. met is what a failed put met.
func (s *Store) put(ctx context.Context, next view) (done bool, met view, err error) {
	it := dynamo.Encode(next.State)
	it[attrKey] = s.key()
	it[attrVersion] = number(next.version + 1)
	in := &dynamodb.PutItemInput{TableName: aws.String(s.Table), Item: it,
		ConditionExpression:                 aws.String(attrVersion + " = :seen"),
		ExpressionAttributeValues:           item{":seen": number(next.version)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
	if next.version == 0 {
		in.ConditionExpression, in.ExpressionAttributeValues = aws.String("attribute_not_exists(pk)"), nil
	}
	_, err = s.Client.PutItem(ctx, in)
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed):
		met, err = s.saw(failed.Item)
		return false, met, err
	case err != nil:
		return false, met, err
	}
	next.version++
	s.keep(next)
	return true, next, nil
}

func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

func (s *Store) saw(it item) (view, error) {
	state, err := dynamo.Decode(it)
	if err != nil {
		return view{}, err
	}
	n, ok := it[attrVersion].(*types.AttributeValueMemberN)
	if !ok {
		return view{}, fmt.Errorf("the item has no %s", attrVersion)
	}
	version, err := strconv.Atoi(n.Value)
	v := view{state, version}
	s.keep(v)
	return v, err
}

func (s *Store) keep(v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.version >= s.seen.version {
		s.seen, s.seenAt = v, s.Now()
	}
}

// look is the view to decide on: for CAS the last one while it is young enough, else an eventually consistent read.
func (s *Store) look(ctx context.Context, maxAge time.Duration) (view, error) {
	s.mu.Lock()
	v, fresh := s.seen, !s.seenAt.IsZero() && s.Now().Sub(s.seenAt) <= maxAge
	s.mu.Unlock()
	if fresh && s.Scheme == CAS {
		return v, nil
	}
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(s.Table), Key: item{attrKey: s.key()},
		ConsistentRead: aws.Bool(s.Scheme == ReadPut)})
	if err != nil {
		return view{}, err
	}
	return s.saw(out.Item)
}

// again is the view to decide on after a put that failed.
func (s *Store) again(ctx context.Context, met view) (view, error) {
	if err := sleep(ctx, rand.N(restart)); err != nil {
		return view{}, err
	}
	if s.Scheme == CAS {
		return met, nil
	}
	return s.look(ctx, 0)
}

// Acquire asks for one upstream call. Exactly one of its results is not nil.
func (s *Store) Acquire(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	began := s.Now()
	r.ID = string(gate.FlowOf(r.Key.Tenant)) + s.NewID()
	lease, refusal, err := s.enter(ctx, r)
	if lease == nil && refusal == nil && err == nil {
		lease, refusal, err = s.wait(ctx, r, began)
		if lease == nil {
			s.leave(ctx, r)
		}
	}
	return lease, refusal, err
}

// enter takes a lease, or a ticket (all results nil), or says why not.
func (s *Store) enter(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
	select {
	case s.entrance <- struct{}{}:
		defer func() { <-s.entrance }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	v, err := s.look(ctx, viewAge)
	for range maxAttempts {
		if err != nil {
			return nil, nil, err
		}
		now := gate.MicrosOf(s.Now())
		admission, ticket, refusal := v.Plan(now, r)
		var write gate.Write = admission
		switch {
		case refusal != nil:
			return nil, refusal, nil
		case ticket != nil:
			write = ticket
		}
		done, met, failed := s.put(ctx, view{write.Apply(v.State), v.version})
		switch {
		case failed != nil:
			return nil, nil, failed
		case done && ticket != nil:
			return nil, nil, nil
		case done:
			return met.Lease(r.ID, r.Key, now, admission.End), nil, nil
		}
		v, err = s.again(ctx, met)
	}
	return nil, nil, ErrContended
}

// wait holds a ticket until its turn comes or its patience ends.
func (s *Store) wait(ctx context.Context, r gate.Request, began time.Time) (*gate.Lease, *gate.Refusal, error) {
	v, err := s.look(ctx, viewAge)
	for {
		if err != nil {
			return nil, nil, err
		}
		now, left := gate.MicrosOf(s.Now()), r.Patience-s.Now().Sub(began)
		w, rest, refusal := v.PlanClaim(now, r, nil)
		switch {
		case refusal != nil:
			return nil, refusal, nil
		case left <= 0:
			return nil, v.WaitedInVain(now, r.ID), nil
		case rest > 0:
			if err = sleep(ctx, min(rest+rand.N(rest/8+time.Millisecond), left)); err == nil {
				v, err = s.look(ctx, 0)
			}
			continue
		}
		done, met, failed := s.put(ctx, view{w.Apply(v.State), v.version})
		switch {
		case failed != nil:
			return nil, nil, failed
		case done:
			return met.Lease(r.ID, r.Key, now, w.End), nil, nil
		}
		v, err = s.again(ctx, met)
	}
}

// leave gives a ticket back.
func (s *Store) leave(ctx context.Context, r gate.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBudget)
	defer cancel()
	_ = s.settle(ctx, func(v view) gate.Write {
		if w, queued := v.PlanCancel(r.ID, r.Key); queued {
			return w
		}
		return nil
	})
}

// Release gives a lease back with what its call taught.
func (s *Store) Release(ctx context.Context, l *gate.Lease, o gate.Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBudget)
	defer cancel()
	return s.settle(ctx, func(v view) gate.Write {
		if _, there := v.Leases[l.ID]; there {
			return v.PlanRelease(gate.MicrosOf(s.Now()), l, o)
		}
		return nil
	})
}

// settle puts a write that must not be given up; nil says that there is nothing left to write.
func (s *Store) settle(ctx context.Context, plan func(view) gate.Write) error {
	v, err := s.look(ctx, viewAge)
	for {
		if err != nil {
			return err
		}
		w := plan(v)
		if w == nil {
			return nil
		}
		done, met, err1 := s.put(ctx, view{w.Apply(v.State), v.version})
		if done || err1 != nil {
			return err1
		}
		v, err = s.again(ctx, met)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
