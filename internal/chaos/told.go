package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Told is what the judge keeps of an answer: what was wrong with it by itself, and what it says that others must bear out.
type Told struct {
	Client      string
	VIN         string // the first
	Batch       bool
	Try         int
	Waited      time.Duration // before this try, because Retry-After said so
	Asked, Done time.Time
	Left        bool
	Failed      bool
	Gateway     bool // what API Gateway says when the function does not answer
	Status      int
	Instance    int

	Decodes  int
	Live     bool          // it says that NHTSA was asked for this very request
	Codes    []string      // of its refusals
	InLine   time.Duration // as it says, before its call or its refusal
	Upstream time.Duration
	Spent    bool     // it may have had a lease
	Faults   []string // P8
}

// vehicleKeys say something about a vehicle. No refusal has one.
var vehicleKeys = []string{"vin", "modelYear", "make", "model", "outcome", "summary", "codes", "messages", "suggestedVin", "fields", "numbers", "answer"}

// refusals are the codes that an answer may have here, by status.
var refusals = map[int][]string{
	429: {"RATE_LIMITED", "BULKHEAD_TIMEOUT", "DECODE_QUEUE_FULL", "DECODE_WAIT_TIMEOUT"},
	502: {"UPSTREAM_BAD_RESPONSE"},
	503: {"UPSTREAM_THROTTLED", "UPSTREAM_UNAVAILABLE", "COORDINATION_UNAVAILABLE"},
	504: {"UPSTREAM_TIMEOUT"},
}

// Digest reads an answer. row tells what the data say about a VIN.
func Digest(a Answer, row func(vin string) (map[string]string, error)) Told {
	t := Told{Client: a.Client, VIN: a.VINs[0], Batch: a.Batch, Try: a.Try, Waited: a.Waited, Asked: a.Asked, Done: a.Done, Left: a.Left,
		Failed: a.Failed != "", Status: a.Status, Instance: a.Instance}
	if a.Left || a.Status == 0 {
		t.Spent = true
		return t
	}
	if a.Type == "application/json" && a.Status >= 500 && strings.HasPrefix(string(a.Body), `{"message":`) {
		t.Gateway, t.Spent = true, true
		return t
	}
	fault := func(format string, args ...any) {
		t.Faults = append(t.Faults, fmt.Sprintf(format, args...)+fmt.Sprintf(": %d %.200s", a.Status, a.Body))
	}
	switch {
	case a.Status == 200 && a.Batch:
		var body struct {
			Results []struct {
				VIN     string
				Status  int
				Answer  json.RawMessage
				Problem json.RawMessage
			}
		}
		if err := json.Unmarshal(a.Body, &body); err != nil || len(body.Results) != len(a.VINs) {
			fault("%d results for %d VINs (%v)", len(body.Results), len(a.VINs), err)
			return t
		}
		for i, r := range body.Results {
			if r.VIN != a.VINs[i] {
				fault("result %d is about %s, asked was %s", i, r.VIN, a.VINs[i])
			}
			wrong := ""
			if r.Status == 200 {
				wrong = t.decoded(a.VINs[i], r.Answer, row)
			} else {
				wrong = t.refused(r.Status, r.Problem, func(int64) bool { return true })
			}
			if wrong != "" {
				fault("%s", wrong)
			}
		}
	case a.Status == 200:
		if wrong := t.decoded(a.VINs[0], a.Body, row); wrong != "" {
			fault("%s", wrong)
		}
	default:
		wrong := t.refused(a.Status, a.Body, func(after int64) bool { return a.After == fmt.Sprint(after) })
		if wrong == "" && a.Type != "application/problem+json" {
			wrong = "a refusal that is " + a.Type
		}
		if wrong != "" {
			fault("%s", wrong)
		}
	}
	return t
}

// decoded reads a decode and says what is wrong with it, "" when nothing is.
func (t *Told) decoded(vin string, body []byte, row func(string) (map[string]string, error)) string {
	t.Decodes++
	var b struct {
		VIN        string
		Fields     map[string]string
		Provenance struct {
			Source               string
			Shared               bool
			WaitedMs, UpstreamMs int64
		}
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return "not a decode: " + err.Error()
	}
	t.InLine = max(t.InLine, time.Duration(b.Provenance.WaitedMs)*time.Millisecond)
	t.Upstream = max(t.Upstream, time.Duration(b.Provenance.UpstreamMs)*time.Millisecond)
	if b.Provenance.Source == "nhtsa" && !b.Provenance.Shared {
		t.Spent, t.Live = true, true
	}
	data, err := row(vin)
	switch {
	case b.VIN != vin:
		return fmt.Sprintf("asked was %s, the answer is about %s", vin, b.VIN)
	case b.Provenance.Source != "nhtsa" && b.Provenance.Source != "cache":
		return fmt.Sprintf("source %q", b.Provenance.Source)
	case err != nil:
		return "the data were not asked about " + vin + ": " + err.Error()
	}
	for name, value := range data {
		if strings.TrimSpace(value) == "" {
			continue
		}
		if got := b.Fields[name]; strings.TrimSpace(got) != strings.TrimSpace(value) {
			return fmt.Sprintf("%s is %q, the data say %q", name, got, value)
		}
	}
	for name, value := range b.Fields {
		if strings.TrimSpace(data[name]) == "" && strings.TrimSpace(value) != "" {
			return fmt.Sprintf("%s is %q, the data say nothing", name, value)
		}
	}
	return ""
}

// beforeTheGate are the codes of who was sent away without a lease. One is also that of a lease that came too late to be used, which its sentence says.
var beforeTheGate = []string{"RATE_LIMITED", "BULKHEAD_TIMEOUT", "DECODE_QUEUE_FULL", "DECODE_WAIT_TIMEOUT", "UPSTREAM_THROTTLED"}

// refused reads a refusal and says what is wrong with it.
func (t *Told) refused(status int, body []byte, header func(after int64) bool) string {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return "a refusal that cannot be read: " + err.Error()
	}
	for _, k := range vehicleKeys {
		if _, there := keys[k]; there {
			return fmt.Sprintf("a refusal with %q", k)
		}
	}
	var p struct {
		Code, Detail      string
		WaitedMs          *int64
		RetryAfterSeconds int64
	}
	_ = json.Unmarshal(body, &p)
	known := slices.Index(refusals[status], p.Code)
	if known < 0 || p.Detail == "" || p.WaitedMs == nil {
		return "a refusal with a strange code, without a sentence, or without its wait"
	}
	t.InLine = max(t.InLine, time.Duration(*p.WaitedMs)*time.Millisecond)
	t.Codes = append(t.Codes, refusals[status][known]) // and not the answer's own text
	if !slices.Contains(beforeTheGate, p.Code) || strings.HasPrefix(p.Detail, "The place for this call to NHTSA came, but too late") {
		t.Spent = true
	}
	if (status == 429 || status == 503) && (p.RetryAfterSeconds < 1 || !header(p.RetryAfterSeconds)) {
		return fmt.Sprintf("%d seconds until a retry, and the header does not say so", p.RetryAfterSeconds)
	}
	return ""
}
