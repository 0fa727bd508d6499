// Package virtual lets a command run in virtual time: what it waits for costs nothing, and the machine has no part in what it measures. Virtual time
// is to be had in a test only (testing/synctest), so such a command is one. For tools; nothing that is shipped imports it.
package virtual

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Command is a main function with everything handed in: what runs inside virtual has virtual time. It returns the exit status.
type Command func(ctx context.Context, args []string, stdout, stderr io.Writer, virtual func(func())) int

// Main runs the command with the process's arguments and ends the process with its status.
func Main(name string, begin time.Time, command Command) {
	args, stdout := os.Args[1:], os.Stdout
	// That a test passed is not worth a word.
	silence, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Args, os.Stdout = os.Args[:1], silence
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: name, F: func(t *testing.T) {
		if code := command(context.Background(), args, stdout, os.Stderr, Time(t, begin)); code != 0 {
			os.Exit(code)
		}
	}}}, nil, nil)
}

// Time gives virtual time to a function, from begin on, or from when that of a test begins where that is later (2000).
func Time(t *testing.T, begin time.Time) func(func()) {
	return func(f func()) {
		synctest.Test(t, func(*testing.T) {
			time.Sleep(time.Until(begin))
			f()
		})
	}
}
