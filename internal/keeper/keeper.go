// Package keeper looks after the shared budget once a minute: it makes a gate where there is none, clears away what crashed instances
// left, and says how the gate stands.
//
// It promises that it spends no token, takes no slot and calls nobody but DynamoDB; that it never changes a gate's numbers or its
// hold; and that a gate it makes starts full only in a table through which nobody can have called NHTSA, and else empty and held for one
// lease time.
package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/observe"
)

// Source marks the scheduled event.
const Source = "vingate.keeper"

// Gate is what is used of the shared budget.
type Gate interface {
	Sweep(context.Context) (dynamo.Swept, error)
	Init(context.Context, gate.Knobs, dynamo.Start) error
}

// Config of a keeper. Unused says whether nobody can have called NHTSA by leave of the table, and if not, why. All fields are required.
type Config struct {
	Gate    Gate
	Unused  func(context.Context) (unused bool, why string, err error)
	Knobs   gate.Knobs // of the environment; what is in force is in the gate
	Now     func() time.Time
	Log     *slog.Logger
	Metrics *observe.Metrics
}

// Keeper takes the payloads of Lambda invocations. It is a lambda.Handler.
type Keeper struct{ Config }

// New makes a keeper.
func New(c Config) *Keeper { return &Keeper{c} }

// EventError: the payload is no event of this function.
type EventError struct{ Reason string }

func (e *EventError) Error() string { return "unsupported event: " + e.Reason }

// answer is what an invocation by hand shows.
type answer struct {
	Made    string `json:"made,omitempty"` // full or held, when a gate was made
	Leases  int    `json:"leases"`         // dead ones that were removed
	Tickets int    `json:"tickets"`        // likewise
}

// Invoke keeps the gate once. An error shows among the function's errors.
func (k *Keeper) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	var e struct {
		Source string `json:"source"`
	}
	if err := json.Unmarshal(payload, &e); err != nil || e.Source != Source {
		return nil, &EventError{Reason: "not the keeper's schedule"}
	}
	var a answer
	swept, err := k.Gate.Sweep(ctx)
	if missing(err) {
		if a.Made, err = k.make(ctx); err == nil {
			swept, err = k.Gate.Sweep(ctx)
		}
	}
	if err != nil {
		k.Log.ErrorContext(ctx, "the gate was not kept", "error", err.Error())
		return nil, err
	}
	a.Leases, a.Tickets = swept.Leases, swept.Tickets
	k.tell(ctx, swept)
	return json.Marshal(a)
}

func missing(err error) bool {
	var e *dynamo.Error
	return errors.As(err, &e) && e.Kind == dynamo.KindMissingGate
}

// make makes the gate. Another keeper may have been quicker: then there is one, which is as good.
func (k *Keeper) make(ctx context.Context) (how string, err error) {
	unused, why, err := k.Unused(ctx)
	if err != nil {
		return "", err
	}
	start, how := dynamo.FullBucket, "full"
	if !unused {
		start, how = dynamo.EmptyAndHeld, "held"
	}
	switch err := k.Gate.Init(ctx, k.Knobs, start); {
	case errors.Is(err, dynamo.ErrExists):
		return "", nil
	case err != nil:
		return "", err
	}
	if unused {
		k.Log.InfoContext(ctx, "made the gate in a new table; it starts with a full bucket")
	} else {
		k.Log.WarnContext(ctx, "made the gate; it starts empty and held for LEASE_TTL, since calls may still run by leave of an older one", "table", why)
	}
	return how, nil
}

// tell writes the gauges.
func (k *Keeper) tell(ctx context.Context, swept dynamo.Swept) {
	v := swept.After.View(gate.MicrosOf(k.Now()))
	l := observe.Line{Level: slog.LevelInfo, Message: "gate", Dimensions: map[string]string{}}
	gauge := func(name string, n int) {
		l.Measured = append(l.Measured, observe.Measured{Name: name, Values: []float64{float64(n)}})
	}
	gauge(observe.Limit, v.Limit)
	gauge(observe.InFlight, v.InFlight)
	gauge(observe.Tokens, v.Tokens)
	gauge(observe.Queued, v.Queued)
	gauge(observe.LeakedLeases, swept.Leases)
	held := 0
	if v.HeldFor > 0 {
		held = 1
		l.Dimensions[observe.Reason] = string(v.Hold)
		l.Properties = append(l.Properties, slog.Int64("heldForSeconds", int64(gate.RetryAfter(v.HeldFor)/time.Second)))
	}
	gauge(observe.HoldActive, held)
	differ := k.Knobs.Differences(v.Knobs)
	gauge(observe.KnobsDiffer, len(differ))
	if len(differ) > 0 {
		l.Level = slog.LevelWarn
		l.Properties = append(l.Properties, slog.Any("knobsDiffer", differ))
	}
	l.Properties = append(l.Properties, slog.Int("expiredTickets", swept.Tickets), slog.Int("knobsVersion", v.KnobsVersion))
	k.Metrics.Write(ctx, l)
}
