package edge

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"vingate/internal/decode"
	"vingate/internal/tenant"
)

// schema is the version of what the edge makes of NHTSA's answer. It changes with every change of a body's shape, so that nobody keeps an old
// shape for an answer that has not changed.
const schema = 2

// variant is one of the shapes of an answer.
type variant string

const (
	variantAnswer   variant = "v1"
	variantNHTSA    variant = "nhtsa"
	variantExtended variant = "nhtsa-extended"
)

// entityTag names an answer: two with the same tag say the same about the vehicle. It is weak, for what is told about the
// request itself differs each time.
func entityTag(d decode.Result, v variant) string {
	q := d.Query()
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d %d", schema, v, q.VIN, q.ModelYear, d.FetchedAt.UnixMilli()))
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum[:9]) + `"`
}

// matches is If-None-Match (RFC 9110): a list of tags, compared weakly, or "*".
func matches(ifNoneMatch, tag string) bool {
	opaque := strings.TrimPrefix(tag, "W/")
	for one := range strings.SplitSeq(ifNoneMatch, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == opaque {
			return true
		}
	}
	return false
}

// lifeOf is a decode's age, the age to which it is fresh, and the age at which it ends, in seconds.
func lifeOf(d decode.Result) (age, fresh, end int64) {
	return int64(d.Age / time.Second), int64(d.FreshFor / time.Second), int64(d.Life / time.Second)
}

// decodedHeaders are those of an answer. A cache may use a stored one past its freshness only within its life, as vingate does itself:
// while it asks for a newer one, and when it gets none.
func (h *Handler) decodedHeaders(res *response, d decode.Result) {
	age, fresh, end := lifeOf(d)
	res.header["Cache-Control"] = fmt.Sprintf("public, max-age=%d", fresh)
	if more := end - fresh; more > 0 {
		res.header["Cache-Control"] += fmt.Sprintf(", stale-while-revalidate=%d, stale-if-error=%[1]d", more)
	}
	res.header["Age"] = strconv.FormatInt(age, 10)
	res.header["Cache-Status"] = cacheStatus(d, fresh-age)
	res.header["Server-Timing"] = fmt.Sprintf("wait;dur=%d, upstream;dur=%d", d.Waited.Milliseconds(), d.Upstream.Milliseconds())
}

// unlessKnown answers 304 to who has this answer already.
func (h *Handler) unlessKnown(r *request, res *response, tag string) *response {
	res.header["ETag"] = tag
	if matches(r.header("If-None-Match"), tag) {
		if mayCompress(res) {
			vary(res, "Accept-Encoding") // as the answer would (RFC 9110, 15.4.5)
		}
		res.status, res.body = 304, nil
		delete(res.header, "Content-Type")
	}
	return res
}

// rateHeaders tells what is left of the caller's own bucket and of the shared one, as far as it is known without asking anybody
// (draft-ietf-httpapi-ratelimit-headers). A bucket's window is the time in which it fills; t is the time until there is one call more. No t is
// later than the Retry-After beside it, which says more: it is this caller's own place in time.
func (h *Handler) rateHeaders(r *request, res *response, retryAfter time.Duration) {
	var policies, states []string
	add := func(name string, burst int, perSecond float64, left int, next time.Duration) {
		if burst <= 0 || perSecond <= 0 {
			return
		}
		policies = append(policies, fmt.Sprintf(`%q;q=%d;w=%d`, name, burst, int64(math.Ceil(float64(burst)/perSecond))))
		t := int64((next + time.Second - 1) / time.Second)
		if retryAfter > 0 {
			t = min(t, int64(retryAfter/time.Second))
		}
		states = append(states, fmt.Sprintf(`%q;r=%d;t=%d`, name, left, t))
	}
	if h.Rates != nil && r.caller.ID != "" {
		if left, next, ok := h.Rates.Left(r.caller); ok {
			add(string(decode.ScopeTenant), r.caller.Plan.Burst, r.caller.Plan.RatePerSecond, left, next)
		}
	}
	if view, ok := h.Gate.Seen(); ok {
		add(string(decode.ScopeUpstream), view.Knobs.Burst, view.Knobs.RatePerSecond, min(view.Tokens, view.Knobs.Burst), view.NextToken)
	}
	if len(policies) > 0 {
		res.header["RateLimit-Policy"], res.header["RateLimit"] = strings.Join(policies, ", "), strings.Join(states, ", ")
	}
}

// ratesOf adds them to an answer that cost something.
func (h *Handler) ratesOf(r *request, res *response, d decode.Result) {
	if d.Source == decode.FromNHTSA {
		h.rateHeaders(r, res, 0)
	}
}

// Rates says what callers have left.
type Rates interface {
	// Left is the number of calls the caller may still ask for and the time until there is one more, from memory; ok is false when
	// it is not known.
	Left(tenant.Caller) (calls int, next time.Duration, ok bool)
}

// limited are the codes that a rate has to do with: they say what is left of it.
var limited = []decode.Code{decode.RateLimited, decode.BulkheadTimeout, decode.QueueFull, decode.WaitTimeout, decode.VINRepeated}

// exposed are the headers that a script of another origin may read.
const exposed = "Age, Cache-Status, ETag, RateLimit, RateLimit-Policy, Retry-After, Server-Timing, X-Request-Id"

// cors lets scripts of the configured origins read the response (the Fetch standard). Nothing here hangs on cookies, so there is nothing a
// script could do in somebody's name but spend the rate of his address, and that it can without reading the response.
func (h *Handler) cors(r *request, res *response, methods []string) {
	if len(h.Origins) == 0 {
		return
	}
	origin := r.header("Origin")
	switch {
	case slices.Contains(h.Origins, "*"):
		res.header["Access-Control-Allow-Origin"] = "*"
	default:
		vary(res, "Origin")
		if !slices.Contains(h.Origins, origin) {
			return
		}
		res.header["Access-Control-Allow-Origin"] = origin
	}
	if r.method == "OPTIONS" && r.header("Access-Control-Request-Method") != "" {
		maps.Copy(res.header, map[string]string{
			"Access-Control-Allow-Methods": strings.Join(methods, ", "),
			"Access-Control-Allow-Headers": "Content-Type, If-None-Match, X-Api-Key",
			"Access-Control-Max-Age":       "7200",
		})
		return
	}
	res.header["Access-Control-Expose-Headers"] = exposed
}

func vary(res *response, name string) {
	if before := res.header["Vary"]; before != "" {
		name = before + ", " + name
	}
	res.header["Vary"] = name
}

// cacheStatus is RFC 9211's field. ttl is what is left of the answer's freshness, negative when it is over; then the detail says why there is no
// newer one, with the code of what came between.
func cacheStatus(d decode.Result, ttl int64) string {
	if d.Source == decode.FromCache {
		s := fmt.Sprintf("vingate; hit; ttl=%d", ttl)
		if d.Trouble != "" {
			s += "; detail=" + string(d.Trouble)
		}
		return s
	}
	s := "vingate; fwd=uri-miss; fwd-status=200"
	if d.Replaced {
		s = "vingate; fwd=stale; fwd-status=200"
	}
	if d.Saved {
		s += "; stored"
	}
	if d.Shared {
		s += "; collapsed"
	}
	return s
}
