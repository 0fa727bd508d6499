package chaos

import (
	"testing"
	"time"
)

func TestHowLateTheMachineWasIsKnownOfEachMoment(t *testing.T) {
	l := Lateness{From: began}
	l.add(at(1.01), 3*time.Millisecond)
	l.add(at(1.05), 5*time.Millisecond)
	l.add(at(2.95), 250*time.Millisecond) // until 3.2
	l.add(at(-1), time.Second)            // before it was looked at
	for _, c := range []struct {
		from, until float64
		sum, most   time.Duration
	}{
		{0, 60, 258 * time.Millisecond, 250 * time.Millisecond},
		{0.5, 1.5, 8 * time.Millisecond, 5 * time.Millisecond},
		{1.2, 2.8, 0, 0},
		{2, 2.95, 50 * time.Millisecond, 250 * time.Millisecond},
		{3.05, 3.06, 100 * time.Millisecond, 250 * time.Millisecond},
		{-5, -1, 0, 0},
		{100, 200, 0, 0},
	} {
		if sum, most := l.Between(at(c.from), at(c.until)); (sum-c.sum).Abs() > time.Microsecond || most != c.most {
			t.Errorf("from %v to %v: %v, at most %v; want %v and %v", c.from, c.until, sum, most, c.sum, c.most)
		}
	}
}
