package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// withTrace gives ctx a trace header as Lambda's runtime does.
func withTrace(ctx context.Context, header string) context.Context {
	//lint:ignore SA1029 the runtime's key is a plain string
	return context.WithValue(ctx, lambdaTraceHeader, header)
}

func TestALineCarriesTheRequestAndTheTrace(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, "", "1.2.3").With("route", "decode")
	ctx := lambdacontext.NewContext(context.Background(), &lambdacontext.LambdaContext{AwsRequestID: "req-1"})
	ctx = withTrace(ctx, "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=0;Lineage=1:2")
	log.InfoContext(ctx, "request", "status", 200)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	for k, want := range map[string]any{"level": "INFO", "message": "request", "version": "1.2.3", "route": "decode", "status": 200.0,
		"requestId": "req-1", "traceId": "1-5759e988-bd862e3fe1be46a994272793"} {
		if line[k] != want {
			t.Errorf("%s = %v, want %v", k, line[k], want)
		}
	}
	if line["timestamp"] == nil {
		t.Error("no timestamp")
	}

	out.Reset()
	NewLogger(&out, "", "1.2.3").Info("starting")
	if bytes.Contains(out.Bytes(), []byte("requestId")) || bytes.Contains(out.Bytes(), []byte("traceId")) {
		t.Errorf("ids without a request: %s", out.String())
	}
}

func TestTheLevelIsLambdas(t *testing.T) {
	for level, least := range map[string]slog.Level{"": slog.LevelInfo, "TRACE": slog.LevelDebug, "debug": slog.LevelDebug,
		"INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError, "FATAL": slog.LevelError, "loud": slog.LevelInfo} {
		log := NewLogger(&bytes.Buffer{}, level, "")
		ctx := context.Background()
		if !log.Enabled(ctx, least) || log.Enabled(ctx, least-1) {
			t.Errorf("AWS_LAMBDA_LOG_LEVEL=%q does not start at %v", level, least)
		}
	}
}
