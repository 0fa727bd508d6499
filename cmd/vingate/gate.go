//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"vingate/internal/config"
	"vingate/internal/console"
	"vingate/internal/ddb"
	"vingate/internal/ddb/anywhere"
	"vingate/internal/devstack"
)

func newGate() *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Show, change, hold and make the shared budget on a live table",
		Long:  `The gate lies in the coordination table, on AWS or where AWS_ENDPOINT_URL_DYNAMODB points. What is changed counts for every instance from the next admission on.`,
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	tableFlag(cmd, &table)
	cmd.AddCommand(newGateShow(&table), newGateWatch(&table), newGateSet(&table), newGateHold(&table), newGateInit(&table))
	return cmd
}

// withGate runs a command on the gate of the table.
func withGate(ctx context.Context, table string, do func(*console.Gate) error) error {
	c, err := anywhere.New(ctx, ddb.Housekeeping())
	if err != nil {
		return err
	}
	return do(&console.Gate{Budget: devstack.NewGateStore(c, table), Name: devstack.Upstream, Table: table})
}

func newGateShow(table *string) *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show slots, tokens, line, hold, leases, tickets and knobs",
		Long:  `TENANT is the hash that vingate keys list shows as LINE, or that of a client address. LIVE are calls to NHTSA, WAITING are tickets in the line.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), onLiveTable)
			defer cancel()
			return withGate(ctx, *table, func(g *console.Gate) error { return g.Show(ctx, cmd.OutOrStdout(), json) })
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "print JSON")
	return cmd
}

func newGateWatch(table *string) *cobra.Command {
	var (
		interval time.Duration
		count    int
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Draw the gate again and again, until Ctrl-C",
		Long:  `On a terminal it redraws, with one line for each tenant; elsewhere it writes one line each time.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return fmt.Errorf("--interval must be 100ms or more, not %v: each look is a read of the table", interval)
			}
			out := cmd.OutOrStdout()
			return withGate(cmd.Context(), *table, func(g *console.Gate) error {
				return g.Watch(cmd.Context(), out, func() (int, int, bool) { return size(out) }, interval, count)
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&interval, "interval", time.Second, "between two looks")
	f.IntVar(&count, "count", 0, "end after so many looks; 0: never")
	return cmd
}

// size is that of the terminal w is, if it is one.
func size(w io.Writer) (width, height int, ok bool) {
	file, is := w.(*os.File)
	if !is {
		return 0, 0, false
	}
	ws, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(ws.Col), int(ws.Row), true
}

// flagOf is the flag of a variable: MAX_IN_FLIGHT is --max-in-flight.
func flagOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(variable), "_", "-")
}

func newGateSet(table *string) *cobra.Command {
	values := map[string]*string{}
	cmd := &cobra.Command{
		Use:   "set --NAME VALUE...",
		Short: "Change numbers of the shared budget without a deployment",
		Long: `The flags are named like the variables, and take what the variables take. All numbers are checked together, those that stay included, and
against UPSTREAM_TIMEOUT and BATCH_TOKEN_COST of this command's environment: give those as the functions have them. Nothing is written unless
everything fits and nobody else changed the gate meanwhile.

What has been used of the burst stays used, in calls. The slots in force follow --max-in-flight down at once, and up unless NHTSA has
throttled or failed lately: then they grow by themselves.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changes := map[string]string{}
			for name, value := range values {
				if cmd.Flags().Changed(flagOf(name)) {
					changes[name] = *value
				}
			}
			if len(changes) == 0 {
				return errors.New("there is nothing to set: name a flag, such as --rate-per-second 3")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), onLiveTable)
			defer cancel()
			return withGate(ctx, *table, func(g *console.Gate) error { return g.Set(ctx, cmd.OutOrStdout(), changes, os.Getenv) })
		},
	}
	for _, v := range config.Knobs() {
		values[v.Name] = cmd.Flags().String(flagOf(v.Name), "", v.Description)
	}
	return cmd
}

func newGateHold(table *string) *cobra.Command {
	var (
		during       time.Duration
		clear, force bool
	)
	cmd := &cobra.Command{
		Use:   "hold --for DURATION | --clear",
		Short: "Stop every call to NHTSA for a while, or end such a stop",
		Long:  `The kill switch. Stored answers still go out. A pause that NHTSA asked for is never shortened by it, and is back when it is cleared before its time.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const longest = 30 * 24 * time.Hour
			switch {
			case clear == cmd.Flags().Changed("for"):
				return errors.New("give either --for, such as --for 10m, or --clear")
			case !clear && (during < time.Second || during > longest):
				return fmt.Errorf("--for must be between 1s and %v, not %v", longest, during)
			case force && !clear:
				return errors.New("--force goes with --clear only")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), onLiveTable)
			defer cancel()
			return withGate(ctx, *table, func(g *console.Gate) error {
				if clear {
					return g.Clear(ctx, cmd.OutOrStdout(), force)
				}
				return g.Hold(ctx, cmd.OutOrStdout(), during)
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&during, "for", 0, "how long, such as 10m")
	f.BoolVar(&clear, "clear", false, "end the operator's hold")
	f.BoolVar(&force, "force", false, "with --clear: also a hold that NHTSA asked for, or that a new gate waits for")
	return cmd
}

func newGateInit(table *string) *cobra.Command {
	var newTables bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the gate in a table that has none, from the environment's numbers",
		Long:  "Use it on tables that something else has made or restored; `vingate tables create` makes tables and gate. A gate that is there is never changed.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), onLiveTable)
			defer cancel()
			cfg, err := config.LoadGate(os.Getenv)
			if err != nil {
				return err
			}
			return withGate(ctx, *table, func(g *console.Gate) error { return g.Init(ctx, cmd.OutOrStdout(), cfg.Knobs, newTables) })
		},
	}
	cmd.Flags().BoolVar(&newTables, "new-tables", false, "nobody can have called NHTSA through these tables: begin with a full bucket and without a hold")
	return cmd
}
