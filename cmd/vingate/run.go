//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"vingate/internal/ddb"
	"vingate/internal/ddb/anywhere"
	"vingate/internal/devstack"
)

func newRun() *cobra.Command {
	var upstream, store, dataDir, binDir string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run everything on this machine: store, stand-in for NHTSA, and the real Lambda binary behind a local front door",
		Long: `Run starts a local store, creates the tables, starts a stand-in for NHTSA and the edge, and stops all of it on Ctrl-C.
What was decoded, and the shared budget, are kept in the data directory between runs, apart for each upstream.

Every variable of the configuration works from the environment, and is given to the functions.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.String("port", envOr("PORT", "8080"), "where the API listens, on 127.0.0.1 (PORT)")
	f.StringVar(&upstream, "upstream", envOr("UPSTREAM", "standin"), `"standin", or "live" for NHTSA itself (UPSTREAM)`)
	f.String("instances", envOr("INSTANCES", "5"), "Lambda instances at most (INSTANCES)")
	f.String("concurrency", envOr("CONCURRENCY", "1"), "requests at once in each; Lambda has 1 (CONCURRENCY)")
	f.String("standin-port", envOr("STANDIN_PORT", "0"), "where the stand-in listens; 0 is a free port (STANDIN_PORT)")
	f.String("store-port", envOr("STORE_PORT", "0"), "where the store listens; 0 is a free port (STORE_PORT)")
	f.StringVar(&store, "store", os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"), "URL of a DynamoDB-compatible store that runs already, instead of one of our own (AWS_ENDPOINT_URL_DYNAMODB)")
	f.StringVar(&dataDir, "data-dir", ".local", "what is kept between runs")
	f.StringVar(&binDir, "bin-dir", filepath.Join(".local", "bin"), "where the built binaries are")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := devstack.Options{
			StandIn:   filepath.Join(binDir, "vpic-standin"),
			Bootstrap: filepath.Join(binDir, "bootstrap"),
			CacheDir:  filepath.Join(dataDir, "vpic"),
			Control:   filepath.Join(dataDir, "control.sock"),
			Log:       cmd.ErrOrStderr(),
		}
		for _, n := range []struct {
			flag, variable string
			lo, hi         int
			into           *int
		}{
			{"port", "PORT", 1, 65535, &o.EdgePort},
			{"instances", "INSTANCES", 1, 1000, &o.Instances},
			{"concurrency", "CONCURRENCY", 1, 1000, &o.Concurrency},
			{"standin-port", "STANDIN_PORT", 0, 65535, &o.StandInPort},
			{"store-port", "STORE_PORT", 0, 65535, &o.StorePort},
		} {
			var err error
			if *n.into, err = number(cmd, n.flag, n.variable, n.lo, n.hi); err != nil {
				return err
			}
		}
		switch upstream {
		case "standin":
		case "live":
			o.UpstreamURL = devstack.NHTSA()
		default:
			return fmt.Errorf(`--upstream (UPSTREAM) must be "standin" or "live", not %q`, upstream)
		}
		places := devstack.Find(".", os.Getenv)
		o.Dynoxide, o.Data = places.Dynoxide, places.Data
		// Apart for each upstream: what the stand-in said must never be shown as NHTSA's.
		o.DBPath = filepath.Join(dataDir, "store-"+upstream+".db")
		if store != "" {
			o.StoreURL = store
			if upstream == "standin" {
				o.Env = devstack.WithTables(os.Environ(), "vingate-standin")
			}
			// The SDK reads its endpoint from the environment, here as in the functions.
			if err := os.Setenv("AWS_ENDPOINT_URL_DYNAMODB", store); err != nil {
				return err
			}
			var err error
			if o.Client, err = anywhere.New(cmd.Context(), ddb.Housekeeping()); err != nil {
				return err
			}
		}

		if err := os.MkdirAll(dataDir, 0o755); err != nil {
			return err
		}
		s, err := devstack.Start(cmd.Context(), o)
		if err != nil {
			if cmd.Context().Err() != nil {
				return nil // stopped by a person while it started
			}
			return err
		}
		defer s.Close()
		s.Banner(cmd.OutOrStdout(), o)
		select {
		case <-cmd.Context().Done():
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "vingate: stopping")
			return nil
		case err := <-s.Failed():
			return err
		}
	}
	return cmd
}
