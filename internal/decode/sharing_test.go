package decode

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

func TestAHundredTabsCostOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		var wg sync.WaitGroup
		var mu sync.Mutex
		shared := 0
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				caller := []tenant.Caller{somebody, alice, bob}[i%3]
				r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: caller})
				if err != nil || r.Make() != "HONDA" || r.Source != FromNHTSA || r.Upstream != 400*time.Millisecond {
					t.Errorf("%+v, %v", r, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if r.Shared {
					shared++
					if want := 400*time.Millisecond - time.Duration(i)*time.Millisecond; r.Waited != want {
						t.Errorf("caller %d waited %v, want %v", i, r.Waited, want)
					}
				}
			})
		}
		wg.Wait()
		if w.count("call") != 1 || w.count("acquire") != 1 || w.count("release") != 1 || shared != 99 {
			t.Errorf("%d calls, %d tokens, %d shared", w.count("call"), w.count("acquire"), shared)
		}
	})
}

func TestAnotherYearIsAnotherQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		var wg sync.WaitGroup
		for _, y := range []int{0, 1999, 2000} {
			wg.Go(func() {
				if r, err := s.Decode(t.Context(), Request{VIN: accord, ModelYear: y, Caller: somebody}); err != nil || r.Shared {
					t.Errorf("%d: %+v, %v", y, r, err)
				}
			})
		}
		wg.Wait()
		if w.count("call") != 3 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// together starts a leader, and when it is under way a follower, and returns what became of them.
func together(t *testing.T, s *Service, leader, follower func() (Result, error)) (results [2]Result, errs [2]error) {
	t.Helper()
	var wg sync.WaitGroup
	for i, f := range []func() (Result, error){leader, follower} {
		wg.Go(func() { results[i], errs[i] = f() })
		synctest.Wait()
	}
	wg.Wait()
	return results, errs
}

func TestAFollowerInheritsWhatIsAboutEverybody(t *testing.T) {
	for _, cause := range []gate.Refusal{{Cause: gate.Held, Hold: gate.HoldThrottled}, {Cause: gate.NoToken}, {Cause: gate.QueueFull}, {Cause: gate.NoSlot}} {
		t.Run(string(cause.Cause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
					time.Sleep(time.Second)
					r := cause
					r.RetryAfter = 3 * time.Second
					return nil, &r, nil
				}
				ask := func(c tenant.Caller, after time.Duration) func() (Result, error) {
					return func() (Result, error) {
						time.Sleep(after)
						return s.Decode(t.Context(), Request{VIN: accord, Caller: c})
					}
				}
				_, errs := together(t, s, ask(alice, 0), ask(bob, 300*time.Millisecond))
				first, second := refused(t, errs[0]), refused(t, errs[1])
				if first.Code != second.Code || second.RetryAfter != 3*time.Second || first.Waited != time.Second || second.Waited != 700*time.Millisecond {
					t.Errorf("%+v and %+v", first, second)
				}
				if w.count("acquire") != 1 {
					t.Errorf("happened: %s", w.happened())
				}
			})
		})
	}
}

func TestAFollowerStandsForItselfWhenTheVerdictIsTheLeadersOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		follower tenant.Caller
		served   bool
		acquires int
	}{
		"another tenant":        {bob, true, 2},
		"the same tenant":       {alice, false, 1},
		"an anonymous follower": {somebody, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
					time.Sleep(2 * time.Second)
					if r.Key.Tenant == alice.ID {
						return nil, &gate.Refusal{Cause: gate.BulkheadFull, RetryAfter: time.Second}, nil
					}
					return w.lease(), nil, nil
				}
				ask := func(c tenant.Caller) func() (Result, error) {
					return func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: c}) }
				}
				got, errs := together(t, s, ask(alice), ask(tc.follower))
				if r := refused(t, errs[0]); r.Code != BulkheadTimeout {
					t.Errorf("the leader: %+v", r)
				}
				if served := errs[1] == nil && got[1].Make() == "HONDA" && !got[1].Shared; served != tc.served {
					t.Errorf("the follower: %+v, %v", got[1], errs[1])
				}
				if w.count("acquire") != tc.acquires {
					t.Errorf("happened: %s", w.happened())
				}
			})
		})
	}
}

func TestFollowersOfARefusedLeaderShareOneCallOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
			time.Sleep(time.Second)
			if r.Key.Tenant == alice.ID {
				return nil, &gate.Refusal{Cause: gate.BulkheadFull, RetryAfter: time.Second}, nil
			}
			return w.lease(), nil, nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) })
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				if r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: bob}); err != nil || r.Make() != "HONDA" {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		if w.count("call") != 1 || w.count("acquire") != 2 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

func TestAFollowerWithMoreTimeStandsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		first := true
		w.get = func() error {
			if first {
				first = false
				time.Sleep(2 * time.Second) // too little is left for the leader after this
			}
			return nil
		}
		got, errs := together(t, s,
			func() (Result, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				return s.Decode(ctx, Request{VIN: accord, Caller: alice})
			},
			func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) })
		if r := refused(t, errs[0]); r.Code != WaitTimeout {
			t.Errorf("the leader: %+v", r)
		}
		if errs[1] != nil || got[1].Make() != "HONDA" || w.count("call") != 1 {
			t.Errorf("the follower: %+v, %v", got[1], errs[1])
		}
	})
}

// What the leader's own time cut short is no verdict on a follower who has more.
func TestAFollowerInheritsNothingThatTheLeadersOwnTimeCaused(t *testing.T) {
	const little = 6 * time.Second // of which 2 s belong to release and store
	hang := func(e *vpic.Error) func(w *world) {
		return func(w *world) {
			first := true
			w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
				if first {
					first = false
					<-ctx.Done()
					return vpic.Answer{}, e
				}
				return w.answer(ctx, q, time.Second)
			}
		}
	}
	for name, tc := range map[string]struct {
		arrange func(*world)
		leader  Code
		calls   int
	}{
		"the call was cut short":        {hang(&vpic.Error{Kind: vpic.Timeout, Started: true}), UpstreamTimeout, 2},
		"the call never left":           {hang(&vpic.Error{Kind: vpic.Timeout}), RateLimited, 2},
		"the call was cancelled":        {hang(&vpic.Error{Kind: vpic.Canceled, Started: true}), UpstreamTimeout, 2},
		"no time for a call after this": {func(w *world) { w.get = once(w.get, 3*time.Second) }, WaitTimeout, 1},
		"the place came too late": {func(w *world) {
			quick := w.acquire
			w.acquire = func(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				w.acquire = quick
				time.Sleep(3 * time.Second)
				return w.lease(), nil, nil
			}
		}, RateLimited, 1},
		"the budget was not read in its time": {func(w *world) {
			quick := w.acquire
			w.acquire = func(ctx context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				w.acquire = quick
				<-ctx.Done()
				return nil, nil, ctx.Err()
			}
		}, CoordinationDown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				tc.arrange(w)
				ask := func(own time.Duration, caller tenant.Caller) func() (Result, error) {
					return func() (Result, error) {
						ctx, cancel := context.WithTimeout(t.Context(), own)
						defer cancel()
						return s.Decode(ctx, Request{VIN: accord, Caller: caller})
					}
				}
				got, errs := together(t, s, ask(little, alice), ask(20*time.Second, alice))
				if r := refused(t, errs[0]); r.Code != tc.leader {
					t.Errorf("the leader: %+v", r)
				}
				if errs[1] != nil || got[1].Make() != "HONDA" || got[1].Shared || w.count("call") != tc.calls {
					t.Errorf("the follower: %+v, %v; happened: %s", got[1], errs[1], w.happened())
				}
			})
		})
	}
}

// once makes the first use of a step slow.
func once(step func() error, slow time.Duration) func() error {
	first := true
	return func() error {
		if first {
			first = false
			time.Sleep(slow)
		}
		return step()
	}
}

// With as little time as the leader had, standing for oneself leads nowhere: twenty followers would look up one after the other.
func TestFollowersWithAsLittleTimeTakeTheLeadersVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Hour) }
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := s.Decode(ctx, Request{VIN: accord, Caller: alice})
				if r := refused(t, err); r.Code != UpstreamTimeout || r.Sentence != sayCutShort || r.Waited != 4*time.Second {
					t.Errorf("refused with %+v", r)
				}
			})
		}
		wg.Wait()
		if got, want := w.happened(), "get, view, look alice0000001 cost 1, foresee, elect, acquire interactive:alice0000001 cost 1, call 1HGCM82633A004352 0, release abandoned, quit"; got != want {
			t.Errorf("happened: %s\n    want: %s", got, want)
		}
	})
}

// A bulkhead that is not one's own is never one's refusal, also when no time is left to stand for oneself.
func TestAFollowerWithoutTimeIsNotToldOfTheLeadersBulkhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
			time.Sleep(2 * time.Second)
			return nil, &gate.Refusal{Cause: gate.BulkheadFull, RetryAfter: time.Second}, nil
		}
		_, errs := together(t, s,
			func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) },
			func() (Result, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				return s.Decode(ctx, Request{VIN: accord, Caller: bob})
			})
		if first, second := refused(t, errs[0]), refused(t, errs[1]); first.Code != BulkheadTimeout || second.Code != WaitTimeout {
			t.Errorf("%+v and %+v", first, second)
		}
		if w.count("acquire") != 1 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// A verdict that was forgotten, or a cause that is not known here, is nobody else's.
func TestAnUnknownVerdictIsNobodyElses(t *testing.T) {
	if (landing{refusal: busy()}).concerns(alice) || (landing{refusal: busy()}).concerns(tenant.Caller{}) {
		t.Error("a verdict that was not set is inherited")
	}
	for cause, want := range map[gate.Cause]verdict{
		gate.Held: onEveryone, gate.QueueFull: onEveryone, gate.NoToken: onEveryone, gate.NoSlot: onEveryone,
		gate.BulkheadFull: onKey, gate.NoKeySlot: onKey, gate.FlowFull: onTenant, gate.OwnFull: onTenant, "a cause to come": onRequest, "": onRequest,
	} {
		if got := about(&gate.Refusal{Cause: cause}); got != want {
			t.Errorf("%q is on %v, want %v", cause, got, want)
		}
	}
}

func TestAFollowersOwnTimeEndsItsOwnRequestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, 9*time.Second) }
		began := time.Now()
		got, errs := together(t, s,
			func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) },
			func() (Result, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				r, err := s.Decode(ctx, Request{VIN: accord, Caller: bob})
				if time.Since(began) != 5*time.Second {
					t.Errorf("left after %v", time.Since(began))
				}
				return r, err
			})
		if r := refused(t, errs[1]); r.Code != UpstreamTimeout || r.Sentence != sayCutShort || r.Waited != 5*time.Second || r.RetryAfter < time.Second {
			t.Errorf("the follower: %+v", r)
		}
		if errs[0] != nil || got[0].Make() != "HONDA" || w.count("call") != 1 {
			t.Errorf("the leader: %+v, %v", got[0], errs[0])
		}
	})
}

// The permit leaked when the caller went away during the call.
func TestConcurrencyLimits190_NothingIsHeldWhenTheCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, 3*time.Second) }
		ctx, hangUp := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, hangUp)
		began := time.Now()
		// The request goes on, as on Lambda: nothing runs once its response is out.
		if r, err := s.Decode(ctx, Request{VIN: accord, Caller: somebody}); err != nil || r.Make() != "HONDA" || time.Since(began) != 3*time.Second {
			t.Errorf("%+v, %v after %v", r, err, time.Since(began))
		}
		// NHTSA did the work: its answer is kept, and the lease is back.
		if w.held != 0 || w.count("release succeeded") != 1 || len(w.stored) != 1 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// A seat was never given back when the handler panicked.
func TestKubernetes97206_NothingIsHeldAfterAPanic(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"in the call":    func(w *world) { w.call = func(context.Context, vpic.Query) (vpic.Answer, error) { panic("boom") } },
		"in the store":   func(w *world) { w.put = func() error { panic("boom") } },
		"in the look-up": func(w *world) { w.get = func() error { panic("boom") } },
		"in the gate": func(w *world) {
			w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) { panic("boom") }
		},
		"in the release": func(w *world) { w.release = func(context.Context) error { panic("boom") } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				acquire, call, get, put, release := w.acquire, w.call, w.get, w.put, w.release
				arrange(w)
				_, errs := together(t, s,
					func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) },
					func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) })
				for _, err := range errs {
					if r := refused(t, err); r.Code != Internal || strings.Contains(r.Detail(), "boom") {
						t.Errorf("refused with %+v", r)
					}
				}
				if w.held != 0 {
					t.Errorf("%d leases are held: %s", w.held, w.happened())
				}
				if !strings.Contains(w.logged.String(), "boom") || !strings.Contains(w.logged.String(), "decode.go") {
					t.Errorf("the panic and its place are not logged: %s", w.logged.String())
				}
				w.acquire, w.call, w.get, w.put, w.release = acquire, call, get, put, release
				if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice}); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

func TestAReleaseThatFailsDoesNotCostTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.release = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
		if err != nil || r.Make() != "HONDA" {
			t.Fatalf("%+v, %v", r, err)
		}
		if took := time.Since(began); took != 400*time.Millisecond+releaseBound {
			t.Errorf("took %v", took)
		}
		if !strings.Contains(w.logged.String(), "lease not given back") {
			t.Errorf("logged: %s", w.logged.String())
		}
	})
}

// Between a call and its store nobody may start a second one.
func TestARequestThatComesWhileTheAnswerIsBeingStoredSharesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.put = func() error { time.Sleep(300 * time.Millisecond); return nil }
		_, errs := together(t, s,
			func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) },
			func() (Result, error) {
				time.Sleep(500 * time.Millisecond)
				return s.Decode(t.Context(), Request{VIN: accord, Caller: bob})
			})
		if errs[0] != nil || errs[1] != nil || w.count("call") != 1 {
			t.Errorf("%v, %s", errs, w.happened())
		}
		if _, ok := w.stored[results.Key(vpic.Query{VIN: accord})]; !ok {
			t.Error("nothing is stored")
		}
	})
}

func TestALeaseIsGivenBackAlsoWhenTheCallOutstaysEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(context.Context, vpic.Query) (vpic.Answer, error) {
			time.Sleep(time.Minute) // deaf to its deadline
			return vpic.Answer{}, &vpic.Error{Kind: vpic.Timeout, Started: true}
		}
		_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
		if r := refused(t, err); r.Code != UpstreamTimeout || r.Waited != s.RequestDeadline {
			t.Errorf("refused with %+v", r)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.held != 0 || w.count("release") != 1 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

func TestWaitingForAPlaceLeavesTimeForTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.acquire = func(ctx context.Context, _ gate.Request) (*gate.Lease, *gate.Refusal, error) {
			<-ctx.Done()
			return nil, nil, ctx.Err()
		}
		_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
		if r := refused(t, err); r.Code != CoordinationDown || r.Waited != s.flightTime(claim{})-s.AfterCall-leastCall {
			t.Errorf("refused with %+v", r)
		}
	})
}
