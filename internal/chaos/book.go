package chaos

import (
	"fmt"
	"slices"
	"time"

	"vingate/internal/gate"
	"vingate/internal/tenant"
)

// Holder is whose a lease or a ticket is.
type Holder struct {
	Name      string // of a client; of one that comes with many keys, each key's
	Anonymous bool
}

// Lease is one lease that a write left.
type Lease struct {
	ID      string
	Of      Holder
	Batch   bool
	Granted time.Time   // at the earliest
	End     gate.Millis // by the clock of whoever took it
	Gone    time.Time   // at the latest; zero: still there
	Expired bool        // gone with somebody else's admission
}

// Step is what all instances could read in the item from then on.
type Step struct {
	At      time.Time
	Version int
	Limit   int
	Hold    gate.Millis
	Reason  gate.HoldReason
}

// finding is a breach that a write shows.
type finding struct {
	at   time.Time
	text string
}

// Book is what the writes to the gate's item come to. It is kept as they come, so that a long run keeps its leases and not every state.
type Book struct {
	Leases []*Lease
	Steps  []Step

	holders map[gate.Flow]Holder
	last    gate.State
	held    map[string]*Lease
	granted map[string]bool
	broken  map[string][]finding // by promise
	ahead   map[string]map[string]int

	Writes, Lost, Line int          // writes, those whose answers were lost, the longest line
	Places             int          // looks at somebody's places
	Most               map[bool]int // places of one key, and of all without one
	Turns              map[int]int  // of another between two of one's own: how often so many
}

// NewBook begins one. The holders tell whose an id is.
func NewBook(holders map[gate.Flow]Holder) *Book {
	return &Book{holders: holders, held: map[string]*Lease{}, granted: map[string]bool{}, broken: map[string][]finding{},
		ahead: map[string]map[string]int{}, Most: map[bool]int{}, Turns: map[int]int{}}
}

func (b *Book) find(promise string, at time.Time, format string, args ...any) {
	if len(b.broken[promise]) < 1000 { // more say nothing new
		b.broken[promise] = append(b.broken[promise], finding{at, fmt.Sprintf(format, args...)})
	}
}

func (b *Book) holder(id string) Holder {
	if h, known := b.holders[gate.FlowOfID(id)]; known {
		return h
	}
	return Holder{Name: "nobody (" + string(gate.FlowOfID(id)) + ")"}
}

// Add is the next write.
func (b *Book) Add(w Write) {
	s := w.State
	b.Writes++
	if w.Lost {
		b.Lost++
	}
	if step := (Step{w.At, s.Version, s.Limit, s.Hold, s.Reason}); len(b.Steps) == 0 || !b.Steps[len(b.Steps)-1].same(step) {
		b.Steps = append(b.Steps, step)
	}
	batch := map[string]bool{}
	for place, ids := range s.Places {
		for _, id := range ids {
			batch[id] = batch[id] || place[0] == 'b'
		}
	}
	var fresh []string
	for id, end := range s.Leases {
		if b.held[id] != nil {
			continue
		}
		fresh = append(fresh, id)
		if b.granted[id] {
			b.find("P7", w.At, "lease %s was granted twice", id)
		}
		b.granted[id] = true
		b.held[id] = &Lease{ID: id, Of: b.holder(id), Batch: batch[id], Granted: w.Sent, End: end}
		b.Leases = append(b.Leases, b.held[id])
	}
	b.once(w, fresh)
	for id, l := range b.held {
		if _, there := s.Leases[id]; there || !slices.Contains(w.Names, id) {
			continue
		}
		delete(b.held, id)
		l.Gone, l.Expired = w.At, len(fresh) > 0
		if early := l.End.Time().Sub(w.Sent); l.Expired && early > 10*time.Millisecond {
			b.find("P6", w.At, "lease %s was given to somebody else %v before its end", id, early)
		}
	}
	b.places(w, batch)
	if b.Line = max(b.Line, len(s.Tickets)); len(s.Tickets) > s.Knobs.MaxQueued {
		b.find("P5", w.At, "%d wait, the line has %d places", len(s.Tickets), s.Knobs.MaxQueued)
	}
	b.turns(s, fresh)
	b.last = s
}

func (s Step) same(o Step) bool { o.At = s.At; return s == o }

// once: a write grants one lease at most and takes its tokens with it, to the microsecond; any other leaves the bucket as it was. A change of the
// numbers, which is not seen here, moves it too, under a new version.
func (b *Book) once(w Write, fresh []string) {
	s := w.State
	if len(fresh) > 1 {
		b.find("P7", w.At, "one write left %d leases", len(fresh))
	}
	if b.last.Version != s.Version || len(fresh) > 1 {
		return
	}
	moved := s.TAT - b.last.TAT
	if len(fresh) == 0 {
		if moved != 0 {
			b.find("P7", w.At, "a write that granted nothing moved the bucket by %d us", moved)
		}
		return
	}
	l := b.held[fresh[0]]
	// The stamp of its writer, by the lease's end, which is rounded up to a millisecond.
	stamp := gate.Micros(l.End)*1000 - gate.Micros(s.Knobs.LeaseTTL.Microseconds())
	if more := gate.Micros(b.last.Hold)*1000 - stamp; more > 0 {
		b.find("P9", w.At, "lease %s was granted while the gate was held for %v more", l.ID, time.Duration(more)*time.Microsecond)
	}
	most := 1
	if l.Batch {
		most = 5 // for every ten VINs begun
	}
	t := gate.Micros(s.Knobs.T().Microseconds())
	for n := gate.Micros(1); n <= gate.Micros(most); n++ {
		if late := stamp - (s.TAT - n*t); moved == n*t || b.last.TAT < s.TAT-n*t && late >= 0 && late <= 1000 {
			return
		}
	}
	b.find("P7", w.At, "lease %s moved the bucket by %d us, a token is %d", l.ID, moved, t)
}

// places: what each holds, by whose ids they are and by the places that the item knows.
func (b *Book) places(w Write, batch map[string]bool) {
	s := w.State
	now := gate.MicrosOf(w.At).Millis()
	var live []string
	for id, end := range s.Leases {
		if end >= now {
			live = append(live, id)
		}
	}
	for id, t := range s.Tickets {
		if t.Deadline >= now {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	type share struct {
		Holder
		batch bool
	}
	of, anonymous := map[share]int{}, 0
	for _, id := range live {
		h := b.holder(id)
		of[share{h, batch[id]}]++
		if h.Anonymous && !batch[id] {
			anonymous++
		}
	}
	b.Most[true] = max(b.Most[true], anonymous)
	if anonymous > s.Knobs.BulkheadAnon {
		b.find("P3", w.At, "%d places are held by those without a key, there are %d", anonymous, s.Knobs.BulkheadAnon)
	}
	for h, n := range of {
		b.Places++
		ceiling := s.Knobs.BulkheadInteractive
		switch {
		case h.batch:
			ceiling = s.Knobs.BulkheadBatch
		case h.Anonymous:
			ceiling = tenant.Caller{Anonymous: true}.Own()
		}
		b.Most[false] = max(b.Most[false], n)
		if n > ceiling {
			b.find("P3", w.At, "%s holds %d places, the ceiling is %d", h.Name, n, ceiling)
		}
	}
	anon := gate.Key{Route: gate.Interactive, Tenant: gate.Anonymous}.Place()
	for place, ids := range s.Places {
		n := 0
		for _, id := range ids {
			if _, is := slices.BinarySearch(live, id); is {
				n++
			}
		}
		ceiling := s.Knobs.BulkheadInteractive
		switch {
		case place == anon:
			ceiling = s.Knobs.BulkheadAnon
		case place[0] == 'b':
			ceiling = s.Knobs.BulkheadBatch
		}
		if n > ceiling {
			b.find("P3", w.At, "a key holds %d places, its ceiling is %d", n, ceiling)
		}
	}
}

// turns counts, for each who waits in the line, how often every other was served since his own last turn, or since he came.
func (b *Book) turns(s gate.State, fresh []string) {
	waiting := map[string]bool{}
	for id := range s.Tickets {
		waiting[b.holder(id).Name] = true
	}
	for _, id := range fresh {
		ticket, waited := b.last.Tickets[id]
		if !waited {
			continue
		}
		served := b.holder(id).Name
		n := 0
		for _, turns := range b.ahead[served] {
			n = max(n, turns)
		}
		if ticket.Cost < 2 { // who takes several tokens at once waits as many turns
			b.Turns[n]++
		}
		delete(b.ahead, served)
		for other := range b.ahead {
			if other != served {
				b.ahead[other][served]++
			}
		}
	}
	for name := range b.ahead {
		if !waiting[name] {
			delete(b.ahead, name)
		}
	}
	for name := range waiting {
		if b.ahead[name] == nil {
			b.ahead[name] = map[string]int{}
		}
	}
}
