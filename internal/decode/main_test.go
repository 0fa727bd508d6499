//go:build unix

package decode_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"vingate/internal/devstack"
	"vingate/internal/tables"
)

// realClient is a client of the store that TestMain starts.
var realClient *dynamodb.Client

var names = tables.Names{Coordination: "coordination", Results: "results"}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	local, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide, Env: []string{}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer local.Close()
	if _, err := tables.Create(ctx, local.Client, names); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	realClient = local.Client
	return m.Run()
}
