// Command load measures what vingate adds to a call, and how it behaves at many times its budget: built functions under locallambda, load by vegeta.
// A line of JSON for each figure, and at the end a table that says which are within their bounds; so does the exit status.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Figure is one thing that was measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bound string  `json:"bound,omitempty"` // in words; "" when there is none
	Held  bool    `json:"held"`
	N     int     `json:"n"` // how many it is of
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
	}
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	last := fs.Duration("for", 20*time.Second, "how long each measurement lasts")
	only := fs.String("only", "", "one of cached, path, flood, batch")
	log := fs.String("log", "", "`file` for the log of all parts")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	b := bench{last: *last, log: io.Discard}
	if *log != "" {
		f, err := os.Create(*log)
		if err != nil {
			return 2, err
		}
		defer func() { _ = f.Close() }()
		b.log = f
	}
	dir, err := os.MkdirTemp("", "load")
	if err != nil {
		return 2, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := b.build(ctx, dir); err != nil {
		return 2, err
	}
	var all []Figure
	for _, m := range []struct {
		name string
		run  func(context.Context) ([]Figure, error)
	}{{"cached", b.cached}, {"path", b.path}, {"flood", b.flood}, {"batch", b.batch}} {
		if *only != "" && *only != m.name {
			continue
		}
		figures, err := m.run(ctx)
		if err != nil {
			return 2, fmt.Errorf("%s: %w", m.name, err)
		}
		for _, f := range figures {
			line, _ := json.Marshal(f)
			fmt.Println(string(line))
		}
		all = append(all, figures...)
	}
	return table(os.Stdout, all), ctx.Err()
}

func table(out io.Writer, figures []Figure) (code int) {
	// Others' work on the machine is in every figure, so how much there is of it stands above them.
	average, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(average), " ")
	fmt.Fprintf(out, "\n%s/%s, %d processors, load average %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), busy)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	missed := 0
	for _, f := range figures {
		verdict := ""
		if f.Bound != "" {
			verdict = "held"
			if !f.Held {
				verdict = "MISSED"
				missed++
			}
		}
		fmt.Fprintf(w, "%s\t%.2f %s\t%s\t%s\tof %d\n", f.Name, f.Value, f.Unit, f.Bound, verdict, f.N)
	}
	_ = w.Flush()
	if missed > 0 {
		fmt.Fprintf(out, "\n%d bounds missed\n", missed)
		return 1
	}
	fmt.Fprintln(out, "\nall bounds held")
	return 0
}
