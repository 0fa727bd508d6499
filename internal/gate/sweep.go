package gate

// Sweep removes dead leases and expired tickets and touches nothing else: no token, no slot, no hold, no turn of a flow that still
// waits. Nobody needs it for the promises, since every admission takes dead leases along; it is for quiet times, so that what
// crashed instances left behind is counted, and is gone, within a minute.
type Sweep struct {
	Dead  []DeadLease
	Drops Drops
}

// Checks is the condition: everything that is removed is there exactly as it was seen.
func (w Sweep) Checks(s State) []Check {
	return []Check{{"dead", holdsDead(w.Dead, s)}, {"drops", w.Drops.holds(s)}}
}

// Holds is the condition.
func (w Sweep) Holds(s State) bool { return all(w.Checks(s)) }

// Apply is the update.
func (w Sweep) Apply(s State) State {
	s = s.Clone()
	for _, d := range w.Dead {
		s.drop(d.ID, d.Place, d.Batch, d.Owned)
	}
	w.Drops.apply(&s)
	return s
}

// PlanSweep is the write that removes what is over at now. false: there is nothing.
func (s State) PlanSweep(now Micros) (Sweep, bool) {
	w := Sweep{Dead: s.deadLeases(now.Millis(), "")}
	w.Drops, _ = s.drops(now.Millis(), "")
	return w, len(w.Dead)+len(w.Drops.Tickets) > 0
}
