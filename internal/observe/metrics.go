package observe

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// Names of the metrics. Catalogue says what each means.
const (
	Requests     = "Requests"
	Refusals     = "Refusals"
	Decodes      = "Decodes"
	CacheHits    = "CacheHits"
	Followers    = "Followers"
	Admissions   = "Admissions"
	QueueWait    = "QueueWait"
	UpstreamTime = "UpstreamTime"
	WriteUnits   = "WriteUnits"
	ReadUnits    = "ReadUnits"
	Uncached     = "Uncached"
	LeakedLeases = "LeakedLeases"
	KnobsDiffer  = "KnobsDiffer"
	Limit        = "Limit"
	InFlight     = "InFlight"
	Tokens       = "Tokens"
	Queued       = "Queued"
	HoldActive   = "HoldActive"
)

// Names of the dimensions. They are few and their values are ours, never a caller's: each combination is a metric that is billed.
const (
	Route  = "Route"  // of the request, as in the log
	Class  = "Class"  // key or anonymous
	Code   = "Code"   // of a refusal
	Reason = "Reason" // of a hold
)

// Unit as CloudWatch knows it.
type Unit string

// Units.
const (
	Count        Unit = "Count"
	Milliseconds Unit = "Milliseconds"
)

// Metric describes one metric.
type Metric struct {
	Name string
	Unit Unit
	// By lists the sets of dimensions it is kept under, besides none.
	By      [][]string
	From    string // the function that emits it
	Meaning string
}

// Catalogue lists every metric there is. Documents, alarms and the dashboard are held against it.
func Catalogue() []Metric { return slices.Clone(catalogue) }

var catalogue = []Metric{
	{Requests, Count, [][]string{{Route}, {Route, Class}}, "decode", "HTTP requests answered by the function"},
	{Refusals, Count, [][]string{{Code}, {Route, Code}}, "decode", "requests, or single VINs of a batch, that were refused, by the code the caller was told"},
	{Decodes, Count, [][]string{{Route}, {Route, Class}}, "decode", "VINs answered with NHTSA's data, live or stored"},
	{CacheHits, Count, [][]string{{Route}}, "decode", "of these, from a stored answer; divided by `Decodes` it is the hit ratio"},
	{Followers, Count, [][]string{{Route}}, "decode", "of these, live answers shared from a call that another request began"},
	{Admissions, Count, [][]string{{Route}}, "decode", "calls to NHTSA that the shared budget granted"},
	{QueueWait, Milliseconds, [][]string{{Route}}, "decode", "time from asking the shared budget to its grant or refusal, the line included and NHTSA's own time not"},
	{UpstreamTime, Milliseconds, [][]string{{Route}}, "decode", "time NHTSA took to answer, or to fail, once called"},
	{WriteUnits, Count, [][]string{{Route}}, "decode", "DynamoDB write units used by the request, both tables"},
	{ReadUnits, Count, [][]string{{Route}}, "decode", "DynamoDB read units used by the request, both tables"},
	{Uncached, Count, [][]string{{Route}}, "decode", "reads and writes of the results table that failed: the decodes went on without it"},
	{LeakedLeases, Count, nil, "decode, keeper", "leases that ended without a release: their instance was killed, frozen past the end, or could not reach the table"},
	{KnobsDiffer, Count, nil, "decode, keeper", "numbers of the environment that are not those in force in the gate, which is what counts"},
	{Limit, Count, nil, "keeper", "slots in force, `MAX_IN_FLIGHT` or less after NHTSA throttled or failed"},
	{InFlight, Count, nil, "keeper", "slots leased at this moment"},
	{Tokens, Count, nil, "keeper", "calls that could start at this moment by rate"},
	{Queued, Count, nil, "keeper", "callers in the line at this moment"},
	{HoldActive, Count, [][]string{{Reason}}, "keeper", "1 while the gate is held: by `throttled` or `failing` NHTSA, by an `operator`, or while `starting`"},
}

// Measured is one metric's values in one line. An empty one is not written.
type Measured struct {
	Name   string
	Values []float64
}

// Line is one log line that CloudWatch also reads metrics from.
type Line struct {
	Level      slog.Level
	Message    string
	Properties []slog.Attr
	Dimensions map[string]string // a set of dimensions that is not complete here is left out
	Measured   []Measured
}

// KnobsInForce is the line that an instance writes when it first sees a version of the gate's knobs: what its own environment would have
// otherwise. The gate's are what counts.
func KnobsInForce(version int, differ []string) Line {
	l := Line{Message: "knobs in force", Properties: []slog.Attr{slog.Int("knobsVersion", version)},
		Measured: []Measured{{Name: KnobsDiffer, Values: []float64{float64(len(differ))}}}}
	if len(differ) > 0 {
		l.Level = slog.LevelWarn
		l.Properties = append(l.Properties, slog.Any("knobsDiffer", differ))
	}
	return l
}

// Metrics writes lines in CloudWatch's embedded metric format. It is safe for use by many goroutines.
type Metrics struct {
	handler   slog.Handler
	least     slog.Level
	namespace string
	catalogue map[string]Metric
}

// NewMetrics writes to w into a namespace; level and version are NewLogger's.
//
// Lambda drops lines below AWS_LAMBDA_LOG_LEVEL by the level that stands in them, and metrics with them. So a line of metrics is
// written whatever the level is, and says at least that level.
func NewMetrics(w io.Writer, level, version, namespace string) *Metrics {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: lambdacontext.ReplaceAttr})
	m := &Metrics{handler: withContext{h.WithAttrs([]slog.Attr{slog.String("version", version)})}, least: threshold(level), namespace: namespace, catalogue: map[string]Metric{}}
	for _, c := range catalogue {
		m.catalogue[c.Name] = c
	}
	return m
}

// directive is how a line says what of it is a metric.
type directive struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []definition
}

type definition struct {
	Name string
	Unit Unit
}

// Write writes a line. A metric that Catalogue does not know is a mistake of ours, and is dropped rather than billed.
func (m *Metrics) Write(ctx context.Context, l Line) {
	if m == nil {
		return
	}
	now := time.Now()
	r := slog.NewRecord(now, max(l.Level, m.least), l.Message, 0)
	r.AddAttrs(l.Properties...)
	used := map[string]bool{}
	var directives []directive
	for _, v := range l.Measured {
		c, known := m.catalogue[v.Name]
		if !known || len(v.Values) == 0 {
			continue
		}
		d := directive{Namespace: m.namespace, Dimensions: [][]string{{}}, Metrics: []definition{{c.Name, c.Unit}}}
		for _, by := range c.By {
			if !slices.ContainsFunc(by, func(name string) bool { return l.Dimensions[name] == "" }) {
				d.Dimensions = append(d.Dimensions, by)
				for _, name := range by {
					used[name] = true
				}
			}
		}
		directives = joined(directives, d)
		if len(v.Values) == 1 {
			r.AddAttrs(slog.Float64(v.Name, v.Values[0]))
		} else {
			r.AddAttrs(slog.Any(v.Name, v.Values[:min(len(v.Values), mostValues)]))
		}
	}
	for _, name := range []string{Route, Class, Code, Reason} {
		if used[name] {
			r.AddAttrs(slog.String(name, l.Dimensions[name]))
		}
	}
	if len(directives) > 0 {
		r.AddAttrs(slog.Any("_aws", struct {
			Timestamp         int64
			CloudWatchMetrics []directive
		}{now.UnixMilli(), directives}))
	}
	_ = m.handler.Handle(ctx, r)
}

// mostValues is what CloudWatch takes of one metric in one line.
const mostValues = 100

// joined adds a directive, to another of the same dimensions where there is one.
func joined(all []directive, d directive) []directive {
	for i, o := range all {
		if slices.EqualFunc(o.Dimensions, d.Dimensions, slices.Equal[[]string]) {
			all[i].Metrics = append(all[i].Metrics, d.Metrics...)
			return all
		}
	}
	return append(all, d)
}
