package results

import (
	"bytes"
	"time"

	"vingate/internal/lru"
	"vingate/internal/vpic"
)

// kept is an answer in memory, packed as in the table, and how long it may be shown past its freshness without a look at the table.
type kept struct {
	row    Row
	look   Millis
	reason string
}

// opened is an answer that was asked for again: unpacked and understood, so that the next who asks costs neither. It counts for the row of
// which it was made, and no other.
type opened struct {
	of     Row
	answer Stored
	size   int
}

const (
	// openedShare is the part of the memory's bound that opened answers may take beside it, and openedSize what one takes as a multiple of its body.
	openedShare, openedSize = 8, 5
	// overhead is what an entry takes beside its key and body, with its places in the map and the list.
	overhead = 400
	// lookAgain is how long an answer past its freshness is shown without a look while somebody else refreshes it.
	lookAgain = time.Second
)

func newMemory(limit int64) *lru.Cache[string, kept] {
	return lru.Sized(uint64(max(0, limit)), func(key string, k kept) uint64 { return uint64(len(key) + len(k.row.Packed) + overhead) })
}

func newOpened(limit int64) *lru.Cache[string, *opened] {
	return lru.Sized(uint64(max(0, limit/openedShare)), func(key string, o *opened) uint64 { return uint64(len(key) + o.size) })
}

// Remembered is the answer in memory, if there is one that may be shown. It makes no call. One that is Stale with Until 0 is to be looked up.
func (s *Store) Remembered(q vpic.Query) (Found, bool) {
	key := Key(q)
	k, ok := s.memory.Get(key)
	if !ok {
		return Found{}, false
	}
	now := s.now()
	answer, err := s.shown(k.row, now, func() (Stored, error) { return s.open(key, k.row, q) })
	if err != nil || answer.FetchedAt.IsZero() {
		return Found{}, false
	}
	f := Found{Row: k.row, Answer: answer, Standing: Standing{Kind: Stale}}
	if at := MillisOf(now); at < answer.span().Fresh {
		f.Kind = Fresh
	} else if at < k.look && k.look <= at.plus(2*RestTime) {
		f.Until, f.Reason = k.look, k.reason
	}
	return f, true
}

// open is what understand gives, made once for an answer that is asked for again and again.
func (s *Store) open(key string, r Row, q vpic.Query) (Stored, error) {
	o, ok := s.opened.Get(key)
	if ok && o.of.Fetched == r.Fetched && o.of.Expires == r.Expires && bytes.Equal(o.of.Packed, r.Packed) {
		return o.answer, nil
	}
	answer, size, err := s.understand(r, q)
	if err == nil {
		s.opened.Put(key, &opened{r, answer, overhead + openedSize*size})
	}
	return answer, err
}

// remember keeps what a look found.
func (s *Store) remember(q vpic.Query, f Found) {
	if !f.Has() {
		if _, there := s.memory.Get(Key(q)); there && f.Damage == nil && f.Fetched == 0 {
			s.memory.Update(Key(q), func(old kept, _ bool) kept { return s.forget(old) })
		}
		return
	}
	k := kept{row: answerOf(f.Row), look: f.Until, reason: f.Reason}
	if f.Kind == Stale && f.Until != 0 && f.Reason == "" { // a flight, which may be over any moment
		k.look = min(f.Until, MillisOf(s.now()).plus(lookAgain))
	}
	s.memory.Update(Key(q), func(old kept, _ bool) kept {
		if old.row.Fetched > k.row.Fetched { // this look came late
			return old
		}
		return k
	})
}

// forget drops an answer that is not in the table any more, unless it is so new that a look may have missed it.
func (s *Store) forget(old kept) kept {
	if age := s.now().Sub(old.row.Fetched.Time()); age < lookAgain {
		return old
	}
	return kept{}
}

// keep remembers a live answer.
func (s *Store) keep(q vpic.Query, r Row) {
	s.memory.Update(Key(q), func(old kept, _ bool) kept {
		if old.row.Fetched > r.Fetched {
			return old
		}
		return kept{row: r}
	})
}

// Hush lets an answer in memory be shown without a look until then: while this instance refreshes it, or when it knows without the table that it
// cannot be refreshed. The reason is a rest's.
func (s *Store) Hush(q vpic.Query, until time.Time, reason string) {
	s.hush(q, Rest{MillisOf(until), reason})
}

func (s *Store) hush(q vpic.Query, rest Rest) {
	if _, there := s.memory.Get(Key(q)); there {
		s.memory.Update(Key(q), func(old kept, _ bool) kept {
			old.look, old.reason = rest.Until, rest.Reason
			return old
		})
	}
}

// answerOf is the row's answer alone.
func answerOf(r Row) Row {
	return Row{Format: r.Format, Packed: r.Packed, Fetched: r.Fetched, Expires: r.Expires}
}
