package gate

import "time"

// TuneAttempt is how old a Tune may be when it meets the state. It is sent by a person's machine, which may be far away.
const TuneAttempt = time.Second

// Tune changes the knobs. It makes a new version, so every write that was planned under the old one fails and is planned anew.
type Tune struct {
	From             int // the version it was planned on
	Knobs            Knobs
	SeenLimit, Limit int
	SeenTAT, TAT     Micros // TAT 0 leaves it
}

// Checks is the condition.
func (w Tune) Checks(s State) []Check {
	return []Check{
		{"version", s.Version == w.From},
		{"limit", s.Limit == w.SeenLimit},
		{"tat", w.TAT == 0 || s.TAT == w.SeenTAT},
	}
}

// Holds is the condition.
func (w Tune) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Tune) Apply(s State) State {
	s = s.Clone()
	s.Version, s.Knobs, s.Limit = w.From+1, w.Knobs, w.Limit
	if w.TAT != 0 {
		s.TAT = w.TAT
	}
	return s
}

// PlanTune is the write that puts these knobs, which must be valid, into force.
//
// The limit follows MaxInFlight down at once. It follows it up at once only where nothing has shrunk it; else it grows by itself, as
// after every cut: no knob makes it wider while NHTSA throttles or fails.
//
// What has been used of the burst stays used, counted in calls: where T changes, TAT is moved so that the bucket owes as many of the new
// tokens as it owed of the old. It is the one write that may move TAT back, under a new version. All that makes times uncertain counts as
// used: clocks that differ, calls that start after their stamp, and the time this write takes. So a window over a change holds at most the
// larger burst, and each rate for its time.
func (s State) PlanTune(now Micros, k Knobs) Tune {
	w := Tune{From: s.Version, Knobs: k, SeenLimit: s.Limit, Limit: min(s.Limit, k.MaxInFlight), SeenTAT: s.TAT}
	shrunk := s.Limit < s.Knobs.MaxInFlight || s.Episodes > 0 || s.Failures >= failuresToHold ||
		s.Hold > now.Millis() && (s.Reason == HoldThrottled || s.Reason == HoldFailing)
	if !shrunk {
		w.Limit = k.MaxInFlight
	}
	if before, after := s.Knobs.T(), k.T(); before != after {
		late := max(s.Knobs.uncertainty(), k.uncertainty()) + TuneAttempt
		if owed := s.TAT - now + Micros(late.Microseconds()); owed > 0 {
			t := Micros(before.Microseconds())
			w.TAT = now + (owed+t-1)/t*Micros(after.Microseconds())
		}
	}
	return w
}

// Pause sets the operator's pause, or lifts it. Like Tune it makes a new version. NHTSA's hold is left alone, whichever lasts longer, so that what was
// heard of NHTSA meanwhile is in force when the pause is lifted; but for Force, with which it ends too.
type Pause struct {
	From     int
	Until    Millis // 0: none
	Force    bool
	SeenHold Millis // Force: the hold it was planned on
}

// Checks is the condition.
func (w Pause) Checks(s State) []Check {
	return []Check{{"version", s.Version == w.From}, {"hold", !w.Force || s.Hold == w.SeenHold}}
}

// Holds is the condition.
func (w Pause) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Pause) Apply(s State) State {
	s = s.Clone()
	s.Version, s.Pause = w.From+1, w.Until
	if w.Force {
		s.Hold, s.Reason = 0, ""
	}
	return s
}

// PlanPause is the write that stops everybody for d, by an operator's will. It takes the place of an earlier pause, whichever is longer.
func (s State) PlanPause(now Micros, d time.Duration) Pause {
	return Pause{From: s.Version, Until: s.holdUntil(now, d)}
}

// PlanLift is the write that ends the operator's pause. With force it ends any hold, also one that NHTSA asked for. false: there is nothing
// that it may end.
func (s State) PlanLift(now Micros, force bool) (Pause, bool) {
	w := Pause{From: s.Version, Force: force, SeenHold: s.Hold}
	return w, s.Pause > now.Millis() || force && s.Hold > now.Millis()
}

// holdUntil is the end of a pause of d from now on. The clock that sets it may be slow and the one that reads it fast: both are added, so
// that nobody starts early. It is a whole second.
func (s State) holdUntil(now Micros, d time.Duration) Millis {
	return (millisUp(now+Micros((d+2*s.Knobs.SkewBound).Microseconds())) + 999) / 1000 * 1000
}
