// Command decode is the Lambda function behind the HTTP API, and of the scheduled warm-up.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/decode"
	"vingate/internal/edge"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/observe"
	"vingate/internal/results"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
	"vingate/internal/vpic"
)

// version is set by the build: -X main.version=...
var version = "dev"

func main() {
	ctx, steps, now := context.Background(), observe.NewSteps(), wallClock()
	cfg, err := config.Load(os.Getenv)
	exitOn(err)
	steps.Done("configuration")
	level := os.Getenv("AWS_LAMBDA_LOG_LEVEL")
	log, metrics := observe.NewLogger(os.Stdout, level, version), observe.NewMetrics(os.Stdout, level, version, cfg.MetricsNamespace)
	tracer := observe.NewTracer(os.Getenv, log)
	steps.Done("observers")
	store := ddb.RequestPath()
	store.APIOptions = append(tracer.Instrument(), ddb.Consumption(func(ctx context.Context, writes, reads float64) {
		observe.RecorderOf(ctx).Add(observe.WriteUnits, writes)
		observe.RecorderOf(ctx).Add(observe.ReadUnits, reads)
	}))
	client, errClient := ddb.New(os.Getenv, store)
	upstream, errUpstream := vpic.New(vpic.Config{BaseURL: cfg.UpstreamURL, Timeout: cfg.UpstreamTimeout, Contact: cfg.UpstreamContact, Version: version, Now: now})
	// What lies in one table is known to be down together.
	coordination, answers := ddb.NewGuard(client, now, dynamo.DownAfter), ddb.NewGuard(client, now, results.DownAfter)
	accounts := tenants.New(tenants.Config{Client: coordination, Table: cfg.CoordinationTable, Now: now, SkewBound: cfg.Knobs.SkewBound})
	callers, errCallers := tenant.New(tenant.Config{HashKey: cfg.TenantHashKey, Keys: accounts, Now: now,
		Keyed:     tenant.Plan{RatePerSecond: cfg.Tenant.PerSecond, Burst: cfg.Tenant.Burst},
		Anonymous: tenant.Plan{RatePerSecond: cfg.Anon.PerSecond, Burst: cfg.Anon.Burst}})
	exitOn(errors.Join(errClient, errUpstream, errCallers))
	budget := dynamo.New(dynamo.Config{
		Client: coordination, Table: cfg.CoordinationTable, Name: "nhtsa", Now: now, NewID: func() string { return rand.Text()[:6] },
		Reclaimed: func(ctx context.Context, leases int) {
			observe.RecorderOf(ctx).Add(observe.LeakedLeases, float64(leases))
		},
		Knobs: func(ctx context.Context, version int, inForce gate.Knobs) {
			metrics.Write(ctx, observe.KnobsInForce(version, cfg.Knobs.Differences(inForce)))
		},
	})
	service := decode.New(underTest(decode.Config{
		Gate: budget, Tenants: accounts, Upstream: upstream,
		Results: results.New(results.Config{Client: answers, Down: answers.Down, Table: cfg.ResultsTable, Memory: cfg.CacheMemory,
			Lives:     results.Lives{Hard: cfg.CacheTTL, Soft: cfg.CacheSoftTTL, Negative: cfg.NegativeTTL},
			SkewBound: cfg.Knobs.SkewBound, Now: now}),
		MaxWait: cfg.MaxWait, MaxWaitBatch: cfg.MaxWaitBatch, BatchTokenCost: cfg.BatchTokenCost,
		BulkheadWait: cfg.BulkheadWait, UpstreamTimeout: cfg.UpstreamTimeout, RequestDeadline: cfg.RequestDeadline, AfterCall: config.AfterCall, SkewBound: cfg.Knobs.SkewBound,
		Trace: tracer.Subsegment, Observe: observe.Watch{Tracer: tracer}, Log: log, Now: now,
	}))
	steps.Done("clients")
	// The first call to DynamoDB is the slow one: made here, it is not the first caller's. Without it the instance serves too.
	prime, cancel := context.WithTimeout(ctx, time.Second)
	if err := budget.Prime(prime); err != nil {
		log.Warn("not primed", "error", err.Error())
	}
	started := observe.Line{Message: "initialised"}
	cancel()
	steps.Done("store")
	started.Properties = append(started.Properties, steps.Log())
	metrics.Write(ctx, started)
	lambda.Start(edge.New(edge.Config{Decoder: service, Gate: budget, Callers: callers, Rates: accounts, Origins: cfg.CORSOrigins, Version: version, Memory: cfg.CacheMemory,
		Log: log, Metrics: metrics, Now: now}))
}

// exitOn ends the initialisation with everything that is wrong.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
