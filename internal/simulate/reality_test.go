package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vingate/internal/config"
	"vingate/internal/devstack"
	"vingate/internal/gate"
	"vingate/internal/load"
	"vingate/internal/standin"
	"vingate/internal/tenant"
	"vingate/internal/vin"
)

// front is the front door of a real vingate.
type front struct {
	url     string
	clients []*http.Client // one for each caller: an address of its own
	vins    []string

	mu    sync.Mutex
	waits []time.Duration
	codes map[string]int
}

// Acquire asks for a whole decode: when it is over, so is its call.
func (f *front) Acquire(ctx context.Context, c load.Call) (func(context.Context, time.Duration) error, error) {
	var caller int
	if _, err := fmt.Sscanf(c.Tenant, "caller%d", &caller); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/v1/vins/"+f.vins[c.Number], nil)
	if err != nil {
		return nil, err
	}
	res, err := f.clients[caller].Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var body struct {
		Code       string `json:"code"`
		Provenance struct {
			WaitedMs int64 `json:"waitedMs"`
		} `json:"provenance"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&body); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case res.StatusCode == http.StatusOK:
		f.waits = append(f.waits, time.Duration(body.Provenance.WaitedMs)*time.Millisecond)
		return func(context.Context, time.Duration) error { return nil }, nil
	case res.StatusCode == http.StatusTooManyRequests:
		f.codes[body.Code]++
		return nil, nil
	}
	return nil, fmt.Errorf("%s %s", res.Status, body.Code)
}

// Three scenarios, each simulated and played against the built function in many processes with a real store and the stand-in: the very same calls at the
// same times, of the same callers. The shares of refusals must agree within a tenth; the waits are printed side by side.
//
// It takes a minute and the whole machine, so it runs where it is asked for: make reality.
func TestRealityAgreesWithTheSimulation(t *testing.T) {
	if os.Getenv("VINGATE_REALITY") == "" {
		t.Skip("a minute of real load: make reality")
	}
	places := devstack.Find(".", os.Getenv)
	bin := t.TempDir()
	for _, build := range [][]string{{"-tags", "lambda.norpc", "-trimpath", "vingate/functions/decode"}, {"vingate/cmd/vpic-standin"}} {
		cmd := exec.Command("go", append([]string{"build", "-o", bin + "/"}, build...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	const callers, instances, seconds = 40, 24, 15
	fmt.Printf("%-46s %6s %10s %10s %10s %10s %10s %10s\n", "", "calls", "refused", "simulated", "wait p50", "simulated", "wait p95", "simulated")
	for _, c := range []struct {
		name, latency string
		knobs         []string
		perSecond     float64
		poisson       bool
		faults        standin.Latency
	}{
		{"the rate is short: 2/s, 10/s asked", "uniform:200ms,400ms", []string{"RATE_PER_SECOND=2", "RATE_BURST=10"}, 10, true,
			standin.Latency{Distribution: standin.Uniform, Min: standin.Duration(200 * time.Millisecond), Max: standin.Duration(400 * time.Millisecond)}},
		{"the slots are short: 4, calls of 0.8 s, 6/s asked", "uniform:700ms,900ms", []string{"RATE_PER_SECOND=10", "RATE_BURST=30", "MAX_IN_FLIGHT=4"}, 6, true,
			standin.Latency{Distribution: standin.Uniform, Min: standin.Duration(700 * time.Millisecond), Max: standin.Duration(900 * time.Millisecond)}},
		{"nobody may wait: 5/s, 10/s asked, evenly", "uniform:200ms,400ms", []string{"RATE_PER_SECOND=5", "RATE_BURST=20", "MAX_IN_FLIGHT=8", "MAX_WAIT=0s"}, 10, false,
			standin.Latency{Distribution: standin.Uniform, Min: standin.Duration(200 * time.Millisecond), Max: standin.Duration(400 * time.Millisecond)}},
	} {
		shape := load.Shape{PerSecond: c.perSecond, For: seconds * time.Second, Poisson: c.poisson, Instances: 1, Tenants: 1, Seed: 7,
			Call: func(r *rand.Rand, call *load.Call) { call.Tenant = fmt.Sprint("caller", r.IntN(callers)) }}
		asked := shape.Draw()

		stack, err := devstack.Start(t.Context(), devstack.Options{Dynoxide: places.Dynoxide, StandIn: filepath.Join(bin, "vpic-standin"), Data: places.Data,
			CacheDir: filepath.Join(places.Root, ".local", "vpic"), Bootstrap: filepath.Join(bin, "decode"), Instances: instances, Concurrency: 1,
			Env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ANON_RATE_PER_SECOND=1000", "ANON_BURST=10000"}, c.knobs...)})
		if err != nil {
			t.Fatal(err)
		}
		faults, err := json.Marshal(standin.Faults{Latency: &c.faults})
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.Post(stack.StandInURL+"/_standin/faults", "application/json", strings.NewReader(string(faults)))
		if err != nil || res.StatusCode >= 300 {
			t.Fatalf("%v %v", res, err)
		}
		_ = res.Body.Close()
		f := &front{url: stack.EdgeURL, codes: map[string]int{}}
		for i := range callers {
			dial := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}}
			f.clients = append(f.clients, &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dial.DialContext, DisableKeepAlives: true}})
		}
		for i := range asked {
			v := fmt.Appendf(nil, "1HGCM82603A%06d", 100_000+i)
			v[8], _ = vin.CheckDigit(string(v))
			f.vins = append(f.vins, string(v))
		}
		var wg sync.WaitGroup // all instances are there before it begins
		for range instances {
			wg.Go(func() {
				if res, err := f.clients[0].Get(stack.EdgeURL + "/healthz"); err == nil {
					_ = res.Body.Close()
				}
			})
		}
		wg.Wait()
		report := load.Run(t.Context(), []load.Gate{f}, asked)
		stack.Close()
		for _, d := range report.Calls {
			if d.Err != nil {
				t.Errorf("%s: %v", c.name, d.Err)
			}
		}
		slices.Sort(f.waits)
		really := float64(report.Count(load.Refused)) / float64(len(asked))

		m := played(t, asked, c.latency, instances, callers, append([]string{"ANON_RATE_PER_SECOND=1000", "ANON_BURST=10000"}, c.knobs...))
		r, err := Run(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%-46s %6d %8.1f %% %8.1f %% %8.2f s %8.2f s %8.2f s %8.2f s\n", c.name, len(asked), 100*really, 100*r.Refused,
			load.Quantile(f.waits, .5).Seconds(), r.wait().P50, load.Quantile(f.waits, .95).Seconds(), r.wait().P95)
		t.Logf("really: %v; simulated: %v", f.codes, refusals(r))
		if diff := really - r.Refused; really == 0 || diff/really > 0.1 || diff/really < -0.1 {
			t.Errorf("%s: %.3f are refused in reality, %.3f in the simulation", c.name, really, r.Refused)
		}
	}
}

func refusals(r *Report) (out []string) {
	for _, c := range r.Counts {
		if c.N > 0 {
			out = append(out, fmt.Sprintf("%s %d", c.Name, c.N))
		}
	}
	return out
}

// played is the model of these very calls.
func played(t *testing.T, asked []load.Call, latency string, instances, callers int, env []string) Setup {
	t.Helper()
	cfg, err := config.Load(func(name string) string {
		for _, kv := range append(env, "TENANT_HASH_KEY=0123456789abcdef0123456789abcdef") {
			if value, is := strings.CutPrefix(kv, name+"="); is {
				return value
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	s := Stream{Name: "played", Arrivals: Trace, Tenants: callers}
	for _, c := range asked {
		w := row{at: gate.Micros(c.At.Microseconds()), vin: -1}
		if _, err := fmt.Sscanf(c.Tenant, "caller%d", &w.tenant); err != nil {
			t.Fatal(err)
		}
		s.rows = append(s.rows, w)
	}
	m := aModel(s)
	m.For, m.VINs, m.Stored = time.Minute, 0, 0
	m.Knobs, m.MaxWait, m.BulkheadWait = cfg.Knobs, cfg.MaxWait, cfg.BulkheadWait
	m.Anonymous = tenant.Plan{RatePerSecond: cfg.Anon.PerSecond, Burst: cfg.Anon.Burst}
	m.Instances, m.Warm, m.ClockError = instances, instances, 0
	m.Work, m.WireLeast, m.WireMost = 4*time.Millisecond, time.Millisecond, 4*time.Millisecond
	if m.Upstream, err = ParseLatency(latency); err != nil {
		t.Fatal(err)
	}
	return m
}
