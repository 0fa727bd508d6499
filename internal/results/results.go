// Package results keeps NHTSA's answers. It promises that what it gives back is NHTSA's own answer to exactly that VIN, model
// year and kind of call, byte for byte, not older than it may be: an item past its end counts as absent although the table
// still has it, and an item that cannot be read, or that answers another question, counts as absent and is reported.
// Only answers are stored, never errors.
//
// Trouble with the table is a *StoreError or a *CorruptError. A caller goes on without stored answers then.
package results

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"vingate/internal/vpic"
)

// API is what is used of a DynamoDB client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Config of a store.
type Config struct {
	Client API
	Table  string
	Lives  Lives
	Now    func() time.Time // wall clock; time.Now when nil
}

// Store is the results table. It is safe for use by many goroutines.
type Store struct {
	client API
	table  string
	lives  Lives
	now    func() time.Time
}

// operation bounds one read or write with all its attempts: a slow table must not hold up a decode for long.
const operation = 500 * time.Millisecond

// New makes a store over a table.
func New(cfg Config) *Store {
	s := &Store{client: cfg.Client, table: cfg.Table, lives: cfg.Lives, now: cfg.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Stored is an answer with its life. Took and Quota of the answer are zero when it comes from the table.
type Stored struct {
	vpic.Answer
	FreshFor time.Duration // from FetchedAt, at most Life
	Life     time.Duration // from FetchedAt
}

// Age of the answer at a time, never negative: clocks differ.
func (s Stored) Age(now time.Time) time.Duration { return max(0, now.Sub(s.FetchedAt)) }

// Names of the item's attributes. The table's time to live is set on attrExpires.
const (
	attrKey     = "pk"
	attrFormat  = "v"
	attrBody    = "b"
	attrFetched = "f"       // ms since 1970
	attrExpires = "expires" // seconds since 1970
)

// Key is the item's key: vin#<VIN>#<model year or ->#<v, or x for the Extended call>.
func Key(q vpic.Query) string {
	year, kind := "-", "v"
	if q.ModelYear != 0 {
		year = strconv.Itoa(q.ModelYear)
	}
	if q.Extended {
		kind = "x"
	}
	return "vin#" + q.VIN + "#" + year + "#" + kind
}

// Live gives a live answer the life it has when it is stored.
func (s *Store) Live(a vpic.Answer) Stored {
	life := s.lives.of(a.Outcome(), a.Codes())
	return Stored{Answer: a, Life: life, FreshFor: min(life, s.lives.Soft)}
}

// Get looks an answer up. The read is strongly consistent: a read that misses a fresh item costs an upstream call.
func (s *Store) Get(ctx context.Context, q vpic.Query) (Stored, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, operation)
	defer cancel()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      aws.String(s.table),
		Key:            map[string]types.AttributeValue{attrKey: &types.AttributeValueMemberS{Value: Key(q)}},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Stored{}, false, storeError("read", err)
	}
	if len(out.Item) == 0 {
		return Stored{}, false, nil
	}
	return s.read(out.Item, q)
}

// Put stores a live answer in place of whatever is there.
func (s *Store) Put(ctx context.Context, a vpic.Answer) error {
	packed, err := pack(a.Body())
	if err != nil {
		return &CorruptError{Reason: "the body cannot be compressed", Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, operation)
	defer cancel()
	// Rounded up: a life of a fraction of a second is not over before it begins.
	expires := a.FetchedAt.Add(s.lives.of(a.Outcome(), a.Codes()) + time.Second - 1).Unix()
	_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(s.table), Item: map[string]types.AttributeValue{
		attrKey:     &types.AttributeValueMemberS{Value: Key(a.Query())},
		attrFormat:  number(format),
		attrBody:    &types.AttributeValueMemberB{Value: packed},
		attrFetched: number(a.FetchedAt.UnixMilli()),
		attrExpires: number(expires),
	}})
	if err != nil {
		return storeError("write", err)
	}
	return nil
}

// read turns an item into an answer, or says why it is none.
func (s *Store) read(item map[string]types.AttributeValue, q vpic.Query) (Stored, bool, error) {
	corrupt := func(reason string, err error) (Stored, bool, error) {
		return Stored{}, false, &CorruptError{Reason: reason, Err: err}
	}
	expires, ok := integer(item[attrExpires])
	if !ok {
		return corrupt("no end", nil)
	}
	now := s.now()
	if now.Unix() >= expires {
		return Stored{}, false, nil
	}
	if v, ok := integer(item[attrFormat]); !ok || v != format {
		return corrupt("another format", nil)
	}
	ms, ok := integer(item[attrFetched])
	fetched := time.UnixMilli(ms).UTC()
	if !ok || fetched.After(now.Add(time.Minute)) || expires < fetched.Unix() {
		return corrupt("an impossible time", nil)
	}
	packed, ok := item[attrBody].(*types.AttributeValueMemberB)
	if !ok {
		return corrupt("no body", nil)
	}
	body, err := unpack(packed.Value)
	if err != nil {
		return corrupt("an unreadable body", err)
	}
	answer, err := vpic.Read(body, q)
	if err != nil {
		return corrupt("not an answer to this question", err)
	}
	answer.FetchedAt = fetched
	stored := s.Live(answer)
	// The configured life may have become shorter since the item was written.
	if stored.Age(now) >= stored.Life {
		return Stored{}, false, nil
	}
	// Nor does one become longer that was shorter then: the table may have deleted the item.
	stored.Life = min(stored.Life, time.Unix(expires, 0).Sub(fetched))
	stored.FreshFor = min(stored.FreshFor, stored.Life)
	return stored, true, nil
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func integer(v types.AttributeValue) (int64, bool) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	return i, err == nil
}

// CorruptError: an item is there but cannot be used. It counts as absent. It shows nothing of the item.
type CorruptError struct {
	Reason string
	Err    error
}

func (e *CorruptError) Error() string {
	s := "a stored answer cannot be used: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Trouble is what is wrong with the table.
type Trouble string

const (
	Throttled   Trouble = "throttled"
	Denied      Trouble = "denied"      // the function's rights do not cover it
	NoTable     Trouble = "no-table"    // not created, or another name
	Unreachable Trouble = "unreachable" // everything else: connection, time-out, a fault of the service
)

// StoreError: the table could not be read or written.
type StoreError struct {
	Op      string // read or write
	Trouble Trouble
	Err     error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("results table: %s: %s: %v", e.Op, e.Trouble, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

func storeError(op string, err error) error {
	trouble := Unreachable
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException":
			trouble = Throttled
		case "AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException",
			"MissingAuthenticationTokenException", "IncompleteSignatureException":
			trouble = Denied
		case "ResourceNotFoundException":
			trouble = NoTable
		}
	}
	return &StoreError{Op: op, Trouble: trouble, Err: err}
}
