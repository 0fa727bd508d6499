// Package tables makes and describes the two DynamoDB tables of vingate.
//
// It promises that a table that exists is left as it is, that what it makes can be used when it returns, and that every
// error names the table and says what to do. What lies in the tables is the business of gate/dynamo and results.
package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Key is the partition key of both tables, a string. There is no sort key.
const Key = "pk"

// TTL is the attribute by which DynamoDB deletes items: a number of seconds since 1970. In the coordination table only
// anonymous tenants ever carry it.
const TTL = "expires"

// Client is the part of *dynamodb.Client that is used.
type Client interface {
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

// Names of the tables.
type Names struct{ Coordination, Results string }

// Error is every error of this package.
type Error struct {
	Table string
	Op    string // what was attempted, "create" or "describe"
	Hint  string // what to do, may be empty
	Err   error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s table %s: %v", e.Op, e.Table, e.Err)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// errOtherKey is a table that somebody made for something else.
var errOtherKey = fmt.Errorf("it exists with another key than %s, a string", Key)

// pace of asking whether a table is ready: quick for a local store, slow enough for AWS, which takes seconds.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Create makes what is missing, on demand billing, and returns when both tables are active. created tells whether this
// call made the coordination table: only then may a gate with a full bucket be put into it. Bound the waiting by ctx.
func Create(ctx context.Context, c Client, n Names) (created bool, err error) {
	// The coordination table last: whoever finds it can count on the other.
	for _, name := range []string{n.Results, n.Coordination} {
		if created, err = create(ctx, c, name); err != nil {
			return false, failure(ctx, "create", name, err)
		}
	}
	return created, nil
}

func create(ctx context.Context, c Client, name string) (created bool, err error) {
	_, err = c.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            aws.String(name),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(Key), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(Key), KeyType: types.KeyTypeHash}},
	})
	var inUse *types.ResourceInUseException
	if err != nil && !errors.As(err, &inUse) {
		return false, err
	}
	created = err == nil
	if err := awaitActive(ctx, c, name); err != nil {
		return false, err
	}
	if !created {
		return false, nil
	}
	_, err = c.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               aws.String(name),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(TTL), Enabled: aws.Bool(true)},
	})
	return true, err
}

// awaitActive returns when the table can be used, or is seen to be somebody else's.
func awaitActive(ctx context.Context, c Client, name string) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		out, err := c.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(name)})
		var absent *types.ResourceNotFoundException
		switch {
		case errors.As(err, &absent): // made a moment ago, and not yet seen everywhere
		case err != nil:
			return err
		case !keyed(out.Table):
			return errOtherKey
		case out.Table.TableStatus == types.TableStatusActive, out.Table.TableStatus == types.TableStatusUpdating:
			return nil
		case out.Table.TableStatus == types.TableStatusCreating:
		default:
			return fmt.Errorf("its status is %s", out.Table.TableStatus)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it did not become active in time: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
}

func keyed(t *types.TableDescription) bool {
	if len(t.KeySchema) != 1 || aws.ToString(t.KeySchema[0].AttributeName) != Key {
		return false
	}
	for _, a := range t.AttributeDefinitions {
		if aws.ToString(a.AttributeName) == Key {
			return a.AttributeType == types.ScalarAttributeTypeS
		}
	}
	return false
}

// Description is what a person wants to know of a table.
type Description struct {
	Name    string
	Exists  bool   // the rest is empty without
	Status  string // DynamoDB's word, ACTIVE when it can be used
	Usable  bool   // the key is the one that is wanted
	Billing string // "on demand" or "provisioned"
	TTL     string // the attribute, "" when it is off
	Items   int64  // about six hours old on AWS
	Bytes   int64  // likewise
}

// Describe looks at both tables, the coordination table first. A missing one is described, not an error.
func Describe(ctx context.Context, c Client, n Names) ([]Description, error) {
	out := make([]Description, 0, 2)
	for _, name := range []string{n.Coordination, n.Results} {
		d, err := describe(ctx, c, name)
		if err != nil {
			return nil, failure(ctx, "describe", name, err)
		}
		out = append(out, d)
	}
	return out, nil
}

func describe(ctx context.Context, c Client, name string) (Description, error) {
	d := Description{Name: name}
	t, err := c.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(name)})
	var absent *types.ResourceNotFoundException
	if errors.As(err, &absent) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d.Exists, d.Status, d.Usable = true, string(t.Table.TableStatus), keyed(t.Table)
	d.Items, d.Bytes = aws.ToInt64(t.Table.ItemCount), aws.ToInt64(t.Table.TableSizeBytes)
	d.Billing = "provisioned"
	if b := t.Table.BillingModeSummary; b != nil && b.BillingMode == types.BillingModePayPerRequest {
		d.Billing = "on demand"
	}
	ttl, err := c.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(name)})
	if err != nil {
		return d, err
	}
	if s := ttl.TimeToLiveDescription; s != nil && (s.TimeToLiveStatus == types.TimeToLiveStatusEnabled || s.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
		d.TTL = aws.ToString(s.AttributeName)
	}
	return d, nil
}

func failure(ctx context.Context, op, name string, err error) error {
	e := &Error{Table: name, Op: op, Err: err}
	var api smithy.APIError
	switch {
	case errors.Is(err, errOtherKey):
		e.Hint = "name another one in COORDINATION_TABLE or RESULTS_TABLE"
	case ctx.Err() != nil:
		e.Hint = "a table that was just made is left without its gate: delete it, and run this again"
	case errors.As(err, &api):
		switch api.ErrorCode() {
		case "AccessDeniedException":
			e.Hint = "the credentials need dynamodb:CreateTable, DescribeTable, UpdateTimeToLive and DescribeTimeToLive on it"
		case "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException", "MissingAuthenticationTokenException":
			e.Hint = "check the AWS credentials of the environment"
		case "LimitExceededException":
			e.Hint = "the account makes or changes too many tables at once: try again later"
		case "ValidationException":
			e.Hint = "check the name in COORDINATION_TABLE or RESULTS_TABLE"
		}
	default:
		e.Hint = "does the store answer? AWS_ENDPOINT_URL_DYNAMODB names a local one, AWS_REGION that of AWS"
	}
	return e
}
