package chaos

import (
	"fmt"
	"time"
)

// Sample is how things stood at a moment.
type Sample struct {
	At                              time.Duration
	Served, Refused, Failed, Writes int // so far
	Limit, Live, Queued             int
	Held                            bool
	Memory                          int64 // resident bytes of the largest instance
	Files                           int   // open descriptors of the one with most
	Instances                       int
}

// Columns are the names of a sample's figures.
func Columns() []string {
	return []string{"seconds", "served", "refused", "failed", "writes", "limit", "live", "queued", "held", "memory_mb", "files", "instances"}
}

// Row is a sample's figures.
func (s Sample) Row() []string {
	held := 0
	if s.Held {
		held = 1
	}
	out := []string{fmt.Sprintf("%.1f", s.At.Seconds())}
	for _, n := range []int{s.Served, s.Refused, s.Failed, s.Writes, s.Limit, s.Live, s.Queued, held, int(s.Memory >> 20), s.Files, s.Instances} {
		out = append(out, fmt.Sprint(n))
	}
	return out
}
