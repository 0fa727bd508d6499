// Command keeper is the Lambda function that looks after the shared budget once a minute.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/gate/dynamo"
	"vingate/internal/keeper"
	"vingate/internal/observe"
	"vingate/internal/tables"
)

// version is set by the build: -X main.version=...
var version = "dev"

func main() {
	cfg, err := config.LoadGate(os.Getenv)
	exitOn(err)
	level := os.Getenv("AWS_LAMBDA_LOG_LEVEL")
	log := observe.NewLogger(os.Stdout, level, version)
	store := ddb.Housekeeping()
	store.APIOptions = observe.NewTracer(os.Getenv, log).Instrument()
	client, err := ddb.New(os.Getenv, store)
	exitOn(err)
	lambda.Start(keeper.New(keeper.Config{
		Gate: dynamo.New(dynamo.Config{Client: client, Table: cfg.CoordinationTable, Name: "nhtsa", Now: time.Now, NewID: func() string { return rand.Text()[:6] }}),
		Unused: func(ctx context.Context) (bool, string, error) {
			return tables.Unused(ctx, client, cfg.CoordinationTable, time.Now())
		},
		Knobs: cfg.Knobs, Now: time.Now, Log: log, Metrics: observe.NewMetrics(os.Stdout, level, version, cfg.MetricsNamespace),
	}))
}

// exitOn ends the initialisation with everything that is wrong.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
