package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"time"
)

// Epoch is the zero of all times in the state: short numbers make a small item.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Micros is microseconds since Epoch, Millis milliseconds.
type (
	Micros int64
	Millis int64
)

// MicrosOf drops the monotonic reading: a frozen instance's monotonic clock may have stood still.
func MicrosOf(t time.Time) Micros { return Micros(t.Round(0).Sub(Epoch).Microseconds()) }

// Time is the instant on the wall clock.
func (m Micros) Time() time.Time { return Epoch.Add(time.Duration(m) * time.Microsecond) }

// Millis rounds down.
func (m Micros) Millis() Millis { return Millis(m / 1000) }

// Time is the instant on the wall clock.
func (m Millis) Time() time.Time { return Epoch.Add(time.Duration(m) * time.Millisecond) }

func millisUp(m Micros) Millis { return Millis((m + 999) / 1000) }

// Anonymous is the tenant of all callers without a key: they share the places of one bulkhead.
const Anonymous = "anon"

// Place names the bulkhead of a key in the state: route letter and 48 bits of hash, 9 bytes.
type Place string

// Place is where the ids of this key are kept.
func (k Key) Place() Place {
	sum := sha256.Sum256([]byte(k.Tenant))
	name := [9]byte{'i'}
	if k.Route == Batch {
		name[0] = 'b'
	}
	base64.RawURLEncoding.Encode(name[1:], sum[:6])
	return Place(name[:])
}

func (p Place) batch() bool { return p != "" && p[0] == 'b' }

// IsPlace tells a place's name from the other attributes of the state.
func IsPlace(name string) bool {
	return len(name) == 9 && (name[0] == 'i' || name[0] == 'b')
}

// State is what all instances share about one upstream budget.
type State struct {
	Version int   // of the knobs
	Knobs   Knobs // in force
	Limit   int   // slots in force, 1 to Knobs.MaxInFlight

	TAT     Micros // theoretical arrival time, see gcra
	Hold    Millis // no admission before this: NHTSA asked for it, or fails, or the gate is new
	Reason  HoldReason
	Pause   Millis // nor before this: an operator asked for it. The two know nothing of each other
	Latency Millis // smoothed upstream time, 0 before the first call

	Turned   Millis // when Limit was last cut or grown
	Episodes int    // throttle episodes in a row: the pause doubles with each
	Failures int    // hard failures in a row

	Leases map[string]Millis  // lease id -> end
	Places map[Place][]string // bulkhead -> its ids, leases and tickets, sorted, never empty
	Batch  []string           // ids of live batch leases, sorted
	Owned  map[Flow][]string  // flow -> those of its ids, sorted, never empty, whose requests name a bound of their own

	Tickets     map[string]Ticket // who waits: newcomers do not pass them
	Flows       map[Flow]Turn     // where each flow with tickets stands; no others are remembered
	VirtualTime int64             // tag of the last grant

	known *known // see Lasting; nil: nothing is
}

// Clone is a copy whose maps are its own. The sets of ids are shared: they are replaced, never changed.
func (s State) Clone() State { return s.with(inLeases | inPlaces | inOwned | inLine) }

// parts of a state that a write changes.
type parts byte

const (
	inLeases parts = 1 << iota
	inPlaces
	inOwned
	inLine // tickets and flows
)

// with is a copy that has these parts to itself, and shares the others.
func (s State) with(own parts) State {
	if own&inLeases != 0 {
		s.Leases = maps.Clone(s.Leases)
	}
	if own&inPlaces != 0 {
		s.Places = maps.Clone(s.Places)
	}
	if own&inOwned != 0 {
		if s.Owned = maps.Clone(s.Owned); s.Owned == nil {
			s.Owned = map[Flow][]string{}
		}
	}
	if own&inLine != 0 {
		s.Tickets, s.Flows = maps.Clone(s.Tickets), maps.Clone(s.Flows)
	}
	s.known = nil
	return s
}

// Hold stops everybody until then.
type Hold struct {
	Until  Millis
	Reason HoldReason
}

// InForce is what stops everybody at now: the hold or the operator's pause, whichever lasts longer. Zero: nothing does.
func (s State) InForce(now Micros) Hold {
	h := Hold{s.Hold, s.Reason}
	if s.Pause > s.Hold {
		h = Hold{s.Pause, HoldOperator}
	}
	if h.Until <= now.Millis() {
		return Hold{}
	}
	return h
}

// held is the refusal while something stops everybody, else nil.
func (s *State) held(now Micros) *Refusal {
	h := s.InForce(now)
	if h == (Hold{}) {
		return nil
	}
	return &Refusal{Cause: Held, Hold: h.Reason, RetryAfter: RetryAfter(h.Until.Time().Sub(now.Time()))}
}

// dead reports whether a lease may be given to somebody else: past its end by more than the clocks may differ.
func (s *State) dead(end, now Millis) bool {
	return now > end+Millis(s.Knobs.SkewBound.Milliseconds())
}

// live counts the ids that hold their place: those whose lease is not dead and whose ticket is not expired.
func (s *State) live(ids []string, now Millis) int {
	if s.settled(now) {
		return len(ids)
	}
	n := 0
	for _, id := range ids {
		end, leased := s.Leases[id]
		ticket, queued := s.Tickets[id]
		if !(leased && s.dead(end, now) || queued && s.expired(ticket, now)) {
			n++
		}
	}
	return n
}

// View is what the outside may see at now.
func (s State) View(now Micros) View {
	v := View{
		Knobs: s.Knobs, Limit: s.Limit, Queued: len(s.Tickets),
		Tokens:       s.Knobs.Bucket().Tokens(int64(s.TAT), int64(now)),
		NextToken:    time.Duration(s.Knobs.Bucket().More(int64(s.TAT), int64(now))) * time.Microsecond,
		KnobsVersion: s.Version, ReadAt: now.Time(),
	}
	for _, end := range s.Leases {
		if !s.dead(end, now.Millis()) {
			v.InFlight++
		}
	}
	if h := s.InForce(now); h != (Hold{}) {
		v.HeldFor, v.Hold = h.Until.Time().Sub(now.Time()), h.Reason
	}
	return v
}

// insert and remove keep a sorted set without touching the one they are given. One that would be empty is nil.
func insert(set []string, id string) []string {
	i, found := slices.BinarySearch(set, id)
	if found {
		return set
	}
	out := make([]string, len(set)+1)
	copy(out, set[:i])
	out[i] = id
	copy(out[i+1:], set[i:])
	return out
}

func remove(set []string, ids ...string) []string {
	var out []string
	for _, id := range set {
		if !slices.Contains(ids, id) {
			if out == nil {
				out = make([]string, 0, len(set))
			}
			out = append(out, id)
		}
	}
	return out
}

// NewState is a gate nobody has used. Held: the bucket is empty and nobody starts for one lease time, because calls that an
// older gate granted may still run.
func NewState(k Knobs, now Micros, held bool) State {
	s := State{Version: 1, Knobs: k, Limit: k.MaxInFlight, Leases: map[string]Millis{}, Places: map[Place][]string{}, Owned: map[Flow][]string{},
		Tickets: map[string]Ticket{}, Flows: map[Flow]Turn{}}
	if held {
		s.TAT = now + Micros(k.Bucket().Tau+k.Bucket().T)
		s.Hold, s.Reason = millisUp(now+Micros(k.LeaseTTL.Microseconds())), HoldStarting
	}
	return s
}
