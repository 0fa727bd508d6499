package results

import (
	"time"
)

// Millis is milliseconds since 1970, as the table has them.
type Millis int64

// MillisOf rounds down.
func MillisOf(t time.Time) Millis { return Millis(t.UnixMilli()) }

// Time is the instant.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }

func (m Millis) plus(d time.Duration) Millis { return m + Millis(d.Milliseconds()) }

// Row is what the table holds about one question: perhaps an answer, and what those who ask it have to know of one another. It is
// a value. The writes below change it, and the table does the same with their expressions; a test holds the two against each other.
type Row struct {
	// The answer, packed. Fetched 0: there is none.
	Format  int64
	Packed  []byte
	Fetched Millis

	Expires int64 // seconds since 1970, when the table may delete all of this: the answer's end, or that of the rest

	Flight  Flight
	Verdict Verdict
	Slow    Slow
	Rest    Rest
}

// Flight is one caller on the way to NHTSA on behalf of all. End 0: it is over and has left no answer. The leader's id stays then, so that
// a write of an older election that lands late finds that it is too late.
type Flight struct {
	Leader string
	End    Millis // from then on it is over on everybody's clock
}

// Verdict is how the last flight that left no answer ended for everybody. Leader "": none did.
type Verdict struct {
	Leader  string
	Reason  string // the caller's own word, without a blank
	RetryAt Millis
}

// Slow counts the calls in a row that NHTSA did not answer in time.
type Slow struct {
	Calls int
	Last  Millis
}

// Rest keeps an answer past its freshness from being refreshed.
type Rest struct {
	Until  Millis
	Reason string // as a verdict's
}

// Span is the life of an answer that may be shown. The zero Span: there is none.
type Span struct{ Fresh, End Millis }

const (
	// longestFlight bounds what is believed of a flight's end: no request lasts longer, so one that claims to comes from a clock that is wrong.
	longestFlight = 35 * time.Second
	// RestTime is how long an answer is left alone that could not be refreshed.
	RestTime = time.Minute
	// slowCalls is how many calls in a row may go unanswered before the question is refused for slowTime.
	slowCalls = 2
	slowTime  = time.Minute
	// remembered is how long a row without an answer is kept after its flight: longer than anything in it is of use.
	remembered = 10 * time.Minute
)

// Kind says what a caller is to do.
type Kind int

const (
	Lead    Kind = iota // there is no answer and nobody is on the way: ask to be elected
	Fresh               // show the answer
	Stale               // show the answer; it may be refreshed when Until is 0
	Follow              // wait for the flight, until its end
	Refused             // NHTSA did not answer this question in time, again and again: not before Until
)

// Standing is what a row means for somebody who asks at a time.
type Standing struct {
	Kind   Kind
	Until  Millis
	Reason string // of a rest
}

// Stands decides. kept is the life of the row's answer.
func (r Row) Stands(now Millis, kept Span) Standing {
	flies := r.Flight.End > now && r.Flight.End <= now.plus(longestFlight)
	switch {
	case now < kept.Fresh && now < kept.End:
		return Standing{Kind: Fresh}
	case now < kept.End:
		switch rests := r.Rest.Until > now && r.Rest.Until <= now.plus(2*RestTime); {
		case flies:
			return Standing{Kind: Stale, Until: r.Flight.End}
		case rests:
			return Standing{Kind: Stale, Until: r.Rest.Until, Reason: r.Rest.Reason}
		}
		return Standing{Kind: Stale}
	case flies:
		return Standing{Kind: Follow, Until: r.Flight.End}
	}
	if until := r.Slow.Last.plus(slowTime); r.Slow.Calls >= slowCalls && now < until && until <= now.plus(2*slowTime) {
		return Standing{Kind: Refused, Until: until}
	}
	return Standing{Kind: Lead}
}

// Seen is what a write that follows a look relies on: nobody else was elected and no answer has come since.
type Seen struct {
	Leader  string
	Fetched Millis
}

// Seen is what is to be relied on of this row.
func (r Row) Seen() Seen { return Seen{r.Flight.Leader, r.Fetched} }

// Elect makes a caller the leader of a flight. Of many who saw the same row one is elected; the others meet the leader.
type Elect struct {
	Seen   Seen
	Flight Flight
	Alone  bool  // there is no answer that may be shown: what is left of one goes
	Ends   int64 // with Alone: when the table may delete the row
}

// endOf is the end of a flight for others, whose leader is over by a time on its own clock: the leader's clock may be slow by the bound, and another's
// fast by it; and at the last moment of the one it is not yet over for the other.
func endOf(until Millis, skewBound time.Duration) Millis { return until.plus(2*skewBound) + 1 }

// PlanElect elects under a new id until end.
func (r Row) PlanElect(id string, end Millis, kept Span) Elect {
	w := Elect{Seen: r.Seen(), Flight: Flight{id, end}}
	if kept == (Span{}) {
		w.Alone, w.Ends = true, seconds(end.plus(remembered))
	}
	return w
}

// Holds is the condition.
func (w Elect) Holds(r Row) bool { return r.Seen() == w.Seen }

// Apply is the update.
func (w Elect) Apply(r Row) Row {
	r.Flight = w.Flight
	if w.Alone {
		r.Format, r.Packed, r.Fetched, r.Expires = 0, nil, 0, w.Ends
	}
	return r
}

// Land stores an answer, unless there is one as new, and ends the leader's flight.
type Land struct {
	Leader  string // "" without a flight of one's own
	Keeps   string // whose flight goes on: another was elected meanwhile; "" nobody's
	Format  int64
	Packed  []byte
	Fetched Millis
	Expires int64
}

// PlanLand plans on a row that was met; false: there is nothing to store any more.
func (w Land) PlanLand(met Row) (Land, bool) {
	if met.Fetched >= w.Fetched {
		return w, false
	}
	w.Keeps = ""
	switch other := met.Flight.Leader; {
	case other == "" || other == w.Leader:
	case met.Flight.End == 0: // it is over and waits for nobody
		w.Leader = other
	default:
		w.Keeps = other
	}
	return w, true
}

// Holds is the condition.
func (w Land) Holds(r Row) bool {
	if r.Fetched >= w.Fetched {
		return false
	}
	if w.Keeps != "" {
		return r.Flight.Leader == w.Keeps
	}
	return r.Flight.Leader == "" || r.Flight.Leader == w.Leader
}

// Apply is the update.
func (w Land) Apply(r Row) Row {
	next := Row{Format: w.Format, Packed: w.Packed, Fetched: w.Fetched, Expires: w.Expires}
	if w.Keeps != "" {
		next.Flight = r.Flight
	}
	return next
}

// Quit ends a flight that brings no answer. What is zero stays as it was.
type Quit struct {
	Leader  string
	Verdict Verdict
	Slow    Slow
	Rest    Rest
}

// Holds is the condition: a leader whose time was over, and who was followed by another, changes nothing.
func (w Quit) Holds(r Row) bool { return r.Flight.Leader == w.Leader }

// Apply is the update. To do it twice changes nothing.
func (w Quit) Apply(r Row) Row {
	r.Flight.End = 0
	if w.Verdict != (Verdict{}) {
		r.Verdict = w.Verdict
	}
	if w.Slow != (Slow{}) {
		r.Slow = w.Slow
	}
	if w.Rest != (Rest{}) {
		r.Rest = w.Rest
	}
	return r
}

// slower is the count after one more call that was not answered in time. One that is long ago counts no more.
func (s Slow) slower(now Millis) Slow {
	if s.Calls == 0 || now > s.Last.plus(remembered) {
		return Slow{1, now}
	}
	return Slow{s.Calls + 1, now}
}

// Defer lets an answer rest without a flight.
type Defer struct {
	Seen Seen
	Rest Rest
}

// Holds is the condition.
func (w Defer) Holds(r Row) bool { return r.Seen() == w.Seen }

// Apply is the update.
func (w Defer) Apply(r Row) Row {
	r.Rest = w.Rest
	return r
}

// seconds rounds up.
func seconds(m Millis) int64 { return (int64(m) + 999) / 1000 }
