package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

func TestServerTimingTellsTheWaitAndNHTSAsTime(t *testing.T) {
	for header, want := range map[string]struct {
		wait, upstream time.Duration
		ok             bool
	}{
		"wait;dur=3, upstream;dur=412": {3 * time.Millisecond, 412 * time.Millisecond, true},
		"wait;dur=0":                   {0, 0, true},
		"":                             {0, 0, false},
		"cache;dur=3":                  {0, 0, false},
	} {
		wait, upstream, ok := spent(vegeta.Result{Headers: http.Header{"Server-Timing": {header}}})
		if wait != want.wait || upstream != want.upstream || ok != want.ok {
			t.Errorf("%q: %v %v %v", header, wait, upstream, ok)
		}
	}
}

func TestPercentiles(t *testing.T) {
	var d []time.Duration
	for i := range 100 {
		d = append(d, time.Duration(100-i)*time.Millisecond)
	}
	for p, want := range map[float64]float64{50: 50, 95: 95, 99: 99, 100: 100, 0: 1} {
		if got := percentile(d, p); got != want {
			t.Errorf("p%v is %v, want %v", p, got, want)
		}
	}
	if percentile(nil, 50) != 0 {
		t.Error("of nothing")
	}
}

func TestProcessorTimeIsToldByName(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system does not tell it")
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	self := filepath.Base(os.Args[0])
	all := used()
	for _, name := range []string{"sleep", self[:min(len(self), 15)]} { // the kernel keeps 15 characters
		if _, ok := all[name]; !ok {
			t.Errorf("nothing is told of %s: %v", name, all)
		}
	}
	if len(all) != 2 {
		t.Errorf("others are told of: %v", all)
	}
}

func TestBothAreAskedInTurns(t *testing.T) {
	next := inTurns("a", "b")
	asked := map[string]int{}
	for range 10 {
		var target vegeta.Target
		if err := next(&target); err != nil || target.Header.Get("Accept-Encoding") != "gzip" {
			t.Error(err, target.Header)
		}
		asked[target.URL]++
	}
	if asked["a"] != 5 || asked["b"] != 5 {
		t.Error(asked)
	}
}

func TestTheTableSaysWhatWasMissed(t *testing.T) {
	held, missed := within("a", 1, "x", 10, 2, "at most 2 x"), within("b", 3, "x", 10, 2, "at most 2 x")
	if nothing := within("c", 0, "x", 0, 2, "at most 2 x"); nothing.Held {
		t.Error("a bound on nothing was held")
	}
	var out strings.Builder
	if code := table(&out, []Figure{held}); code != 0 || !strings.HasSuffix(out.String(), "\nall bounds held\n") {
		t.Errorf("%d %s", code, out.String())
	}
	if code := table(&out, []Figure{held, missed}); code != 1 || !strings.HasSuffix(out.String(), "\n1 bounds missed\n") {
		t.Errorf("%d %s", code, out.String())
	}
}
