//go:build unix

// Command vingate is the tool a person runs: the product on this machine, the tables, the shared budget and the API keys. Try `vingate help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with everything handed in. The first interrupt ends ctx; a second one ends the process, and with it every
// child.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	status := 1
	var exit *exitError
	if errors.As(err, &exit) {
		status, err = exit.status, exit.err
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "vingate: %v\n", err)
	}
	return status
}

// exitError ends the process with another status than 1; err is nil when all has been said.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "vingate",
		Short:         "Decode VINs through NHTSA without taking more than your share",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          help,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newDecode(), newRun(), newServe(), newInvoke(), newTables(), newGate(), newKeys(), newSimulate(), newVersion())
	return root
}

// help is what a command with subcommands does alone; only then does cobra refuse an unknown one.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }
