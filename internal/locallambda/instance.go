//go:build unix

package locallambda

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
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

	"vingate/internal/child"
)

// invocation is one event on its way. Its fields are guarded by the server's lock until done is closed.
type invocation struct {
	id      string
	traceID string
	payload []byte

	start     time.Time // what the timeout counts from; zero until then
	timer     *time.Timer
	delivered bool
	late      bool // the timeout has struck

	done   chan struct{}
	result Result
	err    error
}

// instance is one process. The fields under "guarded" are guarded by the server's lock.
type instance struct {
	s       *Server
	id      int
	name    string // in the log
	mailbox chan *invocation
	spawned chan struct{} // closed when child is set, or never will be
	gone    chan struct{} // closed when it is dead and its invocations are settled
	child   *child.Child  // after spawned; nil when it could not be started
	born    time.Time

	freezing sync.Mutex // one freeze or thaw at a time

	// guarded
	held     map[string]*invocation // assigned and not answered
	handed   int
	ready    bool // has asked for work
	frozen   bool
	doomed   bool  // being killed: gets nothing more
	why      error // with doomed: what its invocations end with, when not with a crash or timeout
	initErr  error
	initTook time.Duration // until it was ready, then 0 once reported
	lastUsed uint64
}

func newInstance(s *Server, id int) *instance {
	return &instance{
		s: s, id: id, name: fmt.Sprintf("lambda %d", id),
		mailbox: make(chan *invocation, s.opt.Concurrency),
		spawned: make(chan struct{}),
		gone:    make(chan struct{}),
		held:    map[string]*invocation{},
	}
}

func (i *instance) describe() Instance {
	d := Instance{ID: i.id, State: Idle, InFlight: len(i.held), Invocations: i.handed}
	select {
	case <-i.spawned:
		if i.child != nil {
			d.PID = i.child.PID()
		}
	default:
	}
	switch {
	case i.frozen:
		d.State = Frozen
	case !i.ready:
		d.State = Starting
	case len(i.held) > 0:
		d.State = Busy
	}
	return d
}

// assign hands inv to the instance. There is room: choose saw to it. s.mu is held.
func (i *instance) assign(inv *invocation) {
	i.held[inv.id] = inv
	i.handed++
	i.s.clock++
	i.lastUsed = i.s.clock
	if i.ready {
		i.arm(inv)
	}
	i.mailbox <- inv
}

// arm starts the clock of inv. s.mu is held.
func (i *instance) arm(inv *invocation) {
	if inv.timer != nil {
		return
	}
	inv.start = time.Now()
	inv.timer = time.AfterFunc(i.s.opt.Timeout, func() {
		i.s.mu.Lock()
		// It may have been settled, or moved to another instance, meanwhile.
		strikes := i.held[inv.id] == inv
		if strikes {
			inv.late = true
		}
		i.s.mu.Unlock()
		if strikes {
			i.kill(nil)
		}
	})
}

// run is the life of the process.
func (i *instance) run() {
	i.born = time.Now()
	api, addr, err := i.serveRuntimeAPI()
	if err == nil {
		err = i.spawn(addr)
	}
	if err != nil {
		i.s.mu.Lock()
		i.initErr = err
		i.s.mu.Unlock()
	}
	close(i.spawned)
	if i.child != nil {
		i.s.mu.Lock()
		doomed := i.doomed
		i.s.mu.Unlock()
		if doomed { // killed before it ran
			i.child.Kill()
		}
		timer := time.AfterFunc(i.s.opt.InitTimeout, i.initExpired)
		<-i.child.Done()
		timer.Stop()
	}
	i.bury()
	if api != nil {
		_ = api.Close()
	}
}

func (i *instance) spawn(addr string) error {
	log := i.s.log
	c, err := i.s.parent.Start(child.Spec{
		Path:   i.s.opt.Bootstrap,
		Dir:    filepath.Dir(i.s.opt.Bootstrap),
		Env:    environment(i.s.opt, addr, i.id, i.born),
		Stdout: log.Lines(i.name, nil),
		Stderr: log.Lines(i.name, nil),
	})
	i.child = c
	return err
}

func (i *instance) initExpired() {
	i.s.mu.Lock()
	expired := !i.ready
	if expired && i.initErr == nil {
		i.initErr = fmt.Errorf("it did not ask for work within %v", i.s.opt.InitTimeout)
	}
	i.s.mu.Unlock()
	if expired {
		i.kill(nil)
	}
}

// becameReady notes the first call for work.
func (i *instance) becameReady() {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	if i.ready || i.doomed {
		return
	}
	i.ready, i.initTook = true, time.Since(i.born)
	i.s.initFailed, i.s.notBefore = 0, time.Time{}
	for _, inv := range i.held {
		i.arm(inv)
	}
}

// kill ends the process. why, when not nil, is what its invocations end with.
func (i *instance) kill(why error) {
	i.s.mu.Lock()
	i.doomed = true
	if i.why == nil {
		i.why = why
	}
	i.s.mu.Unlock()
	select {
	case <-i.spawned:
		if i.child != nil {
			i.child.Kill()
		}
	default: // run sees that it is doomed
	}
}

// stop ends the process gently and returns when it is buried.
func (i *instance) stop(grace time.Duration) {
	i.s.mu.Lock()
	frozen := i.frozen
	i.doomed = true
	if i.why == nil {
		i.why = ErrClosed
	}
	i.s.mu.Unlock()
	<-i.spawned
	if i.child != nil {
		if frozen {
			i.child.Kill()
		}
		i.child.Stop(grace)
	}
	<-i.gone
}

// bury settles what a dead instance held, and frees its place.
func (i *instance) bury() {
	s := i.s
	exit, peak := "it could not be started", int64(0)
	if i.child != nil {
		exit = i.child.State().String()
		if ru, ok := i.child.State().SysUsage().(*syscall.Rusage); ok {
			peak = rssMB(ru)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = slices.DeleteFunc(s.live, func(o *instance) bool { return o == i })
	d := i.describe()
	d.State, d.InFlight, d.Exit = Dead, 0, exit
	if s.dead = append(s.dead, d); len(s.dead) > deadKept {
		s.dead = slices.Delete(s.dead, 0, len(s.dead)-deadKept)
	}

	initFailed := !i.ready && i.why == nil && (!i.doomed || i.initErr != nil)
	if initFailed {
		if i.initErr == nil {
			i.initErr = fmt.Errorf("it ended (%s) before it asked for work", exit)
		}
		pause := min(s.opt.InitBackoff<<min(s.initFailed, 16), maxBackoff)
		s.initFailed++
		s.notBefore, s.lastInit = time.Now().Add(pause), i.initErr
		s.log.Printf(i.name, "INIT_REPORT Init Duration: %.2f ms\tPhase: init\tStatus: error", ms(time.Since(i.born)))
		s.log.Printf("lambda", "%s does not start: %v. No new start for %v.", s.opt.Bootstrap, i.initErr, pause)
	} else if !s.stopping {
		s.log.Printf(i.name, "ended: %s", exit)
	}

	for _, inv := range i.held {
		switch {
		case inv.late:
			s.log.Printf(i.name, "%s Task timed out after %.2f seconds", inv.id, s.opt.Timeout.Seconds())
			i.settle(inv, nil, fmt.Errorf("%w: %v", ErrTimeout, s.opt.Timeout), peak, "\tStatus: timeout")
		case i.why != nil:
			i.settle(inv, nil, i.why, peak, "\tStatus: error")
		case initFailed:
			i.settle(inv, nil, fmt.Errorf("%w: %w", ErrInit, i.initErr), peak, "\tStatus: error")
		case inv.delivered:
			i.settle(inv, nil, fmt.Errorf("%w: %s", ErrCrashed, exit), peak, "\tStatus: error\tError Type: Runtime.ExitError")
		default:
			// It never saw the event, so another may have it.
			delete(i.held, inv.id)
			if inv.timer != nil {
				inv.timer.Stop()
				inv.timer = nil
			}
			if err := s.place(inv); err != nil {
				i.settle(inv, nil, err, peak, "\tStatus: error")
			}
		}
	}
	close(i.gone)
}

// settle ends an invocation. s.mu is held.
func (i *instance) settle(inv *invocation, res *Result, err error, peakMB int64, status string) {
	delete(i.held, inv.id)
	if inv.timer != nil {
		inv.timer.Stop()
	}
	took := time.Duration(0)
	if !inv.start.IsZero() {
		took = time.Since(inv.start)
	}
	if res != nil {
		inv.result = *res
	}
	inv.result.RequestID, inv.result.Instance, inv.result.Duration = inv.id, i.id, took
	inv.err = err
	line := fmt.Sprintf("REPORT RequestId: %s\tDuration: %.2f ms\tBilled Duration: %.0f ms\tMemory Size: %d MB",
		inv.id, ms(took), math.Ceil(ms(took+i.initTook)), i.s.opt.MemoryMB)
	if peakMB > 0 {
		line += fmt.Sprintf("\tMax Memory Used: %d MB", peakMB)
	}
	if i.initTook > 0 {
		line += fmt.Sprintf("\tInit Duration: %.2f ms", ms(i.initTook))
		i.initTook = 0
	}
	i.s.log.Printf(i.name, "%s%s", line, status)
	i.s.settled()
	close(inv.done)
}

// answered settles the invocation of that id with what the function said; false when there is none.
func (i *instance) answered(id string, res Result, err error, status string) bool {
	peak := int64(0)
	select {
	case <-i.spawned:
		peak = peakMB(i.child.PID())
	default: // a quick one answers before its start is noted
	}
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	inv := i.held[id]
	if inv == nil || !inv.delivered || inv.late {
		return false
	}
	i.s.clock++
	i.lastUsed = i.s.clock // the warmest is the one that became free last
	i.settle(inv, &res, err, peak, status)
	return true
}

func (i *instance) freeze(ctx context.Context) error {
	if err := i.awaitSpawn(ctx); err != nil {
		return err
	}
	i.freezing.Lock()
	defer i.freezing.Unlock()
	// First no new requests, then the signal.
	was := i.setFrozen(true)
	if was {
		return nil
	}
	if err := i.child.Freeze(ctx); err != nil {
		_ = i.child.Thaw()
		i.setFrozen(false)
		if errors.Is(err, child.ErrExited) {
			return fmt.Errorf("%w: %d", ErrNoInstance, i.id)
		}
		return err
	}
	return nil
}

func (i *instance) thaw(ctx context.Context) error {
	if err := i.awaitSpawn(ctx); err != nil {
		return err
	}
	i.freezing.Lock()
	defer i.freezing.Unlock()
	if err := i.child.Thaw(); err != nil {
		if errors.Is(err, child.ErrExited) {
			return fmt.Errorf("%w: %d", ErrNoInstance, i.id)
		}
		return err
	}
	i.setFrozen(false)
	return nil
}

func (i *instance) setFrozen(to bool) (was bool) {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	was, i.frozen = i.frozen, to
	return was
}

func (i *instance) awaitSpawn(ctx context.Context) error {
	select {
	case <-i.spawned:
	case <-ctx.Done():
		return ctx.Err()
	}
	if i.child == nil {
		return fmt.Errorf("%w: %d", ErrNoInstance, i.id)
	}
	return nil
}

// environment is what Lambda gives a function, over what the instance is to inherit.
// Source: "Defined runtime environment variables" in the Lambda developer guide.
func environment(o Options, runtimeAPI string, id int, now time.Time) []string {
	env := envMap(o.Env)
	if o.EnvOf != nil {
		maps.Copy(env, envMap(o.EnvOf(id)))
	}
	// A leftover of another Lambda would make the runtime listen elsewhere.
	delete(env, "_LAMBDA_SERVER_PORT")
	delete(env, "AWS_LAMBDA_MAX_CONCURRENCY")
	set := func(name, value string) { env[name] = value }
	unlessSet := func(name, value string) {
		if env[name] == "" {
			env[name] = value
		}
	}
	set("AWS_REGION", region(env))
	set("AWS_DEFAULT_REGION", env["AWS_REGION"])
	set("AWS_LAMBDA_RUNTIME_API", runtimeAPI)
	set("AWS_LAMBDA_FUNCTION_NAME", o.FunctionName)
	set("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
	set("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", strconv.Itoa(o.MemoryMB))
	set("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
	set("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/"+o.FunctionName)
	set("AWS_LAMBDA_LOG_STREAM_NAME", fmt.Sprintf("%s/[$LATEST]%032x", now.UTC().Format("2006/01/02"), id))
	set("_HANDLER", "bootstrap")
	set("LAMBDA_TASK_ROOT", filepath.Dir(o.Bootstrap))
	set("TZ", ":UTC")
	unlessSet("AWS_XRAY_SDK_DISABLED", strconv.FormatBool(!o.Sampled))
	if o.Concurrency > 1 {
		set("AWS_LAMBDA_MAX_CONCURRENCY", strconv.Itoa(o.Concurrency))
	}
	if needsCredentials(env) {
		set("AWS_ACCESS_KEY_ID", "local")
		set("AWS_SECRET_ACCESS_KEY", "local")
	}
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

func envMap(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, kv := range list {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	return env
}

func region(env map[string]string) string {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if env[name] != "" {
			return env[name]
		}
	}
	return "us-east-1"
}

// needsCredentials says whether the SDK would look for credentials in vain. A local store takes any, but the SDK does
// not sign without. With no endpoint named, real AWS is meant, and made-up credentials would only hide real ones.
func needsCredentials(env map[string]string) bool {
	if env["AWS_ENDPOINT_URL_DYNAMODB"] == "" && env["AWS_ENDPOINT_URL"] == "" {
		return false
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		if env[name] != "" {
			return false
		}
	}
	return true
}

// peakMB is the most memory a process has held, 0 where that cannot be told.
func peakMB(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return (kb + 1023) / 1024
		}
	}
	return 0
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// serveRuntimeAPI opens this instance's own Runtime API and returns its address.
func (i *instance) serveRuntimeAPI() (*http.Server, string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("runtime API: %w", err)
	}
	srv := &http.Server{Handler: i.runtimeAPI(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: i.s.front.ErrorLog}
	go func() { _ = srv.Serve(ln) }()
	return srv, ln.Addr().String(), nil
}
