package decode

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vingate/internal/gate"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

var dry = &tenant.Refusal{RetryAfter: 7 * time.Second}

// only refuses one tenant.
func only(c tenant.Caller) func(tenant.Caller) (*tenant.Refusal, error) {
	return func(asks tenant.Caller) (*tenant.Refusal, error) {
		if asks.ID == c.ID {
			return dry, nil
		}
		return nil, nil
	}
}

func TestATenantWithADryBucketIsRefusedBeforeTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.look = only(alice)
		_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice})
		r := refused(t, err)
		if r.Code != RateLimited || r.Scope != ScopeTenant || r.RetryAfter != 7*time.Second || !strings.Contains(r.Detail(), "too many decodes from you") {
			t.Errorf("refused with %+v", r)
		}
		if w.happened() != "get, view, look alice0000001 cost 1" || len(w.charges) != 0 {
			t.Errorf("happened: %s; charged: %v", w.happened(), w.charges)
		}
		// Stored answers are nobody's to limit.
		w.look = only(tenant.Caller{})
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: bob}); err != nil {
			t.Fatal(err)
		}
		w.look = only(alice)
		if r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice}); err != nil || r.Source != FromCache {
			t.Errorf("the stored answer: %+v, %v", r, err)
		}
	})
}

// The order of the checks: who is stopped together with everybody is not told of his own bucket, and the reverse.
func TestAHeldGateAnswersBeforeTheTenantIsLookedAt(t *testing.T) {
	for hold, want := range map[gate.HoldReason]Code{
		gate.HoldThrottled: UpstreamThrottled, gate.HoldFailing: UpstreamUnavailable, gate.HoldStarting: RateLimited, gate.HoldOperator: RateLimited,
	} {
		t.Run(string(hold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.look = only(alice)
				w.view = gate.View{HeldFor: 8200 * time.Millisecond, Hold: hold}
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice})
				if r := refused(t, err); r.Code != want || r.RetryAfter != 9*time.Second || r.Scope == ScopeTenant {
					t.Errorf("refused with %+v", r)
				}
				if w.happened() != "get, view" {
					t.Errorf("happened: %s", w.happened())
				}
			})
		})
	}
}

func TestWhatIsGrantedIsChargedOnceBesideTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*world)
		charged bool
	}{
		"an answer":                   {func(*world) {}, true},
		"a call that fails":           {func(w *world) { w.end(errors.New("x")) }, true},
		"a call that panics":          {func(w *world) { w.end(nil) }, true},
		"a lease too late for a call": {func(w *world) { w.late() }, true},
		"a refusal of the gate":       {func(w *world) { w.refuse(gate.NoToken) }, false},
		"a full bulkhead":             {func(w *world) { w.refuse(gate.BulkheadFull) }, false},
		"a gate that is down":         {func(w *world) { w.refuse("") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				tc.arrange(w)
				w.charge = func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil }
				began := time.Now()
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice})
				took := time.Since(began)
				if got := strings.Join(w.charges, "; "); tc.charged && got != "alice0000001 for lease cost 1" || !tc.charged && got != "" {
					t.Errorf("charged: %q", got)
				}
				if name == "an answer" && (err != nil || took != 400*time.Millisecond) {
					t.Errorf("%v, took %v: the charge is not beside the call", err, took)
				}
				if tc.charged && took < 300*time.Millisecond {
					t.Errorf("took %v: it did not wait for the charge", took)
				}
				if w.held != 0 {
					t.Errorf("a lease is held: %s", w.happened())
				}
			})
		})
	}
}

func (w *world) end(err error) {
	w.call = func(context.Context, vpic.Query) (vpic.Answer, error) {
		if err == nil {
			panic("boom")
		}
		return vpic.Answer{}, err
	}
}

func (w *world) late() {
	w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
		l := w.lease()
		l.StartBy = l.Granted.Add(-time.Second)
		return l, nil, nil
	}
}

func (w *world) refuse(c gate.Cause) {
	w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
		if c == "" {
			return nil, nil, errors.New("down")
		}
		return nil, &gate.Refusal{Cause: c, RetryAfter: time.Second}, nil
	}
}

// A stored answer, and another's call that is shared, take nothing of a tenant's bucket.
func TestOneCallIsChargedToTheOneWhoLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		var wg sync.WaitGroup
		for _, c := range []tenant.Caller{alice, bob, somebody} {
			wg.Go(func() {
				if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: c}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: bob}); err != nil {
			t.Error(err)
		}
		if got := strings.Join(w.charges, "; "); got != "alice0000001 for lease cost 1" {
			t.Errorf("charged: %q", got)
		}
	})
}

// The lease is held and the shared budget was read: what cannot be charged is the tenant's to owe.
func TestACallGoesOnWhenItCannotBeCharged(t *testing.T) {
	for name, fails := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return errors.New("no route to host") },
		"a panic":  func(context.Context) error { panic("no route to host") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.charge = fails
				r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice})
				if err != nil || r.Make() != "HONDA" || !r.Saved {
					t.Errorf("%+v, %v", r, err)
				}
				if !strings.Contains(w.logged.String(), "no route to host") || !strings.Contains(w.logged.String(), `"level":"ERROR"`) {
					t.Errorf("logged: %s", w.logged.String())
				}
			})
		})
	}
}

// A bucket that cannot be read is not a bucket that is full.
func TestNobodyIsLetThroughUnseen(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"the tenant cannot be looked at": func(w *world) {
			w.look = func(tenant.Caller) (*tenant.Refusal, error) {
				return nil, errors.New("dial tcp 10.0.0.1:443: no route to host")
			}
		},
		"the gate cannot be looked at": func(w *world) { w.viewErr = errors.New("dial tcp 10.0.0.1:443: no route to host") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				arrange(w)
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice})
				if r := refused(t, err); r.Code != CoordinationDown || r.RetryAfter < time.Second || strings.Contains(r.Detail(), "10.0.0.1") {
					t.Errorf("refused with %+v", r)
				}
				if w.count("acquire") != 0 || w.count("call") != 0 || !strings.Contains(w.logged.String(), "no route to host") {
					t.Errorf("happened: %s, logged: %s", w.happened(), w.logged.String())
				}
			})
		})
	}
}

func TestAFollowerIsNotRefusedForTheLeadersBucket(t *testing.T) {
	other := tenant.Caller{ID: "anonymous002", Anonymous: true}
	for name, tc := range map[string]struct {
		leader, follower tenant.Caller
		served           bool
	}{
		"another tenant":  {alice, bob, true},
		"the same tenant": {alice, alice, false},
		"another address, which shares the bulkhead": {somebody, other, true},
		"the same address":                           {somebody, somebody, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.look = func(c tenant.Caller) (*tenant.Refusal, error) {
					time.Sleep(time.Second)
					return only(tc.leader)(c)
				}
				ask := func(c tenant.Caller) func() (Result, error) {
					return func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: c}) }
				}
				got, errs := together(t, s, ask(tc.leader), ask(tc.follower))
				if r := refused(t, errs[0]); r.Code != RateLimited || r.Scope != ScopeTenant {
					t.Errorf("the leader: %+v", r)
				}
				if served := errs[1] == nil && got[1].Make() == "HONDA" && !got[1].Shared; served != tc.served {
					t.Errorf("the follower: %+v, %v", got[1], errs[1])
				}
				if n := w.count("look"); tc.served != (n == 2) {
					t.Errorf("%d looks", n)
				}
			})
		})
	}
}

func TestThePlanGoesAlongToTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		caller := alice
		caller.Plan = tenant.Plan{RatePerSecond: 1, Burst: 2, Weight: 3, Interactive: 4, Batch: 5}
		var asked gate.Request
		w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
			asked = r
			return w.lease(), nil, nil
		}
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: caller}); err != nil {
			t.Fatal(err)
		}
		if asked.Ceiling != 4 || asked.Weight != 3 || asked.Own != 0 || asked.Tenant != alice.ID || asked.Key != (gate.Key{Route: gate.Interactive, Tenant: alice.ID}) {
			t.Errorf("%+v", asked)
		}
		// Who shares a bulkhead with others brings along how much of it may be his.
		other, s := newWorld(t)
		other.acquire = w.acquire
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody}); err != nil {
			t.Fatal(err)
		}
		if asked.Own != 4 || asked.Tenant != somebody.ID || asked.Key != (gate.Key{Route: gate.Interactive, Tenant: gate.Anonymous}) {
			t.Errorf("%+v", asked)
		}
	})
}

// Nobody knows whose key it is: what is stored, anybody may have; a call, nobody.
func TestABarredRequestGetsWhatIsStoredOrItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		req := Request{VIN: accord, Barred: NewCoordinationDown()}
		_, err := s.Decode(t.Context(), req)
		if r := refused(t, err); r.Code != CoordinationDown || r.RetryAfter < time.Second {
			t.Errorf("refused with %+v", r)
		}
		if w.happened() != "get" {
			t.Errorf("happened: %s", w.happened())
		}
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: bob}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Decode(t.Context(), req); err != nil || r.Source != FromCache {
			t.Errorf("the stored answer: %+v, %v", r, err)
		}
		req.StoredOnly = true
		req.VIN = "1HGCM82673A004346"
		if _, err := s.Decode(t.Context(), req); refused(t, err).Code != NotStored {
			t.Errorf("a HEAD: %v", err)
		}
	})
}
