package ddb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

func TestEveryErrorHasItsFault(t *testing.T) {
	api := func(code string, fault smithy.ErrorFault) error {
		return fmt.Errorf("operation error DynamoDB: UpdateItem: %w", &smithy.GenericAPIError{Code: code, Fault: fault})
	}
	status := func(code int) error { // of whose error codes the SDK knows nothing
		return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: code}}, Err: api("Unheard", smithy.FaultUnknown)}
	}
	for name, tc := range map[string]struct {
		err      error
		canceled bool // the caller left
		fault    Fault
		unknown  bool // a write may have been applied
		again    bool
	}{
		"none":                       {nil, false, "", false, false},
		"a table known to be down":   {fmt.Errorf("read: %w", &DownError{Fault: Timeout}), false, Down, false, false},
		"no such table":              {&types.ResourceNotFoundException{}, false, MissingTable, false, false},
		"table throttled":            {&types.ProvisionedThroughputExceededException{}, false, Throttled, false, false},
		"account throttled":          {api("RequestLimitExceeded", smithy.FaultClient), false, Throttled, false, false},
		"another write":              {&types.TransactionConflictException{}, false, Contended, false, true},
		"another region":             {api("ReplicatedWriteConflictException", smithy.FaultClient), false, Contended, false, true},
		"another word for throttled": {api("SlowDown", smithy.FaultUnknown), false, Throttled, false, false},
		"429 under an unknown word":  {status(429), false, Throttled, false, false},
		"502 under an unknown word":  {status(502), false, Unreachable, true, true},
		"408 under an unknown word":  {status(408), false, Unreachable, true, true},
		"400 under an unknown word":  {status(400), false, Invalid, false, false},
		"policy":                     {api("AccessDeniedException", smithy.FaultClient), false, Denied, false, false},
		"credentials":                {api("ExpiredTokenException", smithy.FaultClient), false, Denied, false, false},
		"a request that is refused":  {api("ValidationException", smithy.FaultClient), false, Invalid, false, false},
		"a server's fault":           {&types.InternalServerError{}, false, Unreachable, true, true},
		"the connection broke":       {io.ErrUnexpectedEOF, false, Unreachable, true, true},
		"the attempt's time":         {fmt.Errorf("x: %w", context.DeadlineExceeded), false, Timeout, true, true},
		"a time-out of the network":  {os.ErrDeadlineExceeded, false, Timeout, true, true},
		"the caller left":            {context.Canceled, true, Canceled, true, false},
		"an answer, though he left":  {api("ThrottlingException", smithy.FaultClient), true, Throttled, false, false},
		"an attempt was cancelled":   {context.Canceled, false, Unreachable, true, true},
		"something else":             {errors.New("x"), false, Unreachable, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.canceled {
				cancel()
			}
			fault, unknown := Classify(ctx, tc.err)
			if fault != tc.fault || unknown != tc.unknown || fault.WorthRetrying() != tc.again {
				t.Errorf("%q, unknown %v, again %v", fault, unknown, fault.WorthRetrying())
			}
		})
	}
}
