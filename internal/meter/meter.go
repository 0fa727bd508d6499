// Package meter stands between a program and its DynamoDB client and counts what DynamoDB would bill for, call by call. It can
// also delay every request and every answer, as a network does.
//
// It promises that a failed condition is counted like any write (DynamoDB bills it and reports no consumed capacity: its units follow
// from the item that comes back, which the meter asks for also where the program does not), and that a write whose answer did not come is
// counted as well. The delays of a caller are its own: they do not depend on how its calls and those of others fall together.
package meter

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// API is the part of *dynamodb.Client that is metered.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

type item = map[string]types.AttributeValue

// Bill is what some calls cost.
type Bill struct {
	Writes     int     // requests, failed conditions included
	Failed     int     // of these: the condition failed
	Lost       int     // of these: no answer, one unit assumed
	WriteUnits float64 // one for each KB begun
	Reads      int     // requests
	ReadUnits  float64 // eventually consistent ones: one for each 4 KB begun, two when consistent
}

// Add adds another bill.
func (b *Bill) Add(o Bill) {
	b.Writes += o.Writes
	b.Failed += o.Failed
	b.Lost += o.Lost
	b.WriteUnits += o.WriteUnits
	b.Reads += o.Reads
	b.ReadUnits += o.ReadUnits
}

// Account collects the calls made under one context: those of one caller, who makes one at a time.
type Account struct {
	Number uint64 // tells the caller's delays from those of others

	mu      sync.Mutex
	bills   map[string]Bill
	applied []time.Time
	dice    *rand.Rand
}

// Bill is what the account has to pay so far: for items of these kinds, or without a kind for all. The kind of an item is its key up to the #.
func (a *Account) Bill(kinds ...string) (b Bill) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for kind, one := range a.bills {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			b.Add(one)
		}
	}
	return b
}

// Applied lists when its writes were seen to be applied.
func (a *Account) Applied() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Time(nil), a.applied...)
}

func (a *Account) charge(kind string, b Bill, applied bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bills == nil {
		a.bills = map[string]Bill{}
	}
	b.Add(a.bills[kind])
	a.bills[kind] = b
	if applied {
		a.applied = append(a.applied, time.Now())
	}
}

// draw is the account's next delay, below a bound.
func (a *Account) draw(seed uint64, below time.Duration) time.Duration {
	if below <= 0 {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dice == nil {
		a.dice = rand.New(rand.NewPCG(seed, a.Number))
	}
	return time.Duration(a.dice.Int64N(int64(below)))
}

type accountKey struct{}

// Charge makes every call under the context go to the account, besides the meter's own.
func Charge(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// Wire is how long each request and each answer takes: anything between the two. The same seed gives an account the same delays, call for call.
type Wire struct {
	Least, Most time.Duration
	Seed        uint64
}

// Meter is an API that counts.
type Meter struct {
	Next  API
	Wire  Wire
	Total Account
}

func (m *Meter) account(ctx context.Context) *Account {
	if a, ok := ctx.Value(accountKey{}).(*Account); ok {
		return a
	}
	return &m.Total
}

func (m *Meter) charge(ctx context.Context, key item, b Bill, applied bool) {
	kind := ""
	if pk, ok := key["pk"].(*types.AttributeValueMemberS); ok {
		kind, _, _ = strings.Cut(pk.Value, "#")
	}
	m.Total.charge(kind, b, applied)
	if a := m.account(ctx); a != &m.Total {
		a.charge(kind, b, applied)
	}
}

// travel is the way to the store or back. A request that is given up on the way there never arrives.
func (m *Meter) travel(ctx context.Context) error {
	if m.Wire.Most <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(m.Wire.Least + m.account(ctx).draw(m.Wire.Seed, m.Wire.Most-m.Wire.Least)):
		return nil
	}
}

// GetItem is a read.
func (m *Meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if err := m.travel(ctx); err != nil {
		return nil, err
	}
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Next.GetItem(ctx, &asked, o...)
	b := Bill{Reads: 1, ReadUnits: 1}
	if err == nil {
		b.ReadUnits = 2 * units(out.ConsumedCapacity) // DynamoDB's unit is a consistent read
	}
	m.charge(ctx, in.Key, b, false)
	if back := m.travel(ctx); back != nil {
		return nil, back
	}
	return out, err
}

// UpdateItem is a write.
func (m *Meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if err := m.travel(ctx); err != nil {
		return nil, err
	}
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	asked.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	out, err := m.Next.UpdateItem(ctx, &asked, o...)
	var used *types.ConsumedCapacity
	if err == nil {
		used = out.ConsumedCapacity
	}
	m.wrote(ctx, in.Key, used, err)
	err = unasked(in.ReturnValuesOnConditionCheckFailure, err)
	if back := m.travel(ctx); back != nil {
		return nil, back
	}
	return out, err
}

// PutItem is a write.
func (m *Meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if err := m.travel(ctx); err != nil {
		return nil, err
	}
	asked := *in
	asked.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	asked.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	out, err := m.Next.PutItem(ctx, &asked, o...)
	var used *types.ConsumedCapacity
	if err == nil {
		used = out.ConsumedCapacity
	}
	m.wrote(ctx, in.Item, used, err)
	err = unasked(in.ReturnValuesOnConditionCheckFailure, err)
	if back := m.travel(ctx); back != nil {
		return nil, back
	}
	return out, err
}

func (m *Meter) wrote(ctx context.Context, key item, used *types.ConsumedCapacity, err error) {
	var failed *types.ConditionalCheckFailedException
	switch {
	case err == nil:
		m.charge(ctx, key, Bill{Writes: 1, WriteUnits: units(used)}, true)
	case errors.As(err, &failed):
		m.charge(ctx, key, Bill{Writes: 1, Failed: 1, WriteUnits: WriteUnits(failed.Item)}, false)
	default:
		m.charge(ctx, key, Bill{Writes: 1, Lost: 1, WriteUnits: 1}, false)
	}
}

// unasked hides the item that a failed condition met from a program that did not ask for it.
func unasked(asked types.ReturnValuesOnConditionCheckFailure, err error) error {
	var failed *types.ConditionalCheckFailedException
	if asked == types.ReturnValuesOnConditionCheckFailureAllOld || !errors.As(err, &failed) {
		return err
	}
	plain := *failed
	plain.Item = nil
	return &plain
}

func units(c *types.ConsumedCapacity) float64 {
	if c == nil || c.CapacityUnits == nil {
		return 1 // the store does not say
	}
	return *c.CapacityUnits
}

// WriteUnits is what a write costs that meets this item and leaves it.
func WriteUnits(it item) float64 {
	return float64(max(1, (Size(it)+1023)/1024))
}

// Size is DynamoDB's documented size of an item in bytes: names and texts by their UTF-8 length, whole numbers a byte for two significant
// digits, one more, and one for a minus, 3 bytes for each list or map and one more for each of its members.
func Size(it item) int {
	n := 0
	for name, v := range it {
		n += len(name) + sizeOf(v)
	}
	return n
}

func sizeOf(v types.AttributeValue) int {
	n := 0
	switch v := v.(type) {
	case *types.AttributeValueMemberN:
		digits := strings.Trim(strings.TrimPrefix(v.Value, "-"), "0")
		if strings.HasPrefix(v.Value, "-") {
			n = 1
		}
		return n + (len(digits)+1)/2 + 1
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberBOOL, *types.AttributeValueMemberNULL:
		return 1
	case *types.AttributeValueMemberSS:
		for _, s := range v.Value {
			n += len(s)
		}
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + Size(v.Value)
	case *types.AttributeValueMemberL:
		n = 3
		for _, member := range v.Value {
			n += 1 + sizeOf(member)
		}
	}
	return n
}
