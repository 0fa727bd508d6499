package dynamo

import (
	"context"
	"errors"

	"vingate/internal/gate"
)

// Swept is what a sweep removed, and the gate it left.
type Swept struct {
	Leases  int // dead ones: their instances crashed, or their releases failed
	Tickets int // of owners who are gone
	After   gate.State
}

// sweepTries is how often a sweep is planned anew. Where so much is going on, the next admission takes the dead leases along.
const sweepTries = 5

// Sweep removes dead leases and expired tickets, and spends nothing. Where there are none it is one consistent read. The error is an *Error.
func (s *Store) Sweep(ctx context.Context) (Swept, error) {
	last := error(&Error{Op: "sweep", Kind: KindContended, Err: errors.New("the gate changed under every attempt")})
	for range sweepTries {
		i, err := s.Inspect(ctx)
		if err != nil {
			return Swept{}, err
		}
		w, some := i.State.PlanSweep(gate.MicrosOf(s.Now()))
		if !some {
			return Swept{After: i.State}, nil
		}
		after, met, err := s.send(ctx, sweep(w))
		switch {
		case err == nil && met == nil:
			return Swept{Leases: len(w.Dead), Tickets: len(w.Drops.Tickets), After: after}, nil
		case err == nil: // somebody else moved
			continue
		}
		last = s.fail(ctx, "sweep", err)
		if kind, _ := classify(ctx, err); !worthRetrying(kind) || ctx.Err() != nil {
			break
		}
	}
	return Swept{}, last
}

// sweep is gate.Sweep as an expression.
func sweep(w gate.Sweep) *expression {
	x := newExpression()
	x.leave(x.gone(w.Dead, w.Drops))
	return x
}
