package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/gate"
)

// ErrChanged says that somebody else changed the knobs or the operator's hold meanwhile. Nothing was written.
var ErrChanged = errors.New("somebody else changed the gate meanwhile")

// ErrNothingToDo says that the gate is already as it was asked to be, or may not be changed that way. Nothing was written.
var ErrNothingToDo = errors.New("there is nothing to change")

// Inspection is a gate as an operator may see it.
type Inspection struct {
	State gate.State
	At    time.Time     // on this machine's clock
	Ahead time.Duration // of this machine's clock, at the least, as far as whole seconds tell; negative when it is behind
}

// Change is what a write of an operator's did.
type Change struct {
	Before, After gate.State
}

// Budgets of an operator's calls: his machine may be far away.
const (
	adminAttempt = gate.TuneAttempt
	adminTries   = 20
)

// Inspect reads the gate, strongly consistent. The error is an *Error.
func (s *Store) Inspect(ctx context.Context) (Inspection, error) {
	it, i, err := s.fetch(ctx)
	if err == nil && it == nil {
		err = errNoGate
	}
	if err == nil {
		i.State, err = inspect(it)
	}
	if err != nil {
		return Inspection{}, s.fail(ctx, "read", err)
	}
	return i, nil
}

// ClockAhead is Inspection.Ahead, also where there is no gate.
func (s *Store) ClockAhead(ctx context.Context) (time.Duration, error) {
	_, i, err := s.fetch(ctx)
	if err != nil {
		return 0, s.fail(ctx, "read", err)
	}
	return i.Ahead, nil
}

// fetch reads the item, nil for none, and the clocks.
func (s *Store) fetch(ctx context.Context) (item, Inspection, error) {
	sent := s.Now().Round(0)
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(s.Table), Key: item{attrKey: text(s.pk)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, Inspection{}, err
	}
	i := Inspection{At: s.Now().Round(0)}
	if server, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok {
		// The answer was stamped between sent and At, within the second that begins at server.
		if least := sent.Sub(server.Add(time.Second)); least > 0 {
			i.Ahead = least
		} else if most := i.At.Sub(server); most < 0 {
			i.Ahead = most
		}
	}
	return out.Item, i, nil
}

func inspect(it item) (gate.State, error) {
	state, err := decode(it)
	if err != nil {
		return state, &Error{Op: "read", Kind: KindInvalid, Err: err}
	}
	return state, nil
}

// Tune puts knobs into force in the place of those of a version. ErrChanged: that version is not in force any more.
func (s *Store) Tune(ctx context.Context, version int, k gate.Knobs) (Change, error) {
	if err := gate.Faulty(k.Validate()); err != nil {
		return Change{}, &Error{Op: "set", Kind: KindInvalid, Err: err}
	}
	return s.change(ctx, "set", func(state gate.State, now gate.Micros) (*expression, gate.Write, error) {
		w := state.PlanTune(now, k)
		if w.From != version {
			return nil, nil, ErrChanged
		}
		return tune(w), w, nil
	})
}

// Pause stops every admission for d, in the place of an earlier pause of an operator's. NHTSA's hold is left alone.
func (s *Store) Pause(ctx context.Context, d time.Duration) (Change, error) {
	return s.change(ctx, "hold", func(state gate.State, now gate.Micros) (*expression, gate.Write, error) {
		w := state.PlanPause(now, d)
		return pauseOf(w), w, nil
	})
}

// Lift ends the operator's pause, with force also any hold. ErrNothingToDo: there is nothing that it may end.
func (s *Store) Lift(ctx context.Context, force bool) (Change, error) {
	return s.change(ctx, "clear", func(state gate.State, now gate.Micros) (*expression, gate.Write, error) {
		w, ok := state.PlanLift(now, force)
		if !ok {
			return nil, nil, ErrNothingToDo
		}
		return pauseOf(w), w, nil
	})
}

// planner plans a change on a state.
type planner func(gate.State, gate.Micros) (*expression, gate.Write, error)

// change plans on the gate as it is and writes, anew on what it met while admissions and releases come between. The state that a write of an
// unknown outcome would have left tells whether it was applied.
func (s *Store) change(ctx context.Context, op string, plan planner) (Change, error) {
	i, err := s.Inspect(ctx)
	if err != nil {
		return Change{}, err
	}
	state := i.State
	var doubtful Change // what a write would have done that was perhaps applied
	last := error(&Error{Op: op, Kind: KindContended, Err: errors.New("the gate changed under every attempt")})
	for range adminTries {
		if doubtful.After.Version != 0 && sameSettings(state, doubtful.After) {
			return Change{doubtful.Before, state}, nil
		}
		x, w, err := plan(state, gate.MicrosOf(s.Now()))
		if err != nil {
			return Change{}, &Error{Op: op, Kind: KindContended, Err: err}
		}
		after, met, err := s.send(ctx, x)
		switch {
		case err == nil && met == nil:
			return Change{state, after}, nil
		case err == nil:
			if state, err = inspect(met); err != nil {
				return Change{}, s.fail(ctx, op, err)
			}
			continue
		}
		last = s.fail(ctx, op, err)
		kind, unknown := classify(ctx, err)
		if unknown {
			doubtful = Change{state, w.Apply(state)}
		}
		if !worthRetrying(kind) || ctx.Err() != nil {
			return Change{}, last
		}
		if i, err = s.Inspect(ctx); err != nil {
			return Change{}, err
		}
		state = i.State
	}
	return Change{}, last
}

// sameSettings says whether a state is the one that an operator's write left. A hold that it ended is still ended; of another it says nothing.
func sameSettings(state, left gate.State) bool {
	return state.Version == left.Version && state.Knobs == left.Knobs && state.Pause == left.Pause && (left.Hold != 0 || state.Hold == 0)
}

// send sends one write once. When its condition failed, met is the item it met.
func (s *Store) send(ctx context.Context, x *expression) (after gate.State, met item, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminAttempt)
	defer cancel()
	in := x.input(s.Table, s.pk)
	if len(in.ExpressionAttributeNames) == 0 {
		in.ExpressionAttributeNames = nil // an empty map is an error
	}
	out, err := s.Client.UpdateItem(ctx, in, once)
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed) && failed.Item == nil:
		return after, nil, errNoGate
	case errors.As(err, &failed):
		return after, failed.Item, nil
	case err != nil:
		return after, nil, err
	}
	after, err = inspect(out.Attributes)
	return after, nil, err
}

// tune is gate.Tune as an expression.
func tune(w gate.Tune) *expression {
	x := newExpression()
	x.when("e = %s", x.value(":e", number(w.From)))
	x.when("L = %s", x.value(":L", number(w.SeenLimit)))
	x.set = append(x.set, "e = "+x.value(":next", number(w.From+1)), "k = "+x.value(":k", text(w.Knobs.Pack())), "L = "+x.value(":limit", number(w.Limit)))
	if w.TAT != 0 {
		x.when("t = %s", x.value(":t", number(w.SeenTAT)))
		x.set = append(x.set, "t = "+x.value(":tat", number(w.TAT)))
	}
	return x
}

// pauseOf is gate.Pause as an expression.
func pauseOf(w gate.Pause) *expression {
	x := newExpression()
	x.when("e = %s", x.value(":e", number(w.From)))
	x.set = append(x.set, "e = "+x.value(":next", number(w.From+1)))
	if w.Until == 0 {
		x.remove = append(x.remove, attrPause)
	} else {
		x.set = append(x.set, "p = "+x.value(":p", number(w.Until)))
	}
	if w.Force {
		x.when("h = %s", x.value(":h", number(w.SeenHold)))
		x.set = append(x.set, "h = "+x.value(":zero", number(0)), "r = "+x.value(":r", text("")))
	}
	return x
}
