// Package edge is HTTP in, HTTP out: an API Gateway event becomes a request, a decode or a refusal becomes a response.
//
// It promises that every HTTP event gets a response made here: errors are RFC 9457 problems with a code and a plain sentence,
// never raw text of ours or a byte of NHTSA's; what is refused because of a limit says when to come back and is not to be
// stored; nothing but an ordinary GET can cause a call to NHTSA; and a panic ends one request, not the process.
// One line is logged for each request. It knows the caller by the keyed hash and a VIN by its descriptor.
package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/lru"
	"vingate/internal/observe"
	"vingate/internal/tenant"
)

// Decoder answers questions. Its error is a *decode.Refusal.
type Decoder interface {
	Decode(context.Context, decode.Request) (decode.Result, error)
	// DecodeBatch has an item for each question, in order; its error is about all of them.
	DecodeBatch(context.Context, decode.BatchRequest) ([]decode.Item, error)
}

// Gate is what is shown and warmed of the shared budget.
type Gate interface {
	View(context.Context) (gate.View, error)
	// Seen is the view as far as it is known without a call.
	Seen() (view gate.View, ok bool)
	Prime(context.Context) error
}

// Callers says who is asking.
type Callers interface {
	// Identify's error is tenant.ErrAPIKeyUnknown, tenant.ErrAPIKeyRevoked, or that of a table that cannot be read.
	Identify(ctx context.Context, apiKey, address string) (tenant.Caller, error)
}

// Config of a handler. Rates, Log, Metrics and Now may be nil. Without Metrics a request's line goes to Log.
type Config struct {
	Decoder Decoder
	Gate    Gate
	Callers Callers
	Rates   Rates
	Origins []string // whose scripts may read responses: origins in lower case, or "*"; none when empty
	Version string
	Memory  int64 // of the answers' memory, see results.Config: a part of it beside it keeps their bodies ready to send
	Log     *slog.Logger
	Metrics *observe.Metrics
	Now     func() time.Time
}

// Handler takes the payloads of Lambda invocations. It is a lambda.Handler and safe for use by many goroutines.
type Handler struct {
	Config
	warm atomic.Bool

	zippers sync.Pool // of *gzip.Writer
	ready   *lru.Cache[string, *ready]
}

// New makes a handler.
func New(cfg Config) *Handler {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Handler{Config: cfg, ready: newReady(cfg.Memory)}
}

// WarmupSource marks the scheduled event that keeps an instance and its connections warm.
const WarmupSource = "vingate.warmup"

// lastWords is kept of the invocation's time for encoding and sending the response.
const lastWords = time.Second

// event is what is read of everything this function can be invoked with: an event of an API Gateway HTTP API in payload format 2.0, and what tells
// the others apart. What is not named here costs next to nothing, unlike with package events' own type, which reads all there is.
type event struct {
	Version         string            `json:"version"`
	RawPath         string            `json:"rawPath"`
	RawQueryString  string            `json:"rawQueryString"`
	Headers         map[string]string `json:"headers"`
	Body            string            `json:"body"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
	RequestContext  struct {
		RequestID string `json:"requestId"`
		Stage     string `json:"stage"`
		HTTP      struct {
			Method   string `json:"method"`
			SourceIP string `json:"sourceIp"`
		} `json:"http"`
	} `json:"requestContext"`

	Source     string `json:"source"`     // of a scheduled event
	HTTPMethod string `json:"httpMethod"` // of payload format 1.0
}

// EventError: the payload is no event of this function and nobody waits for an HTTP response to it.
type EventError struct{ Reason string }

func (e *EventError) Error() string { return "unsupported event: " + e.Reason }

// Invoke answers one event. The error is a *EventError: a misdirected event has to show among the function's errors.
func (h *Handler) Invoke(ctx context.Context, payload []byte) (answer []byte, err error) {
	began := h.Now()
	cold := !h.warm.Swap(true)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-lastWords))
		defer cancel()
	}
	var e event
	if err := json.Unmarshal(payload, &e); err != nil {
		h.Log.ErrorContext(ctx, "payload is not readable JSON", "bytes", len(payload))
		return nil, &EventError{Reason: "not readable JSON"}
	}
	if e.Source == WarmupSource {
		return h.warmUp(ctx)
	}
	if e.Version != "2.0" || e.RequestContext.HTTP.Method == "" {
		h.Log.ErrorContext(ctx, "unsupported event", "version", clip(e.Version), "source", clip(e.Source))
		if e.HTTPMethod == "" && e.RequestContext.HTTP.Method == "" {
			return nil, &EventError{Reason: "neither an API Gateway HTTP API event of payload format 2.0 nor a warm-up"}
		}
		return h.refusal(&request{id: requestID(ctx, e)}, decode.NewEventUnsupported()).encode(false), nil
	}
	r := newRequest(ctx, e)
	ctx, record := observe.Record(ctx)
	res := h.serve(ctx, r)
	h.logRequest(ctx, r, res, h.Now().Sub(began), cold, record)
	return h.compressed(r, res).encode(r.method == "HEAD"), nil
}

// serve answers a request, whatever happens.
func (h *Handler) serve(ctx context.Context, r *request) (res *response) {
	defer func() {
		if p := recover(); p != nil {
			h.Log.ErrorContext(ctx, "panic in a request", "route", r.route, "panic", clip(fmt.Sprint(p)), "stack", string(debug.Stack()))
			res = h.refusal(r, decode.NewInternal())
		}
	}()
	return h.dispatch(ctx, r)
}

func (h *Handler) warmUp(ctx context.Context) ([]byte, error) {
	// A store that is down does not make the schedule retry; the next warm-up comes anyway.
	if err := h.Gate.Prime(ctx); err != nil {
		h.Log.WarnContext(ctx, "warm-up without the store", "error", err.Error())
		return []byte(`{"warm":false}`), nil
	}
	return []byte(`{"warm":true}`), nil
}

// logRequest writes the one line of a request, its metrics included. Neither path nor query nor address stand in it.
func (h *Handler) logRequest(ctx context.Context, r *request, res *response, took time.Duration, cold bool, record *observe.Recorder) {
	attrs := []slog.Attr{
		slog.String("gatewayRequestId", r.id), slog.String("method", clip(r.method)), slog.String("route", r.route),
		slog.Int("status", res.status), slog.Int64("durationMs", took.Milliseconds()),
	}
	if cold {
		attrs = append(attrs, slog.Bool("coldStart", true))
	}
	if r.caller.ID != "" {
		attrs = append(attrs, slog.String("tenant", r.caller.ID), slog.String("bulkhead", bulkhead(r)))
	}
	level := slog.LevelInfo
	if res.status >= 500 {
		level = slog.LevelWarn
	}
	attrs = append(attrs, res.log...)
	if h.Metrics == nil {
		h.Log.LogAttrs(ctx, level, "request", attrs...)
		return
	}
	h.measure(ctx, observe.Line{Level: level, Message: "request", Properties: attrs}, r, res, record)
}

// requestID is the gateway's id of the request, which its access log has too, else Lambda's.
func requestID(ctx context.Context, e event) string {
	id := e.RequestContext.RequestID
	if lc, ok := lambdacontext.FromContext(ctx); ok && id == "" {
		id = lc.AwsRequestID
	}
	if len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' }) {
		return ""
	}
	return id
}

func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// asRefusal is err as a refusal. Anything else than a refusal is a fault of ours.
func (h *Handler) asRefusal(ctx context.Context, err error) *decode.Refusal {
	var refusal *decode.Refusal
	if !errors.As(err, &refusal) {
		h.Log.ErrorContext(ctx, "an error that is no refusal", "error", clip(err.Error()))
		return decode.NewInternal()
	}
	return refusal
}
