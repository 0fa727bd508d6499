package e2e

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vingate/internal/logtest"
)

// witness stands between the tool and the edge and writes down when which call came and when its answer allowed the next one.
type witness struct {
	*httptest.Server
	mu    sync.Mutex
	calls []witnessed
}

type witnessed struct {
	came, answered time.Time
	status         int
	after          time.Duration // the Retry-After
	body           string
}

// arrival is the key of a call's arrival in its context.
type arrival struct{}

func (p *product) witness(t *testing.T) *witness {
	t.Helper()
	edge, err := url.Parse(p.EdgeURL)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(edge) },
		ModifyResponse: func(res *http.Response) error {
			body, err := io.ReadAll(res.Body)
			if err != nil {
				return err
			}
			res.Body = io.NopCloser(bytes.NewReader(body))
			seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
			came, _ := res.Request.Context().Value(arrival{}).(time.Time)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, witnessed{came, time.Now(), res.StatusCode, time.Duration(seconds) * time.Second, string(body)})
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}, // a caller that was killed
	}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), arrival{}, time.Now())))
	}))
	t.Cleanup(w.Close)
	return w
}

// seen are the calls that were answered so far.
func (w *witness) seen() []witnessed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// tool runs the built vingate and returns it while it runs.
func (p *product) tool(t *testing.T, api string, args ...string) (*exec.Cmd, *logtest.Buffer) {
	t.Helper()
	cmd := exec.Command(filepath.Join(places.Bin, "vingate"), args...)
	cmd.Env = []string{"VINGATE_API=" + api}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said := &logtest.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("vingate %s said:\n%s", strings.Join(args, " "), said)
		}
	})
	return cmd, said
}

// records are those in the file, whole lines only.
func records(t *testing.T, path string) [][]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	rows, err := csv.NewReader(bytes.NewReader(b[:bytes.LastIndexByte(b, '\n')+1])).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatalf("%v in %s", err, b)
	}
	return rows[1:]
}

// A dealer's file against a budget that is soon dry, killed by force in the middle and started again: every Retry-After is obeyed, NHTSA is asked
// for each VIN once, in as few calls as there are batches, and each row of the file has its own car or its own reason.
func TestAFileGoesThroughADryBudgetAndAKillOnce(t *testing.T) {
	// 18 tokens are wanted and 7 are there: a machine would have to take six seconds for four calls, not to be refused.
	p := start(t, 3, 1, "RATE_PER_SECOND=2", "RATE_BURST=10", "MAX_WAIT_BATCH=1s")
	w := p.witness(t)
	vins := accords(180)
	file := "Stock;VIN\r\n"
	for i, v := range vins {
		file += fmt.Sprintf("%d;\"%s\"\r\n", i, v)
	}
	file += "a;1.23E+16\r\nb;1HGCM82633A00435O\r\nc;" + strings.ToLower(vins[3]) + "\r\n"
	in, out := filepath.Join(t.TempDir(), "stock.csv"), filepath.Join(t.TempDir(), "decoded.csv")
	if err := os.WriteFile(in, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{"decode", "--in", in, "--out", out}

	first, _ := p.tool(t, w.URL, command...)
	until(t, "it waits for the budget", 30*time.Second, func() bool {
		return slices.ContainsFunc(w.seen(), func(c witnessed) bool { return c.status == http.StatusTooManyRequests })
	})
	before := len(records(t, out))
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if before == 0 || before >= len(vins) {
		t.Fatalf("killed with %d records: this shows nothing", before)
	}
	// And a tail as a kill in the middle of a write leaves it.
	f, err := os.OpenFile(out, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(f, `182,"1HG`)
	_ = f.Close()
	killed := len(w.seen())

	second, said := p.tool(t, w.URL, command...)
	if err := second.Wait(); second.ProcessState.ExitCode() != 3 || !strings.Contains(said.String(), "has been taken off") ||
		!strings.Contains(said.String(), fmt.Sprintf("%d rows have their record in", before)) {
		t.Fatalf("%v\n%s", err, said)
	}

	rows := records(t, out)
	if len(rows) != 183 {
		t.Errorf("%d records", len(rows))
	}
	for i, r := range rows {
		switch {
		case r[0] != strconv.Itoa(i+2):
			t.Errorf("record %d is of line %s", i, r[0])
		case i < 180 && (r[1] != vins[i] || r[7] != vins[i] || r[3] != "clean" || r[9] != "HONDA"),
			i == 180 && (r[3] != "damaged" || r[7] != "" || r[9] != ""), i == 181 && (r[3] != "invalid" || r[6] != "1HGCM82633A004350" || r[9] != ""),
			i == 182 && (r[1] != strings.ToLower(vins[3]) || r[7] != vins[3] || r[9] != "HONDA"):
			t.Errorf("%q", r)
		}
	}
	limited, calls := 0, w.seen()
	for i, c := range calls {
		if c.status == http.StatusTooManyRequests {
			limited++
			for _, word := range []string{"HONDA", "Accord", "1HGCM"} {
				if strings.Contains(c.body, word) {
					t.Errorf("a refusal with %q: %s", word, c.body)
				}
			}
		}
		if i+1 < len(calls) && i+1 != killed { // the second process knows nothing of what the first was told
			if early := c.answered.Add(c.after).Sub(calls[i+1].came); early > 0 {
				t.Errorf("call %d came %v before the Retry-After of %v was over", i+1, early, c.after)
			}
		}
	}
	s := p.stats(t)
	t.Logf("%d calls to vingate, %d of them refused, %d before the kill; %d calls to NHTSA for %d VINs", len(calls), limited, killed, s.Calls, len(s.VINs))
	if limited == 0 {
		t.Error("nothing was refused: this shows nothing")
	}
	var asked []string
	for v, times := range s.VINs {
		if asked = append(asked, v); times != 1 {
			t.Errorf("NHTSA was asked for %s %d times", v, times)
		}
	}
	slices.Sort(asked)
	if want := slices.Sorted(slices.Values(vins)); !slices.Equal(asked, want) {
		t.Errorf("NHTSA was asked for %d VINs, %d are in the file", len(asked), len(want))
	}
	if s.Calls < 4 || s.Calls > 5 { // 180 in batches of 50; one more where the kill parted a batch
		t.Errorf("%d calls for 4 batches", s.Calls)
	}
	window(t, s.Starts, 2, 10)
	p.empty(t)

	// A third time nothing is asked at all.
	third, said := p.tool(t, w.URL, command...)
	if err := third.Wait(); third.ProcessState.ExitCode() != 3 || !strings.Contains(said.String(), "asked for 0 VINs in 0 calls") {
		t.Errorf("%v\n%s", err, said)
	}
}
