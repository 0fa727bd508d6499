package results

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// at is a moment of these tests, in milliseconds after noon.
func at(ms int) Millis { return MillisOf(noon) + Millis(ms) }

const minute = 60_000

func TestWhatARowMeans(t *testing.T) {
	flight := Flight{"leader", at(5000)}
	answered := Row{Format: 1, Packed: []byte("x"), Fetched: at(-1000)}
	fresh, stale, over := Span{at(1000), at(9000)}, Span{at(-10), at(9000)}, Span{}
	with := func(r Row, change func(*Row)) Row { change(&r); return r }
	for name, tc := range map[string]struct {
		row  Row
		kept Span
		want Standing
	}{
		"nothing is there":                                     {Row{}, over, Standing{}},
		"a fresh answer":                                       {answered, fresh, Standing{Kind: Fresh}},
		"a fresh answer beside a flight":                       {with(answered, func(r *Row) { r.Flight = flight }), fresh, Standing{Kind: Fresh}},
		"a fresh answer to what was refused":                   {with(answered, func(r *Row) { r.Slow = Slow{2, at(0)} }), fresh, Standing{Kind: Fresh}},
		"an answer past its freshness":                         {answered, stale, Standing{Kind: Stale}},
		"at the very end of its freshness":                     {answered, Span{at(0), at(9000)}, Standing{Kind: Stale}},
		"while it is refreshed":                                {with(answered, func(r *Row) { r.Flight = flight }), stale, Standing{Kind: Stale, Until: at(5000)}},
		"when the one who refreshed it is gone":                {with(answered, func(r *Row) { r.Flight = Flight{"leader", at(0)} }), stale, Standing{Kind: Stale}},
		"while it rests":                                       {with(answered, func(r *Row) { r.Rest = Rest{at(minute), "why"} }), stale, Standing{Kind: Stale, Until: at(minute), Reason: "why"}},
		"when it has rested":                                   {with(answered, func(r *Row) { r.Rest = Rest{at(0), "why"} }), stale, Standing{Kind: Stale}},
		"a rest that no clock can mean":                        {with(answered, func(r *Row) { r.Rest = Rest{at(3 * minute), "why"} }), stale, Standing{Kind: Stale}},
		"what cannot be refreshed, because it is too slow":     {with(answered, func(r *Row) { r.Slow = Slow{9, at(0)} }), stale, Standing{Kind: Stale}},
		"an answer past its end":                               {answered, over, Standing{}},
		"an answer past its end, and a flight":                 {with(answered, func(r *Row) { r.Flight = flight }), over, Standing{Kind: Follow, Until: at(5000)}},
		"a flight":                                             {Row{Flight: flight}, over, Standing{Kind: Follow, Until: at(5000)}},
		"the last moment of a flight":                          {Row{Flight: Flight{"leader", at(1)}}, over, Standing{Kind: Follow, Until: at(1)}},
		"a flight that is over":                                {Row{Flight: Flight{"leader", at(0)}}, over, Standing{}},
		"a flight that was ended":                              {Row{Flight: Flight{"leader", 0}, Verdict: Verdict{"leader", "why", at(9000)}}, over, Standing{}},
		"a flight longer than any request":                     {Row{Flight: Flight{"leader", at(35_001)}}, over, Standing{}},
		"one call that was not answered in time":               {Row{Slow: Slow{1, at(-1)}}, over, Standing{}},
		"two of them":                                          {Row{Slow: Slow{2, at(-1)}}, over, Standing{Kind: Refused, Until: at(minute - 1)}},
		"three of them":                                        {Row{Slow: Slow{3, at(-minute + 1)}}, over, Standing{Kind: Refused, Until: at(1)}},
		"two of them a minute ago":                             {Row{Slow: Slow{2, at(-minute)}}, over, Standing{}},
		"two of them, in a future that no clock can mean":      {Row{Slow: Slow{2, at(minute + 1)}}, over, Standing{}},
		"two of them, and somebody tries again":                {Row{Slow: Slow{2, at(-1)}, Flight: flight}, over, Standing{Kind: Follow, Until: at(5000)}},
		"past the time that the table deletes it by, a flight": {Row{Flight: flight, Expires: 1}, over, Standing{Kind: Follow, Until: at(5000)}},
	} {
		if got := tc.row.Stands(at(0), tc.kept); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestCallsInARowThatWereNotAnsweredInTime(t *testing.T) {
	s := Slow{}
	for i, ms := range []int{0, 10_000, 10 * minute, 20 * minute, 30*minute + 1} {
		s = s.slower(at(ms))
		if want := []int{1, 2, 3, 4, 1}[i]; s != (Slow{want, at(ms)}) {
			t.Errorf("after %d ms: %+v, want %d", ms, s, want)
		}
	}
}

// write is what all writes of a row are.
type write interface {
	Holds(Row) bool
	Apply(Row) Row
}

func arbitraryFlight(t *rapid.T, label string) Flight {
	return Flight{rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, label), rapid.SampledFrom([]Millis{0, at(-1), at(0), at(1), at(9000)}).Draw(t, label+" end")}
}

// arbitraryRow is any row there may be, at noon.
func arbitraryRow(t *rapid.T) Row {
	r := Row{Expires: rapid.SampledFrom([]int64{1, seconds(at(0)), seconds(at(minute))}).Draw(t, "expires")}
	if rapid.Bool().Draw(t, "answer") {
		r.Format, r.Packed, r.Fetched = format, []byte(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "body")), at(rapid.IntRange(-2, 2).Draw(t, "fetched"))
	}
	r.Flight = arbitraryFlight(t, "flight")
	if r.Flight.Leader == "" {
		r.Flight.End = 0
	}
	if rapid.IntRange(0, 3).Draw(t, "verdict") == 0 {
		r.Verdict = Verdict{"b", "budget", at(rapid.IntRange(-1, 1).Draw(t, "retry"))}
	}
	if rapid.IntRange(0, 3).Draw(t, "slow") == 0 {
		r.Slow = Slow{rapid.IntRange(1, 3).Draw(t, "calls"), at(rapid.IntRange(-1, 1).Draw(t, "last"))}
	}
	if rapid.IntRange(0, 3).Draw(t, "rest") == 0 {
		r.Rest = Rest{at(rapid.IntRange(-1, 1).Draw(t, "until")), rapid.SampledFrom([]string{"", "TENANT"}).Draw(t, "why")}
	}
	return r
}

// arbitraryWrite is any write that is planned on what was seen, with its expression.
func arbitraryWrite(t *rapid.T, seen Row) (write, *expression) {
	it := encode("k", seen)
	switch rapid.IntRange(0, 4).Draw(t, "write") {
	case 0:
		kept := Span{}
		if seen.Fetched != 0 && rapid.Bool().Draw(t, "kept") {
			kept = Span{at(1), at(2)}
		}
		w := seen.PlanElect(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"), at(9000), kept)
		return w, elect(w, it)
	case 1:
		w := Quit{Leader: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")}
		if rapid.Bool().Draw(t, "says") {
			w.Verdict = Verdict{w.Leader, "throttled", at(30_000)}
		}
		if rapid.Bool().Draw(t, "timed out") {
			w.Slow = seen.Slow.slower(at(0))
		}
		if rapid.Bool().Draw(t, "rests") {
			w.Rest = Rest{at(minute), "UPSTREAM_TIMEOUT"}
		}
		return w, quit(w)
	case 2:
		w := Defer{seen.Seen(), Rest{at(minute), "RATE_LIMITED"}}
		return w, deferred(w, it)
	}
	w := Land{Leader: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "id"), Format: format, Packed: []byte("three"), Fetched: at(rapid.IntRange(-2, 3).Draw(t, "at")), Expires: seconds(at(minute))}
	if rapid.Bool().Draw(t, "met") {
		if again, ok := w.PlanLand(seen); ok {
			w = again
		}
	}
	return w, land(w)
}

func TestProperty_OfAllWhoSawTheSameRowOneIsElected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := arbitraryRow(t)
		var elections []Elect
		for i := range rapid.IntRange(2, 5).Draw(t, "callers") {
			elections = append(elections, r.PlanElect(fmt.Sprint("id", i), at(9000), Span{}))
		}
		won := ""
		for _, i := range rapid.Permutation(elections).Draw(t, "order") {
			if !i.Holds(r) {
				continue
			}
			if won != "" {
				t.Fatalf("%s and %s are elected", won, i.Flight.Leader)
			}
			won, r = i.Flight.Leader, i.Apply(r)
			if i.Holds(r) {
				t.Fatal("an election that is sent twice is won twice")
			}
		}
		if won == "" || r.Flight.Leader != won || r.Fetched != 0 || r.Packed != nil {
			t.Fatalf("%q is elected, and the row is %+v", won, r)
		}
	})
}

// Whatever writes meet a row, late, twice or in another order: an answer never gives way to an older one, nobody ends a flight but its leader or
// a later election, and what a stale leader writes changes nothing else.
func TestProperty_NoWriteDoesHarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := arbitraryRow(t)
		seen := r
		for range rapid.IntRange(1, 12).Draw(t, "writes") {
			if rapid.IntRange(0, 2).Draw(t, "looks") == 0 {
				seen = r
			}
			w, _ := arbitraryWrite(t, seen)
			if !w.Holds(r) {
				continue
			}
			before := r
			r = w.Apply(r)
			e, elects := w.(Elect)
			if r.Fetched < before.Fetched && !(elects && e.Alone && e.Seen.Fetched == before.Fetched) {
				t.Fatalf("%+v made %+v of %+v", w, r, before)
			}
			flying := before.Flight.Leader != "" && before.Flight.End != 0
			switch w := w.(type) {
			case Land:
				if flying && w.Leader != before.Flight.Leader && r.Flight != before.Flight {
					t.Fatalf("%+v ended the flight of %+v", w, before)
				}
			case Quit:
				if w.Leader != before.Flight.Leader || r.Fetched != before.Fetched {
					t.Fatalf("%+v on %+v", w, before)
				}
			case Defer:
				before.Rest = r.Rest
				if fmt.Sprint(before) != fmt.Sprint(r) {
					t.Fatalf("%+v made %+v of %+v", w, r, before)
				}
			}
		}
	})
}

func TestALandingIsPlannedOnWhatItMeets(t *testing.T) {
	w := Land{Leader: "me", Format: format, Packed: []byte("mine"), Fetched: at(0), Expires: 1}
	for name, tc := range map[string]struct {
		met    Row
		lands  bool
		flight Flight // what is left of it
	}{
		"nothing is there":                     {Row{}, true, Flight{}},
		"my own flight":                        {Row{Flight: Flight{"me", at(9000)}}, true, Flight{}},
		"my own flight over an older answer":   {Row{Flight: Flight{"me", at(9000)}, Fetched: at(-1)}, true, Flight{}},
		"another's flight":                     {Row{Flight: Flight{"other", at(9000)}}, true, Flight{"other", at(9000)}},
		"another's flight that was ended":      {Row{Flight: Flight{"other", 0}}, true, Flight{}},
		"another's flight, whose time is over": {Row{Flight: Flight{"other", at(-1)}}, true, Flight{"other", at(-1)}},
		"an answer as new":                     {Row{Fetched: at(0)}, false, Flight{}},
		"a newer answer":                       {Row{Fetched: at(1)}, false, Flight{}},
		"a newer answer, and a flight":         {Row{Fetched: at(1), Flight: Flight{"other", at(9000)}}, false, Flight{"other", at(9000)}},
	} {
		again, ok := w.PlanLand(tc.met)
		if ok != tc.lands || ok && !again.Holds(tc.met) {
			t.Errorf("%s: %+v, %v", name, again, ok)
			continue
		}
		after := tc.met
		if ok {
			after = again.Apply(tc.met)
		}
		if after.Flight != tc.flight || ok && after.Fetched != at(0) {
			t.Errorf("%s: left %+v", name, after)
		}
	}
}

func TestAFlightEndsOnEverybodysClock(t *testing.T) {
	const bound = 250 * time.Millisecond
	row := Row{Flight: Flight{"leader", endOf(MillisOf(noon), bound)}} // its leader is over at noon on its own clock
	for _, leader := range []time.Duration{-bound, 0, bound} {
		for _, other := range []time.Duration{-bound, 0, bound} {
			// The leader's last moment is noon on its clock: true time noon - leader.
			last := noon.Add(-leader)
			if s := row.Stands(MillisOf(last.Add(other)), Span{}); s.Kind != Follow {
				t.Errorf("leader %v off, other %v off: %+v while the leader lives", leader, other, s)
			}
		}
	}
}
