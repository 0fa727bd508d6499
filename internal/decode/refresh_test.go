package decode

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

// staleWorld holds an answer that is past its freshness by an hour.
func staleWorld(t *testing.T) (*world, *Service) {
	w, s := newWorld(t)
	w.hushed = map[string]results.Standing{} // with a memory
	w.keep(accordQuery, 169*time.Hour)
	w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Second) }
	return w, s
}

// isKept says whether a result is the stored answer, at once and labelled so.
func isKept(r Result, err error) bool {
	return err == nil && r.Source == FromCache && r.Stale() && r.Age >= 169*time.Hour && r.Make() == "HONDA" && !r.Saved && !r.Replaced && !r.Shared && r.Upstream == 0
}

func TestOfAllWhoAskForAStaleAnswerOneRefreshesIt(t *testing.T) {
	for name, memory := range map[string]bool{"with a memory": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := staleWorld(t)
				if !memory {
					w.hushed = nil
				}
				var wg sync.WaitGroup
				var mu sync.Mutex
				waited, fresh := 0, 0
				for n, instance := range instances(s, 10) {
					for i := range 100 { // ten a second on each
						wg.Go(func() {
							time.Sleep(time.Duration(i)*100*time.Millisecond + time.Duration(n)*time.Millisecond)
							began := time.Now()
							r, err := decodeOne(t, instance, five(i))
							took := time.Since(began)
							mu.Lock()
							defer mu.Unlock()
							switch {
							case took > 50*time.Millisecond:
								if waited++; err != nil || r.Source != FromNHTSA || !r.Replaced || !r.Saved || r.Shared || took != time.Second {
									t.Errorf("who waited %v got %+v, %v", took, r, err)
								}
							case err == nil && !r.Stale():
								fresh++
							case !isKept(r, err) || r.Trouble != "":
								t.Errorf("%+v, %v", r, err)
							}
						})
					}
				}
				wg.Wait()
				if w.count("call") != 1 || waited != 1 || fresh < 800 || len(w.charges) != 1 {
					t.Errorf("%d calls, %d waited, %d of 1000 had the new answer, charged %v", w.count("call"), waited, fresh, w.charges)
				}
				// The others look at most once a second while it is refreshed.
				if looks := w.count("get"); memory && looks > 10*12 {
					t.Errorf("%d looks", looks)
				}
			})
		})
	}
}

// A refresh takes only what is free now, and is told so.
func TestARefreshIsOptionalWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := staleWorld(t)
		s.MaxWait, s.BulkheadWait = 3*time.Second, 2*time.Second
		check := func(r gate.Request) {
			if !r.Optional || r.Patience != 0 || r.BulkheadWait != 0 {
				t.Errorf("asked for with %+v", r)
			}
		}
		w.foresee = func(r gate.Request) (*gate.Refusal, error) { check(r); return nil, nil }
		w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
			check(r)
			return w.lease(), nil, nil
		}
		if r, err := decodeOne(t, s, alice); err != nil || !r.Replaced {
			t.Errorf("%+v, %v", r, err)
		}
		if got, want := w.happened(), "get, view, look alice0000001 cost 1, foresee, elect, acquire interactive:alice0000001 cost 1, call 1HGCM82633A004352 0, release succeeded, put"; got != want {
			t.Errorf("happened: %s\n    want: %s", got, want)
		}
	})
}

// Whatever keeps an answer from being refreshed, the answer goes out, and for a minute nobody tries again.
func TestWhatCannotBeRefreshedGoesOutAndRestsForAMinute(t *testing.T) {
	deny := func(cause gate.Cause) *gate.Refusal { return &gate.Refusal{Cause: cause, RetryAfter: time.Second} }
	for name, tc := range map[string]struct {
		arrange func(*world)
		trouble Code
		took    time.Duration
		calls   int
		onItem  bool // all instances know
	}{
		"nothing is free, as anybody can see": {func(w *world) {
			w.foresee = func(gate.Request) (*gate.Refusal, error) { return deny(gate.NoSlot), nil }
		}, WaitTimeout, 0, 0, true},
		"nothing is free, as is found after the election": {func(w *world) {
			w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
				return nil, deny(gate.NoToken), nil
			}
		}, RateLimited, 0, 0, true},
		"the caller's places are taken": {func(w *world) {
			w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
				return nil, deny(gate.BulkheadFull), nil
			}
		}, BulkheadTimeout, 0, 0, true},
		"NHTSA asked for a pause": {func(w *world) { w.view = gate.View{HeldFor: time.Hour, Hold: gate.HoldThrottled} }, UpstreamThrottled, 0, 0, false},
		"the budget is down":      {func(w *world) { w.viewErr = errors.New("no route to host") }, CoordinationDown, 0, 0, false},
		"NHTSA throttles": {func(w *world) {
			w.call = func(context.Context, vpic.Query) (vpic.Answer, error) {
				time.Sleep(time.Second)
				return vpic.Answer{}, &vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true}
			}
		}, UpstreamThrottled, time.Second, 1, true},
		"NHTSA does not answer": {func(w *world) {
			w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Hour) }
		}, UpstreamTimeout, 10 * time.Second, 1, true},
		"NHTSA babbles": {func(w *world) {
			w.call = func(context.Context, vpic.Query) (vpic.Answer, error) {
				return vpic.Answer{}, &vpic.Error{Kind: vpic.BadResponse, Status: 200, Started: true}
			}
		}, UpstreamBadResponse, 0, 1, true},
		"a fault of ours": {func(w *world) {
			w.call = func(context.Context, vpic.Query) (vpic.Answer, error) { panic("boom") }
		}, Internal, 0, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := staleWorld(t)
				tc.arrange(w)
				began := time.Now()
				r, err := decodeOne(t, s, alice)
				if !isKept(r, err) || r.Trouble != tc.trouble || time.Since(began) != tc.took || r.Waited != tc.took && tc.trouble != Internal {
					t.Errorf("%+v, %v after %v", r, err, time.Since(began))
				}
				tries := func() int { return w.count("foresee") + w.count("view") }
				tried := tries()
				for elapsed := time.Duration(0); elapsed < 59*time.Second; elapsed += 5 * time.Second {
					if r, err := decodeOne(t, s, bob); !isKept(r, err) || r.Trouble != tc.trouble {
						t.Errorf("after %v: %+v, %v", elapsed, r, err)
					}
					if !tc.onItem {
						time.Sleep(5 * time.Second)
						continue
					}
					w.hushed = map[string]results.Standing{} // another instance, which knows from the table alone
					if r, err := decodeOne(t, New(s.Config), bob); !isKept(r, err) || r.Trouble != tc.trouble {
						t.Errorf("after %v, elsewhere: %+v, %v", elapsed, r, err)
					}
					time.Sleep(5 * time.Second)
				}
				if tries() != tried || w.count("call") != tc.calls || w.held != 0 {
					t.Errorf("tried %d times in a minute, %d calls", tries()-tried, w.count("call"))
				}
				time.Sleep(time.Second)
				if _, err := decodeOne(t, s, bob); err != nil || tries() == tried {
					t.Errorf("after a minute: %v, %d tries more", err, tries()-tried)
				}
				synctest.Wait()
			})
		})
	}
}

// A caller whose own bucket is dry gets the answer, and keeps nobody else from refreshing it.
func TestADryCallerLeavesTheRefreshToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := staleWorld(t)
		w.look = func(c tenant.Caller) (*tenant.Refusal, error) {
			if c.ID == alice.ID {
				return &tenant.Refusal{RetryAfter: time.Hour}, nil
			}
			return nil, nil
		}
		if r, err := decodeOne(t, s, alice); !isKept(r, err) || r.Trouble != RateLimited {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err := decodeOne(t, s, bob); !isKept(r, err) { // at once again
			t.Errorf("%+v, %v", r, err)
		}
		time.Sleep(idleLook)
		if r, err := decodeOne(t, s, bob); err != nil || !r.Replaced || r.Stale() {
			t.Errorf("%+v, %v", r, err)
		}
		if w.count("defer")+w.count("quit") != 0 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// The one who refreshes dies: everybody else has the stored answer meanwhile, and another tries when its time is over.
func TestARefreshThatDiesIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := staleWorld(t)
		w.dies()
		began := time.Now()
		go func() { _, _ = decodeOne(t, s, alice) }()
		synctest.Wait()
		lease := s.flightTime(claim{optional: true}) + 2*skewBound
		other := New(s.Config)
		for time.Since(began) < lease {
			w.hushed = map[string]results.Standing{}
			asked := time.Now()
			if r, err := decodeOne(t, other, bob); !isKept(r, err) || time.Since(asked) != 0 {
				t.Errorf("after %v: %+v, %v", time.Since(began), r, err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		w.hushed = map[string]results.Standing{}
		if r, err := decodeOne(t, other, bob); err != nil || !r.Replaced {
			t.Errorf("%+v, %v; %v after the beginning, the flight lasts %v", r, err, time.Since(began), lease)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
}

// What is past its hard end is no answer any more: it is asked for like any other, and waited for.
func TestPastItsHardEndAnAnswerIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := staleWorld(t)
		w.keep(accordQuery, 721*time.Hour)
		w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
			return nil, &gate.Refusal{Cause: gate.NoToken, RetryAfter: 3 * time.Second}, nil
		}
		_, err := decodeOne(t, s, alice)
		if r := refused(t, err); r.Code != RateLimited {
			t.Errorf("refused with %+v", r)
		}
	})
}

// Without the table an answer in memory goes out, however stale, and is not refreshed without an election.
func TestAStaleAnswerInMemoryGoesOutWithoutTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := staleWorld(t)
		w.get = func() error {
			return &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("no route to host")}
		}
		for range 3 {
			if r, err := decodeOne(t, s, alice); !isKept(r, err) || r.Trouble != CoordinationDown {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if w.happened() != "get" {
			t.Errorf("happened: %s", w.happened())
		}
		// Who may cause no call gets it too.
		if r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice, StoredOnly: true}); !isKept(r, err) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // it can be read, but not written
		w, s := staleWorld(t)
		w.elect = func() error {
			return &results.StoreError{Op: "write", Fault: ddb.Unreachable, Err: errors.New("no route to host")}
		}
		if r, err := decodeOne(t, s, alice); !isKept(r, err) || r.Trouble != CoordinationDown || w.count("call") != 0 {
			t.Errorf("%+v, %v: %s", r, err, w.happened())
		}
	})
}
