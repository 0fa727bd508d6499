//go:build linux

package locallambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vingate/internal/locallambda"
	"vingate/internal/logtest"
)

var bootstrap string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "locallambda")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bootstrap = filepath.Join(dir, "bootstrap")
		build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", bootstrap, "./testdata/bootstrap")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build of the test function: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// server starts a local Lambda that the test ends.
func server(t *testing.T, opt locallambda.Options) (*locallambda.Server, *logtest.Buffer) {
	t.Helper()
	var log logtest.Buffer
	opt.Bootstrap, opt.Log = bootstrap, &log
	if opt.Drain == 0 {
		opt.Drain = time.Millisecond // tests of draining name their own
	}
	s, err := locallambda.Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, i := range s.Instances() {
			if i.State != locallambda.Dead {
				t.Errorf("instance %d is %s after Close", i.ID, i.State)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", i.PID)); i.PID != 0 && err == nil {
				t.Errorf("process %d of instance %d outlived Close", i.PID, i.ID)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
	})
	return s, &log
}

// reply is an answer of the front door.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func do(ctx context.Context, method, u string, body io.Reader) reply {
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return reply{err: err}
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(b), err}
}

// client keeps no connections, so that none is left half used by a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

func get(t *testing.T, u string) reply {
	t.Helper()
	r := do(t.Context(), "GET", u, nil)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r
}

func wantMessage(t *testing.T, r reply, status int, message string) {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	if want := fmt.Sprintf(`{"message":%q}`, message); r.status != status || r.body != want {
		t.Errorf("%d %s, want %d %s", r.status, r.body, status, want)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// gatekeeper is where a function waits for the test: it holds each call until it is let go.
type gatekeeper struct {
	url     string
	arrived chan string // the key of each call
	mu      sync.Mutex
	open    map[string]chan struct{}
}

func newGatekeeper(t *testing.T) *gatekeeper {
	g := &gatekeeper{arrived: make(chan string, 100), open: map[string]chan struct{}{}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, "/")
		ch := g.channel(key)
		g.arrived <- key
		select {
		case <-ch:
			_, _ = io.WriteString(w, "done "+key)
		case <-r.Context().Done():
		}
	}))
	g.url = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return g
}

func (g *gatekeeper) channel(key string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[key] == nil {
		g.open[key] = make(chan struct{})
	}
	return g.open[key]
}

func (g *gatekeeper) release(key string) { close(g.channel(key)) }

func (g *gatekeeper) await(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-g.arrived:
		case <-time.After(10 * time.Second):
			t.Fatal("the function did not begin within 10 s")
		}
	}
}

// path makes a function wait for the key.
func (g *gatekeeper) path(key string) string {
	return "/wait?url=" + url.QueryEscape(g.url+"/"+key)
}

// begin sends a request that will wait for key, and returns when its function runs.
func (g *gatekeeper) begin(t *testing.T, s *locallambda.Server, key string) <-chan reply {
	t.Helper()
	ch := make(chan reply, 1)
	ctx := t.Context()
	go func() { ch <- do(ctx, "GET", s.URL()+g.path(key), nil) }()
	g.await(t, 1)
	return ch
}

func finish(t *testing.T, ch <-chan reply) reply {
	t.Helper()
	select {
	case r := <-ch:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no answer within 20 s")
		return reply{}
	}
}

type whoami struct {
	PID         int               `json:"pid"`
	RemainingMS int64             `json:"remainingMs"`
	RequestID   string            `json:"requestId"`
	ARN         string            `json:"arn"`
	Trace       string            `json:"trace"`
	Env         map[string]string `json:"env"`
	Dir         string            `json:"dir"`
}

func who(t *testing.T, s *locallambda.Server) whoami {
	t.Helper()
	r := get(t, s.URL()+"/whoami")
	var w whoami
	if err := json.Unmarshal([]byte(r.body), &w); err != nil || r.status != 200 {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return w
}

func living(s *locallambda.Server) []locallambda.Instance {
	var out []locallambda.Instance
	for _, i := range s.Instances() {
		if i.State != locallambda.Dead {
			out = append(out, i)
		}
	}
	return out
}

func TestARequestReachesTheRealBootstrapAndComesBack(t *testing.T) {
	s, log := server(t, locallambda.Options{Env: []string{"PATH=/usr/bin", "MAX_IN_FLIGHT=4"}, Timeout: 20 * time.Second})
	if n := len(s.Instances()); n != 0 {
		t.Errorf("%d instances before the first request", n)
	}

	r := do(t.Context(), "POST", s.URL()+"/echo?x=1&x=2", strings.NewReader("a=b"))
	var ev struct {
		RawPath        string            `json:"rawPath"`
		Body           string            `json:"body"`
		IsBase64       bool              `json:"isBase64Encoded"`
		Query          map[string]string `json:"queryStringParameters"`
		Headers        map[string]string `json:"headers"`
		RequestContext struct {
			RequestID string `json:"requestId"`
			HTTP      struct {
				SourceIP string `json:"sourceIp"`
			} `json:"http"`
		} `json:"requestContext"`
	}
	if err := json.Unmarshal([]byte(r.body), &ev); err != nil {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	if ev.RawPath != "/echo" || ev.Body != "YT1i" || !ev.IsBase64 || ev.Query["x"] != "1,2" || ev.RequestContext.HTTP.SourceIP != "127.0.0.1" {
		t.Errorf("event %s", r.body)
	}
	if want := s.URL(); !strings.HasSuffix(want, ":"+ev.Headers["x-forwarded-port"]) {
		t.Errorf("x-forwarded-port %q at %s", ev.Headers["x-forwarded-port"], want)
	}
	if id := r.header.Get("Apigw-Requestid"); id == "" || id != ev.RequestContext.RequestID {
		t.Errorf("request id %q in the header, %q in the event", id, ev.RequestContext.RequestID)
	}

	w := who(t, s)
	inst := living(s)
	if len(inst) != 1 || inst[0].PID != w.PID || inst[0].State != locallambda.Idle || inst[0].InFlight != 0 || inst[0].Invocations != 2 {
		t.Errorf("instances %+v, the function is process %d", inst, w.PID)
	}
	if w.RemainingMS <= 18_000 || w.RemainingMS > 20_000 {
		t.Errorf("%d ms remain of 20 s", w.RemainingMS)
	}
	if w.Env["MAX_IN_FLIGHT"] != "4" || w.Env["AWS_LAMBDA_FUNCTION_NAME"] != "vingate-decode" || w.Dir != filepath.Dir(bootstrap) {
		t.Errorf("environment %v in %s", w.Env, w.Dir)
	}
	if w.ARN != "arn:aws:lambda:us-east-1:000000000000:function:vingate-decode" || !strings.HasPrefix(w.Trace, "Root=1-") {
		t.Errorf("ARN %q, trace %q", w.ARN, w.Trace)
	}
	report := regexp.MustCompile(`(?m)^\[lambda 1\] REPORT RequestId: [0-9a-f-]{36}\tDuration: [0-9.]+ ms\tBilled Duration: [0-9]+ ms\tMemory Size: 512 MB\tMax Memory Used: [0-9]+ MB(\tInit Duration: [0-9.]+ ms)?$`)
	found := report.FindAllStringSubmatch(log.String(), -1)
	if len(found) != 2 || found[0][1] == "" || found[1][1] != "" {
		t.Errorf("REPORT lines %q, want two, the init duration on the first only", found)
	}
	if !strings.Contains(log.String(), w.RequestID) {
		t.Errorf("the log lacks request %s", w.RequestID)
	}
}

func TestAnswersOfAFunctionBecomeHTTP(t *testing.T) {
	s, log := server(t, locallambda.Options{})
	r := get(t, s.URL()+"/cookies")
	if r.status != 201 || r.body != "hi" || r.header.Get("X-One") != "1" || fmt.Sprint(r.header.Values("Set-Cookie")) != "[a=1; Path=/ b=2]" {
		t.Errorf("%+v", r)
	}
	if r := get(t, s.URL()+"/bare"); r.status != 200 || r.body != `{"hello":"world"}` || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("bare JSON: %+v", r)
	}
	if r := do(t.Context(), "HEAD", s.URL()+"/echo", nil); r.err != nil || r.status != 200 || r.body != "" {
		t.Errorf("HEAD: %+v", r)
	}
	wantMessage(t, get(t, s.URL()+"/bad"), 500, "Internal Server Error")
	wantMessage(t, get(t, s.URL()+"/error"), 500, "Internal Server Error")
	if n := len(s.Instances()); n != 1 {
		t.Errorf("%d instances: an error must not cost one", n)
	}
	get(t, s.URL()+"/log")
	for _, line := range []string{"[lambda 1] to stdout\n", "[lambda 1] to stderr\n", "\tStatus: error\tError Type: errorString\n"} {
		eventually(t, line, func() bool { return strings.Contains(log.String(), line) })
	}
}

func TestSizesAreThoseOfAWS(t *testing.T) {
	s, _ := server(t, locallambda.Options{})
	if r := get(t, s.URL()+"/big?bytes=5000000"); r.status != 200 || len(r.body) != 5_000_000 {
		t.Errorf("5 MB: %d, %d bytes", r.status, len(r.body))
	}
	wantMessage(t, get(t, s.URL()+"/big?bytes=7000000"), 500, "Internal Server Error")
	if r := do(t.Context(), "POST", s.URL()+"/none", strings.NewReader(strings.Repeat("x", 1<<20))); r.status != 200 {
		t.Errorf("1 MB in: %d %s", r.status, r.body)
	}
	wantMessage(t, do(t.Context(), "POST", s.URL()+"/echo", strings.NewReader(strings.Repeat("x", 10<<20+1))), 413, "Request Entity Too Large")
	// Below the gateway's cap, but in base64 above that of an invocation.
	wantMessage(t, do(t.Context(), "POST", s.URL()+"/echo", strings.NewReader(strings.Repeat("x", 6<<20))), 413, "Request Entity Too Large")
}

func TestWhatIsAboveInstancesTimesConcurrencyIsRefused(t *testing.T) {
	for _, tc := range []struct{ instances, concurrency int }{{3, 1}, {2, 4}} {
		t.Run(fmt.Sprintf("%dx%d", tc.instances, tc.concurrency), func(t *testing.T) {
			s, _ := server(t, locallambda.Options{Instances: tc.instances, Concurrency: tc.concurrency})
			g := newGatekeeper(t)
			var running []<-chan reply
			for n := range tc.instances * tc.concurrency {
				running = append(running, g.begin(t, s, fmt.Sprint(n)))
			}
			for _, i := range s.Instances() {
				if i.State != locallambda.Busy || i.InFlight != tc.concurrency {
					t.Errorf("instance %+v, want busy with %d", i, tc.concurrency)
				}
			}
			wantMessage(t, get(t, s.URL()+"/whoami"), 503, "Service Unavailable")
			_, err := s.Invoke(t.Context(), []byte(`{}`))
			if !errors.Is(err, locallambda.ErrThrottled) {
				t.Errorf("Invoke: %v, want ErrThrottled", err)
			}
			// One place free again is one request served.
			g.release("0")
			if r := finish(t, running[0]); r.status != 200 || r.body != "done 0" {
				t.Errorf("%+v", r)
			}
			if w := who(t, s); w.PID == 0 {
				t.Error("no answer")
			}
			for n, ch := range running[1:] {
				g.release(fmt.Sprint(n + 1))
				if r := finish(t, ch); r.status != 200 {
					t.Errorf("%+v", r)
				}
			}
			if n := len(s.Instances()); n != tc.instances {
				t.Errorf("%d instances ran, want %d", n, tc.instances)
			}
		})
	}
}

func TestTheInstanceThatBecameFreeLastIsUsedNext(t *testing.T) {
	s, _ := server(t, locallambda.Options{Instances: 3})
	g := newGatekeeper(t)
	a, b, c := g.begin(t, s, "a"), g.begin(t, s, "b"), g.begin(t, s, "c")
	pids := map[int]int{}
	for _, i := range living(s) {
		pids[i.ID] = i.PID
	}
	for key, ch := range map[string]<-chan reply{"c": c, "a": a} {
		g.release(key)
		finish(t, ch)
	}
	g.release("b")
	finish(t, b)
	for range 5 {
		if w := who(t, s); w.PID != pids[2] {
			t.Fatalf("process %d served, want instance 2 of %v", w.PID, pids)
		}
	}
}

func TestAOneAtATimeInstanceServesOneAfterTheOtherWithoutRefusing(t *testing.T) {
	// Between its answer and its next call for work the process has a place already.
	s, _ := server(t, locallambda.Options{})
	for n := range 200 {
		if r := get(t, s.URL()+"/bare"); r.status != 200 {
			t.Fatalf("request %d: %d %s", n, r.status, r.body)
		}
	}
	if n := len(s.Instances()); n != 1 {
		t.Errorf("%d instances", n)
	}
}

func TestACrashIs500AndTheNextRequestGetsAFreshInstance(t *testing.T) {
	for _, path := range []string{"/exit", "/panic"} {
		t.Run(path, func(t *testing.T) {
			s, _ := server(t, locallambda.Options{})
			before := who(t, s)
			wantMessage(t, get(t, s.URL()+path), 500, "Internal Server Error")
			eventually(t, "the crashed one is gone", func() bool { return len(living(s)) == 0 })
			after := who(t, s)
			if after.PID == before.PID {
				t.Error("the same process answers")
			}
			if all := s.Instances(); len(all) != 2 || all[0].ID != 2 || all[1].State != locallambda.Dead || !strings.HasPrefix(all[1].Exit, "exit status") {
				t.Errorf("instances %+v", all)
			}
		})
	}
}

func TestAFunctionThatTakesTooLongIsKilledAndIs503(t *testing.T) {
	s, log := server(t, locallambda.Options{Timeout: time.Second})
	g := newGatekeeper(t)
	began := time.Now()
	ch := g.begin(t, s, "slow")
	wantMessage(t, finish(t, ch), 503, "Service Unavailable")
	if took := time.Since(began); took < time.Second {
		t.Errorf("after %v already", took)
	}
	if all := s.Instances(); len(all) != 1 || all[0].State != locallambda.Dead || all[0].Exit != "signal: killed" {
		t.Errorf("instances %+v, want one killed", all)
	}
	if !strings.Contains(log.String(), "Task timed out after 1.00 seconds") || !strings.Contains(log.String(), "\tStatus: timeout\n") {
		t.Error("the log does not tell of the timeout")
	}
	if r := get(t, s.URL()+"/bare"); r.status != 200 {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
}

func TestAFunctionThatDoesNotStartIs500AndIsNotStartedInAHotLoop(t *testing.T) {
	for _, tc := range []struct {
		init   string
		within time.Duration
		says   string
	}{
		{"exit", 0, "it ended (exit status 7) before it asked for work"},
		{"error", 0, "it reported Config.Missing"},
		{"hang", 300 * time.Millisecond, "it did not ask for work within 300ms"},
	} {
		t.Run(tc.init, func(t *testing.T) {
			s, log := server(t, locallambda.Options{
				Instances: 5, Env: []string{"INIT=" + tc.init}, InitTimeout: tc.within, InitBackoff: time.Minute,
			})
			wantMessage(t, get(t, s.URL()+"/bare"), 500, "Internal Server Error")
			for range 20 {
				wantMessage(t, get(t, s.URL()+"/bare"), 500, "Internal Server Error")
			}
			if _, err := s.Invoke(t.Context(), []byte(`{}`)); !errors.Is(err, locallambda.ErrInit) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Invoke: %v, want ErrInit with %q", err, tc.says)
			}
			if n := len(s.Instances()); n != 1 {
				t.Errorf("%d starts within the back-off, want 1", n)
			}
			if !strings.Contains(log.String(), bootstrap+" does not start: "+tc.says) {
				t.Error("the log does not say why")
			}
		})
	}
}

func TestAFailedStartIsTriedAgainAfterTheBackoff(t *testing.T) {
	s, _ := server(t, locallambda.Options{Env: []string{"INIT=exit"}, InitBackoff: 20 * time.Millisecond})
	eventually(t, "three starts", func() bool {
		get(t, s.URL()+"/bare")
		return len(s.Instances()) == 3
	})
}

func TestAFrozenInstanceKeepsItsRequestUntilItIsThawed(t *testing.T) {
	s, _ := server(t, locallambda.Options{})
	g := newGatekeeper(t)
	ch := g.begin(t, s, "x")
	if err := s.Freeze(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if i := s.Instances()[0]; i.State != locallambda.Frozen || i.InFlight != 1 {
		t.Errorf("instance %+v, want frozen with its request", i)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Instances()[0].PID)); err != nil || !strings.Contains(string(b), ") T ") {
		t.Errorf("the process does not stand: %s %v", b, err)
	}
	if err := s.Freeze(t.Context(), 1); err != nil {
		t.Errorf("a second freeze: %v", err)
	}
	g.release("x") // the answer lies in its socket; it cannot read it
	wantMessage(t, get(t, s.URL()+"/bare"), 503, "Service Unavailable")
	select {
	case r := <-ch:
		t.Fatalf("answered while frozen: %+v", r)
	default:
	}
	if err := s.Thaw(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, ch); r.status != 200 || r.body != "done x" {
		t.Errorf("%+v", r)
	}
	if r := get(t, s.URL()+"/bare"); r.status != 200 {
		t.Errorf("afterwards: %d", r.status)
	}
}

func TestAFrozenInstanceIsGivenNothing(t *testing.T) {
	s, _ := server(t, locallambda.Options{Instances: 2})
	first := who(t, s)
	if err := s.Freeze(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if w := who(t, s); w.PID == first.PID {
			t.Fatal("the frozen one answered")
		}
	}
	if err := s.Thaw(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if i := s.Instances()[0]; i.State != locallambda.Idle || i.Invocations != 1 {
		t.Errorf("instance %+v", i)
	}
}

func TestATimeoutEndsAFrozenInstance(t *testing.T) {
	s, _ := server(t, locallambda.Options{Timeout: 1500 * time.Millisecond})
	g := newGatekeeper(t)
	ch := g.begin(t, s, "x")
	if err := s.Freeze(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, finish(t, ch), 503, "Service Unavailable")
	if i := s.Instances()[0]; i.State != locallambda.Dead {
		t.Errorf("instance %+v", i)
	}
}

func TestAKilledInstancesRequestIs500(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		t.Run(fmt.Sprintf("frozen=%v", frozen), func(t *testing.T) {
			s, _ := server(t, locallambda.Options{Instances: 2})
			g := newGatekeeper(t)
			ch := g.begin(t, s, "x")
			if frozen {
				if err := s.Freeze(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Kill(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			wantMessage(t, finish(t, ch), 500, "Internal Server Error")
			i := s.Instances()[0]
			if i.State != locallambda.Dead || i.Exit != "signal: killed" {
				t.Errorf("instance %+v", i)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", i.PID)); err == nil {
				t.Error("the process is still there")
			}
			for name, err := range map[string]error{"Kill": s.Kill(t.Context(), 1), "Freeze": s.Freeze(t.Context(), 1), "Thaw": s.Thaw(t.Context(), 7)} {
				if !errors.Is(err, locallambda.ErrNoInstance) {
					t.Errorf("%s of a dead one: %v", name, err)
				}
			}
		})
	}
}

func TestARequestOfAnInstanceKilledWhileItStartsIsServedByAnother(t *testing.T) {
	g := newGatekeeper(t)
	s, _ := server(t, locallambda.Options{Env: []string{"INIT=gate", "GATE=" + g.url + "/start"}})
	ch := make(chan reply, 1)
	ctx := t.Context()
	go func() { ch <- do(ctx, "GET", s.URL()+"/bare", nil) }()
	g.await(t, 1)
	if i := s.Instances()[0]; i.State != locallambda.Starting || i.InFlight != 1 {
		t.Errorf("instance %+v, want starting", i)
	}
	if err := s.Kill(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	g.await(t, 1) // the second one starts
	g.release("start")
	if r := finish(t, ch); r.status != 200 {
		t.Errorf("%+v", r)
	}
	if all := s.Instances(); len(all) != 2 || all[0].ID != 2 || all[0].Invocations != 1 {
		t.Errorf("instances %+v", all)
	}
}

func TestAClientThatHangsUpCancelsNothing(t *testing.T) {
	s, log := server(t, locallambda.Options{})
	g := newGatekeeper(t)
	ctx, hangUp := context.WithCancel(t.Context())
	ch := make(chan reply, 1)
	go func() { ch <- do(ctx, "GET", s.URL()+g.path("x"), nil) }()
	g.await(t, 1)
	hangUp()
	if r := finish(t, ch); !errors.Is(r.err, context.Canceled) {
		t.Fatalf("%+v", r)
	}
	wantMessage(t, get(t, s.URL()+"/bare"), 503, "Service Unavailable") // it runs on
	g.release("x")
	eventually(t, "the instance is idle", func() bool { return s.Instances()[0].State == locallambda.Idle })
	if strings.Contains(log.String(), "Status:") {
		t.Error("the invocation did not end well")
	}

	// The same for Invoke.
	ctx, hangUp = context.WithCancel(t.Context())
	event, _ := json.Marshal(map[string]string{"rawPath": "/wait", "rawQueryString": strings.TrimPrefix(g.path("y"), "/wait?")})
	errs := make(chan error, 1)
	go func() { _, err := s.Invoke(ctx, event); errs <- err }()
	g.await(t, 1)
	hangUp()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	g.release("y")
	eventually(t, "two invocations are over", func() bool { return strings.Count(log.String(), "REPORT") == 2 })
}

func TestTheGatewayStopsWaitingButTheFunctionGoesOn(t *testing.T) {
	s, log := server(t, locallambda.Options{Gateway: 500 * time.Millisecond})
	g := newGatekeeper(t)
	wantMessage(t, finish(t, g.begin(t, s, "x")), 503, "Service Unavailable")
	if i := s.Instances()[0]; i.State != locallambda.Busy {
		t.Errorf("instance %+v, want busy", i)
	}
	g.release("x")
	eventually(t, "the function ends well", func() bool {
		return strings.Contains(log.String(), "REPORT") && s.Instances()[0].State == locallambda.Idle
	})
}

func TestInvokeHandsOverARawEvent(t *testing.T) {
	s, _ := server(t, locallambda.Options{})
	res, err := s.Invoke(t.Context(), []byte(`{"source":"vingate.warmup"}`))
	if err != nil || string(res.Payload) != `{"warm":true}` || res.FunctionError != "" || res.Instance != 1 || res.RequestID == "" {
		t.Errorf("%+v %v", res, err)
	}
	res, err = s.Invoke(t.Context(), []byte(`{"rawPath":"/error"}`))
	if err != nil || res.FunctionError != "errorString" || !strings.Contains(string(res.Payload), `"errorMessage":"as asked"`) {
		t.Errorf("%+v %s %v", res, res.Payload, err)
	}
	if _, err = s.Invoke(t.Context(), []byte(`{"rawPath":"/exit"}`)); !errors.Is(err, locallambda.ErrCrashed) {
		t.Errorf("%v, want ErrCrashed", err)
	}
	if _, err = s.Invoke(t.Context(), make([]byte, 7<<20)); !errors.Is(err, locallambda.ErrPayloadTooLarge) {
		t.Errorf("%v, want ErrPayloadTooLarge", err)
	}
}

func TestCloseLetsRunningRequestsEnd(t *testing.T) {
	s, _ := server(t, locallambda.Options{Drain: 20 * time.Second})
	g := newGatekeeper(t)
	ch := g.begin(t, s, "x")
	closed := make(chan struct{})
	go func() { defer close(closed); _ = s.Close() }()
	eventually(t, "no new request is taken", func() bool {
		_, err := s.Invoke(t.Context(), []byte(`{}`))
		return errors.Is(err, locallambda.ErrClosed)
	})
	select {
	case <-closed:
		t.Fatal("closed with a request running")
	default:
	}
	g.release("x")
	if r := finish(t, ch); r.status != 200 {
		t.Errorf("%+v", r)
	}
	<-closed
	if r := do(t.Context(), "GET", s.URL()+"/bare", nil); r.err == nil {
		t.Errorf("the front door is open after Close: %+v", r)
	}
}

func TestCloseIsBoundedAndAnswersWhatItCuts(t *testing.T) {
	s, _ := server(t, locallambda.Options{Instances: 3, Drain: 50 * time.Millisecond})
	g := newGatekeeper(t)
	running, frozen := g.begin(t, s, "x"), g.begin(t, s, "y")
	if err := s.Freeze(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	// A connection that never sends a request must not hold it up either.
	silent, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("Close took %v", took)
	}
	for _, ch := range []<-chan reply{running, frozen} {
		wantMessage(t, finish(t, ch), 503, "Service Unavailable")
	}
}

func TestManyAtOnceWhileInstancesDieLoseNoAnswer(t *testing.T) {
	s, _ := server(t, locallambda.Options{Instances: 4, Concurrency: 4})
	const workers, each = 8, 25
	var wg sync.WaitGroup
	results := make(chan reply, workers*each)
	for range workers {
		wg.Go(func() {
			for n := range each {
				path := "/bare"
				if n == each/2 {
					path = "/exit"
				}
				r := do(t.Context(), "GET", s.URL()+path, nil)
				for path == "/exit" && r.status == 503 { // every worker brings one down
					r = do(t.Context(), "GET", s.URL()+path, nil)
				}
				results <- r
			}
		})
	}
	stop := make(chan struct{})
	var ops sync.WaitGroup
	ops.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, i := range living(s) {
				// Any of them may die meanwhile; that is the point.
				_ = s.Freeze(t.Context(), i.ID)
				_ = s.Thaw(t.Context(), i.ID)
			}
		}
	})
	wg.Wait()
	close(stop)
	ops.Wait()
	close(results)
	count := map[int]int{}
	for r := range results {
		if r.err != nil {
			t.Fatal(r.err)
		}
		count[r.status]++
	}
	if count[200]+count[500]+count[503] != workers*each || count[200] == 0 || count[500] < workers {
		t.Errorf("answers %v", count)
	}
	if n := len(living(s)); n > 4 {
		t.Errorf("%d instances, want at most 4", n)
	}
	eventually(t, "served again", func() bool { return get(t, s.URL()+"/bare").status == 200 })
}

func TestControlSocket(t *testing.T) {
	// A socket's path has at most 108 bytes; the test's own directory may be longer.
	dir, err := os.MkdirTemp("", "vg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "control.sock")
	// What a killed process leaves behind is replaced.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()

	s, _ := server(t, locallambda.Options{Control: socket})
	over := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	call := func(method, path, body string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://control"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := over.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, strings.TrimSpace(string(b)), res.Header
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v %v, want it for this user only", info, err)
	}
	if _, err := locallambda.Start(t.Context(), locallambda.Options{Bootstrap: bootstrap, Control: socket}); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("a second server on the socket: %v", err)
	}

	if code, body, _ := call("GET", "/instances", ""); code != 200 || body != "[]" {
		t.Errorf("%d %s", code, body)
	}
	if code, body, h := call("POST", "/invoke", `{"source":"vingate.warmup"}`); code != 200 || body != `{"warm":true}` || h.Get("X-Amz-Function-Error") != "" {
		t.Errorf("invoke: %d %s", code, body)
	}
	if code, body, h := call("POST", "/invoke", `{"rawPath":"/error"}`); code != 200 || h.Get("X-Amz-Function-Error") != "Unhandled" || !strings.Contains(body, "as asked") {
		t.Errorf("invoke of an error: %d %s", code, body)
	}
	if code, body, _ := call("POST", "/invoke", `{`); code != 400 {
		t.Errorf("invoke without JSON: %d %s", code, body)
	}
	pid := s.Instances()[0].PID
	for _, step := range []struct {
		path, body string
		code       int
	}{
		{"/instances/1/freeze", fmt.Sprintf(`{"id":1,"pid":%d,"state":"frozen","inflight":0,"invocations":2}`, pid), 200},
		{"/instances/1/thaw", fmt.Sprintf(`{"id":1,"pid":%d,"state":"idle","inflight":0,"invocations":2}`, pid), 200},
		{"/instances/1/kill", fmt.Sprintf(`{"id":1,"pid":%d,"state":"dead","inflight":0,"invocations":2,"exit":"signal: killed"}`, pid), 200},
		{"/instances/1/thaw", `{"message":"locallambda: no such living instance: 1"}`, 404},
		{"/instances/x/kill", `{"message":"strconv.Atoi: parsing \"x\": invalid syntax"}`, 404},
	} {
		if code, body, _ := call("POST", step.path, ""); code != step.code || body != step.body {
			t.Errorf("%s: %d %s, want %d %s", step.path, code, body, step.code, step.body)
		}
	}
	_ = s.Close()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestOptionsThatCannotWorkAreRefusedTogether(t *testing.T) {
	_, err := locallambda.Start(t.Context(), locallambda.Options{Bootstrap: filepath.Join(t.TempDir(), "absent"), Instances: -1, Concurrency: -2, Timeout: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"absent", "instances must be at least 1", "concurrency must be at least 1", "timeout must not be negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, err := locallambda.Start(t.Context(), locallambda.Options{Bootstrap: "/etc/passwd"}); err == nil || !strings.Contains(err.Error(), "is not a program") {
		t.Errorf("a file that is no program: %v", err)
	}
	if _, err := locallambda.Start(t.Context(), locallambda.Options{Bootstrap: bootstrap, Control: "/tmp/" + strings.Repeat("x", 100)}); err == nil || !strings.Contains(err.Error(), "is longer than") {
		t.Errorf("a long control path: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if _, err := locallambda.Start(t.Context(), locallambda.Options{Bootstrap: bootstrap, Listen: ln.Addr().String()}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a taken port: %v", err)
	}
}

func TestSpreadStartsAllAndUsesTheOneUsedLongestAgo(t *testing.T) {
	s, _ := server(t, locallambda.Options{Instances: 3, Spread: true, EnvOf: func(id int) []string { return []string{fmt.Sprint("NUMBER=", id)} }})
	var served []string
	for range 6 {
		served = append(served, get(t, s.URL()+"/").header.Get(locallambda.InstanceHeader))
	}
	if want := []string{"1", "2", "3", "1", "2", "3"}; !slices.Equal(served, want) {
		t.Errorf("served by %v, want %v", served, want)
	}
	for _, i := range s.Instances() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", i.PID))
		if err != nil {
			t.Skip("no environment of a process to be read here")
		}
		if !strings.Contains(string(env)+"\x00", fmt.Sprintf("\x00NUMBER=%d\x00", i.ID)) {
			t.Errorf("instance %d has %q", i.ID, env)
		}
	}
}
