//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vingate/internal/devstack"
	"vingate/internal/logtest"
)

// bin holds parts that stand in for the built ones.
var bin string

// asTool makes the test binary the program itself, for tests that kill it.
const asTool = "VINGATE_TEST_AS_TOOL"

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		main()
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "vg")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
		for out, pkg := range map[string]string{"vpic-standin": "standin", "bootstrap": "bootstrap"} {
			build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", filepath.Join(dir, out), "../../internal/devstack/testdata/"+pkg)
			if b, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build of %s: %v\n%s", pkg, err, b)
				return 1
			}
		}
		return m.Run()
	}())
}

// command is one run of the program inside this process.
type command struct {
	out, err  logtest.Buffer
	interrupt context.CancelFunc
	exit      chan int
}

func begin(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &command{interrupt: cancel, exit: make(chan int, 1)}
	go func() { c.exit <- run(ctx, args, &c.out, &c.err) }()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("vingate %s\nstdout:\n%s\nstderr:\n%s", strings.Join(args, " "), c.out.String(), c.err.String())
		}
	})
	return c
}

func (c *command) await(t *testing.T) int {
	t.Helper()
	select {
	case code := <-c.exit:
		c.exit <- code
		return code
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
		return -1
	}
}

// awaitOut returns when the output holds text.
func (c *command) awaitOut(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(c.out.String(), text); time.Sleep(5 * time.Millisecond) {
		select {
		case code := <-c.exit:
			c.exit <- code
			t.Fatalf("it ended with %d before it said %q", code, text)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not say %q", text)
		}
	}
}

// children are this process's own, by the name of their program.
func children(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread ended
		}
		for word := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				if cmdline, err := os.ReadFile("/proc/" + word + "/cmdline"); err == nil && len(cmdline) > 0 {
					name, _, _ := strings.Cut(string(cmdline), "\x00")
					out[filepath.Base(name)] = pid
				}
			}
		}
	}
	return out
}

// bare is an environment without what the person who runs the tests may have set.
func bare(t *testing.T) {
	t.Helper()
	for _, name := range []string{"PORT", "UPSTREAM", "STANDIN_PORT", "STORE_PORT", "INSTANCES", "CONCURRENCY", "AWS_ENDPOINT_URL_DYNAMODB",
		"COORDINATION_TABLE", "RESULTS_TABLE", "TENANT_HASH_KEY", "MAX_IN_FLIGHT", "RATE_PER_SECOND", "RATE_BURST", "UPSTREAM_TIMEOUT", "BATCH_TOKEN_COST"} {
		t.Setenv(name, "")
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

// dataDir has a short path: a socket's has at most 108 bytes.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestRunServesUntilItIsInterrupted(t *testing.T) {
	bare(t)
	port, data := freePort(t), dataDir(t)
	t.Setenv("PORT", port)
	began := time.Now()
	c := begin(t, "run", "--data-dir", data, "--bin-dir", bin)
	c.awaitOut(t, "Ctrl-C stops everything.")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to serve", took)
	}
	for _, want := range []string{"vingate serves on http://127.0.0.1:" + port, "It is NOT NHTSA", "kept in " + filepath.Join(data, "store-standin.db"),
		"up to 5 instances, 1 at once in each", "curl -s http://127.0.0.1:" + port + "/v1/vins/"} {
		if !strings.Contains(c.out.String(), want) {
			t.Errorf("the banner lacks %q", want)
		}
	}
	if code, body := fetch(t, "http://127.0.0.1:"+port+"/x"); code != 200 || !strings.Contains(body, `"path":"/x"`) {
		t.Errorf("%d %s", code, body)
	}
	if info, err := os.Stat(filepath.Join(data, "control.sock")); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("control socket: %v %v", info, err)
	}

	// A second one on the same port, or on the same data, says so at once.
	if c := begin(t, "run", "--data-dir", dataDir(t), "--bin-dir", bin); c.await(t) != 1 || !strings.Contains(c.err.String(), "set PORT to another one") {
		t.Errorf("on a taken port: %s", c.err.String())
	}
	if c := begin(t, "run", "--port", freePort(t), "--data-dir", data, "--bin-dir", bin); c.await(t) != 1 || !strings.Contains(c.err.String(), "in use by another vingate") {
		t.Errorf("on used data: %s", c.err.String())
	}

	c.interrupt()
	if code := c.await(t); code != 0 {
		t.Errorf("exit status %d after an interrupt", code)
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
	if _, err := os.Stat(filepath.Join(data, "store-standin.db")); err != nil {
		t.Errorf("the store is not kept: %v", err)
	}
}

func TestRunEndsWithOneWhenAPartDiesAndSaysWhich(t *testing.T) {
	for program, name := range map[string]string{"dynoxide": "store", "vpic-standin": "standin"} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			c := begin(t, "run", "--port", freePort(t), "--data-dir", dataDir(t), "--bin-dir", bin)
			c.awaitOut(t, "Ctrl-C")
			pid := children(t)[program]
			if pid == 0 {
				t.Fatalf("no %s among %v", program, children(t))
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if code := c.await(t); code != 1 || !strings.Contains(c.err.String(), fmt.Sprintf("vingate: the part %q", name)) {
				t.Errorf("exit status %d, %s", code, c.err.String())
			}
			if left := children(t); len(left) != 0 {
				t.Errorf("left running: %v", left)
			}
		})
	}
}

func TestRunUsesAStoreThatRunsAndKeepsTheStandInApartInIt(t *testing.T) {
	bare(t)
	s := store(t)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", s)
	c := begin(t, "run", "--port", freePort(t), "--data-dir", dataDir(t), "--bin-dir", bin)
	c.awaitOut(t, "Ctrl-C")
	if want := s + ", as asked; tables vingate-standin-coordination and vingate-standin-results"; !strings.Contains(c.out.String(), want) {
		t.Errorf("the banner lacks %q", want)
	}
	if kids := children(t); kids["vpic-standin"] == 0 || len(kids) != 3 { // the test's store, the stand-in, one instance
		t.Errorf("children %v", kids)
	}
	c.interrupt()
	if code := c.await(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

func TestRunRefusesWhatItCannotUse(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"a port that is none", map[string]string{"PORT": "http"}, nil, `--port (PORT) must be a whole number between 1 and 65535, not "http"`},
		{"no instances", nil, []string{"--instances", "0"}, "--instances (INSTANCES) must be"},
		{"another upstream", map[string]string{"UPSTREAM": "prod"}, nil, `--upstream (UPSTREAM) must be "standin" or "live", not "prod"`},
		{"no binaries", nil, []string{"--bin-dir", "nowhere"}, "`make run` builds it"},
		{"knobs that cannot hold", map[string]string{"RATE_PER_SECOND": "20", "RATE_BURST": "2"}, nil, "RATE_BURST"},
		{"an argument", nil, []string{"now"}, `unknown command "now"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bare(t)
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			c := begin(t, append([]string{"run", "--data-dir", dataDir(t), "--bin-dir", bin}, tc.args...)...)
			if code := c.await(t); code != 1 || !strings.Contains(c.err.String(), tc.want) {
				t.Errorf("exit status %d, %q, want %q", code, c.err.String(), tc.want)
			}
		})
	}
}

func TestServe(t *testing.T) {
	bare(t)
	port := freePort(t)
	c := begin(t, "serve", "--listen", "127.0.0.1:"+port, "--instances", "2", "--concurrency", "3", "--bootstrap", filepath.Join(bin, "bootstrap"))
	c.awaitOut(t, "on http://127.0.0.1:"+port+", up to 2 instances, 3 requests at once in each")
	if code, body := fetch(t, "http://127.0.0.1:"+port+"/x"); code != 200 || strings.Contains(body, `"key":""`) {
		t.Errorf("%d %s, want a made-up key", code, body)
	}
	c.interrupt()
	if code := c.await(t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
	if c := begin(t, "serve", "--bootstrap", "nowhere"); c.await(t) != 1 || !strings.Contains(c.err.String(), "nowhere") {
		t.Errorf("without a bootstrap: %s", c.err.String())
	}
}

// store starts a real one and returns its URL.
func store(t *testing.T) string {
	t.Helper()
	s, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.StoreURL
}

func TestTables(t *testing.T) {
	bare(t)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", store(t))
	for _, step := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"tables", "describe"}, 1, "vingate-coordination: does not exist", "`vingate tables create` makes it"},
		{[]string{"tables", "create"}, 0, "created vingate-coordination with a gate for nhtsa: 4 of 4 calls at once, 2 a second, 10 in a burst", ""},
		{[]string{"tables", "create"}, 0, "the gate is as it was", ""},
		{[]string{"tables", "describe"}, 0, "vingate-results: ACTIVE, on demand", ""},
		{[]string{"tables", "drop"}, 1, "", `unknown command "drop"`},
	} {
		c := begin(t, step.args...)
		if code := c.await(t); code != step.code || !strings.Contains(c.out.String(), step.out) || !strings.Contains(c.err.String(), step.err) {
			t.Errorf("%v: %d\n%s\n%s", step.args, code, c.out.String(), c.err.String())
		}
	}
	t.Setenv("MAX_IN_FLIGHT", "x")
	if c := begin(t, "tables", "create"); c.await(t) != 1 || !strings.Contains(c.err.String(), "MAX_IN_FLIGHT") {
		t.Errorf("a faulty knob: %s", c.err.String())
	}
}

func TestInvoke(t *testing.T) {
	rie := os.Getenv("VINGATE_RIE")
	if rie == "" {
		rie = filepath.Join(devstack.Find(".", os.Getenv).Bin, "aws-lambda-rie")
	}
	if _, err := os.Stat(rie); err != nil {
		t.Skipf("no runtime interface emulator at %s (`make invoke` builds it, VINGATE_RIE names another)", rie)
	}
	bare(t)
	event := func(path string) string {
		file := filepath.Join(t.TempDir(), "event.json")
		if err := os.WriteFile(file, []byte(`{"version":"2.0","rawPath":"`+path+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, tc := range []struct {
		path     string
		code     int
		out, err string
	}{
		{"/x", 0, "{\n  \"credentials\": \"local\",\n", "HTTP 200 OK"},
		{"/invalid", 0, `"path": "/invalid"`, "HTTP 400 Bad Request"},
		{"/error", 1, `"errorMessage": "as asked"`, "vingate: the function failed"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			c := begin(t, "invoke", "--event", event(tc.path), "--rie", rie, "--bootstrap", filepath.Join(bin, "bootstrap"),
				"--standin", filepath.Join(bin, "vpic-standin"), "--cache-dir", t.TempDir())
			if code := c.await(t); code != tc.code || !strings.Contains(c.out.String(), tc.out) || !strings.Contains(c.err.String(), tc.err) {
				t.Errorf("exit status %d\n%s\n%s", code, c.out.String(), c.err.String())
			}
		})
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
	if c := begin(t, "invoke", "--event", "nowhere.json"); c.await(t) != 1 || !strings.Contains(c.err.String(), "nowhere.json") {
		t.Errorf("without an event: %s", c.err.String())
	}
	if c := begin(t, "invoke"); c.await(t) != 1 || !strings.Contains(c.err.String(), "event") {
		t.Errorf("without a flag: %s", c.err.String())
	}
}

func TestVersionAndHelp(t *testing.T) {
	if c := begin(t, "version"); c.await(t) != 0 || !strings.HasPrefix(c.out.String(), "vingate dev linux/") {
		t.Errorf("%q", c.out.String())
	}
	c := begin(t)
	if c.await(t) != 0 {
		t.Error("without a command it fails")
	}
	for _, name := range []string{"decode", "run", "serve", "invoke", "tables", "gate", "keys", "version"} {
		if !strings.Contains(c.out.String(), "\n  "+name+" ") {
			t.Errorf("the help lacks %s", name)
		}
	}
}
