package ddb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// API is the part of *dynamodb.Client that is guarded.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// How a table comes to be known as down, and how it is looked after then.
const (
	forgetting = time.Second            // failures that lie further apart than this are not one trouble
	fairTry    = 50 * time.Millisecond  // a time-out of a call that had less than this says nothing about the table
	probeEvery = 250 * time.Millisecond // at least; a third more at most
	probeTime  = 40 * time.Millisecond  // of one probe: whoever makes it still has his refusal within 100 ms
)

// Guard remembers that a table does not answer, so that only the first who find out wait for it. It stands in front of the client of one
// table and is an API itself.
//
// A table is down when all calls to it have failed for a while: no connection, no answer in time, throttled, denied, not there. From then on
// a read fails at once with a *DownError, but for one in 250 ms that goes through, as a probe, and is given 40 ms; who comes meanwhile waits
// for what it finds, so that a crowd that comes long after the trouble is not told of it. Any answer ends it, that of a failed condition
// included. Writes go through always: they follow a read, or give back what was taken, and nobody but
// their maker can know whether one that was refused here had been applied before.
//
// Nothing runs beside the calls: an instance that is not asked does not probe.
type Guard struct {
	next  API
	now   func() time.Time
	after time.Duration

	mu     sync.Mutex
	health health
	air    chan struct{} // closed when the probe that is in the air has come back; nil: none is
}

// NewGuard guards a client. now is the wall clock of this instance; after is how long all calls must have failed.
func NewGuard(next API, now func() time.Time, after time.Duration) *Guard {
	return &Guard{next: next, now: now, after: after}
}

// DownError is a read that was not made, because the table is known to be down.
type DownError struct {
	Fault Fault         // the last that was met
	For   time.Duration // since the first failure
}

func (e *DownError) Error() string {
	return fmt.Sprintf("not asked: %s for %v now", e.Fault, e.For.Round(time.Millisecond))
}

// Down says whether the table is known to be down.
func (g *Guard) Down() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.health.down(g.after)
}

// GetItem is the client's, unless the table is known to be down.
func (g *Guard) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	asked := g.now().Round(0)
	g.mu.Lock()
	probe, down := g.health.ask(asked, g.after, probeEvery+rand.N(probeEvery/3))
	others := g.air
	if probe {
		back := make(chan struct{})
		g.air = back
		defer g.land(back)
	}
	g.mu.Unlock()
	if down != nil {
		if !g.answered(ctx, others) {
			return nil, down
		}
		asked = g.now().Round(0)
	}
	if probe {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, probeTime)
		defer cancel()
	}
	out, err := g.next.GetItem(ctx, in, o...)
	if down := g.learn(ctx, asked, probe, err); probe && down != nil {
		return nil, down // to try again at once would be no probe
	}
	return out, err
}

// answered waits for a probe of somebody else's and says whether the table is up again.
func (g *Guard) answered(ctx context.Context, probe <-chan struct{}) bool {
	if probe == nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-probe:
		return !g.Down()
	}
}

// land tells those who wait for a probe that it is back.
func (g *Guard) land(probe chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.air == probe {
		g.air = nil
	}
	close(probe)
}

// UpdateItem is the client's.
func (g *Guard) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	asked := g.now().Round(0)
	out, err := g.next.UpdateItem(ctx, in, o...)
	g.learn(ctx, asked, false, err)
	return out, err
}

// PutItem is the client's.
func (g *Guard) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	asked := g.now().Round(0)
	out, err := g.next.PutItem(ctx, in, o...)
	g.learn(ctx, asked, false, err)
	return out, err
}

// learn takes in how a call ended, and says whether the table is down still.
func (g *Guard) learn(ctx context.Context, asked time.Time, probe bool, err error) *DownError {
	fault, _ := Classify(ctx, err)
	now := g.now().Round(0)
	switch fault {
	case Canceled:
		return nil
	case Timeout:
		if now.Sub(asked) < fairTry && !probe {
			return nil
		}
	case Throttled, Unreachable, Denied, MissingTable:
	default: // an answer
		fault = ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.health.learn(now, g.after, fault)
	if !g.health.down(g.after) {
		return nil
	}
	return &DownError{Fault: g.health.fault, For: now.Sub(g.health.since)}
}

// health is what is known of a table: a value, whose times are handed in.
type health struct {
	since, last time.Time // the first and the last of the failures since an answer came; zero: none
	fault       Fault     // of the last
	probe       time.Time // when the next read may go through
}

func (h health) down(after time.Duration) bool {
	return !h.since.IsZero() && h.last.Sub(h.since) >= after
}

// ask says whether a read goes through, and whether it is a probe. The next one is due after a while.
func (h *health) ask(now time.Time, after, next time.Duration) (probe bool, down *DownError) {
	if !h.down(after) {
		return false, nil
	}
	if now.Before(h.probe) && h.probe.Sub(now) < 2*probeEvery { // a clock that was set back does not put it off
		return false, &DownError{Fault: h.fault, For: now.Sub(h.since)}
	}
	h.probe = now.Add(next)
	return true, nil
}

// learn takes in how a call ended; "" is any answer.
func (h *health) learn(now time.Time, after time.Duration, fault Fault) {
	switch {
	case fault == "":
		*h = health{}
		return
	case h.since.IsZero(), !h.down(after) && now.Sub(h.last) > forgetting, now.Before(h.since):
		h.since = now
	}
	h.last, h.fault = now, fault
}
