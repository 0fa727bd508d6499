package ddb

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

func TestConsumptionTellsWhatEveryCallUsed(t *testing.T) {
	var answer, body string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(answer, "!") {
			w.WriteHeader(400)
		}
		_, _ = io.WriteString(w, strings.TrimPrefix(answer, "!"))
	})
	s.Config.Handler = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			body = string(b)
			next.ServeHTTP(w, r)
		})
	}(s.Config.Handler)
	var writes, reads float64
	o := Housekeeping()
	o.Attempts = 1
	o.APIOptions = []func(*middleware.Stack) error{Consumption(func(_ context.Context, w, r float64) { writes += w; reads += r })}
	c, err := New(os.Getenv, o)
	if err != nil {
		t.Fatal(err)
	}
	table, key := aws.String("t"), map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "x"}}
	get := &dynamodb.GetItemInput{TableName: table, Key: key}
	call := map[string]func() error{
		"get": func() error { _, err := c.GetItem(t.Context(), get); return err },
		"put": func() error {
			_, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: key})
			return err
		},
		"update": func() error {
			_, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: table, Key: key, UpdateExpression: aws.String("SET a = b")})
			return err
		},
		"describe": func() error {
			_, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: table})
			return err
		},
	}
	used := func(units string) string {
		return `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":` + units + `}}`
	}
	refused := `!{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"m","Item":{"pk":{"S":"` + strings.Repeat("x", 1100) + `"}}}`
	for _, tc := range []struct {
		what, op, answer string
		writes, reads    float64
		fails            bool
	}{
		{"an eventually consistent read", "get", used("0.5"), 0, 0.5, false},
		{"a write", "put", used("2"), 2, 0, false},
		{"an update", "update", used("1"), 1, 0, false},
		{"a failed condition, on an item of two units", "update", refused, 2, 0, true},
		{"a store that does not say", "get", `{}`, 0, 0, false},
		{"an error", "update", `!{"__type":"x#ValidationException","message":"m"}`, 0, 0, true},
		{"a call of another kind", "describe", `{"Table":{}}`, 0, 0, false},
	} {
		writes, reads, answer = 0, 0, tc.answer
		if err := call[tc.op](); (err != nil) != tc.fails {
			t.Fatalf("%s: %v", tc.what, err)
		}
		if writes != tc.writes || reads != tc.reads {
			t.Errorf("%s: %v writes and %v reads, want %v and %v", tc.what, writes, reads, tc.writes, tc.reads)
		}
		if asks := strings.Contains(body, `"ReturnConsumedCapacity":"TOTAL"`); asks != (tc.op != "describe") {
			t.Errorf("%s was asked by %s", tc.what, body)
		}
	}
	if get.ReturnConsumedCapacity != "" {
		t.Error("the caller's own input was changed")
	}
}
