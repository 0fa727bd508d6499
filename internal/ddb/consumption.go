package ddb

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"vingate/internal/meter"
)

// Consumption is an API option that tells what each call used, in DynamoDB's units of writing and reading. DynamoDB is asked to say it with
// the answer, which costs nothing. A failed condition does not say it: there it is reckoned from the item that came back. A call without
// an answer counts as nothing.
func Consumption(tell func(ctx context.Context, writes, reads float64)) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("vingateConsumption", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			switch p := in.Parameters.(type) {
			case *dynamodb.GetItemInput:
				q := *p
				q.ReturnConsumedCapacity, in.Parameters = types.ReturnConsumedCapacityTotal, &q
			case *dynamodb.UpdateItemInput:
				q := *p
				q.ReturnConsumedCapacity, in.Parameters = types.ReturnConsumedCapacityTotal, &q
			case *dynamodb.PutItemInput:
				q := *p
				q.ReturnConsumedCapacity, in.Parameters = types.ReturnConsumedCapacityTotal, &q
			}
			out, metadata, err := next.HandleInitialize(ctx, in)
			var failed *types.ConditionalCheckFailedException
			if errors.As(err, &failed) {
				tell(ctx, meter.WriteUnits(failed.Item), 0)
			}
			if err != nil {
				return out, metadata, err
			}
			switch r := out.Result.(type) {
			case *dynamodb.GetItemOutput:
				tell(ctx, 0, units(r.ConsumedCapacity))
			case *dynamodb.UpdateItemOutput:
				tell(ctx, units(r.ConsumedCapacity), 0)
			case *dynamodb.PutItemOutput:
				tell(ctx, units(r.ConsumedCapacity), 0)
			}
			return out, metadata, err
		}), middleware.After)
	}
}

func units(c *types.ConsumedCapacity) float64 {
	if c == nil {
		return 0
	}
	return aws.ToFloat64(c.CapacityUnits)
}
