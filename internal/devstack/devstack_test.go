//go:build linux

package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/config"
	"vingate/internal/gate"
	"vingate/internal/logtest"
	"vingate/internal/tables"
)

var bin string // of the parts that testdata stands in for

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "devstack")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
		build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", dir+"/", "./testdata/standin", "./testdata/bootstrap")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build of the test parts: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// options are those of a whole stack of this test's parts with the real store.
func options(t *testing.T) (Options, *logtest.Buffer) {
	t.Helper()
	var log logtest.Buffer
	places := Find(".", os.Getenv)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
	})
	return Options{
		Dynoxide: places.Dynoxide, StandIn: filepath.Join(bin, "standin"), Bootstrap: filepath.Join(bin, "bootstrap"),
		Data: filepath.Join(bin, "bootstrap"), CacheDir: t.TempDir(), Drain: time.Millisecond,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, Log: &log,
	}, &log
}

func start(t *testing.T, o Options) *Stack {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// processes are those of the stack, the functions' included.
func (s *Stack) processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pids []int
	for _, p := range s.children {
		pids = append(pids, p.c.PID())
	}
	if s.Edge != nil {
		for _, i := range s.Edge.Instances() {
			pids = append(pids, i.PID)
		}
	}
	return pids
}

func told(t *testing.T, s *Stack, path string) map[string]string {
	t.Helper()
	res, err := get(t.Context(), s.EdgeURL+path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]string
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%d %s: %v", res.StatusCode, b, err)
	}
	return out
}

func TestWhatStartReturnsServesAndCloseLeavesNothing(t *testing.T) {
	o, log := options(t)
	o.Env = append(o.Env, "RATE_PER_SECOND=20", "RATE_BURST=40", "MAX_IN_FLIGHT=3")
	s := start(t, o)
	got := told(t, s, "/x")
	if got["path"] != "/x" || got["store"] != s.StoreURL || got["upstream"] != s.StandInURL+"/api/vehicles" || got["rate"] != "20" || len(got["key"]) != 64 || got["credentials"] != "local" {
		t.Errorf("the function was given %v", got)
	}
	now := gate.MicrosOf(time.Now())
	full := gate.NewState(s.Config.Knobs, now, false).View(now).Tokens
	if !s.NewGate || s.Gate.Knobs.MaxInFlight != 3 || s.Gate.Knobs.RatePerSecond != 20 || s.Gate.Knobs.Burst != 40 || s.Gate.Tokens != full || s.Gate.HeldFor != 0 {
		t.Errorf("gate %+v, want a full bucket of the environment's knobs", s.Gate)
	}
	found, err := tables.Describe(t.Context(), s.Client, tables.Names{Coordination: "vingate-coordination", Results: "vingate-results"})
	if err != nil || !found[0].Exists || !found[1].Exists {
		t.Errorf("tables %+v %v", found, err)
	}
	for _, line := range []string{"[store] ", "[standin] vpic-standin: listening on " + s.StandInURL, "[lambda 1] REPORT"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
	pids := s.processes()
	if len(pids) != 3 {
		t.Fatalf("processes %v, want store, stand-in and one instance", pids)
	}
	s.Close()
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d outlived Close", pid)
		}
	}
	select {
	case err := <-s.Failed():
		t.Errorf("Close counts as a failure: %v", err)
	default:
	}
}

func TestAKeptStoreKeepsItsGate(t *testing.T) {
	o, _ := options(t)
	o.DBPath = filepath.Join(t.TempDir(), "store.db")
	first := start(t, o)

	if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "in use by another vingate") {
		t.Errorf("a second stack on the same data: %v", err)
	}
	first.Close()

	o.Env = append(o.Env, "RATE_PER_SECOND=20", "RATE_BURST=40")
	s := start(t, o)
	if s.NewGate || s.Gate.Knobs.RatePerSecond != 2 {
		t.Errorf("new %v, gate %+v, want the old one", s.NewGate, s.Gate)
	}
	var banner strings.Builder
	s.Banner(&banner, o)
	for _, want := range []string{
		"vingate serves on " + s.EdgeURL, s.StandInURL, "It is NOT NHTSA", "kept in " + o.DBPath, "4 of 4 calls at once, 2 a second, 10 in a burst",
		"RATE_PER_SECOND is 2 in the gate, 20 in the environment; RATE_BURST is 10 in the gate, 40 in the environment",
		"curl -s " + s.EdgeURL + "/v1/vins/1HGCM82633A004352", "Ctrl-C",
	} {
		if !strings.Contains(banner.String(), want) {
			t.Errorf("banner lacks %q:\n%s", want, banner.String())
		}
	}
}

func TestAStoreThatRunsAlreadyIsUsed(t *testing.T) {
	o, _ := options(t)
	store, err := StartStore(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	o.Dynoxide, o.StoreURL, o.Client = "", store.StoreURL, store.Client
	o.Env = WithTables(o.Env, "other")
	s := start(t, o)
	if got := told(t, s, "/x"); got["store"] != store.StoreURL {
		t.Errorf("the function was given %v", got)
	}
	if len(s.processes()) != 2 {
		t.Errorf("processes %v, want stand-in and one instance", s.processes())
	}
	var out strings.Builder
	if err := Describe(t.Context(), s.Client, s.Config.Gate, &out); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "other-coordination: ACTIVE, on demand") || !strings.Contains(out.String(), "gate nhtsa: 4 of 4 calls at once") {
		t.Errorf("%s", out.String())
	}
}

func TestWhatIsMissingIsToldTogether(t *testing.T) {
	o, _ := options(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	taken := ln.Addr().(*net.TCPAddr).Port
	o.Dynoxide, o.StandIn, o.Data, o.Bootstrap = "nowhere/dynoxide", "", "nowhere/data", "nowhere/bootstrap"
	o.StorePort, o.StandInPort, o.EdgePort = taken, taken, taken
	_, err = Start(t.Context(), o)
	if err == nil {
		t.Fatal("started")
	}
	for _, want := range []string{
		`"nowhere/dynoxide"`, "VINGATE_DYNOXIDE", `vpic-standin) is not at ""`, `"nowhere/data"`, `"nowhere/bootstrap"`,
		fmt.Sprintf("port %d of 127.0.0.1 cannot be used (address already in use): set STORE_PORT to another one", taken), "set STANDIN_PORT", "set PORT",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
}

func TestAFaultyConfigurationIsToldBeforeAnythingRuns(t *testing.T) {
	o, log := options(t)
	o.Env = append(o.Env, "MAX_IN_FLIGHT=0", "LEASE_TTL=soon")
	_, err := Start(t.Context(), o)
	var ce *config.Error
	if !errors.As(err, &ce) || len(ce.Faults) < 2 {
		t.Errorf("%v, want both faults", err)
	}
	if log.String() != "" {
		t.Error("something ran")
	}
}

func TestAPartThatCannotStartIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(*Options)
		want string
	}{
		{"the store", func(o *Options) { o.Dynoxide = "/bin/false" }, "the local store: it ended (exit status 1)"},
		{"the stand-in", func(o *Options) { o.StandInArgs = []string{"--end"} }, "the stand-in for NHTSA: it ended (exit status 4)"},
		{"the function", func(o *Options) { o.Env = append(o.Env, "FAIL_INIT=1") }, `the edge answers GET /healthz with 500 {"message":"Internal Server Error"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, _ := options(t)
			tc.set(&o)
			s, err := Start(t.Context(), o)
			if err == nil {
				s.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestAStartThatIsInterruptedLeavesNothing(t *testing.T) {
	o, _ := options(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
}

func TestAPartThatDiesIsTold(t *testing.T) {
	for _, name := range []string{"store", "standin"} {
		t.Run(name, func(t *testing.T) {
			o, _ := options(t)
			s := start(t, o)
			for _, p := range s.children {
				if p.name == name {
					if err := syscall.Kill(p.c.PID(), syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				}
			}
			select {
			case err := <-s.Failed():
				if !strings.Contains(err.Error(), fmt.Sprintf("the part %q", name)) || !strings.Contains(err.Error(), "signal: killed") {
					t.Errorf("%v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("not told within 10 s")
			}
		})
	}
}

func TestTablesWithoutAGateAreLeftAndTold(t *testing.T) {
	o, _ := options(t)
	s, err := StartStore(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	g, err := config.LoadGate(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	items := func() int32 {
		t.Helper()
		out, err := s.Client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(g.CoordinationTable)})
		if err != nil {
			t.Fatal(err)
		}
		return out.Count
	}
	var out strings.Builder

	// Nothing there: described, and said what to do.
	err = Describe(t.Context(), s.Client, g, &out)
	if err == nil || strings.Count(err.Error(), "`vingate tables create` makes it") != 2 {
		t.Errorf("describe of nothing: %v", err)
	}

	// Tables, no gate.
	if _, err := tables.Create(t.Context(), s.Client, tables.Names{Coordination: g.CoordinationTable, Results: g.ResultsTable}); err != nil {
		t.Fatal(err)
	}
	var missing *NoGateError
	if _, err := Provision(t.Context(), s.Client, g); !errors.As(err, &missing) || missing.Table != g.CoordinationTable {
		t.Errorf("%v, want NoGateError", err)
	}
	out.Reset()
	if err := Describe(t.Context(), s.Client, g, &out); !errors.As(err, &missing) || !strings.Contains(out.String(), "gate nhtsa: missing") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if n := items(); n != 0 {
		t.Errorf("%d items were written", n)
	}

	// As it says: delete, and create anew.
	if _, err := s.Client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: aws.String(g.CoordinationTable)}); err != nil {
		t.Fatal(err)
	}
	p, err := Provision(t.Context(), s.Client, g)
	if err != nil || !p.New || p.View.Knobs.MaxInFlight != 4 {
		t.Fatalf("%+v %v", p, err)
	}
	out.Reset()
	p.Write(&out, g)
	if !strings.Contains(out.String(), "created vingate-coordination with a gate for nhtsa: 4 of 4 calls at once") {
		t.Errorf("%s", out.String())
	}

	// Again, with other knobs: nothing changes.
	before, err := s.Client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(g.CoordinationTable)})
	if err != nil {
		t.Fatal(err)
	}
	g.Knobs.MaxInFlight = 6
	if p, err = Provision(t.Context(), s.Client, g); err != nil || p.New || p.View.Knobs.MaxInFlight != 4 {
		t.Fatalf("%+v %v", p, err)
	}
	out.Reset()
	p.Write(&out, g)
	if !strings.Contains(out.String(), "MAX_IN_FLIGHT is 4 in the gate, 6 in the environment") {
		t.Errorf("%s", out.String())
	}
	after, err := s.Client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(g.CoordinationTable)})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%#v", plain(before.Items)) != fmt.Sprintf("%#v", plain(after.Items)) || len(after.Items) != 1 {
		t.Error("the gate's item changed")
	}
}

// plain is the items as JSON, which has an order.
func plain(items []map[string]types.AttributeValue) string {
	b, _ := json.Marshal(items)
	return string(b)
}

func TestFindLooksUpwardAndObeysTheVariable(t *testing.T) {
	p := Find("testdata", func(string) string { return "" })
	if _, err := os.Stat(filepath.Join(p.Root, "go.mod")); err != nil {
		t.Error(err)
	}
	if want := filepath.Join(p.Root, "tools/npm/node_modules/@dynoxide/linux-x64/dynoxide"); p.Dynoxide != want {
		t.Errorf("%s, want %s", p.Dynoxide, want)
	}
	if p := Find("/", func(string) string { return "/opt/dynoxide" }); p.Root != "" || p.Dynoxide != "/opt/dynoxide" {
		t.Errorf("%+v", p)
	}
}

func TestNHTSAIsTheDefaultUpstream(t *testing.T) {
	if got := NHTSA(); got != "https://vpic.nhtsa.dot.gov/api/vehicles" {
		t.Errorf("%q", got)
	}
}
