package standin

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// keptCalls bounds what Calls tells.
const keptCalls = 200_000

// Call is one call as the stand-in saw it, for whoever judges from outside what came and when. Times are microseconds since 1970.
type Call struct {
	Start      int64    `json:"start"` // its header had been read
	End        int64    `json:"end"`   // as in Stats; 0 while it is under way
	Kind       string   `json:"kind"`  // as in Stats.Answers; "" while there is none
	VINs       []string `json:"vins"`  // in capitals
	RetryAfter string   `json:"retryAfter,omitempty"`
	By         string   `json:"by"` // the caller's User-Agent
}

// journal keeps the last calls. It is safe for parallel use.
type journal struct {
	mu    sync.Mutex
	calls []*note
}

// note is an entry of the journal.
type note struct {
	j    *journal
	call Call
}

func newJournal() *journal { return &journal{} }

// begin reads the clock under the lock, so that the calls are in order.
func (j *journal) begin(now func() time.Time, by string) *note {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := &note{j: j, call: Call{Start: now().UnixMicro(), By: by}}
	if len(j.calls) >= 2*keptCalls { // half of it goes at once, so that each costs little
		j.calls = slices.Clone(j.calls[len(j.calls)-keptCalls:])
	}
	j.calls = append(j.calls, n)
	return n
}

// end counts once: whoever comes first.
func (n *note) end(now func() time.Time) {
	n.j.mu.Lock()
	defer n.j.mu.Unlock()
	if n.call.End == 0 {
		n.call.End = now().UnixMicro()
	}
}

func (n *note) answered(kind, retryAfter string) {
	n.j.mu.Lock()
	defer n.j.mu.Unlock()
	n.call.Kind, n.call.RetryAfter = kind, retryAfter
}

func (n *note) asked(vins []string) {
	n.j.mu.Lock()
	defer n.j.mu.Unlock()
	for _, v := range vins {
		n.call.VINs = append(n.call.VINs, strings.ToUpper(strings.TrimSpace(v)))
	}
}

func (j *journal) read(since int64) []Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := max(0, len(j.calls)-keptCalls)
	first += sort.Search(len(j.calls)-first, func(i int) bool { return j.calls[first+i].call.Start >= since })
	out := make([]Call, 0, len(j.calls)-first)
	for _, n := range j.calls[first:] {
		out = append(out, n.call)
	}
	return out
}
