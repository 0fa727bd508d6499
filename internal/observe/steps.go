package observe

import (
	"log/slog"
	"time"
)

// Steps takes the time of the steps of an initialisation, one after the other.
type Steps struct {
	began, last time.Time
	done        []any
}

// NewSteps begins the first step.
func NewSteps() *Steps {
	now := time.Now()
	return &Steps{began: now, last: now}
}

// Done ends a step and begins the next.
func (s *Steps) Done(name string) {
	now := time.Now()
	s.done = append(s.done, slog.Float64(name, milliseconds(now.Sub(s.last))))
	s.last = now
}

// Log is all of them in milliseconds, and their sum.
func (s *Steps) Log() slog.Attr {
	return slog.Group("initMs", append(s.done, slog.Float64("sum", milliseconds(s.last.Sub(s.began))))...)
}
