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

// Hold is a hold in force, or none.
type Hold struct {
	Until  Millis
	Reason HoldReason
}

// InForce is the hold at now, zero for none.
func (s State) InForce(now Micros) Hold {
	if s.Hold <= now.Millis() {
		return Hold{}
	}
	return Hold{s.Hold, s.Reason}
}

// Pause sets the hold, or lifts it, by an operator's hand. Like Tune it makes a new version.
type Pause struct {
	From   int
	Seen   Millis // the hold it was planned on
	Hold   Millis // 0: none
	Reason HoldReason
	// Beneath is a hold that the operator's covers and that is back when his is lifted. It is not part of the state, since nobody but
	// the operator's next write needs it; the store keeps it beside the state.
	Beneath Hold
}

// Checks is the condition.
func (w Pause) Checks(s State) []Check {
	return []Check{{"version", s.Version == w.From}, {"hold", s.Hold == w.Seen}}
}

// Holds is the condition.
func (w Pause) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Pause) Apply(s State) State {
	s = s.Clone()
	s.Version, s.Hold, s.Reason = w.From+1, w.Hold, w.Reason
	return s
}

// PlanPause is the write that holds the gate for d, by an operator's will. An operator's own hold is replaced, whichever is longer; any other
// is only ever covered by a longer one. false: one of those lasts longer, and there is nothing to write.
func (s State) PlanPause(now Micros, d time.Duration, beneath Hold) (Pause, bool) {
	w := Pause{From: s.Version, Seen: s.Hold, Hold: s.holdUntil(now, d), Reason: HoldOperator}
	switch in := s.InForce(now); {
	case in.Reason == HoldOperator && beneath.Until > now.Millis():
		w.Beneath = beneath
		w.Hold = max(w.Hold, beneath.Until)
	case in.Reason == HoldOperator || in == Hold{}:
	case in.Until >= w.Hold:
		return Pause{}, false
	default:
		w.Beneath = in
	}
	return w, true
}

// PlanLift is the write that ends an operator's hold, and leaves what it covered. With force it ends any, also one that NHTSA asked for.
// false: there is nothing that it may end.
func (s State) PlanLift(now Micros, beneath Hold, force bool) (Pause, bool) {
	w := Pause{From: s.Version, Seen: s.Hold}
	in := s.InForce(now)
	if in == (Hold{}) || in.Reason != HoldOperator && !force {
		return Pause{}, false
	}
	if beneath.Until > now.Millis() && !force {
		w.Hold, w.Reason = beneath.Until, beneath.Reason
	}
	return w, true
}

// holdUntil is the end of a hold of d from now on. The clock that sets it may be slow and the one that reads it fast: both are added, so
// that nobody starts early. It is a whole second.
func (s State) holdUntil(now Micros, d time.Duration) Millis {
	return (millisUp(now+Micros((d+2*s.Knobs.SkewBound).Microseconds())) + 999) / 1000 * 1000
}
