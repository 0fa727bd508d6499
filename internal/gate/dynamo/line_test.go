package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vingate/internal/gate"
)

// lined is a store on a real gate with the real clock.
func lined(t *testing.T, w *wire, change func(*gate.Knobs)) *Store {
	t.Helper()
	s := newStore(t, w)
	s.Now = time.Now
	k := testKnobs()
	change(&k)
	if err := s.Init(context.Background(), k, FullBucket); err != nil {
		t.Fatal(err)
	}
	return s
}

// beside is another instance on the same gate.
func beside(s *Store) *Store {
	c := s.Config
	n := gates.Add(1)
	var ids atomic.Int64
	c.NewID = func() string { return fmt.Sprintf("%03d-%04d", n, ids.Add(1)) }
	return New(c)
}

type got struct {
	tenant  string
	lease   *gate.Lease
	refusal *gate.Refusal
	err     error
}

func ask(s *Store, tenant string, patience time.Duration) got {
	l, r, err := s.Acquire(context.Background(), gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: tenant}, Patience: patience, BulkheadWait: 2 * time.Second})
	return got{tenant, l, r, err}
}

func TestAWaiterIsServedWhenASlotComesFree(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight = 1 })
	first := ask(s, "alice", 0)
	if first.lease == nil {
		t.Fatalf("%+v", first)
	}
	served := make(chan got)
	go func() { served <- ask(beside(s), "bob", 10*time.Second) }()
	waitFor(t, s, func(st gate.State) bool { return len(st.Tickets) == 1 })
	if r := ask(beside(s), "carol", 0); r.refusal == nil || r.refusal.Cause != gate.QueueFull {
		t.Errorf("a newcomer beside a waiter: %+v", r)
	}
	if err := s.Release(context.Background(), first.lease, gate.Outcome{Kind: gate.Succeeded, Took: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if r := <-served; r.lease == nil {
		t.Fatalf("%+v %v", r.refusal, r.err)
	}
	if st := state(t, s); len(st.Tickets) != 0 || len(st.Flows) != 0 || len(st.Leases) != 1 {
		t.Errorf("%+v", st)
	}
}

// A read that is sent after the ticket's write may be served before it. The view is that read's then, and no reason to think the ticket lost.
func TestAWaiterWhoseTicketIsYoungerThanTheViewWaitsOn(t *testing.T) {
	w := &wire{}
	s := lined(t, w, func(k *gate.Knobs) { k.MaxInFlight = 1 })
	first := ask(s, "alice", 0)
	before := stored(t, s)
	var once sync.Once
	w.Script(func(op string, _ int) fault {
		if op == "UpdateItem" {
			once.Do(func() { _, _ = s.saw(t.Context(), s.ask(), before) })
		}
		return fault{}
	})
	served := make(chan got)
	go func() { served <- ask(s, "bob", 10*time.Second) }()
	waitFor(t, s, func(st gate.State) bool { return len(st.Tickets) == 1 })
	if err := beside(s).Release(context.Background(), first.lease, gate.Outcome{Kind: gate.Succeeded, Took: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if r := <-served; r.lease == nil {
		t.Fatalf("%+v %v", r.refusal, r.err)
	}
}

// waitFor polls the gate; no test sleeps for luck.
func waitFor(t *testing.T, s *Store, ok func(gate.State) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(state(t, s)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to that: %+v", state(t, s))
		}
	}
}

func TestPatienceEndsByItselfAndLeavesNothing(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight = 1 })
	ask(s, "alice", 0)
	before := stored(t, s)
	start := time.Now()
	r := ask(s, "bob", 1200*time.Millisecond) // one grant a second is expected, so it may hope
	if r.refusal == nil || r.refusal.Cause != gate.NoSlot || r.refusal.Waited < 1200*time.Millisecond || r.refusal.RetryAfter < time.Second {
		t.Fatalf("%+v %v", r.refusal, r.err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("waited %v", took)
	}
	if !reflect.DeepEqual(stored(t, s), before) {
		t.Error("the gate is not as it was")
	}
}

func TestACallerWhoLeavesTheLineLeavesNothing(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight = 1 })
	ask(s, "alice", 0)
	before := stored(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, _, err := beside(s).Acquire(ctx, gate.Request{Key: alice, Patience: 20 * time.Second})
		left <- err
	}()
	waitFor(t, s, func(st gate.State) bool { return len(st.Tickets) == 1 })
	cancel()
	var e *Error
	if err := <-left; !errors.As(err, &e) || e.Kind != KindCanceled {
		t.Errorf("%v", err)
	}
	if !reflect.DeepEqual(stored(t, s), before) {
		t.Error("the gate is not as it was")
	}
}

// The handler's own time ends while its caller stands in the line: the ticket is given back in a time of its own.
func TestADeadlineInTheLineLeavesNothing(t *testing.T) {
	w := &wire{}
	s := lined(t, w, func(k *gate.Knobs) { k.MaxInFlight = 1 })
	ask(s, "alice", 0)
	before := stored(t, s)
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	l, r, err := s.Acquire(ctx, gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: "bob"}, Patience: 20 * time.Second})
	var e *Error
	if l != nil || r != nil || !errors.As(err, &e) || e.Kind != KindTimeout {
		t.Errorf("%+v %+v %v", l, r, err)
	}
	if n := w.Count("UpdateItem"); n < 3 { // alice, bob's ticket, and its end
		t.Errorf("%d writes: it did not stand in the line", n)
	}
	if !reflect.DeepEqual(stored(t, s), before) {
		t.Error("the gate is not as it was")
	}
}

// zae-limiter#309: "done" was set before the write, and a later step that failed leaked what was taken. Every call of a life is failed in turn, in every
// way: it arrives, waits, is admitted, is released; and once its time is over nothing is left of it, and another one is admitted.
func TestZaeLimiter309_WhicheverCallFailsNothingIsLeft(t *testing.T) {
	for name, f := range map[string]fault{"lost": {Lost: true}, "cut": {Cut: true}, "refused": {Status: 500, Code: "InternalServerError"}, "throttled": {Status: 400, Code: "ThrottlingException"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for failing := 1; failing <= 8; failing++ {
				w := &wire{}
				s := lined(t, w, func(k *gate.Knobs) { k.MaxInFlight = 1 })
				known := state(t, s) // how long calls take, so that waiting is short
				known.Latency = 20
				put(s, known)
				offset := atomic.Int64{}
				s.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
				other := beside(s)
				other.Client, other.Now = realClient, s.Now
				first := ask(other, "alice", 0)
				if first.lease == nil {
					t.Fatalf("%+v %v", first.refusal, first.err)
				}
				calls := atomic.Int64{}
				w.Script(func(string, int) fault {
					if int(calls.Add(1)) == failing {
						return f
					}
					return fault{}
				})
				lived := make(chan struct{})
				go func() {
					defer close(lived)
					if r := ask(s, "bob", 3*time.Second); r.lease != nil {
						_ = s.Release(context.Background(), r.lease, gate.Outcome{Kind: gate.Succeeded, Took: 5 * time.Millisecond})
					}
				}()
				for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline) && len(state(t, s).Tickets) == 0; time.Sleep(5 * time.Millisecond) {
					select {
					case <-lived: // refused, or failed, before it stood in the line
						deadline = time.Time{}
					default:
					}
				}
				if err := other.Release(context.Background(), first.lease, gate.Outcome{Kind: gate.Succeeded, Took: 5 * time.Millisecond}); err != nil {
					t.Fatal(err)
				}
				<-lived
				offset.Store(int64(16 * time.Second)) // whatever was not given back has ended
				fresh := beside(other)
				fresh.Now = s.Now
				if r := ask(fresh, "carol", 0); r.lease == nil {
					t.Fatalf("call %d: nobody is admitted: %+v %v", failing, r.refusal, r.err)
				}
				if st := state(t, s); len(st.Leases) != 1 || len(st.Tickets) != 0 || len(st.Places) != 1 || len(st.Flows) != 0 {
					t.Errorf("call %d: left %+v", failing, st)
				}
			}
		})
	}
}

func TestAHoldEndsTheWait(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight = 1 })
	first := ask(s, "alice", 0)
	waiter := make(chan got)
	go func() { waiter <- ask(beside(s), "bob", 20*time.Second) }()
	waitFor(t, s, func(st gate.State) bool { return len(st.Tickets) == 1 })
	if err := s.Release(context.Background(), first.lease, gate.Outcome{Kind: gate.Throttled, RetryAfter: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if r := <-waiter; r.refusal == nil || r.refusal.Cause != gate.Held || r.refusal.RetryAfter < 50*time.Second {
		t.Errorf("%+v %v", r.refusal, r.err)
	}
	if st := state(t, s); len(st.Tickets) != 0 || len(st.Places) != 0 {
		t.Errorf("left: %+v", st)
	}
}

// A full bulkhead is waited for outside the line; its refusal says whose it is.
func TestAFullBulkheadWaitsAtItsOwnDoor(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.BulkheadInteractive = 1 })
	first := ask(s, "alice", 0)
	start := time.Now()
	l, r, err := s.Acquire(context.Background(), gate.Request{Key: alice, Patience: 5 * time.Second, BulkheadWait: 300 * time.Millisecond})
	if l != nil || err != nil || r.Cause != gate.BulkheadFull || r.Waited < 300*time.Millisecond || time.Since(start) > 10*time.Second {
		t.Fatalf("%+v %v", r, err)
	}
	if other := ask(s, "bob", 0); other.lease == nil {
		t.Errorf("bob: %+v", other.refusal)
	}
	second := make(chan got)
	go func() { second <- ask(s, "alice", 10*time.Second) }()
	if err := s.Release(context.Background(), first.lease, gate.Outcome{Kind: gate.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if r := <-second; r.lease == nil {
		t.Errorf("after the place came back: %+v %v", r.refusal, r.err)
	}
}

// Many instances wait for the one place of a key: who is too late for it has met a full bulkhead, and no trouble with the gate.
func TestACrowdAtOneDoorIsServedOrToldSo(t *testing.T) {
	w := &wire{}
	first := lined(t, w, func(k *gate.Knobs) { k.BulkheadInteractive, k.RatePerSecond, k.Burst = 1, 100, 400 })
	var wg sync.WaitGroup
	var served, full atomic.Int64
	for range 8 {
		s := beside(first)
		for range 2 {
			wg.Go(func() {
				l, r, err := s.Acquire(context.Background(), gate.Request{Key: alice, BulkheadWait: time.Second})
				var e *Error
				switch {
				case l != nil:
					served.Add(1)
					if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
						t.Error(err)
					}
				case r != nil && r.Cause == gate.BulkheadFull:
					full.Add(1)
				case errors.As(err, &e) && e.Kind == KindTimeout: // two busy cores may exhaust an attempt's time
				default:
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
	}
	wg.Wait()
	if served.Load() < 2 {
		t.Errorf("%d served, %d told", served.Load(), full.Load())
	}
	if n := w.Count("UpdateItem"); n > 2*int(served.Load())+16*5 {
		t.Errorf("%d writes for %d served", n, served.Load())
	}
}

// kinesis-client#777 for tickets and claims: whatever answer is lost, one lease for one token.
func TestKinesisClient777_LostAnswersInTheLine(t *testing.T) {
	for lost := range 6 {
		w := &wire{}
		s := lined(t, w, func(k *gate.Knobs) { k.MaxInFlight = 1 })
		first := ask(s, "alice", 0)
		other := beside(s) // its answers are not lost
		other.Client = realClient
		w.Script(func(op string, n int) fault {
			return fault{Lost: op == "UpdateItem" && n == 1+lost || op == "GetItem" && n%3 == 0 && lost > 2}
		})
		served := make(chan got)
		go func() { served <- ask(s, "bob", 20*time.Second) }()
		waitFor(t, s, func(st gate.State) bool { return len(st.Tickets) == 1 })
		before := state(t, s)
		if err := other.Release(context.Background(), first.lease, gate.Outcome{Kind: gate.Succeeded, Took: 10 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		r := <-served
		if r.lease == nil {
			t.Fatalf("%d: %+v %v", lost, r.refusal, r.err)
		}
		st := state(t, s)
		if len(st.Leases) != 1 || len(st.Tickets) != 0 || st.Leases[r.lease.ID].Time() != r.lease.End {
			t.Errorf("%d: %+v", lost, st)
		}
		bucket := st.Knobs.Bucket()
		if spent := int64(st.TAT - before.TAT); spent < bucket.T || st.TAT > gate.MicrosOf(time.Now())+gate.Micros(2*bucket.T) {
			t.Errorf("%d: tat moved by %d us", lost, spent)
		}
	}
}

// The founding scenario (a): 2 slots, 2 places in the line, 50 ms of patience, calls of 80 ms, five callers at once.
func TestFiveAtOnceOnTwoSlots(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight, k.MaxQueued = 2, 2 })
	var calls, peak, served, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 5 {
		in := beside(s)
		wg.Go(func() {
			r := ask(in, fmt.Sprint("tenant", i), 50*time.Millisecond)
			switch {
			case r.lease != nil:
				n := calls.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				time.Sleep(80 * time.Millisecond)
				calls.Add(-1)
				served.Add(1)
				if err := in.Release(context.Background(), r.lease, gate.Outcome{Kind: gate.Succeeded, Took: 80 * time.Millisecond}); err != nil {
					t.Error(err)
				}
			case r.refusal != nil && (r.refusal.Cause == gate.QueueFull || r.refusal.Cause == gate.NoSlot):
				refused.Add(1)
			default:
				t.Errorf("%+v %v", r.refusal, r.err)
			}
		})
	}
	wg.Wait()
	if served.Load() < 2 || refused.Load() < 1 || peak.Load() > 2 {
		t.Errorf("%d served, %d refused, %d at once", served.Load(), refused.Load(), peak.Load())
	}
}

// The founding scenario (b): A pastes forty, B looks one up a moment later and is not behind the forty; and then B looks up one after the other,
// three at a time, and A's are not starved.
func TestOneLookupIsNotBehindAPasteOfForty(t *testing.T) {
	s := lined(t, nil, func(k *gate.Knobs) { k.MaxInFlight, k.RatePerSecond, k.Burst, k.BulkheadInteractive = 2, 100, 400, 64 })
	paste, single := beside(s), beside(s)
	serve := func(in *Store, r got, granted *atomic.Int64) {
		if r.lease != nil {
			granted.Add(1)
			time.Sleep(100 * time.Millisecond)
			if err := in.Release(context.Background(), r.lease, gate.Outcome{Kind: gate.Succeeded, Took: 100 * time.Millisecond}); err != nil {
				t.Error(err)
			}
		}
	}
	var as, bs sync.WaitGroup
	var toA, toB, sentAway atomic.Int64
	for range 40 {
		as.Go(func() {
			r := ask(paste, "A", 20*time.Second)
			if serve(paste, r, &toA); r.lease == nil {
				sentAway.Add(1)
				if r.refusal == nil || r.refusal.Cause != gate.FlowFull { // at once, by the length of its line: who waits is served
					t.Errorf("A: %+v %v", r.refusal, r.err)
				}
			}
		})
	}
	waitFor(t, s, func(st gate.State) bool { return len(st.Tickets) >= 4 })
	before := toA.Load()
	b := ask(single, "B", 20*time.Second)
	between := toA.Load() - before
	serve(single, b, &toB)
	done := make(chan struct{})
	for range 3 {
		bs.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					serve(single, ask(single, "B", 20*time.Second), &toB)
				}
			}
		})
	}
	as.Wait()
	a, streamed := toA.Load(), toB.Load()
	close(done)
	bs.Wait()
	t.Logf("%d of A's before B's first; %d of A's served and %d sent away, while B had %d", between, a, sentAway.Load(), streamed)
	if b.lease == nil || between > 6 { // one ahead of it, two under way, and what this machine is late by
		t.Errorf("B: %+v after %d grants to A", b.refusal, between)
	}
	if a < 9 || a+sentAway.Load() != 40 || streamed > 2*a+6 {
		t.Errorf("%d of A's were served and %d sent away while B had %d", a, sentAway.Load(), streamed)
	}
}

// GHSA-76rv-2r9v-c5m6: a flood of refusals is not a flood of writes, and what is certain costs not even a read.
func TestGHSA76rv2r9vC5m6_RefusalsDoNotWriteTheHotItem(t *testing.T) {
	for name, refuse := range map[string]func(*gate.State){
		"held": func(st *gate.State) { st.Hold, st.Reason = noon.Millis()+60_000, gate.HoldThrottled },
		"dry":  func(st *gate.State) { st.TAT = noon + 60_000_000 },
		"no slot": func(st *gate.State) {
			st.Limit = 1
			st.Leases["a"] = noon.Millis() + 15_000
			st.Places[alice.Place()] = []string{"a"}
		},
		"line full": func(st *gate.State) { fill(st) },
	} {
		w := &wire{}
		s := initialised(t, w)
		st := state(t, s)
		refuse(&st)
		put(s, st)
		now := noon.Time()
		s.Now = func() time.Time { return now }
		for i := range 1000 {
			if i%100 == 0 { // a second of the clock for the thousand
				now = now.Add(100 * time.Millisecond)
			}
			l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: fmt.Sprint(i)}})
			if l != nil || err != nil || refusal.RetryAfter < time.Second {
				t.Fatalf("%s: %+v %+v %v", name, l, refusal, err)
			}
		}
		if n := w.Count("UpdateItem"); n != 0 {
			t.Errorf("%s: %d writes for 1000 refusals", name, n)
		}
		if n := w.Count("GetItem"); n > 12 || (name == "held" || name == "dry") && n > 3 {
			t.Errorf("%s: %d reads for 1000 refusals within a second", name, n)
		}
	}
}

func fill(st *gate.State) {
	st.Knobs.MaxQueued = 0
	st.Leases["a"], st.Places[alice.Place()] = noon.Millis()+15_000, []string{"a"}
	st.Limit = 1
}

// The founding scenario (d): a bucket of two at one a second, clocks and delays taken to be perfect. Who is sent away is told a second, no more,
// and is admitted then: on the instance that admitted the others, and on one that has seen nothing.
func TestBucketOfTwoAtOneASecond(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		first := newStore(t, nil)
		now := noon.Time()
		first.Now = func() time.Time { return now }
		k := testKnobs()
		k.RatePerSecond, k.Burst, k.SkewBound, k.StartGrace, k.Attempt = 1, 2, 0, 0, 0
		if err := first.Init(context.Background(), k, FullBucket); err != nil {
			t.Fatal(err)
		}
		s := first
		for round := range 3 { // each second one more
			for i, want := range []bool{true, round == 0, false} {
				if elsewhere {
					s = beside(first)
				}
				r := ask(s, fmt.Sprint("tenant", round, i), 0)
				if r.err != nil || (r.lease != nil) != want || !want && (r.refusal.Cause != gate.NoToken || r.refusal.RetryAfter != time.Second) {
					t.Fatalf("second %d, call %d, another instance: %v: %+v %+v %v", round, i+1, elsewhere, r.lease, r.refusal, r.err)
				}
				if !want {
					break
				}
			}
			now = now.Add(time.Second)
		}
	}
}

// The founding scenario (c): two routes of one tenant are two bulkheads, and a full one leaves the other alone.
func TestTwoRoutesAreTwoBulkheads(t *testing.T) {
	w := &wire{}
	s := lined(t, w, func(k *gate.Knobs) { k.BulkheadInteractive, k.BulkheadBatch = 1, 1 })
	batch := gate.Key{Route: gate.Batch, Tenant: "x"}
	b, _, _ := s.Acquire(context.Background(), gate.Request{Key: batch})
	i, _, _ := s.Acquire(context.Background(), gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: "x"}})
	if b == nil || i == nil {
		t.Fatalf("batch %v, interactive %v", b, i)
	}
	if _, r, err := s.Acquire(context.Background(), gate.Request{Key: batch}); r == nil || r.Cause != gate.BulkheadFull {
		t.Errorf("a second batch: %+v, %v", r, err)
	}
	for _, l := range []*gate.Lease{b, i} {
		if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
			t.Error(err)
		}
	}
	// What a person's lookup asks of the store, and so how long it takes, is the same beside a full batch bulkhead and without one.
	asked := map[bool][2]int{}
	for _, full := range []bool{false, true} {
		if full {
			if b, _, _ = s.Acquire(context.Background(), gate.Request{Key: batch}); b == nil {
				t.Fatal("no batch")
			}
		}
		s.seenAt = time.Time{}
		reads, writes := w.Count("GetItem"), w.Count("UpdateItem")
		l, r, err := s.Acquire(context.Background(), gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: "x"}, Patience: time.Second, BulkheadWait: time.Second})
		if l == nil {
			t.Fatalf("%+v %v", r, err)
		}
		asked[full] = [2]int{w.Count("GetItem") - reads, w.Count("UpdateItem") - writes}
		if err := s.Release(context.Background(), l, gate.Outcome{Kind: gate.Succeeded}); err != nil {
			t.Error(err)
		}
	}
	if asked[true] != asked[false] || asked[true] != [2]int{1, 1} {
		t.Errorf("reads and writes: %v beside a full batch bulkhead, %v without", asked[true], asked[false])
	}
	if err := s.Release(context.Background(), b, gate.Outcome{Kind: gate.Succeeded}); err != nil {
		t.Error(err)
	}
	if again, _, _ := s.Acquire(context.Background(), gate.Request{Key: batch}); again == nil {
		t.Error("the place did not come back")
	}
}

// An instance that wrote in vain at the last token is shy: it leaves tokens to others without a write, and forgets.
func TestAWriteInVainMakesShy(t *testing.T) {
	w := &wire{}
	s := initialised(t, w)
	now := noon.Time()
	s.Now = func() time.Time { return now }
	bucket := testKnobs().Bucket()
	left := func(tokens int) { // to be seen by the next look
		st := gate.NewState(testKnobs(), noon, false)
		at := gate.MicrosOf(now)
		st.TAT = at + gate.Micros(int64(bucket.Tokens(0, int64(at))-tokens)*bucket.T)
		put(s, st)
	}
	tryOnce := func() (*gate.Lease, *gate.Refusal, int) {
		t.Helper()
		writes := w.Count("UpdateItem")
		l, refusal, err := s.Acquire(context.Background(), gate.Request{Key: alice})
		if err != nil {
			t.Fatal(err)
		}
		return l, refusal, w.Count("UpdateItem") - writes
	}
	if err := s.Prime(context.Background()); err != nil { // it has seen a full bucket...
		t.Fatal(err)
	}
	left(0) // ...which others have emptied since
	if l, refusal, writes := tryOnce(); l != nil || refusal.Cause != gate.NoToken || refusal.Estimated || writes != 1 {
		t.Fatalf("the write in vain: %+v, %+v, %d writes", l, refusal, writes)
	}
	now = now.Add(time.Second)
	left(1)
	refusals := 0
	for range 200 {
		s.seenAt = time.Time{}
		before := s.manners
		l, refusal, writes := tryOnce()
		if l != nil {
			left(1)
			s.manners = before
			continue
		}
		refusals++
		if !refusal.Estimated || refusal.Cause != gate.NoToken || writes != 0 {
			t.Fatalf("%+v after %d writes", refusal, writes)
		}
	}
	if refusals < 150 { // 1 - (1/8)^2 of them
		t.Errorf("%d of 200 left the last token to others", refusals)
	}
	left(8)
	s.seenAt = time.Time{}
	if l, refusal, writes := tryOnce(); l == nil || writes != 1 {
		t.Errorf("with half the bucket left: %+v, %d writes", refusal, writes)
	}
	now = now.Add(time.Minute)
	left(1)
	s.seenAt = time.Time{}
	if l, refusal, _ := tryOnce(); l == nil {
		t.Errorf("it does not forget: %+v", refusal)
	}
}
