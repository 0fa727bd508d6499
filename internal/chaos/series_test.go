package chaos

import (
	"strings"
	"testing"
	"time"
)

func TestEveryFigureHasItsColumn(t *testing.T) {
	if row := (Sample{At: 1500 * time.Millisecond, Held: true, Memory: 5 << 20}).Row(); len(row) != len(Columns()) || row[0] != "1.5" {
		t.Errorf("%d columns, the row %v", len(Columns()), row)
	}
	var waits []time.Duration
	for n := range 100 {
		waits = append(waits, time.Duration((n*37)%100)*time.Millisecond)
	}
	if p50, p95 := percentiles(waits); p50 != 50*time.Millisecond || p95 != 95*time.Millisecond {
		t.Errorf("half within %v, 95 of 100 within %v", p50, p95)
	}
	if p50, p95 := percentiles(nil); p50 != 0 || p95 != 0 {
		t.Error("a wait of nobody's")
	}
}

func TestGoroutinesAreToldByTheLivingAndCountedOfTheDead(t *testing.T) {
	var log strings.Builder
	g := &goroutineCounter{w: &log, count: map[int]int{}, told: map[int]int{}}
	for _, line := range []string{"[lambda 3] goroutines 42\n", "[lambda 3] goroutine 1 [running]:\n", "[lambda 3] goroutine 7 [select, 2 minutes]:\n", "[lambda 4] goroutines 7\n",
		"[lambda 3] goroutines 40\n", "[store] goroutine 1 [running]:\n", "[lambda x] goroutines 9\n", "[lambda 3] main.main()\n"} {
		if n, err := g.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if g.of(3) != 2 || g.lately(3) != 40 || g.of(4) != 0 || g.lately(4) != 7 {
		t.Errorf("of the dead %v, of the living %v", g.count, g.told)
	}
	if said := log.String(); strings.Contains(said, "goroutines 4") || !strings.Contains(said, "main.main") {
		t.Errorf("the log has %q", said)
	}
}
