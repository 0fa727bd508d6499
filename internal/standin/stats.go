package standin

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// Answers by kind, as Stats counts them. A fault's answer has the fault's kind.
const (
	AnswerDecoded          = "decoded"           // rows, also for VINs that NHTSA does not know
	AnswerNotFound         = "not-found"         // 404
	AnswerBadRequest       = "bad-request"       // 400, 405, 413, or too many VINs
	AnswerQuotaRate        = "quota-rate"        // 429 of Faults.Quota
	AnswerQuotaConcurrency = "quota-concurrency" // 429 of Faults.Quota
	AnswerClientGone       = "client-gone"       // the caller hung up before the answer was complete
	AnswerFailed           = "failed"            // the stand-in could not read its data
)

// Bounds of what Stats keeps.
const (
	keptStarts = 100_000
	keptVINs   = 100_000
)

// Stats is what was called since the start or the last reset. A call is under way
// from the moment its header has been read until the last bytes of its answer are
// handed to the network, or until the stand-in sees that its caller is gone. It is in
// Answers from then on.
type Stats struct {
	Since   int64 `json:"since"`   // microseconds since 1970
	Calls   int64 `json:"calls"`   // all, refused ones too
	Current int   `json:"current"` // under way
	Peak    int   `json:"peak"`    // most under way at the same time

	// Starts are microseconds since 1970 of the last calls, in ascending order.
	// Overflowed says that earlier ones are missing: StartsDropped of them.
	Starts        []int64 `json:"starts"`
	Overflowed    bool    `json:"overflowed"`
	StartsDropped int64   `json:"startsDropped"`

	Answers map[string]int64 `json:"answers"` // finished calls by kind

	// VINs counts the calls by VIN, in capitals; a VIN twice in one batch counts
	// twice. VINsDropped counts those of VINs that found no place any more.
	VINs        map[string]int64 `json:"vins"`
	VINsDropped int64            `json:"vinsDropped"`
}

// recorder collects Stats. It is safe for parallel use.
type recorder struct {
	mu         sync.Mutex
	stats      Stats
	starts     []int64 // ring once it is full
	next       int
	startsKept int
	vinsKept   int
}

func newRecorder(now time.Time) *recorder {
	r := &recorder{startsKept: keptStarts, vinsKept: keptVINs}
	r.reset(now)
	return r
}

// reset forgets everything but the calls under way.
func (r *recorder) reset(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.stats.Current
	r.stats = Stats{Since: now.UnixMicro(), Current: current, Peak: current, Answers: map[string]int64{}, VINs: map[string]int64{}}
	r.starts, r.next = nil, 0
}

// begin records the start of a call. The clock is read under the lock, so that the
// starts are in order. What it gives has to be called when the call is over; more
// than once does not matter.
func (r *recorder) begin(now func() time.Time) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Calls++
	r.stats.Current++
	r.stats.Peak = max(r.stats.Peak, r.stats.Current)
	start := now().UnixMicro()
	if len(r.starts) < r.startsKept {
		r.starts = append(r.starts, start)
	} else {
		r.starts[r.next] = start
		r.next = (r.next + 1) % r.startsKept
		r.stats.StartsDropped++
	}
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stats.Current--
	})
}

func (r *recorder) answered(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Answers[kind]++
}

func (r *recorder) asked(vins []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, vin := range vins {
		vin = strings.ToUpper(strings.TrimSpace(vin))
		if _, ok := r.stats.VINs[vin]; !ok && len(r.stats.VINs) >= r.vinsKept {
			r.stats.VINsDropped++
			continue
		}
		r.stats.VINs[vin]++
	}
}

func (r *recorder) read() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Starts = make([]int64, 0, len(r.starts))
	s.Starts = append(append(s.Starts, r.starts[r.next:]...), r.starts[:r.next]...)
	s.Overflowed = s.StartsDropped > 0
	s.Answers, s.VINs = maps.Clone(s.Answers), maps.Clone(s.VINs)
	return s
}
