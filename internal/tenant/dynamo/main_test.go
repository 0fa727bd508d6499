package dynamo

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"vingate/internal/devstack"
	"vingate/internal/tables"
)

const table = "coordination"

// realClient is a client of the real store that the tests run against.
var realClient *dynamodb.Client

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	store, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer store.Close()
	if _, err := tables.Create(ctx, store.Client, tables.Names{Coordination: table, Results: "results"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	realClient = store.Client
	return m.Run()
}
