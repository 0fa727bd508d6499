// Command peers holds vingate's gate beside limiters that one could take instead: the same calls from ten processes each, on a real Redis and on the local
// store, judged from outside by what was started when. What AWS has of its own is modelled, in virtual time. It prints a line of JSON for each limiter, and
// tables of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"vingate/internal/virtual"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "instance" {
		if err := runInstance(os.Args[2]); err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "peers: %v\n", err)
			os.Exit(1)
		}
		return
	}
	virtual.Main("peers", time.Time{}, run)
}

// runInstance is one instance of a limiter that is written in Go.
func runInstance(told string) error {
	var s settings
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return err
	}
	l, err := open(s)
	if err != nil {
		return err
	}
	return serve(context.Background(), l, os.Stdin, os.Stdout)
}

// run is main with everything handed in.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, virtual func(func())) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("peer", "", "only those with this in their name")
	phase := flags.String("phase", "", "only this phase: light, flood, slots, skew, kill, lone, crowd, fair or down")
	from := flags.String("from", "", "do not measure: print the tables of the lines of JSON in this file")
	seed := flags.Uint64("seed", 1, "of the load")
	verbose := flags.Bool("verbose", false, "show what the instances write to their standard error")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen := slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return !strings.Contains(p.name, *only) })
	known := *phase == ""
	for _, p := range phases {
		known = known || p.name == *phase
	}
	if len(chosen) == 0 || !known || flags.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "peers: no such peer or phase; see --help")
		return 2
	}
	var rows []row
	var err error
	if *from != "" {
		rows, err = read(*from)
	} else {
		var loud io.Writer
		if *verbose {
			loud = stderr
		}
		rows, err = measure(ctx, chosen, *phase, *seed, loud, virtual, stdout, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "peers: %v\n", err)
		return 1
	}
	for _, modelled := range []bool{false, true} {
		if some := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.Modelled != modelled }); len(some) > 0 {
			_, _ = fmt.Fprintln(stdout)
			table(stdout, some)
		}
	}
	return 0
}

// measure takes one peer after the other.
func measure(ctx context.Context, chosen []peer, phase string, seed uint64, loud io.Writer, virtual func(func()), stdout, stderr io.Writer) ([]row, error) {
	b, err := start(ctx, chosen, loud)
	if err != nil {
		return nil, err
	}
	defer b.close()
	var rows []row
	for _, p := range chosen {
		l, err := b.lab(p, seed)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p.name, err)
		}
		r := row{Peer: p.name, Store: p.store, Modelled: p.model != nil, Slots: p.slots}
		for _, step := range phases {
			if phase != "" && phase != step.name {
				continue
			}
			began := time.Now()
			if p.model != nil {
				virtual(func() { err = step.run(l, context.Background(), &r) })
			} else {
				err = step.run(l, ctx, &r)
			}
			if err = errors.Join(err, ctx.Err()); err != nil {
				return rows, fmt.Errorf("%s, %s: %w", p.name, step.name, err)
			}
			_, _ = fmt.Fprintf(stderr, "%s, %s: %.1f s\n", p.name, step.name, time.Since(began).Seconds())
		}
		rows = append(rows, r)
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// read takes the rows of a former run from its lines of JSON.
func read(path string) ([]row, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows []row
	for l := range strings.Lines(string(text)) {
		if !strings.HasPrefix(l, "{") {
			continue // a table
		}
		var r row
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}
