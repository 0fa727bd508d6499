package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// callTimeout bounds one call. vingate answers within 27 s, and API Gateway within 30 s in its place.
const callTimeout = 40 * time.Second

// maxBody bounds what is read of a response; API Gateway passes 10 MB.
const maxBody = 16 << 20

// Client asks one vingate. It is safe for use by many goroutines.
type Client struct {
	base      string
	key       string
	userAgent string
	http      *http.Client
	now       func() time.Time
}

// Transport is Go's own, with the environment's proxies, but with a connection for each call: on one that died unnoticed Go would repeat
// the request by itself.
func Transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	return t
}

// New makes a client for the API at a URL such as http://127.0.0.1:8080. The API key may be empty; now is for a Retry-After that is a date.
func New(base, key, userAgent string, transport http.RoundTripper, now func() time.Time) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the address of the API must be a URL such as http://127.0.0.1:8080, not %q", base)
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the API key holds blanks or characters that no key has")
	}
	return &Client{base: u.String(), key: key, userAgent: userAgent, now: now, http: &http.Client{
		Transport: transport, Timeout: callTimeout,
		// A POST would become a GET, and the key would go where nobody meant it to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// URL is the address of the API.
func (c *Client) URL() string { return c.base }

// Lookup asks for one VIN, as a person does who waits for the answer. The error is a *Problem that refuses the caller, a *UnreachableError, or a
// *ForeignError.
func (c *Client) Lookup(ctx context.Context, q Question) (Result, error) {
	path := "/v1/vins/" + url.PathEscape(q.VIN)
	if q.ModelYear != 0 {
		path += "?modelYear=" + strconv.Itoa(q.ModelYear)
	}
	body, err := c.call(ctx, http.MethodGet, path, nil)
	var p *Problem
	switch {
	case errors.As(err, &p) && aboutTheVIN(p):
		return Result{Problem: p}, nil
	case err != nil:
		return Result{}, err
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Result{}, c.foreign("its answer is not readable JSON")
	}
	if err := c.check(&a, q); err != nil {
		return Result{}, err
	}
	return Result{Answer: &a}, nil
}

// aboutTheVIN says that a refusal of a lookup is one of the VIN or the year in it, or of what NHTSA said to it.
func aboutTheVIN(p *Problem) bool {
	return p.Code != "" && (p.Status == http.StatusBadRequest || p.Passing())
}

// Batch puts 1 to MaxBatch questions in one call and returns a result for each, in order. The error is a *Problem that refuses the whole call, a
// *UnreachableError, or a *ForeignError.
func (c *Client) Batch(ctx context.Context, questions []Question) ([]Result, error) {
	if n := len(questions); n == 0 || n > MaxBatch {
		return nil, fmt.Errorf("%d questions in one call; 1 to %d are possible", n, MaxBatch)
	}
	type wanted struct {
		VIN       string `json:"vin"`
		ModelYear int    `json:"modelYear,omitempty"`
	}
	list := make([]any, len(questions))
	for i, q := range questions {
		if list[i] = q.VIN; q.ModelYear != 0 {
			list[i] = wanted(q)
		}
	}
	ask, err := json.Marshal(map[string]any{"vins": list})
	if err != nil {
		return nil, err
	}
	body, err := c.call(ctx, http.MethodPost, "/v1/vins", ask)
	if err != nil {
		return nil, err
	}
	var got struct {
		Results []struct {
			VIN     string   `json:"vin"`
			Status  int      `json:"status"`
			Answer  *Answer  `json:"answer"`
			Problem *Problem `json:"problem"`
		} `json:"results"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, c.foreign("its answer is not readable JSON")
	}
	if len(got.Results) != len(questions) {
		return nil, c.foreign(fmt.Sprintf("it was asked for %d VINs and answers for %d", len(questions), len(got.Results)))
	}
	results := make([]Result, len(questions))
	for i, r := range got.Results {
		switch {
		case r.VIN != questions[i].VIN:
			return nil, c.foreign("its answers are not in the order of the questions")
		case (r.Answer == nil) == (r.Problem == nil), (r.Answer != nil) != (r.Status == http.StatusOK):
			return nil, c.foreign("it answers a VIN with neither a decode nor a refusal")
		case r.Problem != nil:
			if r.Problem.Status == 0 {
				r.Problem.Status = r.Status
			}
			if r.Problem.Detail == "" || r.Problem.Status < 400 {
				return nil, c.foreign("it refuses a VIN and does not say why")
			}
		default:
			if err := c.check(r.Answer, questions[i]); err != nil {
				return nil, err
			}
		}
		results[i] = Result{Answer: r.Answer, Problem: r.Problem}
	}
	return results, nil
}

// check is the last look at what is shown as a decode of this VIN.
func (c *Client) check(a *Answer, q Question) error {
	switch {
	case a.VIN != q.VIN:
		return c.foreign("it answers for another VIN than the one it was asked for")
	case a.Outcome == "" || a.Provenance.FetchedAt.IsZero():
		return c.foreign("its answer does not say what it is worth")
	}
	return nil
}

func (c *Client) foreign(reason string) error { return &ForeignError{URL: c.base, Reason: reason} }

// call makes the request and returns the body of a 200.
func (c *Client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		req.Body = http.NoBody
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.userAgent)
	if c.key != "" {
		req.Header.Set("X-Api-Key", c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, &UnreachableError{URL: c.base, Err: bare(err)}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, &UnreachableError{URL: c.base, Err: fmt.Errorf("the answer broke off: %w", bare(err))}
	case len(text) > maxBody:
		return nil, c.foreign("its answer is far too large")
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return nil, c.foreign(fmt.Sprintf("it points elsewhere (%d, Location %.200q); give that address", res.StatusCode, res.Header.Get("Location")))
	case res.StatusCode >= 400:
		return nil, c.refusal(res, text)
	case res.StatusCode != http.StatusOK || mediaType(res) != "application/json":
		return nil, c.foreign(fmt.Sprintf("it answers with status %d and %.60q", res.StatusCode, mediaType(res)))
	}
	return text, nil
}

// refusal is the error for a status of 400 or more: vingate's own problem, or what stands in front of it.
func (c *Client) refusal(res *http.Response, text []byte) error {
	p := &Problem{}
	if mediaType(res) != "application/problem+json" || json.Unmarshal(text, p) != nil || p.Code == "" || p.Detail == "" {
		if !(&Problem{Status: res.StatusCode}).Passing() {
			return c.foreign(fmt.Sprintf("it refuses with status %d", res.StatusCode))
		}
		p = &Problem{Detail: fmt.Sprintf("What stands in front of vingate answered with status %d.", res.StatusCode)}
	}
	p.Status = res.StatusCode
	p.RetryAfterSeconds = max(p.RetryAfterSeconds, c.retryAfter(res.Header.Get("Retry-After")), 0)
	return p
}

// retryAfter reads the header, a number of seconds or a date; 0 when it is neither. Parts of a second count as a whole one.
func (c *Client) retryAfter(value string) int64 {
	if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 32); err == nil {
		return n
	}
	if at, err := http.ParseTime(value); err == nil {
		return int64((at.Sub(c.now()) + time.Second - 1) / time.Second)
	}
	return 0
}

func mediaType(res *http.Response) string {
	t, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// bare takes the method and the URL, which has the VIN in it, out of an error of net/http.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
