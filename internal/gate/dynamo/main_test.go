package dynamo_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"vingate/internal/devstack"
	"vingate/internal/gate/dynamo"
	"vingate/internal/tables"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	store, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer store.Close()
	if _, err := tables.Create(ctx, store.Client, tables.Names{Coordination: "coordination", Results: "results"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dynamo.UseStore(store.Client)
	return m.Run()
}
