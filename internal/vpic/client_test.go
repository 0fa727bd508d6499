package vpic

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func newClient(t *testing.T, base string) *Client {
	t.Helper()
	c, err := New(Config{BaseURL: base, Timeout: 10 * time.Second, Contact: "ops@example.test", Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustFail(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %#v, want a *Error", err)
	}
	mustNotLeak(t, err)
	return e
}

// pipes is a listener whose connections live in memory, so that a test can run in
// a bubble with a clock of its own. The bubble also proves that nothing is left
// running: it does not end before every goroutine has.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	dials  atomic.Int32
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr {
	return &net.UnixAddr{Name: "pipes", Net: "unix"}
}
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.dials.Add(1)
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubble runs f with a client of a server in memory.
func inBubble(t *testing.T, h http.HandlerFunc, f func(t *testing.T, c *Client, calls *atomic.Int32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		ln := newPipes()
		srv := &http.Server{
			Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls.Add(1); h(w, r) }),
			ErrorLog: log.New(io.Discard, "", 0),
		}
		go srv.Serve(ln)
		defer srv.Close()
		c := newClient(t, "http://vpic.test/api/vehicles")
		c.transport.DialContext = forCall(ln.dial)
		f(t, c, &calls)
	})
}

func asJSON(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Write(body)
	}
}

func with(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

const page = "<html><body><h1>" + canary + "</h1>" + accord + "</body></html>"

func TestEveryAnswerIsClassified(t *testing.T) {
	good := string(envelope(flat(accord, nil)))
	const js, html = "application/json; charset=utf-8", "text/html"
	big := strings.Repeat(canary, maxBody/len(canary)+1)

	for _, c := range []struct {
		name       string
		answer     http.HandlerFunc
		kind       Kind // "" for a decode
		status     int
		blocked    bool
		retryAfter time.Duration
	}{
		{"a decode", with(200, js, good), "", 0, false, 0},
		{"a decode with another JSON type", with(200, "application/problem+json", good), "", 0, false, 0},
		{"429 with seconds", with(429, html, page, "Retry-After", "120"), Throttled, 429, false, 2 * time.Minute},
		{"429 with a date", with(429, js, page, "Retry-After", "Sat, 01 Jan 2000 00:00:30 GMT", "Date", "Sat, 01 Jan 2000 00:00:00 GMT"), Throttled, 429, false, 30 * time.Second},
		{"429 without Retry-After", with(429, html, page), Throttled, 429, false, 0},
		{"429 with a quota header", with(429, js, "{}", "RateLimit", `"ip";r=0;t=17`), Throttled, 429, false, 17 * time.Second},
		{"429 with an endless Retry-After", with(429, html, page, "Retry-After", "999999"), Throttled, 429, false, time.Hour},
		{"429 with a decode in it", with(429, js, good), Throttled, 429, false, 0},
		{"403 in HTML", with(403, html, page), Throttled, 403, true, 0},
		{"403 with Retry-After", with(403, html, page, "Retry-After", "0"), Throttled, 403, true, time.Second},
		{"500", with(500, html, page), Unavailable, 500, false, 0},
		{"502", with(502, html, page), Unavailable, 502, false, 0},
		{"503 in HTML", with(503, html, page), Unavailable, 503, false, 0},
		{"503 with Retry-After", with(503, html, page, "Retry-After", "60"), Unavailable, 503, false, time.Minute},
		{"504 in HTML", with(504, html, page), Unavailable, 504, false, 0},
		{"500 with a decode in it", with(500, js, good), Unavailable, 500, false, 0},
		{"a redirect", with(302, html, page, "Location", "http://elsewhere.test/"), Unavailable, 302, false, 0},
		{"a redirect that would repeat the request", with(307, html, page, "Location", "/api/vehicles/again"), Unavailable, 307, false, 0},
		{"304", with(304, js, ""), Unavailable, 304, false, 0},
		{"404 in JSON", with(404, js, `{"message":"`+canary+`","messageDetail":"x"}`), BadResponse, 404, false, 0},
		{"400 in JSON", with(400, js, `{"message":"`+canary+`"}`), BadResponse, 400, false, 0},
		{"401", with(401, html, page), BadResponse, 401, false, 0},
		{"418", with(418, html, page), BadResponse, 418, false, 0},
		{"201 with a decode", with(201, js, good), BadResponse, 201, false, 0},
		{"204", with(204, js, ""), BadResponse, 204, false, 0},
		{"206", with(206, js, good), BadResponse, 206, false, 0},
		{"200 in HTML", with(200, html, page), BadResponse, 200, false, 0},
		{"200 in HTML called JSON", with(200, js, page), BadResponse, 200, false, 0},
		{"200 in XML", with(200, "application/xml", "<Response>"+canary+"</Response>"), BadResponse, 200, false, 0},
		{"200 in XML called JSON", with(200, js, "<Response>"+canary+"</Response>"), BadResponse, 200, false, 0},
		{"JSON called text", with(200, "text/plain", good), BadResponse, 200, false, 0},
		{"JSON without a type", with(200, "", good), BadResponse, 200, false, 0},
		{"JSON with a broken type", with(200, "json;;;=", good), BadResponse, 200, false, 0},
		{"half a JSON", with(200, js, good[:len(good)/2]), BadResponse, 200, false, 0},
		{"no byte", with(200, js, ""), BadResponse, 200, false, 0},
		{"garbage behind", with(200, js, good+canary), BadResponse, 200, false, 0},
		{"more than the cap", with(200, js, `{"Message":"`+big+`"}`), BadResponse, 200, false, 0},
		{"a decode and then blanks beyond the cap", with(200, js, good+strings.Repeat(" ", maxBody)), BadResponse, 200, false, 0},
		{"another VIN", with(200, js, string(envelope(flat(pickup, nil)))), BadResponse, 200, false, 0},
		{"no row", with(200, js, string(envelope())), BadResponse, 200, false, 0},
		{"an ERROR message", with(200, js, string(envelopeWith("ERROR: "+canary))), BadResponse, 200, false, 0},
		{"a bad answer with Retry-After", with(200, js, "{}", "Retry-After", "9"), BadResponse, 200, false, 9 * time.Second},
		{"HTML with Retry-After", with(200, html, page, "Retry-After", "9"), BadResponse, 200, false, 9 * time.Second},
		{"a body shorter than promised", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", js)
			w.Header().Set("Content-Length", fmt.Sprint(len(good)))
			io.WriteString(w, good[:len(good)-9])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, BadResponse, 200, false, 0},
		{"chunks that end early", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", js)
			io.WriteString(w, good)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, BadResponse, 200, false, 0},
		{"a body that is not compressed as it says", with(200, js, good, "Content-Encoding", "gzip"), BadResponse, 200, false, 0},
		{"an error body without end", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, page); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			}
		}, Unavailable, 503, false, 0},
		{"an error body that never ends nor comes", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(429)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, Throttled, 429, false, 0},
		{"an aborted handler", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unavailable, 0, false, 0},
		{"no answer at all", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Timeout, 0, false, 0},
		{"a body that stops", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", js)
			io.WriteString(w, good[:50])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, Timeout, 200, false, 0},
		{"a body that drips", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", js)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, " "); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
			}
		}, Timeout, 200, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.answer, func(t *testing.T, client *Client, calls *atomic.Int32) {
				begin := time.Now()
				a, err := client.Decode(t.Context(), Query{VIN: accord, ModelYear: 2003})
				if n := calls.Load(); n != 1 {
					t.Errorf("%d calls, want exactly one", n)
				}
				most := 10 * time.Second
				if c.status != 0 && c.status != 200 {
					most = drainTimeout // what is not used is not waited for
				}
				if d := time.Since(begin); d > most {
					t.Errorf("it took %s", d)
				}
				if c.kind == "" {
					if err != nil || a.Outcome() != Clean || a.Query() != (Query{VIN: accord, ModelYear: 2003}) || string(a.Body()) != good {
						t.Errorf("Decode = %+v, %v", a, err)
					}
					return
				}
				e := mustFail(t, err)
				if e.Kind != c.kind || e.Status != c.status || e.Blocked != c.blocked || e.RetryAfter != c.retryAfter || !e.Started || e.Reason == "" {
					t.Errorf("%#v, want %s, status %d, blocked %v, retry after %s", e, c.kind, c.status, c.blocked, c.retryAfter)
				}
				if a.Fields() != nil || a.Body() != nil || a.Make() != "" {
					t.Errorf("a refusal brings a vehicle: %+v", a)
				}
			})
		})
	}
}

func TestDeadlines(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	headerThenHang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	hangDial := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		dial    dialFunc
		caller  func(context.Context) (context.Context, context.CancelFunc)
		kind    Kind
		started bool
		took    time.Duration
	}{
		{"no connection: the dial deadline", hang, hangDial, nil, Unavailable, false, 2 * time.Second},
		{"no header: the header deadline", hang, nil, nil, Timeout, true, 8 * time.Second},
		{"no body: the total deadline", headerThenHang, nil, nil, Timeout, true, 10 * time.Second},
		{"no header: an earlier deadline of the caller", hang, nil, deadline(3 * time.Second), Timeout, true, 3 * time.Second},
		{"no body: an earlier deadline of the caller", headerThenHang, nil, deadline(3 * time.Second), Timeout, true, 3 * time.Second},
		{"no body: a later deadline of the caller changes nothing", headerThenHang, nil, deadline(time.Minute), Timeout, true, 10 * time.Second},
		{"no connection: the caller's deadline says nothing about NHTSA", hang, hangDial, deadline(time.Second), Timeout, false, time.Second},
		{"the caller's time was over before", hang, nil, deadline(-time.Second), Timeout, false, 0},
		{"no header: the caller cancels", hang, nil, cancelled(2 * time.Second), Canceled, true, 2 * time.Second},
		{"no body: the caller cancels", headerThenHang, nil, cancelled(2 * time.Second), Canceled, true, 2 * time.Second},
		{"no connection: the caller cancels", hang, hangDial, cancelled(time.Second), Canceled, false, time.Second},
		{"the caller cancelled before", hang, nil, cancelled(0), Canceled, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, c.answer, func(t *testing.T, client *Client, calls *atomic.Int32) {
				if c.dial != nil {
					client.transport.DialContext = forCall(c.dial)
				}
				ctx := t.Context()
				if c.caller != nil {
					var cancel context.CancelFunc
					ctx, cancel = c.caller(ctx)
					defer cancel()
				}
				_, err := client.Decode(ctx, Query{VIN: accord})
				e := mustFail(t, err)
				if e.Kind != c.kind || e.Started != c.started || e.Took != c.took {
					t.Errorf("%s, started %v, after %s; want %s, %v, %s (%v)", e.Kind, e.Started, e.Took, c.kind, c.started, c.took, e)
				}
				if want := map[bool]int32{true: 1, false: 0}[c.started]; calls.Load() != want {
					t.Errorf("%d calls, want %d", calls.Load(), want)
				}
				if c.kind == Canceled && !errors.Is(err, context.Canceled) || c.kind == Timeout && c.took != 8*time.Second && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the cause of %v is %v", err, e.Err)
				}
			})
		})
	}
}

// A connection that does not come about within the client's own time is NHTSA's or the way's: nobody else's time was over.
// Only when the caller's own ends first does it say nothing.
func TestNoConnectionInTimeIsNoMissingAnswer(t *testing.T) {
	hangDial := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	hangHandshake := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go io.Copy(io.Discard, far)
		return near, nil
	}
	for name, dial := range map[string]dialFunc{"dial": hangDial, "handshake": hangHandshake} {
		for _, total := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
			for _, left := range []time.Duration{300 * time.Millisecond, time.Minute} {
				t.Run(fmt.Sprintf("%s, %s of %s", name, left, total), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						client := newClient(t, "https://vpic.test")
						client.timeout = total
						client.transport.DialContext = forCall(dial)
						ctx, cancel := context.WithTimeout(t.Context(), left)
						defer cancel()
						_, err := client.Decode(ctx, Query{VIN: accord})
						e := mustFail(t, err)
						want := Unavailable
						if left < total {
							want = Timeout
						}
						if e.Kind != want || e.Started || e.Took > min(left, total) {
							t.Errorf("%#v, want %s, not started", e, want)
						}
					})
				})
			}
		}
	}
}

// net/http prints what a server says before it is asked, with its first bytes, through package log.
func TestNothingOfAServerThatSpeaksUnaskedIsLogged(t *testing.T) {
	var printed bytes.Buffer
	log.SetOutput(&printed)
	defer log.SetOutput(os.Stderr)
	example := httptest.NewTLSServer(nil) // for its certificate
	defer example.Close()
	for name, says := range map[string]string{
		"an answer":   "HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n" + canary,
		"a greeting":  canary + "\r\n",
		"a time-out":  "HTTP/1.1 408 Request Timeout\r\n\r\n" + canary,
		"a half line": "HTTP/1.1 2",
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, secure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := newClient(t, map[bool]string{false: "http://example.com", true: "https://example.com"}[secure])
					client.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
					client.transport.TLSClientConfig.RootCAs.AddCert(example.Certificate())
					client.transport.DialContext = forCall(func(context.Context, string, string) (net.Conn, error) {
						near, far := net.Pipe()
						go func() {
							defer far.Close()
							if secure {
								far = tls.Server(far, &tls.Config{Certificates: example.TLS.Certificates})
							}
							io.WriteString(far, says)
							io.Copy(io.Discard, far)
						}()
						return near, nil
					})
					// Everything the server has said has arrived before the request is sent.
					ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { synctest.Wait() }})
					_, err := client.Decode(ctx, Query{VIN: accord})
					if e := mustFail(t, err); !e.Started {
						t.Errorf("%#v, want it started", e)
					}
				})
			})
		}
	}
	if printed.Len() > 0 {
		t.Errorf("printed: %s", printed.String())
	}
}

func deadline(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, d)
	}
}

func cancelled(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		if d == 0 {
			cancel()
			return ctx, cancel
		}
		t := time.AfterFunc(d, cancel)
		return ctx, func() { t.Stop(); cancel() }
	}
}

// rawUpstream accepts connections and hands each to f; it counts them.
func rawUpstream(t *testing.T, f func(conn *net.TCPConn)) (base string, accepted *atomic.Int32) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int32)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			wg.Go(func() { defer conn.Close(); f(conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return "http://" + ln.Addr().String(), accepted
}

func readRequest(conn net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		io.Copy(io.Discard, r.Body)
	}
}

func reset(conn *net.TCPConn) { conn.SetLinger(0); conn.Close() }

func TestAKilledConnectionIsOneCall(t *testing.T) {
	good := envelope(flat(accord, nil))
	for _, c := range []struct {
		name   string
		answer func(conn *net.TCPConn)
		kind   Kind
	}{
		{"closed after accept", func(conn *net.TCPConn) { conn.Close() }, Unavailable},
		{"reset after accept", reset, Unavailable},
		{"reset in the request", func(conn *net.TCPConn) { conn.Read(make([]byte, 1)); reset(conn) }, Unavailable},
		{"closed after the request", func(conn *net.TCPConn) { readRequest(conn) }, Unavailable},
		{"reset after the request", func(conn *net.TCPConn) { readRequest(conn); reset(conn) }, Unavailable},
		{"closed in the header", func(conn *net.TCPConn) {
			readRequest(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: appl")
		}, BadResponse},
		{"closed in the body", func(conn *net.TCPConn) {
			readRequest(conn)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(good), good[:len(good)-1])
		}, BadResponse},
		{"reset in the body", func(conn *net.TCPConn) {
			readRequest(conn)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(good), good[:len(good)-1])
			reset(conn)
		}, Unavailable},
		{"no HTTP", func(conn *net.TCPConn) { readRequest(conn); io.WriteString(conn, "<html>"+canary+"\r\n\r\n") }, BadResponse},
		{"a broken header", func(conn *net.TCPConn) {
			readRequest(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+canary+"\r\n\r\n")
		}, BadResponse},
		{"a header beyond the cap", func(conn *net.TCPConn) {
			readRequest(conn)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX: %s\r\n\r\n%s",
				len(good), strings.Repeat(canary, maxHeader/len(canary)*2), good)
			io.Copy(io.Discard, conn)
		}, BadResponse},
		{"a broken chunk", func(conn *net.TCPConn) {
			readRequest(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+canary+"\r\n")
		}, BadResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, accepted := rawUpstream(t, c.answer)
			client := newClient(t, base)
			// A reset that is as fast as the accept may still be seen as a failed dial.
			mayNotStart := c.name == "reset after accept"
			_, err := client.Decode(t.Context(), Query{VIN: accord})
			if e := mustFail(t, err); e.Kind != c.kind || !e.Started && !mayNotStart {
				t.Errorf("GET: %#v, want %s, started", e, c.kind)
			}
			_, err = client.DecodeBatch(t.Context(), []Query{{VIN: accord}, {VIN: pickup}})
			if e := mustFail(t, err); e.Kind != c.kind || !e.Started && !mayNotStart {
				t.Errorf("POST: %#v, want %s, started", e, c.kind)
			}
			if n := accepted.Load(); n != 2 {
				t.Errorf("one GET and one POST made %d connections", n)
			}
		})
	}
}

func TestAConnectionIsNeverUsedTwice(t *testing.T) {
	// A server that would keep it: the second call must not find an old connection
	// dead, for then Go would send it again.
	good := envelope(flat(accord, nil))
	requests := new(atomic.Int32)
	base, accepted := rawUpstream(t, func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if requests.Add(1) > 1 {
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(good), good)
		}
	})
	client := newClient(t, base)
	if _, err := client.Decode(t.Context(), Query{VIN: accord}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Decode(t.Context(), Query{VIN: accord})
	if e := mustFail(t, err); e.Kind != Unavailable {
		t.Errorf("%v", e)
	}
	if requests.Load() != 2 || accepted.Load() != 2 {
		t.Errorf("two calls made %d requests on %d connections", requests.Load(), accepted.Load())
	}
}

func TestACallThatNeverLeftSaysSo(t *testing.T) {
	dns := &net.DNSError{Err: "no such host", Name: "vpic.test", IsNotFound: true}
	for _, c := range []struct {
		name   string
		err    error
		reason string
		is     error
	}{
		{"an unknown name", &net.OpError{Op: "dial", Err: dns}, "the host name does not exist", nil},
		{"a name server that fails", &net.DNSError{Err: "server misbehaving", Name: "vpic.test"}, "the host name could not be looked up", nil},
		{"a refused connection", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "the connection was refused", syscall.ECONNREFUSED},
		{"no route", &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, "no connection", syscall.EHOSTUNREACH},
	} {
		client := newClient(t, "http://vpic.test")
		client.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, c.err }
		_, err := client.Decode(t.Context(), Query{VIN: accord})
		e := mustFail(t, err)
		if e.Kind != Unavailable || e.Started || e.Status != 0 || e.Reason != c.reason || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %#v", c.name, e)
		}
	}
}

func TestNoConnectionOutlivesItsCall(t *testing.T) {
	// The handshake would hang for three seconds more.
	accepted, closed := make(chan struct{}), make(chan struct{})
	base, _ := rawUpstream(t, func(conn *net.TCPConn) {
		close(accepted)
		io.Copy(io.Discard, conn)
		close(closed)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-accepted; cancel() }()
	_, err := newClient(t, "https"+strings.TrimPrefix(base, "http")).Decode(ctx, Query{VIN: accord})
	if e := mustFail(t, err); e.Kind != Canceled || e.Started {
		t.Errorf("%#v", e)
	}
	select {
	case <-closed:
	case <-time.After(tlsTimeout / 2):
		t.Error("the connection is still open")
	}
}

func TestWhyNoConnectionCameAboutIsSaidInOwnWords(t *testing.T) {
	untrusted := func(err error) error {
		return &net.OpError{Op: "remote", Err: &tls.CertificateVerificationError{Err: err}}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{untrusted(x509.UnknownAuthorityError{}), "the certificate is signed by an unknown authority"},
		{untrusted(x509.HostnameError{Host: canary, Certificate: &x509.Certificate{}}), "the certificate is for another host"},
		{untrusted(x509.CertificateInvalidError{Reason: x509.Expired, Detail: canary}), "the certificate is not valid"},
		{untrusted(errors.New(canary)), "the certificate could not be verified"},
		{context.DeadlineExceeded, "no connection in time"},
		{errors.New(canary), "no connection"},
	} {
		if got := connectReason(c.err); got != c.want {
			t.Errorf("connectReason(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(asJSON(envelope(flat(accord, nil))))
	var calls atomic.Int32
	inner := srv.Config.Handler
	proto := make(chan string, 1)
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		proto <- r.Proto
		inner.ServeHTTP(w, r)
	})
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(srv.Certificate())

	t.Run("an unknown authority is no connection", func(t *testing.T) {
		_, err := newClient(t, srv.URL).Decode(t.Context(), Query{VIN: accord})
		e := mustFail(t, err)
		if e.Kind != Unavailable || e.Started || e.Reason != "the certificate is signed by an unknown authority" {
			t.Errorf("%#v", e)
		}
	})
	t.Run("another host's certificate is no connection", func(t *testing.T) {
		client := newClient(t, srv.URL)
		client.transport.TLSClientConfig.RootCAs = trusted
		client.transport.TLSClientConfig.ServerName = "vpic.test"
		_, err := client.Decode(t.Context(), Query{VIN: accord})
		if e := mustFail(t, err); e.Kind != Unavailable || e.Started || e.Reason != "the certificate is for another host" {
			t.Errorf("%#v", e)
		}
	})
	t.Run("an old TLS is no connection", func(t *testing.T) {
		old := httptest.NewUnstartedServer(inner)
		old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
		old.Config.ErrorLog = log.New(io.Discard, "", 0)
		old.StartTLS()
		defer old.Close()
		_, err := newClient(t, old.URL).Decode(t.Context(), Query{VIN: accord})
		if e := mustFail(t, err); e.Kind != Unavailable || e.Started {
			t.Errorf("%#v", e)
		}
	})
	t.Run("a server without TLS is no connection", func(t *testing.T) {
		plain := httptest.NewServer(inner)
		defer plain.Close()
		_, err := newClient(t, "https"+strings.TrimPrefix(plain.URL, "http")).Decode(t.Context(), Query{VIN: accord})
		if e := mustFail(t, err); e.Kind != Unavailable || e.Started {
			t.Errorf("%#v", e)
		}
	})
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls without a trusted connection", n)
	}
	t.Run("a trusted one brings a decode over HTTP/1.1", func(t *testing.T) {
		client := newClient(t, srv.URL)
		client.transport.TLSClientConfig.RootCAs = trusted
		a, err := client.Decode(t.Context(), Query{VIN: accord})
		if err != nil || a.Outcome() != Clean {
			t.Fatalf("%+v, %v", a, err)
		}
		if p := <-proto; p != "HTTP/1.1" {
			t.Errorf("called over %s", p)
		}
	})
	t.Run("a handshake ends with its call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := newClient(t, "https://vpic.test")
			near, far := net.Pipe()
			begin, closed := time.Now(), make(chan time.Time, 1)
			go func() { io.Copy(io.Discard, far); closed <- time.Now() }()
			client.transport.DialContext = forCall(func(context.Context, string, string) (net.Conn, error) { return near, nil })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.Decode(ctx, Query{VIN: accord})
			if e := mustFail(t, err); e.Kind != Timeout || e.Started || e.Took != time.Second {
				t.Errorf("%#v", e)
			}
			if late := (<-closed).Sub(begin); late != time.Second {
				t.Errorf("the connection was closed after %s", late)
			}
		})
	})
	t.Run("a handshake that hangs has its own deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := newClient(t, "https://vpic.test")
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			client.transport.DialContext = forCall(func(context.Context, string, string) (net.Conn, error) { return near, nil })
			_, err := client.Decode(t.Context(), Query{VIN: accord})
			if e := mustFail(t, err); e.Kind != Unavailable || e.Started || e.Took != tlsTimeout || e.Reason != "no connection in time" {
				t.Errorf("%#v", e)
			}
		})
	})
}

func TestWhatIsSent(t *testing.T) {
	for _, c := range []struct {
		name string
		q    Query
		want string
	}{
		{"a VIN", Query{VIN: accord}, "/api/vehicles/DecodeVinValues/" + accord + "?format=json"},
		{"with a model year", Query{VIN: accord, ModelYear: 2003}, "/api/vehicles/DecodeVinValues/" + accord + "?format=json&modelyear=2003"},
		{"extended", Query{VIN: accord, Extended: true}, "/api/vehicles/DecodeVinValuesExtended/" + accord + "?format=json"},
		{"a partial VIN keeps its asterisk", Query{VIN: suv, ModelYear: 2011}, "/api/vehicles/DecodeVinValues/5UXWX7C5*BA?format=json&modelyear=2011"},
		{"the caller's own spelling", Query{VIN: "1hgcm82633a004352"}, "/api/vehicles/DecodeVinValues/1hgcm82633a004352?format=json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.Method != "GET" || r.RequestURI != c.want || r.Host != "vpic.test" || len(body) != 0 {
					t.Errorf("%s %s to %s with %d bytes, want GET %s", r.Method, r.RequestURI, r.Host, len(body), c.want)
				}
				for name, want := range map[string]string{
					"User-Agent": "vingate/1.2.3 (+ops@example.test)", "Accept": "application/json", "Connection": "close",
					"Cookie": "", "Referer": "", "Authorization": "",
				} {
					if got := r.Header.Get(name); got != want {
						t.Errorf("%s: %q, want %q", name, got, want)
					}
				}
				asJSON(envelope(flat(c.q.VIN, nil)))(w, r)
			}
			inBubble(t, answer, func(t *testing.T, client *Client, _ *atomic.Int32) {
				if _, err := client.Decode(t.Context(), c.q); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAnAnswerTellsWhenAndHowLong(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(412 * time.Millisecond)
		w.Header().Set("RateLimit", `"ip";r=0;t=12`)
		asJSON(append([]byte("\xEF\xBB\xBF"), envelope(flat(accord, nil))...))(w, r)
	}
	inBubble(t, answer, func(t *testing.T, client *Client, _ *atomic.Int32) {
		a, err := client.Decode(t.Context(), Query{VIN: accord})
		if err != nil {
			t.Fatal(err)
		}
		if a.Took != 412*time.Millisecond || !a.FetchedAt.Equal(time.Now()) {
			t.Errorf("took %s, fetched at %s, now %s", a.Took, a.FetchedAt, time.Now())
		}
		if a.Quota != (Quota{Exhausted: true, RetryAfter: 12 * time.Second}) {
			t.Errorf("quota %+v", a.Quota)
		}
		if !bytes.Equal(a.Body(), envelope(flat(accord, nil))) {
			t.Errorf("the body is not NHTSA's: %q", a.Body())
		}
		if _, err := Read(a.Body(), a.Query()); err != nil {
			t.Errorf("the body cannot be interpreted again: %v", err)
		}
	})
}

func TestAClockThatStepsBackMakesNoNegativeTime(t *testing.T) {
	times := []time.Time{noon, noon.Add(-time.Hour)}
	inBubble(t, asJSON(envelope(flat(accord, nil))), func(t *testing.T, client *Client, _ *atomic.Int32) {
		client.now = func() time.Time {
			now := times[0]
			if len(times) > 1 {
				times = times[1:]
			}
			return now
		}
		if a, err := client.Decode(t.Context(), Query{VIN: accord}); err != nil || a.Took != 0 {
			t.Errorf("took %s, %v", a.Took, err)
		}
	})
}

func TestACompressedAnswerIsReadWithinTheCap(t *testing.T) {
	zip := func(b []byte) http.HandlerFunc {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(b)
		w.Close()
		return with(200, "application/json", z.String(), "Content-Encoding", "gzip")
	}
	inBubble(t, zip(envelope(flat(accord, nil))), func(t *testing.T, client *Client, _ *atomic.Int32) {
		if a, err := client.Decode(t.Context(), Query{VIN: accord}); err != nil || a.Make() != "HONDA" {
			t.Errorf("%+v, %v", a, err)
		}
	})
	inBubble(t, zip(bytes.Repeat([]byte(" "), 4*maxBody)), func(t *testing.T, client *Client, _ *atomic.Int32) {
		_, err := client.Decode(t.Context(), Query{VIN: accord})
		if e := mustFail(t, err); e.Kind != BadResponse || e.Reason != "the answer is larger than 1 MiB" {
			t.Errorf("%#v", e)
		}
	})
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		asJSON(envelope(flat(accord, nil)))(w, r)
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		base, accepted := rawUpstream(t, func(conn *net.TCPConn) {
			readRequest(conn)
			fmt.Fprintf(conn, "HTTP/1.1 %d Moved\r\nLocation: %s/\r\nContent-Length: 0\r\n\r\n", status, other.URL)
		})
		client := newClient(t, base)
		_, err := client.Decode(t.Context(), Query{VIN: accord})
		if e := mustFail(t, err); e.Kind != Unavailable || e.Status != status {
			t.Errorf("%d: %#v", status, e)
		}
		_, err = client.DecodeBatch(t.Context(), []Query{{VIN: accord}})
		if e := mustFail(t, err); e.Kind != Unavailable || e.Status != status {
			t.Errorf("%d: %#v", status, e)
		}
		if elsewhere.Load() != 0 || accepted.Load() != 2 {
			t.Errorf("%d: two calls made %d connections, and %d elsewhere", status, accepted.Load(), elsewhere.Load())
		}
	}
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://proxy.test:3128")
	}
	var dialled string
	client := newClient(t, "http://vpic.test")
	client.transport.DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
		dialled = address
		return nil, syscall.ECONNREFUSED
	}
	_, err := client.Decode(t.Context(), Query{VIN: accord})
	mustFail(t, err)
	if dialled != "vpic.test:80" || client.transport.Proxy != nil {
		t.Errorf("dialled %s", dialled)
	}
}

func TestABadQueryIsNeverSent(t *testing.T) {
	inBubble(t, asJSON(envelope(flat(accord, nil))), func(t *testing.T, client *Client, calls *atomic.Int32) {
		for _, q := range []Query{
			{}, {VIN: "1HGCM82633A0043521"}, {VIN: "../WMI/1HG"}, {VIN: "1HG?x=1"}, {VIN: "1HG%2F"}, {VIN: "1HG#"}, {VIN: "1HG 1"},
			{VIN: "1HG\r\nX: y"}, {VIN: "1HG;2"}, {VIN: "1HG&a=b"}, {VIN: "1HGÉ"}, {VIN: accord, ModelYear: -1}, {VIN: accord, ModelYear: 20030},
		} {
			_, err := client.Decode(t.Context(), q)
			if e := mustFail(t, err); e.Kind != BadQuery || e.Started || e.Reason == "" {
				t.Errorf("%+v: %#v", q, e)
			}
		}
		if calls.Load() != 0 {
			t.Errorf("%d calls", calls.Load())
		}
		// What the drop-in route lets through and NHTSA itself judges.
		for _, vin := range []string{"1", "OIQ", "*"} {
			_, err := client.Decode(t.Context(), Query{VIN: vin})
			if e := mustFail(t, err); e.Kind != BadResponse {
				t.Errorf("%q: %v, want it sent", vin, e)
			}
		}
		if calls.Load() != 3 {
			t.Errorf("%d calls, want 3", calls.Load())
		}
	})
}

func TestNewNamesTheWrongValue(t *testing.T) {
	ok := Config{BaseURL: "https://vpic.test/api/vehicles", Timeout: time.Second, Contact: "https://example.test/contact", Version: "1.0"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		names  string // "" when it is right
	}{
		{"all is right", func(*Config) {}, ""},
		{"no contact", func(c *Config) { c.Contact = "" }, ""},
		{"no version", func(c *Config) { c.Version = "" }, ""},
		{"a slash at the end", func(c *Config) { c.BaseURL += "/" }, ""},
		{"plain http", func(c *Config) { c.BaseURL = "http://127.0.0.1:8090/api/vehicles" }, ""},
		{"no base", func(c *Config) { c.BaseURL = "" }, "BaseURL"},
		{"a base without scheme", func(c *Config) { c.BaseURL = "vpic.test/api" }, "BaseURL"},
		{"a base of another scheme", func(c *Config) { c.BaseURL = "ftp://vpic.test" }, "BaseURL"},
		{"a base without host", func(c *Config) { c.BaseURL = "https:///api" }, "BaseURL"},
		{"a base with only a port", func(c *Config) { c.BaseURL = "https://:443/api" }, "BaseURL"},
		{"a base with the port 0", func(c *Config) { c.BaseURL = "https://vpic.test:0/api" }, "BaseURL"},
		{"a base with a port beyond 16 bits", func(c *Config) { c.BaseURL = "https://vpic.test:65536/api" }, "BaseURL"},
		{"a base without slashes", func(c *Config) { c.BaseURL = "https:vpic.test/api" }, "BaseURL"},
		{"a base with a query", func(c *Config) { c.BaseURL += "?format=xml" }, "BaseURL"},
		{"a base with an empty query", func(c *Config) { c.BaseURL += "?" }, "BaseURL"},
		{"a base with a fragment", func(c *Config) { c.BaseURL += "#x" }, "BaseURL"},
		{"a base with an empty fragment", func(c *Config) { c.BaseURL += "#" }, "BaseURL"},
		{"a base with a password", func(c *Config) { c.BaseURL = "https://u:secret@vpic.test" }, "BaseURL"},
		{"a base that is no URL", func(c *Config) { c.BaseURL = "https://vpic.test/%zz" }, "BaseURL"},
		{"no timeout", func(c *Config) { c.Timeout = 0 }, "Timeout"},
		{"a negative timeout", func(c *Config) { c.Timeout = -time.Second }, "Timeout"},
		{"a contact that breaks the header", func(c *Config) { c.Contact = "a@b\r\nX: y" }, "Contact"},
		{"a contact with blanks", func(c *Config) { c.Contact = "call me" }, "Contact"},
		{"a contact with brackets", func(c *Config) { c.Contact = "a@b)" }, "Contact"},
		{"a contact of 200 bytes", func(c *Config) { c.Contact = strings.Repeat("c", 200) }, ""},
		{"a contact of 201 bytes", func(c *Config) { c.Contact = strings.Repeat("c", 201) }, "Contact"},
		{"a version with blanks", func(c *Config) { c.Version = "1 0" }, "Version"},
	} {
		cfg := ok
		c.change(&cfg)
		client, err := New(cfg)
		switch {
		case c.names == "" && (err != nil || client == nil):
			t.Errorf("%s: %v", c.name, err)
		case c.names != "" && (err == nil || client != nil || !strings.Contains(err.Error(), c.names)):
			t.Errorf("%s: %v, want an error that names %s", c.name, err, c.names)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error shows the password", c.name)
		}
	}
	for _, c := range []struct{ version, contact, want string }{
		{"1.0", "https://example.test/contact", "vingate/1.0 (+https://example.test/contact)"},
		{"1.0", "", "vingate/1.0"},
		{"", "", "vingate/dev"},
	} {
		if agent, err := userAgent(c.version, c.contact); err != nil || agent != c.want {
			t.Errorf("User-Agent %q, want %q (%v)", agent, c.want, err)
		}
	}
}

// What New takes can be called: the address of every call can be built from the base, and the header holds one line.
func TestProperty_WhatTheChecksPassCanBeCalled(t *testing.T) {
	pieces := []string{"http", "https", "ftp", ":", "//", "/", "vpic.test", "127.0.0.1", "[::1]", "@", "u:p", ":80", ":0", ":99999", ":x", "?", "#", "%", "%2F", "%zz", "..", " ",
		"é", "\x00", "\r\n", "a", "(", ")", "<me@example.test>", "me@example.test", "api"}
	passed := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8).Draw(t, "pieces"), "")
		}), rapid.Custom(func(t *rapid.T) string {
			return "https://vpic.test" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 3).Draw(t, "behind"), "")
		})).Draw(t, "text")

		client, err := New(Config{BaseURL: text, Timeout: time.Second})
		if ours := CheckBaseURL(text); (ours == nil) != (err == nil) {
			t.Fatalf("CheckBaseURL(%q): %v, New: %v", text, ours, err)
		}
		if err == nil {
			passed["URL"]++
			u, err := url.Parse(client.base + "/DecodeVinValues/" + accord + "?format=json")
			if err != nil || u.Hostname() == "" || !strings.HasSuffix(u.Path, "/DecodeVinValues/"+accord) || u.RawQuery != "format=json" || u.Fragment != "" {
				t.Fatalf("%q gives the address %v, %v", text, u, err)
			}
		}
		client, err = New(Config{BaseURL: "https://vpic.test", Timeout: time.Second, Contact: text})
		if ours := CheckContact(text); (ours == nil) != (err == nil) {
			t.Fatalf("CheckContact(%q): %v, New: %v", text, ours, err)
		}
		if err == nil {
			passed["contact"]++
			if strings.ContainsFunc(client.agent, func(c rune) bool { return c < ' ' || c > '~' }) || strings.Count(client.agent, "(") > 1 {
				t.Fatalf("the header %q", client.agent)
			}
		}
	})
	if passed["URL"] == 0 || passed["contact"] == 0 {
		t.Errorf("passed %v: the property showed too little", passed)
	}
}

func TestErrorTextIsWholeAndShort(t *testing.T) {
	e := &Error{Kind: Throttled, Status: 429, Reason: "asked to slow down", RetryAfter: 30 * time.Second, Err: io.EOF}
	if got, want := e.Error(), "vpic: throttled (HTTP 429): asked to slow down; retry after 30s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(e, io.EOF) {
		t.Error("the cause is lost")
	}
	if got, want := (&Error{Kind: Timeout}).Error(), "vpic: timeout"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAClientServesManyAtOnce(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		vin := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		asJSON(envelope(flat(vin, nil)))(w, r)
	}
	inBubble(t, answer, func(t *testing.T, client *Client, calls *atomic.Int32) {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				vin := fmt.Sprintf("1HGCM82633A0%05d", i)
				if a, err := client.Decode(t.Context(), Query{VIN: vin}); err != nil || a.Fields()["VIN"] != vin {
					t.Errorf("%s: %+v, %v", vin, a.Fields(), err)
				}
			})
		}
		wg.Wait()
		if calls.Load() != 40 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// Public reports; each names a kind of fault.

func TestPelican_69_NoByteOfAnErrorPageComesThrough(t *testing.T) {
	for _, status := range []int{200, 302, 400, 403, 404, 429, 500, 503, 504} {
		inBubble(t, with(status, "text/html", page), func(t *testing.T, client *Client, _ *atomic.Int32) {
			a, err := client.Decode(t.Context(), Query{VIN: accord})
			e := mustFail(t, err)
			seen, jsonErr := json.Marshal(struct {
				Answer Answer
				Error  *Error
			}{a, e})
			if jsonErr != nil || bytes.Contains(seen, []byte("7319")) || bytes.Contains(seen, []byte("html")) {
				t.Errorf("%d: %s, %v", status, seen, jsonErr)
			}
		})
	}
}
