package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// Proxy stands before the store and does what networks and stores do to calls: it throttles some, and of some it drops the answer after the
// store has applied them. It knows nothing of what the calls are about; who wants to know of some names a text that their bodies have.
type Proxy struct {
	store  string
	client *http.Client
	watch  []byte

	mu       sync.Mutex
	random   *rand.Rand
	lost     float64
	throttle float64
	seen     []Applied

	order sync.Mutex // of what is watched, so that it is known in the order in which it was applied
	serve *http.Server
	addr  string
}

// Applied is one watched call that the store applied.
type Applied struct {
	Sent, At time.Time // to the store, and when its answer was there: it was applied in between
	Lost     bool
	Request  []byte
	Response []byte
}

// StartProxy listens on a free port of 127.0.0.1 before a store at that URL.
func StartProxy(store, watch string, seed uint64) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		store: store, watch: []byte(watch), random: rand.New(rand.NewPCG(seed, 11)), addr: ln.Addr().String(),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, Timeout: 10 * time.Second},
	}
	p.serve = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.serve.Serve(ln) }()
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.addr }

// Close ends it.
func (p *Proxy) Close() error { return p.serve.Close() }

// Lose drops the answers of this share of the calls.
func (p *Proxy) Lose(share float64) { p.mu.Lock(); defer p.mu.Unlock(); p.lost = share }

// Throttle refuses this share of the calls as a table does that has no capacity left.
func (p *Proxy) Throttle(share float64) { p.mu.Lock(); defer p.mu.Unlock(); p.throttle = share }

// Take is what was watched since the last time.
func (p *Proxy) Take() []Applied {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

func (p *Proxy) draw() (lost, throttle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Float64() < p.lost, p.random.Float64() < p.throttle
}

// ServeHTTP is one call.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	lost, throttle := p.draw()
	if throttle {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"as the plan says"}`)
		return
	}
	watched := bytes.Contains(body, p.watch) && r.Header.Get("X-Amz-Target") == "DynamoDB_20120810.UpdateItem"
	status, header, answer, err := p.forward(r, body, watched, lost)
	if err != nil || lost {
		drop(w)
		return
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// forward hands a call on. It is not given up with its caller: a store that has a request applies it.
func (p *Proxy) forward(r *http.Request, body []byte, watched, lost bool) (int, http.Header, []byte, error) {
	if watched {
		p.order.Lock()
		defer p.order.Unlock()
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.store+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.Host = r.Host
	sent := time.Now()
	res, err := p.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, nil, err
	}
	if watched && res.StatusCode == http.StatusOK {
		p.mu.Lock()
		p.seen = append(p.seen, Applied{Sent: sent, At: time.Now(), Lost: lost, Request: body, Response: answer})
		p.mu.Unlock()
	}
	return res.StatusCode, res.Header, answer, nil
}

// drop ends the connection without a byte.
func drop(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// names are all texts that an UpdateItem's request names, and the item that it left.
func (a Applied) names() (names []string, item map[string]json.RawMessage, err error) {
	var req struct {
		ExpressionAttributeNames  map[string]string
		ExpressionAttributeValues map[string]struct {
			S  *string
			SS []string
		}
	}
	if err := json.Unmarshal(a.Request, &req); err != nil {
		return nil, nil, fmt.Errorf("a request of the store: %w", err)
	}
	for _, n := range req.ExpressionAttributeNames {
		names = append(names, n)
	}
	for _, v := range req.ExpressionAttributeValues {
		if v.S != nil {
			names = append(names, *v.S)
		}
		names = append(names, v.SS...)
	}
	var res struct{ Attributes map[string]json.RawMessage }
	if err := json.Unmarshal(a.Response, &res); err != nil {
		return nil, nil, fmt.Errorf("an answer of the store: %w", err)
	}
	return names, res.Attributes, nil
}
