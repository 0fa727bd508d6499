package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Sample is how things stood at a moment. Counts are from the beginning.
type Sample struct {
	At                            time.Duration
	Served, Refused, Failed, Left int
	Writes, Leases                int           // to the gate's item; granted
	WaitP50, WaitP95              time.Duration // in the line and before it, of those answered since the sample before
	Limit, Live, Queued           int
	Held                          bool
	Memory                        int64 // resident bytes of the largest instance
	Files, Goroutines             int   // of the one with most
	Instances                     int
	Own                           int64         // resident bytes of whoever looks
	Late                          time.Duration // the longest that the machine let somebody wait who wanted to run, since the sample before
}

// Columns are the names of a sample's figures.
func Columns() []string {
	return []string{"seconds", "served", "refused", "failed", "hung_up", "writes", "leases_granted", "wait_p50_ms", "wait_p95_ms", "limit", "live_leases", "queued", "held",
		"memory_mb", "files", "goroutines", "instances", "own_memory_mb", "machine_late_ms"}
}

// Row is a sample's figures.
func (s Sample) Row() []string {
	held := 0
	if s.Held {
		held = 1
	}
	out := []string{fmt.Sprintf("%.1f", s.At.Seconds())}
	for _, n := range []int{s.Served, s.Refused, s.Failed, s.Left, s.Writes, s.Leases, int(s.WaitP50.Milliseconds()), int(s.WaitP95.Milliseconds()), s.Limit, s.Live, s.Queued, held,
		int(s.Memory >> 20), s.Files, s.Goroutines, s.Instances, int(s.Own >> 20), int(s.Late.Milliseconds())} {
		out = append(out, fmt.Sprint(n))
	}
	return out
}

// percentiles of the waits, 0 of none.
func percentiles(waits []time.Duration) (p50, p95 time.Duration) {
	if len(waits) == 0 {
		return 0, 0
	}
	slices.Sort(waits)
	return waits[len(waits)/2], waits[len(waits)*95/100]
}
