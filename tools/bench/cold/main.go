// Command cold measures a cold start: the time from a process's start to its first answer, of the decode function as it is built, and of
// one that does nothing but answer. It speaks the Lambda Runtime API to each, one after the other in turns, so that a machine that is
// busy is so to all of them alike: the ratios hold where the times do not. It prints one line of JSON for each.
//
// What Lambda does before the process runs (a micro VM, the code's download) is not in it; that grows with the size of the code.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vingate/internal/config"
	"vingate/internal/devstack"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("cold", flag.ContinueOnError)
	flags.SetOutput(stderr)
	hello := flags.String("hello", "", "the function that does nothing")
	decode := flags.String("decode", "", "the decode function")
	n := flags.Int("n", 40, "starts of each")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *hello == "" || *decode == "" || *n < 30 || flags.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "cold: wants --hello, --decode and at least 30 starts")
		return 2
	}
	rows, err := measure(ctx, *hello, *decode, *n)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "cold:", err)
		return 1
	}
	for _, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, "cold:", err)
			return 1
		}
		_, _ = fmt.Fprintf(stdout, "%s\n", line)
	}
	return 0
}

// row is what is printed of one variant. Times are medians in milliseconds.
type row struct {
	Variant string  `json:"variant"`
	N       int     `json:"n"`
	FirstMs float64 `json:"firstAnswerMs"` // from the process's start to the end of its first answer
	P90Ms   float64 `json:"firstAnswerP90Ms"`
	Ratio   float64 `json:"ratio"`              // to hello's median
	InitMs  float64 `json:"initMs"`             // of it, until the function asks for work
	Invoke  float64 `json:"firstInvokeMs"`      // of it, the invocation
	WarmMs  float64 `json:"warmUpMs,omitempty"` // a warm-up event, when warm

	PackageInitMs float64            `json:"packageInitMs"` // of initMs, the package initialisers together
	Slowest       map[string]float64 `json:"slowestPackagesMs,omitempty"`
	StepsMs       map[string]float64 `json:"mainStepsMs,omitempty"` // of initMs, the steps of main
}

// variant is a function to start.
type variant struct {
	name, path string
	env        []string
	sampled    bool
}

const (
	health = `{"version":"2.0","routeKey":"$default","rawPath":"/healthz","rawQueryString":"","headers":{"host":"localhost"},` +
		`"requestContext":{"requestId":"cold","stage":"$default","http":{"method":"GET","path":"/healthz","sourceIp":"192.0.2.1"}},"isBase64Encoded":false}`
	warmUp = `{"source":"vingate.warmup"}`
)

func measure(ctx context.Context, hello, decode string, n int) ([]row, error) {
	store, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(filepath.Join("..", ".."), os.Getenv).Dynoxide})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	g, err := config.LoadGate(func(string) string { return "" })
	if err != nil {
		return nil, err
	}
	if _, err := devstack.Provision(ctx, store.Client, g); err != nil {
		return nil, err
	}
	daemon, err := net.ListenPacket("udp", "127.0.0.1:0") // nobody reads it; the kernel drops what is too much
	if err != nil {
		return nil, err
	}
	defer func() { _ = daemon.Close() }()
	env := []string{"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_LAMBDA_FUNCTION_NAME=cold",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512", "AWS_ENDPOINT_URL_DYNAMODB=" + store.StoreURL, "TENANT_HASH_KEY=for-measurements-only", "HOME=" + os.TempDir()}
	off, on := append(slices.Clone(env), "AWS_XRAY_SDK_DISABLED=true"), append(slices.Clone(env), "AWS_XRAY_DAEMON_ADDRESS="+daemon.LocalAddr().String())
	variants := []variant{{"hello", hello, off, false}, {"decode", decode, off, false}, {"decode, traced", decode, on, true}}

	all := make([][]start, len(variants))
	for range n + 1 { // the first of each fills the page cache, and is not counted
		for i, v := range variants {
			s, err := begin(ctx, v, false)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			all[i] = append(all[i], s)
		}
	}
	rows := make([]row, len(variants))
	for i, v := range variants {
		starts := all[i][1:]
		r := row{Variant: v.name, N: n, FirstMs: median(starts, func(s start) float64 { return s.first }), InitMs: median(starts, func(s start) float64 { return s.init }),
			Invoke: median(starts, func(s start) float64 { return s.first - s.init }), P90Ms: quantile(starts, 0.9, func(s start) float64 { return s.first }), StepsMs: map[string]float64{}}
		r.Ratio = math.Round(r.FirstMs/cmp.Or(rows[0].FirstMs, r.FirstMs)*100) / 100
		if v.path == decode {
			r.WarmMs = median(starts, func(s start) float64 { return s.warm })
		}
		for name := range starts[0].steps {
			r.StepsMs[name] = median(starts, func(s start) float64 { return s.steps[name] })
		}
		// What Go says of package initialisers costs time itself: so it is asked for apart.
		var traced []start
		for range 10 {
			s, err := begin(ctx, v, true)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			traced = append(traced, s)
		}
		r.PackageInitMs = median(traced, func(s start) float64 { return s.sum() })
		r.Slowest = map[string]float64{}
		for _, name := range slices.SortedFunc(maps.Keys(traced[0].packages), func(a, b string) int {
			return int(1e6 * (traced[0].packages[b] - traced[0].packages[a]))
		})[:min(5, len(traced[0].packages))] {
			r.Slowest[name] = median(traced, func(s start) float64 { return s.packages[name] })
		}
		rows[i] = r
	}
	return rows, nil
}

// start is one measured start, in milliseconds.
type start struct {
	init, first, warm float64
	steps, packages   map[string]float64
}

func (s start) sum() (total float64) {
	for _, ms := range s.packages {
		total += ms
	}
	return total
}

// begin starts a function, lets it answer twice, and ends it.
func begin(ctx context.Context, v variant, inittrace bool) (s start, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	asked, answered := make(chan time.Time, 4), make(chan time.Time, 4)
	events := make(chan string, 2)
	events <- health
	events <- warmUp
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		asked <- time.Now()
		select {
		case e := <-events:
			sampled := 0
			if v.sampled {
				sampled = 1
			}
			h := w.Header()
			h.Set("Lambda-Runtime-Aws-Request-Id", "00000000-0000-4000-8000-000000000000")
			h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(28*time.Second).UnixMilli(), 10))
			h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:cold")
			h.Set("Lambda-Runtime-Trace-Id", fmt.Sprintf("Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=%d", sampled))
			_, _ = io.WriteString(w, e)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answered <- time.Now()
		w.WriteHeader(http.StatusAccepted)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(ln) }()
	defer func() { _ = srv.Close() }()

	cmd := exec.CommandContext(ctx, v.path)
	cmd.Env = append(slices.Clone(v.env), "AWS_LAMBDA_RUNTIME_API="+ln.Addr().String())
	if inittrace {
		cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	next := func(c <-chan time.Time) (t time.Time) {
		if err != nil {
			return t
		}
		select {
		case t = <-c:
		case err = <-ended:
			ended <- err
			err = errors.Join(fmt.Errorf("it ended by itself: %s", errs.String()), err)
		case <-ctx.Done():
			err = ctx.Err()
		}
		return t
	}
	ready, first := next(asked), next(answered)
	again, warm := next(asked), next(answered)
	stop()
	if err != nil {
		return s, err
	}
	s = start{init: millis(ready.Sub(began)), first: millis(first.Sub(began)), warm: millis(warm.Sub(again))}
	s.steps, s.packages = steps(&out), packages(errs.String())
	return s, nil
}

// steps are what main says of its own.
func steps(r io.Reader) map[string]float64 {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var l struct{ InitMs map[string]float64 }
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.InitMs != nil {
			return l.InitMs
		}
	}
	return nil
}

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`)

// packages are what Go says of the initialisers.
func packages(trace string) map[string]float64 {
	found := map[string]float64{}
	for _, m := range initLine.FindAllStringSubmatch(trace, -1) {
		if ms, err := strconv.ParseFloat(m[2], 64); err == nil {
			found[strings.TrimSuffix(m[1], ",")] += ms
		}
	}
	return found
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(s []start, of func(start) float64) float64 { return quantile(s, 0.5, of) }

func quantile(s []start, q float64, of func(start) float64) float64 {
	if len(s) == 0 {
		return 0
	}
	values := make([]float64, len(s))
	for i := range s {
		values[i] = of(s[i])
	}
	slices.Sort(values)
	return math.Round(values[min(len(values)-1, int(q*float64(len(values))))]*1000) / 1000
}
