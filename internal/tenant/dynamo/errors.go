package dynamo

import (
	"context"
	"errors"
	"fmt"

	"vingate/internal/ddb"
)

// Error is every error of this package: a tenant's account or key could not be read or written. It is never a limit that was reached.
type Error struct {
	Op    string    // "look", "charge", "find a key", ...
	Fault ddb.Fault // Invalid is also an item that cannot be understood
	Err   error
}

func (e *Error) Error() string {
	hint := ""
	switch e.Fault {
	case ddb.MissingTable:
		hint = "; create the tables with `vingate tables create`"
	case ddb.Denied:
		hint = "; see docs/deploy.md for the rights that are needed"
	}
	return fmt.Sprintf("tenants: %s: %s: %v%s", e.Op, e.Fault, e.Err, hint)
}

func (e *Error) Unwrap() error { return e.Err }

// fail makes an error of op. ctx is the caller's own.
func fail(ctx context.Context, op string, err error) error {
	var known *Error
	if errors.As(err, &known) {
		return &Error{Op: op, Fault: known.Fault, Err: known.Err}
	}
	fault, _ := ddb.Classify(ctx, err)
	return &Error{Op: op, Fault: fault, Err: err}
}

// damaged is an item that cannot be understood. It shows nothing of the item.
func damaged(format string, args ...any) error {
	return &Error{Fault: ddb.Invalid, Err: fmt.Errorf(format, args...)}
}
