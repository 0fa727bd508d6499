package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What `make chaos` builds can be told to break a promise. What is shipped has none of it: neither the file nor the names of the variables.
func TestWhatIsShippedCannotBeToldToBreakAPromise(t *testing.T) {
	for tags, chaotic := range map[string]bool{"lambda.norpc": false, "lambda.norpc,chaos": true} {
		out := filepath.Join(t.TempDir(), "bootstrap")
		build := exec.Command("go", "build", "-tags", tags, "-o", out, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		binary, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"CHAOS_CLOCK_SKEW", "CHAOS_BREAK"} {
			if strings.Contains(string(binary), name) != chaotic {
				t.Errorf("built with %s: has %s is %v", tags, name, !chaotic)
			}
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(makefile)) {
		if strings.HasPrefix(line, "go_lambda =") && strings.Contains(line, "chaos") {
			t.Errorf("what builds the functions: %s", line)
		}
	}
}
