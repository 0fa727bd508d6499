package meter_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/devstack"
	"vingate/internal/meter"
	"vingate/internal/tables"
)

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }

const table = "coordination"

func store(t *testing.T) *dynamodb.Client {
	t.Helper()
	s, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := tables.Create(t.Context(), s.Client, tables.Names{Coordination: table, Results: "results"}); err != nil {
		t.Fatal(err)
	}
	return s.Client
}

// The size is what the store bills by: of every type, the second unit begins with the byte after the first KB.
func TestSizeIsWhatTheStoreBillsBy(t *testing.T) {
	client := store(t)
	for name, v := range map[string]types.AttributeValue{
		"text": text("abc"), "zero": number("0"), "one digit": number("7"), "even digits": number("123456"), "odd digits": number("12345"),
		"zeros at the end": number("1200"), "negative": number("-12345"), "set": &types.AttributeValueMemberSS{Value: []string{"abc", "de"}},
		"map":   &types.AttributeValueMemberM{Value: item{"a": number("1"), "bc": text("x")}},
		"list":  &types.AttributeValueMemberL{Value: []types.AttributeValue{number("1"), text("x")}},
		"bytes": &types.AttributeValueMemberB{Value: []byte{1, 2, 3}}, "bool": &types.AttributeValueMemberBOOL{Value: true},
	} {
		for want, pad := range map[float64]int{1: 1024, 2: 1025} {
			it := item{"pk": text("size"), "v": v, "p": text("")}
			it["p"] = text(strings.Repeat("x", pad-meter.Size(it)))
			if _, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: aws.String(table), Key: item{"pk": text("size")}}); err != nil {
				t.Fatal(err)
			}
			out, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: it, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
			if err != nil {
				t.Fatal(err)
			}
			if got := *out.ConsumedCapacity.CapacityUnits; got != want || meter.WriteUnits(it) != want {
				t.Errorf("%s: %d bytes by our count are billed %v units, and we say %v", name, pad, got, meter.WriteUnits(it))
			}
		}
	}
}

func TestEveryCallIsBilled(t *testing.T) {
	m := &meter.Meter{Next: store(t)}
	long := strings.Repeat("x", 2000)
	key := item{"pk": text("bill")}
	account := &meter.Account{}
	ctx := meter.Charge(t.Context(), account)
	must := func(what string, err error, fails bool) {
		t.Helper()
		if (err != nil) != fails {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := m.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: item{"pk": text("bill"), "p": text(long)}})
	must("a put", err, false)
	_, err = m.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: aws.String(table), Key: key, UpdateExpression: aws.String("SET a = :a"),
		ConditionExpression: aws.String("attribute_exists(b)"), ExpressionAttributeValues: item{":a": number("1")},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld})
	must("an update whose condition fails", err, true)
	_, err = m.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: aws.String(table), Key: key, UpdateExpression: aws.String("SET a = :a"),
		ExpressionAttributeValues: item{":a": number("1")}})
	must("an update of nobody's account", err, false)
	for _, consistent := range []bool{false, true} {
		_, err = m.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(table), Key: key, ConsistentRead: aws.Bool(consistent)})
		must("a read", err, false)
	}
	if got, want := account.Bill(), (meter.Bill{Writes: 2, Failed: 1, WriteUnits: 4, Reads: 2, ReadUnits: 3}); got != want {
		t.Errorf("the account: %+v, %+v expected", got, want)
	}
	if got, want := m.Total.Bill(), (meter.Bill{Writes: 3, Failed: 1, WriteUnits: 6, Reads: 2, ReadUnits: 3}); got != want {
		t.Errorf("all: %+v, %+v expected", got, want)
	}
	if n := len(account.Applied()); n != 1 {
		t.Errorf("%d writes applied", n)
	}
}

// deaf applies what it is asked and answers nothing but an error.
type deaf struct {
	meter.API
	calls int
}

func (d *deaf) UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	d.calls++
	return nil, fmt.Errorf("no answer")
}

func TestALostAnswerIsBilledAndARequestThatNeverLeftIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &deaf{}
		m := &meter.Meter{Next: next, Delay: func() time.Duration { return time.Second }}
		in := &dynamodb.UpdateItemInput{}
		if _, err := m.UpdateItem(t.Context(), in); err == nil {
			t.Error("no error")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := m.UpdateItem(short, in); err == nil {
			t.Error("no error of the request that never left")
		}
		if b := m.Total.Bill(); next.calls != 1 || b.Writes != 1 || b.Lost != 1 || b.WriteUnits != 1 {
			t.Errorf("%d calls, %+v", next.calls, b)
		}
	})
}

// A call from virtual time reaches the store and takes no time; what the test adds is all that passes.
func TestCallsFromVirtualTimeTakeNone(t *testing.T) {
	desk := meter.NewOutside(store(t))
	defer desk.Close()
	synctest.Test(t, func(t *testing.T) {
		m := &meter.Meter{Next: desk, Delay: func() time.Duration { return 3 * time.Millisecond }}
		start := time.Now()
		for i := range 20 {
			if _, err := m.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: item{"pk": text(fmt.Sprint("virtual", i))}}); err != nil {
				t.Fatal(err)
			}
		}
		out, err := m.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: item{"pk": text("virtual19")}, ConsistentRead: aws.Bool(true)})
		if err != nil || out.Item == nil {
			t.Errorf("not written: %v", err)
		}
		if took := time.Since(start); took != 21*6*time.Millisecond {
			t.Errorf("21 calls took %v", took)
		}
	})
}
