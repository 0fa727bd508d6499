package bulk

import (
	"time"
)

// Pauses where a refusal does not say how long: doubled each time, and up to a fifth longer or shorter, so that many programs do not come back
// together.
const (
	firstPause   = 2 * time.Second
	longestPause = 2 * time.Minute
	pauseJitter  = 0.2
)

// pause is the n-th one in a row, n from 1. jitter is from 0 to 1.
func pause(n int, jitter float64) time.Duration {
	d := longestPause
	if n < 7 {
		d = firstPause << (n - 1)
	}
	return d + time.Duration((2*jitter-1)*pauseJitter*float64(d))
}

// speed measures how fast rows are finished: over the last minutes, waits included.
type speed struct {
	marks []mark // oldest first
}

type mark struct {
	at   time.Time
	rows int // finished by then
}

// The speed is that of the last speedWindow, looked at in steps, and nobody can say after less than speedLeast.
const (
	speedWindow = 5 * time.Minute
	speedStep   = 5 * time.Second
	speedLeast  = 3 * time.Second
)

// add notes how many rows are finished at a time.
func (s *speed) add(at time.Time, rows int) {
	if n := len(s.marks); n > 1 && at.Sub(s.marks[n-2].at) < speedStep {
		s.marks[n-1] = mark{at, rows}
	} else {
		s.marks = append(s.marks, mark{at, rows})
	}
	for len(s.marks) > 2 && at.Sub(s.marks[1].at) >= speedWindow {
		s.marks = s.marks[1:]
	}
}

// perSecond is 0 as long as nobody can say.
func (s *speed) perSecond(now time.Time) float64 {
	if len(s.marks) < 2 {
		return 0
	}
	first, last := s.marks[0], s.marks[len(s.marks)-1]
	took := now.Sub(first.at).Seconds()
	if took < speedLeast.Seconds() {
		return 0
	}
	return float64(last.rows-first.rows) / took
}
