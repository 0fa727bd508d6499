//go:build unix

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vingate/internal/console"
	"vingate/internal/ddb"
	"vingate/internal/ddb/anywhere"
	"vingate/internal/tenant"
	"vingate/internal/tenant/dynamo"
)

// onLiveTable bounds one look at or change of a live table.
const onLiveTable = 30 * time.Second

// tableFlag is the coordination table that a command works on.
func tableFlag(cmd *cobra.Command, table *string) {
	cmd.PersistentFlags().StringVar(table, "table", envOr("COORDINATION_TABLE", "vingate-coordination"), "the coordination table")
}

func newKeys() *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Give out and take back API keys",
		Long: `The keys lie in the coordination table, on AWS or where AWS_ENDPOINT_URL_DYNAMODB points. Only a key's hash is kept: the key itself is
printed by the command that makes it, and never again.

A KEY is named by the beginning of its hash (6 characters or more), by the id of its tenant, by the key itself, or by - for a key on standard
input, where it does not get into the shell's history.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	tableFlag(cmd, &table)
	cmd.AddCommand(newKeysCreate(&table), newKeysList(&table), newKeysUsage(&table), newKeysRevoke(&table), newKeysRotate(&table))
	return cmd
}

// withKeys runs a command on the keys of the table.
func withKeys(cmd *cobra.Command, table string, do func(context.Context, *console.Keys) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), onLiveTable)
	defer cancel()
	c, err := anywhere.New(ctx, ddb.Housekeeping())
	if err != nil {
		return err
	}
	return do(ctx, &console.Keys{Ring: &dynamo.Keyring{Client: c, Table: table}, Now: time.Now,
		Random: func(b []byte) { _, _ = rand.Read(b) }}) // never fails
}

// keyNamed is the KEY argument.
func keyNamed(cmd *cobra.Command, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("there is no key on standard input: %w", err)
	}
	return line, nil
}

func newKeysCreate(table *string) *cobra.Command {
	var (
		label string
		plan  tenant.Plan
		json  bool
	)
	cmd := &cobra.Command{
		Use:   "create [--label TEXT]",
		Short: "Make a key for a new tenant and print it, this once",
		Long:  `What is left out of the plan follows the functions' environment (TENANT_RATE_PER_SECOND, TENANT_BURST) and the gate (BULKHEAD_...), also when they change.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withKeys(cmd, *table, func(ctx context.Context, k *console.Keys) error {
				return k.Create(ctx, cmd.OutOrStdout(), label, plan, json)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&label, "label", "", "whose it is, for the list")
	f.Float64Var(&plan.RatePerSecond, "rate", 0, "decodes a second")
	f.IntVar(&plan.Burst, "burst", 0, "decodes at once")
	f.IntVar(&plan.Weight, "weight", 1, "turns in the line for each turn of weight 1, up to 10")
	f.IntVar(&plan.Interactive, "interactive", 0, "places for decodes, waiting or live")
	f.IntVar(&plan.Batch, "batch", 0, "places for batches, waiting or live")
	f.BoolVar(&json, "json", false, "print JSON")
	return cmd
}

func newKeysList(table *string) *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys, without the keys themselves",
		Long: `LINE is the hash under which the tenant stands in vingate gate show and watch. RATE, BURST, PLACES and BATCHES are
"default" where the key's plan leaves them to the environment and the gate.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withKeys(cmd, *table, func(ctx context.Context, k *console.Keys) error {
				return k.List(ctx, cmd.OutOrStdout(), json)
			})
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "print JSON")
	return cmd
}

func newKeysUsage(table *string) *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "List how many decodes each tenant was charged on each of the last eight days",
		Long: `Counted is what went to NHTSA for the tenant, in the cost of his bucket: a stored answer, and a call that another's request began,
are none of it. Days are of UTC. Of callers without a key nothing of the kind is kept.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withKeys(cmd, *table, func(ctx context.Context, k *console.Keys) error {
				return k.Usage(ctx, cmd.OutOrStdout(), json)
			})
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "print JSON")
	return cmd
}

func newKeysRevoke(table *string) *cobra.Command {
	var (
		after time.Duration
		all   bool
	)
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "End a key; every instance refuses it within 60 s",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := keyNamed(cmd, args[0])
			if err != nil {
				return err
			}
			return withKeys(cmd, *table, func(ctx context.Context, k *console.Keys) error {
				return k.Revoke(ctx, cmd.OutOrStdout(), ref, after, all)
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&after, "after", 0, "let it live on for a while, such as 24h")
	f.BoolVar(&all, "all", false, "where several keys are named, such as all of a tenant: every one of them")
	return cmd
}

func newKeysRotate(table *string) *cobra.Command {
	var (
		overlap time.Duration
		json    bool
	)
	cmd := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Make a new key with the tenant, label and plan of an old one, which ends",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := keyNamed(cmd, args[0])
			if err != nil {
				return err
			}
			return withKeys(cmd, *table, func(ctx context.Context, k *console.Keys) error {
				return k.Rotate(ctx, cmd.OutOrStdout(), ref, overlap, json)
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&overlap, "overlap", 0, "let the old key live on for a while, such as 24h")
	f.BoolVar(&json, "json", false, "print JSON")
	return cmd
}
