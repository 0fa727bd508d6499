// Package observe is how vingate is seen from outside: logs, metrics and traces. It promises that nothing leaves through it that
// belongs to a caller: log lines know a caller by the keyed hash and a VIN by its descriptor, metrics and traces know neither. The
// X-Ray SDK is in maintenance mode; only this package imports it, so that a successor is a change here alone.
package observe

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// NewLogger writes one JSON object a line to w, with Lambda's names (timestamp, level, message), the version, and the
// request's and the trace's id where the context has them. level is Lambda's AWS_LAMBDA_LOG_LEVEL: TRACE, DEBUG, INFO,
// WARN, ERROR or FATAL; anything else is INFO.
func NewLogger(w io.Writer, level, version string) *slog.Logger {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: threshold(level), ReplaceAttr: lambdacontext.ReplaceAttr})
	return slog.New(withContext{h.WithAttrs([]slog.Attr{slog.String("version", version)})})
}

func threshold(level string) slog.Level {
	switch strings.ToUpper(strings.TrimSpace(level)) {
	case "TRACE", "DEBUG":
		return slog.LevelDebug
	case "WARN":
		return slog.LevelWarn
	case "ERROR", "FATAL":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// withContext adds what the context knows of the request.
type withContext struct{ slog.Handler }

func (h withContext) Handle(ctx context.Context, r slog.Record) error {
	if lc, ok := lambdacontext.FromContext(ctx); ok && lc.AwsRequestID != "" {
		r.AddAttrs(slog.String("requestId", lc.AwsRequestID))
	}
	if id := traceID(ctx); id != "" {
		r.AddAttrs(slog.String("traceId", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h withContext) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withContext{h.Handler.WithAttrs(attrs)}
}

func (h withContext) WithGroup(name string) slog.Handler {
	return withContext{h.Handler.WithGroup(name)}
}
