//go:build unix

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// startBound is for one-shot commands: no person waits longer.
const startBound = 2 * time.Minute

// envOr is the default of a flag that a variable may set; an empty variable counts as unset.
func envOr(name, value string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return value
}

// number reads a flag whose default may come from a variable, which the error then names too.
func number(cmd *cobra.Command, flag, variable string, lo, hi int) (int, error) {
	text, err := cmd.Flags().GetString(flag)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("--%s (%s) must be a whole number between %d and %d, not %q", flag, variable, lo, hi, text)
	}
	return n, nil
}
