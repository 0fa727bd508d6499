// Package config turns the environment into a checked configuration. It promises that a program starts with values that
// can keep vingate's promises together, or says everything that is wrong in one error: each variable, what stands in it
// (never of a secret), what is wrong and what to do. An empty variable counts as unset and takes its default.
package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"vingate/internal/gate"
	"vingate/internal/vpic"
)

// Gate is what tools need that make, show or change the shared budget.
type Gate struct {
	CoordinationTable string
	ResultsTable      string
	MetricsNamespace  string
	Knobs             gate.Knobs
}

// Rate is a token bucket's pace: calls a second, and how many may come at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Secret is a value that no format verb and no log shows.
type Secret []byte

func (s Secret) String() string   { return fmt.Sprintf("(%d bytes, not shown)", len(s)) }
func (s Secret) GoString() string { return s.String() }

// Format also keeps %x, %d and the like from showing the bytes.
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(s.String())) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Config is the whole configuration of a function.
type Config struct {
	Gate

	UpstreamURL     string        // base of NHTSA's API, without a slash at the end
	UpstreamTimeout time.Duration // of one call, from dial to the last byte
	UpstreamContact string        // mail or URL for the User-Agent, may be empty

	MaxWait         time.Duration // of an interactive caller in the queue
	MaxWaitBatch    time.Duration // of a batch
	BulkheadWait    time.Duration // for a place of one's own key
	RequestDeadline time.Duration // bounds everything one request does

	Tenant         Rate // of a caller with an API key
	Anon           Rate // of one client address without a key
	BatchTokenCost int  // tokens for every 10 VINs begun in a batch
	TenantHashKey  Secret

	CORSOrigins []string // whose scripts may read answers, in lower case, or "*"; none when empty

	CacheTTL     time.Duration // hard end of a stored answer
	CacheSoftTTL time.Duration // from then on it is refreshed when there is room
	NegativeTTL  time.Duration // of "not in NHTSA's data"
	CacheMemory  int64         // bytes of answers an instance keeps in memory
}

// Variable describes one environment variable.
type Variable struct {
	Name        string
	Default     string // "" when there is none
	Description string
	Secret      bool // never shown
	Required    bool // must be set for functions
}

// The names, in the order in which documents list them.
const (
	upstreamURL         = "UPSTREAM_URL"
	upstreamTimeout     = "UPSTREAM_TIMEOUT"
	upstreamContact     = "UPSTREAM_CONTACT"
	coordinationTable   = "COORDINATION_TABLE"
	resultsTable        = "RESULTS_TABLE"
	maxInFlight         = "MAX_IN_FLIGHT"
	ratePerSecond       = "RATE_PER_SECOND"
	rateBurst           = "RATE_BURST"
	maxQueued           = "MAX_QUEUED"
	maxWait             = "MAX_WAIT"
	maxWaitBatch        = "MAX_WAIT_BATCH"
	bulkheadInteractive = "BULKHEAD_INTERACTIVE"
	bulkheadBatch       = "BULKHEAD_BATCH"
	bulkheadAnon        = "BULKHEAD_ANON"
	bulkheadWait        = "BULKHEAD_WAIT"
	keySlots            = "KEY_SLOTS"
	batchSlots          = "BATCH_SLOTS"
	tenantRate          = "TENANT_RATE_PER_SECOND"
	tenantBurst         = "TENANT_BURST"
	anonRate            = "ANON_RATE_PER_SECOND"
	anonBurst           = "ANON_BURST"
	leaseTTL            = "LEASE_TTL"
	clockSkewBound      = "CLOCK_SKEW_BOUND"
	startGrace          = "START_GRACE"
	requestDeadline     = "REQUEST_DEADLINE"
	cacheTTL            = "CACHE_TTL"
	cacheSoftTTL        = "CACHE_SOFT_TTL"
	negativeTTL         = "NEGATIVE_TTL"
	cacheMemory         = "CACHE_MEMORY"
	batchTokenCost      = "BATCH_TOKEN_COST"
	tenantHashKey       = "TENANT_HASH_KEY"
	corsOrigins         = "CORS_ORIGINS"
	metricsNamespace    = "METRICS_NAMESPACE"
)

// Variables lists every variable this package reads, so that documents and templates can be held against it.
func Variables() []Variable {
	return []Variable{
		{Name: upstreamURL, Default: "https://vpic.nhtsa.dot.gov/api/vehicles", Description: "base URL of NHTSA's API, or of a stand-in"},
		{Name: upstreamTimeout, Default: "10s", Description: "end of one upstream call, from dial to last byte; with START_GRACE it must fit into LEASE_TTL less twice CLOCK_SKEW_BOUND less 1s"},
		{Name: upstreamContact, Description: "mail address or URL of the operator, sent to NHTSA in the User-Agent"},
		{Name: coordinationTable, Default: "vingate-coordination", Description: "DynamoDB table of the shared budget and the tenants"},
		{Name: resultsTable, Default: "vingate-results", Description: "DynamoDB table of stored answers"},
		{Name: maxInFlight, Default: "4", Description: "upstream calls at once, from all instances together"},
		{Name: ratePerSecond, Default: "2", Description: "upstream calls a second, from all instances together"},
		{Name: rateBurst, Default: "10", Description: "upstream calls in any window beyond RATE_PER_SECOND x window"},
		{Name: maxQueued, Default: "24", Description: "callers that may wait for a place at NHTSA"},
		{Name: maxWait, Default: "3s", Description: "longest wait of a single decode for its place"},
		{Name: maxWaitBatch, Default: "15s", Description: "longest wait of a batch for its place"},
		{Name: bulkheadInteractive, Default: "8", Description: "single decodes of one API key, waiting or live"},
		{Name: bulkheadBatch, Default: "2", Description: "batches of one caller, waiting or live"},
		{Name: bulkheadAnon, Default: "16", Description: "single decodes of all callers without a key together, waiting or live; one client address holds at most 4 of them"},
		{Name: bulkheadWait, Default: "2s", Description: "longest wait for one of one's own places"},
		{Name: keySlots, Description: "upstream calls one key may have live at once; unset: one less than MAX_IN_FLIGHT"},
		{Name: batchSlots, Description: "upstream calls all batches may have live at once; unset: half of MAX_IN_FLIGHT"},
		{Name: tenantRate, Default: "1", Description: "decodes a second of one API key"},
		{Name: tenantBurst, Default: "20", Description: "decodes of one API key that may come at once"},
		{Name: anonRate, Default: "1", Description: "decodes a second of one client address without a key"},
		{Name: anonBurst, Default: "20", Description: "decodes of one client address without a key that may come at once"},
		{Name: leaseTTL, Default: "15s", Description: "after this a crashed instance's slot is free again"},
		{Name: clockSkewBound, Default: "250ms", Description: "how far any instance's clock may be off"},
		{Name: startGrace, Default: "250ms", Description: "a granted call that has not started by then is abandoned"},
		{Name: requestDeadline, Default: "27s", Description: "bounds everything one request does"},
		{Name: cacheTTL, Default: "720h", Description: "a stored answer is gone after this"},
		{Name: cacheSoftTTL, Default: "168h", Description: "a stored answer older than this is refreshed when there is room"},
		{Name: negativeTTL, Default: "24h", Description: "life of a stored \"not in NHTSA's data\""},
		{Name: cacheMemory, Default: "16", Description: "MiB of stored answers that an instance keeps in memory, about 1,000 in each; 0: none"},
		{Name: batchTokenCost, Default: "1", Description: "tokens for every 10 VINs begun in a batch call"},
		{Name: tenantHashKey, Secret: true, Required: true, Description: "secret key of the hash under which callers are known, at least 16 bytes"},
		{Name: corsOrigins, Description: "origins whose scripts may read answers, as a list with commas, or * for all"},
		{Name: metricsNamespace, Default: "vingate", Description: "CloudWatch namespace of the metrics"},
	}
}

// GateVariables lists what LoadGate reads: for a function that keeps the shared budget and answers nobody.
func GateVariables() []Variable {
	var out []Variable
	for _, v := range Variables() {
		if slices.Contains(knobVariables, v.Name) || slices.Contains([]string{coordinationTable, resultsTable, metricsNamespace}, v.Name) {
			out = append(out, v)
		}
	}
	return out
}

// Load reads the configuration of a function. The error is a *Error and holds every fault.
func Load(getenv func(string) string) (Config, error) {
	r := newReader(getenv)
	cfg := Config{Gate: r.gate()}
	cfg.UpstreamURL = r.url(upstreamURL)
	cfg.UpstreamTimeout = r.duration(upstreamTimeout, 100*time.Millisecond, time.Minute)
	cfg.UpstreamContact = r.contact(upstreamContact)
	cfg.MaxWait = r.duration(maxWait, 0, time.Minute)
	cfg.MaxWaitBatch = r.duration(maxWaitBatch, 0, time.Minute)
	cfg.BulkheadWait = r.duration(bulkheadWait, 0, time.Minute)
	cfg.RequestDeadline = r.duration(requestDeadline, time.Second, longestRequest)
	cfg.Tenant = Rate{r.number(tenantRate, 0.001, 1000), r.integer(tenantBurst, 1, 10000)}
	cfg.Anon = Rate{r.number(anonRate, 0.001, 1000), r.integer(anonBurst, 1, 10000)}
	cfg.BatchTokenCost = r.integer(batchTokenCost, 1, 100)
	cfg.TenantHashKey = r.secret(tenantHashKey, 16)
	cfg.CORSOrigins = r.origins(corsOrigins)
	cfg.CacheTTL = r.duration(cacheTTL, time.Second, 10*365*24*time.Hour)
	cfg.CacheSoftTTL = r.duration(cacheSoftTTL, time.Second, 10*365*24*time.Hour)
	cfg.NegativeTTL = r.duration(negativeTTL, time.Second, 10*365*24*time.Hour)
	cfg.CacheMemory = int64(r.integer(cacheMemory, 0, 1024)) << 20
	r.together(cfg)
	return cfg, r.err()
}

// LoadGate reads what tools need for the tables and the budget. The error is a *Error and holds every fault.
func LoadGate(getenv func(string) string) (Gate, error) {
	r := newReader(getenv)
	g := r.gate()
	return g, r.err()
}

// longestRequest is one second below API Gateway's cap for an HTTP API with room for the answer.
const longestRequest = 29 * time.Second

// AfterCall is kept free of REQUEST_DEADLINE after the upstream call: the release takes up to 1 s, and then storing the
// answer, or looking at the pause that a failure began, takes up to 700 ms.
const AfterCall = 2 * time.Second

// beforeCall is kept free in front of it for the stored answer and the admission, when nobody has to wait.
const beforeCall = time.Second

// piecesInFullBatch: a batch call carries up to 50 VINs and costs BATCH_TOKEN_COST for every 10 begun.
const piecesInFullBatch = 5

func (r *reader) gate() Gate {
	g := Gate{CoordinationTable: r.table(coordinationTable), ResultsTable: r.table(resultsTable), MetricsNamespace: r.namespace(metricsNamespace), Knobs: r.knobs()}
	if r.sound(coordinationTable, resultsTable) && g.CoordinationTable == g.ResultsTable {
		r.fault(resultsTable, "is the same table as COORDINATION_TABLE", "use two tables, so that stored answers can never throttle the shared budget")
	}
	// A knob that cannot be read stands at its default while the others are looked at, so that all their faults are told at once, but for
	// those that hang on it: there the verdict would mislead.
	rest := newReader(func(name string) string {
		if !r.sound(name) {
			return ""
		}
		return r.getenv(name)
	}).knobs()
	faults := slices.DeleteFunc(rest.Validate(), func(f gate.Fault) bool { return !r.sound(f.Knob) || !r.sound(hangsOn[f.Knob]...) })
	for _, f := range faults {
		r.fault(f.Knob, f.Problem, "")
	}
	return g
}

// knobs reads the numbers of the shared budget. The bounds here keep the arithmetic sound; what the numbers mean together is the gate's own
// check.
func (r *reader) knobs() gate.Knobs {
	return gate.Knobs{
		MaxInFlight:         r.integer(maxInFlight, 1, 1e6),
		RatePerSecond:       r.number(ratePerSecond, 1e-6, 1e6),
		Burst:               r.integer(rateBurst, 1, 1e6),
		KeySlots:            r.integer(keySlots, 0, 1e6),
		BatchSlots:          r.integer(batchSlots, 0, 1e6),
		MaxQueued:           r.integer(maxQueued, 0, 1e6),
		BulkheadInteractive: r.integer(bulkheadInteractive, 1, 1e6),
		BulkheadBatch:       r.integer(bulkheadBatch, 1, 1e6),
		BulkheadAnon:        r.integer(bulkheadAnon, 1, 1e6),
		LeaseTTL:            r.duration(leaseTTL, time.Millisecond, 24*time.Hour),
		SkewBound:           r.duration(clockSkewBound, 0, time.Hour),
		StartGrace:          r.duration(startGrace, 0, time.Hour),
		Attempt:             gate.Attempt,
	}
}

// knobVariables are the ones gate.Knobs.Validate looks at.
var knobVariables = []string{maxInFlight, ratePerSecond, rateBurst, keySlots, batchSlots, maxQueued,
	bulkheadInteractive, bulkheadBatch, bulkheadAnon, leaseTTL, clockSkewBound, startGrace}

// hangsOn lists which other knobs decide whether one is at fault.
var hangsOn = map[string][]string{
	rateBurst:  {ratePerSecond, clockSkewBound, startGrace},
	keySlots:   {maxInFlight},
	batchSlots: {maxInFlight},
	leaseTTL:   {clockSkewBound, startGrace},
}

// together checks what concerns more than one variable. Variables that are already at fault are left alone.
func (r *reader) together(c Config) {
	r.callWithinLease(c)
	if r.sound(requestDeadline, upstreamTimeout, maxWait, maxWaitBatch) {
		longest, name := c.MaxWait, maxWait
		if c.MaxWaitBatch > longest {
			longest, name = c.MaxWaitBatch, maxWaitBatch
		}
		need := max(longest, beforeCall) + c.UpstreamTimeout + AfterCall
		switch {
		case c.RequestDeadline >= need:
		case longest > beforeCall:
			r.fault(requestDeadline,
				fmt.Sprintf("nobody could wait for the whole of %s: with UPSTREAM_TIMEOUT and %v for release and store a request takes up to %v", name, AfterCall, need),
				"raise it (at most "+longestRequest.String()+") or lower "+name)
		default:
			r.fault(requestDeadline,
				fmt.Sprintf("leaves no time for a call: with %v before UPSTREAM_TIMEOUT and %v after it a request takes up to %v", beforeCall, AfterCall, need),
				"raise it (at most "+longestRequest.String()+") or lower UPSTREAM_TIMEOUT")
		}
	}
	if r.sound(cacheTTL, cacheSoftTTL) && c.CacheSoftTTL > c.CacheTTL {
		r.fault(cacheSoftTTL, "is longer than CACHE_TTL ("+c.CacheTTL.String()+")", "lower it")
	}
	r.fullBatchWithinBudget(c)
	if !r.sound(batchTokenCost) {
		return
	}
	full := piecesInFullBatch * c.BatchTokenCost
	for _, b := range []struct {
		name  string
		burst int
	}{{tenantBurst, c.Tenant.Burst}, {anonBurst, c.Anon.Burst}} {
		if r.sound(b.name) && full > b.burst {
			r.unmet(c, fmt.Sprintf("%s (%d)", b.name, b.burst), b.name, full)
		}
	}
}

// callWithinLease checks that no call outlives its lease.
func (r *reader) callWithinLease(c Config) {
	if !r.sound(upstreamTimeout, leaseTTL, clockSkewBound, startGrace) {
		return
	}
	k := c.Knobs
	if room := k.LeaseTTL - 2*k.SkewBound - gate.Margin - k.StartGrace; c.UpstreamTimeout > room {
		r.fault(upstreamTimeout,
			fmt.Sprintf("a call could outlive its lease: LEASE_TTL less twice CLOCK_SKEW_BOUND, START_GRACE and %v leaves %v", gate.Margin, room),
			"lower it or raise LEASE_TTL")
	}
}

// fullBatchWithinBudget checks that the shared bucket can meet the dearest batch.
func (r *reader) fullBatchWithinBudget(c Config) {
	full, k := piecesInFullBatch*c.BatchTokenCost, c.Knobs
	if !r.sound(knobVariables...) || !r.sound(batchTokenCost) || k.Bucket().Fits(full) {
		return
	}
	for k.Burst++; !k.Bucket().Fits(full); k.Burst++ { // each token more is one more: a few steps
	}
	r.unmet(c, fmt.Sprintf("RATE_BURST (%d), of which clocks and delays take their part", c.Knobs.Burst), rateBurst, k.Burst)
}

// unmet is the fault of a bucket that can never meet the dearest batch.
func (r *reader) unmet(c Config, by, burst string, least int) {
	fix := fmt.Sprintf("raise %s to at least %d", burst, least)
	if c.BatchTokenCost > 1 {
		fix = "lower it or " + fix
	}
	r.fault(batchTokenCost, fmt.Sprintf("a batch of 50 costs %d tokens and could never be met by %s", piecesInFullBatch*c.BatchTokenCost, by), fix)
}

// spelled says whether a text has a length and no other characters than letters, digits and those of more. (A regular expression with such
// counts takes most of a millisecond to make, at every start of a function.)
func spelled(s, more string, least, most int) bool {
	return len(s) >= least && len(s) <= most && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c)
	})
}

func (r *reader) table(name string) string {
	v := r.text(name)
	if !spelled(v, "_.-", 3, 255) {
		r.fault(name, "is not a DynamoDB table name", "use 3 to 255 of a-z, A-Z, 0-9, '_', '-' and '.'")
	}
	return v
}

func (r *reader) namespace(name string) string {
	v := r.text(name)
	if !spelled(v, "._/#:-", 1, 250) || strings.HasPrefix(v, "AWS/") {
		r.fault(name, "is not a CloudWatch namespace", "use 1 to 250 of a-z, A-Z, 0-9, '.', '_', '/', '#', ':' and '-', and do not begin with AWS/")
	}
	return v
}

func (r *reader) url(name string) string {
	v := r.text(name)
	if err := vpic.CheckBaseURL(v); err != nil {
		r.fault(name, err.Error(), "give scheme, host and path only"+r.example(name))
	}
	return strings.TrimRight(v, "/")
}

// origins reads a list of origins as browsers send them: scheme, host and a port that is not the scheme's own.
func (r *reader) origins(name string) []string {
	var list []string
	for s := range strings.SplitSeq(r.text(name), ",") {
		if s = strings.ToLower(strings.TrimSpace(s)); s == "" {
			continue
		}
		u, err := url.Parse(s)
		if s != "*" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || s != u.Scheme+"://"+u.Host ||
			u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" || strings.HasSuffix(u.Host, ":")) {
			r.fault(name, "has an entry that is no origin", "give scheme and host as a browser sends them, such as https://www.example.org, and a port only where it is not the usual one")
			return nil
		}
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		r.fault(name, "has * beside other origins", "leave the others out, or *")
		return nil
	}
	return list
}

func (r *reader) contact(name string) string {
	v := r.text(name)
	if err := vpic.CheckContact(v); err != nil {
		r.fault(name, err.Error(), "use a mail address or a URL alone, such as ops@example.org")
	}
	return v
}
