// Command bench compares vingate's gate with two other ways to keep the same gate in DynamoDB (package versioned): same
// load, same delays, same seeds, on the local store, in virtual time: what is counted does not depend on the machine. It prints one line of JSON for each scenario and variant, or a table of
// them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"vingate/internal/ddb"
	"vingate/internal/devstack"
	"vingate/internal/gate"
	"vingate/internal/meter"
	"vingate/internal/tables"
	"vingate/internal/virtual"
)

// Its clock begins after the gate's.
func main() { virtual.Main("bench", gate.Epoch.Add(time.Hour), run) }

// run is main with everything handed in.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, virtual func(func())) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asTable := flags.Bool("table", false, "print a table in Markdown instead of lines of JSON")
	brief := flags.Bool("brief", false, "print a short table, a row for each scenario")
	from := flags.String("from", "", "do not measure: take the lines of JSON of a former run from this file")
	inReal := flags.Bool("real", false, "take the time it takes: then the speed of this machine, and what else it does, count too")
	span := flags.Duration("for", 20*time.Second, "how long each scenario offers its load")
	seed := flags.Uint64("seed", 1, "of the load and the delays")
	only := flags.String("scenario", "", "only this one: light, saturation, flood, flood50, queue or contention")
	variant := flags.String("variant", "", "only this one: "+strings.Join(variants, ", "))
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, schemes := scenarios, variants
	if *only != "" {
		chosen = slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return s.name != *only })
	}
	if *variant != "" {
		schemes = slices.DeleteFunc(slices.Clone(variants), func(v string) bool { return v != *variant })
	}
	if len(chosen) == 0 || len(schemes) == 0 || flags.NArg() > 0 || *span < time.Second {
		_, _ = fmt.Fprintln(stderr, "bench: no such scenario or variant, or less than a second of load; see --help")
		return 2
	}
	var rows []row
	var err error
	if *from != "" {
		rows, err = read(*from)
	} else {
		if *inReal {
			virtual = nil
		}
		rows, err = all(ctx, chosen, schemes, virtual, bench{table: coordination, span: *span, seed: *seed}, func(r row) error {
			if *asTable || *brief {
				_, _ = fmt.Fprintf(stderr, "%s, %s: done\n", r.Scenario, r.Variant)
				return nil
			}
			return json.NewEncoder(stdout).Encode(r)
		})
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	switch {
	case *asTable:
		for _, s := range chosen {
			_, _ = fmt.Fprintf(stdout, "- `%s`: %s\n", s.name, s.says)
		}
		_, _ = fmt.Fprintln(stdout)
		table(stdout, rows)
	case *brief:
		short(stdout, rows)
	}
	return 0
}

// read takes the rows of a former run from its lines of JSON.
func read(path string) ([]row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var rows []row
	for lines := json.NewDecoder(file); ; {
		var r row
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rows = append(rows, r)
	}
}

const (
	coordination = "coordination"
	connections  = 256 // kept open, so that no scheme pays for dialling
)

// all starts the store and plays every scenario under every variant, one after the other: in virtual time, or without it in real time.
func all(ctx context.Context, chosen []scenario, schemes []string, virtual func(func()), b bench, each func(row) error) ([]row, error) {
	root := filepath.Join("..", "..") // of the module that this one lies in
	store, err := devstack.StartStore(ctx, devstack.Options{Dynoxide: devstack.Find(root, os.Getenv).Dynoxide})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	if _, err := tables.Create(ctx, store.Client, tables.Names{Coordination: coordination, Results: "results"}); err != nil {
		return nil, err
	}
	o := store.Client.Options()
	o.Retryer = aws.NopRetryer{} // every attempt is the scheme's own, and counted
	o.HTTPClient = ddb.KeepConnections(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.MaxIdleConnsPerHost = connections }))
	b.api = dynamodb.New(o)
	play := func(s scenario, variant string) (row, error) { return b.run(ctx, s, variant) }
	if virtual != nil {
		desk := meter.NewOutside(b.api)
		defer desk.Close()
		b.api = desk
		play = func(s scenario, variant string) (r row, err error) {
			virtual(func() { r, err = b.run(context.Background(), s, variant) }) // who waits for the outside stops the clock
			return r, err
		}
	}
	var rows []row
	for _, s := range chosen {
		for _, variant := range schemes {
			r, err := play(s, variant)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return rows, fmt.Errorf("%s, %s: %w", s.name, variant, err)
			}
			rows = append(rows, r)
			if err := each(r); err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}
