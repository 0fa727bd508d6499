package observe

import (
	"context"
	"sync"
	"time"
)

// Recorder collects what one request does on its way, over all goroutines that work for it. A nil Recorder collects nothing.
type Recorder struct {
	mu     sync.Mutex
	values map[string][]float64
}

type recorderKey struct{}

// Record gives a request a recorder.
func Record(ctx context.Context) (context.Context, *Recorder) {
	r := &Recorder{values: map[string][]float64{}}
	return context.WithValue(ctx, recorderKey{}, r), r
}

// RecorderOf is the request's recorder, nil where there is none.
func RecorderOf(ctx context.Context) *Recorder {
	r, _ := ctx.Value(recorderKey{}).(*Recorder)
	return r
}

// Add adds to a metric's one value.
func (r *Recorder) Add(name string, n float64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.values[name]) == 0 {
		r.values[name] = []float64{0}
	}
	r.values[name][0] += n
}

// Observe adds a value of its own, for a metric of which percentiles are wanted.
func (r *Recorder) Observe(name string, v float64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values[name] = append(r.values[name], v)
}

// Measured is what was collected, in the order of Catalogue.
func (r *Recorder) Measured() []Measured {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.values) == 0 {
		return nil
	}
	var out []Measured
	for _, c := range catalogue {
		if v := r.values[c.Name]; len(v) > 0 {
			out = append(out, Measured{c.Name, append([]float64(nil), v...)})
		}
	}
	return out
}

// Watch notes the two things a decode waits for, apart from one another: in the request's metrics, and as annotations of the step's
// subsegment. The zero Watch notes metrics only.
type Watch struct{ Tracer *Tracer }

// Gate is what became of asking the shared budget, inside of its step.
func (w Watch) Gate(ctx context.Context, outcome string, waited time.Duration) {
	r := RecorderOf(ctx)
	r.Observe(QueueWait, milliseconds(waited))
	if outcome == Granted {
		r.Add(Admissions, 1)
	}
	w.Tracer.Annotate(ctx, "outcome", outcome)
	w.Tracer.Annotate(ctx, "waitedMs", int(waited.Milliseconds()))
}

// Granted is the outcome of asking the shared budget that leads to a call. Every other is a refusal's cause.
const Granted = "granted"

// Upstream is what became of a call to NHTSA, inside of its step.
func (w Watch) Upstream(ctx context.Context, outcome string, took time.Duration) {
	RecorderOf(ctx).Observe(UpstreamTime, milliseconds(took))
	w.Tracer.Annotate(ctx, "outcome", outcome)
}

// Uncached is a read or a write of the results table that failed.
func (w Watch) Uncached(ctx context.Context, fault string) {
	RecorderOf(ctx).Add(Uncached, 1)
	w.Tracer.Annotate(ctx, "uncached", fault)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
