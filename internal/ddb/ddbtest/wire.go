// Package ddbtest does to the calls of a DynamoDB client what networks do. It is for tests.
package ddbtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Fault is what happens to one request. The zero Fault is nothing.
type Fault struct {
	Lost   bool   // applied, and the answer dropped
	Hang   bool   // applied, and no answer until the caller gives up
	Cut    bool   // never reaches the store
	Before bool   // never reaches the store, and no answer until the caller gives up
	Status int    // an answer in the store's place...
	Code   string // ...with this error code...
	Body   string // ...or this body
}

// Wire stands between the SDK and a store. It is safe for use by many goroutines. The zero Wire does nothing to anybody, once it stands
// before a client.
type Wire struct {
	next dynamodb.HTTPClient

	// Name, if not nil, tells requests of one operation apart by their body, such as the key of the item. It is set before the first request.
	Name func(op string, body []byte) string

	mu      sync.Mutex
	script  func(op string, n int) Fault
	asked   map[string]int
	reached map[string]int
}

// On is a client whose calls go over a new wire.
func On(c *dynamodb.Client) (*dynamodb.Client, *Wire) {
	w := &Wire{}
	return w.Before(c), w
}

// Before is a client whose calls go over this wire.
func (w *Wire) Before(c *dynamodb.Client) *dynamodb.Client {
	o := c.Options()
	w.next, w.asked, w.reached = o.HTTPClient, map[string]int{}, map[string]int{}
	o.HTTPClient = w
	return dynamodb.New(o)
}

// Script says what happens to the n-th request of each operation, counted from 1 and from now. It may be called by many goroutines.
func (w *Wire) Script(script func(op string, n int) Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script, w.asked = script, map[string]int{}
}

// Count is how many requests of an operation reached the store.
func (w *Wire) Count(op string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached[op]
}

// Do is http.Client's.
func (w *Wire) Do(r *http.Request) (*http.Response, error) {
	op := r.Header.Get("X-Amz-Target")
	op = op[strings.LastIndex(op, ".")+1:]
	if w.Name != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		op = w.Name(op, body)
	}
	w.mu.Lock()
	w.asked[op]++
	script, n := w.script, w.asked[op]
	w.mu.Unlock()
	var f Fault
	if script != nil {
		f = script(op, n)
	}
	switch {
	case f.Cut:
		return nil, errors.New("connection refused")
	case f.Before:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case f.Status != 0:
		body := f.Body
		if body == "" {
			body = fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"scripted"}`, f.Code)
		}
		return &http.Response{StatusCode: f.Status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	w.mu.Lock()
	w.reached[op]++
	w.mu.Unlock()
	res, err := w.next.Do(r)
	if err != nil || !f.Lost && !f.Hang {
		return res, err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if f.Hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return nil, io.ErrUnexpectedEOF
}
