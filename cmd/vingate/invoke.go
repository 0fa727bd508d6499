//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"vingate/internal/devstack"
)

// errFunctionFailed is told by the exit status; the output has the details.
var errFunctionFailed = errors.New("the function failed")

func newInvoke() *cobra.Command {
	var (
		event, standin, cacheDir string
		e                        devstack.Emulator
	)
	cmd := &cobra.Command{
		Use:   "invoke --event FILE",
		Short: "Run the built function once under AWS's runtime interface emulator",
		Long: `Invoke starts a store in memory with the tables and the gate, the stand-in for NHTSA, and the function under
aws-lambda-rie; hands it the event; prints the answer's status line to stderr and its body to stdout. The exit status is
not 0 when the function failed; an HTTP answer of any status is none of that.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			payload, err := os.ReadFile(event)
			if err != nil {
				return err
			}
			places := devstack.Find(".", os.Getenv)
			s, err := devstack.Start(cmd.Context(), devstack.Options{
				Dynoxide: places.Dynoxide, Data: places.Data, StandIn: standin, CacheDir: cacheDir, Log: cmd.ErrOrStderr(),
			})
			if err != nil {
				return err
			}
			defer s.Close()
			a, err := s.Invoke(cmd.Context(), e, payload)
			if err != nil {
				return err
			}
			a.Write(cmd.OutOrStdout(), cmd.ErrOrStderr())
			if a.Failed {
				return errFunctionFailed
			}
			return nil
		},
	}
	bin := filepath.Join(".local", "bin")
	f := cmd.Flags()
	f.StringVar(&event, "event", "", "file with the event")
	f.StringVar(&e.RIE, "rie", filepath.Join(bin, "aws-lambda-rie"), "the emulator")
	f.StringVar(&e.Bootstrap, "bootstrap", filepath.Join(bin, "bootstrap"), "the built function")
	f.DurationVar(&e.Timeout, "timeout", 29*time.Second, "of the invocation")
	f.StringVar(&standin, "standin", filepath.Join(bin, "vpic-standin"), "the stand-in for NHTSA")
	f.StringVar(&cacheDir, "cache-dir", filepath.Join(".local", "vpic"), "where the stand-in keeps its unpacked data")
	_ = cmd.MarkFlagRequired("event")
	return cmd
}
