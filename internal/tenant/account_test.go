package tenant

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
)

const (
	midday = gate.Micros(12 * 3600 * 1e6)
	second = gate.Micros(1e6)
	memory = 2 * time.Second
)

var (
	dealer  = Caller{ID: "dealer", Plan: Plan{RatePerSecond: 1, Burst: 3, Weight: 1}}
	visitor = Caller{ID: "visitor", Anonymous: true, Plan: Plan{RatePerSecond: 1, Burst: 3, Weight: 1}}
)

// use charges at now, as a grant would.
func use(t testing.TB, a Account, now gate.Micros, c Caller, id string, cost int) Account {
	t.Helper()
	w := a.Charge(now, c, id, cost, memory)
	if !w.Holds(a) {
		t.Fatalf("a charge planned on %+v does not hold there: %+v", a, w.Checks(a))
	}
	return w.Apply(a)
}

func TestABucketOfThreeAtOneASecond(t *testing.T) {
	var a Account
	for i := range 3 {
		if r := a.Look(midday, dealer.Plan, 1, 0); r != nil {
			t.Fatalf("call %d is refused: %+v", i+1, r)
		}
		a = use(t, a, midday, dealer, fmt.Sprint(i), 1)
	}
	for _, tc := range []struct {
		after gate.Micros
		skew  time.Duration
		want  time.Duration // 0: let through
	}{
		{0, 0, time.Second},
		{0, 250 * time.Millisecond, 2 * time.Second}, // the next instance's clock may be half a second behind this one's
		{400_000, 250 * time.Millisecond, 2 * time.Second},
		{second / 2, 250 * time.Millisecond, time.Second},
		{second - 1, 0, time.Second},
		{second, 0, 0},
	} {
		r := a.Look(midday+tc.after, dealer.Plan, 1, tc.skew)
		if (r != nil) != (tc.want > 0) || r != nil && r.RetryAfter != tc.want {
			t.Errorf("after %d us: %+v, want %v", tc.after, r, tc.want)
		}
	}
}

func TestWhatIsLeftOfABucketOfThreeAtOneASecond(t *testing.T) {
	a := use(t, use(t, Account{}, midday, dealer, "1", 1), midday, dealer, "2", 1)
	for _, tc := range []struct {
		account Account
		after   gate.Micros
		calls   int
		next    time.Duration
	}{
		{Account{}, 0, 3, 0},
		{a, 0, 1, time.Second},
		{a, 400_000, 1, 600 * time.Millisecond},
		{a, second, 2, time.Second},
		{a, 2 * second, 3, 0},
		{use(t, a, midday, dealer, "3", 3), 0, 0, 3 * time.Second}, // in debt
	} {
		if calls, next := tc.account.Left(midday+tc.after, dealer.Plan); calls != tc.calls || next != tc.next {
			t.Errorf("after %d us: %d calls, the next in %v; want %d and %v", tc.after, calls, next, tc.calls, tc.next)
		}
	}
}

func TestACostAboveTheBurstWaitsForTheFullBucketAndGoesIntoDebt(t *testing.T) {
	a := use(t, Account{}, midday, dealer, "one", 1)
	if r := a.Look(midday, dealer.Plan, 5, 0); r == nil || r.RetryAfter != time.Second {
		t.Errorf("with a token missing: %+v", r)
	}
	if r := a.Look(midday+second, dealer.Plan, 5, 0); r != nil {
		t.Errorf("with a full bucket: %+v", r)
	}
	a = use(t, a, midday+second, dealer, "five", 5)
	if r := a.Look(midday+second, dealer.Plan, 1, 0); r == nil || r.RetryAfter != 3*time.Second {
		t.Errorf("two tokens in debt: %+v", r)
	}
}

// A debt is what several instances let through on one view. It is paid back, not forgiven.
func TestADebtIsWaitedFor(t *testing.T) {
	var a Account
	for i := range 8 {
		a = use(t, a, midday, dealer, fmt.Sprint(i), 1)
	}
	if r := a.Look(midday, dealer.Plan, 1, 0); r == nil || r.RetryAfter != 6*time.Second {
		t.Errorf("%+v", r)
	}
}

func TestAPlanThatChangesCountsAtOnce(t *testing.T) {
	a := use(t, Account{}, midday, dealer, "a", 3)
	better := dealer.Plan
	better.Burst = 30
	if r := a.Look(midday, better, 1, 0); r != nil {
		t.Errorf("a bigger burst: %+v", r)
	}
	if r := a.Look(midday, dealer.Plan, 1, 0); r == nil {
		t.Error("the old burst lets through")
	}
}

// zae-limiter#428: a limiter's slow path dropped its own records; once drained it never recovered. Here every path is drained and waited for.
func TestZaeLimiter428_DrainedAndWaitedForIsFullAgainOnEveryPath(t *testing.T) {
	for name, c := range map[string]Caller{"with a key": dealer, "anonymous": visitor} {
		for _, begin := range []struct {
			name string
			a    Account
		}{
			{"never seen", Account{}},
			{"busy", Account{There: true, TAT: midday + second, Recent: map[string]gate.Millis{}}},
			{"idle", Account{There: true, TAT: 1, Recent: map[string]gate.Millis{}}},
			{"in debt", Account{There: true, TAT: midday + 30*second, Recent: map[string]gate.Millis{}}},
			{"expired", Account{There: true, TAT: midday + 1000*second, Recent: map[string]gate.Millis{"x": 1}, Expires: seconds(midday)}},
		} {
			t.Run(name+"/"+begin.name, func(t *testing.T) {
				a, now := begin.a, midday
				for round := range 5 {
					drained := 0
					for ; a.Look(now, c.Plan, 1, 0) == nil; drained++ {
						if drained > 100 {
							t.Fatal("it is never drained")
						}
						a = use(t, a, now, c, fmt.Sprint(round, drained), 1)
					}
					if round > 0 && drained != 3 {
						t.Fatalf("round %d: %d calls of a burst of 3", round, drained)
					}
					for r := a.Look(now, c.Plan, 3, 0); r != nil; r = a.Look(now, c.Plan, 3, 0) { // as told, until it is full
						now += gate.Micros(r.RetryAfter.Microseconds())
					}
				}
			})
		}
	}
}

// dyndb-mutex#14: a time to live in milliseconds, so that nothing ever expired. Here it is seconds since 1970, soon after the bucket is full.
func TestDyndbMutex14_TheEndOfAnAnonymousAccountIsInSeconds(t *testing.T) {
	now := midday.Time().Unix()
	var a Account
	for i := range 40 {
		a = use(t, a, midday, visitor, fmt.Sprint(i), 1)
		full := now + int64(i+1) // seconds until tat
		if a.Expires < full+3600 || a.Expires > full+3600+10 {
			t.Fatalf("after %d charges it expires at %d, %d s from now", i+1, a.Expires, a.Expires-now)
		}
	}
	if a := use(t, Account{}, midday, dealer, "a", 1); a.Expires != 0 {
		t.Errorf("a tenant with a key expires at %d", a.Expires)
	}
}

// node-rate-limiter-flexible#310: an item past its end, that DynamoDB had not deleted yet, was used.
func TestNodeRateLimiterFlexible310_ExpiredButPresentCountsAsAbsent(t *testing.T) {
	dry := Account{There: true, TAT: midday + 1000*second, Recent: map[string]gate.Millis{"old": 1}, Expires: seconds(midday) + 1}
	if r := dry.Look(midday, visitor.Plan, 1, 0); r == nil {
		t.Error("before its end it is let through")
	}
	for _, at := range []gate.Micros{midday + second, midday + 500*second} {
		if r := dry.Look(at, visitor.Plan, 1, 0); r != nil {
			t.Errorf("past its end: %+v", r)
		}
		a := use(t, dry, at, visitor, "new", 1)
		if a.TAT != at+second || len(a.Recent) != 1 || a.Expires <= seconds(at) {
			t.Errorf("begun anew as %+v", a)
		}
	}
	// A charge that was planned before the end and lands after it changes nothing.
	w := dry.Charge(midday, visitor, "late", 1, memory)
	w.Now = midday + second
	if w.Holds(dry) {
		t.Error("a charge holds on an account past its end")
	}
}

// envoy ratelimit#427: whoever is refused has spent nothing.
func TestEnvoyRatelimit427_ALookChangesNothing(t *testing.T) {
	a := use(t, Account{}, midday, dealer, "a", 5)
	before := fmt.Sprintf("%+v", a)
	for range 10 {
		if r := a.Look(midday, dealer.Plan, 1, time.Second); r == nil {
			t.Fatal("let through")
		}
	}
	if after := fmt.Sprintf("%+v", a); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

func TestOldIdsGoWithTheNextChargeAndYoungOnesStay(t *testing.T) {
	a := Account{There: true, TAT: 1, Recent: map[string]gate.Millis{}}
	for i := range 50 {
		a.Recent[fmt.Sprintf("old%02d", i)] = midday.Millis() - 2001 - gate.Millis(i)
	}
	a.Recent["young"] = midday.Millis() - 2000
	a = use(t, a, midday, dealer, "a", 1)
	if len(a.Recent) != 1+1+50-mostForgotten || !a.Charged("young") || !a.Charged("a") || a.Charged("old49") || !a.Charged("old00") {
		t.Errorf("left: %v", a.Recent)
	}
	a = use(t, a, midday, dealer, "b", 1)
	if len(a.Recent) != 3 {
		t.Errorf("left: %v", a.Recent)
	}
}

// Somebody may delete an account, to give a tenant a new start, between a charge's view and its landing.
func TestAChargeForABusyAccountDoesNotHoldOnAnIdleOne(t *testing.T) {
	w := Account{There: true, TAT: midday}.Charge(midday, dealer, "a", 1, memory)
	for tat, holds := range map[gate.Micros]bool{midday: true, midday - 1: false} {
		if got := w.Holds(Account{There: true, TAT: tat}); w.Band != Busy || got != holds {
			t.Errorf("%v at tat %d: holds %v", w.Band, tat, got)
		}
	}
}

// Several instances with clocks of their own charge one account; writes are planned on old views, land late and lose their answers, and
// others charge in between. An oracle counts what was applied.
func TestProperty_EveryGrantIsChargedOnceWhateverHappensToItsWrites(t *testing.T) {
	const skew, budget = 250 * time.Millisecond, 700_000
	rapid.Check(t, func(t *rapid.T) {
		script := Caller{ID: "script", Plan: Plan{RatePerSecond: 50, Burst: 3}} // a token is over before a lost answer is noticed
		caller := rapid.SampledFrom([]Caller{dealer, visitor, script}).Draw(t, "caller")
		clocks, views := make([]gate.Micros, 3), make([]Account, 3)
		for i := range clocks {
			clocks[i] = gate.Micros(rapid.Int64Range(-skew.Microseconds(), skew.Microseconds()).Draw(t, "skew"))
		}
		var a Account
		now := midday
		applied := map[string]int{}
		land := func(w Charge) {
			if !w.Holds(a) {
				return
			}
			before := a
			a = w.Apply(a)
			applied[w.ID]++
			if counted := used(a) - used(before); caller.Anonymous && counted != 0 || !caller.Anonymous && counted != w.Cost {
				t.Fatalf("%d were counted by %+v", counted, w)
			}
			tat := w.Now // of a tenant who has used nothing
			if !before.absent(w.Now) {
				tat = max(before.TAT, w.Now)
			}
			if a.TAT != tat+w.Step {
				t.Fatalf("tat went from %d to %d by %+v", before.TAT, a.TAT, w)
			}
			if w.Holds(a) {
				t.Fatalf("the same write holds twice: %+v on %+v", w, a)
			}
		}
		for n := range rapid.IntRange(1, 20).Draw(t, "grants") {
			now += gate.Micros(rapid.SampledFrom([]int64{0, 1, 1000, 300_000, 1_000_000, 20_000_000, 2 * 3600 * 1_000_000}).Draw(t, "pause"))
			i := rapid.IntRange(0, len(clocks)-1).Draw(t, "instance")
			id, cost := fmt.Sprint("grant", n), rapid.IntRange(1, 3).Draw(t, "cost")
			end := now + budget
			for lost := true; lost; {
				w := views[i].Charge(now+clocks[i], caller, id, cost, memory)
				now = min(end, now+gate.Micros(rapid.Int64Range(0, 120_000).Draw(t, "way")))
				held := w.Holds(a)
				land(w)
				for o := range rapid.IntRange(0, 2).Draw(t, "others") {
					land(a.Charge(now, caller, fmt.Sprint(id, "/", applied[id], "/", o, "/", now), 1, memory))
				}
				if lost = now < end && rapid.Bool().Draw(t, "lost"); lost {
					continue // nothing is known: the same again, on the old view
				}
				met := a
				if views[i] = met; !held && !met.Charged(id) {
					lost, end = true, end+budget // a failed condition shows what it met, and the next try holds on that
				}
			}
			if applied[id] != 1 {
				t.Fatalf("%s was charged %d times", id, applied[id])
			}
		}
		for id, n := range applied {
			if n != 1 {
				t.Fatalf("%s was charged %d times", id, n)
			}
		}
	})
}

// used is what an account counts, over all days.
func used(a Account) (n int) {
	for _, of := range a.Usage {
		n += of
	}
	return n
}

func TestAnAccountOfAKeyRemembersEightDays(t *testing.T) {
	caller := Caller{ID: "dealer", Plan: Plan{RatePerSecond: 1, Burst: 20}}
	var a Account
	now := midday
	for day := range 20 {
		for n := range 1 + day%3 {
			w := a.Charge(now, caller, fmt.Sprint(day, ".", n), 1+n, time.Second)
			if !w.Holds(a) {
				t.Fatalf("%+v does not hold on %+v", w, a)
			}
			a = w.Apply(a)
			now += 5_000_000
		}
		now += 86_400_000_000
	}
	today := DayOf(midday.Time()) + 19
	if len(a.Usage) != UsageDays || a.Usage[today] != 1+2 || a.Usage[today-1] != 1 || a.Usage[today-2] != 1+2+3 {
		t.Errorf("on day %d: %v", today, a.Usage)
	}
	if b := (Account{}).Charge(midday, Caller{ID: "visitor", Anonymous: true, Plan: caller.Plan}, "x", 1, time.Second).Apply(Account{}); b.Usage != nil {
		t.Errorf("of an address it is kept how much it uses: %v", b.Usage)
	}
}
