//go:build unix

package results

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"vingate/internal/ddb"
	"vingate/internal/ddb/ddbtest"
	"vingate/internal/tables"
	"vingate/internal/vpic"
)

func TestTheKeyHoldsEverythingTheAnswerDependsOn(t *testing.T) {
	for key, q := range map[string]vpic.Query{
		"vin#1HGCM82633A004352#-#v":    {VIN: accord},
		"vin#1HGCM82633A004352#2003#v": {VIN: accord, ModelYear: 2003},
		"vin#1HGCM82633A004352#-#x":    {VIN: accord, Extended: true},
		"vin#5UXWX7C5*BA#2011#x":       {VIN: "5UXWX7C5*BA", ModelYear: 2011, Extended: true},
	} {
		if got := Key(q); got != key {
			t.Errorf("Key(%+v) = %s, want %s", q, got, key)
		}
	}
}

// look reads past the memory.
func look(t testing.TB, s *Store, q vpic.Query) Found {
	t.Helper()
	f, err := s.Look(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// empty takes a question's row away.
func empty(t testing.TB, qs ...vpic.Query) {
	t.Helper()
	for _, q := range qs {
		place(t, Key(q), nil)
	}
}

func TestAnAnswerComesBackAsNHTSAGaveIt(t *testing.T) {
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord, ModelYear: 2003}
	others := []vpic.Query{{VIN: accord}, {VIN: accord, ModelYear: 2004}, {VIN: accord, ModelYear: 2003, Extended: true}, {VIN: "1HGCM82633A004353", ModelYear: 2003}}
	empty(t, append(others, q)...)
	put := answer(t, q, car())
	if err := s.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	*now = noon.Add(90 * time.Minute)
	remembered, ok := s.Remembered(q)
	if !ok {
		t.Fatal("nothing is remembered")
	}
	for where, got := range map[string]Found{"in the table": look(t, s, q), "in memory": remembered} {
		if got.Kind != Fresh || !bytes.Equal(got.Answer.Body(), put.Body()) || !reflect.DeepEqual(got.Answer.Decoding(), put.Decoding()) || got.Answer.Query() != q || !got.Answer.FetchedAt.Equal(noon) {
			t.Errorf("%s: %+v", where, got.Answer)
		}
		if got.Answer.Took != 0 {
			t.Errorf("%s: a stored answer took %v", where, got.Answer.Took)
		}
		if life := got.Answer.Life; got.Answer.Age(*now) != 90*time.Minute || life != lives.Hard+time.Second-123*time.Millisecond && life != lives.Hard || got.Answer.FreshFor != lives.Soft {
			t.Errorf("%s: age %v, life %v, fresh for %v", where, got.Answer.Age(*now), life, got.Answer.FreshFor)
		}
		if got.Answer.Age(noon.Add(-time.Second)) != 0 {
			t.Error("an answer from the future has a negative age")
		}
	}
	for _, other := range others {
		if f := look(t, s, other); f.Has() || f.Kind != Lead || f.Damage != nil {
			t.Errorf("%+v has %+v", other, f)
		}
		if _, ok := s.Remembered(other); ok {
			t.Errorf("%+v is remembered", other)
		}
	}
	if attrKey != tables.Key || attrExpires != tables.TTL {
		t.Errorf("the table is made for %s and %s, the items have %s and %s", tables.Key, tables.TTL, attrKey, attrExpires)
	}
}

func TestHowLongAnAnswerLives(t *testing.T) {
	day := 24 * time.Hour
	for _, tc := range []struct {
		name    string
		outcome vpic.Outcome
		codes   []int
		want    time.Duration
	}{
		{"clean", vpic.Clean, []int{0}, lives.Hard},
		{"check digit", vpic.Warned, []int{1}, lives.Hard},
		{"invalid characters", vpic.Warned, []int{1, 400}, lives.Hard},
		{"maker unknown", vpic.Unknown, []int{7}, lives.Negative},
		{"maker unknown, invalid characters", vpic.Unknown, []int{7, 400}, lives.Negative},
		{"code 7 decides, whatever the outcome", vpic.Warned, []int{7}, lives.Negative},
		{"nothing known without code 7", vpic.Unknown, []int{8}, lives.Negative},
		{"incomplete VIN", vpic.Partial, []int{6}, day},
		{"no detail", vpic.Partial, []int{8}, day},
		{"no detail, but identified", vpic.Warned, []int{8}, day},
		{"no model year", vpic.Warned, []int{11}, day},
		{"unexplained characters beside clean", vpic.Warned, []int{0, 14}, day},
		{"codes 1 and 11 are not 111", vpic.Warned, []int{1, 12}, lives.Hard},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := lives.of(tc.outcome, tc.codes); got != tc.want {
				t.Errorf("lives %v, want %v", got, tc.want)
			}
		})
	}
	short := Lives{Hard: time.Hour, Soft: time.Minute, Negative: 2 * time.Hour}
	for _, o := range []vpic.Outcome{vpic.Clean, vpic.Partial, vpic.Unknown} {
		if got := short.of(o, nil); got > time.Hour {
			t.Errorf("%s lives %v, longer than CACHE_TTL", o, got)
		}
	}
}

// An item past its end counts as absent, although the table still returns it: its own deletion comes hours later.
func TestNodeRateLimiterFlexible310_ExpiredButPresentCountsAsAbsent(t *testing.T) {
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		after time.Duration
		kind  Kind
	}{{0, Fresh}, {lives.Soft - time.Second, Fresh}, {lives.Soft, Stale}, {lives.Hard - time.Second, Stale}, {lives.Hard, Lead}, {lives.Hard + time.Second, Lead}, {10 * lives.Hard, Lead}} {
		*now = noon.Add(at.after)
		f := look(t, s, q)
		r, remembered := s.Remembered(q)
		if f.Kind != at.kind || f.Has() != (at.kind != Lead) || remembered != f.Has() || remembered && r.Kind != at.kind {
			t.Errorf("after %v: %+v in the table, %v %+v in memory, want %v", at.after, f.Standing, remembered, r.Standing, at.kind)
		}
	}
	if taken(t, Key(q)) == nil {
		t.Error("the item is gone, so this shows nothing")
	}
}

// The attribute DynamoDB deletes by counts seconds. In milliseconds an item would live for 50,000 years.
func TestDyndbMutex14_TheEndIsInSeconds(t *testing.T) {
	s, _ := store(t, realClient)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	ends := func(at time.Time) {
		t.Helper()
		expires, ok := integer(taken(t, Key(q))[attrExpires])
		if got := time.Unix(expires, 0); !ok || got.Before(at) || got.After(at.Add(2*time.Second)) {
			t.Errorf("ends %v, want %v, rounded up to a second", got, at)
		}
	}
	led, _, err := s.Elect(t.Context(), q, look(t, s, q), noon.Add(16*time.Second)) // nothing but a flight
	if err != nil || led == nil {
		t.Fatal(led, err)
	}
	ends(noon.Add(16*time.Second + 500*time.Millisecond + remembered))
	if _, err := s.Land(t.Context(), led, answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	ends(noon.Add(lives.Hard))
}

func TestALifeThatWasMadeShorterHoldsForWhatIsStored(t *testing.T) {
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	s.Lives = Lives{Hard: time.Hour, Soft: time.Minute, Negative: time.Hour}
	*now = noon.Add(2 * time.Hour)
	if f := look(t, s, q); f.Has() || f.Kind != Lead {
		t.Errorf("found %+v", f.Standing)
	}
	if _, ok := s.Remembered(q); ok {
		t.Error("it is remembered")
	}
}

// An operator may change the lives at any time, in any direction: what comes back obeys both the old ones and the new.
func TestProperty_LivesHoldWhateverTheyWereBefore(t *testing.T) {
	found := 0
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) Lives {
			d := func(of string) time.Duration {
				return time.Duration(rapid.IntRange(1, 20).Draw(rt, name+of)) * rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Hour}).Draw(rt, name+of+" unit")
			}
			return Lives{Hard: d(" hard"), Soft: d(" soft"), Negative: d(" negative")}
		}
		before, after := draw("before"), draw("after")
		q := vpic.Query{VIN: accord}
		a := answer(t, q, car())
		a.FetchedAt = a.FetchedAt.Add(time.Duration(rapid.IntRange(0, 999).Draw(rt, "ms")) * time.Millisecond)
		writer, wrote := store(t, realClient)
		*wrote, writer.Lives = a.FetchedAt, before
		empty(t, q)
		if err := writer.Put(t.Context(), a); err != nil {
			rt.Fatal(err)
		}
		reader, clock := store(t, realClient)
		now := a.FetchedAt.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(rt, "age")) / time.Duration(rapid.SampledFrom([]int{1, 1000, 10000}).Draw(rt, "divided")))
		*clock, reader.Lives = now, after
		got, ok := look(t, reader, q).Answer, look(t, reader, q).Has()
		if !ok {
			return
		}
		found++
		most := min(after.Hard, before.Hard+time.Second) // the table's end is in whole seconds, rounded up
		if got.Life > most || got.FreshFor > got.Life || got.FreshFor > after.Soft || got.FreshFor <= 0 || got.Age(now) >= got.Life {
			rt.Fatalf("age %v: life %v, fresh for %v; written with %+v, read with %+v", got.Age(now), got.Life, got.FreshFor, before, after)
		}
	})
	if found == 0 {
		t.Error("nothing was found: the property showed nothing")
	}
}

func TestAnItemThatCannotBeUsedIsAbsentAndReported(t *testing.T) {
	q := vpic.Query{VIN: accord}
	other := car()
	other["VIN"] = "1FTMW1T88MFA00001"
	foreign, _ := pack(envelope(t, other))
	html, _ := pack([]byte("<html>maintenance</html>"))
	truncated, _ := pack(envelope(t, car()))
	truncated = truncated[:len(truncated)/2]
	set := func(name string, v types.AttributeValue) func(map[string]types.AttributeValue) {
		return func(item map[string]types.AttributeValue) { item[name] = v }
	}
	for name, damage := range map[string]func(map[string]types.AttributeValue){
		"no body":                  func(i map[string]types.AttributeValue) { delete(i, "b") },
		"body as text":             set("b", &types.AttributeValueMemberS{Value: "{}"}),
		"empty body":               set("b", &types.AttributeValueMemberB{Value: []byte{}}),
		"truncated body":           set("b", &types.AttributeValueMemberB{Value: truncated}),
		"HTML":                     set("b", &types.AttributeValueMemberB{Value: html}),
		"another VIN's answer":     set("b", &types.AttributeValueMemberB{Value: foreign}),
		"no format":                func(i map[string]types.AttributeValue) { delete(i, "v") },
		"a later format":           set("v", number(int64(format+1))),
		"no end":                   func(i map[string]types.AttributeValue) { delete(i, "expires") },
		"an end that is no number": set("expires", &types.AttributeValueMemberS{Value: "tomorrow"}),
		"an end before its start":  set("f", number(noon.Add(10000*time.Hour).UnixMilli())),
		"no time":                  func(i map[string]types.AttributeValue) { delete(i, "f") },
		"a time in seconds":        set("f", number(noon.UnixMilli()*1000)),
		"fetched tomorrow":         set("f", number(noon.Add(24*time.Hour).UnixMilli())),
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := store(t, realClient)
			empty(t, q)
			if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
				t.Fatal(err)
			}
			it := taken(t, Key(q))
			damage(it)
			place(t, Key(q), it)
			f := look(t, s, q)
			var corrupt *CorruptError
			if f.Has() || f.Kind != Lead || !errors.As(f.Damage, &corrupt) {
				t.Fatalf("found %+v, %v, want nothing and a *CorruptError", f.Standing, f.Damage)
			}
			if f.Answer.Fields() != nil || f.Answer.Make() != "" || f.Answer.Body() != nil {
				t.Errorf("something of the item came through: %+v", f.Answer)
			}
			for _, secret := range []string{accord, "1FTMW1T88MFA00001", "HONDA", "maintenance"} {
				if strings.Contains(f.Damage.Error(), secret) {
					t.Errorf("the error shows %q: %v", secret, f.Damage)
				}
			}
			// It stands in nobody's way, whichever way the next answer comes.
			led, _, err := s.Elect(t.Context(), q, f, noon.Add(10*time.Second))
			if led == nil || err != nil {
				t.Fatalf("nobody can be elected: %v, %v", led, err)
			}
			newer := answer(t, q, car())
			newer.FetchedAt = noon.Add(time.Second)
			if stored, err := s.Land(t.Context(), led, newer); !stored || err != nil || look(t, s, q).Kind != Fresh {
				t.Errorf("a landing: %v, %v, found %+v", stored, err, look(t, s, q).Standing)
			}
			place(t, Key(q), it)
			if err := s.Put(t.Context(), newer); err != nil || look(t, s, q).Kind != Fresh {
				t.Errorf("without a flight: %v, found %+v", err, look(t, s, q))
			}
		})
	}
}

func TestEveryTroubleWithTheTableHasItsName(t *testing.T) {
	q := vpic.Query{VIN: "1HGCM82633A00TRBL"} // its own: what hangs is applied
	body := answer(t, q, map[string]string{"VIN": q.VIN, "ErrorCode": "0"})
	for _, tc := range []struct {
		fault ddbtest.Fault
		want  ddb.Fault
	}{
		{ddbtest.Fault{Status: 400, Code: "ProvisionedThroughputExceededException"}, ddb.Throttled},
		{ddbtest.Fault{Status: 400, Code: "ThrottlingException"}, ddb.Throttled},
		{ddbtest.Fault{Status: 400, Code: "AccessDeniedException"}, ddb.Denied},
		{ddbtest.Fault{Status: 400, Code: "ResourceNotFoundException"}, ddb.MissingTable},
		{ddbtest.Fault{Status: 500, Code: "InternalServerError"}, ddb.Unreachable},
		{ddbtest.Fault{Status: 503, Body: "<html>"}, ddb.Unreachable},
		{ddbtest.Fault{Cut: true}, ddb.Unreachable},
		{ddbtest.Fault{Before: true}, ddb.Timeout},
		{ddbtest.Fault{Hang: true}, ddb.Timeout},
	} {
		t.Run(fmt.Sprint(tc.want, tc.fault), func(t *testing.T) {
			t.Parallel()
			client, wire := ddbtest.On(realClient)
			s, _ := store(t, client)
			wire.Script(func(string, int) ddbtest.Fault { return tc.fault })
			began := time.Now()
			_, look := s.Look(t.Context(), q)
			_, put := s.Land(t.Context(), nil, body)
			led, _, elect := s.Elect(t.Context(), q, Found{}, noon.Add(time.Second))
			if led == nil {
				t.Error("who may have been elected cannot end his flight")
			}
			quit := s.Quit(t.Context(), &Led{ID: "me", Query: q}, Failure{})
			deferred := s.Defer(t.Context(), q, Found{}, "why")
			for op, err := range map[string]error{"read": look, "write": put, "write ": elect, "write  ": quit, "write   ": deferred} {
				var e *StoreError
				if !errors.As(err, &e) || e.Fault != tc.want || e.Op != strings.TrimSpace(op) {
					t.Errorf("%s: %v, want %s", op, err, tc.want)
				}
			}
			if took := time.Since(began); took > lookBudget+2*writeBudget+3*writeBudget+500*time.Millisecond {
				t.Errorf("all of it took %v", took)
			}
		})
	}
}

func TestNothingIsWrittenToATableThatIsKnownToBeDown(t *testing.T) {
	client, wire := ddbtest.On(realClient)
	s, _ := store(t, client)
	s.Down = func() bool { return true }
	q := vpic.Query{VIN: accord}
	_, err := s.Land(t.Context(), nil, answer(t, q, car()))
	quit := s.Quit(t.Context(), &Led{ID: "me", Query: q}, Failure{})
	for _, err := range []error{err, quit} {
		var e *StoreError
		if !errors.As(err, &e) || e.Fault != ddb.Down {
			t.Errorf("%v", err)
		}
	}
	if n := wire.Count("UpdateItem"); n != 0 {
		t.Errorf("%d writes", n)
	}
	if f, ok := s.Remembered(q); !ok || f.Kind != Fresh {
		t.Error("the answer is not in memory either")
	}
}

// A write whose answer is lost, or that is sent twice, is one write.
func TestALostAnswerCostsNothing(t *testing.T) {
	client, wire := ddbtest.On(realClient)
	q := vpic.Query{VIN: accord}
	lost := func(op string) {
		wire.Script(func(asked string, n int) ddbtest.Fault { return ddbtest.Fault{Lost: asked == op && n == 1} })
	}
	defer wire.Script(nil)
	s, _ := store(t, client)
	other, _ := store(t, realClient)
	other.NewID = func() string { return "other" }
	empty(t, q)

	lost("UpdateItem")
	led, _, err := s.Elect(t.Context(), q, look(t, s, q), noon.Add(10*time.Second))
	if led == nil || err != nil {
		t.Fatalf("an election: %v, %v", led, err)
	}
	if second, met, err := other.Elect(t.Context(), q, Found{}, noon.Add(10*time.Second)); second != nil || err != nil || met.Kind != Follow || met.Flight.Leader != led.ID {
		t.Errorf("another is elected too: %v, %+v, %v", second, met.Standing, err)
	}
	lost("UpdateItem")
	if err := s.Quit(t.Context(), led, Failure{Reason: "budget", RetryAfter: 3 * time.Second, TimedOut: true}); err != nil {
		t.Errorf("an end: %v", err)
	}
	f := look(t, other, q)
	if f.Kind != Lead || f.Verdict != (Verdict{led.ID, "budget", MillisOf(noon.Add(3 * time.Second))}) || f.Slow != (Slow{1, MillisOf(noon)}) {
		t.Errorf("left %+v", f.Row)
	}
	if led, _, err = s.Elect(t.Context(), q, f, noon.Add(10*time.Second)); led == nil || err != nil {
		t.Fatalf("the next election: %v, %v", led, err)
	}
	lost("UpdateItem")
	if stored, err := s.Land(t.Context(), led, answer(t, q, car())); !stored || err != nil {
		t.Errorf("a landing: %v, %v", stored, err)
	}
	if f := look(t, other, q); f.Kind != Fresh || f.Flight != (Flight{}) || f.Slow != (Slow{}) || f.Verdict != (Verdict{}) {
		t.Errorf("left %+v", f.Row)
	}
}

// A leader that was frozen past its flight keeps its answer, and leaves the flight of the one who followed it alone.
func TestAStaleLeadersAnswerLandsBesideTheNextFlight(t *testing.T) {
	s, now := store(t, realClient)
	q := vpic.Query{VIN: accord}
	empty(t, q)
	stale, _, err := s.Elect(t.Context(), q, look(t, s, q), noon.Add(10*time.Second))
	if stale == nil || err != nil {
		t.Fatal(stale, err)
	}
	*now = noon.Add(10 * time.Second)
	if f := look(t, s, q); f.Kind != Follow {
		t.Errorf("the leader has just ended on its own clock, and others: %+v", f.Standing)
	}
	*now = noon.Add(11 * time.Second)
	next, _, err := s.Elect(t.Context(), q, look(t, s, q), noon.Add(20*time.Second))
	if next == nil || err != nil {
		t.Fatalf("nobody takes over: %v, %v", next, err)
	}
	if err := s.Quit(t.Context(), stale, Failure{Reason: "timeout"}); err != nil {
		t.Error(err)
	}
	if f := look(t, s, q); f.Kind != Follow || f.Flight.Leader != next.ID || f.Verdict != (Verdict{}) {
		t.Errorf("the stale leader's end left %+v", f.Row)
	}
	old, fresh := answer(t, q, car()), answer(t, q, car())
	old.FetchedAt, fresh.FetchedAt = noon.Add(9*time.Second), noon.Add(12*time.Second)
	if stored, err := s.Land(t.Context(), stale, old); !stored || err != nil {
		t.Errorf("the stale leader's answer: %v, %v", stored, err)
	}
	if f := look(t, s, q); f.Kind != Fresh || f.Flight.Leader != next.ID || f.Flight.End == 0 {
		t.Errorf("it left %+v, %+v", f.Standing, f.Flight)
	}
	if stored, err := s.Land(t.Context(), next, fresh); !stored || err != nil {
		t.Errorf("the next leader's answer: %v, %v", stored, err)
	}
	if stored, err := s.Land(t.Context(), stale, old); stored || err != nil {
		t.Errorf("the stale leader's answer once more: %v, %v", stored, err)
	}
	if f := look(t, s, q); f.Flight != (Flight{}) || !f.Answer.FetchedAt.Equal(fresh.FetchedAt) {
		t.Errorf("in the end there is %+v of %v", f.Flight, f.Answer.FetchedAt)
	}
}

// Ten instances that saw the same row: one write each, one is elected, the others know whom to follow.
func TestOneOfTenIsElected(t *testing.T) {
	q := vpic.Query{VIN: accord}
	empty(t, q)
	var wg sync.WaitGroup
	var elected, followed atomic.Int32
	client, wire := ddbtest.On(realClient)
	f := look(t, func() *Store { s, _ := store(t, client); return s }(), q)
	for i := range 10 {
		wg.Go(func() {
			s, _ := store(t, client)
			s.NewID = func() string { return fmt.Sprint("instance", i) }
			switch led, met, err := s.Elect(t.Context(), q, f, noon.Add(10*time.Second)); {
			case err != nil:
				t.Error(err)
			case led != nil:
				elected.Add(1)
			case met.Kind == Follow:
				followed.Add(1)
			}
		})
	}
	wg.Wait()
	if elected.Load() != 1 || followed.Load() != 9 || wire.Count("UpdateItem") != 10 || wire.Count("GetItem") != 1 {
		t.Errorf("%d elected, %d follow, with %d writes and %d reads", elected.Load(), followed.Load(), wire.Count("UpdateItem"), wire.Count("GetItem"))
	}
}
