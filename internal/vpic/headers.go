package vpic

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of a Retry-After: whatever NHTSA sends, a pause is at least a second and
// never blinds the edge for longer than an hour at a time.
const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Hour
)

// readQuota reads what the headers of an answer say about the quota. Retry-After
// wins over the reset time of a RateLimit header (as its draft demands).
func readQuota(h http.Header, now time.Time) Quota {
	var q Quota
	said, reset := rateLimit(h, now)
	q.RetryAfter = retryAfter(h.Values("Retry-After"), h.Get("Date"), now)
	q.Exhausted = said == none || q.RetryAfter > 0
	if said == none && q.RetryAfter == 0 {
		q.RetryAfter = reset
	}
	return q
}

// retryAfter gives the longest pause of the header's values, clamped; 0 when
// there is no readable one. A date counts from the answer's own Date, so that a
// wrong clock on this side does not matter, else from now.
func retryAfter(values []string, date string, now time.Time) time.Duration {
	var longest time.Duration
	for _, v := range values {
		v = strings.TrimSpace(v)
		if wait, ok := seconds(v); ok {
			longest = max(longest, wait)
			continue
		}
		until, err := http.ParseTime(v)
		if err != nil {
			continue
		}
		from := now
		if sent, err := http.ParseTime(date); err == nil {
			from = sent
		}
		longest = max(longest, clamp(until.Sub(from)))
	}
	return longest
}

// seconds reads a number of whole seconds, clamped, however many digits it has.
func seconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil { // too many digits
		return maxRetryAfter, true
	}
	return clamp(time.Duration(n) * time.Second), true
}

func clamp(d time.Duration) time.Duration { return min(max(d, minRetryAfter), maxRetryAfter) }

// left is what a quota header says is left.
type left int

const (
	unsaid left = iota
	some
	none
)

// rateLimit reads the RateLimit header of the IETF draft in its newer form
// ("ip";r=0;t=12), its older one (limit=10, remaining=0, reset=12) and the
// fields before it (RateLimit-Remaining, X-RateLimit-Remaining and their -Reset).
// The reset is clamped, 0 when none is given.
func rateLimit(h http.Header, now time.Time) (left, time.Duration) {
	said, reset := unsaid, time.Duration(0)
	note := func(count string, wait time.Duration) {
		switch {
		case strings.Trim(count, "0123456789") != "" || count == "":
		case strings.Trim(count, "0") == "":
			said, reset = none, max(reset, wait)
		case said == unsaid:
			said = some
		}
	}

	for _, value := range h.Values("RateLimit") {
		flat := make(map[string]string)
		for member := range strings.SplitSeq(value, ",") {
			parameters := make(map[string]string)
			for part := range strings.SplitSeq(member, ";") {
				if key, v, found := strings.Cut(strings.TrimSpace(part), "="); found {
					parameters[key], flat[key] = v, v
				}
			}
			wait, _ := seconds(parameters["t"])
			note(parameters["r"], wait)
		}
		wait, _ := seconds(flat["reset"])
		note(flat["remaining"], wait)
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-", "X-Rate-Limit-"} {
		note(strings.TrimSpace(h.Get(prefix+"Remaining")), resetField(h.Get(prefix+"Reset"), now))
	}
	return said, reset
}

// resetField reads a -Reset field: seconds, or where it is too large for that, a Unix time.
func resetField(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 1_000_000_000 && n < 100_000_000_000 {
		return clamp(time.Unix(n, 0).Sub(now))
	}
	wait, _ := seconds(s)
	return wait
}
