package logtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestLinesOfManyGoroutinesStayWhole(t *testing.T) {
	var b Buffer
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 50 {
				_, _ = fmt.Fprintf(&b, "line of %02d\n", i)
				_ = b.String() // somebody reads meanwhile
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, line := range lines {
		if len(line) != len("line of 00") || !strings.HasPrefix(line, "line of ") {
			t.Fatalf("%q", line)
		}
	}
	if len(lines) != 1000 || b.Len() != len(b.Bytes()) {
		t.Errorf("%d lines, %d bytes", len(lines), b.Len())
	}
	if b.Reset(); b.Len() != 0 {
		t.Errorf("left: %q", b.String())
	}
}
