package edge

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// response is an HTTP response before it becomes API Gateway's JSON.
type response struct {
	status int
	header map[string]string
	body   []byte
	binary bool   // the body is no text
	parts  *parts // of the body, where one of them was ready
	log    []slog.Attr
	counts counts
}

// security stands on every response. There is nothing to load from a JSON document and nobody to frame it.
var security = map[string]string{
	"Content-Security-Policy":   "default-src 'none'; frame-ancestors 'none'",
	"Referrer-Policy":           "no-referrer",
	"Strict-Transport-Security": "max-age=31536000",
	"X-Content-Type-Options":    "nosniff",
}

// respond makes a response with a JSON body; nil makes none.
func (h *Handler) respond(r *request, status int, body any) *response {
	res := &response{status: status, header: maps.Clone(security)}
	if r.id != "" {
		res.header["X-Request-Id"] = r.id
	}
	if body != nil {
		res.header["Content-Type"] = "application/json"
		res.body = encodeJSON(body)
	}
	return res
}

// encodeJSON encodes our own types, which cannot fail. It ends with a line break, for terminals.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// encode makes the response of payload format 2.0. API Gateway answers a HEAD request without a body.
func (r *response) encode(head bool) []byte {
	body, binary := r.body, r.binary && !head
	if head {
		body = nil
	}
	b := make([]byte, 0, 1024+base64.StdEncoding.EncodedLen(len(body)))
	b = strconv.AppendInt(append(b, `{"statusCode":`...), int64(r.status), 10)
	b = append(b, `,"headers":{`...)
	for i, name := range slices.Sorted(maps.Keys(r.header)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
		b = appendText(append(b, ':'), r.header[name])
	}
	b = append(b, `},"body":`...)
	if !binary {
		return append(appendText(b, string(body)), '}')
	}
	b = base64.StdEncoding.AppendEncode(append(b, '"'), body)
	return append(b, `","isBase64Encoded":true}`...)
}

// appendText adds a text of JSON. Most are plain, and need no encoder.
func appendText(b []byte, s string) []byte {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, bytes.TrimSuffix(encodeJSON(s), []byte("\n"))...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// problem is RFC 9457's object and our members. Nothing about a vehicle is among them.
type problem struct {
	Type              string `json:"type"`
	Title             string `json:"title"`
	Status            int    `json:"status"`
	Detail            string `json:"detail"`
	Instance          string `json:"instance,omitempty"`
	Code              string `json:"code"`
	RetryAfterSeconds int64  `json:"retryAfterSeconds,omitempty"`
	WaitedMs          int64  `json:"waitedMs"`
	Scope             string `json:"scope,omitempty"`
	Position          int    `json:"position,omitempty"`
	Character         string `json:"character,omitempty"`
	Suggestion        string `json:"suggestion,omitempty"`
}

// problemOf is a refusal as a problem. It names the request it answers, or none where it is one of many in a response.
func problemOf(refused *decode.Refusal, id string) problem {
	p := problem{
		Type:  "urn:vingate:problem:" + strings.ToLower(strings.ReplaceAll(string(refused.Code), "_", "-")),
		Title: refused.Code.Title(), Status: refused.Code.Status(), Detail: refused.Detail(), Code: string(refused.Code),
		RetryAfterSeconds: int64(refused.RetryAfter / time.Second), WaitedMs: refused.Waited.Milliseconds(), Scope: string(refused.Scope),
		Position: refused.Position, Character: refused.Character, Suggestion: refused.Suggestion,
	}
	if id != "" {
		p.Instance = "urn:vingate:request:" + id
	}
	return p
}

// refusal makes the response to a refusal. No cache may keep it: what it says is over soon.
func (h *Handler) refusal(r *request, refused *decode.Refusal) *response {
	p := problemOf(refused, r.id)
	res := h.respond(r, p.Status, p)
	res.header["Content-Type"] = "application/problem+json"
	res.header["Cache-Control"] = "no-store"
	if p.RetryAfterSeconds > 0 {
		res.header["Retry-After"] = strconv.FormatInt(p.RetryAfterSeconds, 10)
	}
	if p.Status == 401 {
		res.header["WWW-Authenticate"] = `ApiKey realm="vingate", header="X-Api-Key"`
	}
	res.counts.refused(refused.Code, 1)
	res.log = []slog.Attr{slog.String("code", p.Code), slog.Int64("waitedMs", p.WaitedMs)}
	if p.Scope != "" {
		res.log = append(res.log, slog.String("scope", p.Scope))
	}
	if p.RetryAfterSeconds > 0 {
		res.log = append(res.log, slog.Int64("retryAfterSeconds", p.RetryAfterSeconds))
	}
	return res
}

// answer is a decode as the API gives it.
type answer struct {
	VIN, Submitted string
	Decoding       vpic.Decoding
	Provenance     provenance
	Advice         []advice
}

// MarshalJSON writes one flat object. The part about the vehicle is package vpic's.
func (a answer) MarshalJSON() ([]byte, error) {
	return slices.Concat(a.before(), a.vehicle(), a.after()), nil
}

// before is what stands in front of the part about the vehicle.
func (a answer) before() []byte {
	b := members(struct {
		VIN       string `json:"vin"`
		Submitted string `json:"submitted"`
	}{a.VIN, a.Submitted})
	return slices.Concat([]byte("{"), b, []byte(","))
}

// vehicle is the part about the vehicle, without braces.
func (a answer) vehicle() []byte {
	b := a.Decoding.JSON()
	return b[1 : len(b)-1]
}

// after is what stands behind it.
func (a answer) after() []byte {
	b := members(struct {
		Provenance provenance `json:"provenance"`
		Advice     []advice   `json:"advice,omitempty"`
	}{a.Provenance, a.Advice})
	return slices.Concat([]byte(","), b, []byte("}"))
}

// members are those of an object as they stand between its braces.
func members(v any) []byte {
	b := bytes.TrimSpace(encodeJSON(v))
	return b[1 : len(b)-1]
}

type provenance struct {
	Source     string `json:"source"`
	FetchedAt  string `json:"fetchedAt"`
	AgeSeconds int64  `json:"ageSeconds"`
	Stale      bool   `json:"stale"`
	WaitedMs   int64  `json:"waitedMs"`
	UpstreamMs int64  `json:"upstreamMs"`
	Shared     bool   `json:"shared"`
}

// advice is what is odd about the VIN itself. It never decides anything.
type advice struct {
	Code     string `json:"code"`
	Position int    `json:"position"`
	Message  string `json:"message"`
}

// answerOf is a decode as the API gives it.
func answerOf(d decode.Result) answer {
	return answer{
		VIN: d.VIN.Value, Submitted: d.VIN.Submitted, Decoding: d.Decoding(),
		Provenance: provenance{
			Source: string(d.Source), FetchedAt: d.FetchedAt.UTC().Format("2006-01-02T15:04:05.000Z"), AgeSeconds: int64(d.Age / time.Second), Stale: d.Stale(),
			WaitedMs: d.Waited.Milliseconds(), UpstreamMs: d.Upstream.Milliseconds(), Shared: d.Shared,
		},
		Advice: adviceOf(d.VIN),
	}
}

func (h *Handler) decoded(r *request, d decode.Result) *response {
	res, a := h.respond(r, 200, nil), answerOf(d)
	res.header["Content-Type"] = "application/json"
	h.show(res, d, variantAnswer, a.before(), a.vehicle, append(a.after(), '\n'))
	h.decodedHeaders(res, d)
	h.ratesOf(r, res, d)
	res.counts.answered(d)
	res.log = decodeLog(d)
	return h.unlessKnown(r, res, entityTag(d, variantAnswer))
}

// undecoded makes the response to a question without an answer; err is the decoder's, and came is when the request came.
func (h *Handler) undecoded(ctx context.Context, r *request, err error, came time.Time) *response {
	refused := *h.asRefusal(ctx, err)
	refused.Waited = h.Now().Sub(came) // also for the look at the key
	res := h.refusal(r, &refused)
	res.header["Server-Timing"] = fmt.Sprintf("wait;dur=%d", refused.Waited.Milliseconds())
	if slices.Contains(limited, refused.Code) {
		h.rateHeaders(r, res, refused.RetryAfter)
	}
	return res
}

func adviceOf(v vin.VIN) []advice {
	var list []advice
	for _, a := range v.Advice {
		list = append(list, advice{a.Code, a.Position, a.Message})
	}
	return list
}

// capacity is the shared budget as anybody may see it: numbers, no names.
type capacity struct {
	Limit         int     `json:"limit"`
	MaxInFlight   int     `json:"maxInFlight"`
	InFlight      int     `json:"inFlight"`
	Tokens        int     `json:"tokens"`
	MostTokens    int     `json:"mostTokens"`
	Burst         int     `json:"burst"`
	RatePerSecond float64 `json:"ratePerSecond"`
	Queued        int     `json:"queued"`
	Hold          *hold   `json:"hold"`
	KnobsVersion  int     `json:"knobsVersion"`
	ReadAt        string  `json:"readAt"`
}

// hold is a pause of all calls.
type hold struct {
	Reason  string `json:"reason"`
	Seconds int64  `json:"seconds"`
}

func capacityOf(v gate.View) capacity {
	c := capacity{
		Limit: v.Limit, MaxInFlight: v.Knobs.MaxInFlight, InFlight: v.InFlight, Tokens: v.Tokens, MostTokens: v.Knobs.Bucket().Most(), Burst: v.Knobs.Burst, RatePerSecond: v.Knobs.RatePerSecond,
		Queued: v.Queued, KnobsVersion: v.KnobsVersion, ReadAt: v.ReadAt.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if v.HeldFor > 0 {
		c.Hold = &hold{Reason: string(v.Hold), Seconds: int64(gate.RetryAfter(v.HeldFor) / time.Second)}
	}
	return c
}
