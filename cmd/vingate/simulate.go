//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vingate/internal/config"
	"vingate/internal/simulate"
	"vingate/internal/tenant"
)

// simulated lists the variables of the product that a simulation knows.
var simulated = []string{"RATE_PER_SECOND", "RATE_BURST", "MAX_IN_FLIGHT", "MAX_QUEUED", "MAX_WAIT", "MAX_WAIT_BATCH", "KEY_SLOTS", "BATCH_SLOTS",
	"BULKHEAD_INTERACTIVE", "BULKHEAD_BATCH", "BULKHEAD_ANON", "BULKHEAD_WAIT", "TENANT_RATE_PER_SECOND", "TENANT_BURST", "ANON_RATE_PER_SECOND", "ANON_BURST",
	"BATCH_TOKEN_COST", "UPSTREAM_TIMEOUT", "REQUEST_DEADLINE", "LEASE_TTL", "CLOCK_SKEW_BOUND", "START_GRACE", "CACHE_TTL",
	"CACHE_SOFT_TTL"}

// simulateOptions are the flags.
type simulateOptions struct {
	model    simulate.Setup
	knobs    map[string]*string // by variable
	load     float64
	arrivals string
	callers  int
	keyed    bool
	tries    int
	traffic  []string
	upstream string
	troubles []string
	json     bool
	html     string
	sweep    string
	plot     []string
	svg      string
}

func newSimulate() *cobra.Command {
	o := simulateOptions{knobs: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Try load and knobs in virtual time: who is served, who is refused and why, what it costs",
		Long: `Simulate runs instances, DynamoDB, NHTSA and callers in virtual time. What decides is the product's own pure core, so a knob does here what it
does on AWS; nothing is called and nothing is spent. The same flags give the same numbers.

The main stream of callers is --load requests a second that come as --arrivals says. --traffic adds others, as often as it is given:

  constant:rate=5            evenly paced                  poisson:rate=5    one by one, independently
  diurnal:rate=5             with the course of a day      scraper:rate=20   one address, always another VIN, never comes back
  burst:size=100,every=10m   so many in one instant        dealer:size=50,every=1m   a list of VINs as a batch, from one of 20 keys
  trace:file=calls.csv       columns at (seconds, or a time such as 2026-11-30T08:15:00Z), and if there are such tenant, vin, size

and for each of them tenants=N, keyed (they have API keys), tries=N (how often a refused caller comes back when Retry-After says so), unique (no VIN
twice), weight=N, from=2h, for=10m, name=TEXT.

--trouble lets NHTSA say no, as often as it is given; vingate pauses, cuts its slots, and recovers:

  429:every=1h,for=1m,retry-after=30s   it asks for a pause; without retry-after it names no time
  403:at=6h,for=10m                     it blocks              503:at=6h,for=2m   it fails
  limit:rate=1.5,burst=20               it has a limit of its own, and says 429 to what goes beyond

With --sweep it runs once for each value, or each pair of values (20 minutes each, if --for says nothing else), and finds the knee: where more of the first number stops
to pay.

The numbers of the product come from the environment like everywhere, and each has a flag.`,
		Example: `  vingate simulate
  vingate simulate --load 20 --arrivals diurnal --traffic scraper:rate=30 --html report.html
  vingate simulate --traffic dealer:every=30s --rate-per-second 4 --rate-burst 12 --for 2h
  vingate simulate --for 6h --load 20 --trouble 429:every=1h,for=1m,retry-after=30s --html report.html
  vingate simulate --load 20 --sweep rate=1..10,in-flight=2..8 --html knee.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	f, m := cmd.Flags(), &o.model
	f.SortFlags = false
	f.DurationVar(&m.For, "for", 24*time.Hour, "how long requests come, in virtual time, which begins on a Monday at 0:00")
	f.Uint64Var(&m.Seed, "seed", 1, "of all chance")
	f.Float64Var(&o.load, "load", 100, "requests a second of the main stream; 0: there is none")
	f.StringVar(&o.arrivals, "arrivals", "poisson", "how they come: constant, poisson or diurnal")
	f.IntVar(&o.callers, "callers", 1000, "callers of the main stream")
	f.BoolVar(&o.keyed, "keyed", false, "they have API keys, so each has places of its own")
	f.IntVar(&o.tries, "tries", 0, "how often a refused caller comes back, when Retry-After says so")
	f.StringArrayVar(&o.traffic, "traffic", nil, "another stream of callers, see above")
	f.IntVar(&m.VINs, "vins", 1_000_000, "different VINs that are asked for; 0: never the same twice")
	f.Float64Var(&m.Zipf, "zipf", 1, "how much more often the popular ones: the k-th in proportion to k^-zipf")
	f.Float64Var(&m.Stored, "stored", 0.8, "share of the requests whose answer is stored when it begins, of any age up to CACHE_SOFT_TTL")
	f.IntVar(&m.Gates, "gates", 1, "shared budgets, each with an egress address of its own; instances use them in turn")
	f.IntVar(&m.Instances, "instances", 1000, "Lambda instances at most")
	f.IntVar(&m.Warm, "warm", 10, "of these, when it begins; others start when all are busy")
	f.IntVar(&m.Concurrency, "concurrency", 1, "requests at once in each; Lambda has 1")
	f.DurationVar(&m.WireLeast, "wire-least", 1500*time.Microsecond, "one way between an instance and DynamoDB, at least")
	f.DurationVar(&m.WireMost, "wire-most", 4*time.Millisecond, "and at most")
	f.DurationVar(&m.Lag, "lag", 10*time.Millisecond, "how old an eventually consistent read may be")
	f.DurationVar(&m.ClockError, "clock-error", 5*time.Millisecond, "how far an instance's clock is off, at most")
	f.DurationVar(&m.Work, "work", time.Millisecond, "an instance's own time for a request")
	f.StringVar(&o.upstream, "upstream", "lognormal:600ms,0.5", "how long NHTSA takes: fixed:600ms, uniform:100ms,300ms or lognormal:MEDIAN,SIGMA")
	f.Float64Var(&m.Failing, "failing", 0, "share of the calls to NHTSA that fail")
	f.StringArrayVar(&o.troubles, "trouble", nil, "what NHTSA does besides, see above")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.html, "html", "", "also write a report with pictures to this file; it needs nothing from the network")
	f.StringVar(&o.sweep, "sweep", "", "run many times: rate=1..10,in-flight=2..8 or load=10|100|1000; also burst, queued, wait, instances, callers, gates, stored, and every variable's flag")
	f.StringSliceVar(&o.plot, "plot", []string{"served", "wait-p95"}, "what a sweep shows: "+strings.Join(simulate.MetricNames(), ", "))
	f.StringVar(&o.svg, "svg", "", "with --sweep: also write each picture to a file of that name and the metric's, such as docs/growth for docs/growth-served.svg")
	for _, v := range config.Variables() {
		if slices.Contains(simulated, v.Name) {
			o.knobs[v.Name] = f.String(flagOf(v.Name), "", v.Name+": "+v.Description)
		}
	}
	return cmd
}

// short are the names by which a sweep knows some variables.
var short = map[string]string{"rate": "RATE_PER_SECOND", "in-flight": "MAX_IN_FLIGHT", "burst": "RATE_BURST", "queued": "MAX_QUEUED", "wait": "MAX_WAIT"}

// build makes the model, with some numbers set anew by a sweep. The note says what that changed besides.
func (o *simulateOptions) build(cmd *cobra.Command, set map[string]string) (m simulate.Setup, note string, err error) {
	own := *o
	m = own.model
	variables := map[string]string{}
	for name, value := range set {
		variable := short[name]
		if variable == "" {
			variable = strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		}
		number := func(into *int) { *into, err = strconv.Atoi(value) }
		switch {
		case slices.Contains(simulated, variable):
			if _, twice := variables[variable]; twice {
				err = errors.New("it is there twice, under two names")
			}
			variables[variable] = value
		case name == "load":
			own.load, err = strconv.ParseFloat(value, 64)
		case name == "stored":
			m.Stored, err = strconv.ParseFloat(value, 64)
		case name == "instances":
			number(&m.Instances)
			m.Warm = m.Instances
		case name == "callers":
			number(&own.callers)
		case name == "gates":
			number(&m.Gates)
		default:
			return m, "", fmt.Errorf("there is no such number as %q: %s, load, stored, instances, callers, gates, or a flag of a variable such as max-wait",
				name, strings.Join(slices.Sorted(maps.Keys(short)), ", "))
		}
		if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
			err = errors.New("it is no number of its kind")
		}
		if err != nil {
			return m, "", fmt.Errorf("%s: %w", name, err)
		}
	}
	getenv := func(name string) string {
		if name == "TENANT_HASH_KEY" { // nobody is known by it here
			return strings.Repeat("simulated ", 2)
		}
		if value, swept := variables[name]; swept {
			return value
		}
		if value := o.knobs[name]; value != nil && cmd.Flags().Changed(flagOf(name)) {
			return *value
		}
		if slices.Contains(simulated, name) {
			return os.Getenv(name)
		}
		return ""
	}
	cfg, err := config.Load(getenv)
	if err != nil && set["rate"] != "" && getenv("RATE_BURST") == "" {
		// A higher rate needs a larger burst, or clocks leave it no room.
		for burst := 11; burst <= 1000 && err != nil; burst++ {
			variables["RATE_BURST"] = strconv.Itoa(burst)
			cfg, err = config.Load(getenv)
			note = "where RATE_BURST is too small for the rate, the least that is not is used"
		}
	}
	if err != nil {
		return m, "", err
	}
	m, err = own.fill(m, cfg)
	return m, note, err
}

func (o *simulateOptions) fill(m simulate.Setup, cfg config.Config) (_ simulate.Setup, err error) {
	m.Knobs = cfg.Knobs
	m.MaxWait, m.MaxWaitBatch, m.BulkheadWait = cfg.MaxWait, cfg.MaxWaitBatch, cfg.BulkheadWait
	m.UpstreamTimeout, m.RequestDeadline = cfg.UpstreamTimeout, cfg.RequestDeadline
	m.BatchTokenCost, m.CacheTTL, m.CacheSoftTTL = cfg.BatchTokenCost, cfg.CacheTTL, cfg.CacheSoftTTL
	m.Keyed = tenant.Plan{RatePerSecond: cfg.Tenant.PerSecond, Burst: cfg.Tenant.Burst}
	m.Anonymous = tenant.Plan{RatePerSecond: cfg.Anon.PerSecond, Burst: cfg.Anon.Burst}
	m.ItemReads, m.ItemWrites = simulate.ItemReadUnits, simulate.ItemWriteUnits
	if m.Upstream, err = simulate.ParseLatency(o.upstream); err != nil {
		return m, err
	}
	m.Troubles, m.Streams = nil, nil
	for _, text := range o.troubles {
		t, err := simulate.ParseTrouble(text)
		if err != nil {
			return m, fmt.Errorf("--trouble %w", err)
		}
		m.Troubles = append(m.Troubles, t)
	}
	if !(o.load >= 0) {
		return m, fmt.Errorf("--load: %v is no number of requests a second", o.load)
	}
	if o.load > 0 {
		kind := simulate.Arrivals(o.arrivals)
		if !slices.Contains([]simulate.Arrivals{simulate.Constant, simulate.Poisson, simulate.Diurnal}, kind) {
			return m, fmt.Errorf("--arrivals must be constant, poisson or diurnal, not %q", o.arrivals)
		}
		m.Streams = append(m.Streams, simulate.Stream{Name: "people", Arrivals: kind, Rate: o.load, Tenants: o.callers, Keyed: o.keyed, Tries: o.tries})
	}
	for _, text := range o.traffic {
		s, err := simulate.ParseStream(text, func(name string) (io.ReadCloser, error) { return os.Open(name) })
		if err != nil {
			return m, fmt.Errorf("--traffic %w", err)
		}
		m.Streams = append(m.Streams, s)
	}
	return m, m.Check()
}

func (o *simulateOptions) run(cmd *cobra.Command) error {
	// A run lives for seconds and makes much that it does not keep.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if o.sweep != "" {
		return o.runSweep(cmd)
	}
	if o.svg != "" {
		return usage(errors.New("--svg goes with --sweep"))
	}
	if cmd.Flags().Changed("plot") {
		return usage(errors.New("--plot goes with --sweep"))
	}
	m, _, err := o.build(cmd, nil)
	if err != nil {
		return usage(err)
	}
	began := time.Now()
	r, err := simulate.Run(cmd.Context(), m)
	if err != nil {
		return stopped(err)
	}
	r.Took, r.Command = time.Since(began), o.command(cmd)
	return o.show(cmd, r)
}

func (o *simulateOptions) runSweep(cmd *cobra.Command) error {
	axes, err := simulate.ParseSweep(o.sweep)
	if err != nil {
		return usage(err)
	}
	if !cmd.Flags().Changed("for") {
		o.model.For = 20 * time.Minute
	}
	s, err := simulate.RunSweep(cmd.Context(), axes, o.plot, func(set map[string]string) (simulate.Setup, string, error) { return o.build(cmd, set) })
	if errors.Is(err, context.Canceled) {
		return stopped(err)
	}
	if err != nil {
		return usage(err)
	}
	s.Command = o.command(cmd)
	if o.svg != "" {
		for _, name := range s.Shown {
			if err := writeFile(o.svg+"-"+name+".svg", func(w io.Writer) error { return s.SVG(w, name) }); err != nil {
				return err
			}
		}
	}
	return o.show(cmd, s)
}

// stopped is the end of a run before its time.
func stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return &exitError{exitInterrupted, errors.New("stopped before the end, so there is nothing to report")}
	}
	return err
}

// shown is what came of it.
type shown interface {
	Print(io.Writer) error
	JSON(io.Writer) error
	HTML(io.Writer) error
}

func (o *simulateOptions) show(cmd *cobra.Command, s shown) error {
	if o.html != "" {
		if err := writeFile(o.html, s.HTML); err != nil {
			return err
		}
	}
	if o.json {
		return s.JSON(cmd.OutOrStdout())
	}
	return s.Print(cmd.OutOrStdout())
}

// command is how this run is made again.
func (o *simulateOptions) command(cmd *cobra.Command) string {
	words := []string{"vingate simulate"}
	for _, name := range simulated {
		if value := os.Getenv(name); value != "" {
			words = slices.Insert(words, len(words)-1, name+"="+quoted(value))
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "html", f.Name == "json", f.Name == "svg":
		case f.Name == "plot":
			words = append(words, "--plot "+strings.Join(o.plot, ","))
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
		case f.Name == "traffic", f.Name == "trouble":
			for _, text := range map[string][]string{"traffic": o.traffic, "trouble": o.troubles}[f.Name] {
				words = append(words, "--"+f.Name+" "+quoted(text))
			}
		case f.Value.Type() == "duration":
			d, _ := time.ParseDuration(f.Value.String()) // pflag's own
			words = append(words, "--"+f.Name+" "+simulate.Short(d))
		default:
			words = append(words, "--"+f.Name+" "+quoted(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}

// quoted is a word for a shell.
func quoted(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:=_/-", c)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// writeFile writes a whole file, or says why not.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return usage(err)
	}
	return errors.Join(write(f), f.Close())
}
