package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is one way to go wrong.
type Kind string

// The kinds. Those with a status send HTML and a Retry-After if the rule has one.
const (
	HTTP429      Kind = "http-429"       // throttled
	HTTP403      Kind = "http-403"       // blocked
	HTTP503      Kind = "http-503"       // maintenance
	HTTP504      Kind = "http-504"       // the gateway got no answer
	XML          Kind = "xml"            // XML although another format was asked for
	Truncated    Kind = "truncated"      // a complete HTTP message with half of the body's text
	ShortBody    Kind = "short-body"     // the connection ends in the middle of the body
	Reset        Kind = "reset"          // the connection is reset before the answer
	ResetMidBody Kind = "reset-mid-body" // the connection is reset in the middle of the body
	WrongVIN     Kind = "wrong-vin"      // a row has another VIN
	ErrorMessage Kind = "error-message"  // 200 with an ERROR message and no rows
	SlowBody     Kind = "slow-body"      // the body drips
	Hang         Kind = "hang"           // no answer until the caller gives up
)

var kinds = []Kind{HTTP429, HTTP403, HTTP503, HTTP504, XML, Truncated, ShortBody, Reset, ResetMidBody, WrongVIN, ErrorMessage, SlowBody, Hang}

func (k Kind) hasStatus() bool {
	return k == HTTP429 || k == HTTP403 || k == HTTP503 || k == HTTP504
}

// Duration is a time.Duration written in Go's syntax, such as "1.5s".
type Duration time.Duration

// MarshalText writes Go's syntax.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads Go's syntax.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration; write it like \"1.5s\"", text)
	}
	*d = Duration(v)
	return nil
}

// Forms of a Retry-After.
const (
	AsSeconds = "seconds"
	AsDate    = "date"
)

// Faults is all that goes wrong on purpose. The zero value is a healthy service.
type Faults struct {
	// Seed makes probabilities and random latencies repeatable.
	Seed    uint64   `json:"seed,omitempty"`
	Latency *Latency `json:"latency,omitempty"`
	Quota   *Quota   `json:"quota,omitempty"`
	// Rules are asked in order for every call that the quota lets in, after its
	// latency. The first that applies decides the answer.
	Rules []Rule `json:"rules,omitempty"`
}

// Latency is how long a call waits before it is answered.
//
//	{"distribution":"fixed","value":"200ms"}
//	{"distribution":"uniform","min":"100ms","max":"300ms"}
//	{"distribution":"lognormal","median":"600ms","sigma":0.5,"max":"10s"}
type Latency struct {
	Distribution string   `json:"distribution"`
	Value        Duration `json:"value,omitzero"`
	Min          Duration `json:"min,omitzero"`
	Max          Duration `json:"max,omitzero"` // lognormal: longer ones are cut to it; 0 is maxWait
	Median       Duration `json:"median,omitzero"`
	Sigma        float64  `json:"sigma,omitempty"` // of the logarithm: 0.5 makes one in twenty 2.3 times the median
}

// Distributions of Latency.
const (
	Fixed     = "fixed"
	Uniform   = "uniform"
	Lognormal = "lognormal"
)

// Quota is the stand-in's own limit. A call above it is answered with 429 at once.
type Quota struct {
	RatePerSecond float64 `json:"ratePerSecond,omitempty"` // 0: any rate
	Burst         int     `json:"burst,omitempty"`         // calls at once when rested; at least 1 with a rate
	Concurrency   int     `json:"concurrency,omitempty"`   // calls at the same time; 0: any number
	RetryAfter
}

// RetryAfter is the header of that name. NHTSA has not been seen to send one.
type RetryAfter struct {
	After   *Duration `json:"retryAfter,omitempty"`   // nil: no header; whole seconds
	AfterAs string    `json:"retryAfterAs,omitempty"` // AsSeconds, which is the default, or AsDate
}

// Rule is one fault and when it happens: to every call, or to those that meet all
// of its conditions.
type Rule struct {
	Kind        Kind     `json:"kind"`
	Probability *float64 `json:"probability,omitempty"` // nil: 1
	Count       *int     `json:"count,omitempty"`       // only so many calls; the rest of it in an answer. nil: no end
	VIN         string   `json:"vin,omitempty"`         // calls with a VIN like this; '*' is any text, letter case does not matter
	RetryAfter           // http-* only
	Over        Duration `json:"over,omitzero"`     // slow-body: how long the body takes
	Message     string   `json:"message,omitempty"` // error-message: another text
}

// maxWait bounds every duration of a fault, and maxRules their number.
const (
	maxWait  = 10 * time.Minute
	maxRules = 1000
)

// ParseFaults reads Faults as JSON. All that is wrong is in the one error.
func ParseFaults(r io.Reader) (Faults, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var f Faults
	if err := d.Decode(&f); err != nil {
		return Faults{}, fmt.Errorf("faults: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Faults{}, errors.New("faults: more text behind the object")
	}
	return f, f.Validate()
}

// Validate names all that is wrong in one error.
func (f Faults) Validate() error {
	var problems []error
	report := func(where, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: "+format, append([]any{where}, args...)...))
	}
	if f.Latency != nil {
		f.Latency.validate(report)
	}
	if f.Quota != nil {
		f.Quota.validate(report)
	}
	if len(f.Rules) > maxRules {
		report("rules", "%d are more than %d", len(f.Rules), maxRules)
	}
	for i, r := range f.Rules {
		r.validate(func(field, format string, args ...any) {
			report(fmt.Sprintf("rules[%d].%s", i, field), format, args...)
		})
	}
	return errors.Join(problems...)
}

type reporter = func(where, format string, args ...any)

func inRange(d Duration) bool { return d >= 0 && time.Duration(d) <= maxWait }

func (l Latency) validate(report reporter) {
	for _, f := range []struct {
		name string
		d    Duration
	}{{"value", l.Value}, {"min", l.Min}, {"max", l.Max}, {"median", l.Median}} {
		if !inRange(f.d) {
			report("latency."+f.name, "must be from 0s to %s", maxWait)
		}
	}
	var plain Latency
	switch l.Distribution {
	case Fixed:
		plain = Latency{Distribution: Fixed, Value: l.Value}
	case Uniform:
		plain = Latency{Distribution: Uniform, Min: l.Min, Max: l.Max}
		if l.Min > l.Max {
			report("latency", "min must not be greater than max")
		}
	case Lognormal:
		plain = Latency{Distribution: Lognormal, Median: l.Median, Sigma: l.Sigma, Max: l.Max}
		if l.Median <= 0 {
			report("latency.median", "must be greater than 0s")
		}
		if !(l.Sigma >= 0 && l.Sigma <= 5) {
			report("latency.sigma", "must be from 0 to 5")
		}
	default:
		report("latency.distribution", "%q is not one of %s, %s, %s", l.Distribution, Fixed, Uniform, Lognormal)
		return
	}
	if plain != l {
		report("latency", "has fields that %s does not use", l.Distribution)
	}
}

func (q Quota) validate(report reporter) {
	if !(q.RatePerSecond >= 0 && q.RatePerSecond <= 1e6) {
		report("quota.ratePerSecond", "must be from 0 to 1000000")
	}
	if q.Burst < 0 || q.Burst > 1e6 {
		report("quota.burst", "must be from 0 to 1000000")
	}
	if q.Burst > 0 != (q.RatePerSecond > 0) {
		report("quota", "ratePerSecond and burst belong together")
	}
	if q.Concurrency < 0 || q.Concurrency > 1e6 {
		report("quota.concurrency", "must be from 0 to 1000000")
	}
	if q.RatePerSecond == 0 && q.Concurrency == 0 {
		report("quota", "has neither ratePerSecond nor concurrency")
	}
	q.RetryAfter.validate(func(field, format string, args ...any) { report("quota."+field, format, args...) })
}

func (r RetryAfter) validate(report reporter) {
	if r.After != nil && (*r.After < 0 || time.Duration(*r.After) > 24*time.Hour || time.Duration(*r.After)%time.Second != 0) {
		report("retryAfter", "must be whole seconds up to 24h")
	}
	if r.AfterAs != "" && r.AfterAs != AsSeconds && r.AfterAs != AsDate {
		report("retryAfterAs", "%q is not one of %s, %s", r.AfterAs, AsSeconds, AsDate)
	}
	if r.AfterAs != "" && r.After == nil {
		report("retryAfterAs", "needs a retryAfter")
	}
}

func (r Rule) validate(report reporter) {
	if !slices.Contains(kinds, r.Kind) {
		report("kind", "%q is not one of %v", string(r.Kind), kinds)
		return
	}
	if p := r.Probability; p != nil && !(*p > 0 && *p <= 1) {
		report("probability", "must be greater than 0 and at most 1")
	}
	if r.Count != nil && *r.Count < 0 {
		report("count", "must not be negative")
	}
	if (r.After != nil || r.AfterAs != "") && !r.Kind.hasStatus() {
		report("retryAfter", "belongs to the http-* kinds")
	}
	r.RetryAfter.validate(report)
	switch {
	case r.Kind == SlowBody && (r.Over <= 0 || !inRange(r.Over)):
		report("over", "must be greater than 0s and at most %s", maxWait)
	case r.Kind != SlowBody && r.Over != 0:
		report("over", "belongs to %s", SlowBody)
	}
	if r.Message != "" && r.Kind != ErrorMessage {
		report("message", "belongs to %s", ErrorMessage)
	}
}

// faultState is a Faults at work: what is left of counts and tokens.
type faultState struct {
	mu     sync.Mutex
	faults Faults
	random *rand.Rand
	tokens float64
	filled time.Time // when tokens was right
}

func newFaultState(f Faults, now time.Time) *faultState {
	s := &faultState{faults: f, filled: now}
	s.faults.Rules = slices.Clone(f.Rules)
	for i, r := range s.faults.Rules {
		if r.Count != nil {
			left := *r.Count
			s.faults.Rules[i].Count = &left
		}
	}
	s.random = rand.New(rand.NewPCG(f.Seed, 0))
	if f.Quota != nil {
		s.tokens = float64(f.Quota.Burst)
	}
	return s
}

// current is the Faults with what is left of its counts.
func (s *faultState) current() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.faults
	f.Rules = slices.Clone(f.Rules)
	for i, r := range f.Rules {
		if r.Count != nil {
			left := *r.Count
			f.Rules[i].Count = &left
		}
	}
	return f
}

// admit applies the quota to one more call, running calls being under way. The
// answer's kind is "" when the call is let in.
func (s *faultState) admit(now time.Time, running int) (refused string, after RetryAfter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.faults.Quota
	if q == nil {
		return "", RetryAfter{}
	}
	if q.Concurrency > 0 && running >= q.Concurrency {
		return AnswerQuotaConcurrency, q.RetryAfter
	}
	if q.RatePerSecond > 0 {
		if passed := now.Sub(s.filled); passed > 0 {
			s.tokens = min(float64(q.Burst), s.tokens+passed.Seconds()*q.RatePerSecond)
			s.filled = now
		}
		if s.tokens < 1 {
			return AnswerQuotaRate, q.RetryAfter
		}
		s.tokens--
	}
	return "", RetryAfter{}
}

// wait draws the latency of one call.
func (s *faultState) wait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.faults.Latency
	if l == nil {
		return 0
	}
	switch l.Distribution {
	case Uniform:
		return time.Duration(l.Min) + time.Duration(s.random.Int64N(int64(l.Max-l.Min)+1))
	case Lognormal:
		longest := maxWait
		if l.Max > 0 {
			longest = time.Duration(l.Max)
		}
		drawn := float64(l.Median) * math.Exp(l.Sigma*s.random.NormFloat64())
		return time.Duration(min(drawn, float64(longest)))
	default:
		return time.Duration(l.Value)
	}
}

// pick gives the rule that decides a call, and which of its VINs met it (-1 for a
// rule without VIN). A call without VINs meets only rules without one.
func (s *faultState) pick(vins []string) (rule Rule, index int, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults.Rules {
		r := &s.faults.Rules[i]
		if r.Count != nil && *r.Count == 0 {
			continue
		}
		index = -1
		if r.VIN != "" {
			index = slices.IndexFunc(vins, func(vin string) bool { return like(r.VIN, vin) })
			if index < 0 {
				continue
			}
		}
		if r.Probability != nil && s.random.Float64() >= *r.Probability {
			continue
		}
		if r.Count != nil {
			*r.Count--
		}
		return *r, index, true
	}
	return Rule{}, -1, false
}

// like compares a VIN with a pattern in which '*' is any text. A '*' of the VIN
// itself is matched by it, too.
func like(pattern, vin string) bool {
	pattern, vin = strings.ToUpper(pattern), strings.ToUpper(strings.TrimSpace(vin))
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == vin
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(vin) < len(first)+len(last) || !strings.HasPrefix(vin, first) || !strings.HasSuffix(vin, last) {
		return false
	}
	vin = vin[len(first) : len(vin)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(vin, part)
		if i < 0 {
			return false
		}
		vin = vin[i+len(part):]
	}
	return true
}
