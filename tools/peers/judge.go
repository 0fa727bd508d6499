package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// budget is what every limiter is asked to keep.
type budget struct {
	Rate  int           // calls a second
	Burst int           // in any window of w seconds at most Burst + Rate x w calls start
	Slots int           // at once
	Queue int           // may wait in a line, where that is tried
	Lease time.Duration // a slot whose holder died is to be free again after that
}

var theBudget = budget{Rate: 20, Burst: 40, Slots: 10, Queue: 20, Lease: 5 * time.Second}

// span is a call as the outside sees it.
type span struct{ start, end time.Time }

// atOnce is the most calls that ran at the same time. Where one ends in the instant in which another starts, they did not.
func atOnce(calls []span) int {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, c := range calls {
		changes = append(changes, change{c.start, 1}, change{c.end, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	running, most := 0, 0
	for _, c := range changes {
		running += c.by
		most = max(most, running)
	}
	return most
}

// excess is by how many calls the worst of all windows exceeds burst + rate x its length.
func (b budget) excess(calls []span) int {
	starts := startsOf(calls)
	worst, least := 0.0, math.Inf(1)
	for i, at := range starts {
		refilled := at.Sub(starts[0]).Seconds() * float64(b.Rate)
		least = min(least, float64(i)-refilled)
		worst = max(worst, float64(i+1)-refilled-least-float64(b.Burst))
	}
	return int(math.Ceil(worst - 1e-6))
}

// use is how much of the rate was used from one time to another. The burst at the start is left out by choosing the first late enough.
func (b budget) use(calls []span, from, to time.Time) float64 {
	n := 0
	for _, at := range startsOf(calls) {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return float64(n) / (float64(b.Rate) * to.Sub(from).Seconds())
}

func startsOf(calls []span) []time.Time {
	var starts []time.Time
	for _, c := range calls {
		starts = append(starts, c.start)
	}
	slices.SortFunc(starts, time.Time.Compare)
	return starts
}

// full is the first moment at which n of the calls run at once, the zero time if never.
func full(calls []span, n int) time.Time {
	for _, at := range startsOf(calls) {
		running := 0
		for _, c := range calls {
			if !c.start.After(at) && c.end.After(at) {
				running++
			}
		}
		if running >= n {
			return at
		}
	}
	return time.Time{}
}
