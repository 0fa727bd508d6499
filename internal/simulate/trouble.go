package simulate

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"vingate/internal/gate"
)

// TroubleKind is what NHTSA answers while it is in trouble.
type TroubleKind string

// The kinds of trouble.
const (
	Says429 TroubleKind = "429"   // it asks for a pause
	Says403 TroubleKind = "403"   // it blocks the address
	Says503 TroubleKind = "503"   // it fails
	Limits  TroubleKind = "limit" // it has a limit of its own, and says 429 to what goes beyond
)

// Trouble is something that NHTSA does to the calls that reach it meanwhile.
type Trouble struct {
	Kind       TroubleKind
	At         time.Duration // after the start
	Every      time.Duration // again and again, 0: once
	For        time.Duration // each time; of a limit 0: all the time
	RetryAfter time.Duration // that NHTSA names; 0: none

	Rate  float64 // limit: calls a second
	Burst int     // limit: calls at once
}

// ParseTrouble reads 429:every=1h,for=1m,retry-after=30s and the like.
func ParseTrouble(text string) (Trouble, error) {
	kind, rest, _ := strings.Cut(text, ":")
	t := Trouble{Kind: TroubleKind(kind)}
	switch t.Kind {
	case Says429, Says403, Says503:
		t.For = time.Minute
	case Limits:
		t.Burst = 10
	}
	first := false // at is given
	for part := range strings.SplitSeq(rest, ",") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "at":
			t.At, err = readTime(value)
			first = true
		case "every":
			t.Every, err = readTime(value)
		case "for":
			t.For, err = readTime(value)
		case "retry-after":
			t.RetryAfter, err = readTime(value)
		case "rate":
			t.Rate, err = readNumber(value)
		case "burst":
			t.Burst, err = readWhole(value)
		default:
			err = errors.New("there is no such key: at, every, for, retry-after; of a limit also rate and burst")
		}
		if err != nil {
			return t, fmt.Errorf("%s: %s: %w", text, part, err)
		}
	}
	if !first {
		t.At = t.Every
	}
	return t, t.Check()
}

// Check says what is wrong with it.
func (t Trouble) Check() error {
	limit := t.Kind == Limits
	switch {
	case !limit && t.Kind != Says429 && t.Kind != Says403 && t.Kind != Says503:
		return fmt.Errorf("there is no trouble %q: 429, 403, 503 or limit", t.Kind)
	case min(t.At, t.Every, t.RetryAfter, t.For) < 0 || !limit && t.For == 0:
		return fmt.Errorf("%s: its times make no sense: none is below 0, and for is above it", t.Kind)
	case t.Every != 0 && (t.For == 0 || t.Every <= t.For):
		return fmt.Errorf("%s: every %v for %v is all the time", t.Kind, t.Every, t.For)
	case limit && (!(t.Rate >= 0.001 && t.Rate <= mostRate) || t.Burst < 1 || t.Burst > 1e6):
		return fmt.Errorf("limit: needs a rate from 0.001 to a million, and a burst from 1 to a million")
	case !limit && (t.Rate != 0 || t.Burst != 0):
		return fmt.Errorf("%s: rate and burst are a limit's", t.Kind)
	}
	return nil
}

// String is how it is written.
func (t Trouble) String() string {
	text := fmt.Sprintf("%s:", t.Kind)
	if t.Kind == Limits {
		text += fmt.Sprintf("rate=%v,burst=%d,", t.Rate, t.Burst)
	}
	for _, part := range []struct {
		name string
		d    time.Duration
	}{{"at", t.At}, {"every", t.Every}, {"for", t.For}, {"retry-after", t.RetryAfter}} {
		if part.name == "at" && t.At == t.Every || part.name != "at" && part.d == 0 {
			continue
		}
		text += part.name + "=" + Short(part.d) + ","
	}
	return strings.TrimSuffix(text, ",")
}

// Short writes 1m for 1m0s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// on says whether it is on, so long after the start.
func (t Trouble) on(at time.Duration) bool {
	since := at - t.At
	if since < 0 {
		return false
	}
	if t.Every > 0 {
		since %= t.Every
	}
	return t.For == 0 || since < t.For
}

// nhtsa is the one that is called: what is wrong with it, and the calls that it counts under each of its limits.
type nhtsa struct {
	troubles []Trouble
	full     []gate.Micros // of a limit: when its bucket is full again
}

func newNHTSA(troubles []Trouble) nhtsa {
	return nhtsa{troubles, make([]gate.Micros, len(troubles))}
}

// meets is what a call meets that arrives so long after the start; nil: nothing.
func (n *nhtsa) meets(at time.Duration) *Trouble {
	for i := range n.troubles {
		t := &n.troubles[i]
		if !t.on(at) {
			continue
		}
		if t.Kind != Limits {
			return t
		}
		each := gate.Micros(1e6 / t.Rate)
		next := max(n.full[i], micros(at)) + each
		if next-micros(at) > gate.Micros(t.Burst)*each {
			return t
		}
		n.full[i] = next
	}
	return nil
}

// Pause is what NHTSA's trouble made of the gate, from the first hold until all slots are in force again.
type Pause struct {
	Gate    int             `json:"gate"` // from 0 on
	At      float64         `json:"at"`   // seconds after the start
	Why     gate.HoldReason `json:"why"`
	Told    int             `json:"told"`    // calls that NHTSA said no to, or failed
	Holds   int             `json:"holds"`   // how often the hold was set
	Held    float64         `json:"held"`    // seconds
	Slots   int             `json:"slots"`   // the least in force
	Lasted  float64         `json:"lasted"`  // seconds until all slots were in force again; 0: the end came before
	Refused int64           `json:"refused"` // requests, by the hold or by NHTSA itself
}

// pausing watches the holds of one gate.
type pausing struct {
	since        gate.Micros // of the state that is on
	told, failed int         // calls, before the hold that they lead to
	now          *Pause      // nil: none is on
}

// hears notes how a call ended. A success makes failures before it good.
func (p *pausing) hears(kind gate.OutcomeKind) {
	switch kind {
	case gate.Throttled:
		p.told++
	case gate.Failed:
		p.failed++
	case gate.Succeeded:
		p.failed = 0
	}
	if p.now != nil {
		p.now.Told += p.told + p.failed
		p.told, p.failed = 0, 0
	}
}

// turns notes what a write has made of a gate.
func (p *pausing) turns(s *sim, before *gate.State, after *gate.State, n int) {
	p.passes(s, before)
	if after.Hold > before.Hold {
		if p.now == nil {
			p.now = &Pause{Gate: n, At: float64(s.now-s.start) / 1e6, Why: after.Reason, Told: p.told + p.failed, Slots: after.Limit}
			p.told, p.failed = 0, 0
			s.book.pauses = append(s.book.pauses, p.now)
		}
		p.now.Holds++
	}
	if p.now == nil {
		return
	}
	p.now.Slots = min(p.now.Slots, after.Limit)
	if after.Limit == s.Knobs.MaxInFlight && after.InForce(s.now) == (gate.Hold{}) {
		p.now.Lasted = float64(s.now-s.start)/1e6 - p.now.At
		p.now = nil
	}
}

// passes notes the time since the last write, in which the gate was in that state.
func (p *pausing) passes(s *sim, in *gate.State) {
	now := min(s.now, s.end)
	s.book.spread(p.since, now, in.Limit, func(part *span, x float64) { part.slots += x })
	if until := min(now, gate.Micros(in.Hold)*1000); until > p.since {
		s.book.spread(p.since, until, 1, func(part *span, x float64) { part.held += x })
		if p.now != nil {
			p.now.Held += float64(until-p.since) / 1e6
		}
	}
	p.since = now
}

// pausesText is the sum of them, for people.
func (r *Report) pausesText() string {
	held := 0.0
	for _, p := range r.Pauses {
		held += p.Held
	}
	told := r.Counts[UpstreamThrottled].N + r.Counts[UpstreamFailed].N + r.Counts[UpstreamTimedOut].N
	return fmt.Sprintf("%s of the time nobody might start a call; NHTSA said no to %s, and %s requests were sent away without one",
		percent(held/(r.ForSeconds*float64(r.Setup.Gates))), whole(told), whole(r.Counts[Throttled].N+r.Counts[Unavailable].N))
}

// troubleAt is what a call meets that starts now; nil: nothing. There is none when nobody asks any more.
func (s *sim) troubleAt(r *request) *Trouble {
	if s.now >= s.end {
		return nil
	}
	return s.instances[r.in].item.nhtsa.meets(time.Duration(s.now-s.start) * time.Microsecond)
}
