package decode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

var accordQuery = vpic.Query{VIN: accord}

// instances are more of the same world: each has flights of its own, and all have one table.
func instances(s *Service, n int) []*Service {
	all := []*Service{s}
	for len(all) < n {
		all = append(all, New(s.Config))
	}
	return all
}

func five(i int) tenant.Caller { return tenant.Caller{ID: fmt.Sprintf("tenant%06d", i%5)} }

// decodeOne asks for the usual VIN.
func decodeOne(t *testing.T, s *Service, c tenant.Caller) (Result, error) {
	return s.Decode(t.Context(), Request{VIN: accord, Caller: c})
}

func TestTwoHundredRequestsOnTenInstancesOfFiveTenantsAreOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Second) }
		var wg sync.WaitGroup
		var mu sync.Mutex
		own := 0
		for n, instance := range instances(s, 10) {
			for i := range 20 {
				wg.Go(func() {
					time.Sleep(time.Duration(n*7+i) * time.Millisecond)
					began := time.Now()
					r, err := decodeOne(t, instance, five(i))
					if err != nil || r.Make() != "HONDA" || r.Source != FromNHTSA || r.Stale() || r.Trouble != "" {
						t.Errorf("instance %d, request %d: %+v, %v", n, i, r, err)
					}
					if r.Shared && (r.Waited != time.Since(began) || time.Since(began) > time.Second+mostWatch*3/2+leastWatch) {
						t.Errorf("instance %d, request %d waited %v, and says %v", n, i, time.Since(began), r.Waited)
					}
					mu.Lock()
					defer mu.Unlock()
					if !r.Shared {
						own++
					}
				})
			}
		}
		wg.Wait()
		if w.count("call") != 1 || w.count("acquire") != 1 || w.count("release") != 1 || len(w.charges) != 1 || own != 1 {
			t.Errorf("%d calls, %d places, %v charged, %d answers are nobody else's", w.count("call"), w.count("acquire"), w.charges, own)
		}
		if n := w.count("watch"); n < 9 || n > 9*12 {
			t.Errorf("nine instances looked %d times in a second", n)
		}
	})
}

// dies makes the first call's instance stop for ever in the middle of it.
func (w *world) dies() {
	quick := w.call
	var called atomic.Bool
	w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
		if called.Swap(true) {
			return quick(ctx, q)
		}
		w.quit = func() error { return errors.New("dead") } // nor does it say goodbye
		time.Sleep(time.Hour)
		return vpic.Answer{}, &vpic.Error{Kind: vpic.Canceled, Started: true}
	}
}

func TestWhoFollowsADeadLeaderTakesOverWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.dies()
		all := instances(s, 5)
		began := time.Now()
		go func() { _, _ = decodeOne(t, all[0], alice) }()
		synctest.Wait()
		lease := all[0].flightTime(claim{wait: s.MaxWait}) + 2*skewBound
		var wg sync.WaitGroup
		own := 0
		for _, instance := range all[1:] {
			wg.Go(func() {
				r, err := decodeOne(t, instance, bob)
				if err != nil || r.Make() != "HONDA" {
					t.Errorf("%+v, %v", r, err)
				}
				// The flight, one look, and the call of the one who took over.
				if took := time.Since(began); took < lease || took > lease+2*leastWatch+mostWatch*3/2+400*time.Millisecond {
					t.Errorf("answered after %v, the flight lasts %v", took, lease)
				}
				if !r.Shared {
					own++
				}
			})
		}
		wg.Wait()
		if w.count("call") != 2 || own != 1 {
			t.Errorf("%d calls, %d took over: %s", w.count("call"), own, w.happened())
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
}

// What is about everybody is told to those who follow in other instances, and costs them nothing.
func TestFollowersElsewhereInheritWhatIsAboutEverybody(t *testing.T) {
	for name, tc := range map[string]struct {
		denied *gate.Refusal
		failed *vpic.Error
	}{
		"NHTSA asked for a pause": {&gate.Refusal{Cause: gate.Held, Hold: gate.HoldThrottled}, nil},
		"NHTSA fails":             {&gate.Refusal{Cause: gate.Held, Hold: gate.HoldFailing}, nil},
		"old tables":              {&gate.Refusal{Cause: gate.Held, Hold: gate.HoldStarting}, nil},
		"the operator's pause":    {&gate.Refusal{Cause: gate.Held, Hold: gate.HoldOperator}, nil},
		"the line":                {&gate.Refusal{Cause: gate.QueueFull}, nil},
		"the rate":                {&gate.Refusal{Cause: gate.NoToken}, nil},
		"the slots":               {&gate.Refusal{Cause: gate.NoSlot}, nil},
		"429":                     {nil, &vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true, RetryAfter: 7 * time.Second}},
		"403":                     {nil, &vpic.Error{Kind: vpic.Throttled, Status: 403, Blocked: true, Started: true}},
		"500":                     {nil, &vpic.Error{Kind: vpic.Unavailable, Status: 500, Started: true}},
		"no answer in time":       {nil, &vpic.Error{Kind: vpic.Timeout, Started: true}},
		"HTML":                    {nil, &vpic.Error{Kind: vpic.BadResponse, Status: 200, Started: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				if tc.denied != nil {
					w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
						time.Sleep(time.Second)
						r := *tc.denied
						r.RetryAfter = 9 * time.Second
						return nil, &r, nil
					}
				} else {
					w.call = func(context.Context, vpic.Query) (vpic.Answer, error) {
						time.Sleep(time.Second)
						return vpic.Answer{}, tc.failed
					}
				}
				all := instances(s, 4)
				refusals := make([]*Refusal, len(all))
				var wg sync.WaitGroup
				for i, instance := range all {
					wg.Go(func() {
						_, err := decodeOne(t, instance, five(i))
						refusals[i] = refused(t, err)
					})
					synctest.Wait()
				}
				wg.Wait()
				first := refusals[0]
				for i, r := range refusals[1:] {
					if r.Code != first.Code || r.Scope != first.Scope || r.Sentence != first.Sentence || r.RetryAfter > first.RetryAfter || r.RetryAfter < first.RetryAfter-time.Second || r.RetryAfter < time.Second {
						t.Errorf("follower %d: %+v, the leader %+v", i, r, first)
					}
				}
				if w.count("acquire") != 1 || w.count("elect") != 1 || w.count("call") > 1 {
					t.Errorf("happened: %s", w.happened())
				}
				// Who comes later asks for itself.
				_, err := decodeOne(t, New(s.Config), alice)
				if refused(t, err); w.count("acquire") != 2 {
					t.Errorf("who came later took an old verdict: %s", w.happened())
				}
			})
		})
	}
}

// The leader's tenant is dry, or its bulkhead full, or it had too little time: the others are served, by one call of their own.
func TestFollowersElsewhereStandForThemselves(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"the leader's bulkhead is full": func(w *world) {
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				time.Sleep(time.Second)
				if r.Key.Tenant == alice.ID {
					return nil, &gate.Refusal{Cause: gate.BulkheadFull, RetryAfter: time.Second}, nil
				}
				return w.lease(), nil, nil
			}
		},
		"the leader's share of the line is full": func(w *world) {
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				time.Sleep(time.Second)
				if r.Key.Tenant == alice.ID {
					return nil, &gate.Refusal{Cause: gate.FlowFull, RetryAfter: time.Second}, nil
				}
				return w.lease(), nil, nil
			}
		},
		"the leader's place came too late": func(w *world) {
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				l := w.lease()
				if r.Key.Tenant == alice.ID {
					time.Sleep(time.Second)
				}
				return l, nil, nil
			}
		},
		"the leader's instance cannot write the budget": func(w *world) {
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				if r.Key.Tenant == alice.ID {
					time.Sleep(time.Second)
					return nil, nil, errors.New("no route to host")
				}
				return w.lease(), nil, nil
			}
		},
		"the leader panics": func(w *world) {
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				if r.Key.Tenant == alice.ID {
					time.Sleep(time.Second)
					panic("boom")
				}
				return w.lease(), nil, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				arrange(w)
				all := instances(s, 6)
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := decodeOne(t, all[0], alice)
					refused(t, err)
				})
				synctest.Wait()
				began := time.Now()
				for _, instance := range all[1:] {
					wg.Go(func() {
						if r, err := decodeOne(t, instance, bob); err != nil || r.Make() != "HONDA" {
							t.Errorf("%+v, %v", r, err)
						}
					})
				}
				wg.Wait()
				if w.count("call") != 1 || w.count("acquire") != 2 || time.Since(began) > 4*time.Second {
					t.Errorf("after %v: %s", time.Since(began), w.happened())
				}
			})
		})
	}
}

// A dry leader is refused before it is elected, so nobody follows it; and a verdict about it is nobody else's.
func TestWhatNeedsNoWriteIsRefusedBeforeTheElection(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*world)
		code    Code
	}{
		"a hold": {func(w *world) { w.view = gate.View{HeldFor: time.Minute, Hold: gate.HoldThrottled} }, UpstreamThrottled},
		"a dry tenant": {func(w *world) {
			w.look = func(tenant.Caller) (*tenant.Refusal, error) { return &tenant.Refusal{RetryAfter: time.Second}, nil }
		}, RateLimited},
		"a budget that is down": {func(w *world) { w.viewErr = errors.New("no route to host") }, CoordinationDown},
		"what the gate foresees": {func(w *world) {
			w.foresee = func(gate.Request) (*gate.Refusal, error) {
				return &gate.Refusal{Cause: gate.QueueFull, RetryAfter: time.Second}, nil
			}
		}, QueueFull},
		"a gate that cannot be read": {func(w *world) {
			w.foresee = func(gate.Request) (*gate.Refusal, error) { return nil, errors.New("no route to host") }
		}, CoordinationDown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				tc.arrange(w)
				_, err := decodeOne(t, s, alice)
				if r := refused(t, err); r.Code != tc.code {
					t.Errorf("refused with %+v", r)
				}
				if w.count("elect")+w.count("quit")+w.count("put")+w.count("acquire")+w.count("defer") != 0 {
					t.Errorf("happened: %s", w.happened())
				}
			})
		})
	}
}

// A follower whose own time ends knows neither that NHTSA is slow nor that there is no place.
func TestAFollowerElsewhereWithoutTimeIsToldWhatItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, 9*time.Second) }
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = decodeOne(t, s, alice) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := New(s.Config).Decode(ctx, Request{VIN: accord, Caller: bob})
		if r := refused(t, err); r.Code != WaitTimeout || r.Sentence != sayFollowing || r.RetryAfter < time.Second || time.Since(began) != 5*time.Second {
			t.Errorf("refused with %+v after %v", r, time.Since(began))
		}
		wg.Wait()
	})
}

// A flight ends with its leader's request, and its call before that.
func TestAFlightLastsNoLongerThanItsLeadersRequest(t *testing.T) {
	for own, want := range map[time.Duration]time.Duration{0: 13500 * time.Millisecond, 8 * time.Second: 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w, s := newWorld(t)
			ctx := t.Context()
			if own > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, own)
				defer cancel()
			}
			began := time.Now()
			var flight results.Flight
			w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
				w.mu.Lock()
				flight = w.rows[results.Key(q)].Flight
				w.mu.Unlock()
				return w.answer(ctx, q, time.Second)
			}
			if _, err := s.Decode(ctx, Request{VIN: accord, Caller: alice}); err != nil {
				t.Fatal(err)
			}
			if got := flight.End.Time().Sub(began) - 2*skewBound; got < want || got > want+2*time.Millisecond {
				t.Errorf("with %v of its own the flight lasts %v, want %v and what clocks are off by", own, got, want)
			}
		})
	}
}

// A VIN whose calls timed out twice is not asked for a minute, by whatever instance; one more after that, and it rests again.
func TestAVINThatTimedOutTwiceIsRefusedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		hangs := true
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
			if hangs {
				return w.answer(ctx, q, time.Hour)
			}
			return w.answer(ctx, q, time.Second)
		}
		ask := func(sentence string, calls int) *Refusal {
			t.Helper()
			_, err := decodeOne(t, New(s.Config), five(w.count("call")))
			r := refused(t, err)
			if r.Code != UpstreamTimeout || r.Sentence != sentence || r.RetryAfter < time.Second || w.count("call") != calls {
				t.Errorf("refused with %+v after %d calls, want %d: %s", r, w.count("call"), calls, r.Detail())
			}
			return r
		}
		if r := ask(sayTimeout, 1); r.RetryAfter != 5*time.Second {
			t.Errorf("after the first told %v", r.RetryAfter)
		}
		// Whose call was the last one is told when there may be another, as are those who followed it.
		var told [2]*Refusal
		follower := New(s.Config)
		var both sync.WaitGroup
		both.Go(func() { told[0] = ask(sayTimeout, 2) })
		both.Go(func() {
			time.Sleep(time.Millisecond)
			_, err := decodeOne(t, follower, bob)
			told[1] = refused(t, err)
		})
		both.Wait()
		for i, r := range told {
			if r.RetryAfter < 60*time.Second || r.RetryAfter > 61*time.Second {
				t.Errorf("after the second the one in place %d was told %v", i, r.RetryAfter)
			}
		}
		if r := ask(sayTooSlow, 2); r.RetryAfter != 61*time.Second { // and what clocks are off by
			t.Errorf("told %v", r.RetryAfter)
		}
		time.Sleep(59*time.Second - time.Millisecond)
		ask(sayTooSlow, 2)
		time.Sleep(time.Second + time.Millisecond)
		if r := ask(sayTimeout, 3); r.RetryAfter != 61*time.Second {
			t.Errorf("after the third told %v", r.RetryAfter)
		}
		ask(sayTooSlow, 3)
		// Another model year is another question, but an answer forgets all of it.
		time.Sleep(time.Minute)
		hangs = false
		if r, err := decodeOne(t, New(s.Config), alice); err != nil || r.Make() != "HONDA" {
			t.Errorf("%+v, %v", r, err)
		}
		if row := w.rows[results.Key(accordQuery)]; row.Slow != (results.Slow{}) {
			t.Errorf("left %+v", row.Slow)
		}
	})
}

// Only NHTSA's own slowness counts, not a call that we cut short.
func TestACallThatWasCutShortIsNoSlowVIN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Hour) }
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			_, err := s.Decode(ctx, Request{VIN: accord, Caller: alice})
			cancel()
			if r := refused(t, err); r.Sentence != sayCutShort {
				t.Errorf("refused with %+v", r)
			}
		}
		if w.count("call") != 3 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// P11's other half: without the results table the decode goes on, through the gate, and the caller hears nothing of it.
func TestADecodeGoesOnWhateverTheResultsTableDoes(t *testing.T) {
	down := func() error {
		time.Sleep(300 * time.Millisecond)
		return &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("no route to host")}
	}
	for name, tc := range map[string]struct {
		arrange func(*world)
		saved   bool
		happens string // beside the usual
	}{
		"it cannot be read":            {func(w *world) { w.get, w.put = down, down }, false, "get, view, look alice0000001 cost 1, foresee, acquire interactive:alice0000001 cost 1, call 1HGCM82633A004352 0, release succeeded, put"},
		"it cannot be written":         {func(w *world) { w.elect, w.put = down, down }, false, "get, view, look alice0000001 cost 1, foresee, elect, acquire interactive:alice0000001 cost 1, call 1HGCM82633A004352 0, release succeeded, put, quit"},
		"it is back when NHTSA is":     {func(w *world) { w.get = down }, true, "get, view, look alice0000001 cost 1, foresee, acquire interactive:alice0000001 cost 1, call 1HGCM82633A004352 0, release succeeded, put"},
		"the election may have passed": {func(w *world) { w.elect = down }, true, "get, view, look alice0000001 cost 1, foresee, elect, acquire interactive:alice0000001 cost 1, call 1HGCM82633A004352 0, release succeeded, put"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				watch := &observed{}
				s.Observe = watch
				tc.arrange(w)
				r, err := decodeOne(t, s, alice)
				if err != nil || r.Make() != "HONDA" || r.Source != FromNHTSA || r.Saved != tc.saved || r.Trouble != "" {
					t.Errorf("%+v, %v", r, err)
				}
				if w.happened() != tc.happens {
					t.Errorf("happened: %s\n    want: %s", w.happened(), tc.happens)
				}
				if !strings.Contains(w.logged.String(), "no route to host") || len(watch.uncached) == 0 || watch.uncached[0] != string(ddb.Unreachable) {
					t.Errorf("logged %q, observed %v", w.logged.String(), watch.uncached)
				}
			})
		})
	}
}

// observed is an Observer.
type observed struct {
	nobody
	uncached []string
}

func (o *observed) Uncached(_ context.Context, fault string) { o.uncached = append(o.uncached, fault) }

// A follower that cannot see its leader any more goes alone rather than wait for nobody knows what.
func TestAFollowerThatCannotLookGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, 5*time.Second) }
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = decodeOne(t, s, alice) })
		synctest.Wait()
		w.watch = func() error {
			time.Sleep(300 * time.Millisecond)
			return &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("no route to host")}
		}
		began := time.Now()
		if r, err := decodeOne(t, New(s.Config), bob); err != nil || r.Make() != "HONDA" || r.Shared || time.Since(began) > 5*time.Second+time.Second+100*time.Millisecond {
			t.Errorf("%+v, %v after %v", r, err, time.Since(began))
		}
		wg.Wait()
		if w.count("call") != 2 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// Words between instances: each verdict about everybody has one, and comes back as it was.
func TestEveryVerdictOnEverybodyHasItsWord(t *testing.T) {
	s := New(Config{})
	for word, known := range reasons {
		r := known
		if got := reasonOf(&r); got != word {
			t.Errorf("%s is told as %q", word, got)
		}
		back := s.shared(results.Verdict{Reason: word, RetryAt: results.MillisOf(time.Now().Add(3500 * time.Millisecond))})
		if back == nil || back.Code != known.Code || back.Sentence != known.Sentence || back.Scope != known.Scope || back.RetryAfter != 4*time.Second {
			t.Errorf("%s comes back as %+v", word, back)
		}
		if past := s.shared(results.Verdict{Reason: word, RetryAt: 1}); past.RetryAfter != time.Second {
			t.Errorf("%s of long ago comes back with %v", word, past.RetryAfter)
		}
		if strings.ContainsAny(word, " \t") {
			t.Errorf("%q has a blank", word)
		}
	}
	if s.shared(results.Verdict{Reason: "a word to come"}) != nil {
		t.Error("an unknown word became a refusal")
	}
	for _, own := range []*Refusal{busy(), following(), NewCoordinationDown(), NewInternal(), fromUpstream(errLate), fromUpstream(errCutShort), refuse(RateLimited, sayTenant, time.Second), refuse(BulkheadTimeout, sayBulkhead, time.Second)} {
		if word := reasonOf(own); word != "" && own.Sentence != sayWaitTimeout {
			t.Errorf("%+v is told to others as %q", own, word)
		}
	}
}

// An instance that is frozen between its election and its place thaws with its monotonic clock behind: others have taken over, and it must not call.
func TestALeaderThatWasFrozenFindsItsFlightOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		frozen := time.Duration(0)
		wall := func() time.Time { return time.Now().Round(0).Add(frozen) } // the context's clocks do not move
		s.Now = wall
		w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
			frozen = time.Minute // it asks the gate when it is awake again
			now := wall()
			return &gate.Lease{ID: "lease", Granted: now, StartBy: now.Add(250 * time.Millisecond), CallBy: now.Add(13500 * time.Millisecond), End: now.Add(15 * time.Second)}, nil, nil
		}
		_, err := decodeOne(t, s, alice)
		if r := refused(t, err); r.Code.Status() != 429 || w.count("call") != 0 || w.held != 0 {
			t.Errorf("refused with %+v: %s", r, w.happened())
		}
	})
}
