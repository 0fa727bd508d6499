//go:build linux

package child_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vingate/internal/child"
	"vingate/internal/logtest"
)

// processState is the letter of /proc/pid/stat, "" when there is no such process.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in brackets may hold anything; the state follows the last bracket.
	_, after, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')'):]), " ")
	return after[:1]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// gone is true for a process that is not there or only waits to be reaped by whoever inherited it.
func gone(pid int) bool {
	s := processState(pid)
	return s == "" || s == "Z" || s == "X"
}

func start(t *testing.T, p *child.Parent, script string, log *child.Log) *child.Child {
	t.Helper()
	s := child.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
	if log != nil {
		s.Stdout, s.Stderr = log.Lines("out", nil), log.Lines("err", nil)
	}
	c, err := p.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parent(t *testing.T) *child.Parent {
	t.Helper()
	p := child.NewParent()
	t.Cleanup(p.Close)
	return p
}

func TestAChildsOutputIsCompleteWhenItIsDone(t *testing.T) {
	var buf logtest.Buffer
	c := start(t, parent(t), `echo one; echo two >&2; printf three; exit 3`, child.NewLog(&buf))
	<-c.Done()
	if got := c.State().ExitCode(); got != 3 {
		t.Errorf("exit code %d, want 3", got)
	}
	for _, want := range []string{"[out] one\n", "[err] two\n", "[out] three\n"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("log %q lacks %q", buf.String(), want)
		}
	}
}

func TestAProgramThatIsNotThereIsAnErrorThatNamesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent")
	_, err := parent(t).Start(child.Spec{Path: path, Stdout: child.NewLog(nil).Lines("x", nil)})
	if err == nil || !strings.Contains(err.Error(), path) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
}

func TestAFrozenChildStandsUntilItIsThawed(t *testing.T) {
	c := start(t, parent(t), `while :; do :; done`, nil)
	for range 3 {
		if err := c.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := processState(c.PID()); s != "T" {
			t.Fatalf("state %q after Freeze, want T", s)
		}
		if err := c.Thaw(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "runs again", func() bool { return processState(c.PID()) != "T" })
	}
}

func TestASignalToADeadChildIsRefused(t *testing.T) {
	c := start(t, parent(t), `exit 0`, nil)
	<-c.Done()
	if err := c.Signal(syscall.SIGTERM); !errors.Is(err, child.ErrExited) {
		t.Errorf("Signal: %v, want ErrExited", err)
	}
	if err := c.Freeze(context.Background()); !errors.Is(err, child.ErrExited) {
		t.Errorf("Freeze: %v, want ErrExited", err)
	}
}

func TestAChildThatIgnoresTermIsKilledAfterTheGrace(t *testing.T) {
	lines := make(chan string, 1)
	p := parent(t)
	c, err := p.Start(child.Spec{
		Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: child.NewLog(nil).Lines("x", func(l string) { lines <- l }),
	})
	if err != nil {
		t.Fatal(err)
	}
	<-lines
	c.Stop(50 * time.Millisecond)
	if ws := c.State().Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL", c.State())
	}
}

func TestWhatAChildStartedEndsWithIt(t *testing.T) {
	lines := make(chan string, 1)
	c, err := parent(t).Start(child.Spec{
		Path: "/bin/sh", Args: []string{"-c", `sleep 600 & echo $!; exit 0`}, Env: []string{"PATH=/usr/bin:/bin"},
		Stdout: child.NewLog(nil).Lines("x", func(l string) { lines <- l }),
	})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(<-lines)
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	eventually(t, "the grandchild is gone", func() bool { return gone(pid) })
}

func TestCloseLeavesNoChildAndEndsStarting(t *testing.T) {
	p := child.NewParent()
	var pids []int
	for range 5 {
		pids = append(pids, start(t, p, `sleep 600`, nil).PID())
	}
	p.Close()
	for _, pid := range pids {
		if s := processState(pid); s != "" {
			t.Errorf("process %d is still there, state %s", pid, s)
		}
	}
	if _, err := p.Start(child.Spec{Path: "/bin/true"}); !errors.Is(err, child.ErrClosed) {
		t.Errorf("Start after Close: %v, want ErrClosed", err)
	}
	p.Close()
}

func TestChildrenEndWhenTheirParentIsKilled(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "parent")
	if out, err := exec.Command("go", "build", "-o", bin, "./testdata/parent").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(bin)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if gone(pid) {
		t.Fatal("the child does not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the child is gone", func() bool { return gone(pid) })
}

func TestALineWithoutAnEndComesOutInPieces(t *testing.T) {
	var buf logtest.Buffer
	w := child.NewLog(&buf).Lines("x", nil)
	long := strings.Repeat("a", 200_000)
	for i := 0; i < len(long); i += 1000 {
		if _, err := w.Write([]byte(long[i : i+1000])); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	got := strings.NewReplacer("[x] ", "", "\n", "").Replace(buf.String())
	if got != long {
		t.Errorf("%d bytes came out, want %d", len(got), len(long))
	}
	if n := strings.Count(buf.String(), "\n"); n < 2 {
		t.Errorf("%d lines, want pieces", n)
	}
}
