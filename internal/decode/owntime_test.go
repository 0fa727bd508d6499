package decode

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"pgregory.net/rapid"

	"vingate/internal/config"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/results"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
	"vingate/internal/vpic"
)

// The times of one flight's lanes in milliseconds, and how its call ends.
type lanes struct {
	get, acquire, call, release, put int
	end                              *vpic.Error // nil: an answer
}

// play makes the lanes take their times and returns what the last call has come to.
func (l lanes) play(w *world) (calling, answered *atomic.Bool) {
	ms := func(n int) { time.Sleep(time.Duration(n) * time.Millisecond) }
	calling, answered = new(atomic.Bool), new(atomic.Bool)
	w.get = func() error { ms(l.get); return nil }
	w.acquire = func(ctx context.Context, _ gate.Request) (*gate.Lease, *gate.Refusal, error) {
		ms(l.acquire)
		return w.lease(), nil, nil
	}
	w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
		calling.Store(true)
		answered.Store(false)
		defer calling.Store(false)
		a, err := w.answer(ctx, q, time.Duration(l.call)*time.Millisecond)
		if err == nil && l.end != nil {
			a, err = vpic.Answer{}, l.end
		}
		answered.Store(err == nil)
		return a, err
	}
	w.release = func(ctx context.Context) error {
		select {
		case <-time.After(time.Duration(l.release) * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	}
	w.put = func() error { ms(l.put); return nil }
	return calling, answered
}

// Whose time ends while the flight goes on, leader or follower, is told what the time was spent on.
func TestWhoseOwnTimeEndsIsToldWhatItWasSpentOn(t *testing.T) {
	slow := lanes{get: 200, acquire: 1000, call: 3000, release: 800, put: 400}
	limited, failing := slow, slow
	limited.end = &vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true}
	failing.end = &vpic.Error{Kind: vpic.Unavailable, Status: 503, Started: true}
	for name, tc := range map[string]struct {
		lanes lanes
		own   time.Duration // of the follower
		code  Code          // "": the answer
	}{
		"looking up":                           {slow, 100 * time.Millisecond, WaitTimeout},
		"waiting for a place":                  {slow, 700 * time.Millisecond, WaitTimeout},
		"just before the place":                {slow, 1199 * time.Millisecond, WaitTimeout},
		"the call has just begun":              {slow, 1201 * time.Millisecond, UpstreamTimeout},
		"the call runs":                        {slow, 4 * time.Second, UpstreamTimeout},
		"NHTSA has just answered":              {slow, 4201 * time.Millisecond, ""},
		"the lease is given back":              {slow, 4900 * time.Millisecond, ""},
		"the answer is stored":                 {slow, 5200 * time.Millisecond, ""},
		"NHTSA has limited, the lease is held": {limited, 4500 * time.Millisecond, UpstreamThrottled},
		"NHTSA has failed, the lease is held":  {failing, 4500 * time.Millisecond, UpstreamUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				tc.lanes.play(w)
				got, errs := together(t, s,
					func() (Result, error) { return s.Decode(t.Context(), Request{VIN: accord, Caller: alice}) },
					func() (Result, error) {
						ctx, cancel := context.WithTimeout(t.Context(), tc.own)
						defer cancel()
						return s.Decode(ctx, Request{VIN: accord, Caller: bob})
					})
				if tc.code == "" {
					if r := got[1]; errs[1] != nil || r.Make() != "HONDA" || r.Source != FromNHTSA || !r.Shared || r.Saved || r.Waited != tc.own || r.Upstream != 3*time.Second {
						t.Errorf("the follower: %+v, %v", r, errs[1])
					}
				} else if r := refused(t, errs[1]); r.Code != tc.code || r.Waited != tc.own {
					t.Errorf("the follower: %+v, want %s", r, tc.code)
				}
				if answered := errs[0] == nil; answered != (tc.lanes.end == nil) || w.count("call") != 1 || w.held != 0 {
					t.Errorf("the leader: %v; happened: %s", errs[0], w.happened())
				}
			})
		})
	}
}

// Local capacity is never called NHTSA's fault nor the reverse, at whatever moment somebody's time ends and however long each
// lane takes.
func TestProperty_OwnCapacityIsNeverNHTSAsFaultNorTheReverse(t *testing.T) {
	seen := map[Code]int{}
	rapid.Check(t, func(rt *rapid.T) {
		l := lanes{
			get: rapid.IntRange(0, 500).Draw(rt, "get"), acquire: rapid.IntRange(0, 2000).Draw(rt, "acquire"), call: rapid.IntRange(0, 12000).Draw(rt, "call"),
			release: rapid.IntRange(0, 1500).Draw(rt, "release"), put: rapid.IntRange(0, 500).Draw(rt, "put"),
			end: rapid.SampledFrom([]*vpic.Error{nil, nil, {Kind: vpic.Throttled, Started: true}, {Kind: vpic.Unavailable}, {Kind: vpic.BadResponse, Started: true}}).Draw(rt, "end"),
		}
		// Somewhere in one of the lanes of a leader who has time, or anywhere.
		within := func(whose string) int {
			if rapid.Bool().Draw(rt, whose+" time is any") {
				return rapid.IntRange(0, 20000).Draw(rt, whose+" time")
			}
			passed, times := 0, []int{l.get, l.acquire, l.call, l.release, l.put}
			lane := rapid.IntRange(0, len(times)-1).Draw(rt, whose+" lane")
			for _, t := range times[:lane] {
				passed += t
			}
			return passed + rapid.IntRange(0, times[lane]).Draw(rt, whose+" time in it")
		}
		own := [2]int{rapid.SampledFrom([]int{20000, within("the leader's")}).Draw(rt, "the leader's time"), within("the follower's")}
		var mu sync.Mutex
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			w, s := newWorld(t)
			calling, answered := l.play(w)
			ask := func(ms int) func() (Result, error) {
				return func() (Result, error) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond+time.Microsecond) // never at the moment a lane ends
					defer cancel()
					r, err := s.Decode(ctx, Request{VIN: accord, Caller: alice})
					calls := w.count("call")
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						seen[""]++
						if r.Make() != "HONDA" || !answered.Load() {
							wrong = fmt.Sprintf("an answer that NHTSA did not give: %+v", r)
						}
						return r, err
					}
					refusal := refused(t, err)
					seen[refusal.Code]++
					ours := refusal.Code.Status() == 429
					switch {
					case ours && calling.Load():
						wrong = "our own capacity, while a call runs"
					case ours && answered.Load():
						wrong = "our own capacity, although NHTSA has answered"
					case !ours && calls == 0:
						wrong = "NHTSA's fault, although it was not asked"
					case !ours && answered.Load():
						wrong = "NHTSA's fault, although it has answered"
					}
					return r, err
				}
			}
			_, errs := together(t, s, ask(own[0]), ask(own[1]))
			if wrong != "" {
				t.Errorf("%s: %v; happened: %s", wrong, errs, w.happened())
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if w.held != 0 {
				t.Errorf("%d leases are held: %s", w.held, w.happened())
			}
		})
		if wrong != "" || t.Failed() {
			rt.Fatalf("%s: lanes %+v, own times %v", wrong, l, own)
		}
	})
	for _, c := range []Code{"", WaitTimeout, UpstreamTimeout} {
		if seen[c] == 0 {
			t.Errorf("no request ended with %q: the property showed too little: %v", c, seen)
		}
	}
}

// hanging is a table whose every call takes all the time it is given.
type hanging struct{}

func (hanging) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) UpdateItem(ctx context.Context, _ *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) PutItem(ctx context.Context, _ *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// until a call is made, what a step does is fine; from then on it hangs.
type until struct {
	hanging
	w *world
}

func (u until) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if u.w.count("call") == 0 {
		return &dynamodb.GetItemOutput{}, nil
	}
	return u.hanging.GetItem(ctx, in, o...)
}

func (u until) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if u.w.count("call") == 0 {
		return &dynamodb.UpdateItemOutput{}, nil
	}
	return u.hanging.UpdateItem(ctx, in, o...)
}

// grants has the real store's release and view over such a table.
type grants struct {
	*dynamo.Store
	w *world
}

func (g grants) Acquire(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
	return g.w.lease(), nil, nil
}

func (grants) Foresee(context.Context, *gate.Request) (*gate.Refusal, error) { return nil, nil }

// View works until the call is made.
func (g grants) View(ctx context.Context) (gate.View, error) {
	if g.w.count("call") == 0 {
		return gate.View{}, nil
	}
	return g.Store.View(ctx)
}

// owes has the real store's charge over such a table.
type owes struct {
	*tenants.Store
}

func (owes) Look(context.Context, tenant.Caller, int) (*tenant.Refusal, error) { return nil, nil }

// The real stores end what they do after a call, at its worst, within the time that is kept free for it, also after a call
// that took all it had.
func TestWhatFollowsACallFitsIntoItsTime(t *testing.T) {
	for name, tc := range map[string]struct {
		end    *vpic.Error
		atOnce bool          // so that the charge is still under way
		passes time.Duration // after the call
		code   Code
	}{
		"release, store, and the end of the flight":              {nil, false, 1900 * time.Millisecond, ""},
		"the same, beside the charge":                            {nil, true, 1900 * time.Millisecond, ""},
		"release, a look at the gate, and the end of the flight": {&vpic.Error{Kind: vpic.Throttled, Status: 429, Started: true}, false, 2000 * time.Millisecond, UpstreamThrottled},
		"the same after a call that never began":                 {&vpic.Error{Kind: vpic.Unavailable}, true, 2000 * time.Millisecond, UpstreamUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				s.Gate = grants{dynamo.New(dynamo.Config{Client: hanging{}, Table: "coordination", Name: "nhtsa", Now: time.Now, NewID: func() string { return "lease" }}), w}
				s.Results = results.New(results.Config{Client: until{w: w}, Table: "results", NewID: func() string { return "leader" }})
				s.Tenants = owes{tenants.New(tenants.Config{Client: hanging{}, Table: "coordination", Now: time.Now})}
				caller := somebody
				caller.Plan = tenant.Plan{RatePerSecond: 1, Burst: 20}
				const own = 9 * time.Second
				var ended time.Time
				w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
					latest, _ := ctx.Deadline()
					if !tc.atOnce {
						time.Sleep(time.Until(latest) - time.Millisecond)
					}
					ended = time.Now()
					if tc.end != nil {
						return vpic.Answer{}, tc.end
					}
					return w.answer(ctx, q, 0)
				}
				ctx, cancel := context.WithTimeout(t.Context(), own)
				defer cancel()
				began := time.Now()
				r, err := s.Decode(ctx, Request{VIN: accord, Caller: caller})
				passed, left := time.Since(ended), own-time.Since(began)
				if tc.code == "" && (err != nil || r.Make() != "HONDA" || r.Saved) || tc.code != "" && refused(t, err).Code != tc.code {
					t.Errorf("%+v, %v", r, err)
				}
				if passed != tc.passes || passed > config.AfterCall || left < 0 {
					t.Errorf("it took %v after the call, want %v of %v; %v left", passed, tc.passes, config.AfterCall, left)
				}
				synctest.Wait() // nothing runs on
			})
		})
	}
}

// A release goes on when its request's context has ended, and bounds itself.
func TestTheRealReleaseNeedsNobodysTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newWorld(t)
		store := dynamo.New(dynamo.Config{Client: hanging{}, Table: "coordination", Name: "nhtsa", Now: time.Now, NewID: func() string { return "lease" }})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := store.Release(ctx, w.lease(), gate.Outcome{Kind: gate.Succeeded}); err == nil || time.Since(began) != releaseBound {
			t.Errorf("ended after %v with %v, want %v", time.Since(began), err, releaseBound)
		}
	})
}
