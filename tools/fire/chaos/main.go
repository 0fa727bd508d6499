// Command chaos plays a seeded history of faults and traffic on the whole product and judges it from outside; see vingate/internal/chaos. Its last line says
// whether all promises held, and so does its exit status.
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"vingate/internal/chaos"
	"vingate/internal/devstack"
	"vingate/tools/fire/link"
	"vingate/tools/fire/picture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	stop()
	os.Exit(code)
}

type options struct {
	seed          uint64
	last          time.Duration
	instances     int
	brief, steady bool
	plan, verbose bool
	breaks, out   string
}

func run(ctx context.Context, args []string) (int, error) {
	var o options
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.Uint64Var(&o.seed, "seed", 0, "of the plan; 0 draws one")
	fs.DurationVar(&o.last, "for", 2*time.Minute, "how long storm and calm last; what comes after takes about a minute")
	fs.BoolVar(&o.brief, "brief", false, "the least in which each kind of fault strikes, a minute and a quarter in all: --for 30s")
	fs.IntVar(&o.instances, "instances", 8, "Lambda instances")
	fs.BoolVar(&o.steady, "steady", false, "faults five seconds apart, however short this run is; else each kind strikes at least once")
	fs.BoolVar(&o.plan, "plan", false, "only print the plan")
	fs.BoolVar(&o.verbose, "verbose", false, "tell what strikes when")
	fs.StringVar(&o.breaks, "break", "", "the `promise` that the bootstrap is told to break (P1 to P11): it is to be found broken")
	fs.StringVar(&o.out, "out", "", "`folder` for the log of all parts, and for figures over time as CSV and SVG")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if o.brief {
		o.last = 30 * time.Second
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if o.last < 20*time.Second || o.instances < 1 {
		return 2, fmt.Errorf("a run takes at least 20s and an instance")
	}
	plan := chaos.Draw(o.seed, o.last, o.instances, o.steady)
	if o.plan {
		plan.Print(os.Stdout)
		return 0, nil
	}
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return 2, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	places := devstack.Find("../..", os.Getenv)
	if err := build(ctx, dir, places.Root); err != nil {
		return 2, err
	}
	log, samples, closeOut, err := outputs(o.out)
	if err != nil {
		return 2, err
	}
	defer closeOut()
	progress := func(format string, args ...any) {}
	if o.verbose {
		progress = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	}
	fmt.Printf("seed %d: %v, %d instances, %d faults, %d visits\n", o.seed, o.last, o.instances, len(plan.Faults), len(plan.Visits))
	evidence, err := chaos.Run(ctx, chaos.Options{
		Plan: plan, Places: places, Bootstrap: filepath.Join(dir, "decode"), StandIn: filepath.Join(dir, "vpic-standin"),
		Link: link.New, Break: o.breaks, Log: log, Progress: progress, Sampled: samples,
	})
	if err != nil {
		return 2, err
	}
	chaos.Circumstances(os.Stdout, evidence)
	if chaos.Table(os.Stdout, o.seed, chaos.Judge(evidence)) > 0 {
		return 1, nil
	}
	return 0, nil
}

// build makes the parts from the sources as they are; the function with the tag that lets a clock be off and a promise be broken.
func build(ctx context.Context, dir, root string) error {
	for _, args := range [][]string{
		{"-tags", "lambda.norpc,chaos", "./functions/decode"},
		{"./cmd/vpic-standin"},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", dir + "/"}, args...)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, said)
		}
	}
	return nil
}

// outputs opens what is kept of a run; nothing without a folder.
func outputs(dir string) (log io.Writer, sampled func(chaos.Sample), closer func(), err error) {
	if dir == "" {
		return io.Discard, nil, func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, nil, err
	}
	logFile, err := os.Create(filepath.Join(dir, "parts.log"))
	if err != nil {
		return nil, nil, nil, err
	}
	series, err := os.Create(filepath.Join(dir, "series.csv"))
	if err != nil {
		return nil, nil, nil, err
	}
	w := csv.NewWriter(series)
	if err := w.Write(chaos.Columns()); err != nil {
		return nil, nil, nil, err
	}
	var kept []chaos.Sample
	return logFile, func(s chaos.Sample) {
			kept = append(kept, s)
			_ = w.Write(s.Row()) // what could not be written is told by the last Error
			w.Flush()
		}, func() {
			w.Flush()
			if err := errors.Join(w.Error(), series.Close(), logFile.Close(), picture.Write(filepath.Join(dir, "series.svg"), kept)); err != nil {
				fmt.Fprintln(os.Stderr, "chaos:", err)
			}
		}, nil
}
