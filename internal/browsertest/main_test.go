// Package browsertest tests the page as people meet it: in Chromium, served by the built function, with a real store and the
// stand-in for NHTSA. What is done and what is looked at is written in testdata/*.mjs, since that is the language of what drives
// the browser; each of its scenarios is a test here.
package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"vingate/internal/devstack"
	"vingate/internal/logtest"
)

// patience is for all scenarios together.
const patience = 4 * time.Minute

// stacks are the running products the scenarios ask for by name, with the knobs that bring about what they are about.
var stacks = map[string][]string{
	// Where nothing is short.
	"roomy": {"RATE_PER_SECOND=20", "RATE_BURST=40", "MAX_IN_FLIGHT=4"},
	// One call at once, one a second, and nobody waits in line: what is refused is refused at once.
	"dry": {"RATE_PER_SECOND=1", "RATE_BURST=7", "MAX_IN_FLIGHT=1", "MAX_WAIT=0s", "MAX_WAIT_BATCH=0s"},
	// Seven calls, and then one in a hundred seconds: long enough to look at what is refused.
	"trouble": {"RATE_PER_SECOND=0.01", "RATE_BURST=7", "MAX_IN_FLIGHT=4", "MAX_WAIT=0s", "MAX_WAIT_BATCH=0s"},
}

// browsers are the names Chromium goes by.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// browser finds one that starts. On Ubuntu the first name may be a note that it is a snap.
func browser(ctx context.Context) (string, error) {
	names := browsers
	if own := os.Getenv("VINGATE_CHROMIUM"); own != "" {
		names = []string{own}
	}
	err := fmt.Errorf("none of %s is installed", strings.Join(names, ", "))
	for _, name := range names {
		path, lookErr := exec.LookPath(name)
		if lookErr != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		out, runErr := exec.CommandContext(ctx, path, "--version").CombinedOutput()
		cancel()
		if runErr == nil {
			return path, nil
		}
		err = fmt.Errorf("%s does not start: %w: %s", path, runErr, bytes.TrimSpace(out))
	}
	return "", err
}

// result is a line of what the scenarios print.
type result struct {
	Scenarios []string // the first line: the names of all there are
	Name      string
	Error     string // "" where all was as it should be
	Millis    int
}

func TestThePageInABrowser(t *testing.T) {
	const untested = "The page was not tested in a browser: single lookups, lists, refusals, keyboard, accessibility and the policy."
	images := os.Getenv("VINGATE_IMAGES") // where to make the documents' pictures, if they are wanted
	chromium, err := browser(t.Context())
	if err != nil && images != "" {
		t.Fatal("there are no pictures without a browser: ", err)
	}
	if err != nil {
		t.Skipf("%s %v. Install Chromium (as root on Debian: apt-get install chromium), or set VINGATE_CHROMIUM to one.", untested, err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("%s There is no node.", untested)
	}
	places := devstack.Find(".", os.Getenv)
	served := start(t, places)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := served[r.URL.Query().Get("stack")]
		if s == nil {
			http.NotFound(w, r)
			return
		}
		// The bookkeeping goes down.
		if _, err := s.Client.DeleteTable(r.Context(), &dynamodb.DeleteTableInput{TableName: aws.String(s.Config.CoordinationTable)}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(control.Close)

	type addresses struct{ Edge, StandIn string }
	in := struct {
		Modules, Chromium, Control, Pictures, Images string
		Stacks                                       map[string]addresses
	}{
		Modules: filepath.Join(places.Root, "tools", "npm", "package.json"), Chromium: chromium, Control: control.URL,
		Pictures: filepath.Join(places.Root, "build", "page"), Images: images, Stacks: map[string]addresses{},
	}
	for name, s := range served {
		in.Stacks[name] = addresses{s.EdgeURL, s.StandInURL}
	}
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "testdata/scenarios.mjs")
	cmd.Stdin = bytes.NewReader(input)
	// The browser's own files; where it was ended by force, it may still be writing.
	home, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	// It ends the browser when it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, complaints.String())
	}

	var all []string
	told := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		if r.Scenarios != nil {
			all = r.Scenarios
			continue
		}
		told[r.Name] = true
		t.Run(r.Name, func(t *testing.T) {
			t.Logf("%d ms", r.Millis)
			if r.Error != "" {
				t.Error(r.Error)
			}
		})
	}
	if len(all) == 0 || slices.ContainsFunc(all, func(name string) bool { return !told[name] }) {
		t.Errorf("of the scenarios %q some did not end: %v\n%s", all, told, complaints.String())
	}
}

// The documents' pictures are made by `make screenshots`, of six states.
func TestTheDocumentsPicturesAreThereAndSmall(t *testing.T) {
	pictures, err := filepath.Glob(filepath.Join(devstack.Find(".", os.Getenv).Root, "docs", "images", "*.png"))
	if err != nil || len(pictures) != 6 {
		t.Fatalf("%d pictures, want 6: %q, %v", len(pictures), pictures, err)
	}
	for _, name := range pictures {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if http.DetectContentType(b) != "image/png" || len(b) > 150_000 {
			t.Errorf("%s: %s, %d bytes", name, http.DetectContentType(b), len(b))
		}
	}
}

// start builds and runs the stacks.
func start(t *testing.T, places devstack.Places) map[string]*devstack.Stack {
	t.Helper()
	bin := t.TempDir()
	for _, build := range [][]string{
		{"-o", bin + "/", "-tags", "lambda.norpc", "-trimpath", "vingate/functions/decode"},
		{"-o", bin + "/", "vingate/cmd/vpic-standin"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"build"}, build...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", strings.Join(build, " "), err, out)
		}
	}
	var log logtest.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the parts:\n%s", log.String())
		}
	})
	var mu sync.Mutex
	served := map[string]*devstack.Stack{}
	var parts errgroup.Group
	for name, knobs := range stacks {
		parts.Go(func() error {
			s, err := devstack.Start(t.Context(), devstack.Options{
				Dynoxide: places.Dynoxide, StandIn: filepath.Join(bin, "vpic-standin"), Data: places.Data,
				CacheDir:  filepath.Join(places.Root, ".local", "vpic"),
				Bootstrap: filepath.Join(bin, "decode"), Instances: 3, Concurrency: 4,
				Env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + bin,
					// Every page here has one address: what is tested is the budget that all share.
					"ANON_RATE_PER_SECOND=1000", "ANON_BURST=10000"}, knobs...), Log: &log,
			})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			t.Cleanup(s.Close)
			mu.Lock()
			defer mu.Unlock()
			served[name] = s
			return nil
		})
	}
	if err := parts.Wait(); err != nil {
		t.Fatal(err)
	}
	return served
}
