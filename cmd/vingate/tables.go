//go:build unix

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/ddb/anywhere"
	"vingate/internal/devstack"
)

func newTables() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tables",
		Short: "Create or describe the DynamoDB tables",
		Long:  `The tables are those of COORDINATION_TABLE and RESULTS_TABLE, on AWS or where AWS_ENDPOINT_URL_DYNAMODB points.`,
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.AddCommand(
		tablesCommand("create", "Create what is missing; in a new coordination table also the gate, from the environment's knobs, with a full bucket",
			func(ctx context.Context, cmd *cobra.Command, c devstack.Client, g config.Gate) error {
				p, err := devstack.Provision(ctx, c, g)
				if err != nil {
					return err
				}
				p.Write(cmd.OutOrStdout(), g)
				return nil
			}),
		tablesCommand("describe", "Show the tables and the gate; change nothing",
			func(ctx context.Context, cmd *cobra.Command, c devstack.Client, g config.Gate) error {
				return devstack.Describe(ctx, c, g, cmd.OutOrStdout())
			}),
	)
	return cmd
}

func tablesCommand(use, short string, do func(context.Context, *cobra.Command, devstack.Client, config.Gate) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), startBound)
			defer cancel()
			g, err := config.LoadGate(os.Getenv)
			if err != nil {
				return err
			}
			c, err := anywhere.New(ctx, ddb.Housekeeping())
			if err != nil {
				return err
			}
			return do(ctx, cmd, c, g)
		},
	}
}
