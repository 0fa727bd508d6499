package dynamo

import (
	"context"

	"vingate/internal/gate"
)

// Foresee says whether Acquire would send the caller away at once, judged on a view at most 100 ms old: one eventually consistent read at most, and
// no write to the gate. Nil means that it may be admitted, or may wait. It is for those who have to write something of their own before
// they ask: most of what is refused in a flood is refused here. A full bulkhead that the caller would wait for is no refusal yet.
//
// Its refusals are Acquire's, with a time to come back of their own. An error is an *Error.
func (s *Store) Foresee(ctx context.Context, r gate.Request) (*gate.Refusal, error) {
	c := s.caller(ctx, r)
	refusal, err := c.foresee()
	if err != nil {
		return nil, c.fail(ctx, "read", err)
	}
	if refusal != nil {
		c.sendAway(refusal)
	}
	return refusal, nil
}

func (c *caller) foresee() (*gate.Refusal, error) {
	ctx, cancel := context.WithTimeout(c.ctx, lookBudget)
	defer cancel()
	if refusal := c.known(); refusal != nil {
		return refusal, nil
	}
	view, fresh := c.memory(gate.ViewAge)
	if !fresh { // one at a time reads, and the others use what it saw
		select {
		case c.entrance <- struct{}{}:
			defer func() { <-c.entrance }()
		case <-ctx.Done():
			if c.ctx.Err() != nil {
				return nil, c.ctx.Err()
			}
			return nil, nil // so many are on their way in that nobody can say
		}
		var err error
		if view, _, err = c.view(ctx, gate.ViewAge); err != nil {
			return nil, err
		}
	}
	r := c.r
	r.Patience, r.Shy = max(0, c.left()), c.shyness()
	_, _, refusal := view.Plan(gate.MicrosOf(c.Now()), r)
	switch quiet := c.quietFor(); {
	case refusal == nil && quiet > gate.PatientQuiet:
		return &gate.Refusal{Cause: gate.QueueFull, Estimated: true, RetryAfter: gate.RetryAfter(quiet)}, nil
	case refusal == nil, refusal.AtTheDoor() && r.BulkheadWait > 0:
		return nil, nil
	}
	refusal.Estimated = refusal.Estimated || refusal.Cause != gate.NoToken
	return refusal, nil
}
