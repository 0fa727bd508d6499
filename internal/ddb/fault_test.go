package ddb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

func TestEveryErrorHasItsFault(t *testing.T) {
	api := func(code string, fault smithy.ErrorFault) error {
		return fmt.Errorf("operation error DynamoDB: UpdateItem: %w", &smithy.GenericAPIError{Code: code, Fault: fault})
	}
	for name, tc := range map[string]struct {
		err      error
		canceled bool // the caller left
		fault    Fault
		unknown  bool // a write may have been applied
		again    bool
	}{
		"none":                      {nil, false, "", false, false},
		"no such table":             {&types.ResourceNotFoundException{}, false, MissingTable, false, false},
		"table throttled":           {&types.ProvisionedThroughputExceededException{}, false, Throttled, false, false},
		"account throttled":         {api("RequestLimitExceeded", smithy.FaultClient), false, Throttled, false, false},
		"another write":             {&types.TransactionConflictException{}, false, Contended, false, true},
		"another region":            {api("ReplicatedWriteConflictException", smithy.FaultClient), false, Contended, false, true},
		"policy":                    {api("AccessDeniedException", smithy.FaultClient), false, Denied, false, false},
		"credentials":               {api("ExpiredTokenException", smithy.FaultClient), false, Denied, false, false},
		"a request that is refused": {api("ValidationException", smithy.FaultClient), false, Invalid, false, false},
		"a server's fault":          {&types.InternalServerError{}, false, Unreachable, true, true},
		"the connection broke":      {io.ErrUnexpectedEOF, false, Unreachable, true, true},
		"the attempt's time":        {fmt.Errorf("x: %w", context.DeadlineExceeded), false, Timeout, true, true},
		"a time-out of the network": {os.ErrDeadlineExceeded, false, Timeout, true, true},
		"the caller left":           {context.Canceled, true, Canceled, true, false},
		"an answer, though he left": {api("ThrottlingException", smithy.FaultClient), true, Throttled, false, false},
		"an attempt was cancelled":  {context.Canceled, false, Unreachable, true, true},
		"something else":            {errors.New("x"), false, Unreachable, true, true},
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
