package gate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"vingate/internal/gcra"
)

// Attempt is how old a stamped write may be when it meets the state: the store gives one attempt this long (P2's term a).
const Attempt = 120 * time.Millisecond

// Margin is kept between the end of an upstream call and the end of its lease, beyond the clocks' skew.
const Margin = time.Second

// leastCall is the least time a lease must leave for its call, after the latest start.
const leastCall = 100 * time.Millisecond

// maxSlots bounds MaxInFlight, so that all dead leases fit into one reclaiming write. NHTSA's courtesy share is 2-6.
const maxSlots = 64

// Knobs are the numbers all instances must agree on. They live in the gate itself, under a version, so that a change
// takes effect together with the next admission, everywhere.
type Knobs struct {
	MaxInFlight   int     // slots
	RatePerSecond float64 // upstream calls
	Burst         int     // calls in any window beyond rate x window

	KeySlots   int // live slots of one key; 0: one less than the limit
	BatchSlots int // live slots of all batch keys; 0: half of MaxInFlight

	MaxQueued                                        int // tickets waiting
	BulkheadInteractive, BulkheadBatch, BulkheadAnon int // places of a key, queued or live

	LeaseTTL   time.Duration
	SkewBound  time.Duration // how far any instance's clock may be off
	StartGrace time.Duration // from the grant's answer to the start of the call
	Attempt    time.Duration // see the constant
}

// Fault is one thing wrong with the knobs.
type Fault struct {
	Knob    string // the environment variable
	Problem string // what is wrong and what to do
}

func (f Fault) String() string { return f.Knob + ": " + f.Problem }

// Faulty is the error of knobs with faults, all of them in one message; nil for none.
func Faulty(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	var all []string
	for _, f := range faults {
		all = append(all, f.String())
	}
	return errors.New(strings.Join(all, "; "))
}

// T is the time for one token, rounded up: a rate is never exceeded by rounding, however long the window.
func (k Knobs) T() time.Duration {
	return time.Duration(math.Ceil(1e6/k.RatePerSecond)) * time.Microsecond
}

// uncertainty is what P2 takes out of the burst besides Tau and H.
func (k Knobs) uncertainty() time.Duration { return 2*k.SkewBound + k.Attempt + k.StartGrace }

// Bucket is the shared token bucket that keeps P2 with these knobs.
func (k Knobs) Bucket() gcra.Bucket {
	budget := time.Duration(k.Burst-1)*k.T() - k.uncertainty()
	h := min(budget/3, k.SkewBound+k.Attempt)
	return gcra.Bucket{T: k.T().Microseconds(), Tau: (budget - h).Microseconds(), H: h.Microseconds()}
}

// keySlots is how many of the live slots one key may hold under a limit (P3).
func (k Knobs) keySlots(limit int) int {
	n := max(1, limit-1)
	if k.KeySlots > 0 {
		n = min(n, k.KeySlots)
	}
	return n
}

// batchSlots is how many of the live slots all batch keys may hold under a limit.
func (k Knobs) batchSlots(limit int) int {
	n := k.BatchSlots
	if n == 0 {
		n = k.MaxInFlight / 2
	}
	return max(1, min(n, limit-1))
}

// ceiling is the number of places of a key.
func (k Knobs) ceiling(key Key) int {
	switch {
	case key.Route == Batch:
		return k.BulkheadBatch
	case key.Tenant == Anonymous:
		return k.BulkheadAnon
	}
	return k.BulkheadInteractive
}

// Validate returns every fault at once; none means the promises can be kept with these knobs.
func (k Knobs) Validate() []Fault {
	var faults []Fault
	fault := func(knob, format string, args ...any) {
		faults = append(faults, Fault{knob, fmt.Sprintf(format, args...)})
	}
	between := func(knob string, n, lo, hi int) {
		if n < lo || n > hi {
			fault(knob, "%d is not between %d and %d", n, lo, hi)
		}
	}
	duration := func(knob string, d, lo, hi time.Duration) bool {
		if d < lo || d > hi {
			fault(knob, "%v is not between %v and %v", d, lo, hi)
			return false
		}
		return true
	}
	between("MAX_IN_FLIGHT", k.MaxInFlight, 1, maxSlots)
	between("KEY_SLOTS", k.KeySlots, 0, max(1, k.MaxInFlight-1))
	between("BATCH_SLOTS", k.BatchSlots, 0, max(1, k.MaxInFlight-1))
	between("MAX_QUEUED", k.MaxQueued, 0, 64)
	between("BULKHEAD_INTERACTIVE", k.BulkheadInteractive, 1, 1000)
	between("BULKHEAD_BATCH", k.BulkheadBatch, 1, 1000)
	between("BULKHEAD_ANON", k.BulkheadAnon, 1, 1000)
	clocks := duration("CLOCK_SKEW_BOUND", k.SkewBound, 0, 10*time.Second)
	clocks = duration("START_GRACE", k.StartGrace, 0, 10*time.Second) && clocks
	clocks = duration("LEASE_TTL", k.LeaseTTL, 2*k.SkewBound+Margin+k.StartGrace+k.Attempt+leastCall, 15*time.Minute) && clocks
	if k.Attempt < 0 || k.Attempt > time.Second {
		fault("gate attempt", "%v is not between 0 and 1s", k.Attempt)
		clocks = false
	}
	if !(k.RatePerSecond >= 0.001 && k.RatePerSecond <= 1000) { // also refuses NaN
		fault("RATE_PER_SECOND", "%v is not between 0.001 and 1000 calls a second", k.RatePerSecond)
		return faults
	}
	if k.Burst < 1 || k.Burst > 10000 {
		fault("RATE_BURST", "%d is not between 1 and 10000", k.Burst)
		return faults
	}
	if short := k.uncertainty() - time.Duration(k.Burst-1)*k.T(); clocks && short > 0 {
		least := 1 + int(math.Ceil(float64(k.uncertainty())/float64(k.T())))
		fault("RATE_BURST", "%d leaves no room for clocks and delays at %v calls a second: no window could be kept. "+
			"Use at least %d (twice that gives bursts room), a lower RATE_PER_SECOND, or tighter CLOCK_SKEW_BOUND and START_GRACE",
			k.Burst, k.RatePerSecond, least)
	}
	return faults
}

// knob is one of the knobs, under its environment variable.
type knob struct {
	name  string
	value any // *int, *float64 or *time.Duration
}

// all is the order of the numbers in Pack; only ever appended to.
func (k *Knobs) all() []knob {
	return []knob{
		{"MAX_IN_FLIGHT", &k.MaxInFlight}, {"RATE_PER_SECOND", &k.RatePerSecond}, {"RATE_BURST", &k.Burst},
		{"KEY_SLOTS", &k.KeySlots}, {"BATCH_SLOTS", &k.BatchSlots}, {"MAX_QUEUED", &k.MaxQueued},
		{"BULKHEAD_INTERACTIVE", &k.BulkheadInteractive}, {"BULKHEAD_BATCH", &k.BulkheadBatch}, {"BULKHEAD_ANON", &k.BulkheadAnon},
		{"LEASE_TTL", &k.LeaseTTL}, {"CLOCK_SKEW_BOUND", &k.SkewBound}, {"START_GRACE", &k.StartGrace}, {"gate attempt", &k.Attempt},
	}
}

// Named is one knob as text, under its environment variable.
type Named struct{ Knob, Value string }

// Named lists the knobs for people, in a fixed order.
func (k Knobs) Named() []Named {
	var out []Named
	for _, n := range k.all() {
		value := ""
		switch v := n.value.(type) {
		case *int:
			value = strconv.Itoa(*v)
		case *float64:
			value = strconv.FormatFloat(*v, 'g', -1, 64)
		case *time.Duration:
			value = v.String()
		}
		out = append(out, Named{n.name, value})
	}
	return out
}

// Pack writes the knobs in the few bytes that the gate item has for them. Durations are whole milliseconds.
func (k Knobs) Pack() string {
	var parts []string
	for _, n := range k.all() {
		switch v := n.value.(type) {
		case *int:
			parts = append(parts, strconv.Itoa(*v))
		case *float64:
			parts = append(parts, strconv.FormatFloat(*v, 'g', -1, 64))
		case *time.Duration:
			parts = append(parts, strconv.FormatInt(v.Milliseconds(), 10))
		}
	}
	return strings.Join(parts, ",")
}

// UnpackKnobs is the inverse of Pack. Knobs that would break a promise are an error, never used.
func UnpackKnobs(s string) (Knobs, error) {
	var k Knobs
	fields, parts := k.all(), strings.Split(s, ",")
	if len(parts) != len(fields) {
		return Knobs{}, fmt.Errorf("gate knobs %q: %d numbers where %d belong", s, len(parts), len(fields))
	}
	for i, n := range fields {
		var err error
		switch p := n.value.(type) {
		case *int:
			*p, err = strconv.Atoi(parts[i])
		case *float64:
			*p, err = strconv.ParseFloat(parts[i], 64)
		case *time.Duration:
			var ms int64
			if ms, err = strconv.ParseInt(parts[i], 10, 64); ms > math.MaxInt32 || ms < math.MinInt32 {
				err = strconv.ErrRange
			}
			*p = time.Duration(ms) * time.Millisecond
		}
		if err != nil {
			return Knobs{}, fmt.Errorf("gate knobs %q: %s: %w", s, n.name, err)
		}
	}
	if err := Faulty(k.Validate()); err != nil {
		return Knobs{}, fmt.Errorf("gate knobs %q: %w", s, err)
	}
	return k, nil
}

// Differences lists where these knobs, an environment's, are not the ones in force in a gate, which are what counts.
func (k Knobs) Differences(inForce Knobs) []string {
	var out []string
	held := inForce.Named()
	for i, asked := range k.Named() {
		if asked.Value != held[i].Value {
			out = append(out, fmt.Sprintf("%s is %s in the gate, %s in the environment", asked.Knob, held[i].Value, asked.Value))
		}
	}
	return out
}
