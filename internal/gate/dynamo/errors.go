package dynamo

import (
	"context"
	"errors"
	"fmt"

	"vingate/internal/ddb"
)

// Kind says what is wrong with the store. None of them is ever reported as a limit that was reached.
type Kind string

// The kinds of package ddb, and the one of a table without a gate. Contended here means that every attempt met a state that had
// moved on, Invalid also a damaged item.
const (
	KindThrottled    = Kind(ddb.Throttled)
	KindContended    = Kind(ddb.Contended)
	KindInvalid      = Kind(ddb.Invalid)
	KindTimeout      = Kind(ddb.Timeout)
	KindUnreachable  = Kind(ddb.Unreachable)
	KindDenied       = Kind(ddb.Denied)
	KindMissingTable = Kind(ddb.MissingTable)
	KindCanceled     = Kind(ddb.Canceled)
	KindDown         = Kind(ddb.Down)

	KindMissingGate Kind = "missing-gate" // the table has no gate item
)

// Error is every error of the store: the budget could not be read or written, so no call may be made (P11).
type Error struct {
	Op   string // "acquire", "release", "read", "init"
	Kind Kind
	Err  error
}

func (e *Error) Error() string {
	hint := ""
	switch e.Kind {
	case KindMissingTable:
		hint = "; create the tables with `vingate tables create`"
	case KindMissingGate:
		hint = "; the table has no gate: `vingate tables create` makes one with new tables, `vingate gate init` on old ones"
	case KindDenied:
		hint = "; the role needs GetItem and UpdateItem on the coordination table"
	}
	return fmt.Sprintf("gate %s: %s: %v%s", e.Op, e.Kind, e.Err, hint)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrExists says that there is a gate already; Init never changes one.
var ErrExists = errors.New("the table has a gate already")

// ErrStale says that the lease was gone: its end had passed and somebody reclaimed it. Nothing was changed.
var ErrStale = errors.New("the lease had ended and was reclaimed")

var errNoGate = errors.New("no such item")

// classify finds the kind of an error. Its second result tells whether a write may have been applied all the same.
func classify(ctx context.Context, err error) (kind Kind, unknown bool) {
	var known *Error
	switch {
	case errors.As(err, &known): // the item could not be understood, perhaps after a write of ours
		return known.Kind, true
	case errors.Is(err, errNoGate):
		return KindMissingGate, false
	}
	fault, unknown := ddb.Classify(ctx, err)
	return Kind(fault), unknown
}

// worthRetrying tells the errors that the next attempt may not meet again.
func worthRetrying(kind Kind) bool { return ddb.Fault(kind).WorthRetrying() }
