//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// simulatedRun runs vingate simulate with these flags.
func simulatedRun(t *testing.T, flags ...string) (status int, out, complaints string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(context.Background(), append([]string{"simulate"}, flags...), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

func TestSimulateSaysWhoIsServedAndWhatItCosts(t *testing.T) {
	status, out, complaints := simulatedRun(t, "--for", "10m", "--load", "40", "--traffic", "dealer:every=1m", "--traffic", "scraper:rate=20,name=robot")
	if status != 0 || complaints != "" {
		t.Fatalf("%d %s", status, complaints)
	}
	for _, want := range []string{"10m0s simulated, seed 1", "a call to NHTSA", "429 RATE_LIMITED, upstream-budget", "batches", "robot", "fairness", "write units on the gate for each call",
		"DynamoDB writes", "not modelled:"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestSimulateObeysTheKnobsOfTheEnvironmentAndOfTheFlags(t *testing.T) {
	calls := func(flags ...string) float64 {
		status, out, complaints := simulatedRun(t, append([]string{"--for", "10m", "--load", "60", "--vins", "0", "--json"}, flags...)...)
		var r struct {
			Calls float64 `json:"calls"`
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 {
			t.Fatalf("%d %s %v", status, complaints, err)
		}
		return r.Calls
	}
	t.Setenv("RATE_PER_SECOND", "1")
	if n := calls(); n < 590 || n > 610 {
		t.Errorf("%v calls in 10 minutes at one a second", n)
	}
	if n := calls("--rate-per-second", "0.5"); n < 290 || n > 312 {
		t.Errorf("%v calls in 10 minutes at one in two seconds", n)
	}
}

func TestSimulateRefusesWhatMakesNoSense(t *testing.T) {
	for flags, want := range map[string]string{
		"--rate-per-second 20":          "RATE_BURST",
		"--load 0":                      "nobody asks anything",
		"--load -5":                     "--load: -5",
		"--load NaN":                    "--load: NaN",
		"--load 1e-300":                 "from 0.000001",
		"--arrivals dealer":             "constant, poisson or diurnal",
		"--traffic posson:rate=1":       "posson",
		"--traffic trace:file=/no/such": "no such file",
		"--upstream normal:1s":          "neither fixed, uniform nor lognormal",
		"--stored 3":                    "stored: 3",
		"--trouble 418":                 "429, 403, 503 or limit",
		"--cache-soft-ttl 9000h":        "longer than CACHE_TTL",
		"--max-wait fast":               "MAX_WAIT",
		"--no-such-flag":                "unknown flag",
	} {
		if status, _, complaints := simulatedRun(t, strings.Fields(flags)...); status != exitUsage || !strings.Contains(complaints, want) {
			t.Errorf("%s: %d %s", flags, status, complaints)
		}
	}
}

func TestSimulateEndsWhenItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, flags := range []string{"--for 700h", "--for 700h --sweep load=100|200"} {
		var stdout, stderr bytes.Buffer
		if status := run(ctx, append([]string{"simulate"}, strings.Fields(flags)...), &stdout, &stderr); status != exitInterrupted || stdout.Len() > 0 || !strings.Contains(stderr.String(), "stopped before the end") {
			t.Errorf("%s: %d %s %s", flags, status, &stdout, &stderr)
		}
	}
}

func TestSimulateWritesAPageThatSaysHowItIsMadeAgain(t *testing.T) {
	t.Setenv("MAX_WAIT", "5s")
	name := filepath.Join(t.TempDir(), "report.html")
	status, _, complaints := simulatedRun(t, "--for", "5m", "--load", "30", "--keyed", "--traffic", "dealer:every=1m", "--trouble", "429:at=2m,for=10s", "--html", name)
	page, err := os.ReadFile(name)
	if status != 0 || err != nil {
		t.Fatalf("%d %s %v", status, complaints, err)
	}
	const again = "MAX_WAIT=5s vingate simulate --for 5m --load 30 --keyed --traffic dealer:every=1m --trouble 429:at=2m,for=10s"
	if !strings.Contains(string(page), again) || !strings.Contains(string(page), "</html>") {
		t.Errorf("no %q in the page", again)
	}
	if status, _, complaints := simulatedRun(t, "--for", "1m", "--html", filepath.Join(name, "x")); status != exitUsage || complaints == "" {
		t.Errorf("a file that cannot be written: %d %s", status, complaints)
	}
}

func TestSimulateSweepsAndFindsTheKnee(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "knee")
	status, out, complaints := simulatedRun(t, "--for", "3m", "--load", "10", "--vins", "0", "--keyed", "--sweep", "rate=2..14/3,in-flight=6", "--plot", "served,use", "--svg", picture)
	if status != 0 || !strings.Contains(out, "the knee with in-flight 6 is at rate 8") || !strings.Contains(out, "note: where RATE_BURST is too small") {
		t.Errorf("%d %s %s", status, out, complaints)
	}
	for _, name := range []string{"served", "use"} {
		if svg, err := os.ReadFile(picture + "-" + name + ".svg"); err != nil || !strings.HasPrefix(string(svg), "<svg") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for flags, want := range map[string]string{
		"--sweep rate": "NAME=FROM..TO", "--sweep speed=1..3": "max-wait", "--sweep load=1..2 --plot beauty": "served", "--svg x": "goes with --sweep", "--sweep instances=x": "instances=x: instances: it is no number",
		"--sweep rate=1..2,rate-per-second=1..2": "under two names", "--plot use": "goes with --sweep", "--sweep rate=1..2 --trouble 429:every=1h": "all is over after 20m",
	} {
		if status, _, complaints := simulatedRun(t, strings.Fields(flags)...); status != exitUsage || !strings.Contains(complaints, want) {
			t.Errorf("%s: %d %s", flags, status, complaints)
		}
	}
}
