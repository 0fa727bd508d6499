package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"vingate/internal/chaos"
	"vingate/internal/decode"
	"vingate/internal/devstack"
	"vingate/internal/locallambda"
	"vingate/internal/standin"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
)

type bench struct {
	last                    time.Duration
	log                     io.Writer
	places                  devstack.Places
	hello, decode, upstream string // what was built
}

func (b *bench) build(ctx context.Context, dir string) error {
	b.places = devstack.Find("../..", os.Getenv)
	b.hello, b.decode, b.upstream = filepath.Join(dir, "hello"), filepath.Join(dir, "decode"), filepath.Join(dir, "vpic-standin")
	for _, part := range []struct{ dir, out, pkg string }{
		{".", b.decode, "./functions/decode"}, {".", b.upstream, "./cmd/vpic-standin"}, {"tools/bench", b.hello, "./cold/hello"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "lambda.norpc", "-o", part.out, part.pkg)
		cmd.Dir, cmd.Env = filepath.Join(b.places.Root, part.dir), append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", part.pkg, err, said)
		}
	}
	return nil
}

// product is vingate with what it needs, and some who may ask.
type product struct {
	*devstack.Stack
	keys []string
	next atomic.Int64
}

// callers is how many keys there are.
const callers = 40

func (b *bench) start(ctx context.Context, latency time.Duration, instances, concurrency int, knobs ...string) (*product, error) {
	s, err := devstack.Start(ctx, devstack.Options{
		Dynoxide: b.places.Dynoxide, StandIn: b.upstream, Data: b.places.Data, CacheDir: filepath.Join(b.places.Root, ".local", "vpic"),
		StandInArgs: []string{"--latency", "fixed:" + latency.String()},
		Bootstrap:   b.decode, Instances: instances, Concurrency: concurrency, Spread: true, Drain: time.Second,
		Env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "ANON_RATE_PER_SECOND=1000", "ANON_BURST=10000"}, knobs...), Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	p := &product{Stack: s}
	ring := &tenants.Keyring{Client: s.Client, Table: s.Config.CoordinationTable}
	for i := range callers {
		var secret [tenant.KeyEntropy]byte
		var id [8]byte
		_, _ = rand.Read(secret[:])
		_, _ = rand.Read(id[:])
		key := tenant.Key{Tenant: tenant.NewID(id), Label: fmt.Sprint(i), Plan: tenant.Plan{RatePerSecond: 1000, Burst: 10000}, Created: time.Now().UTC().Truncate(time.Second)}
		var api string
		api, key.Hash = tenant.NewAPIKey(secret)
		if err := ring.Create(ctx, key); err != nil {
			s.Close()
			return nil, err
		}
		p.keys = append(p.keys, api)
	}
	return p, nil
}

// fresh are requests for VINs that nobody has asked for yet, from one caller after the other.
func (p *product) fresh(clients int) vegeta.Targeter {
	return func(t *vegeta.Target) error {
		n := int(p.next.Add(1))
		t.Method, t.URL = "GET", p.EdgeURL+"/v1/vins/"+chaos.VINOf("crowd", n)
		t.Header = http.Header{"X-Api-Key": {p.keys[n%clients]}}
		return nil
	}
}

// fire offers so many requests a second, evenly, whether they are answered or not.
func fire(ctx context.Context, target vegeta.Targeter, perSecond float64, last time.Duration) []vegeta.Result {
	a := vegeta.NewAttacker(vegeta.Workers(64), vegeta.MaxWorkers(2000), vegeta.Connections(500), vegeta.Timeout(40*time.Second))
	defer context.AfterFunc(ctx, func() { a.Stop() })()
	var out []vegeta.Result
	for r := range a.Attack(target, vegeta.ConstantPacer{Freq: int(perSecond * 100), Per: 100 * time.Second}, last, "") {
		out = append(out, *r)
	}
	return out
}

// inTurns asks for one after the other. What comes compressed is not unpacked by the client: that is a browser's time, not the edge's.
func inTurns(urls ...string) vegeta.Targeter {
	var next atomic.Int64
	return func(t *vegeta.Target) error {
		t.Method, t.URL, t.Header = "GET", urls[int(next.Add(1))%len(urls)], http.Header{"Accept-Encoding": {"gzip"}}
		return nil
	}
}

// percentile of what was measured, in milliseconds; 0 of nothing.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[max(0, int(math.Ceil(p/100*float64(len(d))))-1)]) / float64(time.Millisecond)
}

// spent reads Server-Timing: how long the request waited for its place, and for NHTSA. ok is false where there is none.
func spent(r vegeta.Result) (wait, upstream time.Duration, ok bool) {
	for part := range strings.SplitSeq(r.Headers.Get("Server-Timing"), ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(part), ";dur=")
		var ms float64
		if _, err := fmt.Sscanf(rest, "%g", &ms); err != nil {
			continue
		}
		switch d := time.Duration(ms * float64(time.Millisecond)); name {
		case "wait":
			wait, ok = d, true
		case "upstream":
			upstream = d
		}
	}
	return wait, upstream, ok
}

func within(name string, value float64, unit string, n int, bound float64, text string) Figure {
	return Figure{Name: name, Value: value, Unit: unit, N: n, Bound: text, Held: n > 0 && value <= bound}
}

// used is the processor time that this process and those it started have used, by their names: what a busy machine does not change.
func used() map[string]time.Duration {
	const tick = 10 * time.Millisecond // of the kernel's clock, which is the same on every Linux
	all := map[string]time.Duration{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		id, rest, _ := strings.Cut(string(stat), " (")
		end := strings.LastIndexByte(rest, ')')
		f := strings.Fields(rest[end+1:])
		if own := strconv.Itoa(os.Getpid()); id != own && f[1] != own {
			continue
		}
		for _, n := range []int{11, 12} { // user and system
			ticks, _ := strconv.ParseInt(f[n], 10, 64)
			all[rest[:end]] += time.Duration(ticks) * tick
		}
	}
	return all
}

// cached is the path of a stored answer, beside a function that does nothing. They are asked in turns, one request after the other, so that both meet
// the same machine.
func (b *bench) cached(ctx context.Context) ([]Figure, error) {
	const instances, perSecond = 8, 100
	p, err := b.start(ctx, 50*time.Millisecond, instances, 1)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	hello, err := locallambda.Start(ctx, locallambda.Options{Bootstrap: b.hello, Instances: instances, Spread: true, Drain: time.Second, Log: b.log,
		Env: []string{"PATH=" + os.Getenv("PATH")}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = hello.Close() }()
	stored := p.EdgeURL + "/v1/vins/" + chaos.VINOf("crowd", 1)
	both := inTurns(hello.URL()+"/", stored)
	fire(ctx, both, 40, 2*time.Second) // starts all, and has each of them remember the answer
	var ours, theirs []time.Duration
	full := 0
	before := used()
	for _, r := range fire(ctx, both, perSecond, b.last) {
		switch {
		case r.Code == 503 && r.Headers.Get("Server-Timing") == "":
			full++ // no instance was free, which the gateway says by itself
		case r.Code != 200:
			return nil, fmt.Errorf("%s was %d %s %s", r.URL, r.Code, r.Error, r.Body)
		case r.URL == stored:
			ours = append(ours, r.Latency)
		default:
			theirs = append(theirs, r.Latency)
		}
	}
	after := used()
	p50, p99 := percentile(ours, 50)/percentile(theirs, 50), percentile(ours, 99)/percentile(theirs, 99)
	n := len(ours)
	return []Figure{
		{Name: "hello, processor time each", Value: each(after["hello"]-before["hello"], len(theirs)), Unit: "ms", N: len(theirs)},
		{Name: "cached, processor time each", Value: each(after["decode"]-before["decode"], n), Unit: "ms", N: n},
		{Name: "hello p50", Value: percentile(theirs, 50), Unit: "ms", N: len(theirs)}, {Name: "hello p99", Value: percentile(theirs, 99), Unit: "ms", N: len(theirs)},
		{Name: "cached p50", Value: percentile(ours, 50), Unit: "ms", N: n}, {Name: "cached p99", Value: percentile(ours, 99), Unit: "ms", N: n},
		{Name: "found no free instance, of both", Value: float64(full), N: n + len(theirs) + full},
		within("cached p50 over hello's", p50, "x", n, 1.5, "at most 1.5 x"), within("cached p99 over hello's", p99, "x", n, 2, "at most 2 x"),
	}, nil
}

// each is what one of n took, in milliseconds.
func each(used time.Duration, n int) float64 {
	return float64(used) / float64(time.Millisecond) / float64(max(1, n))
}

// path is the whole way of a live decode below the budget: what is left of a request's time without the wait and without NHTSA.
func (b *bench) path(ctx context.Context) ([]Figure, error) {
	p, err := b.start(ctx, 100*time.Millisecond, 8, 1, "MAX_IN_FLIGHT=8", "RATE_PER_SECOND=40", "RATE_BURST=80")
	if err != nil {
		return nil, err
	}
	defer p.Close()
	fire(ctx, p.fresh(callers), 10, 2*time.Second)
	var edge []time.Duration
	for _, r := range fire(ctx, p.fresh(callers), 20, b.last) {
		if wait, upstream, ok := spent(r); ok && r.Code == 200 {
			edge = append(edge, r.Latency-wait-upstream)
		}
	}
	n := len(edge)
	return []Figure{
		{Name: "live decode, edge p50", Value: percentile(edge, 50), Unit: "ms", N: n}, {Name: "live decode, edge p95", Value: percentile(edge, 95), Unit: "ms", N: n},
		{Name: "live decode, edge p99", Value: percentile(edge, 99), Unit: "ms", N: n},
	}, nil
}

// inLine are the codes of those who are refused after they stood in line, for a place or for one of their own. Every other refusal is told at once.
var inLine = []decode.Code{decode.WaitTimeout, decode.BulkheadTimeout}

// flood is ten times the budget.
func (b *bench) flood(ctx context.Context) ([]Figure, error) {
	const rate, burst, settle = 10, 24, 5 * time.Second
	p, err := b.start(ctx, 200*time.Millisecond, 10, 16, "MAX_IN_FLIGHT=8", fmt.Sprint("RATE_PER_SECOND=", rate), fmt.Sprint("RATE_BURST=", burst))
	if err != nil {
		return nil, err
	}
	defer p.Close()
	fire(ctx, p.fresh(callers), 10, 2*time.Second)
	began := time.Now()
	before := used()
	results := fire(ctx, p.fresh(callers), 10*rate, settle+b.last)
	after := used()
	self := filepath.Base(os.Args[0])
	from, until := began.Add(settle), began.Add(settle+b.last) // the first seconds use up the burst
	starts := 0
	calls, err := p.calls()
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		if at := time.UnixMicro(c.Start); !at.Before(from) && at.Before(until) {
			starts++
		}
	}
	var atOnce, waits []time.Duration
	codes := map[string]int{}
	offered, refused := 0, 0
	for _, r := range results {
		if r.Timestamp.Before(from) {
			continue
		}
		var problem struct{ Code decode.Code }
		_ = json.Unmarshal(r.Body, &problem)
		codes[fmt.Sprint(r.Code, " ", problem.Code)]++
		offered++
		switch wait, _, ok := spent(r); {
		case r.Code == 200 && ok:
			waits = append(waits, wait)
		case r.Code == 429:
			refused++
			if !slices.Contains(inLine, problem.Code) {
				atOnce = append(atOnce, r.Latency)
			}
		}
	}
	fmt.Fprintf(os.Stderr, "flood: %v\n", codes)
	budget := float64(starts) / (rate * until.Sub(from).Seconds()) * 100
	return []Figure{
		{Name: "at 10 x the budget: budget used", Value: budget, Unit: "%", N: starts, Bound: "at least 98 %", Held: budget >= 98},
		{Name: "refused, of all", Value: float64(refused) / float64(max(1, offered)) * 100, Unit: "%", N: offered},
		{Name: "refusals at once p50", Value: percentile(atOnce, 50), Unit: "ms", N: len(atOnce)},
		within("refusals at once p99", percentile(atOnce, 99), "ms", len(atOnce), 20, "below 20 ms"),
		{Name: "served, wait p95", Value: percentile(waits, 95), Unit: "ms", N: len(waits)},
		{Name: "processor time for each of all: instances", Value: each(after["decode"]-before["decode"], len(results)), Unit: "ms", N: len(results)},
		{Name: "the store", Value: each(after["dynoxide"]-before["dynoxide"], len(results)), Unit: "ms", N: len(results)},
		{Name: "the stand-in", Value: each(after["vpic-standin"]-before["vpic-standin"], len(results)), Unit: "ms", N: len(results)},
		{Name: "load and gateway", Value: each(after[self]-before[self], len(results)), Unit: "ms", N: len(results)},
	}, nil
}

func (p *product) calls() (calls []standin.Call, err error) {
	res, err := http.Get(p.StandInURL + "/_standin/calls")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return calls, json.NewDecoder(res.Body).Decode(&calls)
}

// batch is people's wait with and without a dealer who has lists of forty decoded, one after the other.
func (b *bench) batch(ctx context.Context) ([]Figure, error) {
	p, err := b.start(ctx, 400*time.Millisecond, 8, 16, "MAX_IN_FLIGHT=4", "RATE_PER_SECOND=10", "RATE_BURST=24")
	if err != nil {
		return nil, err
	}
	defer p.Close()
	fire(ctx, p.fresh(callers-1), 5, 2*time.Second)
	measure := func() (waits []time.Duration) {
		for _, r := range fire(ctx, p.fresh(callers-1), 5, b.last/2) {
			if wait, _, ok := spent(r); ok && r.Code == 200 {
				waits = append(waits, wait)
			}
		}
		return waits
	}
	var without, with []time.Duration
	lists := 0
	for range 2 { // in turns, so that both meet the same machine
		without = append(without, measure()...)
		dealing, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			for dealing.Err() == nil {
				if p.list(dealing, 40) {
					lists++
				}
				select {
				case <-time.After(time.Second):
				case <-dealing.Done():
				}
			}
		})
		with = append(with, measure()...)
		stop()
		wg.Wait()
	}
	// What is below 25 ms nobody notices, and a machine's noise makes any ratio of it.
	const floor = 25
	ratio := max(percentile(with, 95), floor) / max(percentile(without, 95), floor)
	return []Figure{
		{Name: "people's wait p95 without a batch", Value: percentile(without, 95), Unit: "ms", N: len(without)},
		{Name: "people's wait p95 with a batch of 40", Value: percentile(with, 95), Unit: "ms", N: len(with)},
		{Name: "lists of 40 decoded meanwhile", Value: float64(lists), Unit: "", N: lists},
		within("the one over the other", ratio, "x", min(len(with), lists), 1.2, "at most 1.2 x"),
	}, nil
}

// list has n fresh VINs decoded in one call.
func (p *product) list(ctx context.Context, n int) bool {
	var vins []string
	for range n {
		vins = append(vins, chaos.VINOf("dealer", int(p.next.Add(1))))
	}
	body, _ := json.Marshal(map[string][]string{"vins": vins})
	req, err := http.NewRequestWithContext(ctx, "POST", p.EdgeURL+"/v1/vins", strings.NewReader(string(body)))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", p.keys[callers-1])
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	said, err := io.ReadAll(res.Body)
	return err == nil && strings.Count(string(said), `"status":200`) == n
}
