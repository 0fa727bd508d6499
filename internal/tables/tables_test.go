//go:build linux

package tables_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"vingate/internal/devstack"
	"vingate/internal/tables"
)

var names = tables.Names{Coordination: "c-table", Results: "r-table"}

// store is a real one, empty.
func store(t *testing.T) *dynamodb.Client {
	t.Helper()
	s, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Client
}

func TestCreateMakesBothTablesUsableAndIsIdempotent(t *testing.T) {
	c := store(t)
	created, err := tables.Create(t.Context(), c, names)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	found, err := tables.Describe(t.Context(), c, names)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"c-table", "r-table"} {
		want := tables.Description{Name: name, Exists: true, Status: "ACTIVE", Usable: true, Billing: "on demand", TTL: "expires"}
		if found[i] != want {
			t.Errorf("%+v, want %+v", found[i], want)
		}
	}

	// What is in it stays.
	item := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "gate#x"}}
	if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("c-table"), Item: item}); err != nil {
		t.Fatal(err)
	}
	if created, err = tables.Create(t.Context(), c, names); err != nil || created {
		t.Fatalf("again: created %v, %v", created, err)
	}
	got, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("c-table"), Key: item})
	if err != nil || len(got.Item) != 1 {
		t.Errorf("%v %v", got, err)
	}
}

func TestOnlyOneOfManyCreatorsMadeTheTable(t *testing.T) {
	c := store(t)
	var wg sync.WaitGroup
	made := make(chan bool, 8)
	for range cap(made) {
		wg.Go(func() {
			created, err := tables.Create(t.Context(), c, names)
			if err != nil {
				t.Error(err)
			}
			made <- created
		})
	}
	wg.Wait()
	close(made)
	n := 0
	for created := range made {
		if created {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d made it, want 1", n)
	}
}

func TestANewResultsTableAloneIsNotANewCoordinationTable(t *testing.T) {
	c := store(t)
	if _, err := tables.Create(t.Context(), c, names); err != nil {
		t.Fatal(err)
	}
	created, err := tables.Create(t.Context(), c, tables.Names{Coordination: names.Coordination, Results: "another"})
	if err != nil || created {
		t.Errorf("created %v, %v", created, err)
	}
	created, err = tables.Create(t.Context(), c, tables.Names{Coordination: "another-c", Results: names.Results})
	if err != nil || !created {
		t.Errorf("created %v, %v", created, err)
	}
}

func TestATableWithAnotherKeyIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		attrs []types.AttributeDefinition
		keys  []types.KeySchemaElement
	}{
		{"another name", []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: "S"}},
			[]types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: "HASH"}}},
		{"a number", []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "N"}},
			[]types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}}},
		{"a sort key", []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}, {AttributeName: aws.String("sk"), AttributeType: "S"}},
			[]types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}, {AttributeName: aws.String("sk"), KeyType: "RANGE"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := store(t)
			if _, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{TableName: aws.String(names.Coordination),
				BillingMode: types.BillingModePayPerRequest, AttributeDefinitions: tc.attrs, KeySchema: tc.keys}); err != nil {
				t.Fatal(err)
			}
			_, err := tables.Create(t.Context(), c, names)
			var te *tables.Error
			if !errors.As(err, &te) || te.Table != names.Coordination || !strings.Contains(err.Error(), "another key than pk") || te.Hint == "" {
				t.Errorf("%v", err)
			}
			found, err := tables.Describe(t.Context(), c, names)
			if err != nil || !found[0].Exists || found[0].Usable {
				t.Errorf("%+v %v", found, err)
			}
		})
	}
}

func TestMissingTablesAreDescribedAsMissing(t *testing.T) {
	found, err := tables.Describe(t.Context(), store(t), names)
	if err != nil || len(found) != 2 || found[0].Exists || found[1].Exists || found[0].Name != "c-table" {
		t.Errorf("%+v %v", found, err)
	}
}

// fake answers as AWS would in cases a local store does not have.
type fake struct {
	statuses  []types.TableStatus // of DescribeTable, one after the other, the last for good; "" is not found yet
	createErr error
	ttlErr    error
	described int
	ttl       []string
}

func (f *fake) CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	return &dynamodb.CreateTableOutput{}, f.createErr
}

func (f *fake) DescribeTable(_ context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	s := f.statuses[min(f.described, len(f.statuses)-1)]
	f.described++
	if s == "" {
		return nil, &types.ResourceNotFoundException{}
	}
	return &dynamodb.DescribeTableOutput{Table: &types.TableDescription{
		TableName: in.TableName, TableStatus: s,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: "HASH"}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: "S"}},
	}}, nil
}

func (f *fake) UpdateTimeToLive(_ context.Context, in *dynamodb.UpdateTimeToLiveInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error) {
	f.ttl = append(f.ttl, aws.ToString(in.TableName)+":"+aws.ToString(in.TimeToLiveSpecification.AttributeName))
	return nil, f.ttlErr
}

func (f *fake) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return nil, f.ttlErr
}

func TestCreateWaitsUntilTheTableIsActive(t *testing.T) {
	f := &fake{statuses: []types.TableStatus{"", types.TableStatusCreating, types.TableStatusCreating, types.TableStatusActive}}
	created, err := tables.Create(t.Context(), f, names)
	if err != nil || !created || f.described != 5 {
		t.Errorf("created %v, %v after %d looks", created, err, f.described)
	}
	if fmt.Sprint(f.ttl) != "[r-table:expires c-table:expires]" {
		t.Errorf("TTL on %v", f.ttl)
	}
}

func TestAnExistingTableIsLeftAsItIs(t *testing.T) {
	f := &fake{statuses: []types.TableStatus{types.TableStatusActive}, createErr: &types.ResourceInUseException{}}
	created, err := tables.Create(t.Context(), f, names)
	if err != nil || created || len(f.ttl) != 0 {
		t.Errorf("created %v, %v, TTL on %v", created, err, f.ttl)
	}
}

func TestErrorsNameTheTableAndSayWhatToDo(t *testing.T) {
	api := func(code string) error { return &smithy.GenericAPIError{Code: code, Message: "no"} }
	for _, tc := range []struct {
		name string
		f    fake
		want []string
	}{
		{"no permission", fake{createErr: api("AccessDeniedException")}, []string{"create table r-table", "dynamodb:CreateTable"}},
		{"bad credentials", fake{createErr: api("UnrecognizedClientException")}, []string{"r-table", "check the AWS credentials"}},
		{"no store", fake{createErr: errors.New("connection refused")}, []string{"r-table", "connection refused", "AWS_ENDPOINT_URL_DYNAMODB"}},
		{"a bad name", fake{createErr: api("ValidationException")}, []string{"r-table", "RESULTS_TABLE"}},
		{"too many at once", fake{createErr: api("LimitExceededException")}, []string{"r-table", "later"}},
		{"being deleted", fake{createErr: &types.ResourceInUseException{}, statuses: []types.TableStatus{types.TableStatusDeleting}}, []string{"r-table", "its status is DELETING"}},
		{"no right for the TTL", fake{ttlErr: api("AccessDeniedException"), statuses: []types.TableStatus{types.TableStatusActive}}, []string{"r-table", "UpdateTimeToLive"}},
		{"never active", fake{statuses: []types.TableStatus{types.TableStatusCreating}}, []string{"r-table", "did not become active in time"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := tables.Create(ctx, &tc.f, names)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
	_, err := tables.Describe(t.Context(), &fake{statuses: []types.TableStatus{types.TableStatusActive}, ttlErr: api("AccessDeniedException")}, names)
	if err == nil || !strings.Contains(err.Error(), "describe table c-table") {
		t.Errorf("%v", err)
	}
}
