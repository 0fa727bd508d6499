package edge

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"vingate/internal/decode"
	"vingate/internal/tenant"
)

// request is an HTTP request, with what is found out about it on the way.
type request struct {
	id, method, path, query string
	header                  func(name string) string
	address                 string
	text                    string // the body as it came
	base64                  bool   // and it is encoded

	route  string // for the log
	caller tenant.Caller
}

func newRequest(ctx context.Context, e event) *request {
	c := e.RequestContext
	r := &request{
		id: requestID(ctx, e), method: c.HTTP.Method, path: e.RawPath, query: e.RawQueryString, address: c.HTTP.SourceIP,
		text: e.Body, base64: e.IsBase64Encoded,
		header: func(name string) string {
			for k, v := range e.Headers {
				if strings.EqualFold(k, name) {
					return v
				}
			}
			return ""
		},
	}
	// A stage that is not $default stands in front of the path.
	if c.Stage != "" && c.Stage != "$default" {
		if rest, ok := strings.CutPrefix(r.path, "/"+c.Stage); ok && strings.HasPrefix(rest, "/") {
			r.path = rest
		}
	}
	return r
}

// Routes, as the log names them.
const (
	routeDecode   = "/v1/vins/{vin}"
	routeBatch    = "/v1/vins"
	routeCapacity = "/v1/capacity"
	routeHealth   = "/healthz"
	routeNone     = "none"
)

// vins is the path in front of a VIN. Whatever follows is taken for the VIN, slashes included: API Gateway decodes a %2F
// in the path, and it must not become another route.
const vins = "/v1/vins/"

// Methods of a route that is read, and of one that takes a list.
var (
	reads = []string{"GET", "HEAD"}
	takes = []string{"POST"}
)

// dispatch finds the route by the path as it came. Nothing is cleaned and nobody is redirected.
func (h *Handler) dispatch(ctx context.Context, r *request) *response {
	var serve func(context.Context, *request) *response
	methods := reads
	switch {
	case strings.HasPrefix(r.path, vins):
		r.route, serve = routeDecode, h.decode
	case r.path == routeBatch:
		r.route, serve, methods = routeBatch, h.batch, takes
	case r.path == routeCapacity:
		r.route, serve = routeCapacity, h.capacity
	case r.path == routeHealth:
		r.route, serve = routeHealth, h.health
	default:
		r.route = routeNone
		return h.refusal(r, decode.NewNotFound())
	}
	allow := strings.Join(methods, ", ") + ", OPTIONS"
	switch {
	case slices.Contains(methods, r.method):
		return serve(ctx, r)
	case r.method == "OPTIONS":
		res := h.respond(r, 204, nil)
		res.header["Allow"] = allow
		return res
	}
	res := h.refusal(r, decode.NewMethodNotAllowed(r.method))
	res.header["Allow"] = allow
	return res
}

func (h *Handler) decode(ctx context.Context, r *request) *response {
	came := h.Now()
	barred, refused := h.identify(ctx, r)
	if refused != nil {
		return h.refusal(r, refused)
	}
	year, ok := r.modelYear()
	if !ok {
		return h.refusal(r, decode.NewModelYearInvalid(h.Now()))
	}
	result, err := h.Decoder.Decode(ctx, decode.Request{
		VIN: r.lastSegment(), ModelYear: year, Caller: r.caller, StoredOnly: r.method == "HEAD" || r.prefetch(), Barred: barred,
	})
	if err != nil {
		refused := h.asRefusal(ctx, err)
		refused.Waited = h.Now().Sub(came) // also for the look at the key
		return h.refusal(r, refused)
	}
	return h.decoded(r, result)
}

// identify says who is asking. A caller who can cause no call is barred with the reason, one who may have nothing at all is refused.
func (h *Handler) identify(ctx context.Context, r *request) (barred, refused *decode.Refusal) {
	caller, err := h.Callers.Identify(ctx, r.header("X-Api-Key"), r.address)
	switch {
	case errors.Is(err, tenant.ErrAPIKeyUnknown):
		return nil, decode.NewAPIKeyUnknown()
	case errors.Is(err, tenant.ErrAPIKeyRevoked):
		return nil, decode.NewAPIKeyRevoked()
	case err != nil: // nobody knows whose key it is: stored answers still go out, which anybody may have
		h.Log.ErrorContext(ctx, "API keys cannot be looked up", "error", clip(err.Error()))
		return decode.NewCoordinationDown(), nil
	}
	r.caller = caller
	return nil, nil
}

// lastSegment is what stands where the VIN belongs. API Gateway hands the path over decoded, other front doors as it came;
// a VIN holds no '%', so decoding it (again) changes nothing that could be one.
func (r *request) lastSegment() string {
	raw := strings.TrimPrefix(r.path, vins)
	if s, err := url.PathUnescape(raw); err == nil {
		return s
	}
	return raw
}

// modelYear reads the query. The name is taken in any letter case, and a query that speaks of a year but cannot be read is
// refused, so that a year is never silently left out. An empty one is none: forms send it.
func (r *request) modelYear() (year int, ok bool) {
	values, err := url.ParseQuery(r.query)
	if err != nil {
		return 0, !strings.Contains(strings.ToLower(unescapeLoosely(r.query)), "modelyear")
	}
	given := ""
	for name, texts := range values {
		if !strings.EqualFold(strings.TrimSpace(name), "modelYear") {
			continue
		}
		for _, text := range texts {
			text = strings.TrimSpace(text)
			if text == "" || text == given {
				continue
			}
			if given != "" {
				return 0, false // two different ones
			}
			given = text
		}
	}
	if given == "" {
		return 0, true
	}
	if len(given) != 4 {
		return 0, false
	}
	year, err = strconv.Atoi(given)
	// 0 means "none given" from here on, and somebody gave one.
	return year, err == nil && year > 0
}

// unescapeLoosely decodes what can be decoded and leaves the rest as it is.
func unescapeLoosely(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n := 1
		if s[0] == '%' && len(s) >= 3 {
			n = 3
		}
		text, err := url.QueryUnescape(s[:n])
		if err != nil {
			n, text = 1, s[:1]
		}
		b.WriteString(text)
		s = s[n:]
	}
	return b.String()
}

// prefetch says that a browser asks without a person waiting.
func (r *request) prefetch() bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		if v := strings.ToLower(r.header(name)); strings.Contains(v, "prefetch") || strings.Contains(v, "preview") || strings.Contains(v, "prerender") {
			return true
		}
	}
	return false
}

func (h *Handler) health(_ context.Context, r *request) *response {
	res := h.respond(r, 200, struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}{"ok", h.Version})
	res.header["Cache-Control"] = "no-store"
	return res
}

func (h *Handler) capacity(ctx context.Context, r *request) *response {
	view, err := h.Gate.View(ctx)
	if err != nil {
		h.Log.ErrorContext(ctx, "the shared budget is not available", "error", clip(err.Error()))
		return h.refusal(r, decode.NewCoordinationDown())
	}
	res := h.respond(r, 200, capacityOf(view))
	res.header["Cache-Control"] = "max-age=1"
	return res
}
