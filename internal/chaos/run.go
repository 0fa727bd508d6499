//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

	"vingate/internal/config"
	"vingate/internal/devstack"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/locallambda"
	"vingate/internal/standin"
	"vingate/internal/standin/vpicdata"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
)

// Link is a TCP proxy that can be told to misbehave. Its own address and that of what is behind it are fixed when it is made.
type Link interface {
	Addr() string
	Slow(ms int) error   // what comes back comes so late; 0: at once
	Reset(on bool) error // connections are reset
	Cut(on bool) error   // nobody gets through
}

// Options of a run.
type Options struct {
	Plan      Plan
	Places    devstack.Places
	Bootstrap string                           // built with the tag chaos
	StandIn   string                           // built
	Link      func(to string) (Link, error)    // makes the TCP proxy before an address
	Break     string                           // the promise that the bootstrap is told to break; "": none
	Log       io.Writer                        // output of all parts
	Progress  func(format string, args ...any) // what a person may want to see
	Sampled   func(Sample)                     // once a second; nil: not
}

// How the product under fire is set. The lease is short, so that what is killed comes back within the run.
var settings = []string{
	"LEASE_TTL=6s", "UPSTREAM_TIMEOUT=3s", "MAX_WAIT=3s", "MAX_WAIT_BATCH=6s", "REQUEST_DEADLINE=12s", "MAX_QUEUED=24",
	"ANON_RATE_PER_SECOND=4", "ANON_BURST=20", "GOTRACEBACK=all",
}

const (
	perInstance = 16 // requests at once in each instance, so that a crowd finds room
	tries       = 3
)

type run struct {
	Options
	stack *devstack.Stack
	proxy *Proxy
	link  Link
	keys  map[string]string // client -> API key
	gate  *dynamo.Store
	log   *goroutineCounter

	data   *vpicdata.Catalog // what NHTSA's data say, to hold answers against
	canary *canary

	mu       sync.Mutex
	e        Evidence
	early    map[int]Early
	sofar    Sample // the counts of it
	waits    []time.Duration
	upstream standin.Faults
	rules    map[Kind]standin.Rule
	last     int // of the extra VINs asked for
}

// Run plays a plan and returns what was seen. ctx ends it early, with an error.
func Run(ctx context.Context, o Options) (_ Evidence, err error) {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	r := &run{Options: o, keys: map[string]string{}, early: map[int]Early{}, rules: map[Kind]standin.Rule{}, canary: newCanary(),
		log: &goroutineCounter{w: o.Log, count: map[int]int{}, told: map[int]int{}}}
	r.e.Plan, r.e.Struck = o.Plan, map[Kind]int{}
	closer, err := r.start(ctx)
	defer closer()
	if err != nil {
		return Evidence{}, err
	}
	r.e.Began = time.Now()
	r.e.Changes = []Change{{From: r.e.Began, Done: r.e.Began, Numbers: numbers[0]}}

	sampling, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { r.canary.run(sampling) })
	background.Go(func() { r.sample(sampling) })
	background.Go(func() { r.listen(sampling) })
	defer background.Wait()
	defer stop()

	r.play(ctx)
	if ctx.Err() != nil {
		return Evidence{}, ctx.Err()
	}
	r.Progress("%s waiting until the limit has recovered", r.at())
	r.recover(ctx)
	r.Progress("%s a lone client that comes back when told", r.at())
	r.lone(ctx)
	r.Progress("%s newcomers behind one who wants much", r.at())
	for round := range 3 {
		r.eager(ctx, round)
	}
	r.Progress("%s a crowd that comes back when told", r.at())
	r.crowd(ctx)
	r.Progress("%s everything that was held is to come back", r.at())
	r.drain(ctx)
	stop()
	background.Wait()
	select {
	case err := <-r.stack.Failed():
		return Evidence{}, err
	default:
	}
	if err := r.collect(ctx); err != nil {
		return Evidence{}, err
	}
	return r.e, ctx.Err()
}

func (r *run) at() string { return fmt.Sprintf("%7.1fs", time.Since(r.e.Began).Seconds()) }

// start starts the parts: instances -> link -> proxy -> store.
func (r *run) start(ctx context.Context) (closer func(), err error) {
	var closers []func()
	closer = func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	store, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: r.Places.Dynoxide, Log: r.log, Env: environment(nil)})
	if err != nil {
		return closer, err
	}
	closers = append(closers, store.Close)
	if r.proxy, err = StartProxy(store.StoreURL, "gate#"+devstack.Upstream, r.Plan.Seed); err != nil {
		return closer, err
	}
	closers = append(closers, func() { _ = r.proxy.Close() })
	if r.link, err = r.Link(r.proxy.Addr()); err != nil {
		return closer, err
	}
	n := numbers[0]
	env := environment(append(slices.Clone(settings), fmt.Sprint("MAX_IN_FLIGHT=", n.InFlight), fmt.Sprint("RATE_PER_SECOND=", n.Rate), fmt.Sprint("RATE_BURST=", n.Burst), "CHAOS_BREAK="+r.Break))
	r.upstream = standin.Faults{Seed: r.Plan.Seed,
		Latency: &standin.Latency{Distribution: standin.Lognormal, Median: standin.Duration(150 * time.Millisecond), Sigma: 0.5, Max: standin.Duration(time.Second)}}
	r.stack, err = devstack.Start(ctx, devstack.Options{
		StoreURL: "http://" + r.link.Addr(), Client: store.Client,
		StandIn: r.StandIn, Data: r.Places.Data, CacheDir: filepath.Join(r.Places.Root, ".local", "vpic"),
		Bootstrap: r.Bootstrap, Instances: r.Plan.Instances, Concurrency: perInstance, Timeout: 28 * time.Second, Drain: 2 * time.Second,
		Spread: true, EnvOf: func(id int) []string {
			return []string{"UPSTREAM_CONTACT=" + Contact(id), "CHAOS_CLOCK_SKEW=" + r.Plan.Skew(id).String()}
		},
		Env: env, Log: r.log,
	})
	if err != nil {
		return closer, err
	}
	closers = append(closers, r.stack.Close)
	if r.data, err = vpicdata.Open(ctx, vpicdata.Options{Data: r.Places.Data, CacheDir: filepath.Join(r.Places.Root, ".local", "vpic")}); err != nil {
		return closer, err
	}
	closers = append(closers, func() { _ = r.data.Close() })
	cfg := r.stack.Config
	r.e.Knobs, r.e.Patience, r.e.PatienceBatch, r.e.BulkheadWait = cfg.Knobs, cfg.MaxWait, cfg.MaxWaitBatch, cfg.BulkheadWait
	r.e.UpstreamTimeout, r.e.Deadline = cfg.UpstreamTimeout, cfg.RequestDeadline
	r.gate = devstack.NewGateStore(store.Client, cfg.CoordinationTable)
	r.setQuota(n)
	return closer, errors.Join(r.post(), r.makeKeys(ctx, store, cfg))
}

// environment is that of the parts: nothing of whoever runs this but what a process needs.
func environment(more []string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}, more...)
}

func (r *run) makeKeys(ctx context.Context, store *devstack.Stack, cfg config.Config) error {
	ring := &tenants.Keyring{Client: store.Client, Table: cfg.CoordinationTable}
	random := rand.NewChaCha8([32]byte{byte(r.Plan.Seed), 1})
	who, err := tenant.New(tenant.Config{HashKey: cfg.TenantHashKey, Keyed: tenant.Plan{RatePerSecond: 1, Burst: 1}, Anonymous: tenant.Plan{RatePerSecond: 1, Burst: 1}})
	if err != nil {
		return err
	}
	var errs []error
	holders := map[gate.Flow]Holder{}
	add := func(name string, plan tenant.Plan) {
		var secret [tenant.KeyEntropy]byte
		var id [8]byte
		_, _ = random.Read(secret[:])
		_, _ = random.Read(id[:])
		key := tenant.Key{Tenant: tenant.NewID(id), Label: name, Plan: plan, Created: time.Now().UTC().Truncate(time.Second)}
		r.keys[name], key.Hash = tenant.NewAPIKey(secret)
		holders[gate.FlowOf(key.Tenant)] = Holder{Name: name}
		errs = append(errs, ring.Create(ctx, key))
	}
	for _, c := range Clients {
		switch {
		case c.Name == "lone":
			add(c.Name, tenant.Plan{RatePerSecond: 0.4, Burst: 3})
		case c.Name == "eager":
			add(c.Name, tenant.Plan{RatePerSecond: 50, Burst: 200})
		case c.keys > 0:
			for i := range c.keys {
				add(keyOf(c.Name, VINOf(c.Name, i)), tenant.Plan{RatePerSecond: 50, Burst: 200})
			}
		case c.Keyed:
			add(c.Name, tenant.Plan{RatePerSecond: 20, Burst: 60})
		default:
			caller, err := who.Identify(ctx, "", c.Address)
			errs = append(errs, err)
			holders[gate.FlowOf(caller.ID)] = Holder{Name: c.Name, Anonymous: true}
		}
	}
	r.e.Book = NewBook(holders)
	return errors.Join(errs...)
}

// play is the storm and the calm.
func (r *run) play(ctx context.Context) {
	var faults, visits sync.WaitGroup
	faults.Go(func() {
		for _, f := range r.Plan.Faults {
			if !sleep(ctx, time.Until(r.e.Began.Add(f.At))) {
				return
			}
			r.Progress("%s %s for %v", r.at(), f.Kind, f.For.Round(time.Millisecond))
			faults.Go(func() { r.strike(ctx, f) })
		}
	})
	faults.Go(func() {
		if !sleep(ctx, time.Until(r.e.Began.Add(r.Plan.Calm))) {
			return
		}
		r.Progress("%s the calm", r.at())
		if err := r.tune(ctx, numbers[0]); err != nil && ctx.Err() == nil {
			r.refuse("the numbers of the beginning: %v", err)
		}
	})
	for _, v := range r.Plan.Visits {
		if !sleep(ctx, time.Until(r.e.Began.Add(v.At))) {
			break
		}
		visits.Go(func() { r.visit(ctx, v) })
	}
	visits.Wait()
	faults.Wait()
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lasts is how long a fault lasts: it is over when the calm begins, but for that which belongs to the calm.
func (r *run) lasts(f Fault) time.Duration {
	if f.At > r.Plan.Calm {
		return f.For
	}
	return min(f.For, time.Until(r.e.Began.Add(r.Plan.Calm)))
}

func (r *run) strike(ctx context.Context, f Fault) {
	begun := time.Now()
	struck := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.e.Struck[f.Kind]++
	}
	note := func(to *[]Span, s Span) {
		r.mu.Lock()
		defer r.mu.Unlock()
		*to = append(*to, s)
	}
	check := func(err error) {
		if err != nil && ctx.Err() == nil {
			r.refuse("%s: %v", f.Kind, err)
		}
	}
	troubled := func() { note(&r.e.Troubled, Span{From: begun, Until: time.Now().Add(time.Second)}) }
	if f.Kind != Kill && f.Kind != Stop {
		struck()
	}
	switch f.Kind {
	case Kill, Stop:
		living := slices.DeleteFunc(r.stack.Edge.Instances(), func(i locallambda.Instance) bool {
			return i.State == locallambda.Dead || i.State == locallambda.Starting || i.State == locallambda.Frozen
		})
		if len(living) == 0 {
			return
		}
		if f.Kind == Kill && r.Plan.Steady && len(living) > 1 {
			living = living[1:] // the oldest lives on, so that what piles up is seen
		}
		id := living[f.Target%len(living)].ID
		if f.Kind == Kill {
			if r.stack.Edge.Kill(ctx, id) == nil {
				struck()
				note(&r.e.Kills, Span{id, begun, time.Now()})
			}
			return
		}
		if r.stack.Edge.Freeze(ctx, id) != nil {
			return // it has just ended
		}
		struck()
		// Known at once: what it does after its thaw is looked at before this returns.
		r.mu.Lock()
		r.e.Stops = append(r.e.Stops, Span{id, begun, begun.Add(time.Hour)})
		n := len(r.e.Stops) - 1
		r.mu.Unlock()
		sleep(ctx, r.lasts(f))
		_ = r.stack.Edge.Thaw(ctx, id) // it may have been killed meanwhile
		r.mu.Lock()
		r.e.Stops[n].Until = time.Now()
		r.mu.Unlock()
	case StoreLatency:
		check(r.link.Slow(int(f.Amount)))
		sleep(ctx, r.lasts(f))
		check(r.link.Slow(0))
		troubled()
	case StoreReset:
		check(r.link.Reset(true))
		sleep(ctx, r.lasts(f))
		check(r.link.Reset(false))
		troubled()
	case StoreOutage:
		check(r.link.Cut(true))
		dark := time.Now()
		sleep(ctx, r.lasts(f))
		note(&r.e.Outages, Span{From: dark, Until: time.Now()})
		check(r.link.Cut(false))
		troubled()
	case StoreThrottle, StoreLost:
		set := r.proxy.Throttle
		if f.Kind == StoreLost {
			set = r.proxy.Lose
		}
		set(f.Amount)
		sleep(ctx, r.lasts(f))
		set(0)
		troubled()
	case KnobChange:
		check(r.tune(ctx, numbers[int(f.Amount)]))
	default:
		check(r.rule(f.Kind, ruleOf(f)))
		sleep(ctx, r.lasts(f))
		check(r.rule(f.Kind, nil))
	}
}

// refuse notes what makes a verdict worthless.
func (r *run) refuse(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.e.Refused = append(r.e.Refused, fmt.Sprintf(format, args...))
}

// ruleOf is the stand-in's rule for a fault of NHTSA's.
func ruleOf(f Fault) *standin.Rule {
	half, once, twice := 0.5, 1, 2
	after := standin.Duration(time.Duration(f.Amount) * time.Second)
	switch f.Kind {
	case NHTSA429:
		return &standin.Rule{Kind: standin.HTTP429, Count: &once, RetryAfter: standin.RetryAfter{After: &after}}
	case NHTSA403:
		return &standin.Rule{Kind: standin.HTTP403, Count: &once, RetryAfter: standin.RetryAfter{After: &after}}
	case NHTSA503:
		return &standin.Rule{Kind: standin.HTTP503, Probability: &half}
	case NHTSASlow:
		return &standin.Rule{Kind: standin.SlowBody, Probability: &half, Over: standin.Duration(1500 * time.Millisecond)}
	case NHTSATruncate:
		return &standin.Rule{Kind: standin.Truncated, Probability: &half}
	case NHTSAHang:
		return &standin.Rule{Kind: standin.Hang, Count: &twice}
	case NHTSAReset:
		return &standin.Rule{Kind: standin.Reset, Probability: &half}
	default:
		return &standin.Rule{Kind: standin.WrongVIN, Probability: &half}
	}
}

// rule puts a rule into force, nil ends it.
func (r *run) rule(k Kind, rule *standin.Rule) error {
	r.mu.Lock()
	if rule == nil {
		delete(r.rules, k)
	} else {
		r.rules[k] = *rule
	}
	r.mu.Unlock()
	return r.post()
}

// setQuota makes the stand-in as strict as the numbers are. Where a promise is broken on purpose it lets everybody in, so that its refusals hide
// nothing of it.
func (r *run) setQuota(n Numbers) {
	if r.Break != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := standin.Duration(2 * time.Second)
	r.upstream.Quota = &standin.Quota{RatePerSecond: n.Rate, Burst: n.Burst, Concurrency: n.InFlight, RetryAfter: standin.RetryAfter{After: &wait}}
}

func (r *run) post() error {
	r.mu.Lock()
	f := r.upstream
	for _, k := range deck {
		if rule, ok := r.rules[k]; ok && !slices.ContainsFunc(f.Rules, func(o standin.Rule) bool { return o.Kind == rule.Kind }) {
			f.Rules = append(slices.Clone(f.Rules), rule)
		}
	}
	r.mu.Unlock()
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	res, err := http.Post(r.stack.StandInURL+"/_standin/faults", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(res.Body)
		return fmt.Errorf("the stand-in does not take the faults: %s", said)
	}
	return nil
}

// tune changes the numbers of the budget, as an operator would. The stand-in is the laxer of both until all calls of before are over.
func (r *run) tune(ctx context.Context, n Numbers) error {
	r.mu.Lock()
	before := r.e.Changes[len(r.e.Changes)-1].Numbers
	r.mu.Unlock()
	r.setQuota(Numbers{max(n.InFlight, before.InFlight), max(n.Rate, before.Rate), max(n.Burst, before.Burst)})
	if err := r.post(); err != nil {
		return err
	}
	from := time.Now()
	for {
		i, err := r.gate.Inspect(ctx)
		if err == nil {
			k := i.State.Knobs
			k.MaxInFlight, k.RatePerSecond, k.Burst = n.InFlight, n.Rate, n.Burst
			_, err = r.gate.Tune(ctx, i.State.Version, k)
		}
		if err == nil || errors.Is(err, dynamo.ErrNothingToDo) {
			break
		}
		if !errors.Is(err, dynamo.ErrChanged) || ctx.Err() != nil {
			return err
		}
	}
	r.mu.Lock()
	r.e.Changes = append(r.e.Changes, Change{from, time.Now(), n})
	changes := len(r.e.Changes)
	r.mu.Unlock()
	if !sleep(ctx, r.e.UpstreamTimeout+2*time.Second) {
		return nil
	}
	r.mu.Lock()
	current := changes == len(r.e.Changes)
	r.mu.Unlock()
	if current {
		r.setQuota(n)
		return r.post()
	}
	return nil
}

// visit is one who comes, and comes back.
func (r *run) visit(ctx context.Context, v Visit) {
	if v.Batch {
		r.ask(ctx, v, v.VINs)
		return
	}
	var wg sync.WaitGroup
	for _, vin := range v.VINs {
		wg.Go(func() { r.ask(ctx, v, []string{vin}) })
	}
	wg.Wait()
}

func (r *run) ask(ctx context.Context, v Visit, vins []string) {
	var waited time.Duration
	for try := 1; try <= tries; try++ {
		a := r.request(ctx, v, vins, try, waited)
		after, err := strconv.Atoi(a.After)
		if !v.Obeys || err != nil || a.Left || time.Now().Add(time.Duration(after)*time.Second).After(r.e.Began.Add(r.Plan.For)) {
			return
		}
		waited = time.Duration(after) * time.Second
		if !sleep(ctx, waited) {
			return
		}
	}
}

// request is one try. What came of it is kept as evidence.
func (r *run) request(ctx context.Context, v Visit, vins []string, try int, waited time.Duration) Answer {
	a := Answer{Client: v.Client, VINs: vins, Batch: v.Batch, Try: try, Waited: waited, Asked: time.Now()}
	within := time.Minute
	if v.HangUp > 0 {
		within = v.HangUp
	}
	rctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := r.exchange(rctx, v, &a)
	a.Done = time.Now()
	switch {
	case err != nil && v.HangUp > 0 && rctx.Err() != nil:
		a.Left = true
	case err != nil:
		a.Failed = err.Error()
	}
	t := Digest(a, func(vin string) (map[string]string, error) {
		row, err := r.data.Decode(context.WithoutCancel(ctx), vpicdata.Query{VIN: vin})
		return row, err
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.e.Answers = append(r.e.Answers, t)
	switch {
	case t.Left:
		r.sofar.Left++
	case t.Status == http.StatusOK:
		r.sofar.Served++
	case t.Status == http.StatusTooManyRequests || t.Status == http.StatusServiceUnavailable && !t.Gateway:
		r.sofar.Refused++
	default:
		r.sofar.Failed++
	}
	if !t.Left && t.Status != 0 && r.Sampled != nil {
		r.waits = append(r.waits, t.InLine)
	}
	return a
}

func (r *run) exchange(ctx context.Context, v Visit, a *Answer) error {
	method, url, body := http.MethodGet, r.stack.EdgeURL+"/v1/vins/"+a.VINs[0], io.Reader(nil)
	if v.Batch {
		list, err := json.Marshal(map[string][]string{"vins": a.VINs})
		if err != nil {
			return err
		}
		method, url, body = http.MethodPost, r.stack.EdgeURL+"/v1/vins", bytes.NewReader(list)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if v.Batch {
		req.Header.Set("Content-Type", "application/json")
	}
	i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == v.Client })
	if key := r.keys[keyOf(v.Client, a.VINs[0])]; key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(Clients[i].Address)}}).DialContext}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	a.Body, err = io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	a.Status, a.Type, a.After = res.StatusCode, res.Header.Get("Content-Type"), res.Header.Get("Retry-After")
	a.Instance, _ = strconv.Atoi(res.Header.Get(locallambda.InstanceHeader))
	return nil
}

// extra asks for one more VIN of a client of the epilogue.
func (r *run) extra(ctx context.Context, client string, try int, waited time.Duration) Answer {
	r.mu.Lock()
	r.last++
	n := r.last
	r.mu.Unlock()
	return r.request(ctx, Visit{Client: client}, []string{VINOf(client, n)}, try, waited)
}

// recover asks now and then until nothing holds the gate and its limit is whole again.
func (r *run) recover(ctx context.Context) {
	whole := numbers[0].InFlight
	patience := 90 * time.Second
	if r.Break != "" { // it may never recover
		patience = 15 * time.Second
	}
	for until := time.Now().Add(patience); time.Now().Before(until) && ctx.Err() == nil; {
		i, err := r.gate.Inspect(ctx)
		if err == nil && i.State.Limit >= whole && i.State.InForce(gate.MicrosOf(time.Now())) == (gate.Hold{}) {
			return
		}
		r.extra(ctx, "last", 1, 0)
		sleep(ctx, 250*time.Millisecond)
	}
}

// lone uses up its own bucket, waits exactly as long as it is told, and comes back.
func (r *run) lone(ctx context.Context) {
	rounds := 6
	if r.Plan.brief() {
		rounds = 3
	}
	for n, asked := 0, 0; n < rounds && asked < 10*rounds && ctx.Err() == nil; asked++ {
		a := r.extra(ctx, "lone", 1, 0)
		after, err := strconv.Atoi(a.After)
		if a.Status == http.StatusOK || err != nil {
			if a.Status != http.StatusOK {
				return
			}
			continue
		}
		waited := time.Duration(after) * time.Second
		sleep(ctx, waited)
		r.extra(ctx, "lone", 2, waited)
		n++
	}
}

// eager is one tenant with as many requests as it may have places, behind others that have emptied the bucket, and then six newcomers with one request each: who
// serves first who came first serves them last.
func (r *run) eager(ctx context.Context, round int) {
	sleep(ctx, 2*time.Second) // the bucket fills
	var wg sync.WaitGroup
	for _, come := range []struct {
		client string
		n      int
		after  time.Duration
	}{{"first", 24, 0}, {"eager", 8, 150 * time.Millisecond}, {"newcomer", 6, 250 * time.Millisecond}} {
		for n := range come.n {
			wg.Go(func() {
				if sleep(ctx, come.after+time.Duration(n)*5*time.Millisecond) {
					r.request(ctx, Visit{Client: come.client}, []string{VINOf(come.client, round*come.n+n)}, 1, 0)
				}
			})
		}
	}
	wg.Wait()
}

// crowd is more than the budget and its line have room for, within half a second; all obey.
func (r *run) crowd(ctx context.Context) {
	sleep(ctx, 4*time.Second) // the bucket fills
	many, patience := 100, 90*time.Second
	if r.Plan.brief() {
		many = 60
	}
	if r.Break != "" { // it may be told anything
		patience = 20 * time.Second
	}
	until := time.Now().Add(patience)
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() {
			if !sleep(ctx, time.Duration(n)*5*time.Millisecond) {
				return
			}
			var waited time.Duration
			for try := 1; try <= 8; try++ {
				a := r.request(ctx, Visit{Client: "crowd"}, []string{VINOf("crowd", n)}, try, waited)
				after, err := strconv.Atoi(a.After)
				waited = time.Duration(after) * time.Second
				if err != nil || time.Now().Add(waited).After(until) || !sleep(ctx, waited) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// drain waits until what was held by the dead has run out, and asks until somebody has taken it away.
func (r *run) drain(ctx context.Context) {
	k := r.e.Knobs
	sleep(ctx, k.LeaseTTL+2*k.SkewBound+time.Second)
	for range 40 {
		r.extra(ctx, "last", 1, 0)
		i, err := r.gate.Inspect(ctx)
		if err == nil {
			r.e.Final = i.State
			if s := i.State; len(s.Leases)+len(s.Tickets)+len(s.Places)+len(s.Batch)+len(s.Flows)+len(s.Owned) == 0 {
				return
			}
		}
		if !sleep(ctx, 500*time.Millisecond) {
			return
		}
	}
}

// sample looks once a second.
func (r *run) sample(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		s := Sample{At: now.Sub(r.e.Began)}
		for _, i := range r.stack.Edge.Instances() {
			if i.State == locallambda.Dead || i.PID == 0 {
				continue
			}
			s.Instances++
			memory, files := looked(i.PID)
			goroutines := r.log.lately(i.ID)
			s.Memory, s.Files, s.Goroutines = max(s.Memory, memory), max(s.Files, files), max(s.Goroutines, goroutines)
			r.mu.Lock()
			if _, known := r.early[i.ID]; !known && i.Invocations >= 100 && memory > 0 {
				r.early[i.ID] = Early{files, goroutines, memory}
			}
			r.mu.Unlock()
		}
		if r.Sampled == nil {
			continue
		}
		if i, err := r.gate.Inspect(ctx); err == nil {
			v := i.State.View(gate.MicrosOf(now))
			s.Limit, s.Live, s.Queued, s.Held = v.Limit, len(i.State.Leases), v.Queued, v.HeldFor > 0
		}
		s.Own, _ = looked(os.Getpid())
		measured, _ := r.canary.measured()
		_, s.Late = measured.Between(last, now)
		r.mu.Lock()
		s.Served, s.Refused, s.Failed, s.Left = r.sofar.Served, r.sofar.Refused, r.sofar.Failed, r.sofar.Left
		s.WaitP50, s.WaitP95 = percentiles(r.waits)
		r.waits = nil
		s.Writes, s.Leases = r.e.Book.Writes, len(r.e.Book.Leases)
		r.mu.Unlock()
		last = now
		r.Sampled(s)
	}
}

// listen takes down what the store applied, as it comes, and now and then what the stand-in saw: neither is to pile up elsewhere.
func (r *run) listen(ctx context.Context) {
	for n := 1; sleep(ctx, time.Second); n++ {
		if err := r.note(); err != nil {
			r.refuse("%v", err)
		}
		if n%60 == 0 {
			if err := r.calls(false); err != nil {
				r.refuse("%v", err)
			}
		}
	}
}

// note puts into the book what the store applied since.
func (r *run) note() error {
	all, err := writes(r.proxy.Take())
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range all {
		r.e.Book.Add(w)
	}
	return err
}

// calls adds the stand-in's calls that have ended since, up to the first that has not: it is asked for again. The last time all are added.
func (r *run) calls(last bool) error {
	since := int64(0)
	if n := len(r.e.Calls); n > 0 {
		since = r.e.Calls[n-1].Start
		r.e.Calls = slices.DeleteFunc(r.e.Calls, func(c standin.Call) bool { return c.Start >= since }) // more may have begun in that microsecond
	}
	res, err := http.Get(fmt.Sprint(r.stack.StandInURL, "/_standin/calls?since=", since))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var calls []standin.Call
	if err := json.NewDecoder(res.Body).Decode(&calls); err != nil {
		return fmt.Errorf("the stand-in's log: %w", err)
	}
	for _, c := range calls {
		if c.End == 0 && !last {
			break
		}
		if len(c.VINs) > 2 { // one says whose it is, two that they are many
			c.VINs = slices.Clone(c.VINs[:2])
		}
		r.e.Calls = append(r.e.Calls, c)
	}
	return nil
}

// looked is the resident memory and the open descriptors of a process, 0 when it is gone.
func looked(pid int) (memory int64, files int) {
	if statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
		if f := strings.Fields(string(statm)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			memory = pages * int64(os.Getpagesize())
		}
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		files = len(fds)
	}
	return memory, files
}

// collect reads the logs, asks the data, and looks at the processes for the last time.
func (r *run) collect(ctx context.Context) error {
	if err := errors.Join(r.note(), r.calls(true)); err != nil {
		return err
	}
	r.e.Late, r.e.Stalled = r.canary.measured()
	for _, i := range r.stack.Edge.Instances() {
		if i.State == locallambda.Dead || i.PID == 0 {
			continue
		}
		p := Process{Instance: i.ID, Invocations: i.Invocations, Early: r.early[i.ID]}
		p.Memory, p.Files = looked(i.PID)
		// A Go process that is told to quit prints all its goroutines.
		_ = syscall.Kill(i.PID, syscall.SIGQUIT)
		for range 50 {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", i.PID)); err != nil {
				break
			}
			sleep(ctx, 20*time.Millisecond)
		}
		r.e.Processes = append(r.e.Processes, p)
	}
	sleep(ctx, 200*time.Millisecond) // the last lines of their output
	for i := range r.e.Processes {
		r.e.Processes[i].Goroutines = r.log.of(r.e.Processes[i].Instance)
	}
	return nil
}

// goroutineCounter passes a log on, counts the goroutines that dying instances print, and keeps what living ones say they have.
type goroutineCounter struct {
	w     io.Writer
	mu    sync.Mutex
	count map[int]int
	told  map[int]int
}

func (g *goroutineCounter) Write(line []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rest, ok := bytes.CutPrefix(line, []byte("[lambda ")); ok {
		if who, said, ok := bytes.Cut(rest, []byte("] goroutine")); ok {
			id, err := strconv.Atoi(string(who))
			if many, living := bytes.CutPrefix(said, []byte("s ")); living && err == nil {
				g.told[id], _ = strconv.Atoi(string(bytes.TrimSpace(many)))
				return len(line), nil // once a second from each: too much for a log
			}
			if err == nil && bytes.Contains(said, []byte(" [")) {
				g.count[id]++
			}
		}
	}
	if g.w == nil {
		return len(line), nil
	}
	return g.w.Write(line)
}

// of is what an instance printed when it died, lately what it said last.
func (g *goroutineCounter) of(instance int) int     { return g.get(g.count, instance) }
func (g *goroutineCounter) lately(instance int) int { return g.get(g.told, instance) }

func (g *goroutineCounter) get(from map[int]int, instance int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return from[instance]
}
