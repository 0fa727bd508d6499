// Package e2e tests the whole product from outside: the built bootstrap in several processes, a real store, the stand-in
// for NHTSA over NHTSA's data. What NHTSA would see is read from the stand-in's own counters.
package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vingate/internal/devstack"
	"vingate/internal/logtest"
	"vingate/internal/standin"
	"vingate/internal/vin"
)

var places devstack.Places

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds what the tests start, from the sources as they are.
func run(m *testing.M) int {
	places = devstack.Find(".", os.Getenv)
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	places.Bin = dir
	for _, build := range [][]string{
		{"-o", dir + "/", "-tags", "lambda.norpc", "-trimpath", "vingate/functions/decode"},
		{"-o", dir + "/", "vingate/cmd/vpic-standin", "vingate/cmd/vingate"},
	} {
		cmd := exec.Command("go", append([]string{"build"}, build...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", strings.Join(build, " "), err, out)
			return 1
		}
	}
	return m.Run()
}

// product is a running vingate.
type product struct {
	*devstack.Stack
	log *logtest.Buffer
}

// start runs the product with these instances and knobs ("NAME=value"), and nothing of the environment of whoever runs the tests
// but the path.
func start(t *testing.T, instances, concurrency int, knobs ...string) *product {
	t.Helper()
	return startWith(t, devstack.Options{Dynoxide: places.Dynoxide, Instances: instances, Concurrency: concurrency}, knobs...)
}

// startWith is start with a store of the test's own.
func startWith(t *testing.T, o devstack.Options, knobs ...string) *product {
	t.Helper()
	p := &product{log: &logtest.Buffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the parts:\n%s", p.log.String())
		}
	})
	var err error
	o.StandIn, o.Data, o.CacheDir = filepath.Join(places.Bin, "vpic-standin"), places.Data, filepath.Join(places.Root, ".local", "vpic")
	o.Bootstrap, o.Log = filepath.Join(places.Bin, "decode"), p.log
	o.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		// Everybody here has one address: what is tested is the budget that all share.
		"ANON_RATE_PER_SECOND=1000", "ANON_BURST=10000"}, knobs...)
	p.Stack, err = devstack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// faults tells the stand-in what to do wrong.
func (p *product) faults(t *testing.T, f standin.Faults) {
	t.Helper()
	body, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(p.StandInURL+"/_standin/faults", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("faults: %s %s", res.Status, b)
	}
}

func (p *product) stats(t *testing.T) standin.Stats {
	t.Helper()
	res, err := http.Get(p.StandInURL + "/_standin/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var s standin.Stats
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// until polls a condition; it fails the test when it does not come true.
func until(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

func get(url string) (answer, error) {
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}).Get(url)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(b)}
	return a, json.Unmarshal(b, &a.body)
}

func (p *product) decode(t *testing.T, vin string) answer {
	t.Helper()
	a, err := get(p.EdgeURL + "/v1/vins/" + vin)
	if err != nil {
		t.Fatalf("%s: %v %s", vin, err, a.text)
	}
	return a
}

// all asks for all of them at once.
func (p *product) all(t *testing.T, vins []string) []answer {
	t.Helper()
	answers := make([]answer, len(vins))
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i, v := range vins {
		wg.Go(func() {
			<-gate
			a, err := get(p.EdgeURL + "/v1/vins/" + v)
			if err != nil {
				t.Errorf("%s: %v %s", v, err, a.text)
			}
			answers[i] = a
		})
	}
	close(gate)
	wg.Wait()
	return answers
}

// accords are n different VINs of one car, machine-made serials and true check digits.
func accords(n int) []string {
	var vins []string
	for i := range n {
		v := []byte(fmt.Sprintf("1HGCM82603A%06d", 100_000+i))
		v[8], _ = vin.CheckDigit(string(v))
		vins = append(vins, string(v))
	}
	return vins
}

// vehicleKeys are the keys of an answer that say something about a vehicle. No refusal has one.
var vehicleKeys = []string{"vin", "modelYear", "make", "model", "outcome", "summary", "codes", "messages", "suggestedVin", "fields"}

// honest checks what every answer must be: 200 about exactly the VIN, or a refusal without a word about a vehicle, and with a true Retry-After
// where one belongs (P8).
func honest(t *testing.T, vin string, a answer) {
	t.Helper()
	if a.status == http.StatusOK {
		fields, _ := a.body["fields"].(map[string]any)
		if a.body["vin"] != vin || !strings.EqualFold(fmt.Sprint(fields["VIN"]), vin) || a.body["make"] != "HONDA" || a.body["model"] != "Accord" {
			t.Errorf("%s was answered with %s", vin, a.text)
		}
		return
	}
	for _, key := range vehicleKeys {
		if _, there := a.body[key]; there {
			t.Errorf("a refusal with %q: %s", key, a.text)
		}
	}
	if strings.Contains(a.text, "HONDA") || strings.Contains(a.text, "Accord") {
		t.Errorf("a refusal that names a vehicle: %s", a.text)
	}
	if a.body["code"] == nil || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("not a problem: %v %s", a.header, a.text)
	}
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		after := a.header.Get("Retry-After")
		if n, ok := a.body["retryAfterSeconds"].(float64); !ok || n < 1 || after != fmt.Sprint(n) {
			t.Errorf("Retry-After %q, %s", after, a.text)
		}
	}
}

// window is P2 on what the stand-in saw: no window holds more starts than burst + rate x its length.
func window(t *testing.T, starts []int64, rate float64, burst int) {
	t.Helper()
	slices.Sort(starts)
	for i := range starts {
		for j := i; j < len(starts); j++ {
			w := time.Duration(starts[j]-starts[i]) * time.Microsecond
			if float64(j-i+1) > float64(burst)+rate*w.Seconds() {
				t.Fatalf("%d calls started within %v: more than %d + %v/s", j-i+1, w, burst, rate)
			}
		}
	}
}

// empty checks that nothing is held any more.
func (p *product) empty(t *testing.T) {
	t.Helper()
	until(t, "every slot is given back", 20*time.Second, func() bool {
		a, err := get(p.EdgeURL + "/v1/capacity")
		return err == nil && a.status == http.StatusOK && a.body["inFlight"] == 0.0
	})
}

// freeze, kill and others need the id of an instance that is serving.
func (p *product) busy(t *testing.T) int {
	t.Helper()
	for _, i := range p.Edge.Instances() {
		if i.InFlight > 0 {
			return i.ID
		}
	}
	t.Fatal("no instance is busy")
	return 0
}
