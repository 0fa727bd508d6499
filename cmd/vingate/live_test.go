//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vingate/internal/logtest"
)

// live points the commands at a real store with tables and a gate.
func live(t *testing.T) {
	t.Helper()
	bare(t)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", store(t))
	says(t, "created vingate-coordination with a gate", "tables", "create")
}

// says runs a command that must succeed, and returns what it printed, which must hold a text.
func says(t *testing.T, want string, args ...string) string {
	t.Helper()
	c := begin(t, args...)
	if code := c.await(t); code != 0 || !strings.Contains(c.out.String(), want) {
		t.Fatalf("vingate %s: %d, want %q\n%s%s", strings.Join(args, " "), code, want, c.out.String(), c.err.String())
	}
	return c.out.String()
}

// fails runs a command that must fail with a text, and print nothing else.
func fails(t *testing.T, want string, args ...string) {
	t.Helper()
	c := begin(t, args...)
	if code := c.await(t); code != 1 || !strings.Contains(c.err.String(), want) || c.out.String() != "" {
		t.Errorf("vingate %s: %d, want %q\n%s%s", strings.Join(args, " "), code, want, c.out.String(), c.err.String())
	}
}

func TestKeys(t *testing.T) {
	live(t)
	says(t, "there are no API keys", "keys", "list")
	created := says(t, `"Dealer"`, "keys", "create", "--label", "Dealer", "--rate", "5", "--weight", "2")
	apiKey := regexp.MustCompile(`vg_[a-z2-7]{32}_[a-z2-7]{6}`).FindString(created)
	if apiKey == "" {
		t.Fatalf("no key in %s", created)
	}
	list := says(t, "Dealer", "keys", "list")
	says(t, "TODAY (UTC)", "keys", "usage")
	if strings.Contains(list, "vg_") || !strings.Contains(list, "5/s") {
		t.Errorf("the list: %s", list)
	}
	hash := strings.Fields(strings.Split(list, "\n")[1])[0]

	var rotated struct {
		APIKey, Tenant, Hash string
		Old                  struct{ Tenant, Hash, RevokedAt string }
	}
	if err := json.Unmarshal([]byte(says(t, "", "keys", "rotate", hash[:8], "--overlap", "24h", "--json")), &rotated); err != nil ||
		rotated.Tenant != rotated.Old.Tenant || rotated.Old.Hash != hash || rotated.Old.RevokedAt == "" || rotated.APIKey == apiKey {
		t.Errorf("%+v, %v", rotated, err)
	}
	fails(t, "names 2 keys", "keys", "revoke", rotated.Tenant)
	says(t, "revoked the key "+hash, "keys", "revoke", apiKey)
	fails(t, "is revoked since", "keys", "rotate", hash)

	// From standard input, so that it does not stand in the shell's history.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = r
	t.Cleanup(func() { os.Stdin = stdin })
	if _, err := fmt.Fprintln(w, rotated.APIKey); err != nil {
		t.Fatal(err)
	}
	says(t, "revoked the key "+rotated.Hash, "keys", "revoke", "-")
	_ = w.Close()
	fails(t, "there is no key on standard input", "keys", "revoke", "-")

	fails(t, "--weight: 11 is not between 1 and 10", "keys", "create", "--weight", "11")
	fails(t, "accepts 1 arg", "keys", "revoke")
	fails(t, "vingate tables create", "keys", "list", "--table", "another")
}

func TestGate(t *testing.T) {
	live(t)
	says(t, "0 of 4 live", "gate", "show")
	set := says(t, "RATE_PER_SECOND  2  ->  3", "gate", "set", "--rate-per-second", "3", "--max-in-flight", "6")
	if !strings.Contains(set, "MAX_IN_FLIGHT    4  ->  6") || !strings.Contains(set, "version          1  ->  2") {
		t.Error(set)
	}
	var shown struct{ Version, Limit, MaxInFlight int }
	if err := json.Unmarshal([]byte(says(t, "", "gate", "show", "--json")), &shown); err != nil || shown.Version != 2 || shown.Limit != 6 || shown.MaxInFlight != 6 {
		t.Errorf("%+v, %v", shown, err)
	}
	fails(t, `BATCH_SLOTS="9": 9 is not between`, "gate", "set", "--batch-slots", "9")
	t.Setenv("UPSTREAM_TIMEOUT", "14s")
	fails(t, "could outlive its lease", "gate", "set", "--max-queued", "9")
	t.Setenv("UPSTREAM_TIMEOUT", "")
	fails(t, "there is nothing to set", "gate", "set")
	fails(t, "unknown flag: --upstream-timeout", "gate", "set", "--upstream-timeout", "3s")

	says(t, "held until", "gate", "hold", "--for", "10m")
	says(t, "by an operator, 10m", "gate", "show")
	says(t, "cleared the hold (by an operator)", "gate", "hold", "--clear")
	says(t, "nothing to clear", "gate", "hold", "--clear", "--force")
	for want, args := range map[string][]string{
		"give either --for":         {},
		"give either --for,":        {"--for", "1m", "--clear"},
		"must be between 1s":        {"--for", "0s"},
		"--force goes with --clear": {"--for", "1m", "--force"},
	} {
		fails(t, want, append([]string{"gate", "hold"}, args...)...)
	}

	fails(t, "has a gate already; nothing was changed", "gate", "init")
	fails(t, "vingate tables create", "gate", "show", "--table", "another")
	t.Setenv("RATE_BURST", "2")
	fails(t, "RATE_BURST", "gate", "init")

	out := says(t, "slots 0/6", "gate", "watch", "--count", "2", "--interval", "100ms")
	if strings.Count(out, "\n") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("watch without a terminal: %q", out)
	}
	fails(t, "--interval must be", "gate", "watch", "--interval", "1ms")
}

// Watch on a real terminal: it is drawn to the terminal's size, and an interrupt gives the terminal back.
func TestGateWatchOnATerminal(t *testing.T) {
	live(t)
	master, slave := terminal(t, 90, 20)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	exit := make(chan int, 1)
	var errs logtest.Buffer
	go func() { exit <- run(ctx, []string{"gate", "watch", "--interval", "100ms"}, slave, &errs) }()

	var seen bytes.Buffer
	read := func(until string) {
		t.Helper()
		buf := make([]byte, 4096)
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(seen.String(), until); {
			if time.Now().After(deadline) {
				t.Fatalf("it does not draw %q: %q %s", until, seen.String(), errs.String())
			}
			_ = master.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, _ := master.Read(buf)
			seen.Write(buf[:n])
		}
	}
	read("nobody")
	if s := seen.String(); !strings.HasPrefix(s, "\x1b[?1049h\x1b[?25l") || !strings.Contains(s, "slots   [....") || !strings.Contains(s, "Ctrl-C ends") {
		t.Errorf("drawn: %q", s)
	}
	interrupt()
	if code := <-exit; code != 0 {
		t.Errorf("exit status %d: %s", code, errs.String())
	}
	read("\x1b[?25h\x1b[?1049l")
	if !strings.HasSuffix(seen.String(), "\x1b[?25h\x1b[?1049l") {
		t.Errorf("it ends with %q", seen.String())
	}
}

// terminal is a pseudo terminal of a size.
func terminal(t *testing.T, width, height uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if ctl := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}
