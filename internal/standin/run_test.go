package standin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vingate/internal/standin/vpicdata"
)

// moduleRoot is the folder of go.mod: the tests run in internal/standin.
const moduleRoot = "../.."

// realData is the flags for NHTSA's data and the cache that all tests share.
func realData() []string {
	return []string{"--data", vpicdata.Locate(os.Getenv, moduleRoot), "--cache-dir", filepath.Join(moduleRoot, ".local", "vpic")}
}

func noEnvironment(string) string { return "" }

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"--listen", "127.0.0.1:8099", "--data", "d", "--cache-dir", "c", "--count", "136", "--seed", "4",
		"--latency", "lognormal:600ms,0.5,10s", "--quota-rate", "5", "--quota-concurrency", "3", "--quota-retry-after", "2s", "--quota-retry-after-as", "date",
		"--faults", `{"latency":{"distribution":"fixed","value":"1s"},"rules":[{"kind":"hang","count":1}]}`}, noEnvironment, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	text, err := marshal(o.faults)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"seed":4,"latency":{"distribution":"lognormal","max":"10s","median":"600ms","sigma":0.5},` +
		`"quota":{"ratePerSecond":5,"burst":1,"concurrency":3,"retryAfter":"2s","retryAfterAs":"date"},"rules":[{"kind":"hang","count":1}]}`
	if string(text) != want {
		t.Errorf("faults are %s, want %s", text, want)
	}
	if o.listen != "127.0.0.1:8099" || o.data != "d" || o.cacheDir != "c" || o.count != 136 {
		t.Errorf("options are %+v", o)
	}
}

func TestDefaultOptions(t *testing.T) {
	o, err := parseOptions(nil, noEnvironment, io.Discard)
	if err != nil || o.listen != "127.0.0.1:0" || !strings.HasSuffix(filepath.ToSlash(o.data), "tools/npm/"+vpicdata.PackagePath) || o.faults.Latency != nil || o.faults.Quota != nil {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parseOptions(nil, func(name string) string { return map[string]string{vpicdata.DataVariable: "/x"}[name] }, io.Discard)
	if err != nil || o.data != "/x" {
		t.Errorf("the environment's data is not taken: %+v, %v", o, err)
	}
}

func TestFaultsFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults.json")
	if err := os.WriteFile(path, []byte(`{"rules":[{"kind":"hang"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseOptions([]string{"--faults", "@" + path}, noEnvironment, io.Discard)
	if err != nil || len(o.faults.Rules) != 1 {
		t.Errorf("%+v, %v", o.faults, err)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range [][]string{
		{"stray"},
		{"--no-such-flag"},
		{"--count", "0"},
		{"--latency", "normal:1s"},
		{"--latency", "fixed"},
		{"--latency", "fixed:1s,2s"},
		{"--latency", "uniform:1s"},
		{"--latency", "lognormal:1s,wide"},
		{"--latency", "uniform:2s,1s"},
		{"--quota-rate", "-1"},
		{"--quota-burst", "3"},
		{"--quota-rate", "1", "--quota-retry-after", "1500ms"},
		{"--faults", "{"},
		{"--faults", "@/no/such/file"},
		{"--faults", `{"rules":[{"kind":"boom"}]}`},
	} {
		var stdout, stderr bytes.Buffer
		if code := Run(context.Background(), args, noEnvironment, &stdout, &stderr); code != exitUsage || stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := Run(context.Background(), []string{"-h"}, noEnvironment, &stdout, &stderr); code != exitOK || !strings.Contains(stderr.String(), "not NHTSA") {
		t.Errorf("-h: exit code %d, stderr %q", code, &stderr)
	}
}

func TestATakenPortIsAClearError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var stdout, stderr bytes.Buffer
	code := Run(context.Background(), append(realData(), "--listen", taken.Addr().String()), noEnvironment, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), taken.Addr().String()+": the port is taken") || stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}
}

func TestMissingDataIsAClearError(t *testing.T) {
	for _, more := range [][]string{nil, {"--prepare"}} {
		var stdout, stderr bytes.Buffer
		code := Run(context.Background(), append([]string{"--data", "/no/such/vpic.gz", "--cache-dir", t.TempDir()}, more...), noEnvironment, &stdout, &stderr)
		if code != exitFailed || !strings.Contains(stderr.String(), "make deps") || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", more, code, &stdout, &stderr)
		}
	}
}

func TestPrepareTellsThePath(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := Run(context.Background(), append(realData(), "--prepare"), noEnvironment, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d, %s", code, &stderr)
	}
	if _, err := os.Stat(strings.TrimSuffix(stdout.String(), "\n")); err != nil {
		t.Error(err)
	}
}

// The whole command: NHTSA's data over a real connection, until it is told to stop.
func TestRunServesNHTSAsDataUntilItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out, in := io.Pipe()
	var stderr bytes.Buffer
	exit := make(chan int, 1)
	go func() {
		defer in.Close()
		exit <- Run(ctx, realData(), noEnvironment, in, &stderr)
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("no line; exit code %d, %s", <-exit, &stderr)
	}
	url, ok := strings.CutPrefix(lines.Text(), "vpic-standin: listening on ")
	if !ok || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("the line is %q", lines.Text())
	}
	for path, want := range map[string][3]string{
		"/DecodeVinValues/1HGCM82633A004352?format=json":                  {"HONDA", "Accord", "2003"},
		"/DecodeVinValues/1FTMW1T88MFA00001?format=json":                  {"FORD", "F-150", "2021"},
		"/decodevinvaluesextended/KM8K2CAB4PU001140?format=json":          {"HYUNDAI", "Kona", "2023"},
		"/DecodeVinValues/5UXWX7C5*BA?format=json&modelyear=2011":         {"BMW", "X3", "2011"},
		"/DecodeVinValues/5UXWX7C5%2ABA?modelyear=2011&format=JSON&x=y%z": {"BMW", "X3", "2011"},
	} {
		_, body := mustCall(t, "GET", url+"/api/vehicles"+path, "")
		row := envelopeOf(t, body).Results[0]
		if got := [3]string{row["Make"], row["Model"], row["ModelYear"]}; got != want || len(row) != 154 {
			t.Errorf("%s: %v with %d keys, want %v with 154", path, got, len(row), want)
		}
	}
	stop()
	if code := <-exit; code != exitOK {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
	if lines.Scan() {
		t.Errorf("a second line on stdout: %q", lines.Text())
	}
	if !strings.Contains(stderr.String(), "not NHTSA") {
		t.Errorf("the banner is %q", &stderr)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		t.Error("the port is still open")
	}
}

func TestStoppingCutsCallsThatHang(t *testing.T) {
	s, err := New(Config{Decoder: fakeDecoder{}, Faults: Faults{Rules: []Rule{{Kind: Hang}}}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served, called := make(chan error, 1), make(chan error, 1)
	go func() { served <- serve(ctx, listener, s, 10*time.Millisecond) }()
	go func() {
		_, err := client(t).Get("http://" + listener.Addr().String() + single)
		called <- err
	}()
	eventually(t, "the call", func() bool { return s.Stats().Current == 1 })
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve ends with %v", err)
	}
	if err := <-called; err == nil {
		t.Error("the call got an answer")
	}
	eventually(t, "the end of the call", func() bool { return s.Stats().Current == 0 })
}

func TestStoppingLetsCallsEnd(t *testing.T) {
	b := newBlocker()
	s, err := New(Config{Decoder: fakeDecoder{}, Sleep: b.sleep})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, listener, s, time.Minute) }()
	called := make(chan int, 1)
	go func() {
		answer, err := client(t).Get("http://" + listener.Addr().String() + single)
		if err != nil {
			called <- 0
			return
		}
		answer.Body.Close()
		called <- answer.StatusCode
	}()
	<-b.entered
	stop()
	eventually(t, "closing the port", func() bool {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(b.release)
	if status := <-called; status != http.StatusOK {
		t.Errorf("the call under way gets %d", status)
	}
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve ends with %v", err)
	}
}
