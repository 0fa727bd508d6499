package dynamo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
)

// The attributes of the promise item, promise#<name>. It lies beside the gate, so that those who are sent away never write to the
// gate itself.
const (
	prefixRound = "p" // N: gate.Promise.Until, in microseconds; the name ends with the round
	prefixBlock = "b" // N: when a block was taken, in microseconds; the name ends with its id
)

const (
	promiseBudget = 2 * gate.Attempt // a look and a write
	promiseRest   = time.Second      // how long the promise is left alone after it failed
)

// promises is this instance's part in the promise. One caller at a time uses it, so that the next one finds what it saw.
type promises struct {
	turn   chan struct{}
	begin  sync.Once
	desk   *gate.Desk
	seen   gate.Promise
	seenAt time.Time // zero: not yet
	failed time.Time
}

// retryAfter is the Retry-After of a refusal. Whatever becomes of the promise, it is never an error: the gate's own
// Retry-After stands.
func (c *caller) retryAfter(refusal gate.Refusal) time.Duration {
	if refusal.Cause == gate.Held {
		return gate.AfterHold(refusal, c.r.ID)
	}
	c.mu.Lock()
	state := c.obeying(c.seen)
	c.mu.Unlock()
	sent, shared := state.Send(gate.MicrosOf(c.Now()), c.r, refusal)
	if !shared {
		return refusal.RetryAfter
	}
	return sent.RetryAfter(c.place(sent))
}

// place is the caller's place in time.
func (c *caller) place(sent gate.Sent) gate.Micros {
	ctx, cancel := context.WithTimeout(c.ctx, promiseBudget)
	defer cancel()
	p := &c.promises
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return sent.Unpromised()
	}
	p.begin.Do(func() {
		h := fnv.New64a()
		h.Write([]byte(c.NewID()))
		p.desk = gate.NewDesk(h.Sum64())
	})
	if place, ok := p.desk.Deal(sent); ok {
		return place
	}
	if age := c.Now().Sub(p.failed); age >= 0 && age < promiseRest {
		return sent.Unpromised()
	}
	place, err := c.promise(ctx, sent)
	if err != nil {
		p.failed = c.Now()
		return sent.Unpromised()
	}
	return place
}

// promise gives the caller a place by the promise, with a look at it and a write to it where they are needed.
func (c *caller) promise(ctx context.Context, sent gate.Sent) (gate.Micros, error) {
	p := &c.promises
	if age := c.Now().Round(0).Sub(p.seenAt.Round(0)); p.seenAt.IsZero() || age < 0 || age > gate.PromiseAge {
		if err := c.readPromise(ctx); err != nil {
			return 0, err
		}
	}
	place, w := p.desk.Ask(sent, c.NewID(), p.seen)
	if w == nil {
		return place, nil
	}
	applied, err := c.reserve(ctx, *w)
	switch {
	case err != nil:
		return 0, err
	case place != 0: // a guest's, and the write is for others
		return place, nil
	case applied:
		return p.desk.Took(sent, *w, p.seen), nil
	}
	return p.desk.Missed(sent, p.seen), nil
}

func (s *Store) readPromise(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gate.Attempt)
	defer cancel()
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(s.Table), Key: item{attrKey: text(s.promisePK())},
	}, once)
	if err != nil {
		return err
	}
	return s.sawPromise(out.Item)
}

// reserve sends the write once: if its answer is lost it is not repeated. One that lost its block to others, or was planned
// on an older round, is not applied, and teaches what it met.
func (s *Store) reserve(ctx context.Context, w gate.Reserve) (applied bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, gate.Attempt)
	defer cancel()
	out, err := s.Client.UpdateItem(ctx, reserve(w).input(s.Table, s.promisePK()), once)
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed):
		return false, s.sawPromise(failed.Item)
	case err != nil:
		return false, err
	}
	return true, s.sawPromise(out.Attributes)
}

func (s *Store) promisePK() string { return "promise#" + s.Name }

func (s *Store) sawPromise(it item) error {
	seen, err := decodePromise(it)
	if err == nil {
		s.promises.seen, s.promises.seenAt = seen, s.Now()
	}
	return err
}

// reserve is gate.Reserve as an expression: its clauses stand in the order of Reserve.Checks and Reserve.Apply. Each round has an
// attribute of its own, so that many writers can begin the next one in one moment: the first makes the attribute, the others
// add to it.
func reserve(w gate.Reserve) *expression {
	x := newExpression()
	lo, hi := w.Bounds()
	id, until := x.name("#i", prefixBlock+w.ID), x.name("#p", prefixRound+strconv.Itoa(w.Round))
	x.when("attribute_not_exists(%s)", id)
	step := x.value(":step", number(w.Step))
	goesOn := "%s BETWEEN " + x.value(":lo", number(lo)) + " AND " + x.value(":hi", number(hi))
	if w.Fresh {
		begins := "attribute_not_exists(" + attrKey + ")"
		from, next := x.value(":from", number(w.From)), x.name("#n", prefixRound+strconv.Itoa(w.Round+1))
		if w.Round == 0 {
			delete(x.names, "#p")
		} else {
			begins = fmt.Sprintf("%s < %s OR %s > %s", until, x.value(":over", number(w.Over())), until, x.value(":absurd", number(w.Absurd)))
			x.remove = append(x.remove, until)
		}
		x.when("(%s OR "+goesOn+")", begins, next)
		x.set = append(x.set, fmt.Sprintf("%s = if_not_exists(%s, %s) + %s", next, next, from, step))
	} else {
		x.when(goesOn, until)
		x.set = append(x.set, until+" = "+until+" + "+step)
	}
	x.set = append(x.set, id+" = "+x.value(":now", number(w.Now)))
	for n, other := range w.Forget {
		x.remove = append(x.remove, x.name(fmt.Sprintf("#f%d", n), prefixBlock+other))
	}
	return x
}

func encodePromise(pk string, p gate.Promise) item {
	it := item{attrKey: text(pk), prefixRound + strconv.Itoa(p.Round): number(p.Until)}
	for id, at := range p.Blocks {
		it[prefixBlock+id] = number(at)
	}
	return it
}

// decodePromise reads an item; nil is one that does not exist.
func decodePromise(it item) (p gate.Promise, err error) {
	d := decoder{it: it}
	p.Blocks = map[string]gate.Micros{}
	for _, name := range slices.Sorted(maps.Keys(it)) {
		round, is := strings.CutPrefix(name, prefixRound)
		switch id, isBlock := strings.CutPrefix(name, prefixBlock); {
		case name == attrKey:
		case isBlock:
			p.Blocks[id] = gate.Micros(d.number(name))
		case is:
			n, err := strconv.Atoi(round)
			if err != nil || n < 1 || p.Round > 0 {
				d.fault(name, "the one round of a promise")
			}
			p.Round, p.Until = n, gate.Micros(d.number(name))
		}
	}
	if it != nil && p.Round == 0 {
		d.fault(prefixRound, "the round of a promise")
	}
	return p, errors.Join(d.errs...)
}
