//go:build unix

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vingate/internal/devstack"
	"vingate/internal/locallambda"
)

func newServe() *cobra.Command {
	var o locallambda.Options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a built function like Lambda behind an HTTP API, with the environment as it is",
		Long: `Serve starts a front door that makes API Gateway events, and up to --instances real processes of the bootstrap, one
request at a time in each. What is above that gets what API Gateway answers when Lambda throttles. Store and upstream are
those of the environment (AWS_ENDPOINT_URL_DYNAMODB, UPSTREAM_URL). A TENANT_HASH_KEY is made up when there is none.

The control socket takes GET /instances, POST /instances/{id}/freeze, /thaw and /kill, and POST /invoke with an event:
  curl --unix-socket control.sock http://control/instances`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Env, o.Log = devstack.WithHashKey(os.Environ()), cmd.ErrOrStderr()
			s, err := locallambda.Start(cmd.Context(), o)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "vingate: serving %s on %s, up to %d instances, %d requests at once in each\n",
				o.Bootstrap, s.URL(), o.Instances, o.Concurrency)
			<-cmd.Context().Done()
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "vingate: stopping")
			return s.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "address of the front door")
	f.IntVar(&o.Instances, "instances", 5, "processes at most")
	f.IntVar(&o.Concurrency, "concurrency", 1, "requests at once in each; Lambda has 1")
	f.StringVar(&o.Bootstrap, "bootstrap", ".local/bin/bootstrap", "the built function")
	f.StringVar(&o.Control, "control", "", "path of a control socket")
	f.DurationVar(&o.Timeout, "timeout", 29*time.Second, "of one invocation")
	return cmd
}
