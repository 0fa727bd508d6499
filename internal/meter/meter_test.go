package meter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

func TestBillsAreKeptApartByTheKindOfItem(t *testing.T) {
	m := &meter.Meter{Next: store(t)}
	account := &meter.Account{}
	ctx := meter.Charge(t.Context(), account)
	for _, pk := range []string{"gate#one", "gate#two", "tenant#one", "other"} {
		if _, err := m.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: item{"pk": text(pk)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(table), Key: item{"pk": text(pk)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		kinds []string
		calls int
	}{{nil, 4}, {[]string{"gate"}, 2}, {[]string{"gate", "tenant"}, 3}, {[]string{"other"}, 1}, {[]string{"promise"}, 0}} {
		for _, a := range []*meter.Account{account, &m.Total} {
			if got, want := a.Bill(c.kinds...), (meter.Bill{Writes: c.calls, WriteUnits: float64(c.calls), Reads: c.calls, ReadUnits: float64(c.calls)}); got != want {
				t.Errorf("%v: %+v, %+v expected", c.kinds, got, want)
			}
		}
	}
}

// A failed condition is billed by the item it met, also when the program did not ask to see that; and then it does not.
func TestAFailedConditionIsBilledByTheItemItMet(t *testing.T) {
	m := &meter.Meter{Next: store(t)}
	big := item{"pk": text("failed"), "p": text(strings.Repeat("x", 2500))}
	if _, err := m.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: big}); err != nil {
		t.Fatal(err)
	}
	for _, asks := range []types.ReturnValuesOnConditionCheckFailure{"", types.ReturnValuesOnConditionCheckFailureAllOld} {
		account := &meter.Account{}
		ctx := meter.Charge(t.Context(), account)
		for what, call := range map[string]func() error{
			"put": func() error {
				_, err := m.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: item{"pk": text("failed")},
					ConditionExpression: aws.String("attribute_not_exists(pk)"), ReturnValuesOnConditionCheckFailure: asks})
				return err
			},
			"update": func() error {
				_, err := m.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: aws.String(table), Key: item{"pk": text("failed")}, UpdateExpression: aws.String("REMOVE p"),
					ConditionExpression: aws.String("attribute_not_exists(pk)"), ReturnValuesOnConditionCheckFailure: asks})
				return err
			},
		} {
			var failed *types.ConditionalCheckFailedException
			if err := call(); !errors.As(err, &failed) || (failed.Item != nil) != (asks != "") {
				t.Errorf("%s, asking %q: %v", what, asks, err)
			}
		}
		if got, want := account.Bill(), (meter.Bill{Writes: 2, Failed: 2, WriteUnits: 6}); got != want {
			t.Errorf("asking %q: %+v, %+v expected", asks, got, want)
		}
	}
}

// What shrinks an item is billed by what it was.
func TestAWriteIsBilledByTheLargerOfBeforeAndAfter(t *testing.T) {
	m := &meter.Meter{Next: store(t)}
	for _, c := range []struct{ before, after, units int }{{1500, 10, 2}, {10, 1500, 2}, {10, 20, 1}, {2500, 1500, 3}} {
		if _, err := m.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: item{"pk": text("shrinks"), "p": text(strings.Repeat("x", c.before))}}); err != nil {
			t.Fatal(err)
		}
		account := &meter.Account{}
		if _, err := m.UpdateItem(meter.Charge(t.Context(), account), &dynamodb.UpdateItemInput{TableName: aws.String(table), Key: item{"pk": text("shrinks")},
			UpdateExpression: aws.String("SET p = :p"), ExpressionAttributeValues: item{":p": text(strings.Repeat("y", c.after))}}); err != nil {
			t.Fatal(err)
		}
		if got := account.Bill().WriteUnits; got != float64(c.units) {
			t.Errorf("from %d to %d bytes: %v units, %d expected", c.before, c.after, got, c.units)
		}
	}
}

// deaf applies what it is asked and answers nothing but an error.
type deaf struct {
	meter.API
	calls atomic.Int64
}

func (d *deaf) UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	d.calls.Add(1)
	return nil, fmt.Errorf("no answer")
}

func TestALostAnswerIsBilledAndARequestThatNeverLeftIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &deaf{}
		m := &meter.Meter{Next: next, Wire: meter.Wire{Least: time.Second, Most: time.Second}}
		in := &dynamodb.UpdateItemInput{}
		if _, err := m.UpdateItem(t.Context(), in); err == nil {
			t.Error("no error")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := m.UpdateItem(short, in); err == nil {
			t.Error("no error of the request that never left")
		}
		if b := m.Total.Bill(); next.calls.Load() != 1 || b.Writes != 1 || b.Lost != 1 || b.WriteUnits != 1 {
			t.Errorf("%d calls, %+v", next.calls.Load(), b)
		}
	})
}

// A call from virtual time reaches the store and takes no time; what the test adds is all that passes.
func TestCallsFromVirtualTimeTakeNone(t *testing.T) {
	desk := meter.NewOutside(store(t))
	defer desk.Close()
	synctest.Test(t, func(t *testing.T) {
		m := &meter.Meter{Next: desk, Wire: meter.Wire{Least: 3 * time.Millisecond, Most: 3 * time.Millisecond}}
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

// The delays of a caller are its own: the same however many others call in between, and other ones than theirs.
func TestDelaysAreTheCallersOwn(t *testing.T) {
	delays := func(crowd int) (of [2][]time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			m := &meter.Meter{Next: &deaf{}, Wire: meter.Wire{Least: time.Millisecond, Most: time.Second, Seed: 7}}
			call := func(number uint64, times int) (took []time.Duration) {
				ctx := meter.Charge(t.Context(), &meter.Account{Number: number})
				for range times {
					start := time.Now()
					_, _ = m.UpdateItem(ctx, &dynamodb.UpdateItemInput{})
					took = append(took, time.Since(start))
				}
				return took
			}
			var wg sync.WaitGroup
			for i := range crowd {
				wg.Go(func() { call(uint64(10+i), 5) })
			}
			for i := range of {
				wg.Go(func() { of[i] = call(uint64(i), 10) })
			}
			wg.Wait()
		})
		return of
	}
	alone, crowded := delays(0), delays(50)
	if !reflect.DeepEqual(alone, crowded) {
		t.Errorf("alone %v, among others %v", alone, crowded)
	}
	if slices.Equal(alone[0], alone[1]) {
		t.Error("two callers have the same delays")
	}
	for _, d := range alone[0] {
		if d < 2*time.Millisecond || d >= 2*time.Second {
			t.Errorf("there and back took %v", d)
		}
	}
}
