// Command vpic-standin serves NHTSA's vPIC API on loopback, from NHTSA's public
// data. It is not NHTSA. Package standin says what it can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"vingate/internal/standin"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return standin.Run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
}
