// Package dynamo keeps tenants in the coordination table: one item for each tenant's account, one for each API key. A charge of package
// tenant is one UpdateItem whose condition and update say the same as the charge's Holds and Apply; a test holds the two against each other.
//
// It promises that a refusal writes nothing, that a look costs at most one eventually consistent read in a second and none while the
// account is known to be dry, that a charge is one write (and one more each time it meets another of the same tenant, which happens only when
// both are the first after a pause), and that a charge whose answer is lost is made once.
//
// A denial is a value, a *tenant.Refusal; a broken store is an *Error.
package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/lru"
	"vingate/internal/tenant"
)

// Client is the part of *dynamodb.Client that the request path uses.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// Config of a store. All fields are required.
type Config struct {
	Client    Client
	Table     string
	Now       func() time.Time // wall clock of this instance
	SkewBound time.Duration    // how far any instance's clock may be off
}

// Budgets of one operation, all attempts together.
const (
	lookBudget   = 500 * time.Millisecond
	chargeBudget = 700 * time.Millisecond

	viewAge    = time.Second // a tenant is let through on a view no older than this
	maxTries   = 6
	retryPause = 20 * time.Millisecond
	remembered = 4096 // tenants, about 300 bytes each
)

// Store is safe for use by many goroutines.
type Store struct {
	Config
	memory  *lru.Cache[string, seen]
	attempt time.Duration // of one call
}

// seen is the last view of an account.
type seen struct {
	account tenant.Account
	at      time.Time // when it was asked for
}

// New makes a store; it makes no call.
func New(c Config) *Store {
	return &Store{Config: c, memory: lru.New[string, seen](remembered), attempt: gate.Attempt}
}

// Look says whether the caller may ask for a call of this cost; nil, nil means yes. Nothing is written.
//
// An error means that nobody knows what the caller has used. He is not let through then: an account that cannot be read for the crowd that
// asks for it must not become an account without limit.
func (s *Store) Look(ctx context.Context, c tenant.Caller, cost int) (*tenant.Refusal, error) {
	if err := hasPlan(c); err != nil {
		return nil, fail(ctx, "look", err)
	}
	now := s.now()
	view, ok := s.memory.Get(c.ID)
	if ok {
		if r := view.account.Look(gate.MicrosOf(now), c.Plan, cost, s.SkewBound); r != nil {
			return r, nil
		}
		if fresh(view, now) {
			return nil, nil
		}
	}
	var account tenant.Account
	err := patiently(ctx, func(ctx context.Context) (err error) {
		account, err = s.read(ctx, c.ID)
		return err
	})
	if err != nil {
		return nil, fail(ctx, "look", err)
	}
	return account.Look(gate.MicrosOf(s.now()), c.Plan, cost, s.SkewBound), nil
}

// Left is the number of calls the caller may still ask for and the time until there is one more, 0 for a full bucket, as far as it is known
// without asking; ok is false when that is too long ago.
func (s *Store) Left(c tenant.Caller) (calls int, next time.Duration, ok bool) {
	now := s.now()
	view, known := s.memory.Get(c.ID)
	if !known || hasPlan(c) != nil {
		return 0, 0, false
	}
	calls, next = view.account.Left(gate.MicrosOf(now), c.Plan)
	return calls, next, calls == 0 || fresh(view, now) // a dry one is dry, however old the view
}

// patiently repeats a read, which has no consequences, for as long as lookBudget lasts and it may help.
func patiently(caller context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(caller, lookBudget)
	defer cancel()
	var last error
	for {
		err := read(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // a try that the budget's end cut short says less than the one before it
			last = err
		}
		if fault, _ := ddb.Classify(caller, err); !fault.WorthRetrying() || isDamage(err) || !pause(ctx) {
			return last
		}
	}
}

// Charge takes a cost out of the caller's account, for a call that was granted under this id. It is made once however often it is
// asked for and whatever answers are lost, as long as the operation lives. It goes on when the caller leaves: what was granted is charged.
//
// An error means that the charge may or may not have been made.
func (s *Store) Charge(ctx context.Context, c tenant.Caller, id string, cost int) error {
	if err := hasPlan(c); err != nil {
		return fail(ctx, "charge", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chargeBudget)
	defer cancel()

	began := s.now()
	view, _ := s.memory.Get(c.ID)
	account := view.account
	if !fresh(view, began) {
		// One look is cheaper than a write that fails. Without it the write finds out by itself.
		if read, err := s.read(ctx, c.ID); err == nil {
			account = read
		}
	}
	last := error(&Error{Fault: ddb.Timeout, Err: errors.New("no time was left")})
	for range maxTries {
		if account.Charged(id) {
			return nil
		}
		now := s.now()
		// An instance that was frozen in here thaws with its context's time left and the ids of its tries forgotten.
		if age := now.Sub(began); age < 0 || age > chargeBudget {
			return fail(ctx, "charge", &Error{Fault: ddb.Timeout, Err: errors.New("this instance stood still meanwhile")})
		}
		met, err := s.update(ctx, c.ID, account.Charge(gate.MicrosOf(now), c, id, cost, s.retention()))
		switch {
		case err == nil && met == nil:
			return nil
		case err == nil: // another came first, or it was made by a try whose answer was lost
			account = *met
			last = &Error{Fault: ddb.Contended, Err: errors.New("the account changed under every attempt")}
			continue
		}
		if ctx.Err() == nil {
			last = err
		}
		if fault, _ := ddb.Classify(ctx, err); !fault.WorthRetrying() || isDamage(err) || !pause(ctx) {
			break
		}
	}
	return fail(ctx, "charge", last)
}

// retention is how long an id is remembered: until no try of its charge can come any more, on whoever's clock.
func (s *Store) retention() time.Duration { return chargeBudget + s.attempt + 2*s.SkewBound }

// read fetches an account by one eventually consistent read.
func (s *Store) read(ctx context.Context, id string) (tenant.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	asked := s.now()
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(s.Table), Key: accountKey(id)}, once)
	if err != nil {
		return tenant.Account{}, err
	}
	return s.saw(id, out.Item, asked)
}

// update sends a charge once. When its condition failed, met is the account it met.
func (s *Store) update(ctx context.Context, id string, w tenant.Charge) (met *tenant.Account, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	asked := s.now()
	out, err := s.Client.UpdateItem(ctx, input(s.Table, id, w), once)
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed):
		account, err := decode(failed.Item)
		if err != nil {
			return nil, err
		}
		s.remember(id, account, asked)
		return &account, nil
	case err != nil:
		return nil, err
	}
	_, _ = s.saw(id, out.Attributes, asked) // an answer that cannot be read says all the same that it was written
	return nil, nil
}

// saw reads an item and keeps it in memory.
func (s *Store) saw(id string, it item, asked time.Time) (tenant.Account, error) {
	account, err := decode(it)
	if err != nil {
		return account, err
	}
	return s.remember(id, account, asked), nil
}

// remember keeps the later of what is known and what was read, and returns it.
func (s *Store) remember(id string, account tenant.Account, asked time.Time) (later tenant.Account) {
	s.memory.Update(id, func(old seen, _ bool) seen {
		later = old.account.Later(account, gate.MicrosOf(asked))
		return seen{later, asked}
	})
	return later
}

// fresh says whether one may be let through on a view.
func fresh(v seen, now time.Time) bool {
	age := now.Sub(v.at)
	return !v.at.IsZero() && age >= 0 && age <= viewAge
}

// now is wall time: a frozen instance's monotonic clock may have stood still.
func (s *Store) now() time.Time { return s.Now().Round(0) }

// once forbids the SDK to repeat: every attempt of ours takes a new time stamp.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// pause waits before the next attempt; false: there is no time for one.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(retryPause):
		return ctx.Err() == nil
	}
}

func isDamage(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// hasPlan keeps a caller that nobody identified away from the arithmetic.
func hasPlan(c tenant.Caller) error {
	if c.ID == "" || c.Plan.RatePerSecond <= 0 || c.Plan.Burst < 1 {
		return damaged("a caller without a plan")
	}
	return nil
}

// input is tenant.Charge as an UpdateItem: the clauses stand in the order of Checks and Apply.
func input(table, id string, w tenant.Charge) *dynamodb.UpdateItemInput {
	names := map[string]string{"#x": attrExpires}
	values := item{":sec": number(w.Now.Time().Unix())}
	var cond string
	var set, remove []string
	if w.Band == tenant.Fresh {
		cond = "attribute_not_exists(t) OR #x <= :sec"
		set = []string{"t = :next", "r = :r"}
		values[":next"] = number(w.Now + w.Step)
		values[":r"] = &types.AttributeValueMemberM{Value: item{w.ID: number(w.Now.Millis())}}
		if w.Expires == 0 {
			remove = []string{"#x"}
		}
	} else {
		names["#i"] = w.ID
		values[":now"], values[":ms"] = number(w.Now), number(w.Now.Millis())
		cond = "(attribute_not_exists(#x) OR #x > :sec) AND attribute_not_exists(r.#i) AND t "
		if w.Band == tenant.Busy {
			cond += ">= :now"
			set, values[":step"] = []string{"t = t + :step"}, number(w.Step)
		} else {
			cond += "< :now"
			set, values[":next"] = []string{"t = :next"}, number(w.Now+w.Step)
		}
		set = append(set, "r.#i = :ms")
		for n, old := range w.Forget {
			name := fmt.Sprint("#o", n)
			names[name] = old
			remove = append(remove, "r."+name)
		}
	}
	if w.Expires != 0 {
		set, values[":x"] = append(set, "#x = :x"), number(w.Expires)
	}
	for _, day := range w.Over {
		remove = append(remove, dayAttribute(day))
	}
	update := "SET " + strings.Join(set, ", ")
	if len(remove) > 0 {
		update += " REMOVE " + strings.Join(remove, ", ")
	}
	if w.Day != 0 { // the id in the condition keeps a write that is repeated from counting twice
		update += " ADD " + dayAttribute(w.Day) + " :cost"
		values[":cost"] = number(w.Cost)
	}
	return &dynamodb.UpdateItemInput{
		TableName: aws.String(table), Key: accountKey(id),
		UpdateExpression: aws.String(update), ConditionExpression: aws.String(cond),
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}
