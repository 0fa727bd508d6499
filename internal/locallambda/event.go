//go:build unix

package locallambda

import (
	"encoding/base64"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The stage and the account are what a newly made HTTP API would have, the latter with no account behind it.
const (
	stage     = "$default"
	accountID = "000000000000"
	apiID     = "local"
)

// notForwarded are headers about one connection; API Gateway keeps them to itself. Cookies have a field of their own.
var notForwarded = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "te": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "expect": true, "cookie": true,
}

// event is what API Gateway sends. aws-lambda-go's type of the same name would also send an empty client certificate.
type event struct {
	Version               string            `json:"version"`
	RouteKey              string            `json:"routeKey"`
	RawPath               string            `json:"rawPath"`
	RawQueryString        string            `json:"rawQueryString"`
	Cookies               []string          `json:"cookies,omitempty"`
	Headers               map[string]string `json:"headers"`
	QueryStringParameters map[string]string `json:"queryStringParameters,omitempty"`
	RequestContext        requestContext    `json:"requestContext"`
	Body                  string            `json:"body,omitempty"`
	IsBase64Encoded       bool              `json:"isBase64Encoded"`
}

type requestContext struct {
	AccountID    string      `json:"accountId"`
	APIID        string      `json:"apiId"`
	DomainName   string      `json:"domainName"`
	DomainPrefix string      `json:"domainPrefix"`
	HTTP         httpContext `json:"http"`
	RequestID    string      `json:"requestId"`
	RouteKey     string      `json:"routeKey"`
	Stage        string      `json:"stage"`
	Time         string      `json:"time"`
	TimeEpoch    int64       `json:"timeEpoch"` // milliseconds
}

type httpContext struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Protocol  string `json:"protocol"`
	SourceIP  string `json:"sourceIp"`
	UserAgent string `json:"userAgent"`
}

// newEvent turns a request into the event of an HTTP API with payload format 2.0.
// Source: "Create AWS Lambda proxy integrations for HTTP APIs" in the API Gateway developer guide.
//
// Not in that page, but seen on AWS: rawPath arrives percent-decoded, rawQueryString does not.
func newEvent(r *http.Request, body []byte, requestID, traceID string, now time.Time) event {
	source := sourceIP(r.RemoteAddr)
	ev := event{
		Version:               "2.0",
		RouteKey:              "$default",
		RawPath:               r.URL.Path,
		RawQueryString:        r.URL.RawQuery,
		Cookies:               cookies(r.Header),
		Headers:               headers(r, source, len(body), traceID),
		QueryStringParameters: queryParameters(r.URL.RawQuery),
		RequestContext: requestContext{
			RouteKey:     "$default",
			AccountID:    accountID,
			Stage:        stage,
			RequestID:    requestID,
			APIID:        apiID,
			DomainName:   r.Host,
			DomainPrefix: firstLabel(r.Host),
			Time:         now.UTC().Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch:    now.UnixMilli(),
			HTTP: httpContext{
				Method:    r.Method,
				Path:      r.URL.Path,
				Protocol:  r.Proto,
				SourceIP:  source,
				UserAgent: r.UserAgent(),
			},
		},
	}
	switch {
	case len(body) == 0:
	case isText(r.Header.Get("Content-Type")):
		ev.Body = string(body)
	default:
		ev.Body, ev.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return ev
}

// isText says whether API Gateway hands a body of this content type on as it is. The list is short: a form, a vendor's
// +json and a body without a type arrive base64-encoded.
func isText(contentType string) bool {
	// A fault in a parameter still leaves the type readable, and the type is all that counts.
	typ, _, err := mime.ParseMediaType(contentType)
	if err != nil && typ == "" {
		typ = strings.ToLower(strings.TrimSpace(strings.SplitN(contentType, ";", 2)[0]))
	}
	switch typ {
	case "application/json", "application/xml", "application/javascript":
		return true
	}
	return strings.HasPrefix(typ, "text/")
}

func headers(r *http.Request, source string, length int, traceID string) map[string]string {
	out := make(map[string]string, len(r.Header)+6)
	for name, values := range r.Header {
		if name = strings.ToLower(name); !notForwarded[name] {
			out[name] = strings.Join(values, ",")
		}
	}
	if _, ok := out["content-length"]; !ok && length > 0 {
		out["content-length"] = strconv.Itoa(length) // it came in chunks
	}
	out["host"] = r.Host
	out["x-amzn-trace-id"] = traceID
	// The gateway appends the peer; what the caller wrote before it proves nothing.
	if before := out["x-forwarded-for"]; before != "" {
		out["x-forwarded-for"] = before + ", " + source
	} else {
		out["x-forwarded-for"] = source
	}
	out["x-forwarded-proto"] = "http"
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(a.String()); err == nil {
			out["x-forwarded-port"] = port
		}
	}
	return out
}

// cookies gives "name=value" pieces as they were sent.
func cookies(h http.Header) []string {
	var out []string
	for _, line := range h["Cookie"] {
		for piece := range strings.SplitSeq(line, ";") {
			if piece = strings.TrimSpace(piece); piece != "" {
				out = append(out, piece)
			}
		}
	}
	return out
}

// queryParameters decodes a query; values of one name are joined by commas in their order. A piece that cannot be
// decoded is taken as it is written.
func queryParameters(raw string) map[string]string {
	if raw == "" {
		return nil
	}
	out := map[string]string{}
	for piece := range strings.SplitSeq(raw, "&") {
		if piece == "" {
			continue
		}
		name, value, _ := strings.Cut(piece, "=")
		name, value = unescape(name), unescape(value)
		if before, ok := out[name]; ok {
			value = before + "," + value
		}
		out[name] = value
	}
	return out
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// sourceIP is the peer's address without port and zone, IPv4 in its own form.
func sourceIP(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	return ap.Addr().Unmap().WithZone("").String()
}

func firstLabel(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return host
	}
	label, _, _ := strings.Cut(host, ".")
	return label
}
