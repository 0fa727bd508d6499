//go:build unix

// Package locallambda is a small AWS on this machine: an HTTP API in front of Lambda instances, each a real process of
// a built `bootstrap` that speaks the Lambda Runtime API. It is for running and testing the product without an account
// and without Docker.
//
// It promises, as on AWS:
//   - Up to Instances processes, started on demand, each with one request at a time (or Concurrency at once). The one
//     used last is used next. A request for which there is no place gets 503 {"message":"Service Unavailable"}.
//   - A function's crash, error or unusable answer is 500 {"message":"Internal Server Error"}; one that takes longer
//     than Timeout is killed and is 503; one that ends, or asks for no work, while it starts is 500, and is not started
//     again in a hot loop.
//   - A client that hangs up cancels nothing, nor does the gateway when it stops waiting after 30 s (503).
//   - An instance can be frozen (SIGSTOP), thawed and killed. A frozen one keeps its request until it is thawed, times
//     out or is killed, holds its place, and is given no other.
//   - No instance outlives Close, nor this process.
//
// Beyond AWS: with Concurrency above 1, aws-lambda-go's multi-concurrency is used as a test device, and the timeout of
// one request ends the instance with the others in it.
package locallambda

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vingate/internal/child"
)

// What AWS allows.
const (
	maxRequestBody = 10 << 20 // of an HTTP API
	maxHeaders     = 10240    // likewise, request line and all headers
	maxPayload     = 6 << 20  // of a synchronous invocation, each way
	maxBackoff     = 10 * time.Second
	bodyTimeout    = 30 * time.Second // for the whole of a request's body
	deadKept       = 32               // dead instances that are still listed
)

// Errors of an invocation. A function's own error is none of them: see Result.FunctionError.
var (
	ErrThrottled       = errors.New("locallambda: every instance is busy")
	ErrTimeout         = errors.New("locallambda: the function took too long")
	ErrCrashed         = errors.New("locallambda: the instance ended during the invocation")
	ErrInit            = errors.New("locallambda: the function does not start")
	ErrPayloadTooLarge = errors.New("locallambda: the payload is too large")
	ErrClosed          = errors.New("locallambda: closed")
	ErrNoInstance      = errors.New("locallambda: no such living instance")
)

// Options say what to run. Only Bootstrap is required.
type Options struct {
	Bootstrap    string        // path of the program
	Listen       string        // address of the front door; "" is an ephemeral port of 127.0.0.1
	Control      string        // path of the control socket; "" is none
	Instances    int           // processes at most; 0 is 1
	Concurrency  int           // requests at once in each; 0 is 1
	Timeout      time.Duration // of an invocation; 0 is 29 s, below the gateway's
	Gateway      time.Duration // longest wait of a request for its answer, starts included; 0 is 30 s, as on AWS
	InitTimeout  time.Duration // from the start to the first call for work; 0 is 10 s
	InitBackoff  time.Duration // pause after a failed start, doubling to 10 s; 0 is 250 ms
	Drain        time.Duration // how long Close waits for running invocations; 0 is 10 s
	Grace        time.Duration // between SIGTERM and SIGKILL in Close; 0 is 2 s
	FunctionName string        // "" is "vingate-decode"
	MemoryMB     int           // what the function is told; not enforced; 0 is 512, as in the template
	Sampled      bool          // whether the trace of each invocation is sampled: the function then sends its segments
	Env          []string      // environment of the instances, "NAME=value"; nil is this process's
	Log          io.Writer     // output of the instances and the REPORT lines; nil discards; must not call the Server

	// Test devices, beyond AWS. Spread starts all instances first and then uses the one that was used longest ago, so that a budget that
	// is shared by many is asked by many. EnvOf is more environment of the instance of that id, over Env.
	Spread bool
	EnvOf  func(id int) []string
}

func (o *Options) defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.Timeout, 29*time.Second)
	set(&o.Gateway, 30*time.Second)
	set(&o.InitTimeout, 10*time.Second)
	set(&o.InitBackoff, 250*time.Millisecond)
	set(&o.Drain, 10*time.Second)
	set(&o.Grace, 2*time.Second)
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Instances == 0 {
		o.Instances = 1
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.FunctionName == "" {
		o.FunctionName = "vingate-decode"
	}
	if o.MemoryMB == 0 {
		o.MemoryMB = 512
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
}

func (o *Options) validate() error {
	var faults []error
	if o.Instances < 1 {
		faults = append(faults, fmt.Errorf("instances must be at least 1, not %d", o.Instances))
	}
	if o.Concurrency < 1 {
		faults = append(faults, fmt.Errorf("concurrency must be at least 1, not %d", o.Concurrency))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"timeout", o.Timeout}, {"gateway time-out", o.Gateway}, {"init timeout", o.InitTimeout}, {"init back-off", o.InitBackoff}, {"drain", o.Drain}, {"grace", o.Grace}} {
		if d.value < 0 {
			faults = append(faults, fmt.Errorf("%s must not be negative, not %v", d.name, d.value))
		}
	}
	switch info, err := os.Stat(o.Bootstrap); {
	case o.Bootstrap == "":
		faults = append(faults, errors.New("the path of the bootstrap is missing"))
	case err != nil:
		faults = append(faults, fmt.Errorf("bootstrap: %w", err))
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		faults = append(faults, fmt.Errorf("bootstrap: %s is not a program", o.Bootstrap))
	}
	return errors.Join(faults...)
}

// Server is a running local Lambda. Its methods may be called from any goroutine.
type Server struct {
	opt     Options
	log     *child.Log
	parent  *child.Parent
	front   *http.Server
	url     string
	arn     string
	control *http.Server // nil without a control socket

	closeOnce sync.Once
	closed    chan struct{} // closed when Close is done

	mu         sync.Mutex
	stopping   bool
	lastID     int
	clock      uint64      // counts uses, for the choice of the warmest
	live       []*instance // at most opt.Instances, in the order of their start
	dead       []Instance  // the latest deadKept, oldest first
	inFlight   int
	quiet      chan struct{} // closed when stopping and inFlight is 0
	initFailed int           // failed starts in a row
	notBefore  time.Time     // no start before
	lastInit   error         // why the last start failed
}

// Result is what came of an invocation that the function answered.
type Result struct {
	RequestID     string
	Instance      int
	Payload       []byte
	FunctionError string // "" or the type of the error that Payload describes
	Duration      time.Duration
}

// Instance describes one process.
type Instance struct {
	ID          int    `json:"id"`
	PID         int    `json:"pid"`   // 0 until the process runs
	State       State  `json:"state"` // of this moment
	InFlight    int    `json:"inflight"`
	Invocations int    `json:"invocations"` // handed to it so far
	Exit        string `json:"exit,omitempty"`
}

// State of an instance.
type State string

// States. Frozen outranks busy and idle.
const (
	Starting State = "starting"
	Idle     State = "idle"
	Busy     State = "busy"
	Frozen   State = "frozen"
	Dead     State = "dead"
)

// Start opens the front door, and the control socket when one is named. No instance is started before the first
// request. ctx bounds the start only.
func Start(ctx context.Context, opt Options) (*Server, error) {
	opt.defaults()
	if err := opt.validate(); err != nil {
		return nil, fmt.Errorf("locallambda: %w", err)
	}
	path, err := filepath.Abs(opt.Bootstrap)
	if err != nil {
		return nil, fmt.Errorf("locallambda: bootstrap: %w", err)
	}
	opt.Bootstrap = path

	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", opt.Listen)
	if err != nil {
		return nil, fmt.Errorf("locallambda: listen: %w", err)
	}
	s := &Server{
		opt:    opt,
		log:    child.NewLog(opt.Log),
		parent: child.NewParent(),
		url:    "http://" + reachable(ln.Addr()),
		arn:    fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", region(envMap(opt.Env)), accountID, opt.FunctionName),
		closed: make(chan struct{}),
		quiet:  make(chan struct{}),
	}
	errorLog := log.New(s.log.Lines("lambda", nil), "", 0)
	s.front = &http.Server{
		Handler:           http.HandlerFunc(s.serveFront),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       75 * time.Second,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          errorLog,
	}
	if opt.Control != "" {
		cl, err := listenControl(ctx, opt.Control)
		if err != nil {
			_ = ln.Close()
			s.parent.Close()
			return nil, err
		}
		s.control = &http.Server{Handler: s.controlHandler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: errorLog}
		go func() { _ = s.control.Serve(cl) }()
	}
	go func() { _ = s.front.Serve(ln) }()
	return s, nil
}

// reachable is an address a client of this machine can use.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return a.String()
}

// URL is the base of the front door, without a slash at its end.
func (s *Server) URL() string { return s.url }

// Instances lists the living ones, then the latest dead, each in the order of their ids.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Instance, 0, len(s.live)+len(s.dead))
	for _, i := range s.live {
		out = append(out, i.describe())
	}
	return append(out, s.dead...)
}

// Invoke hands payload to an instance as the Invoke API would, and waits. ctx ends the waiting, not the invocation.
func (s *Server) Invoke(ctx context.Context, payload []byte) (Result, error) {
	inv, err := s.dispatch(payload, newTraceID(s.opt.Sampled))
	if err != nil {
		return Result{}, err
	}
	select {
	case <-inv.done:
		return inv.result, inv.err
	case <-ctx.Done():
		return Result{RequestID: inv.id}, ctx.Err()
	}
}

// dispatch finds a place for payload, or says why there is none.
func (s *Server) dispatch(payload []byte, traceID string) (*invocation, error) {
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: %d bytes, %d are allowed", ErrPayloadTooLarge, len(payload), maxPayload)
	}
	inv := &invocation{id: newRequestID(), traceID: traceID, payload: payload, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.place(inv); err != nil {
		return nil, err
	}
	s.inFlight++
	return inv, nil
}

// place gives inv to an instance, a new one if need be. s.mu is held.
func (s *Server) place(inv *invocation) error {
	if s.stopping {
		return ErrClosed
	}
	inst := s.choose()
	if s.opt.Spread && len(s.live) < s.opt.Instances && !time.Now().Before(s.notBefore) {
		inst = nil
	}
	if inst == nil {
		if len(s.live) >= s.opt.Instances {
			return fmt.Errorf("%w: %d of %d", ErrThrottled, len(s.live), s.opt.Instances)
		}
		if time.Now().Before(s.notBefore) {
			return fmt.Errorf("%w: %w", ErrInit, s.lastInit)
		}
		s.lastID++
		inst = newInstance(s, s.lastID)
		s.live = append(s.live, inst)
		go inst.run()
	}
	inst.assign(inv)
	return nil
}

// choose picks the ready instance that was used last (with Spread: longest ago) and has room, else one that is starting and has room. s.mu is held.
func (s *Server) choose() *instance {
	var ready, starting *instance
	for _, i := range s.live {
		if i.frozen || i.doomed || len(i.held) >= s.opt.Concurrency {
			continue
		}
		switch {
		case !i.ready:
			if starting == nil {
				starting = i
			}
		case ready == nil || (i.lastUsed > ready.lastUsed) != s.opt.Spread:
			ready = i
		}
	}
	if ready != nil {
		return ready
	}
	return starting
}

// settled counts an invocation out. s.mu is held.
func (s *Server) settled() {
	s.inFlight--
	if s.stopping && s.inFlight == 0 {
		close(s.quiet)
	}
}

// find returns the living instance of that id.
func (s *Server) find(id int) (*instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.live, func(i *instance) bool { return i.id == id })
	if i < 0 {
		return nil, fmt.Errorf("%w: %d", ErrNoInstance, id)
	}
	return s.live[i], nil
}

// Freeze stops an instance (SIGSTOP) and returns when it stands still. Freezing a frozen one does nothing.
func (s *Server) Freeze(ctx context.Context, id int) error {
	i, err := s.find(id)
	if err != nil {
		return err
	}
	return i.freeze(ctx)
}

// Thaw lets a frozen instance run on. Thawing one that runs does nothing.
func (s *Server) Thaw(ctx context.Context, id int) error {
	i, err := s.find(id)
	if err != nil {
		return err
	}
	return i.thaw(ctx)
}

// Kill ends an instance by force (SIGKILL) and returns when it is gone and its requests are answered.
func (s *Server) Kill(ctx context.Context, id int) error {
	i, err := s.find(id)
	if err != nil {
		return err
	}
	i.kill(nil)
	select {
	case <-i.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close takes no more requests, lets the running ones end for at most Drain, then ends the instances: SIGTERM, and
// SIGKILL after Grace. Frozen ones are killed at once: nothing that was frozen runs on. It may be called again, and
// returns when all is down.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.stopping = true
		if s.inFlight == 0 {
			close(s.quiet)
		}
		all := slices.Clone(s.live)
		var frozen []*instance
		for _, i := range all {
			if i.frozen {
				frozen = append(frozen, i)
			}
		}
		s.mu.Unlock()
		for _, i := range frozen {
			i.kill(ErrClosed)
		}

		drain, cancel := context.WithTimeout(context.Background(), s.opt.Drain)
		defer cancel()
		go func() { _ = s.front.Shutdown(drain) }() // stops listening at once
		select {
		case <-s.quiet:
		case <-drain.Done():
		}
		var wg sync.WaitGroup
		for _, i := range all {
			wg.Go(func() { i.stop(s.opt.Grace) })
		}
		wg.Wait()
		s.parent.Close()
		// Every request has its answer now, and a moment to send it. A connection that never asked gets no more.
		flush, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		_ = s.front.Shutdown(flush)
		_ = s.front.Close()
		if s.control != nil {
			_ = s.control.Close()
		}
		close(s.closed)
	})
	<-s.closed
	return nil
}

// newRequestID makes a version 4 UUID, as Lambda does.
func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// newGatewayID makes a request id of API Gateway's form.
func newGatewayID() string {
	var b [11]byte
	_, _ = rand.Read(b[:])
	return base64.StdEncoding.EncodeToString(b[:])
}

// newTraceID makes an X-Ray trace id.
func newTraceID(sampled bool) string {
	var b [20]byte
	_, _ = rand.Read(b[:])
	decision := 0
	if sampled {
		decision = 1
	}
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=%d", time.Now().Unix(), hex.EncodeToString(b[:12]), hex.EncodeToString(b[12:]), decision)
}
