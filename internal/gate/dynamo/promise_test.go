package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"pgregory.net/rapid"

	"vingate/internal/gate"
)

// promised is the promise as it lies in the table.
func promised(t testing.TB, s *Store) gate.Promise {
	t.Helper()
	out, err := realClient.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String(s.Table), Key: item{attrKey: text(s.promisePK())}, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := decodePromise(out.Item)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dry is a store on a gate without a token for the next ten seconds.
func dry(t testing.TB, w *wire) *Store {
	t.Helper()
	s := initialised(t, w)
	st := gate.NewState(testKnobs(), noon, false)
	st.TAT, st.Latency = noon+gate.Micros(st.Knobs.Bucket().Tau)+1e7, 100
	put(s, st)
	return s
}

func refused(t testing.TB, s *Store) *gate.Refusal {
	t.Helper()
	l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
	if l != nil || err != nil || refusal.Cause != gate.NoToken || refusal.RetryAfter < time.Second || refusal.RetryAfter%time.Second != 0 {
		t.Fatalf("%+v %+v %v", l, refusal, err)
	}
	return refusal
}

// What the core proves of the promise is true of the store.
func TestAReserveMeansTheSameInTheCoreAndInTheStore(t *testing.T) {
	s := newStore(t, nil)
	applied := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		around := rapid.SampledFrom([]gate.Micros{-30_000_000, -2_000_001, -2_000_000, -1, 0, 1, 1_999_999, 2_000_000, 57_999_999, 58_000_000, 58_000_001, 120_000_000, 120_000_001})
		p := gate.Promise{Round: rapid.IntRange(0, 3).Draw(t, "round"), Blocks: map[string]gate.Micros{}}
		if p.Round > 0 {
			p.Until = noon + around.Draw(t, "until")
			for _, id := range []string{"one", "two", "three"} {
				if rapid.Bool().Draw(t, "was taken") {
					p.Blocks[id] = noon - gate.Micros(rapid.IntRange(0, 3_000_000).Draw(t, "before"))
				}
			}
		}
		w := gate.Reserve{ID: rapid.SampledFrom([]string{"one", "four"}).Draw(t, "id"), Now: noon, From: noon, Step: 2_000_000, Most: noon + 58_000_000,
			Round: rapid.IntRange(0, 3).Draw(t, "seen round"), Absurd: noon + 120_000_000}
		w.Fresh = w.Round == 0 || rapid.Bool().Draw(t, "fresh")
		if rapid.Bool().Draw(t, "forgets") {
			w.Forget = []string{"three", "two"}
		}
		clear := &dynamodb.DeleteItemInput{TableName: aws.String(table), Key: item{attrKey: text(s.promisePK())}}
		if _, err := realClient.DeleteItem(context.Background(), clear); err != nil {
			t.Fatal(err)
		}
		if p.Round > 0 {
			in := &dynamodb.PutItemInput{TableName: aws.String(table), Item: encodePromise(s.promisePK(), p)}
			if _, err := realClient.PutItem(context.Background(), in); err != nil {
				t.Fatal(err)
			}
		}
		want, holds := p, w.Holds(p)
		if holds {
			want = w.Apply(p)
		}
		did, err := s.reserve(context.Background(), w)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Skip("the store of a busy machine took longer than an attempt may: this case says nothing")
		}
		if err != nil || did != holds {
			t.Fatalf("%+v on %+v: the core says %v, DynamoDB says %v, %v", w, p, holds, did, err)
		}
		applied[holds]++
		if got := s.promises.seen; !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v on %+v (holds: %v)\n got %+v\nwant %+v", w, p, holds, got, want)
		}
	})
	if !testing.Short() && (applied[true] < 10 || applied[false] < 10) {
		t.Errorf("applied and refused: %v: this shows little", applied)
	}
}

// blockAt20 is the length of twelve places, each a quarter more than a grant at 20 a second.
const blockAt20 = gate.Micros(12 * 62_500)

// P12: ten instances, 24 refusals each, one every ten milliseconds.
func TestRefusalsOfTenInstancesCostAtMostNineWritesInAHundred(t *testing.T) {
	w := &wire{}
	first := dry(t, w)
	now := noon.Time()
	first.Now = func() time.Time { return now }
	var all []*Store
	for range 10 {
		all = append(all, beside(first))
	}
	gateBefore := stored(t, first)
	for n := range 240 {
		now = now.Add(10 * time.Millisecond)
		refused(t, all[n%10])
	}
	wrote := w.Count("promise UpdateItem")
	t.Logf("240 refusals: %d writes, %.3f each; %d reads of the gate, %d of the promise", wrote, float64(wrote)/240, w.Count("GetItem"), w.Count("promise GetItem"))
	if wrote > 21 || wrote < 15 { // fewer than 20 where this machine was late for some
		t.Errorf("%d writes for 240 refusals", wrote)
	}
	if !reflect.DeepEqual(stored(t, first), gateBefore) {
		t.Error("the gate was changed")
	}
	if n := (promised(t, first).Until - noon - 10_000_000) / blockAt20; int(n) > wrote || int(n) < wrote-2 {
		t.Errorf("places for %d blocks by %d writes", n, wrote)
	}
}

// Nobody fails when a crowd meets instances that have seen nothing: all begin the same round.
func TestTenInstancesBeginARoundTogether(t *testing.T) {
	w := &wire{}
	first := dry(t, w)
	var wg sync.WaitGroup
	for range 10 {
		s := beside(first)
		wg.Go(func() { refused(t, s) })
	}
	wg.Wait()
	p := promised(t, first)
	n := len(p.Blocks) // all but those for which this machine was late
	if p.Round != 1 || n < 7 || p.Until != noon+10_000_000+gate.Micros(n)*blockAt20 {
		t.Errorf("%+v", p)
	}
}

// P11 the other way round: whatever is wrong with the promise, a refusal stays a refusal, at the gate's own time or a little later, and
// the promise is left alone for a moment.
func TestAPromiseThatFailsIsNoErrorAndIsLeftAlone(t *testing.T) {
	for name, f := range map[string]fault{
		"throttled": {Status: 400, Code: "ThrottlingException"}, "missing table": {Status: 400, Code: "ResourceNotFoundException"},
		"denied": {Status: 400, Code: "AccessDeniedException"}, "validation": {Status: 400, Code: "ValidationException"},
		"no connection": {Cut: true}, "no answer": {Before: true}, "unreadable": {Status: 200, Body: "{"}, "server error": {Status: 500, Code: "InternalServerError"},
	} {
		for _, op := range []string{"GetItem", "UpdateItem"} {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				w := &wire{}
				s := dry(t, w)
				tried := 0
				w.Script(func(o string, _ int) fault {
					if o != "promise "+op {
						return fault{}
					}
					tried++
					return f
				})
				start := time.Now()
				for range 30 {
					if r := refused(t, s); r.RetryAfter < 10*time.Second || r.RetryAfter > 15*time.Second {
						t.Errorf("%v", r.RetryAfter)
					}
				}
				if took := time.Since(start); took > 5*time.Second { // a hang, not a measurement
					t.Errorf("took %v", took)
				}
				if tried > 1 || tried == 0 && op == "GetItem" {
					t.Errorf("tried %d times", tried)
				}
			})
		}
	}
}

func TestAReserveWhoseAnswerIsLostMovesThePlacesOnce(t *testing.T) {
	for name, f := range map[string]fault{"connection lost": {Lost: true}, "timed out": {Hang: true}} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			s := dry(t, w)
			w.Script(func(op string, _ int) fault {
				if op == "promise UpdateItem" {
					return f
				}
				return fault{}
			})
			refused(t, s)
			p := promised(t, s)
			if w.Count("promise UpdateItem") != 1 || p.Round != 1 || len(p.Blocks) != 1 {
				t.Fatalf("%d writes, %+v", w.Count("promise UpdateItem"), p)
			}
			w.Script(nil)
			for id := range p.Blocks { // the same write once more, as a network may deliver it
				again := gate.Reserve{ID: id, Now: noon, From: noon + 10_000_000, Step: blockAt20, Most: noon + 50_000_000, Fresh: true, Absurd: noon + 120_000_000}
				if applied, err := s.reserve(context.Background(), again); err != nil || applied {
					t.Fatal(applied, err)
				}
			}
			if got := promised(t, s); !reflect.DeepEqual(got, p) {
				t.Errorf("%+v, it was %+v", got, p)
			}
		})
	}
}

// A caller sent away by a hold comes back after it, a crowd not in one second; the promise is not touched.
func TestAHeldCrowdComesBackOverSomeSeconds(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	st := gate.NewState(testKnobs(), noon, false)
	st.Hold, st.Reason = noon.Millis()+30_000, gate.HoldThrottled
	put(s, st)
	told := map[time.Duration]bool{}
	for range 60 {
		_, r, err := s.Acquire(context.Background(), gate.Request{Key: alice})
		if err != nil || r.Cause != gate.Held || r.RetryAfter < 30*time.Second || r.RetryAfter >= 30*time.Second+gate.HoldSpread {
			t.Fatalf("%+v %v", r, err)
		}
		told[r.RetryAfter] = true
	}
	if n := w.Count("promise GetItem") + w.Count("promise UpdateItem"); len(told) < 4 || n != 0 {
		t.Errorf("%v, %d calls to the promise", told, n)
	}
}

func TestAPromiseThatCannotBeUnderstoodIsNotUsed(t *testing.T) {
	for name, it := range map[string]item{
		"no round":     {attrKey: text("promise#x")},
		"two rounds":   {attrKey: text("promise#x"), "p1": number(1), "p2": number(2)},
		"not a number": {attrKey: text("promise#x"), "p1": text("1")},
		"no such name": {attrKey: text("promise#x"), "pq": number(1)},
		"a bad block":  {attrKey: text("promise#x"), "p1": number(1), "bx": text("1")},
	} {
		if p, err := decodePromise(it); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p, err := decodePromise(nil); err != nil || p.Round != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	p := gate.Promise{Round: 3, Until: 5, Blocks: map[string]gate.Micros{"x": 1, fmt.Sprint("p", 7): 2}}
	if got, err := decodePromise(encodePromise("promise#x", p)); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v", got, err)
	}
}
