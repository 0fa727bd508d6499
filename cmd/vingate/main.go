//go:build unix

// Command vingate is the tool a person runs: the product on this machine, the tables, the shared budget and the API keys. Try `vingate help`.
package main

import (
	"context"
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
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(stderr, "vingate: %v\n", err)
		return 1
	}
	return 0
}

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
	root.AddCommand(newRun(), newServe(), newInvoke(), newTables(), newGate(), newKeys(), newVersion())
	return root
}

// help is what a command with subcommands does alone; only then does cobra refuse an unknown one.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }
