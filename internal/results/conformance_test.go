//go:build unix

package results

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"vingate/internal/devstack"
	"vingate/internal/tables"
)

// realClient is a client of the store that TestMain starts, with the table "results".
var realClient *dynamodb.Client

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	local, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide, Env: []string{}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer local.Close()
	if _, err := tables.Create(ctx, local.Client, tables.Names{Coordination: "coordination", Results: "results"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	realClient = local.Client
	return m.Run()
}

// place puts an item into the table as it is, nil takes it away.
func place(t interface{ Fatal(...any) }, key string, it item) {
	var err error
	if it == nil {
		_, err = realClient.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: aws.String("results"), Key: item{attrKey: text(key)}})
	} else {
		_, err = realClient.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String("results"), Item: it})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func taken(t interface{ Fatal(...any) }, key string) item {
	out, err := realClient.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("results"), Key: item{attrKey: text(key)}, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// On any row, any write, also one planned on another row, is applied by DynamoDB exactly if it holds, and leaves exactly the row that Apply says.
func TestEveryWriteMeansTheSameHereAndInTheTable(t *testing.T) {
	applied, failed := map[string]int{}, map[string]int{}
	conforms := func(t *rapid.T) {
		row := arbitraryRow(t)
		there := row.Fetched != 0 || row.Flight.Leader != "" || rapid.Bool().Draw(t, "there")
		if !there {
			row = Row{}
		}
		seen := row
		if rapid.IntRange(0, 2).Draw(t, "moved on") == 0 {
			seen = arbitraryRow(t)
		}
		w, x := arbitraryWrite(t, seen)
		if _, defers := w.(Defer); defers && !there {
			t.Skip("an answer that is not there does not rest")
		}
		if there {
			place(t, "conformance", encode("conformance", row))
		} else {
			place(t, "conformance", nil)
		}
		in := x.input("results", "conformance")
		_, err := realClient.UpdateItem(context.Background(), in)
		var unmet *types.ConditionalCheckFailedException
		if err != nil && !errors.As(err, &unmet) {
			t.Fatalf("%v\n%s\nIF %s", err, *in.UpdateExpression, *in.ConditionExpression)
		}
		kind := fmt.Sprintf("%T", w)
		if holds := w.Holds(row); holds != (err == nil) {
			t.Fatalf("%+v on %+v holds: %v here, and in the table: %v", w, row, holds, err)
		}
		want := row
		if err == nil {
			want = w.Apply(row)
			applied[kind]++
		} else {
			failed[kind]++
		}
		got, damage := decode(taken(t, "conformance"))
		if damage != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("the table has\n%+v (%v), here it is\n%+v\nafter %+v", got, damage, want, w)
		}
	}
	for range 5 {
		rapid.Check(t, conforms)
	}
	t.Logf("applied %v, failed %v", applied, failed)
	for _, kind := range []string{"results.Elect", "results.Land", "results.Quit", "results.Defer"} {
		if applied[kind] == 0 || failed[kind] == 0 {
			t.Errorf("%s: applied %d, failed %d: this shows little", kind, applied[kind], failed[kind])
		}
	}
}

func TestProperty_ARowComesBackFromItsItem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := arbitraryRow(t)
		got, err := decode(encode("k", r))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v, %v; want %+v", got, err, r)
		}
	})
}

func FuzzWords(f *testing.F) {
	f.Add(Verdict{"leader", "budget", 1}.String())
	f.Add(Slow{2, 1780315200123}.String())
	f.Add(Rest{1780315200123, "UPSTREAM_TIMEOUT"}.String())
	f.Add("1  2")
	f.Add("-0 1")
	f.Fuzz(func(t *testing.T, s string) {
		if v, ok := parseVerdict(s); ok && v.String() != s {
			t.Errorf("%q is the verdict %q", s, v)
		}
		if v, ok := parseSlow(s); ok && (v.String() != s || v.Calls < 1) {
			t.Errorf("%q is the count %q", s, v)
		}
		if v, ok := parseRest(s); ok && v.String() != s {
			t.Errorf("%q is the rest %q", s, v)
		}
	})
}

// An attribute of any type under any of the names is read or reported, and nothing is made of it.
func TestAnyAttributeMayBeDamaged(t *testing.T) {
	whole := encode("k", Row{Format: format, Packed: []byte("x"), Fetched: at(0), Expires: seconds(at(minute)), Flight: Flight{"l", at(1)},
		Verdict: Verdict{"l", "budget", at(1)}, Slow: Slow{1, at(0)}, Rest: Rest{at(1), "why"}})
	for name := range whole {
		for _, v := range []types.AttributeValue{text("x"), text(""), number(int64(-1)), &types.AttributeValueMemberB{}, &types.AttributeValueMemberNULL{Value: true}, &types.AttributeValueMemberSS{Value: []string{"x"}}} {
			if reflect.TypeOf(v) == reflect.TypeOf(whole[name]) && name != attrVerdict && name != attrSlow && name != attrRest || name == attrKey {
				continue
			}
			it := item{}
			for k, other := range whole {
				it[k] = other
			}
			it[name] = v
			if r, err := decode(it); err == nil {
				t.Errorf("%s is %#v: %+v", name, v, r)
			}
		}
	}
}
