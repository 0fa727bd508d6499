package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The benchmark measures itself on the smallest function, in the place of both.
func TestAStartIsMeasuredToItsFirstAnswer(t *testing.T) {
	hello := filepath.Join(t.TempDir(), "hello")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", hello, "./hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s, err := begin(t.Context(), variant{name: "hello", path: hello, env: []string{"HOME=" + t.TempDir()}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if s.init <= 0 || s.first <= s.init || s.warm <= 0 || s.packages["runtime"] <= 0 || s.sum() < s.packages["runtime"] || s.steps != nil {
		t.Errorf("%+v", s)
	}
	if _, err := begin(t.Context(), variant{path: "/bin/false"}, false); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("a function that ends: %v", err)
	}
}

func TestFiguresAreReadAndRounded(t *testing.T) {
	const trace = "init internal/godebug @0.1 ms, 0.25 ms clock, 1 bytes, 1 allocs\nnoise\ninit example.com/a @1 ms, 1.5 ms clock, 2 bytes, 2 allocs\n"
	if p := packages(trace); len(p) != 2 || p["example.com/a"] != 1.5 {
		t.Errorf("%v", p)
	}
	if m := steps(strings.NewReader("no JSON\n{\"level\":\"INFO\"}\n{\"initMs\":{\"store\":1.25,\"sum\":2}}\n")); m["store"] != 1.25 {
		t.Errorf("%v", m)
	}
	starts := []start{{first: 3}, {first: 1}, {first: 2}, {first: 9}, {first: 4}}
	of := func(s start) float64 { return s.first }
	if m, p90 := median(starts, of), quantile(starts, 0.9, of); m != 3 || p90 != 9 || median(nil, of) != 0 {
		t.Errorf("median %v, p90 %v", m, p90)
	}
}

func TestTooFewStartsAreRefused(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--hello", "h", "--decode", "d", "--n", "29"}, &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), "30") {
		t.Errorf("%d %s%s", code, &out, &errs)
	}
	if _, err := json.Marshal(row{}); err != nil {
		t.Error(err)
	}
}
