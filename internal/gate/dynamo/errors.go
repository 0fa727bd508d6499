package dynamo

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Kind says what is wrong with the store. None of them is ever reported as a limit that was reached.
type Kind string

const (
	KindThrottled    Kind = "throttled"     // DynamoDB refuses the table or the account more traffic
	KindContended    Kind = "contended"     // every attempt met a state that had moved on
	KindInvalid      Kind = "invalid"       // DynamoDB refuses the request: a defect, or a damaged item
	KindTimeout      Kind = "timeout"       // no answer in time; a write may or may not have been applied
	KindUnreachable  Kind = "unreachable"   // no connection, or a server error
	KindDenied       Kind = "denied"        // credentials or policy
	KindMissingTable Kind = "missing-table" //
	KindMissingGate  Kind = "missing-gate"  // the table has no gate item
	KindCanceled     Kind = "canceled"      // the caller's own context ended
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
		hint = "; the table has no gate: `vingate tables create` makes one on new tables only"
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

// classify finds the kind of an SDK error. Its second result tells whether a write may have been applied all the same.
func classify(ctx context.Context, err error) (kind Kind, unknown bool) {
	var (
		api      smithy.APIError
		notFound *types.ResourceNotFoundException
		known    *Error
	)
	switch {
	case err == nil:
		return "", false
	case errors.As(err, &known): // the item could not be understood, perhaps after a write of ours
		return known.Kind, true
	case errors.Is(err, errNoGate):
		return KindMissingGate, false
	case errors.As(err, &notFound):
		return KindMissingTable, false
	case errors.As(err, &api):
		switch api.ErrorCode() {
		case "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottled",
			"RequestThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException", "SlowDown":
			return KindThrottled, false
		case "TransactionConflictException", "ReplicatedWriteConflictException", "TransactionInProgressException":
			return KindContended, false
		case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
			"ExpiredTokenException", "IncompleteSignatureException":
			return KindDenied, false
		}
		switch status := httpStatus(err); {
		case status == http.StatusTooManyRequests:
			return KindThrottled, false
		case status >= 500 || status == http.StatusRequestTimeout || api.ErrorFault() == smithy.FaultServer:
			return KindUnreachable, true // whatever its name, it may come after the write
		}
		return KindInvalid, false
	case errors.Is(ctx.Err(), context.Canceled):
		return KindCanceled, true
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return KindTimeout, true
	}
	return KindUnreachable, true
}

// httpStatus is the status of the answer that brought err, 0 without one. The SDK knows the fault of few error codes, and
// calls that of all others unknown.
func httpStatus(err error) int {
	var h interface{ HTTPStatusCode() int }
	if errors.As(err, &h) {
		return h.HTTPStatusCode()
	}
	return 0
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// worthRetrying tells the errors that the next attempt may not meet again.
func worthRetrying(kind Kind) bool {
	return kind == KindTimeout || kind == KindUnreachable || kind == KindContended
}
