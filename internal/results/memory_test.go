//go:build unix

package results

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vingate/internal/ddb/ddbtest"
	"vingate/internal/vpic"
)

func TestWhatIsInMemoryCostsNoCall(t *testing.T) {
	client, wire := ddbtest.On(realClient)
	s, now := store(t, client)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	other, _ := store(t, realClient)
	if err := other.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	look(t, s, q) // one read, and it is known
	for range 3 {
		if f, ok := s.Remembered(q); !ok || f.Kind != Fresh || f.Answer.Make() != "HONDA" {
			t.Errorf("%v, %+v", ok, f.Standing)
		}
		*now = now.Add(lives.Soft/3 - time.Second)
	}
	if wire.Count("GetItem") != 1 || wire.Count("UpdateItem") != 0 {
		t.Errorf("%d reads, %d writes", wire.Count("GetItem"), wire.Count("UpdateItem"))
	}
}

// Past its freshness an answer in memory is looked up, but for a while after a look, and while it rests.
func TestAnAnswerPastItsFreshnessIsLookedUpNowAndThen(t *testing.T) {
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	*now = noon.Add(lives.Soft + time.Hour)
	stands := func(want Standing) {
		t.Helper()
		if f, ok := s.Remembered(q); !ok || f.Standing != want {
			t.Errorf("%v, %+v, want %+v", ok, f.Standing, want)
		}
	}
	until := func(d time.Duration, reason string) Standing {
		return Standing{Kind: Stale, Until: MillisOf(now.Add(d)), Reason: reason}
	}
	stands(Standing{Kind: Stale}) // nobody knows of it: look it up

	s.Hush(q, now.Add(13*time.Second), "") // this instance refreshes it
	stands(until(13*time.Second, ""))
	s.Hush(q, *now, "")
	stands(Standing{Kind: Stale})

	other, its := store(t, realClient) // another instance refreshes it
	*its = *now
	led, _, err := other.Elect(t.Context(), q, look(t, other, q), now.Add(13*time.Second))
	if led == nil || err != nil {
		t.Fatal(led, err)
	}
	if f := look(t, s, q); f.Kind != Stale || f.Until != endOf(MillisOf(now.Add(13*time.Second)), s.SkewBound) {
		t.Errorf("found %+v", f.Standing)
	}
	stands(until(lookAgain, ""))
	*now = now.Add(lookAgain)
	stands(Standing{Kind: Stale})

	*its = *now
	if err := other.Quit(t.Context(), led, Failure{Reason: "timeout", TimedOut: true, Rest: "UPSTREAM_TIMEOUT"}); err != nil {
		t.Fatal(err)
	}
	look(t, s, q)
	stands(until(RestTime, "UPSTREAM_TIMEOUT"))
	*now = now.Add(RestTime - time.Millisecond)
	stands(until(time.Millisecond, "UPSTREAM_TIMEOUT"))
	*now = now.Add(time.Millisecond)
	stands(Standing{Kind: Stale})
	if f := look(t, s, q); f.Kind != Stale || f.Until != 0 {
		t.Errorf("found %+v", f.Standing)
	}

	if err := s.Defer(t.Context(), q, look(t, s, q), "RATE_LIMITED"); err != nil {
		t.Fatal(err)
	}
	stands(until(RestTime, "RATE_LIMITED"))
	*its = *now
	if f := look(t, other, q); f.Standing != until(RestTime, "RATE_LIMITED") {
		t.Errorf("the other instance found %+v", f.Standing)
	}
}

func TestMemoryKeepsTheNewerAnswer(t *testing.T) {
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	older, newer := answer(t, q, car()), answer(t, q, car())
	newer.FetchedAt = noon.Add(time.Hour)
	*now = newer.FetchedAt
	if err := s.Put(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	late := look(t, s, q)
	if err := s.Put(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	s.remember(q, late) // a look whose answer came last
	if f, ok := s.Remembered(q); !ok || !f.Answer.FetchedAt.Equal(newer.FetchedAt) {
		t.Errorf("%v, fetched at %v", ok, f.Answer.FetchedAt)
	}
	// What an operator has taken out of the table goes with the next look, but not what may be too new for it.
	empty(t, q)
	look(t, s, q)
	if _, ok := s.Remembered(q); !ok {
		t.Error("an answer of this second is gone")
	}
	*now = now.Add(lookAgain)
	look(t, s, q)
	if _, ok := s.Remembered(q); ok {
		t.Error("an answer that is not in the table any more is remembered")
	}
}

func TestMemoryIsBoundedByBytes(t *testing.T) {
	s, _ := store(t, realClient)
	packed := make([]byte, 600)
	const each = overhead + 600 + len("vin#1HGCM82633A000000#-#v")
	query := func(i int) vpic.Query { return vpic.Query{VIN: fmt.Sprintf("1HGCM82633A%06d", i)} }
	room := 1 << 20 / each
	for i := range 3 * room {
		s.keep(query(i), Row{Format: format, Packed: packed, Fetched: at(0), Expires: seconds(at(minute))})
	}
	if n := s.memory.Len(); n != room {
		t.Errorf("%d are kept, want %d", n, room)
	}
	if _, ok := s.memory.Get(Key(query(0))); ok {
		t.Error("the first is kept")
	}
	none := New(Config{Memory: 0})
	none.keep(query(0), Row{Format: format, Packed: packed, Fetched: at(0), Expires: seconds(at(minute))})
	if none.memory.Len() != 0 {
		t.Error("something is kept in no memory")
	}
}

// Damage in memory cannot be: but if it were, it would count as absent.
func TestWhatIsRememberedPassesTheSameChecks(t *testing.T) {
	s, _ := store(t, realClient)
	q := vpic.Query{VIN: accord}
	s.keep(q, Row{Format: format, Packed: []byte("not zlib"), Fetched: at(0), Expires: seconds(at(minute))})
	if f, ok := s.Remembered(q); ok || f.Has() {
		t.Errorf("%+v", f)
	}
}

// An answer that is asked for again and again is unpacked and understood once. It takes a thousand allocations.
func TestAnAnswerInMemoryIsOpenedOnce(t *testing.T) {
	const most = 10
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord}
	keep := func(fetched time.Time, fields map[string]string) {
		t.Helper()
		packed, err := pack(envelope(t, fields))
		if err != nil {
			t.Fatal(err)
		}
		s.keep(q, Row{Format: format, Packed: packed, Fetched: MillisOf(fetched), Expires: seconds(MillisOf(fetched.Add(lives.Hard)))})
	}
	keep(noon, car())
	s.Remembered(q)
	if n := testing.AllocsPerRun(100, func() { s.Remembered(q) }); n > most {
		t.Errorf("%.0f allocations, want at most %d", n, most)
	}

	// It grows old all the same,
	*now = noon.Add(lives.Soft)
	if f, ok := s.Remembered(q); !ok || f.Kind != Stale {
		t.Errorf("%v, %+v", ok, f.Standing)
	}
	*now = noon.Add(lives.Hard)
	if f, ok := s.Remembered(q); ok {
		t.Errorf("shown past its end: %+v", f.Standing)
	}
	// and makes room for a newer one, for one that ends sooner, and for damage.
	newer := car()
	newer["Trim"] = "LX"
	keep(*now, newer)
	if f, ok := s.Remembered(q); !ok || f.Kind != Fresh || f.Answer.Value("Trim").Text() != "LX" {
		t.Errorf("%v, %+v, trim %q", ok, f.Standing, f.Answer.Value("Trim").Text())
	}
	k, _ := s.memory.Get(Key(q))
	k.row.Expires = seconds(MillisOf(*now)) + 60
	s.keep(q, k.row)
	if f, ok := s.Remembered(q); !ok || f.Answer.Life > 61*time.Second {
		t.Errorf("%v, lives %v", ok, f.Answer.Life)
	}
	k.row.Packed = []byte("not zlib")
	s.keep(q, k.row)
	if f, ok := s.Remembered(q); ok || f.Has() {
		t.Errorf("%+v", f)
	}
}

func TestOpenedAnswersAreBoundedByBytes(t *testing.T) {
	s, _ := store(t, realClient)
	packed, err := pack(envelope(t, car()))
	if err != nil {
		t.Fatal(err)
	}
	row := Row{Format: format, Packed: packed, Fetched: at(0), Expires: seconds(at(minute))}
	for range 3 { // the same under many names
		for i := range 30 {
			if _, err := s.open(fmt.Sprint(i), row, vpic.Query{VIN: accord}); err != nil {
				t.Fatal(err)
			}
		}
	}
	each := overhead + openedSize*len(envelope(t, car())) + 2
	if n, room := s.opened.Len(), 1<<20/openedShare/each; n != room {
		t.Errorf("%d are kept, want %d", n, room)
	}
}

// Many ask for one answer while it is replaced again and again: everybody gets one whole answer, never older than one that was there before he
// asked, and each reads it as if it were his own.
func TestManyAskForAnAnswerThatIsReplaced(t *testing.T) {
	const editions, askers = 25, 4
	s, _ := store(t, realClient)
	q := vpic.Query{VIN: accord}
	rows := make([]Row, editions)
	for n := range rows {
		fields := car()
		fields["Trim"], fields["Series"] = fmt.Sprintf("T%d", n), fmt.Sprintf("S%d", n)
		packed, err := pack(envelope(t, fields))
		if err != nil {
			t.Fatal(err)
		}
		rows[n] = Row{Format: format, Packed: packed, Fetched: at(0) + Millis(n), Expires: seconds(at(minute))}
	}
	s.keep(q, rows[0])
	var newest atomic.Int64
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for newest.Load() < editions-1 {
				least := newest.Load()
				f, ok := s.Remembered(q)
				fields := f.Answer.Decoding().Fields()
				n := int64(f.Answer.FetchedAt.Sub(at(0).Time()) / time.Millisecond)
				if want := fmt.Sprint(n); !ok || n < least || fields["Trim"] != "T"+want || fields["Series"] != "S"+want {
					t.Errorf("%v, edition %d after %d has trim %s and series %s", ok, n, least, fields["Trim"], fields["Series"])
					return
				}
				clear(fields)
				_ = f.Answer.Decoding().JSON()
				clear(f.Answer.Body())
			}
		})
	}
	for n := range rows {
		s.keep(q, rows[n])
		newest.Store(int64(n))
		s.Remembered(q)
	}
	all.Wait()
}
