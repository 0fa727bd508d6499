package page

import (
	"os/exec"
	"regexp"
	"testing"
)

// What the script decides is tested in its own language, by node's own runner.
func TestWhatTheScriptDecides(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here: what the page's script decides was not tested")
	}
	out, err := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=tap", "testdata/core.test.mjs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if m := regexp.MustCompile(`(?m)^# pass (\d+)$`).FindSubmatch(out); m == nil || string(m[1]) == "0" {
		t.Errorf("no test ran:\n%s", out)
	}
}
