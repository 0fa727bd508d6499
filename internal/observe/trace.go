package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/aws/aws-xray-sdk-go/v2/instrumentation/awsv2"
	"github.com/aws/aws-xray-sdk-go/v2/strategy/ctxmissing"
	"github.com/aws/aws-xray-sdk-go/v2/xray"
	"github.com/aws/aws-xray-sdk-go/v2/xraylog"
	"github.com/aws/smithy-go/middleware"
)

// Tracer cuts a request into subsegments of its X-Ray trace. A Tracer that is off costs nothing and touches nothing.
type Tracer struct{ on bool }

// lambdaTraceHeader is where the Lambda runtime puts the trace header, as a plain string key.
const lambdaTraceHeader = "x-amzn-trace-id"

// NewTracer decides from the environment whether there is something to trace to: Lambda names its daemon in
// AWS_XRAY_DAEMON_ADDRESS, and AWS_XRAY_SDK_DISABLED=true switches tracing off as for the X-Ray SDK itself.
//
// It sets what happens where a subsegment finds no trace (nothing), because the SDK panics when AWS_XRAY_CONTEXT_MISSING
// is RUNTIME_ERROR and dereferences nil when it holds a word it does not know. Call it once, before the first request.
func NewTracer(getenv func(string) string, log *slog.Logger) *Tracer {
	if getenv("AWS_XRAY_DAEMON_ADDRESS") == "" || strings.EqualFold(strings.TrimSpace(getenv("AWS_XRAY_SDK_DISABLED")), "true") {
		return &Tracer{}
	}
	xray.SetLogger(sdkLog{log})
	return &Tracer{on: true}
}

// Subsegment runs fn under a subsegment of the trace in ctx, and returns fn's error. Without a trace it just runs fn.
// The error's text is not sent: it is for logs, where what may stand in it is known.
func (t *Tracer) Subsegment(ctx context.Context, name string, fn func(context.Context) error) error {
	if t == nil || !t.on || !traced(ctx) {
		return fn(ctx)
	}
	inner, segment := xray.BeginSubsegment(recorder(ctx), name)
	if segment == nil {
		return fn(ctx)
	}
	failed := errPanic // what fn leaves behind when it does not return
	defer func() { segment.Close(failed) }()
	err := fn(inner)
	failed = nil
	if err != nil {
		failed = fmt.Errorf("%T", err)
	}
	return err
}

// Annotate puts an indexed value (a string, int, float64 or bool: X-Ray takes no other) on the subsegment that ctx is in. Values are
// ours, never a caller's.
func (t *Tracer) Annotate(ctx context.Context, key string, value any) {
	if t == nil || !t.on || xray.GetSegment(ctx) == nil {
		return
	}
	_ = xray.AddAnnotation(ctx, key, value)
}

// Instrument adds a subsegment to every operation of an AWS client. The names of table, region and operation are sent,
// never keys or values.
func (t *Tracer) Instrument() []func(*middleware.Stack) error {
	if t == nil || !t.on {
		return nil
	}
	options := []func(*middleware.Stack) error{ignoreMissing}
	awsv2.AWSV2Instrumentor(&options)
	return options
}

var errPanic = fmt.Errorf("panic")

// ignoreMissing runs before the SDK's own middleware and hands it the strategy for a missing trace through the context:
// a value there wins over the process-wide one, which only the environment sets.
func ignoreMissing(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("vingateTrace", func(
		ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		return next.HandleInitialize(recorder(ctx), in)
	}), middleware.Before)
}

// recorder gives ctx the strategy for a missing trace. xray.ContextWithConfig would let the environment override it.
func recorder(ctx context.Context) context.Context {
	if xray.GetRecorder(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, xray.RecorderContextKey{}, &xray.Config{ContextMissingStrategy: ctxmissing.NewDefaultIgnoreErrorStrategy()})
}

func traced(ctx context.Context) bool {
	if xray.GetSegment(ctx) != nil {
		return true
	}
	header, _ := ctx.Value(lambdaTraceHeader).(string)
	return header != ""
}

// traceID is the root of the trace in ctx, "" when there is none.
func traceID(ctx context.Context) string {
	header, _ := ctx.Value(lambdaTraceHeader).(string)
	for part := range strings.SplitSeq(header, ";") {
		if id, ok := strings.CutPrefix(strings.TrimSpace(part), "Root="); ok {
			return id
		}
	}
	return ""
}

// sdkLog sends the SDK's warnings and errors into the one log.
type sdkLog struct{ log *slog.Logger }

func (l sdkLog) Log(level xraylog.LogLevel, msg fmt.Stringer) {
	switch level {
	case xraylog.LogLevelError:
		l.log.Error("X-Ray SDK", "detail", msg.String())
	case xraylog.LogLevelWarn:
		l.log.Warn("X-Ray SDK", "detail", msg.String())
	}
}
