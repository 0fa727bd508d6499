package dynamo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"vingate/internal/ddb/ddbtest"
	"vingate/internal/gate"
)

type (
	wire  = ddbtest.Wire
	fault = ddbtest.Fault
)

// byItem sets "promise " before the calls of the promise.
func byItem(op string, body []byte) string {
	if bytes.Contains(body, []byte(`"promise#`)) {
		return "promise " + op
	}
	return op
}

var gates atomic.Int64

// newStore is a store on a gate of its own. The clock stands at noon until the test moves it.
func newStore(t testing.TB, w *wire) *Store {
	t.Helper()
	client := realClient
	if w != nil {
		w.Name = byItem
		client = w.Before(realClient)
	}
	var ids atomic.Int64
	return New(Config{Client: client, Table: table, Name: fmt.Sprint("g", gates.Add(1)),
		Now: noon.Time, NewID: func() string { return fmt.Sprintf("id%06d", ids.Add(1)) }})
}

// initialised adds a gate with a full bucket.
func initialised(t testing.TB, w *wire) *Store {
	t.Helper()
	s := newStore(t, w)
	if err := s.Init(context.Background(), testKnobs(), FullBucket); err != nil {
		t.Fatal(err)
	}
	return s
}

// stored is the gate as it lies in the table.
func stored(t testing.TB, s *Store) item {
	t.Helper()
	out, err := realClient.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String(s.Table), Key: item{attrKey: text(s.pk)}, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func state(t testing.TB, s *Store) gate.State {
	t.Helper()
	st, err := decode(stored(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

var alice = gate.Key{Route: gate.Interactive, Tenant: "alice"}

func mustAcquire(t testing.TB, s *Store, key gate.Key) *gate.Lease {
	t.Helper()
	l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: key})
	if l == nil {
		t.Fatalf("not admitted: %+v, %v", refusal, err)
	}
	return l
}

func TestAdmissionAndReleaseCostTwoWritesAndOneRead(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	for range 10 {
		l := mustAcquire(t, s, alice)
		if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded, Took: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Count("UpdateItem"); n != 20 {
		t.Errorf("%d writes for 10 admissions and releases", n)
	}
	if n := w.Count("GetItem"); n != 1 { // the clock stands still: the view of the last write is young enough
		t.Errorf("%d reads", n)
	}
	st := state(t, s)
	if len(st.Leases) != 0 || len(st.Places) != 0 || st.Latency != 1000 || st.TAT != noon+10*50_000 {
		t.Errorf("%+v", st)
	}
}

// envoy ratelimit#427, #440: refused means every stored byte is as before, and no write was paid for.
func TestEnvoyRatelimit427_RefusedLeavesEveryByteAndWritesNothing(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	for range 3 {
		mustAcquire(t, s, alice)
	}
	before, writes := stored(t, s), w.Count("UpdateItem")
	for _, refused := range []func(gate.State) gate.State{
		func(st gate.State) gate.State { return st },
		func(st gate.State) gate.State { st.TAT = noon + 1e9; return st },
		func(st gate.State) gate.State { st.Hold, st.Reason = noon.Millis()+5000, gate.HoldThrottled; return st },
	} {
		st, _ := decode(before)
		put(s, refused(st))
		s.seenAt = time.Time{}
		want := stored(t, s)
		l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
		if l != nil || err != nil || refusal.RetryAfter < time.Second {
			t.Fatalf("%+v %+v %v", l, refusal, err)
		}
		if !reflect.DeepEqual(stored(t, s), want) {
			t.Error("a refusal changed the gate")
		}
	}
	if n := w.Count("UpdateItem"); n != writes {
		t.Errorf("%d writes for refusals", n-writes)
	}
}

// kinesis-client#777, aws-sdk-java#2667: the answer is lost after the write was applied. The caller holds one lease for one token.
func TestKinesisClient777_LostAnswerIsAdmittedOnce(t *testing.T) {
	for name, f := range map[string]fault{"connection lost": {Lost: true}, "timed out": {Hang: true}} {
		for lost := 1; lost <= 3; lost++ {
			t.Run(fmt.Sprint(name, lost), func(t *testing.T) {
				w := &wire{}
				s := initialised(t, w)
				mustAcquire(t, s, gate.Key{Route: gate.Interactive, Tenant: "first"}) // busy, not reset
				before := state(t, s)
				w.Script(func(op string, n int) fault {
					if op == "UpdateItem" && n <= lost {
						return f
					}
					return fault{}
				})
				l := mustAcquire(t, s, alice)
				st := state(t, s)
				if len(st.Leases) != 2 || st.Leases[l.ID].Time() != l.End || st.TAT != before.TAT+50_000 {
					t.Fatalf("not one lease for one token: %+v", st)
				}
				if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
					t.Fatal(err)
				}
				if len(state(t, s).Leases) != 1 {
					t.Error("not released")
				}
			})
		}
	}
}

func TestLostAnswerOfAReleaseIsNoError(t *testing.T) {
	for _, outcome := range []gate.Outcome{{Kind: gate.Succeeded}, {Kind: gate.Throttled}, {Kind: gate.Abandoned}} {
		w := &wire{}
		s := initialised(t, w)
		l := mustAcquire(t, s, alice)
		w.Script(func(op string, n int) fault { return fault{Lost: op == "UpdateItem" && n == 1} })
		if err := s.Release(context.Background(), l, outcome); err != nil {
			t.Errorf("%s: %v", outcome.Kind, err)
		}
		if st := state(t, s); len(st.Leases) != 0 || (outcome.Kind == gate.Throttled) != (st.Hold > 0) {
			t.Errorf("%s: %+v", outcome.Kind, st)
		}
	}
}

// zae-limiter#332: no error of the store is ever told as a limit that was reached, and none admits.
func TestZaeLimiter332_EveryStoreErrorIsAnErrorOfItsKind(t *testing.T) {
	for name, c := range map[string]struct {
		f    fault
		kind Kind
	}{
		"throttled":          {fault{Status: 400, Code: "ProvisionedThroughputExceededException"}, KindThrottled},
		"throttling":         {fault{Status: 400, Code: "ThrottlingException"}, KindThrottled},
		"account limit":      {fault{Status: 400, Code: "RequestLimitExceeded"}, KindThrottled},
		"conflict":           {fault{Status: 400, Code: "TransactionConflictException"}, KindContended},
		"replica conflict":   {fault{Status: 400, Code: "ReplicatedWriteConflictException"}, KindContended},
		"validation":         {fault{Status: 400, Code: "ValidationException"}, KindInvalid},
		"denied":             {fault{Status: 400, Code: "AccessDeniedException"}, KindDenied},
		"expired token":      {fault{Status: 400, Code: "ExpiredTokenException"}, KindDenied},
		"unknown caller":     {fault{Status: 400, Code: "UnrecognizedClientException"}, KindDenied},
		"missing table":      {fault{Status: 400, Code: "ResourceNotFoundException"}, KindMissingTable},
		"internal error":     {fault{Status: 500, Code: "InternalServerError"}, KindUnreachable},
		"unnamed 503":        {fault{Status: 503, Code: "ServiceUnavailable"}, KindUnreachable},
		"unnamed 500":        {fault{Status: 500, Code: "InternalFailure"}, KindUnreachable},
		"unnamed 504":        {fault{Status: 504, Code: "UnknownError"}, KindUnreachable},
		"request timeout":    {fault{Status: 408, Code: "RequestTimeout"}, KindUnreachable},
		"unnamed 429":        {fault{Status: 429, Code: "Whatever"}, KindThrottled},
		"slow down":          {fault{Status: 400, Code: "Throttling"}, KindThrottled},
		"gateway error":      {fault{Status: 503, Body: "<html>unavailable</html>"}, KindUnreachable},
		"unreadable answer":  {fault{Status: 200, Body: "{"}, KindUnreachable},
		"refused connection": {fault{Cut: true}, KindUnreachable},
		"no answer":          {fault{Before: true}, KindTimeout},
	} {
		for _, op := range []string{"GetItem", "UpdateItem"} {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				w := &wire{}
				s := initialised(t, w)
				w.Script(func(o string, n int) fault {
					if o == op {
						return c.f
					}
					return fault{}
				})
				start := time.Now()
				l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
				var e *Error
				if l != nil || refusal != nil || !errors.As(err, &e) || e.Kind != c.kind {
					t.Fatalf("%+v, %+v, %v", l, refusal, err)
				}
				if took := time.Since(start); took > 5*time.Second { // a hang, not a measurement: the budgets are 0.4 and 0.25 s
					t.Errorf("took %v", took)
				}
				if w.Script(nil); len(state(t, s).Leases) > 0 {
					t.Error("a lease is left")
				}
			})
		}
	}
}

// With every answer lost there is no telling; the lease expires like any other.
func TestUnknownOutcomeIsGivenBack(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	w.Script(func(op string, n int) fault {
		return fault{Lost: op == "UpdateItem" && n == 1, Cut: op == "GetItem" && n > 1}
	})
	l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
	if l != nil || refusal != nil || err == nil {
		t.Fatalf("%+v, %+v, %v", l, refusal, err)
	}
	if st := state(t, s); len(st.Leases) != 0 || len(st.Places) != 0 {
		t.Errorf("not given back: %+v", st)
	}
}

func TestCallerWhoLeavesDuringAcquireHoldsNothing(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	ctx, cancel := context.WithCancel(context.Background())
	w.Script(func(op string, n int) fault {
		if op == "UpdateItem" && n == 1 {
			cancel()
			return fault{Hang: true}
		}
		return fault{}
	})
	l, refusal, err := s.Acquire(ctx, gate.Request{Key: alice})
	var e *Error
	if l != nil || refusal != nil || !errors.As(err, &e) || e.Kind != KindCanceled {
		t.Fatalf("%+v, %+v, %v", l, refusal, err)
	}
	if st := state(t, s); len(st.Leases) != 0 {
		t.Errorf("still holds %v", st.Leases)
	}
}

func TestMissingGateIsNeverMadeByAnInstance(t *testing.T) {
	s := newStore(t, nil)
	_, _, err := s.Acquire(context.Background(), gate.Request{Key: alice})
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindMissingGate || !strings.Contains(err.Error(), "vingate tables create") {
		t.Errorf("%v", err)
	}
	if err := s.Prime(context.Background()); !errors.As(err, &e) || e.Kind != KindMissingGate {
		t.Errorf("%v", err)
	}
	if stored(t, s) != nil {
		t.Error("there is a gate now")
	}
	s.seen, s.seenAt = gate.NewState(testKnobs(), noon, false), s.Now() // removed after it was seen
	if _, _, err = s.Acquire(context.Background(), gate.Request{Key: alice}); !errors.As(err, &e) || e.Kind != KindMissingGate {
		t.Errorf("%v", err)
	}
}

func TestInitMakesAGateOnceAndChangesNone(t *testing.T) {
	s := newStore(t, nil)
	k := testKnobs()
	if err := s.Init(context.Background(), k, EmptyAndHeld); err != nil {
		t.Fatal(err)
	}
	if _, refusal, _ := s.Acquire(context.Background(), gate.Request{Key: alice}); refusal == nil || refusal.Hold != gate.HoldStarting {
		t.Errorf("%+v", refusal)
	}
	before := stored(t, s)
	k.MaxInFlight = 9
	if err := s.Init(context.Background(), k, FullBucket); !errors.Is(err, ErrExists) {
		t.Errorf("%v", err)
	}
	if !reflect.DeepEqual(before, stored(t, s)) {
		t.Error("an existing gate was changed")
	}
	k.MaxInFlight, k.BatchSlots, k.LeaseTTL, k.Burst = 0, 9, time.Second, 2 // all that is wrong is said at once
	err := newStore(t, nil).Init(context.Background(), k, FullBucket)
	for _, knob := range []string{"MAX_IN_FLIGHT", "BATCH_SLOTS", "LEASE_TTL"} {
		if err == nil || !strings.Contains(err.Error(), knob) {
			t.Errorf("%s is not in: %v", knob, err)
		}
	}
}

// P9: forty-eight instances hear the same 429 in one moment. They write one hold and one cut, and none writes more than twice.
func TestFortyEightInstancesThatHearA429TogetherWriteTwiceEachAtMost(t *testing.T) {
	w := &wire{}
	first := newStore(t, w)
	k := testKnobs()
	k.MaxInFlight, k.Burst, k.BulkheadAnon = 48, 1000, 1000
	if err := first.Init(t.Context(), k, FullBucket); err != nil {
		t.Fatal(err)
	}
	var all []*Store
	var leases []*gate.Lease
	for i := range 48 {
		s := beside(first)
		all, leases = append(all, s), append(leases, mustAcquire(t, s, gate.Key{Route: gate.Interactive, Tenant: fmt.Sprint("tenant", i)}))
		s.Client = slowly{s.Client} // what is counted are writes, not how long this machine takes for forty-eight at once
	}
	for _, s := range all { // all go by the view of the moment before
		if err := s.Prime(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := w.Count("UpdateItem")
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			if err := s.Release(t.Context(), leases[i], gate.Outcome{Kind: gate.Throttled, RetryAfter: 30 * time.Second}); err != nil {
				t.Errorf("instance %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if n := w.Count("UpdateItem") - before; n > 2*48 {
		t.Errorf("%d writes for 48 releases", n)
	}
	if st := state(t, first); st.Limit != 24 || st.Episodes != 1 || st.Reason != gate.HoldThrottled || st.Hold != noon.Millis()+31_000 || len(st.Leases) != 0 || len(st.Places) != 0 {
		t.Errorf("%+v", st)
	}
}

// slowly gives a write all the time that its operation has.
type slowly struct{ Client }

func (c slowly) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return c.Client.UpdateItem(ctx, in, o...)
}

// redisson#4086: the holder overslept its lease, somebody else has the slot. Its release does nothing, and says so.
func TestRedisson4086_LateReleaseOfAReclaimedLease(t *testing.T) {
	s := initialised(t, nil)
	now := noon.Time()
	s.Now = func() time.Time { return now }
	stale := mustAcquire(t, s, alice)
	now = now.Add(16 * time.Second)
	next := mustAcquire(t, s, alice)
	before := stored(t, s)
	if err := s.Release(context.Background(), stale, gate.Outcome{Kind: gate.Throttled}); !errors.Is(err, ErrStale) {
		t.Errorf("%v", err)
	}
	if !reflect.DeepEqual(before, stored(t, s)) {
		t.Error("the late release changed the gate")
	}
	if err := s.Release(context.Background(), next, gate.Outcome{Kind: gate.Succeeded}); err != nil {
		t.Error(err)
	}
}

func TestThrottledReleasesHoldOnceAndAlwaysFree(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	a, b, c := mustAcquire(t, s, alice), mustAcquire(t, s, alice), mustAcquire(t, s, alice)
	writes := w.Count("UpdateItem")
	for _, l := range []*gate.Lease{a, b, c} {
		if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Throttled, RetryAfter: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Count("UpdateItem") - writes; n > 6 {
		t.Errorf("3 throttled releases took %d writes", n)
	}
	st := state(t, s)
	if len(st.Leases) != 0 || st.Hold != noon.Millis()+4000 || st.Reason != gate.HoldThrottled {
		t.Errorf("%+v", st)
	}
	_, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
	if err != nil || refusal == nil || refusal.Cause != gate.Held || refusal.RetryAfter < 4*time.Second || refusal.RetryAfter >= 4*time.Second+gate.HoldSpread {
		t.Errorf("%+v, %v", refusal, err)
	}
}

// Many instances, one budget: their calls never outnumber the slots, whatever the races.
func TestManyInstancesShareOneBudget(t *testing.T) {
	first := initialised(t, nil)
	var live, peak, admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		s := New(first.Config)
		s.Now = time.Now
		s.NewID = func() string { return fmt.Sprintf("i%d-%d", i, gates.Add(1)) }
		s.pk = first.pk
		for range 6 {
			wg.Go(func() {
				for range 4 {
					l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: fmt.Sprint(i)}})
					if err != nil {
						var e *Error // two busy cores may exhaust an attempt's time; nothing else may go wrong
						if !errors.As(err, &e) || e.Kind != KindTimeout && e.Kind != KindContended {
							t.Errorf("%v", err)
						}
					}
					if l == nil {
						if refusal != nil && refusal.RetryAfter < time.Second {
							t.Errorf("%+v", refusal)
						}
						continue
					}
					n := live.Add(1)
					for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
					}
					admitted.Add(1)
					live.Add(-1)
					if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
						t.Errorf("%v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if peak.Load() > 4 || admitted.Load() < 10 {
		t.Errorf("peak %d of 4, %d admitted", peak.Load(), admitted.Load())
	}
}

// One of many who share a bulkhead never holds more of it than its own places, whatever the races between instances.
func TestOneAddressOnManyInstancesHoldsItsOwnPlaces(t *testing.T) {
	first := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight, k.RatePerSecond, k.Burst, k.BulkheadAnon = 12, 100, 400, 64 })
	shared := gate.Key{Route: gate.Interactive, Tenant: gate.Anonymous}
	const own = 4
	var wg sync.WaitGroup
	var holds, full atomic.Int64
	for i := range 6 {
		s := beside(first)
		for n := range 4 {
			address := []string{"home", "home", "home", "elsewhere"}[n]
			wg.Go(func() {
				l, r, err := s.Acquire(context.Background(), gate.Request{Key: shared, Tenant: address, Own: own, Patience: 300 * time.Millisecond})
				switch {
				case l != nil && address == "home":
					holds.Add(1)
				case r != nil && r.Cause == gate.OwnFull:
					full.Add(1)
				case err != nil:
					var e *Error // two busy cores may exhaust an attempt's time; nothing else may go wrong
					if !errors.As(err, &e) || e.Kind != KindTimeout && e.Kind != KindContended {
						t.Errorf("instance %d: %v", i, err)
					}
				}
			})
		}
	}
	wg.Wait()
	st := state(t, first)
	if n := len(st.Owned[gate.FlowOf("home")]); n > own || holds.Load() > own || full.Load() == 0 {
		t.Errorf("one address holds %d places, %d calls; %d were told so: %+v", n, holds.Load(), full.Load(), st)
	}
	for _, ids := range st.Owned {
		if len(ids) > own {
			t.Errorf("held by one address: %v", ids)
		}
	}
}

// A full bulkhead of one's own is waited for outside the line too, and comes back with the release, whole.
func TestAPlaceOfOnesOwnComesBack(t *testing.T) {
	s := lined(t, nil, func(*gate.Knobs) {})
	shared := gate.Key{Route: gate.Interactive, Tenant: gate.Anonymous}
	enter := func(wait time.Duration) (*gate.Lease, *gate.Refusal) {
		l, r, err := s.Acquire(context.Background(), gate.Request{Key: shared, Tenant: "home", Own: 1, BulkheadWait: wait})
		if err != nil {
			t.Fatal(err)
		}
		return l, r
	}
	first, _ := enter(0)
	before := stored(t, s)
	if l, r := enter(250 * time.Millisecond); l != nil || r.Cause != gate.OwnFull || r.Waited < 250*time.Millisecond || !reflect.DeepEqual(stored(t, s), before) {
		t.Fatalf("%+v %+v", l, r)
	}
	second := make(chan *gate.Lease)
	go func() {
		l, _ := enter(10 * time.Second)
		second <- l
	}()
	if err := s.Release(context.Background(), first, gate.Outcome{Kind: gate.Succeeded}); err != nil {
		t.Fatal(err)
	}
	l := <-second
	if l == nil {
		t.Fatal("the place did not come back")
	}
	if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if st := state(t, s); len(st.Owned)+len(st.Places)+len(st.Leases) != 0 {
		t.Errorf("left: %+v", st)
	}
}

// An answer that comes late must not hide a younger one.
func TestViewIsNeverReplacedByAnOlderAnswer(t *testing.T) {
	s := initialised(t, nil)
	old, young := s.ask(), s.ask()
	st := gate.NewState(testKnobs(), noon, false)
	st.TAT = 2
	if _, err := s.saw(t.Context(), young, encode(s.pk, st)); err != nil {
		t.Fatal(err)
	}
	st.TAT = 1
	if _, err := s.saw(t.Context(), old, encode(s.pk, st)); err != nil {
		t.Fatal(err)
	}
	if s.seen.TAT != 2 {
		t.Errorf("the view went back to %d", s.seen.TAT)
	}
}

// The answer of the release that wrote a pause may come after that of a read which was sent later and saw none, and a later read may be served by a
// replica that does not have it yet. The pause is obeyed and told all the same, until an operator lifts it.
func TestAPauseThatWasSeenIsNotUnseen(t *testing.T) {
	s := initialised(t, nil)
	l := mustAcquire(t, s, alice)
	before := state(t, s)
	w := s.planRelease(nil, l, gate.Outcome{Kind: gate.Throttled, RetryAfter: time.Minute})
	release, read, replica := s.ask(), s.ask(), s.ask()
	saw := func(asked int, st gate.State, held bool) {
		t.Helper()
		if _, err := s.saw(t.Context(), asked, encode(s.pk, st)); err != nil {
			t.Fatal(err)
		}
		if v, err := s.View(t.Context()); err != nil || held != (v.Hold == gate.HoldThrottled && v.HeldFor > 59*time.Second) {
			t.Errorf("held for %v (%v), %v", v.HeldFor, v.Hold, err)
		}
	}
	saw(read, before, true) // owed as yet
	saw(release, w.Apply(before), true)
	saw(replica, before, true)
	lifted := before
	lifted.Version++
	saw(s.ask(), lifted, false)
}

func TestViewShowsTheGateAndIsReadAtMostOnceASecond(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	mustAcquire(t, s, alice)
	reads := w.Count("GetItem")
	for range 20 {
		v, err := s.View(context.Background())
		if err != nil || v.InFlight != 1 || v.Limit != 4 || v.Knobs != testKnobs() || v.KnobsVersion != 1 {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if n := w.Count("GetItem") - reads; n != 0 {
		t.Errorf("%d reads for 20 views within a second", n)
	}
}

func TestWhatWasSeenIsToldWithoutACallForASecond(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	if _, ok := s.Seen(); ok {
		t.Error("something was seen before the first call")
	}
	mustAcquire(t, s, alice)
	calls := w.Count("GetItem") + w.Count("UpdateItem")
	if v, ok := s.Seen(); !ok || v.InFlight != 1 || v.NextToken <= 0 {
		t.Errorf("%+v, %v", v, ok)
	}
	s.Now = func() time.Time { return time.Now().Add(1100 * time.Millisecond) }
	if v, ok := s.Seen(); ok {
		t.Errorf("it is older than a second: %+v", v)
	}
	if n := w.Count("GetItem") + w.Count("UpdateItem") - calls; n != 0 {
		t.Errorf("%d calls", n)
	}
}

// A frozen instance thaws with an old view and an old clock reading: it reads again before it writes.
func TestThawedInstanceReadsAgain(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	now := noon.Time()
	s.Now = func() time.Time { return now }
	mustAcquire(t, s, alice)
	reads := w.Count("GetItem")
	for _, jump := range []time.Duration{5 * time.Minute, -time.Minute} { // thawed; clock set back
		now = now.Add(jump)
		if _, _, err := s.Acquire(context.Background(), gate.Request{Key: alice}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.Count("GetItem") - reads; n != 2 {
		t.Errorf("%d reads", n)
	}
}

// P9: NHTSA's pause is obeyed by the instance that heard it even when it could not be written, and written with the next
// release that can be.
func TestAPauseThatCouldNotBeWrittenIsObeyedAndWrittenLater(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *Store, w *wire, l *gate.Lease){
		"the store is away": func(t *testing.T, s *Store, w *wire, l *gate.Lease) {
			w.Script(func(string, int) fault { return fault{Cut: true} })
		},
		"the lease was reclaimed": func(t *testing.T, s *Store, w *wire, l *gate.Lease) {
			st := state(t, s)
			put(s, gate.Free{ID: l.ID, Place: l.Key.Place(), Episodes: -1}.Apply(st))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			s := initialised(t, w)
			now := noon.Time()
			s.Now = func() time.Time { return now }
			other := mustAcquire(t, s, gate.Key{Route: gate.Interactive, Tenant: "bob"})
			l := mustAcquire(t, s, alice)
			lose(t, s, w, l)
			if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Throttled, RetryAfter: time.Minute}); err == nil {
				t.Fatal("the release was applied: this shows nothing")
			}
			w.Script(nil)
			now = now.Add(2 * time.Second)
			_, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
			if err != nil || refusal == nil || refusal.Cause != gate.Held || refusal.RetryAfter < 58*time.Second {
				t.Fatalf("%+v, %v", refusal, err)
			}
			if err := s.Release(context.Background(), other, gate.Outcome{Kind: gate.Succeeded}); err != nil {
				t.Fatal(err)
			}
			if st := state(t, s); st.Hold < gate.MicrosOf(noon.Time().Add(time.Minute)).Millis() || st.Reason != gate.HoldThrottled {
				t.Errorf("not written with the next release: %+v", st)
			}
			now = now.Add(2 * time.Minute)
			mustAcquire(t, s, alice)
		})
	}
}
