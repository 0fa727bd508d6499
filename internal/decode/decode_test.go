package decode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/vpic"
)

func TestALiveDecodePassesItsLanesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
			time.Sleep(3 * time.Millisecond)
			return w.lease(), nil, nil
		}
		r, err := s.Decode(t.Context(), Request{VIN: " 1hgcm-82633a004352", ModelYear: 2001, Caller: somebody})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.happened(), "get, view, look anonymous001 cost 1, foresee, elect, acquire interactive:anon cost 1, call 1HGCM82633A004352 2001, release succeeded, put"; got != want {
			t.Errorf("happened: %s\n    want: %s", got, want)
		}
		if w.outcomes[0] != (gate.Outcome{Kind: gate.Succeeded, Took: 400 * time.Millisecond}) {
			t.Errorf("released with %+v", w.outcomes[0])
		}
		if r.VIN.Value != accord || r.VIN.Submitted != " 1hgcm-82633a004352" || r.Make() != "HONDA" || r.ModelYear() != 2003 || r.Outcome() != vpic.Clean {
			t.Errorf("result %+v", r)
		}
		if r.Source != FromNHTSA || r.Waited != 3*time.Millisecond || r.Upstream != 400*time.Millisecond || r.Shared || !r.Saved || r.Age != 0 || r.FreshFor != 168*time.Hour {
			t.Errorf("provenance %+v", r)
		}

		w.journal = nil
		time.Sleep(90 * time.Second)
		r, err = s.Decode(t.Context(), Request{VIN: accord, ModelYear: 2001, Caller: somebody})
		if err != nil {
			t.Fatal(err)
		}
		if w.happened() != "get" || r.Source != FromCache || r.Age != 90*time.Second || r.Waited != 0 || r.Upstream != 0 || r.Shared || r.Saved || r.Make() != "HONDA" {
			t.Errorf("the second time: %s; %+v", w.happened(), r)
		}
	})
}

func TestWhatCannotBeAVINSpendsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		req      Request
		code     Code
		position int
	}{
		"empty":             {Request{VIN: ""}, VINInvalid, 0},
		"the letter O":      {Request{VIN: "1HGCM82633A00435O"}, VINInvalid, 17},
		"too short":         {Request{VIN: "1HGCM82633A00435"}, VINInvalid, 0},
		"a path":            {Request{VIN: "../../etc/passwd"}, VINInvalid, 1},
		"a NUL":             {Request{VIN: "1HGCM82633A00435\x00"}, VINInvalid, 17},
		"ten kilobytes":     {Request{VIN: strings.Repeat("A", 10_000)}, VINInvalid, 0},
		"invalid UTF-8":     {Request{VIN: "1HGCM82633A00435\xff"}, VINInvalid, 17},
		"a year before VIN": {Request{VIN: accord, ModelYear: 1979}, ModelYearInvalid, 0},
		"a year to come":    {Request{VIN: accord, ModelYear: 2003}, ModelYearInvalid, 0}, // the bubble's clock stands in 2000
		"a negative year":   {Request{VIN: accord, ModelYear: -2003}, ModelYearInvalid, 0},
		"a huge year":       {Request{VIN: accord, ModelYear: 1 << 40}, ModelYearInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				_, err := s.Decode(t.Context(), tc.req)
				r := refused(t, err)
				if r.Code != tc.code || r.Position != tc.position || r.RetryAfter != 0 {
					t.Errorf("refused with %+v", r)
				}
				if w.happened() != "" {
					t.Errorf("it touched: %s", w.happened())
				}
			})
		})
	}
}

func TestTheModelYearIsAcceptedUpToTheYearAfterNext(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 30, 0, 0, time.FixedZone("west", -5*3600)) // 2027 in UTC
	if LastModelYear(now) != 2029 {
		t.Errorf("LastModelYear = %d", LastModelYear(now))
	}
	synctest.Test(t, func(t *testing.T) {
		_, s := newWorld(t)
		for _, y := range []int{FirstModelYear, 2000, 2002} {
			if _, err := s.Decode(t.Context(), Request{VIN: accord, ModelYear: y, Caller: somebody}); err != nil {
				t.Errorf("%d: %v", y, err)
			}
		}
	})
}

func TestNoCallLeavesOutsideOfItsLease(t *testing.T) {
	for name, tc := range map[string]struct {
		delay time.Duration // between grant and call
		lease func(*gate.Lease)
	}{
		"past its start": {251 * time.Millisecond, func(*gate.Lease) {}},
		"past its end":   {0, func(l *gate.Lease) { l.CallBy = l.Granted }},
		"thawed later":   {time.Hour, func(*gate.Lease) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				s.RequestDeadline = 2 * time.Hour
				w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
					l := w.lease()
					tc.lease(l)
					time.Sleep(tc.delay)
					return l, nil, nil
				}
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
				r := refused(t, err)
				if r.Code != RateLimited || r.Scope != ScopeUpstream || r.RetryAfter < time.Second || r.Waited != tc.delay {
					t.Errorf("refused with %+v", r)
				}
				if w.count("call") != 0 || w.count("release abandoned") != 1 {
					t.Errorf("happened: %s", w.happened())
				}
			})
		})
	}
}

func TestACallEndsByTheEarliestOfItsLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		left    time.Duration // of the request, 0: all of it
		callBy  time.Duration
		slow    time.Duration // gate
		want    time.Duration // of the call
		outcome gate.OutcomeKind
		says    string
	}{
		"UPSTREAM_TIMEOUT":               {0, 13500 * time.Millisecond, 0, 10 * time.Second, gate.Failed, sayTimeout},
		"the lease":                      {0, 4 * time.Second, 0, 4 * time.Second, gate.Abandoned, sayCutShort},
		"the invocation, less the store": {6 * time.Second, 13500 * time.Millisecond, 0, 4 * time.Second, gate.Abandoned, sayCutShort},
		"after waiting for the place":    {0, 13500 * time.Millisecond, 20 * time.Second, 5 * time.Second, gate.Abandoned, sayCutShort},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				s.MaxWait = tc.slow
				ctx := t.Context()
				if tc.left > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.left)
					defer cancel()
				}
				w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
					time.Sleep(tc.slow)
					l := w.lease()
					l.CallBy = l.Granted.Add(tc.callBy)
					return l, nil, nil
				}
				w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Hour) }
				began := time.Now()
				_, err := s.Decode(ctx, Request{VIN: accord, Caller: somebody})
				r := refused(t, err)
				if got := time.Since(began) - tc.slow; got != tc.want {
					t.Errorf("the call took %v, want %v", got, tc.want)
				}
				if r.Code != UpstreamTimeout || r.Sentence != tc.says || r.Waited != tc.slow+tc.want {
					t.Errorf("refused with %+v", r)
				}
				// Only a call that had its full time says that NHTSA fails.
				if len(w.outcomes) != 1 || w.outcomes[0].Kind != tc.outcome || w.outcomes[0].Took != tc.want {
					t.Errorf("released with %+v, want %s", w.outcomes, tc.outcome)
				}
			})
		})
	}
}

func TestACallIsNotBegunWithTooLittleTimeLeft(t *testing.T) {
	for _, timeout := range []time.Duration{500 * time.Millisecond, leastCall, 10 * time.Second} {
		for _, missing := range []time.Duration{0, time.Millisecond} {
			t.Run(fmt.Sprintf("%v of %v", missing, timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, s := newWorld(t)
					s.UpstreamTimeout = timeout
					ctx, cancel := context.WithTimeout(t.Context(), min(leastCall, timeout)+s.AfterCall-missing)
					defer cancel()
					_, err := s.Decode(ctx, Request{VIN: accord, Caller: somebody})
					if missing == 0 {
						if err != nil {
							t.Errorf("enough was left: %v", err)
						}
						return
					}
					if r := refused(t, err); r.Code != WaitTimeout || r.RetryAfter < time.Second {
						t.Errorf("refused with %+v", r)
					}
					if w.happened() != "get" {
						t.Errorf("happened: %s", w.happened())
					}
				})
			})
		}
	}
}

func TestEveryEndOfACallHasItsCodeAndItsOutcome(t *testing.T) {
	late := func(e vpic.Error) *vpic.Error { e.Took = 300 * time.Millisecond; return &e }
	for name, tc := range map[string]struct {
		err     error
		code    Code
		status  int
		retry   time.Duration
		outcome gate.Outcome
	}{
		"429":                       {late(vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true}), UpstreamThrottled, 503, 30 * time.Second, gate.Outcome{Kind: gate.Throttled}},
		"429 with Retry-After":      {late(vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true, RetryAfter: 90 * time.Second}), UpstreamThrottled, 503, 90 * time.Second, gate.Outcome{Kind: gate.Throttled, RetryAfter: 90 * time.Second}},
		"429 with a short one":      {late(vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true, RetryAfter: time.Second}), UpstreamThrottled, 503, time.Second, gate.Outcome{Kind: gate.Throttled, RetryAfter: time.Second}},
		"403":                       {late(vpic.Error{Kind: vpic.Throttled, Status: 403, Blocked: true, Started: true}), UpstreamThrottled, 503, 15 * time.Minute, gate.Outcome{Kind: gate.Throttled, Blocked: true}},
		"503":                       {late(vpic.Error{Kind: vpic.Unavailable, Status: 503, Started: true}), UpstreamUnavailable, 503, 5 * time.Second, gate.Outcome{Kind: gate.Failed}},
		"503 with Retry-After":      {late(vpic.Error{Kind: vpic.Unavailable, Status: 503, Started: true, RetryAfter: 40 * time.Second}), UpstreamUnavailable, 503, 40 * time.Second, gate.Outcome{Kind: gate.Throttled, RetryAfter: 40 * time.Second}},
		"no connection":             {late(vpic.Error{Kind: vpic.Unavailable}), UpstreamUnavailable, 503, 5 * time.Second, gate.Outcome{Kind: gate.Failed}},
		"no answer in time":         {late(vpic.Error{Kind: vpic.Timeout, Started: true}), UpstreamTimeout, 504, 5 * time.Second, gate.Outcome{Kind: gate.Failed}},
		"no connection in time":     {late(vpic.Error{Kind: vpic.Timeout}), UpstreamUnavailable, 503, 5 * time.Second, gate.Outcome{Kind: gate.Failed}},
		"cancelled by us":           {late(vpic.Error{Kind: vpic.Canceled, Started: true}), UpstreamTimeout, 504, 5 * time.Second, gate.Outcome{Kind: gate.Abandoned}},
		"HTML in place of JSON":     {late(vpic.Error{Kind: vpic.BadResponse, Status: 200, Started: true, Reason: "XML or HTML in place of JSON"}), UpstreamBadResponse, 502, 5 * time.Second, gate.Outcome{Kind: gate.Abandoned}},
		"404 with Retry-After":      {late(vpic.Error{Kind: vpic.BadResponse, Status: 404, Started: true, RetryAfter: 7 * time.Second}), UpstreamBadResponse, 502, 7 * time.Second, gate.Outcome{Kind: gate.Throttled, RetryAfter: 7 * time.Second}},
		"a question it cannot send": {late(vpic.Error{Kind: vpic.BadQuery}), Internal, 500, 0, gate.Outcome{Kind: gate.Abandoned}},
		"an error of another kind":  {errors.New("a surprise with 1HGCM82633A004352"), Internal, 500, 0, gate.Outcome{Kind: gate.Abandoned, Took: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.call = func(context.Context, vpic.Query) (vpic.Answer, error) { return vpic.Answer{}, tc.err }
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
				r := refused(t, err)
				if r.Code != tc.code || r.Code.Status() != tc.status || r.RetryAfter != tc.retry || r.Scope != "" {
					t.Errorf("refused with %+v, want %s, retry after %v", r, tc.code, tc.retry)
				}
				want := tc.outcome
				var known *vpic.Error
				if errors.As(tc.err, &known) {
					want.Took = known.Took
				}
				if len(w.outcomes) != 1 || w.outcomes[0] != want {
					t.Errorf("released with %+v, want %+v", w.outcomes, want)
				}
				if w.count("put") != 0 || w.held != 0 || strings.Contains(r.Detail()+w.logged.String(), "surprise") {
					t.Errorf("happened: %s; said: %s; logged: %s", w.happened(), r.Detail(), w.logged.String())
				}
			})
		})
	}
}

// Our own time was over before the call left: NHTSA was never asked, so it is neither slow nor out of reach.
func TestACallThatNeverLeftIsNotNHTSAsFault(t *testing.T) {
	for name, e := range map[string]vpic.Error{
		"our time was over":       {Kind: vpic.Timeout},
		"cancelled before it":     {Kind: vpic.Canceled},
		"connected after the end": {Kind: vpic.NotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.call = func(ctx context.Context, _ vpic.Query) (vpic.Answer, error) {
					<-ctx.Done()
					return vpic.Answer{}, &e
				}
				ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
				defer cancel()
				_, err := s.Decode(ctx, Request{VIN: accord, Caller: somebody})
				if r := refused(t, err); r.Code != RateLimited || r.Scope != ScopeUpstream || strings.HasPrefix(r.Sentence, "NHTSA") {
					t.Errorf("refused with %+v", r)
				}
				if len(w.outcomes) != 1 || w.outcomes[0].Kind != gate.Abandoned {
					t.Errorf("released with %+v", w.outcomes)
				}
			})
		})
	}
}

// A gate item with a short LEASE_TTL, or a lease that comes late: a call that cannot end burdens NHTSA for nothing.
func TestNoHopelessCallIsMade(t *testing.T) {
	for name, tc := range map[string]struct {
		callBy, upstreamTimeout time.Duration
		called                  bool
	}{
		"nothing left":                   {0, 10 * time.Second, false},
		"a millisecond":                  {time.Millisecond, 10 * time.Second, false},
		"just too little":                {2*time.Second - 1, 10 * time.Second, false},
		"just enough":                    {2 * time.Second, 10 * time.Second, true},
		"too little of a short time-out": {500*time.Millisecond - 1, 500 * time.Millisecond, false},
		"the whole of a short time-out":  {500 * time.Millisecond, 500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				s.UpstreamTimeout = tc.upstreamTimeout
				w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
					l := w.lease()
					l.CallBy = l.Granted.Add(tc.callBy)
					return l, nil, nil
				}
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
				if called := w.count("call") == 1; called != tc.called || called != (err == nil) {
					t.Errorf("%v; happened: %s", err, w.happened())
				}
				if err != nil {
					if r := refused(t, err); r.Code != RateLimited || r.Scope != ScopeUpstream || w.outcomes[0].Kind != gate.Abandoned {
						t.Errorf("refused with %+v, released with %+v", r, w.outcomes)
					}
				}
			})
		})
	}
}

// Whatever the configuration takes: a caller whom nobody keeps waiting gets an answer.
func TestProperty_AnAcceptedConfigurationDecodes(t *testing.T) {
	decoded := 0
	rapid.Check(t, func(rt *rapid.T) {
		ms := func(name string, from, to int) int {
			return rapid.OneOf(rapid.Just(from), rapid.IntRange(from, from+(to-from)/10), rapid.IntRange(from, to)).Draw(rt, name)
		}
		call, wait, batch := ms("call", 200, 12000), ms("wait", 0, 3000), ms("batch", 0, 5000)
		env := map[string]string{"TENANT_HASH_KEY": "0123456789abcdef"}
		for name, ms := range map[string]int{
			"UPSTREAM_TIMEOUT": call, "MAX_WAIT": wait, "MAX_WAIT_BATCH": batch,
			"REQUEST_DEADLINE": max(wait, batch) + call + ms("more", rapid.SampledFrom([]int{2000, 3000}).Draw(rt, "least"), 6000), "LEASE_TTL": call + ms("lease", 1750, 3000),
		} {
			env[name] = fmt.Sprint(ms, "ms")
		}
		cfg, err := config.Load(func(name string) string { return env[name] })
		if err != nil {
			return
		}
		decoded++
		synctest.Test(t, func(t *testing.T) {
			w, s := newWorld(t)
			s.UpstreamTimeout, s.RequestDeadline = cfg.UpstreamTimeout, cfg.RequestDeadline
			w.get = func() error { time.Sleep(500 * time.Millisecond); return &results.StoreError{} } // a slow table
			time.Sleep(time.Until(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)))                      // the gate's times begin after the bubble's
			state := gate.NewState(cfg.Knobs, gate.MicrosOf(time.Now()), false)
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				time.Sleep(400 * time.Millisecond)
				r.ID = "lease"
				a, _, refusal := state.Plan(gate.MicrosOf(time.Now()), r)
				if refusal != nil {
					return nil, refusal, nil
				}
				return state.Lease(a.ID, r.Key, a.Now, a.End), nil, nil
			}
			w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
				return w.answer(ctx, q, min(time.Second, cfg.UpstreamTimeout*9/10))
			}
			if _, err = s.Decode(t.Context(), Request{VIN: accord, Caller: somebody}); err != nil {
				t.Errorf("%v, with %v: %s", err, env, w.happened())
			}
		})
		if err != nil {
			rt.Fatal("see above")
		}
	})
	if decoded == 0 {
		t.Error("no configuration was accepted: the property showed nothing")
	}
}

func TestTheLastAnswerOfNHTSAsQuotaStopsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
			a, err := w.answer(ctx, q, time.Second)
			a.Quota = vpic.Quota{Exhausted: true, RetryAfter: time.Minute}
			return a, err
		}
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody}); err != nil {
			t.Fatal(err)
		}
		if w.outcomes[0] != (gate.Outcome{Kind: gate.Throttled, RetryAfter: time.Minute, Took: time.Second}) {
			t.Errorf("released with %+v", w.outcomes[0])
		}
	})
}

func TestRetryAfterIsTheGatesPauseWhenThatIsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(context.Context, vpic.Query) (vpic.Answer, error) {
			w.view = gate.View{HeldFor: 59500 * time.Millisecond, Hold: gate.HoldThrottled}
			return vpic.Answer{}, &vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true}
		}
		_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
		if r := refused(t, err); r.RetryAfter != time.Minute || !strings.HasSuffix(r.Detail(), "Try again in 60 seconds.") {
			t.Errorf("refused with %+v, %s", r, r.Detail())
		}
		if !strings.HasSuffix(w.happened(), "release throttled, view, quit throttled") {
			t.Errorf("the view was not taken after the release, and told to those who follow: %s", w.happened())
		}
	})
}

func TestEveryDenialOfTheGateHasItsCode(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal gate.Refusal
		code    Code
		scope   Scope
		status  int
		told    string // to those who follow in other instances
	}{
		"NHTSA asked for a pause": {gate.Refusal{Cause: gate.Held, Hold: gate.HoldThrottled}, UpstreamThrottled, "", 503, " throttled"},
		"NHTSA fails":             {gate.Refusal{Cause: gate.Held, Hold: gate.HoldFailing}, UpstreamUnavailable, "", 503, " unavailable"},
		"old tables":              {gate.Refusal{Cause: gate.Held, Hold: gate.HoldStarting}, RateLimited, ScopeUpstream, 429, " starting"},
		"the operator's pause":    {gate.Refusal{Cause: gate.Held, Hold: gate.HoldOperator}, RateLimited, ScopeUpstream, 429, " paused"},
		"own places":              {gate.Refusal{Cause: gate.BulkheadFull}, BulkheadTimeout, "", 429, ""},
		"the address's own":       {gate.Refusal{Cause: gate.OwnFull}, BulkheadTimeout, "", 429, ""},
		"the line":                {gate.Refusal{Cause: gate.QueueFull}, QueueFull, "", 429, " queue-full"},
		"the rate":                {gate.Refusal{Cause: gate.NoToken}, RateLimited, ScopeUpstream, 429, " budget"},
		"the slots":               {gate.Refusal{Cause: gate.NoSlot}, WaitTimeout, "", 429, " no-slot"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				tc.refusal.RetryAfter = 4 * time.Second
				w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
					time.Sleep(2 * time.Second)
					return nil, &tc.refusal, nil
				}
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: alice})
				r := refused(t, err)
				if r.Code != tc.code || r.Scope != tc.scope || r.Code.Status() != tc.status || r.RetryAfter != 4*time.Second || r.Waited != 2*time.Second {
					t.Errorf("refused with %+v", r)
				}
				if w.happened() != "get, view, look alice0000001 cost 1, foresee, elect, acquire interactive:alice0000001 cost 1, quit"+tc.told {
					t.Errorf("happened: %s", w.happened())
				}
				// Our own limits are never called NHTSA's trouble, nor the reverse.
				ours := r.Code.Status() == 429
				if about := strings.HasPrefix(r.Sentence, "NHTSA "); about == ours {
					t.Errorf("%s says %q", r.Code, r.Sentence)
				}
			})
		})
	}
}

func TestWithoutTheBudgetNobodyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
			return nil, nil, errors.New("dial tcp 10.0.0.1:443: connection refused")
		}
		_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
		r := refused(t, err)
		if r.Code != CoordinationDown || r.Code.Status() != 503 || r.RetryAfter < time.Second || strings.Contains(r.Detail(), "10.0.0.1") {
			t.Errorf("refused with %+v", r)
		}
		if w.count("call") != 0 || !strings.Contains(w.logged.String(), "connection refused") {
			t.Errorf("happened: %s, logged: %s", w.happened(), w.logged.String())
		}
		// Stored answers still go out.
		w.keep(vpic.Query{VIN: accord}, time.Hour)
		if r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody}); err != nil || r.Source != FromCache {
			t.Errorf("the stored answer: %+v, %v", r, err)
		}
	})
}

func TestADecodeGoesOnWithoutTheResultsTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		down := &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("no route to host")}
		w.get, w.put = func() error { return down }, func() error { return down }
		r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody})
		if err != nil || r.Make() != "HONDA" || r.Saved || r.Source != FromNHTSA {
			t.Errorf("Decode = %+v, %v", r, err)
		}
		if n := strings.Count(w.logged.String(), "no route to host"); n != 2 {
			t.Errorf("reported %d times: %s", n, w.logged.String())
		}
		if strings.Contains(w.logged.String(), accord) || !strings.Contains(w.logged.String(), "1HGCM826*3A") {
			t.Errorf("a VIN is logged by its descriptor only: %s", w.logged.String())
		}
	})
}

// Nobody knows whether an answer is stored: that is no "not stored".
func TestAStoredOnlyRequestSaysThatTheTableIsDown(t *testing.T) {
	for _, trouble := range []ddb.Fault{ddb.Throttled, ddb.Denied, ddb.MissingTable, ddb.Unreachable} {
		t.Run(string(trouble), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				w.get = func() error {
					return &results.StoreError{Op: "read", Fault: trouble, Err: errors.New("no route to host")}
				}
				_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody, StoredOnly: true})
				r := refused(t, err)
				if r.Code != CoordinationDown || r.Code.Status() != 503 || r.RetryAfter < time.Second || !strings.HasPrefix(r.Sentence, "Our own bookkeeping is down") {
					t.Errorf("refused with %+v", r)
				}
				if w.happened() != "get" || !strings.Contains(w.logged.String(), string(trouble)) {
					t.Errorf("happened: %s, logged: %s", w.happened(), w.logged.String())
				}
			})
		})
	}
}

func TestAStoredOnlyRequestNeverCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.get = func() error { return &results.CorruptError{Reason: "no body"} }
		for range 2 { // what cannot be used is not there
			_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody, StoredOnly: true})
			if r := refused(t, err); r.Code != NotStored {
				t.Errorf("refused with %+v", r)
			}
			w.get = func() error { return nil }
		}
		_, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody, StoredOnly: true})
		if r := refused(t, err); r.Code != NotStored || r.Code.Status() != 404 || r.RetryAfter != 0 {
			t.Errorf("refused with %+v", r)
		}
		// It does not wait for somebody else's call either.
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.Decode(t.Context(), Request{VIN: accord, Caller: somebody}) })
		synctest.Wait()
		began := time.Now()
		if _, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody, StoredOnly: true}); err == nil || time.Since(began) != 0 {
			t.Errorf("during a call: %v after %v", err, time.Since(began))
		}
		wg.Wait()
		if r, err := s.Decode(t.Context(), Request{VIN: accord, Caller: somebody, StoredOnly: true}); err != nil || r.Source != FromCache || r.Make() != "HONDA" {
			t.Errorf("stored: %+v, %v", r, err)
		}
		if w.count("call") != 1 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}
