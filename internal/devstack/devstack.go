//go:build unix

// Package devstack starts the parts of a local vingate and waits until each of them answers: the store (dynoxide), the
// stand-in for NHTSA (vpic-standin), the tables with their gate, and the edge (locallambda with the built bootstrap).
//
// It promises: what Start returns serves; a part that cannot start, a port that is taken and a file that is missing are
// errors that say which and what to do, and leave nothing running; a part that dies later is told by Failed; no part
// outlives Close, nor this process.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"vingate/internal/child"
	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/locallambda"
)

// How long the parts have to answer. The stand-in unpacks its data on its first run.
const (
	storeReady   = 10 * time.Second
	standInReady = 60 * time.Second
	tablesReady  = 30 * time.Second
	edgeReady    = 20 * time.Second
	stopGrace    = 2 * time.Second
)

// Options say what to start.
type Options struct {
	// The store: dynoxide, or with StoreURL a DynamoDB-compatible endpoint that runs already.
	Dynoxide  string // path of its binary
	DBPath    string // its file, kept between runs; "" is in memory
	StorePort int    // 0 is a free one
	StoreURL  string
	Client    *dynamodb.Client // of StoreURL, and only with it

	// The upstream: the stand-in, or with UpstreamURL something that answers already.
	StandIn     string   // path of the vpic-standin binary
	Data        string   // path of NHTSA's data for it
	CacheDir    string   // where it keeps the unpacked data
	StandInPort int      // 0 is a free one
	StandInArgs []string // more flags for it
	UpstreamURL string   // base of the API, without a slash at the end

	// The edge. Without a Bootstrap none is started. Instances, Concurrency, Timeout, Control, Spread and EnvOf are locallambda's.
	Bootstrap   string
	EdgePort    int // 0 is a free one
	Instances   int
	Concurrency int
	Timeout     time.Duration
	Drain       time.Duration
	Control     string
	Spread      bool
	EnvOf       func(id int) []string

	Env []string  // knobs and all else for the functions, "NAME=value"; nil is this process's environment
	Log io.Writer // output of all parts; nil discards
}

// Stack is a running set of parts.
type Stack struct {
	StoreURL    string
	StandInURL  string // root of the stand-in, "" with another upstream
	UpstreamURL string // what the functions call
	EdgeURL     string // "" without an edge

	Client  *dynamodb.Client // for housekeeping on the store
	Config  config.Config    // what the functions read from Env
	Gate    gate.View        // as it was found or made
	NewGate bool             // the tables were new, and the gate made from the environment
	Edge    *locallambda.Server
	Env     []string // environment of the functions

	ownStore bool
	log      *child.Log
	parent   *child.Parent
	lock     *os.File

	mu       sync.Mutex
	closing  bool
	children []part
	failed   chan error
	once     sync.Once
}

type part struct {
	name string
	c    *child.Child
}

// Start starts the parts. ctx bounds the start; Close ends what it returned.
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	s := newStack(o)
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.DBPath != "" && o.StoreURL == "" {
		if s.lock, err = lockFile(o.DBPath + ".lock"); err != nil {
			return nil, err
		}
	}

	// The configuration is checked before anything runs, with the addresses that are not known yet made up.
	s.Env = WithHashKey(o.Env)
	if err := s.configure("http://127.0.0.1:1"); err != nil {
		return nil, err
	}

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.startStore(gctx, o) })
	g.Go(func() error { return s.startUpstream(gctx, o) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.pointAtStore()
	if err := s.configure(s.UpstreamURL); err != nil {
		return nil, err
	}
	if err := s.provision(ctx); err != nil {
		return nil, err
	}
	if o.Bootstrap != "" {
		if err := s.startEdge(ctx, o); err != nil {
			return nil, err
		}
	}
	select {
	case err := <-s.failed: // a part that answered once and died before all was ready
		return nil, err
	default:
		return s, nil
	}
}

// StartStore starts the store only, without tables: for tests of what lies on it.
func StartStore(ctx context.Context, o Options) (*Stack, error) {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	o.UpstreamURL, o.Bootstrap = "http://127.0.0.1:1", "" // so that check asks for neither
	if err := o.check(); err != nil {
		return nil, err
	}
	s := newStack(o)
	s.Env = o.Env
	if err := s.startStore(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	s.pointAtStore()
	return s, nil
}

func newStack(o Options) *Stack {
	return &Stack{ownStore: o.StoreURL == "", log: child.NewLog(o.Log), parent: child.NewParent(), failed: make(chan error, 2)}
}

// check finds what can be told without starting anything.
func (o Options) check() error {
	var faults []error
	file := func(path, what, todo string) {
		if info, err := os.Stat(path); path == "" || err != nil || info.IsDir() {
			faults = append(faults, fmt.Errorf("%s is not at %q: %s", what, path, todo))
		}
	}
	port := func(n int, variable string) {
		if n == 0 {
			return
		}
		ln, err := net.Listen("tcp", address(n))
		if err != nil {
			faults = append(faults, fmt.Errorf("port %d of 127.0.0.1 cannot be used (%w): set %s to another one", n, reason(err), variable))
			return
		}
		_ = ln.Close()
	}
	switch {
	case (o.StoreURL == "") != (o.Client == nil):
		faults = append(faults, errors.New("a store that runs already needs both its URL and a client"))
	case o.StoreURL == "":
		file(o.Dynoxide, "the local store (dynoxide)", storeHint())
		port(o.StorePort, "STORE_PORT")
	}
	if o.UpstreamURL == "" {
		file(o.StandIn, "the stand-in for NHTSA (vpic-standin)", "`make run` builds it")
		file(o.Data, "NHTSA's data for the stand-in", "`make deps` fetches it")
		port(o.StandInPort, "STANDIN_PORT")
	}
	if o.Bootstrap != "" {
		file(o.Bootstrap, "the function (bootstrap)", "`make run` builds it")
		port(o.EdgePort, "PORT")
	}
	return errors.Join(faults...)
}

// reason is the bare cause of a failed listen: "address already in use".
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// configure reads the functions' configuration from Env, with the upstream at url.
func (s *Stack) configure(url string) (err error) {
	s.Env = setEnv(s.Env, "UPSTREAM_URL", url)
	s.Config, err = config.Load(lookup(s.Env))
	return err
}

func (s *Stack) startStore(ctx context.Context, o Options) error {
	if o.StoreURL != "" {
		s.StoreURL, s.Client = o.StoreURL, o.Client
		return nil
	}
	args := func(port int) []string {
		a := []string{"serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port)}
		if o.DBPath != "" {
			a = append(a, "--db-path", o.DBPath)
		}
		return a
	}
	port, err := s.startOnPort(ctx, "store", o.Dynoxide, o.StorePort, storeReady, "/", args)
	if err != nil {
		return fmt.Errorf("the local store: %w", err)
	}
	s.StoreURL = "http://" + address(port)
	s.Client = LocalClient(s.StoreURL, region(s.Env))
	return nil
}

// pointAtStore tells the functions where the store is. Our own takes any credentials, but the SDK does not sign without,
// and would look for some on the network first.
func (s *Stack) pointAtStore() {
	s.Env = setEnv(s.Env, "AWS_ENDPOINT_URL_DYNAMODB", s.StoreURL)
	if s.ownStore && lookup(s.Env)("AWS_ACCESS_KEY_ID") == "" {
		s.Env = setEnv(setEnv(s.Env, "AWS_ACCESS_KEY_ID", "local"), "AWS_SECRET_ACCESS_KEY", "local")
	}
}

// LocalClient is a client for a store on this machine that checks no credentials.
func LocalClient(url, region string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:                          region,
		BaseEndpoint:                    aws.String(url),
		Credentials:                     credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:                      ddb.KeepConnections(awshttp.NewBuildableClient().WithTimeout(10 * time.Second)),
		DisableValidateResponseChecksum: true,
	})
}

func (s *Stack) startUpstream(ctx context.Context, o Options) error {
	if o.UpstreamURL != "" {
		s.UpstreamURL = o.UpstreamURL
		return nil
	}
	args := func(port int) []string {
		return append([]string{"--listen", address(port), "--data", o.Data, "--cache-dir", o.CacheDir}, o.StandInArgs...)
	}
	port, err := s.startOnPort(ctx, "standin", o.StandIn, o.StandInPort, standInReady, "/_standin/stats", args)
	if err != nil {
		return fmt.Errorf("the stand-in for NHTSA: %w", err)
	}
	s.StandInURL = "http://" + address(port)
	s.UpstreamURL = s.StandInURL + "/api/vehicles"
	return nil
}

// startOnPort starts a part on the port, or on a free one when port is 0, and returns when path answers 200 there.
func (s *Stack) startOnPort(ctx context.Context, name, bin string, port int, within time.Duration, path string, args func(int) []string) (int, error) {
	if port != 0 {
		return port, s.startPart(ctx, name, bin, within, "http://"+address(port)+path, args(port))
	}
	// Somebody else may take a free port between our look and the part's own listen: then another one.
	var err error
	for range 5 {
		if port, err = freePort(); err != nil {
			return 0, err
		}
		err = s.startPart(ctx, name, bin, within, "http://"+address(port)+path, args(port))
		var ended *endedError
		if !errors.As(err, &ended) || portIsFree(port) {
			break
		}
	}
	return port, err
}

// endedError is a part that ended by itself.
type endedError struct{ how string }

func (e *endedError) Error() string { return "it ended (" + e.how + "); its last words are above" }

func (s *Stack) startPart(ctx context.Context, name, bin string, within time.Duration, url string, args []string) error {
	c, err := s.parent.Start(child.Spec{
		Path: bin, Args: args, Env: s.Env,
		Stdout: s.log.Lines(name, nil), Stderr: s.log.Lines(name, nil),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it does not answer on %s within %v", url, within))
	defer cancel()
	if err := await(ctx, c, url); err != nil {
		c.Stop(stopGrace)
		return err
	}
	s.mu.Lock()
	s.children = append(s.children, part{name, c})
	s.mu.Unlock()
	go func() {
		<-c.Done()
		s.mu.Lock()
		expected := s.closing
		s.mu.Unlock()
		if !expected {
			s.failed <- fmt.Errorf("the part %q (%s, process %d) ended: %s", name, filepath.Base(bin), c.PID(), c.State())
		}
	}()
	return nil
}

// await returns when url answers 200 and c lives: a stranger that got the port first is not taken for it.
func await(ctx context.Context, c *child.Child, url string) error {
	return poll(ctx, c, func() bool { return answers(ctx, url) })
}

// awaitListening returns when addr takes connections and c lives.
func awaitListening(ctx context.Context, c *child.Child, addr string) error {
	return poll(ctx, c, func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
}

func poll(ctx context.Context, c *child.Child, ready func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok := ready()
		select {
		case <-c.Done():
			return &endedError{c.State().String()}
		default:
		}
		if ok {
			return nil
		}
		select {
		case <-c.Done():
			return &endedError{c.State().String()}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// get asks a part on this machine, past any proxy. The caller closes the body.
func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(req)
}

func answers(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	res, err := get(ctx, url)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (s *Stack) provision(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tablesReady)
	defer cancel()
	p, err := Provision(ctx, s.Client, s.Config.Gate)
	if err != nil {
		return err
	}
	s.NewGate, s.Gate = p.New, p.View
	return nil
}

func (s *Stack) startEdge(ctx context.Context, o Options) (err error) {
	s.Edge, err = locallambda.Start(ctx, locallambda.Options{
		Bootstrap:   o.Bootstrap,
		Listen:      address(o.EdgePort),
		Control:     o.Control,
		Instances:   o.Instances,
		Concurrency: o.Concurrency,
		Timeout:     o.Timeout,
		Drain:       o.Drain,
		Env:         s.Env,
		Spread:      o.Spread,
		EnvOf:       o.EnvOf,
		Log:         o.Log,
	})
	if err != nil {
		return err
	}
	s.EdgeURL = s.Edge.URL()
	ctx, cancel := context.WithTimeout(ctx, edgeReady)
	defer cancel()
	res, err := get(ctx, s.EdgeURL+"/healthz")
	if err != nil {
		return fmt.Errorf("the edge does not answer: %w", err)
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 300))
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the edge answers GET /healthz with %d %s; the function's last words are above", res.StatusCode, body)
	}
	return nil
}

// Failed tells of a part that ended by itself. The edge's instances are none: they come and go as on Lambda.
func (s *Stack) Failed() <-chan error { return s.failed }

// Close ends all parts, the edge first, and waits for them. It may be called again.
func (s *Stack) Close() {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		children := slices.Clone(s.children)
		s.mu.Unlock()
		if s.Edge != nil {
			_ = s.Edge.Close()
		}
		var wg sync.WaitGroup
		for _, p := range children {
			wg.Go(func() { p.c.Stop(stopGrace) })
		}
		wg.Wait()
		s.parent.Close()
		if s.lock != nil {
			_ = s.lock.Close() // which unlocks
		}
	})
}

// lockFile makes sure that one process at a time uses the files beside path. The kernel drops the lock with the process.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by another vingate: stop that one, or name another data directory", filepath.Dir(path))
	}
	return f, nil
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

func portIsFree(port int) bool {
	ln, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}

// lookup is getenv over a list; the last entry of a name counts, as for a process.
func lookup(env []string) func(string) string {
	return func(name string) string {
		for _, kv := range slices.Backward(env) {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	}
}

func setEnv(env []string, name, value string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	return append(out, name+"="+value)
}

// WithTables adds names of tables that begin with prefix, where env has none.
func WithTables(env []string, prefix string) []string {
	for _, t := range []struct{ variable, name string }{{"COORDINATION_TABLE", "coordination"}, {"RESULTS_TABLE", "results"}} {
		if lookup(env)(t.variable) == "" {
			env = setEnv(env, t.variable, prefix+"-"+t.name)
		}
	}
	return env
}

// WithHashKey adds a made-up TENANT_HASH_KEY when env has none: on this machine nobody has to know callers again.
func WithHashKey(env []string) []string {
	if lookup(env)("TENANT_HASH_KEY") != "" {
		return env
	}
	return setEnv(env, "TENANT_HASH_KEY", randomHex(32))
}
