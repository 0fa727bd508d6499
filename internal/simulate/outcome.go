package simulate

import (
	"math"
	"time"

	"vingate/internal/gate"
)

// Outcome is what became of a request.
type Outcome byte

// The outcomes, answers first.
const (
	FromMemory        Outcome = iota // a stored answer, from the instance's memory
	FromTable                        // a stored answer
	Shared                           // another's call brought it
	Refreshed                        // a call to NHTSA, although a stale answer was stored
	Live                             // a call to NHTSA
	TenantDry                        // the tenant's own bucket
	NoToken                          // the shared rate
	LineFull                         // the line, or the flow's share of it
	NoSlotInTime                     // waited, or would have, in vain
	PlacesFull                       // the key's own places
	OwnFull                          // those of all anonymous callers that one address may hold
	Throttled                        // NHTSA asked for a pause
	Unavailable                      // NHTSA fails, and rests
	TooLate                          // the lease came too late for its call
	UpstreamThrottled                // NHTSA said 429 or 403 to this call
	UpstreamFailed
	UpstreamTimedOut
	Unreadable // DynamoDB throttles an item, or the gate changed under every write
	NoInstance // all are busy: Lambda's own 503
	outcomes
)

// words are for people: what it is, and the code the API answers with.
var words = [outcomes]struct{ name, code, text string }{
	FromMemory:        {"memory", "200", "stored, from an instance's memory"},
	FromTable:         {"table", "200", "stored, from the table"},
	Shared:            {"shared", "200", "another's call"},
	Refreshed:         {"refreshed", "200", "a call that refreshed a stale answer"},
	Live:              {"live", "200", "a call to NHTSA"},
	TenantDry:         {"tenant", "429 RATE_LIMITED, tenant", "the tenant's own bucket was dry"},
	NoToken:           {"budget", "429 RATE_LIMITED, upstream-budget", "no token of the shared rate in time"},
	LineFull:          {"line-full", "429 DECODE_QUEUE_FULL", "no place in the line"},
	NoSlotInTime:      {"no-slot", "429 DECODE_WAIT_TIMEOUT", "no slot in time"},
	PlacesFull:        {"places", "429 BULKHEAD_TIMEOUT", "the key's own places were full"},
	OwnFull:           {"own-places", "429 BULKHEAD_TIMEOUT", "one address's share of the places was full"},
	Throttled:         {"held-throttled", "503 UPSTREAM_THROTTLED", "NHTSA had asked for a pause"},
	Unavailable:       {"held-failing", "503 UPSTREAM_UNAVAILABLE", "NHTSA failed, and was left alone"},
	TooLate:           {"too-late", "429 RATE_LIMITED, upstream-budget", "admitted too late for a call"},
	UpstreamThrottled: {"throttled", "503 UPSTREAM_THROTTLED", "NHTSA said 429 or 403 to this call"},
	UpstreamFailed:    {"failed", "503 UPSTREAM_UNAVAILABLE", "NHTSA failed"},
	UpstreamTimedOut:  {"timeout", "504 UPSTREAM_TIMEOUT", "NHTSA did not answer in time"},
	Unreadable:        {"unreadable", "503 COORDINATION_UNAVAILABLE", "DynamoDB throttled an item, or too many wrote at once"},
	NoInstance:        {"no-instance", "503 of Lambda", "every instance was busy"},
}

func (o Outcome) String() string { return words[o].name }

// Code is the status and code of the API.
func (o Outcome) Code() string { return words[o].code }

// Text is for people.
func (o Outcome) Text() string { return words[o].text }

func (o Outcome) answer() bool  { return o <= Live }
func (o Outcome) stored() bool  { return o <= FromTable }
func (o Outcome) refusal() bool { return o > Live }

// everybodys: a refusal about the shared budget or NHTSA, which those who share the call inherit.
func (o Outcome) everybodys() bool {
	switch o {
	case NoToken, LineFull, NoSlotInTime, Throttled, Unavailable, TooLate, UpstreamThrottled, UpstreamFailed, UpstreamTimedOut:
		return true
	}
	return false
}

func refusedBy(r gate.Refusal) Outcome {
	switch r.Cause {
	case gate.Held:
		return heldBy(r.Hold)
	case gate.BulkheadFull:
		return PlacesFull
	case gate.OwnFull:
		return OwnFull
	case gate.QueueFull, gate.FlowFull:
		return LineFull
	case gate.NoSlot, gate.NoKeySlot:
		return NoSlotInTime
	}
	return NoToken
}

func heldBy(why gate.HoldReason) Outcome {
	if why == gate.HoldFailing {
		return Unavailable
	}
	return Throttled
}

// kind of item in DynamoDB.
type kind byte

const (
	gates kind = iota
	promises
	accounts
	rows
	kinds
)

var kindNames = [kinds]string{"gate", "promise", "tenants", "answers"}

// buckets of a histogram of waits: each is a 45th wider than the one before it, from a millisecond on.
const (
	buckets = 512
	ratio   = 1.0222
)

// histogram counts waits.
type histogram [buckets]uint32

var edges = func() (e [buckets]time.Duration) {
	at := 1e6
	for i := range e {
		e[i] = time.Duration(at)
		at *= ratio
	}
	return e
}()

func bucketOf(d time.Duration) int {
	lo, hi := 0, buckets-1
	for lo < hi {
		mid := (lo + hi) / 2
		if edges[mid] < d {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (h *histogram) add(d time.Duration) { h[bucketOf(d)]++ }

func (h *histogram) merge(o *histogram) {
	for i, n := range o {
		h[i] += n
	}
}

func (h *histogram) n() (n uint64) {
	for _, c := range h {
		n += uint64(c)
	}
	return n
}

// quantile is within a 90th of the true one; 0 when there is none, or less than a millisecond.
func (h *histogram) quantile(q float64) time.Duration {
	total := h.n()
	if total == 0 {
		return 0
	}
	want := uint64(q*float64(total-1)) + 1
	var n uint64
	for i, c := range h {
		if n += uint64(c); n >= want {
			if i == 0 {
				return 0
			}
			return time.Duration(float64(edges[i]) / math.Sqrt(ratio))
		}
	}
	return edges[buckets-1]
}
