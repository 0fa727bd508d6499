package chaos

import (
	"time"

	"vingate/internal/gate"
	"vingate/internal/standin"
)

// Evidence is all that was seen from outside.
type Evidence struct {
	Plan                                                             Plan
	Began                                                            time.Time
	Knobs                                                            gate.Knobs    // at the start; Changes say what of them changed
	Patience, PatienceBatch, BulkheadWait, UpstreamTimeout, Deadline time.Duration // of the configuration

	Calls    []standin.Call // the stand-in's log, in order
	Answers  []Told         // what everybody got
	Book     *Book          // every write that the store applied to the shared budget
	Changes  []Change       // of the numbers, the beginning included
	Stops    []Span         // instances that stood still
	Kills    []Span
	Outages  []Span // nobody reached the store
	Troubled []Span // anything at all was wrong with the store

	Final     gate.State
	Processes []Process
	Struck    map[Kind]int
	Late      Lateness
	Stalled   float64  // share of the time in which anybody waited for a processor, 0: not known
	Refused   []string // faults of the judge's own tools that would make a verdict worthless
}

// Span is a time in which something was the case. Of a process, Instance says which.
type Span struct {
	Instance    int
	From, Until time.Time
}

func (s Span) overlaps(from, until time.Time) bool {
	return s.From.Before(until) && from.Before(s.Until)
}

// Change is a change of the budget's numbers: From before it was asked for, Done when it was in force.
type Change struct {
	From, Done time.Time
	Numbers
}

// Answer is what somebody got.
type Answer struct {
	Client   string
	VINs     []string
	Batch    bool
	Try      int           // from 1 on
	Waited   time.Duration // before this try, because Retry-After said so
	Asked    time.Time
	Done     time.Time
	Left     bool   // hung up
	Failed   string // no answer came, though nobody left
	Status   int
	Type     string
	After    string // Retry-After
	Instance int
	Body     []byte
}

// Write is one write that the store applied to the gate's item.
type Write struct {
	Sent  time.Time  // to the store. Who reads may have seen it from then on
	At    time.Time  // when the proxy had the store's answer
	Lost  bool       // the answer was dropped
	Names []string   // what the request names: ids are among them
	State gate.State // after it
}

// Process is what was seen of an instance at the end, at rest.
type Process struct {
	Instance    int
	Invocations int
	Files       int   // open descriptors
	Goroutines  int   // 0: not told
	Memory      int64 // resident bytes
	Early       Early
}

// Early is the same when it had served 100 requests; zeros are unknown.
type Early struct {
	Files, Goroutines int
	Memory            int64
}
