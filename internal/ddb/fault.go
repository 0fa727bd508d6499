package ddb

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Fault says what is wrong with a table, a request or the way between. A condition that failed is none of them: it is an answer.
type Fault string

const (
	Throttled    Fault = "throttled"     // DynamoDB refuses the table or the account more traffic
	Contended    Fault = "contended"     // another write was in the way
	Invalid      Fault = "invalid"       // DynamoDB refuses the request: a defect of ours
	Timeout      Fault = "timeout"       // no answer in time
	Unreachable  Fault = "unreachable"   // no connection, or a server error
	Denied       Fault = "denied"        // credentials or policy
	MissingTable Fault = "missing-table" //
	Canceled     Fault = "canceled"      // the caller's own context ended
	Down         Fault = "down"          // not asked: the table is known not to answer, see Guard
)

// WorthRetrying tells the faults that the next attempt may not meet again. A throttled table is not asked again at once:
// that would add to what throttles it.
func (f Fault) WorthRetrying() bool { return f == Timeout || f == Unreachable || f == Contended }

// Classify finds the fault of an error that the SDK returned, "" for none. unknown tells that a write may have been applied
// all the same. ctx is the caller's own: only its end is a cancellation, the end of an attempt's context is a time-out.
func Classify(ctx context.Context, err error) (fault Fault, unknown bool) {
	var (
		api      smithy.APIError
		notFound *types.ResourceNotFoundException
		down     *DownError
	)
	switch {
	case err == nil:
		return "", false
	case errors.As(err, &down):
		return Down, false
	case errors.As(err, &notFound):
		return MissingTable, false
	case errors.As(err, &api):
		switch api.ErrorCode() {
		case "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottled",
			"RequestThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException", "SlowDown":
			return Throttled, false
		case "TransactionConflictException", "ReplicatedWriteConflictException", "TransactionInProgressException":
			return Contended, false
		case "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
			"ExpiredTokenException", "IncompleteSignatureException":
			return Denied, false
		}
		switch status := httpStatus(err); {
		case status == http.StatusTooManyRequests:
			return Throttled, false
		case status >= 500 || status == http.StatusRequestTimeout || api.ErrorFault() == smithy.FaultServer:
			return Unreachable, true // whatever its name, it may come after the write
		}
		return Invalid, false
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled, true
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return Timeout, true
	}
	return Unreachable, true
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
