package edge

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"vingate/internal/decode"
	"vingate/internal/page"
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
	routeDecode         = "/v1/vins/{vin}"
	routeBatch          = "/v1/vins"
	routeCapacity       = "/v1/capacity"
	routeHealth         = "/healthz"
	routeOpenAPI        = "/openapi.json"
	routeRobots         = "/robots.txt"
	routePage           = "/"
	routeAsset          = "/assets/{name}"
	routeDropIn         = "/api/vehicles/DecodeVinValues/{vin}"
	routeDropInExtended = "/api/vehicles/DecodeVinValuesExtended/{vin}"
	routeDropInBatch    = "/api/vehicles/DecodeVINValuesBatch/"
	routeNone           = "none"
)

// vins is the path in front of a VIN. Whatever follows is taken for the VIN, slashes included: API Gateway decodes a %2F
// in the path, and it must not become another route.
const vins = "/v1/vins/"

// route is what a path leads to.
type route struct {
	name    string // for the log
	methods []string
	serve   func(context.Context, *request) *response
}

// Methods of a route that is read, and of one that takes a list.
var (
	reads = []string{"GET", "HEAD"}
	takes = []string{"POST"}
)

// find takes the path as it came. Nothing is cleaned and nobody is redirected.
func (h *Handler) find(path string) (route, bool) {
	switch {
	case strings.HasPrefix(path, vins):
		return route{routeDecode, reads, h.decode}, true
	case path == routeBatch:
		return route{routeBatch, takes, h.batch}, true
	case path == routeCapacity:
		return route{routeCapacity, reads, h.capacity}, true
	case path == routeHealth:
		return route{routeHealth, reads, h.health}, true
	case path == routeOpenAPI:
		return route{routeOpenAPI, reads, h.openAPI}, true
	case path == routeRobots:
		return route{routeRobots, reads, h.robots}, true
	case path == routePage:
		return route{routePage, reads, h.page}, true
	case strings.HasPrefix(path, page.Assets):
		return route{routeAsset, reads, h.asset}, true
	}
	return h.dropInRoute(path)
}

// dispatch answers a request by its route.
func (h *Handler) dispatch(ctx context.Context, r *request) *response {
	found, ok := h.find(r.path)
	if !ok {
		r.route = routeNone
		refused := decode.NewNotFound()
		if isDropIn(r.path) {
			refused = decode.NewNoSuchCall()
		}
		res := h.refusal(r, refused)
		h.cors(r, res, reads)
		return res
	}
	r.route = found.name
	var res *response
	switch {
	case slices.Contains(found.methods, r.method):
		res = found.serve(ctx, r)
	case r.method == "OPTIONS":
		res = h.respond(r, 204, nil)
	default:
		res = h.refusal(r, decode.NewMethodNotAllowed(r.method))
	}
	if res.status == 204 || res.status == 405 {
		res.header["Allow"] = strings.Join(found.methods, ", ") + ", OPTIONS"
	}
	h.cors(r, res, found.methods)
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
		VIN: unescapePath(strings.TrimPrefix(r.path, vins)), ModelYear: year, Caller: r.caller, StoredOnly: r.storedOnly(), Barred: barred,
	})
	if err != nil {
		return h.undecoded(ctx, r, err, came)
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

func (h *Handler) health(_ context.Context, r *request) *response {
	res := h.respond(r, 200, struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}{"ok", h.Version})
	res.header["Cache-Control"] = "no-store"
	return res
}

// openAPIDocument is infra/openapi.yaml as JSON; a test writes it and holds the two together.
//
//go:embed openapi.json
var openAPIDocument []byte

func (h *Handler) openAPI(_ context.Context, r *request) *response {
	return h.document(r, "application/json", openAPIDocument)
}

func (h *Handler) robots(_ context.Context, r *request) *response {
	return h.document(r, "text/plain; charset=utf-8", []byte(robotsTxt))
}

// document is a text of this version.
func (h *Handler) document(r *request, contentType string, body []byte) *response {
	res := h.respond(r, 200, nil)
	res.header["Content-Type"] = contentType
	res.header["Cache-Control"] = "public, max-age=3600"
	res.body = body
	sum := sha256.Sum256(body)
	return h.unlessKnown(r, res, `W/"`+base64.RawURLEncoding.EncodeToString(sum[:9])+`"`)
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
