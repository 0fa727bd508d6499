package gate

import "time"

// Pauses after 429 and after 403 (a block rather than a pace) where NHTSA names none, and after hard failures. Each doubles with
// the next one in a row, up to its longest.
const (
	PauseThrottled, longestThrottled = 30 * time.Second, 15 * time.Minute
	PauseBlocked, longestBlocked     = 15 * time.Minute, 6 * time.Hour
	pauseFailing, longestFailing     = 5 * time.Second, 5 * time.Minute

	longestAsked = time.Hour // NHTSA's own Retry-After is obeyed up to this

	// failuresToHold hard failures in a row mean that NHTSA cannot be reached.
	failuresToHold = 5
)

// doubled is first doubled n times, at most longest.
func doubled(first, longest time.Duration, n int) time.Duration {
	for ; n > 0 && first < longest; n-- {
		first *= 2
	}
	return min(first, longest)
}

// PlanRelease is the write that gives a lease back with what its call taught.
//
// Throttled: the gate is held as long as NHTSA asks, and the limit is halved, and not again until the cooldown is over, so that fifty instances
// that hear the same 429 cut once. The cooldown is the lease time: every call admitted before the cut is over by then. Nor does the limit grow
// before, so a 429 after it has grown is news, however soon.
// Failed: five in a row hold the gate and leave one slot. The one call that may start afterwards is the probe: if it fails
// the pause doubles, if it succeeds the limit grows again, by one per cooldown.
// A success counts as recovery only outside a hold and after the cooldown: one from before the cut proves nothing.
//
// The write may fail because others turned the limit or held the gate since the view; then it is planned anew on the state it
// met, and after that Plain is the write to make.
func (s State) PlanRelease(now Micros, l *Lease, o Outcome) Free {
	ms := now.Millis()
	w := Free{ID: l.ID, Place: l.Key.Place(), Batch: l.Key.Route == Batch, Now: ms, Episodes: -1}
	if took := Millis(o.Took.Milliseconds()); took > 0 && o.Kind != Abandoned {
		if s.Latency == 0 {
			w.Latency = took
		} else {
			w.Latency = max(1, s.Latency+(took-s.Latency)/8)
		}
	}
	cooled, held := s.Turned <= ms-Millis(s.Knobs.LeaseTTL.Milliseconds()), s.Hold > ms
	episode := s.Episodes // of this pause: the next one, or the one that is on
	if !cooled && episode > 0 {
		episode--
	}
	turn := func(limit int) { w.SeenLimit, w.NewLimit = s.Limit, limit }
	switch o.Kind {
	case Throttled:
		pause := min(max(o.RetryAfter, time.Second), longestAsked)
		switch {
		case o.RetryAfter > 0:
		case o.Blocked:
			pause = doubled(PauseBlocked, longestBlocked, episode)
		default:
			pause = doubled(PauseThrottled, longestThrottled, episode)
		}
		w.hold(s, now, pause, HoldThrottled)
		if cooled || s.Episodes == 0 {
			turn(max(1, s.Limit/2))
			w.Episodes = s.Episodes + 1
		}
	case Failed:
		if held && s.Reason == HoldFailing {
			break // it started before the hold: the probe alone counts now
		}
		w.Failures = CountFailure
		if n := s.Failures + 1; n >= failuresToHold {
			w.hold(s, now, doubled(pauseFailing, longestFailing, n-failuresToHold), HoldFailing)
			turn(1)
		}
	case Succeeded:
		if s.Failures > 0 {
			w.Failures = ForgetFailures
		}
		if !cooled || held {
			break
		}
		if s.Episodes > 0 {
			w.Episodes = 0
		}
		if s.Limit < s.Knobs.MaxInFlight {
			turn(s.Limit + 1)
		}
	}
	return w
}

// hold asks for a hold, unless one that is as long is in force. The clock that sets it may be slow and the one that reads it
// fast: both are added, so that nobody starts early. Whole seconds, so that many instances that hear the same write one hold,
// not one each.
func (w *Free) hold(s State, now Micros, pause time.Duration, why HoldReason) {
	if until := s.holdUntil(now, pause); until > s.Hold {
		w.Hold, w.Reason = until, why
	}
}

// Plain gives the lease back and leaves hold and limit to those who turned them meanwhile.
func (w Free) Plain() Free {
	w.Hold, w.Reason, w.SeenLimit, w.NewLimit, w.Episodes = 0, "", 0, 0, -1
	return w
}
