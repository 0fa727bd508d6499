package dynamo

import (
	"context"
	"time"

	"vingate/internal/gate"
)

// Foresee says whether Acquire would send the caller away at once, judged on a view at most 100 ms old: one eventually consistent read at most (two of an
// instance that wrote in vain of late), and no write to the gate. Nil means that it may be admitted, or may wait. It is for those who have to write
// something of their own before they ask: most of what is refused in a flood is refused here. A full bulkhead that the caller would wait
// for is no refusal yet.
//
// It gives the request its id, so that what is left to chance falls the same for both. Its refusals are Acquire's, with a time to come back of
// their own. An error is an *Error.
func (s *Store) Foresee(ctx context.Context, r *gate.Request) (*gate.Refusal, error) {
	c := s.caller(ctx, *r)
	r.ID = c.r.ID
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
	c.settle(ctx)
	if refusal := c.known(); refusal != nil {
		return refusal, nil
	}
	shy := c.shyness()
	for _, age := range []time.Duration{gate.ViewAge, gate.FreshAge} {
		view, seen, err := c.viewOfAll(ctx, age)
		if err != nil || !seen {
			return nil, err
		}
		r := c.r
		r.Patience, r.Shy = max(0, c.left()), shy
		_, _, refusal := view.Plan(gate.MicrosOf(c.Now()), r)
		switch quiet := c.quietFor(); {
		case refusal == nil && quiet > gate.PatientQuiet:
			return &gate.Refusal{Cause: gate.QueueFull, Estimated: true, RetryAfter: gate.RetryAfter(quiet)}, nil
		case refusal.AtTheDoor() && r.BulkheadWait > 0:
			return nil, nil
		case refusal != nil:
			refusal.Estimated = refusal.Estimated || refusal.Cause != gate.NoToken
			return refusal, nil
		case shy == 0:
			return nil, nil
		} // a shy one looks again before it writes
	}
	return nil, nil
}

// viewOfAll is a view of that age, which one caller at a time reads. Not seen: so many are on their way in that nobody can say.
func (c *caller) viewOfAll(ctx context.Context, age time.Duration) (view gate.State, seen bool, err error) {
	if view, fresh := c.memory(age); fresh {
		return view, true, nil
	}
	select {
	case c.entrance <- struct{}{}:
		defer func() { <-c.entrance }()
	case <-ctx.Done():
		return view, false, c.ctx.Err()
	}
	view, _, err = c.view(ctx, age)
	return view, err == nil, err
}
