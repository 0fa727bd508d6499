// Package simulate runs vingate in virtual time: many instances, a network, DynamoDB, NHTSA, and those who ask. What decides about a request
// are the same pure functions that decide in the product: package gate for admission, line, release and places, package tenant for a
// caller's own bucket. How an instance uses them (ages of views, shyness, quiet, waiting) is package gate's policy, and the order of the lanes is
// that of package decode.
//
// It promises that the same model gives the same report to the last number, that a refusal it takes from memory is the one that the core
// would give (a test runs it both ways), and that what it does not model is said in the report: NotModelled.
package simulate

import (
	"errors"
	"fmt"
	"time"

	"vingate/internal/gate"
	"vingate/internal/tenant"
)

// Setup is what is simulated. New has the defaults.
type Setup struct {
	Seed uint64
	For  time.Duration // how long requests come

	Gates int // each with a budget of its own; instances use them in turn
	Knobs gate.Knobs

	MaxWait, MaxWaitBatch, BulkheadWait time.Duration
	UpstreamTimeout, RequestDeadline    time.Duration
	BatchTokenCost                      int
	Keyed, Anonymous                    tenant.Plan
	CacheTTL, CacheSoftTTL              time.Duration

	Instances   int           // at most
	Warm        int           // of these when it begins; another starts when all are busy
	Concurrency int           // requests at once in each; Lambda has 1
	WireLeast   time.Duration // one way between an instance and DynamoDB, at least
	WireMost    time.Duration // and at most
	Lag         time.Duration // how old an eventually consistent read may be
	ClockError  time.Duration // each instance's clock is off by up to this
	Work        time.Duration // an instance's own time for a request

	Upstream Latency
	Failing  float64   // share of the calls that fail hard
	Troubles []Trouble // what NHTSA does besides

	VINs   int     // different ones that are asked for; 0: each request another
	Zipf   float64 // how much more often the popular ones are: 0 is equally often
	Stored float64 // share of the requests whose answer is stored when it begins, of any age up to CacheSoftTTL

	Streams []Stream

	// What one item of DynamoDB takes in a second, in units; more is throttled. 0: no bound.
	ItemReads, ItemWrites float64

	check func(what string, got, want any) // of what is taken from memory
}

// Fixed parts of the product that the model repeats.
const (
	afterCall    = 2 * time.Second // config.AfterCall
	leastCall    = 2 * time.Second // decode: the least time worth starting a call with
	gateAttempts = time.Second     // decode: kept for the gate's own calls beyond the wait
	leastWatch   = 50 * time.Millisecond
	mostWatch    = 250 * time.Millisecond
	accountAge   = time.Second // tenant/dynamo: a tenant is let through on a view no older than this
	tableAtOnce  = 10          // decode: rows read or written at the same time for a batch
	piece        = 10          // VINs that cost BatchTokenCost, once begun
	mostBatch    = 50
	promiseRest  = time.Second // gate/dynamo: how long the promise is left alone after it failed

	acquireBudget, lookBudget = 700 * time.Millisecond, 700 * time.Millisecond // gate/dynamo: of the way in, and of a look

	flightSlack = 500 * time.Millisecond // decode: what a flight may take beyond its waits, its call and what follows
	idleLook    = time.Second            // decode: a stale answer is shown so long without a look where its caller alone is why it is not refreshed
	refreshRest = time.Minute            // results.RestTime: an answer is left alone so long that could not be refreshed
	lookAgain   = time.Second            // results: a stale answer is shown so long without a look while somebody else refreshes it
	retryFault  = 5 * time.Second        // decode: when to come back after a failed call

	mostTime     = 31 * 24 * time.Hour // the longest run
	mostRequests = 1e9                 // in it: a million takes a second or so

	// A partition of DynamoDB, and so an item, takes so much in a second.
	ItemReadUnits, ItemWriteUnits = 3000, 1000
)

// NotModelled is said wherever a report is shown.
var NotModelled = []string{
	"the time of a cold start; a request goes to any instance that is free, another starts when none is, and none goes away",
	"an instance's memory of answers is the one Lambda's default is",
	"lost answers, crashes and frozen processes: make chaos has them",
	"VINs that NHTSA does not know, or does not answer in time again and again; identical VINs in a batch; follow-up years",
	"monthly costs of what does not depend on traffic (alarms, dashboard, NAT)",
}

// Check says everything that is wrong with a model.
func (m Setup) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, f := range m.Knobs.Validate() {
		fault("%v", f)
	}
	between := func(name string, n, lo, hi int) {
		if n < lo || n > hi {
			fault("%s: %d is not between %d and %d", name, n, lo, hi)
		}
	}
	between("gates", m.Gates, 1, 1000)
	between("instances", m.Instances, 1, 100_000)
	between("concurrency", m.Concurrency, 1, 1000)
	between("vins", m.VINs, 0, 100_000_000)
	if m.Gates > m.Instances {
		fault("%d gates are more than the %d instances", m.Gates, m.Instances)
	}
	if m.For < time.Second || m.For > mostTime {
		fault("for: %v is not between 1s and 31 days", m.For)
	}
	if !(m.Zipf >= 0 && m.Zipf <= 3) {
		fault("zipf: %v is not between 0 and 3", m.Zipf)
	}
	if !(m.Stored >= 0 && m.Stored <= 1) {
		fault("stored: %v is no share", m.Stored)
	}
	if !(m.Failing >= 0 && m.Failing <= 1) {
		fault("failing: %v is no share", m.Failing)
	}
	if m.WireLeast < 0 || m.WireMost < m.WireLeast || m.WireMost > gate.Attempt/2 {
		fault("wire: %v to %v: an attempt lasts %v", m.WireLeast, m.WireMost, gate.Attempt)
	}
	if m.Lag < 0 || m.Lag > 10*time.Second {
		fault("lag: %v is not between 0 and 10s", m.Lag)
	}
	if m.Work < 0 || m.Work > m.RequestDeadline {
		fault("work: %v is not between 0 and REQUEST_DEADLINE (%v)", m.Work, m.RequestDeadline)
	}
	if m.Warm < 0 {
		fault("warm: %d instances are none", m.Warm)
	}
	if m.ClockError < 0 || m.ClockError > m.Knobs.SkewBound {
		fault("clock error: %v is beyond CLOCK_SKEW_BOUND (%v), where an instance refuses to work", m.ClockError, m.Knobs.SkewBound)
	}
	if m.Keyed.RatePerSecond <= 0 || m.Keyed.Burst < 1 || m.Anonymous.RatePerSecond <= 0 || m.Anonymous.Burst < 1 {
		fault("the plans of keyed and anonymous callers need a rate and a burst")
	}
	if m.Upstream.Kind == "" {
		fault("upstream: it has no latency")
	}
	if m.CacheTTL < time.Second || m.CacheSoftTTL < time.Second || m.CacheSoftTTL > m.CacheTTL {
		fault("cache: answers are fresh for %v and stored for %v", m.CacheSoftTTL, m.CacheTTL)
	}
	for _, t := range m.Troubles {
		if err := t.Check(); err != nil {
			faults = append(faults, err)
		} else if t.At >= m.For {
			fault("%s: it comes first after %v, and all is over after %v", t.Kind, t.At, m.For)
		}
	}
	if len(m.Streams) == 0 {
		fault("nobody asks anything: there is no traffic")
	}
	tenants, requests := 0, 0.0
	for _, s := range m.Streams {
		if err := s.Check(); err != nil {
			faults = append(faults, err)
		} else if s.From >= m.For {
			fault("%s: it begins after %v, and all is over after %v", s.Name, s.From, m.For)
		} else {
			requests += s.requests(m.For)
		}
		tenants += s.Tenants
	}
	if requests > mostRequests {
		fault("%.0f million requests take hours; with less load or a shorter time, %.0f million do not", requests/1e6, mostRequests/1e6)
	}
	between("tenants of all streams", tenants, 0, 10_000_000)
	return errors.Join(faults...)
}

// batchCost is what a call for n VINs takes of a bucket.
func (m Setup) batchCost(n int) int { return max(1, m.BatchTokenCost) * ((n + piece - 1) / piece) }
