package decode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/ddb"
	"vingate/internal/gate"
	"vingate/internal/results"
	"vingate/internal/tenant"
	"vingate/internal/vpic"
)

const (
	pickup = "1FTMW1T88MFA00001"
	suv    = "5UXWX7C5*BA"
)

// nth is a VIN of a fleet.
func nth(i int) string { return fmt.Sprintf("1HGCM82633A%06d", i) }

// fleet is n questions.
func fleet(n int) []Question {
	var qs []Question
	for i := range n {
		qs = append(qs, Question{VIN: nth(i)})
	}
	return qs
}

// batch asks, and sees to it that every question has exactly one outcome.
func batch(t *testing.T, s *Service, req BatchRequest) []Item {
	t.Helper()
	items, err := s.DecodeBatch(t.Context(), req)
	if err != nil {
		t.Fatalf("DecodeBatch: %v", err)
	}
	if len(items) != len(req.Questions) {
		t.Fatalf("%d items for %d questions", len(items), len(req.Questions))
	}
	for i, item := range items {
		if answered := item.Result.Source != ""; answered == (item.Refusal != nil) {
			t.Errorf("item %d has not exactly one outcome: %+v", i, item)
		}
	}
	return items
}

// outcomes is what became of the questions, in order.
func outcomes(items []Item) string {
	var list []string
	for _, item := range items {
		if item.Refusal != nil {
			list = append(list, string(item.Refusal.Code))
		} else {
			list = append(list, fmt.Sprintf("%s %s", item.Result.Source, item.Result.Fields()["VIN"]))
		}
	}
	return strings.Join(list, ", ")
}

func TestABatchIsOneCallForWhatIsNotStoredNotTwiceAndAVIN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		if _, err := s.Decode(t.Context(), Request{VIN: nth(9), Caller: alice}); err != nil {
			t.Fatal(err)
		}
		w.journal, w.charges = nil, nil
		items := batch(t, s, BatchRequest{Caller: alice, Questions: []Question{
			{VIN: "1hgcm-82633a004352"}, {VIN: nth(9)}, {VIN: suv, ModelYear: 1999}, {VIN: "1HGCM82633A00435O"}, {VIN: accord}, {VIN: pickup, ModelYear: 1066},
		}})
		want := "nhtsa " + accord + ", cache " + nth(9) + ", nhtsa " + suv + ", VIN_INVALID, nhtsa " + accord + ", MODEL_YEAR_INVALID"
		if got := outcomes(items); got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		if items[0].Result.VIN.Submitted != "1hgcm-82633a004352" || items[4].Result.VIN.Submitted != accord || items[0].Refusal != nil && items[3].Refusal.Position != 17 {
			t.Errorf("%+v", items)
		}
		want = "get, get, get, view, look alice0000001 cost 2, acquire batch:alice0000001 cost 2, batch " + accord + " 0; " + suv + " 1999, release succeeded, put, put"
		if got := w.happened(); got != want {
			t.Errorf("happened %s\nwant     %s", got, want)
		}
		if got := strings.Join(w.charges, "; "); got != "alice0000001 for lease cost 2" {
			t.Errorf("charged %s", got)
		}
		r := items[2].Result
		if !r.Saved || r.Upstream != 900*time.Millisecond || r.Age != 0 || r.FreshFor == 0 || r.Shared {
			t.Errorf("%+v", r)
		}
		// What it stored answers single decodes, and the other way round.
		w.journal = nil
		for _, q := range []Request{{VIN: accord}, {VIN: suv, ModelYear: 1999}} {
			r, err := s.Decode(t.Context(), q)
			if err != nil || r.Source != FromCache || r.Fields()["VIN"] != q.VIN {
				t.Errorf("%+v, %v", r, err)
			}
			if a, err := vpic.Read(r.Body(), vpic.Query{VIN: q.VIN}); err != nil || a.Outcome() != r.Outcome() {
				t.Errorf("the stored body: %v in %s", err, r.Body())
			}
		}
		if n := w.count("call") + w.count("acquire"); n != 0 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

func TestABatchCostsByTheTenVINsThatAreReallyAsked(t *testing.T) {
	for _, tc := range []struct{ vins, stored, cost int }{{1, 0, 2}, {10, 0, 2}, {11, 0, 4}, {50, 0, 10}, {50, 39, 4}, {50, 40, 2}, {50, 50, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w, s := newWorld(t)
			if tc.stored > 0 {
				batch(t, s, BatchRequest{Questions: fleet(tc.stored), Caller: bob})
			}
			w.journal, w.charges = nil, nil
			var asked gate.Request
			w.acquire = func(_ context.Context, r gate.Request) (*gate.Lease, *gate.Refusal, error) {
				asked = r
				return w.lease(), nil, nil
			}
			caller := alice
			caller.Plan = tenant.Plan{Interactive: 5, Batch: 3, Weight: 7}
			batch(t, s, BatchRequest{Questions: fleet(tc.vins), Caller: caller})
			if tc.cost == 0 {
				if got := w.happened(); strings.Trim(got, "get, ") != "" {
					t.Errorf("all stored, and yet: %s", got)
				}
				return
			}
			want := gate.Request{Key: gate.Key{Route: gate.Batch, Tenant: alice.ID}, Ceiling: 3, Cost: tc.cost, Tenant: alice.ID, Weight: 7, Patience: 14 * time.Second}
			if asked.Patience < want.Patience-time.Second || asked.Patience > 15*time.Second {
				t.Errorf("patience %v", asked.Patience)
			}
			if asked.Patience = want.Patience; asked != want {
				t.Errorf("asked the gate %+v\nwant %+v", asked, want)
			}
			if got, want := strings.Join(w.charges, ""), fmt.Sprintf("alice0000001 for lease cost %d", tc.cost); got != want {
				t.Errorf("charged %q, want %q", got, want)
			}
		})
	}
}

func TestABatchThatCannotBeAskedAtAll(t *testing.T) {
	w, s := newWorld(t)
	for name, tc := range map[string]struct {
		questions []Question
		want      Code
	}{
		"empty":   {nil, RequestInvalid},
		"51 VINs": {fleet(51), BatchTooLarge},
	} {
		_, err := s.DecodeBatch(t.Context(), BatchRequest{Questions: tc.questions, Caller: alice})
		if r := refused(t, err); r.Code != tc.want || r.RetryAfter != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if w.happened() != "" {
		t.Errorf("happened: %s", w.happened())
	}
}

// vpic-api#9: one VIN without a usable row, and all of them were lost.
func TestARowThatIsMissingIsThatVINsTroubleOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.lost = map[string]bool{nth(1): true}
		items := batch(t, s, BatchRequest{Caller: alice, Questions: fleet(3)})
		if got, want := outcomes(items), "nhtsa "+nth(0)+", UPSTREAM_BAD_RESPONSE, nhtsa "+nth(2); got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		if r := items[1].Refusal; r.RetryAfter < time.Second || r.Waited != 900*time.Millisecond {
			t.Errorf("%+v", r)
		}
		if len(w.stored) != 2 || w.outcomes[0].Kind != gate.Succeeded {
			t.Errorf("%d stored, outcomes %v", len(w.stored), w.outcomes)
		}
	})
}

func TestTheSameVINWithAnotherModelYearComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		both := BatchRequest{Caller: alice, Questions: []Question{{VIN: accord, ModelYear: 2001}, {VIN: accord}, {VIN: accord, ModelYear: 2001}, {VIN: accord}}}
		items := batch(t, s, both)
		if got, want := outcomes(items), "nhtsa "+accord+", VIN_REPEATED, nhtsa "+accord+", VIN_REPEATED"; got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		if r := items[1].Refusal; r.RetryAfter != time.Second {
			t.Errorf("come back in %v", r.RetryAfter)
		}
		time.Sleep(time.Second)
		if got, want := outcomes(batch(t, s, both)), "cache "+accord+", nhtsa "+accord+", cache "+accord+", nhtsa "+accord; got != want {
			t.Errorf("the second time %s\nwant            %s", got, want)
		}
		if w.count("batch") != 2 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

// What keeps the first model year from being asked keeps the second as long: a second later it would only be refused again.
func TestAnotherModelYearIsToldWhatStopsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.fails(vpic.Throttled)
		items := batch(t, s, BatchRequest{Caller: alice, Questions: []Question{{VIN: accord}, {VIN: accord, ModelYear: 2001}}})
		if got := outcomes(items); got != "UPSTREAM_THROTTLED, UPSTREAM_THROTTLED" || items[1].Refusal.RetryAfter != 30*time.Second {
			t.Errorf("outcomes %s, the second to come back in %v", got, items[1].Refusal.RetryAfter)
		}
	})
}

func TestWhatStopsABatchStopsOnlyWhatIsNotStored(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(*world)
		want    Code
		after   time.Duration
		asked   string // what of the lanes behind the tenant was reached
	}{
		"a dry tenant": {func(w *world) { w.look = only(alice) }, RateLimited, 7 * time.Second, ""},
		"a hold":       {func(w *world) { w.view = gate.View{HeldFor: 8 * time.Second, Hold: gate.HoldThrottled} }, UpstreamThrottled, 8 * time.Second, ""},
		"a full bulkhead": {func(w *world) { w.denied(gate.BulkheadFull) }, BulkheadTimeout, 3 * time.Second,
			"acquire batch:alice0000001 cost 2"},
		"no token":     {func(w *world) { w.denied(gate.NoToken) }, RateLimited, 3 * time.Second, "acquire batch:alice0000001 cost 2"},
		"a gate down":  {func(w *world) { w.viewErr = errors.New("down") }, CoordinationDown, 2 * time.Second, ""},
		"a throttle":   {func(w *world) { w.fails(vpic.Throttled) }, UpstreamThrottled, 30 * time.Second, "throttled"},
		"an outage":    {func(w *world) { w.fails(vpic.Unavailable) }, UpstreamUnavailable, 5 * time.Second, "failed"},
		"a time-out":   {func(w *world) { w.fails(vpic.Timeout) }, UpstreamTimeout, 5 * time.Second, "failed"},
		"an HTML page": {func(w *world) { w.fails(vpic.BadResponse) }, UpstreamBadResponse, 5 * time.Second, "abandoned"},
		"a late lease": {func(w *world) { w.late() }, RateLimited, time.Second, "abandoned"},
		"no time left": {func(w *world) { w.get = func() error { time.Sleep(26 * time.Second); return nil } }, WaitTimeout, time.Second, ""},
		"a panic":      {func(w *world) { w.get = nil }, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t)
				batch(t, s, BatchRequest{Questions: fleet(2), Caller: bob})
				w.journal, w.outcomes = nil, nil
				tc.arrange(w)
				if tc.want == "" {
					defer func() {
						if recover() == nil {
							t.Error("no panic")
						}
					}()
				}
				items := batch(t, s, BatchRequest{Questions: fleet(4), Caller: alice})
				want := fmt.Sprintf("cache %s, cache %s, %s, %s", nth(0), nth(1), tc.want, tc.want)
				if got := outcomes(items); got != want {
					t.Errorf("outcomes %s\nwant     %s", got, want)
				}
				if r := items[2].Refusal; r.RetryAfter != tc.after {
					t.Errorf("come back in %v, want %v", r.RetryAfter, tc.after)
				}
				if !strings.Contains(w.happened(), tc.asked) || tc.asked == "" && w.count("acquire") > 0 {
					t.Errorf("happened: %s", w.happened())
				}
				if w.held != 0 || len(w.stored) != 2 {
					t.Errorf("%d leases held, %d answers stored", w.held, len(w.stored))
				}
			})
		})
	}
}

func (w *world) denied(c gate.Cause) {
	w.acquire = func(context.Context, gate.Request) (*gate.Lease, *gate.Refusal, error) {
		return nil, &gate.Refusal{Cause: c, RetryAfter: 3 * time.Second}, nil
	}
}

func (w *world) fails(k vpic.Kind) {
	w.batch = func(context.Context, []vpic.Query) (vpic.BatchAnswer, error) {
		return vpic.BatchAnswer{}, &vpic.Error{Kind: k, Started: true}
	}
}

func TestACallerWhoMayCauseNoCallGetsWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		batch(t, s, BatchRequest{Questions: fleet(1), Caller: bob})
		barred := BatchRequest{Questions: append(fleet(2), Question{VIN: "x"}), Barred: NewCoordinationDown()}
		if got, want := outcomes(batch(t, s, barred)), "cache "+nth(0)+", COORDINATION_UNAVAILABLE, VIN_INVALID"; got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		barred.Barred = final(NotStored, sayNotStored)
		w.get = func() error {
			return &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("x")}
		}
		if got, want := outcomes(batch(t, s, barred)), "COORDINATION_UNAVAILABLE, COORDINATION_UNAVAILABLE, VIN_INVALID"; got != want {
			t.Errorf("without the table %s\nwant              %s", got, want)
		}
		if w.count("batch") != 1 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

func TestABatchShowsWhatIsPastItsFreshnessAndRefreshesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.keep(vpic.Query{VIN: nth(0)}, 200*time.Hour)
		w.keep(vpic.Query{VIN: nth(1)}, 200*time.Hour)
		w.rows[results.Key(vpic.Query{VIN: nth(1)})] = results.Row{Rest: results.Rest{Until: results.MillisOf(time.Now().Add(30 * time.Second)), Reason: string(UpstreamThrottled)}}
		w.keep(vpic.Query{VIN: nth(2)}, 800*time.Hour) // past its life
		items := batch(t, s, BatchRequest{Questions: fleet(3), Caller: alice})
		if got, want := outcomes(items), "cache "+nth(0)+", cache "+nth(1)+", nhtsa "+nth(2); got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		for i, want := range []Code{"", UpstreamThrottled, ""} {
			if r := items[i].Result; r.Trouble != want || r.Stale() != (i < 2) {
				t.Errorf("item %d: stale %v, trouble %q", i, r.Stale(), r.Trouble)
			}
		}
		if !strings.Contains(w.happened(), "batch "+nth(2)+" 0, ") || w.count("elect")+w.count("defer") != 0 {
			t.Errorf("happened: %s", w.happened())
		}
	})
}

func TestAVINThatNHTSADoesNotAnswerIsLeftOutOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.call = func(ctx context.Context, q vpic.Query) (vpic.Answer, error) { return w.answer(ctx, q, time.Hour) }
		for range 2 {
			if _, err := s.Decode(t.Context(), Request{VIN: nth(1), Caller: alice}); refused(t, err).Code != UpstreamTimeout {
				t.Fatal(err)
			}
		}
		w.journal = nil
		items := batch(t, s, BatchRequest{Questions: fleet(3), Caller: alice})
		if got, want := outcomes(items), "nhtsa "+nth(0)+", UPSTREAM_TIMEOUT, nhtsa "+nth(2); got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		if !strings.Contains(w.happened(), "batch "+nth(0)+" 0; "+nth(2)+" 0, ") || items[1].Refusal.RetryAfter < 59*time.Second {
			t.Errorf("happened: %s; %+v", w.happened(), items[1].Refusal)
		}
		// Alone it costs nothing.
		w.journal = nil
		batch(t, s, BatchRequest{Questions: fleet(3)[1:2], Caller: alice})
		if w.happened() != "get" {
			t.Errorf("happened: %s", w.happened())
		}
		time.Sleep(62 * time.Second)
		if got := outcomes(batch(t, s, BatchRequest{Questions: fleet(3)[1:2], Caller: alice})); got != "nhtsa "+nth(1) {
			t.Errorf("a minute later: %s", got)
		}
	})
}

func TestABatchTakesFromMemoryWhatItsTableCannotGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.hushed = map[string]results.Standing{} // an instance with a memory
		w.keep(vpic.Query{VIN: nth(0)}, time.Hour)
		w.keep(vpic.Query{VIN: nth(1)}, 200*time.Hour)
		w.get = func() error { return &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("x")} }
		items := batch(t, s, BatchRequest{Questions: fleet(3), Caller: alice, Barred: NewNotStored()})
		if got, want := outcomes(items), "cache "+nth(0)+", cache "+nth(1)+", COORDINATION_UNAVAILABLE"; got != want {
			t.Errorf("outcomes %s\nwant     %s", got, want)
		}
		if items[0].Result.Trouble != "" || items[1].Result.Trouble != CoordinationDown {
			t.Errorf("%+v", items)
		}
		w.get = func() error { return nil }
		w.journal = nil
		batch(t, s, BatchRequest{Questions: fleet(1), Caller: alice})
		if w.happened() != "" {
			t.Errorf("what is fresh in memory costs a look: %s", w.happened())
		}
	})
}

func TestABatchGoesOnWithoutItsTableAndDoesNotWaitForItFiftyTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		down := func() error {
			time.Sleep(500 * time.Millisecond)
			return &results.StoreError{Op: "read", Fault: ddb.Unreachable, Err: errors.New("x")}
		}
		w.get, w.put = down, down
		began := time.Now()
		items := batch(t, s, BatchRequest{Questions: fleet(50), Caller: alice})
		for i, item := range items {
			if item.Refusal != nil || item.Result.Saved {
				t.Errorf("item %d: %+v", i, item)
			}
		}
		if took := time.Since(began); took != 1900*time.Millisecond {
			t.Errorf("took %v: 900 ms are NHTSA's", took)
		}
	})
}

// Somebody else's newer answer to one of them, stored while the call was under way, costs none of the others its place in the table.
func TestANewerAnswerToOneOfABatchKeepsNoOtherFromBeingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.batch = func(ctx context.Context, qs []vpic.Query) (vpic.BatchAnswer, error) {
			all, err := w.answers(ctx, qs, 900*time.Millisecond)
			time.Sleep(time.Millisecond)
			for _, q := range qs[:tableAtOnce] {
				w.keep(q, 0)
				w.rows[results.Key(q)] = results.Row{Fetched: results.MillisOf(time.Now())}
			}
			return all, err
		}
		items := batch(t, s, BatchRequest{Questions: fleet(50), Caller: alice})
		for i, item := range items {
			if item.Refusal != nil || item.Result.Saved != (i >= tableAtOnce) {
				t.Errorf("item %d: saved %v, refused %v", i, item.Result.Saved, item.Refusal)
			}
		}
		if len(w.stored) != 50 {
			t.Errorf("%d of 50 answers are stored", len(w.stored))
		}
	})
}

func TestACallOfABatchThatPanicsGivesItsLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t)
		w.batch = func(context.Context, []vpic.Query) (vpic.BatchAnswer, error) { panic("boom") }
		defer func() {
			if recover() == nil || w.held != 0 || len(w.charges) != 1 {
				t.Errorf("%d leases held, charged %v", w.held, w.charges)
			}
		}()
		_, _ = s.DecodeBatch(t.Context(), BatchRequest{Questions: fleet(3), Caller: alice})
	})
}

// Whatever is asked, and whatever NHTSA leaves out: every question has one outcome, an answer is for its own VIN, and no
// question is in a call twice.
func TestEveryQuestionOfABatchHasItsOwnOutcome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one := rapid.Custom(func(rt *rapid.T) Question {
			return Question{VIN: rapid.SampledFrom([]string{nth(1), nth(2), nth(3), strings.ToLower(nth(3)), suv, "", "no VIN"}).Draw(rt, "vin"),
				ModelYear: rapid.SampledFrom([]int{0, 0, 2000, 2001, 1900}).Draw(rt, "year")}
		})
		rounds := rapid.SliceOfN(rapid.SliceOfN(one, 1, 50), 1, 3).Draw(rt, "batches")
		lost := rapid.SampledFrom([]string{"", nth(1), nth(2)}).Draw(rt, "lost")
		synctest.Test(t, func(t *testing.T) {
			w, s := newWorld(t)
			w.lost = map[string]bool{lost: true}
			w.batch = func(ctx context.Context, qs []vpic.Query) (vpic.BatchAnswer, error) {
				vins := map[string]bool{}
				for _, q := range qs {
					if vins[q.VIN] {
						t.Errorf("%s is in one call twice", q.VIN)
					}
					vins[q.VIN] = true
					if _, stored := w.stored[results.Key(q)]; stored {
						t.Errorf("%+v is stored and asked", q)
					}
				}
				return w.answers(ctx, qs, time.Second)
			}
			for _, qs := range rounds {
				for i, item := range batch(t, s, BatchRequest{Questions: qs, Caller: alice}) {
					want := strings.ToUpper(qs[i].VIN)
					if item.Refusal == nil && (item.Result.VIN.Value != want || item.Result.Fields()["VIN"] != want || item.Result.Query().ModelYear != qs[i].ModelYear) {
						t.Errorf("%+v is answered with %+v", qs[i], item.Result)
					}
				}
			}
			if w.held != 0 {
				t.Errorf("%d leases held", w.held)
			}
		})
	})
}
