//go:build unix

package decode_test

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

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/decode"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/meter"
	"vingate/internal/results"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
	"vingate/internal/vpic"
)

// noon is when these tests begin: the bubble's own clock begins before the gate's.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// site is everything around the instances: a real store behind a wire that takes its time and can break, and NHTSA.
type site struct {
	number int
	name   string
	wire   *meter.Meter
	knobs  gate.Knobs

	mu       sync.Mutex
	broken   map[string]func(context.Context) error // by table
	calls    atomic.Int32
	upstream func(context.Context, vpic.Query) error // before the answer; nil is a second
}

var sites atomic.Int32

// inBubble runs a test on a site of its own, in virtual time over the real store.
func inBubble(t *testing.T, change func(*gate.Knobs), f func(t *testing.T, s *site)) {
	desk := meter.NewOutside(realClient)
	defer desk.Close()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon))
		n := int(sites.Add(1))
		s := &site{number: n, name: fmt.Sprint("site", n), broken: map[string]func(context.Context) error{}}
		s.wire = &meter.Meter{Next: desk, Wire: meter.Wire{Least: 1500 * time.Microsecond, Most: 4 * time.Millisecond, Seed: 1}}
		s.knobs = gate.Knobs{MaxInFlight: 4, RatePerSecond: 20, Burst: 40, MaxQueued: 24, BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
			LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt}
		if change != nil {
			change(&s.knobs)
		}
		if err := s.gateStore(s.wire, time.Now, "maker").Init(context.Background(), s.knobs, dynamo.FullBucket); err != nil {
			t.Fatal(err)
		}
		f(t, s)
	})
}

func (s *site) gateStore(client dynamo.Client, now func() time.Time, instance string) *dynamo.Store {
	var ids atomic.Int32
	return dynamo.New(dynamo.Config{Client: client, Table: names.Coordination, Name: s.name, Now: now,
		NewID: func() string { return fmt.Sprintf("%s%d", instance[:1], ids.Add(1)) }})
}

// breaks says what becomes of every call to a table; nil mends it.
func (s *site) breaks(table string, how func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[table] = how
}

func (s *site) fault(ctx context.Context, table string) error {
	s.mu.Lock()
	how := s.broken[table]
	s.mu.Unlock()
	if how == nil {
		return nil
	}
	return how(ctx)
}

// Ways to break.
func refused(context.Context) error { return errors.New("connection refused") }
func hung(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
func throttled(context.Context) error { return &types.ProvisionedThroughputExceededException{} }
func denied(context.Context) error {
	return &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}
}

// line is one instance's way to the store.
type line struct{ s *site }

func (l line) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if err := l.s.fault(ctx, *in.TableName); err != nil {
		return nil, err
	}
	return l.s.wire.GetItem(ctx, in, o...)
}

func (l line) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if err := l.s.fault(ctx, *in.TableName); err != nil {
		return nil, err
	}
	return l.s.wire.UpdateItem(ctx, in, o...)
}

func (l line) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if err := l.s.fault(ctx, *in.TableName); err != nil {
		return nil, err
	}
	return l.s.wire.PutItem(ctx, in, o...)
}

// nhtsa counts its calls.
type nhtsa struct {
	decode.Upstream
	s *site
}

func (n nhtsa) Decode(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
	n.s.calls.Add(1)
	began := time.Now()
	if n.s.upstream != nil {
		if err := n.s.upstream(ctx, q); err != nil {
			return vpic.Answer{}, err
		}
	} else {
		time.Sleep(time.Second)
	}
	a, err := vpic.Read(fmt.Appendf(nil, `{"Count":1,"Message":"Results returned successfully","SearchCriteria":"VIN(s): %[1]s","Results":[{"ErrorCode":"0","ErrorText":"0 - VIN decoded clean.","Make":"HONDA","Manufacturer":"AMERICAN HONDA MOTOR CO., INC.","Model":"Accord","ModelYear":"2003","VIN":"%[1]s"}]}`, q.VIN), q)
	a.FetchedAt, a.Took = time.Now(), time.Since(began)
	return a, err
}

// instance wires what the function wires, with a clock that is off.
func (s *site) instance(name string, off time.Duration) *decode.Service {
	now := func() time.Time { return time.Now().Add(off) }
	coordination, answers := ddb.NewGuard(line{s}, now, dynamo.DownAfter), ddb.NewGuard(line{s}, now, results.DownAfter)
	var ids atomic.Int32
	return decode.New(decode.Config{
		Gate:     s.gateStore(coordination, now, name),
		Tenants:  tenants.New(tenants.Config{Client: coordination, Table: names.Coordination, Now: now, SkewBound: s.knobs.SkewBound}),
		Upstream: nhtsa{s: s},
		Results: results.New(results.Config{Client: answers, Down: answers.Down, Table: names.Results, Memory: 1 << 20, SkewBound: s.knobs.SkewBound, Now: now,
			Lives: results.Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour},
			NewID: func() string { return fmt.Sprintf("%s%d", name, ids.Add(1)) }}),
		MaxWait: 3 * time.Second, BulkheadWait: 2 * time.Second, UpstreamTimeout: 10 * time.Second, RequestDeadline: 27 * time.Second,
		AfterCall: config.AfterCall, SkewBound: s.knobs.SkewBound, Now: now,
	})
}

// vin is one that this site has not been asked for yet.
func (s *site) vin(i int) string {
	return fmt.Sprintf("1HGCM8263%s%04d", strings.ToUpper(fmt.Sprintf("%04x", s.number)), i)
}

// caller is one of the site's own.
func (s *site) caller(i int) tenant.Caller {
	return tenant.Caller{ID: fmt.Sprintf("t%05d%06d", s.number, i), Plan: tenant.Plan{RatePerSecond: 10, Burst: 100, Weight: 1}}
}

// took asks and says how long that took.
func took(s *decode.Service, vin string, c tenant.Caller) (decode.Result, *decode.Refusal, time.Duration) {
	began := time.Now()
	r, err := s.Decode(context.Background(), decode.Request{VIN: vin, Caller: c})
	var refusal *decode.Refusal
	errors.As(err, &refusal)
	return r, refusal, time.Since(began)
}

// P11: no call, within a second the first time, within 100 ms while the table is known to be down; stored answers go out; and it is over
// within two seconds of the table's return.
func TestWithoutTheCoordinationTableNobodyCallsAndNobodyWaits(t *testing.T) {
	for fault, how := range map[string]func(context.Context) error{"refused": refused, "hung": hung, "throttled": throttled, "denied": denied} {
		for what, both := range map[string]bool{"alone": false, "with the answers": true} {
			t.Run(fault+" "+what, func(t *testing.T) {
				inBubble(t, nil, func(t *testing.T, s *site) {
					i := s.instance("i", 0)
					if _, refusal, _ := took(i, s.vin(0), s.caller(0)); refusal != nil {
						t.Fatal(refusal)
					}
					time.Sleep(time.Minute)
					s.breaks(names.Coordination, how)
					if both {
						s.breaks(names.Results, how)
					}
					if _, refusal, d := took(i, s.vin(1), s.caller(1)); refusal == nil || refusal.Code != decode.CoordinationDown || d > time.Second || refusal.RetryAfter < time.Second {
						t.Errorf("the first: %v after %v", refusal, d)
					}
					// The first has found out, or the second does; from then on it is known, however seldom anybody asks.
					known := time.Duration(0)
					for n := range 40 {
						_, refusal, d := took(i, s.vin(2+n), s.caller(n))
						if refusal == nil || refusal.Code != decode.CoordinationDown || d > time.Second {
							t.Errorf("request %d: %v after %v", n, refusal, d)
						}
						if n > 1 {
							known = max(known, d)
						}
						time.Sleep([]time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[n%4])
					}
					if known > 100*time.Millisecond {
						t.Errorf("known to be down, and somebody waited %v", known)
					}
					if r, refusal, d := took(i, s.vin(0), s.caller(0)); refusal != nil || r.Source != decode.FromCache || d != 0 {
						t.Errorf("a stored answer: %v, %v after %v", r.Source, refusal, d)
					}
					if n := s.calls.Load(); n != 1 {
						t.Errorf("%d calls", n)
					}
					s.breaks(names.Coordination, nil)
					s.breaks(names.Results, nil)
					back := time.Now()
					for n := 0; ; n++ {
						if _, refusal, _ := took(i, s.vin(100+n), s.caller(n)); refusal == nil {
							break
						}
						time.Sleep(50 * time.Millisecond)
					}
					if d := time.Since(back) - time.Second; d > 2*time.Second { // the call itself takes one
						t.Errorf("back after %v", d)
					}
				})
			})
		}
	}
}

// Without the answers' table alone the decode goes on, and soon nobody waits for it.
func TestWithoutTheAnswersTableDecodesGoOnAtOnce(t *testing.T) {
	for fault, how := range map[string]func(context.Context) error{"refused": refused, "hung": hung, "throttled": throttled, "denied": denied} {
		t.Run(fault, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, s *site) {
				s.upstream = func(context.Context, vpic.Query) error { time.Sleep(300 * time.Millisecond); return nil }
				i := s.instance("i", 0)
				s.breaks(names.Results, how)
				slowest := time.Duration(0)
				for n := range 20 {
					r, refusal, d := took(i, s.vin(n), s.caller(n))
					if refusal != nil || r.Source != decode.FromNHTSA || r.Saved || r.Trouble != "" {
						t.Fatalf("request %d: %+v, %v", n, r, refusal)
					}
					if n > 4 {
						slowest = max(slowest, d)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if slowest > 300*time.Millisecond+100*time.Millisecond {
					t.Errorf("somebody waited %v, of which 300 ms are NHTSA's", slowest)
				}
				// What this instance knows it has in memory.
				if r, refusal, d := took(i, s.vin(3), s.caller(3)); refusal != nil || r.Source != decode.FromCache || d != 0 {
					t.Errorf("an answer in memory: %+v, %v after %v", r, refusal, d)
				}
				s.breaks(names.Results, nil)
				time.Sleep(time.Second)
				if r, refusal, _ := took(i, s.vin(50), s.caller(1)); refusal != nil || !r.Saved {
					t.Errorf("when it is back: %+v, %v", r, refusal)
				}
			})
		})
	}
}

// The whole of it with clocks that are off by the bound: one call, one token, and what it costs the table.
func TestTwoHundredRequestsAreOneCallOnAnyClocks(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		var wg sync.WaitGroup
		var shared atomic.Int32
		slowest := make([]time.Duration, 10)
		for n := range 10 {
			i := s.instance(fmt.Sprint("i", n, "-"), []time.Duration{0, -250 * time.Millisecond, 250 * time.Millisecond}[n%3])
			for k := range 20 {
				wg.Go(func() {
					r, refusal, d := took(i, s.vin(0), s.caller(k%5))
					if refusal != nil || r.Make() != "HONDA" {
						t.Errorf("instance %d: %v", n, refusal)
					}
					if r.Shared {
						shared.Add(1)
					}
					s.mu.Lock()
					slowest[n] = max(slowest[n], d)
					s.mu.Unlock()
				})
			}
		}
		wg.Wait()
		bill := s.wire.Total.Bill("vin")
		t.Logf("the answers' table: %d writes (%d failed), %d reads of %.1f units; the slowest waited %v", bill.Writes, bill.Failed, bill.Reads, bill.ReadUnits, slowest)
		if s.calls.Load() != 1 || shared.Load() != 199 {
			t.Errorf("%d calls, %d shared", s.calls.Load(), shared.Load())
		}
		// Ten instances look; of those who find nothing at once one is elected and the others fail; one writes the answer. Nine watch for a second.
		if bill.Writes > 11 || bill.Reads > 10+9*10 {
			t.Errorf("%+v", bill)
		}
		if tenantWrites := s.wire.Total.Bill("tenant").Writes; tenantWrites != 1 {
			t.Errorf("%d charges", tenantWrites)
		}
		for n, d := range slowest {
			if d > 1500*time.Millisecond {
				t.Errorf("instance %d: somebody waited %v for a call of a second", n, d)
			}
		}
	})
}

// The table stops while every slot is taken: the leases that could not be given back are, as soon as the table is there again.
func TestAnOutageCostsNoPlacesBeyondItself(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *site) {
		i := s.instance("i", 0)
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				if r, refusal, _ := took(i, s.vin(n), s.caller(n)); refusal != nil || r.Saved {
					t.Errorf("%v, saved %v", refusal, r.Saved)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		s.breaks(names.Coordination, hung)
		s.breaks(names.Results, hung)
		wg.Wait() // their answers went out all the same
		time.Sleep(time.Second)
		s.breaks(names.Coordination, nil)
		s.breaks(names.Results, nil)
		back := time.Now()
		for n := 10; ; n++ {
			if _, refusal, _ := took(i, s.vin(n), s.caller(n)); refusal == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if d := time.Since(back); d > 2*time.Second {
			t.Errorf("back after %v", d)
		}
	})
}
