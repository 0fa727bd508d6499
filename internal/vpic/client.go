package vpic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxBody bounds an answer after decompression. A single decode has about 5 kB,
	// a batch of fifty about 250 kB.
	maxBody = 1 << 20
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10

	dialTimeout = 2 * time.Second
	tlsTimeout  = 3 * time.Second

	// The body of an answer that is not used is read to its end, so that NHTSA is done
	// with the call before its place is given back, but not at any price.
	drainBytes   = 64 << 10
	drainTimeout = time.Second
)

// Client calls vPIC. It is safe for concurrent use.
type Client struct {
	base      string // without a slash at the end
	timeout   time.Duration
	agent     string
	now       func() time.Time
	transport *http.Transport
}

// New checks cfg; the error says which value is wrong.
func New(cfg Config) (*Client, error) {
	if err := CheckBaseURL(cfg.BaseURL); err != nil {
		return nil, fmt.Errorf("vpic: BaseURL %w", err)
	}
	base := strings.TrimRight(cfg.BaseURL, "/")
	if cfg.Timeout <= 0 {
		return nil, fmt.Errorf("vpic: Timeout is %s, it must be above 0", cfg.Timeout)
	}
	agent, err := userAgent(cfg.Version, cfg.Contact)
	if err != nil {
		return nil, err
	}
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	return &Client{base: base, timeout: cfg.Timeout, agent: agent, now: now, transport: newTransport(cfg.Timeout)}, nil
}

// newTransport makes a transport that sends a request once or not at all: Go
// replays a request only on a connection that was used before, and here none is.
// HTTP/2 is off for the same reason, and no proxy is asked (see the package comment).
func newTransport(total time.Duration) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		Proxy:                  nil,
		DialContext:            forCall((&net.Dialer{KeepAlive: -1}).DialContext),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ResponseHeaderTimeout:  total * 4 / 5, // leaves time for the body
		MaxResponseHeaderBytes: maxHeader,
		DisableKeepAlives:      true,
		Protocols:              protocols,
	}
	t.DialTLSContext = secured(
		func(ctx context.Context, network, address string) (net.Conn, error) {
			return t.DialContext(ctx, network, address)
		},
		func() *tls.Config { return t.TLSClientConfig }, min(tlsTimeout, total))
	return t
}

// CheckBaseURL says what keeps s from being a Config's BaseURL, nil when nothing does. The error continues a sentence that
// begins with the value's name, and shows nothing of the value.
func CheckBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("cannot be read as a URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "":
		return errors.New("is not an absolute URL that begins with https:// or http://")
	case u.Hostname() == "":
		return errors.New("names no host")
	case !possible(u.Port()):
		return errors.New("names an impossible port")
	case u.User != nil:
		return errors.New("holds a user or a password")
	case strings.ContainsAny(s, "?#"):
		return errors.New("does not end with its path, without ? or #")
	}
	return nil
}

func possible(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// maxContact keeps the User-Agent short: proxies and logs on the way cut long ones.
const maxContact = 200

// CheckContact says what keeps s from being a Config's Contact, nil when nothing does. It becomes a comment in an HTTP header.
// The error continues a sentence that begins with the value's name.
func CheckContact(s string) error {
	if len(s) > maxContact {
		return fmt.Errorf("is longer than %d bytes", maxContact)
	}
	for _, r := range s {
		if r <= ' ' || r > '~' || r == '(' || r == ')' {
			return fmt.Errorf("contains %q, which cannot stand in the comment of an HTTP header", r)
		}
	}
	return nil
}

// userAgent says honestly who calls and where to complain.
func userAgent(version, contact string) (string, error) {
	if version == "" {
		version = "dev"
	}
	for _, r := range version {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.+-_", r) {
			return "", fmt.Errorf("vpic: Version contains %q; letters, digits and .+-_ are allowed", r)
		}
	}
	if err := CheckContact(contact); err != nil {
		return "", fmt.Errorf("vpic: Contact %w", err)
	}
	if contact == "" {
		return "vingate/" + version, nil
	}
	return "vingate/" + version + " (+" + contact + ")", nil
}

// check refuses what must not be put into a URL or a form.
func (q Query) check() *Error {
	if len(q.VIN) < 1 || len(q.VIN) > 17 {
		return &Error{Kind: BadQuery, Reason: fmt.Sprintf("a VIN of %d characters", len(q.VIN))}
	}
	for i := range len(q.VIN) {
		switch c := q.VIN[i]; {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '*':
		default:
			return &Error{Kind: BadQuery, Reason: fmt.Sprintf("a character at position %d that no VIN contains", i+1)}
		}
	}
	if q.ModelYear < 0 || q.ModelYear > 9999 {
		return &Error{Kind: BadQuery, Reason: "a model year of more than four digits"}
	}
	return nil
}

// Decode makes exactly one upstream call, never repeated. Err is always a *Error.
// The call ends at the earlier of ctx's deadline and Config.Timeout.
func (c *Client) Decode(ctx context.Context, q Query) (Answer, error) {
	if e := q.check(); e != nil {
		return Answer{}, e
	}
	call := "DecodeVinValues"
	if q.Extended {
		call += "Extended"
	}
	// The VIN was checked: none of its characters needs an escape, and '*' may stand as it is.
	address := c.base + "/" + call + "/" + q.VIN + "?format=json"
	if q.ModelYear != 0 {
		address += "&modelyear=" + strconv.Itoa(q.ModelYear)
	}
	r, e := c.call(ctx, http.MethodGet, address, "")
	if e != nil {
		return Answer{}, e
	}
	d, e := interpret(r.body, q)
	if e != nil {
		return Answer{}, r.unusable(e)
	}
	return Answer{query: q, body: r.body, decoding: d, Quota: r.quota, FetchedAt: r.at, Took: r.took}, nil
}

// reply is a 200 with a JSON content type and a body within the cap.
type reply struct {
	body  []byte
	quota Quota
	at    time.Time
	took  time.Duration
}

// unusable adds to e what the reply knows of its call.
func (r reply) unusable(e *Error) *Error {
	e.Status, e.Started, e.Took, e.RetryAfter = http.StatusOK, true, r.took, r.quota.RetryAfter
	return e
}

// call sends one request and reads its answer. A form makes it a POST with that body.
func (c *Client) call(caller context.Context, method, address, form string) (reply, *Error) {
	begin := c.now()
	took := func() time.Duration { return max(0, c.now().Sub(begin)) }

	ctx, cancel := context.WithTimeout(caller, c.timeout)
	defer cancel()

	// Both are set by the transport's goroutines.
	var connected, answered atomic.Bool
	this := &call{ctx: ctx, startBy: startBy(caller), now: c.now}
	fail := func(err error) *Error {
		if this.late.Load() {
			return &Error{Kind: NotStarted, Reason: "connected too late to start", Took: took()}
		}
		e := classify(caller, ctx, err, connected.Load(), answered.Load())
		e.Started, e.Took = connected.Load(), took()
		return e
	}
	if err := ctx.Err(); err != nil {
		return reply{}, fail(err)
	}

	traced := httptrace.WithClientTrace(context.WithValue(ctx, callKey{}, this), &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { connected.Store(true) },
		GotFirstResponseByte: func() { answered.Store(true) },
	})
	var body io.Reader
	if form != "" {
		body = strings.NewReader(form)
	}
	req, err := http.NewRequestWithContext(traced, method, address, body)
	if err != nil {
		return reply{}, &Error{Kind: BadQuery, Reason: "the address of the call cannot be built", Took: took()}
	}
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Accept", "application/json")
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	// The transport itself, not an http.Client: nothing can follow a redirect.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return reply{}, fail(err)
	}
	defer resp.Body.Close()

	quota := readQuota(resp.Header, c.now())
	e := statusError(resp.StatusCode)
	if e == nil && !isJSON(resp.Header) {
		e = &Error{Kind: BadResponse, Reason: "the content type is not JSON"}
	}
	if e != nil {
		stop := time.AfterFunc(drainTimeout, cancel)
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, drainBytes))
		stop.Stop()
		e.Status, e.RetryAfter, e.Started, e.Took = resp.StatusCode, quota.RetryAfter, true, took()
		return reply{}, e
	}

	content, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(content) > maxBody {
		err = errTooLarge
	}
	if err != nil {
		e := fail(err)
		e.Status, e.RetryAfter = resp.StatusCode, quota.RetryAfter
		return reply{}, e
	}
	at := c.now()
	return reply{body: withoutBOM(content), quota: quota, at: at, took: max(0, at.Sub(begin))}, nil
}

func isJSON(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return false
	}
	return media == "application/json" || media == "text/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}
