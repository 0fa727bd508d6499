package gate

import "time"

// How a store uses the core: what it decides on a view of some age, and when it leaves the gate alone. It is here rather than in a store so
// that whatever drives the core (package gate/dynamo, package simulate) drives it alike.
const (
	ViewAge  = 100 * time.Millisecond // a write is planned on a view no older than this
	KnownAge = time.Second            // what cannot have become better is refused from a view no older than this
	FreshAge = 20 * time.Millisecond  // of the view a shy instance writes on

	MaxTries   = 4 // writes of one way in
	RetryPause = 20 * time.Millisecond

	// PatientQuiet is how much of an instance's quiet a caller waits for; beyond that it is refused from the view.
	PatientQuiet = 100 * time.Millisecond

	// BulkheadLook lies between two looks for a place of one's own, at least; three times that at most. Each write in vain at the door
	// doubles it, up to RarestLook.
	BulkheadLook = 100 * time.Millisecond
	RarestLook   = 800 * time.Millisecond

	PromiseAge = 100 * time.Millisecond // a view of the promise is used for this long
)

const (
	// headGrace: a waiter that could claim and was not seen to do so for this long is passed by the others.
	headGrace = 300 * time.Millisecond

	lessShy = 0.9
	shyFor  = 30 * time.Second

	leastQuiet, mostQuiet = 50 * time.Millisecond, 2 * time.Second
)

// Manners is how one instance behaves towards the others where many want the one token, or the one place, that comes free: all but one
// write in vain. An instance that did is shy from then on: it writes only when more than one is left, how many more being drawn anew each
// time, so that the instances do not move together; and it looks again right before (FreshAge). Each success makes it a tenth less shy, and it
// forgets. Where there is nothing to leave (a bucket of one token, slots without a line) that does not help: each further failure doubles
// the time this instance keeps quiet, each success cuts it by a quarter. The zero value has met nobody.
type Manners struct {
	shy   float64       // how much of what is scarce to leave to other instances, 0 to 1
	vain  Micros        // when it last wrote in vain
	quiet time.Duration // how long no way in is tried when shyness was not enough
	calm  Micros        // until when
}

// Shyness is how much to leave to others this time, for Request.Shy: rather much than little. The draws are from [0, 1).
func (m *Manners) Shyness(now Micros, draw, other float64) float64 {
	if age := now - m.vain; age < 0 || age > micros(shyFor) {
		m.shy = 0
	}
	return m.shy * max(draw, other)
}

// Quiet is how long no way in is to be tried, 0 or less when one may be.
func (m *Manners) Quiet(now Micros) time.Duration {
	return time.Duration(m.calm-now) * time.Microsecond
}

// WentWell notes a way in that was open.
func (m *Manners) WentWell() {
	m.shy *= lessShy
	m.quiet = m.quiet * 3 / 4
}

// WentInVain notes a write that met others at the last token or place.
func (m *Manners) WentInVain(now Micros) {
	m.vain = now
	if m.shy < 1 {
		m.shy = 1
		return
	}
	m.quiet = min(max(2*m.quiet, leastQuiet), mostQuiet)
	m.calm = now + micros(m.quiet)
}

// Watch is what one waiter knows of those ahead of it: since when it was the turn of each, and who left it unused. The zero value has
// seen nobody.
type Watch struct {
	passed map[string]bool
	heads  map[string]Micros
}

// Plan is PlanClaim for a waiter who keeps watch. Who has to sleep on notes whose turn it is ahead, and passes those who did not use theirs.
func (w *Watch) Plan(s State, now Micros, r Request) (Claim, time.Duration, *Refusal) {
	line := s.line(now.Millis(), w.passed)
	c, rest, refusal := s.planClaim(now, r, line)
	if rest > 0 {
		w.note(s.heads(now, r.ID, line), now)
	}
	return c, rest, refusal
}

func (w *Watch) note(heads []string, now Micros) {
	if len(heads) == 0 && len(w.heads) == 0 {
		return
	}
	seen := map[string]Micros{}
	for _, head := range heads {
		since, known := w.heads[head]
		if !known {
			since = now
		}
		if now-since >= micros(headGrace) {
			if w.passed == nil {
				w.passed = map[string]bool{}
			}
			w.passed[head] = true
			continue
		}
		seen[head] = since
	}
	w.heads = seen
}
