package results

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"pgregory.net/rapid"

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

func TestAnAnswerComesBackAsNHTSAGaveIt(t *testing.T) {
	api := &table{}
	s, now := store(api)
	q := vpic.Query{VIN: accord, ModelYear: 2003}
	put := answer(t, q, car())
	if err := s.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	*now = noon.Add(90 * time.Minute)
	got, ok, err := s.Get(t.Context(), q)
	if err != nil || !ok {
		t.Fatalf("Get = %v, %v", ok, err)
	}
	if !bytes.Equal(got.Body(), put.Body()) || !reflect.DeepEqual(got.Decoding(), put.Decoding()) || got.Query() != q || !got.FetchedAt.Equal(noon) {
		t.Errorf("got %+v", got.Answer)
	}
	if got.Took != 0 {
		t.Errorf("a stored answer took %v", got.Took)
	}
	if got.Age(*now) != 90*time.Minute || got.Life != lives.Hard+time.Second-123*time.Millisecond && got.Life != lives.Hard || got.FreshFor != lives.Soft {
		t.Errorf("age %v, life %v, fresh for %v", got.Age(*now), got.Life, got.FreshFor)
	}
	if got.Age(noon.Add(-time.Second)) != 0 {
		t.Error("an answer from the future has a negative age")
	}
	for _, other := range []vpic.Query{{VIN: accord}, {VIN: accord, ModelYear: 2004}, {VIN: accord, ModelYear: 2003, Extended: true}, {VIN: "1HGCM82633A004353", ModelYear: 2003}} {
		if _, ok, err := s.Get(t.Context(), other); ok || err != nil {
			t.Errorf("Get(%+v) = %v, %v, want nothing", other, ok, err)
		}
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
	api := &table{}
	s, now := store(api)
	q := vpic.Query{VIN: accord}
	if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		after time.Duration
		found bool
	}{{0, true}, {lives.Hard - time.Second, true}, {lives.Hard, false}, {lives.Hard + time.Second, false}, {10 * lives.Hard, false}} {
		*now = noon.Add(at.after)
		if _, ok, err := s.Get(t.Context(), q); ok != at.found || err != nil {
			t.Errorf("after %v: %v, %v, want %v", at.after, ok, err, at.found)
		}
	}
	if len(api.items) != 1 {
		t.Error("the item is gone, so this shows nothing")
	}
}

// The attribute DynamoDB deletes by counts seconds. In milliseconds an item would live for 50,000 years.
func TestDyndbMutex14_TheEndIsInSeconds(t *testing.T) {
	api := &table{}
	s, _ := store(api)
	q := vpic.Query{VIN: accord}
	if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	expires, err := strconv.ParseInt(api.items[Key(q)]["expires"].(*types.AttributeValueMemberN).Value, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := time.Unix(expires, 0), noon.Add(lives.Hard); got.Before(want) || got.After(want.Add(time.Second)) {
		t.Errorf("ends %v, want %v, rounded up to a second", got, want)
	}
}

func TestALifeThatWasMadeShorterHoldsForWhatIsStored(t *testing.T) {
	api := &table{}
	s, _ := store(api)
	q := vpic.Query{VIN: accord}
	if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
		t.Fatal(err)
	}
	strict := New(Config{Client: api, Table: "results", Lives: Lives{Hard: time.Hour, Soft: time.Minute, Negative: time.Hour}, Now: func() time.Time { return noon.Add(2 * time.Hour) }})
	if _, ok, err := strict.Get(t.Context(), q); ok || err != nil {
		t.Errorf("Get = %v, %v, want nothing", ok, err)
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
		api := &table{}
		q := vpic.Query{VIN: accord}
		a := answer(t, q, car())
		a.FetchedAt = a.FetchedAt.Add(time.Duration(rapid.IntRange(0, 999).Draw(rt, "ms")) * time.Millisecond)
		writer := New(Config{Client: api, Table: "results", Lives: before, Now: func() time.Time { return a.FetchedAt }})
		if err := writer.Put(t.Context(), a); err != nil {
			rt.Fatal(err)
		}
		now := a.FetchedAt.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(rt, "age")) / time.Duration(rapid.SampledFrom([]int{1, 1000, 10000}).Draw(rt, "divided")))
		got, ok, err := New(Config{Client: api, Table: "results", Lives: after, Now: func() time.Time { return now }}).Get(t.Context(), q)
		if err != nil {
			rt.Fatal(err)
		}
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
		"empty body":               set("b", &types.AttributeValueMemberB{}),
		"truncated body":           set("b", &types.AttributeValueMemberB{Value: truncated}),
		"HTML":                     set("b", &types.AttributeValueMemberB{Value: html}),
		"another VIN's answer":     set("b", &types.AttributeValueMemberB{Value: foreign}),
		"no format":                func(i map[string]types.AttributeValue) { delete(i, "v") },
		"a later format":           set("v", number(format+1)),
		"no end":                   func(i map[string]types.AttributeValue) { delete(i, "expires") },
		"an end that is no number": set("expires", &types.AttributeValueMemberS{Value: "tomorrow"}),
		"an end before its start":  set("f", number(noon.Add(10000*time.Hour).UnixMilli())),
		"no time":                  func(i map[string]types.AttributeValue) { delete(i, "f") },
		"a time in seconds":        set("f", number(noon.UnixMilli()*1000)),
		"fetched tomorrow":         set("f", number(noon.Add(24*time.Hour).UnixMilli())),
	} {
		t.Run(name, func(t *testing.T) {
			api := &table{}
			s, _ := store(api)
			if err := s.Put(t.Context(), answer(t, q, car())); err != nil {
				t.Fatal(err)
			}
			item := maps.Clone(api.items[Key(q)])
			damage(item)
			api.items[Key(q)] = item
			got, ok, err := s.Get(t.Context(), q)
			var corrupt *CorruptError
			if ok || !errors.As(err, &corrupt) {
				t.Fatalf("Get = %v, %v, want nothing and a *CorruptError", ok, err)
			}
			if got.Fields() != nil || got.Make() != "" || got.Body() != nil {
				t.Errorf("something of the item came through: %+v", got)
			}
			for _, secret := range []string{accord, "1FTMW1T88MFA00001", "HONDA", "maintenance"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows %q: %v", secret, err)
				}
			}
		})
	}
}

func TestEveryTroubleWithTheTableHasItsName(t *testing.T) {
	api := func(code string) error { return &smithy.GenericAPIError{Code: code, Message: "m"} }
	for _, tc := range []struct {
		err  error
		want Trouble
	}{
		{api("ProvisionedThroughputExceededException"), Throttled},
		{api("RequestLimitExceeded"), Throttled},
		{api("ThrottlingException"), Throttled},
		{api("AccessDeniedException"), Denied},
		{api("UnrecognizedClientException"), Denied},
		{api("ExpiredTokenException"), Denied},
		{api("ResourceNotFoundException"), NoTable},
		{&types.ResourceNotFoundException{}, NoTable},
		{&types.ProvisionedThroughputExceededException{}, Throttled},
		{api("InternalServerError"), Unreachable},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, Unreachable},
		{errors.New("anything else"), Unreachable},
	} {
		s, _ := store(&table{fault: tc.err})
		_, ok, getErr := s.Get(t.Context(), vpic.Query{VIN: accord})
		putErr := s.Put(t.Context(), answer(t, vpic.Query{VIN: accord}, car()))
		for op, err := range map[string]error{"read": getErr, "write": putErr} {
			var e *StoreError
			if ok || !errors.As(err, &e) || e.Trouble != tc.want || e.Op != op || !errors.Is(err, tc.err) {
				t.Errorf("%s with %v: %v, want %s", op, tc.err, err, tc.want)
			}
		}
	}
}
