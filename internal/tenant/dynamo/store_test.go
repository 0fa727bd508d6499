package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"vingate/internal/ddb"
	"vingate/internal/ddb/ddbtest"
	"vingate/internal/gate"
	"vingate/internal/tables"
	"vingate/internal/tenant"
)

const (
	noon   = gate.Micros(12 * 3600 * 1e6)
	second = gate.Micros(1e6)
	skew   = 250 * time.Millisecond
)

var tenants atomic.Int64

// dealer and visitor are callers of their own in each test.
func dealer() tenant.Caller {
	return tenant.Caller{ID: fmt.Sprint("dealer", tenants.Add(1)), Plan: tenant.Plan{RatePerSecond: 1, Burst: 3, Weight: 1}}
}

func visitor() tenant.Caller {
	c := dealer()
	c.Anonymous = true
	return c
}

// instance is a store with a wire and a clock of its own.
type instance struct {
	*Store
	*ddbtest.Wire
	mu  sync.Mutex
	now time.Time
}

func newInstance() *instance {
	i := &instance{now: noon.Time()}
	client, wire := ddbtest.On(realClient)
	i.Wire = wire
	i.Store = New(Config{Client: client, Table: table, SkewBound: skew, Now: func() time.Time {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.now
	}})
	return i
}

func (i *instance) pass(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = i.now.Add(d)
}

func (i *instance) look(t testing.TB, c tenant.Caller) *tenant.Refusal {
	t.Helper()
	r, err := i.Look(t.Context(), c, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (i *instance) charge(t testing.TB, c tenant.Caller, id string, cost int) {
	t.Helper()
	if err := i.Charge(t.Context(), c, id, cost); err != nil {
		t.Fatalf("charge %s: %v", id, err)
	}
}

// stored is an account's item as it lies in the table.
func stored(t rapid.TB, id string) item {
	t.Helper()
	out, err := realClient.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: accountKey(id), ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func account(t rapid.TB, id string) tenant.Account {
	t.Helper()
	a, err := decode(stored(t, id))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// put stores an account, or removes it.
func put(id string, a tenant.Account) {
	var err error
	if a.There {
		recent := item{}
		for id, at := range a.Recent {
			recent[id] = number(at)
		}
		it := item{attrKey: accountKey(id)[attrKey], attrTAT: number(a.TAT), attrRecent: &types.AttributeValueMemberM{Value: recent}}
		if a.Expires != 0 {
			it[attrExpires] = number(a.Expires)
		}
		for day, n := range a.Usage {
			it[dayAttribute(day)] = number(n)
		}
		_, err = realClient.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String(table), Item: it})
	} else {
		_, err = realClient.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: aws.String(table), Key: accountKey(id)})
	}
	if err != nil {
		panic(err)
	}
}

// The heart of the package: any charge that the core can plan, also on another account than the one it meets, is applied by DynamoDB exactly
// if the core says it holds, and leaves exactly the account the core says.
func TestEveryChargeMeansTheSameInTheCoreAndInTheStore(t *testing.T) {
	arbitrary := func(t *rapid.T) tenant.Account {
		a := tenant.Account{There: rapid.IntRange(0, 4).Draw(t, "there") > 0}
		if !a.There {
			return a
		}
		a.TAT = noon + gate.Micros(rapid.SampledFrom([]int64{-5_000_000, -1, 0, 1, 2_000_000}).Draw(t, "tat"))
		a.Recent = map[string]gate.Millis{}
		for i := range rapid.IntRange(0, 3).Draw(t, "recent") {
			a.Recent[fmt.Sprint("id", i)] = noon.Millis() - gate.Millis(rapid.SampledFrom([]int{0, 1320, 1321, 90_000}).Draw(t, "age"))
		}
		if rapid.Bool().Draw(t, "anonymous") {
			a.Expires = noon.Time().Unix() + rapid.SampledFrom([]int64{-86400, -1, 0, 1, 7200}).Draw(t, "expires")
		}
		for _, ago := range rapid.SliceOfDistinct(rapid.SampledFrom([]int{0, 1, 7, 8, 30}), rapid.ID[int]).Draw(t, "used days ago") {
			if a.Usage == nil {
				a.Usage = map[tenant.Day]int{}
			}
			a.Usage[tenant.DayOf(noon.Time())-tenant.Day(ago)] = rapid.IntRange(1, 3).Draw(t, "used")
		}
		return a
	}
	store := newInstance().Store
	retention := store.retention()
	store.attempt = 10 * time.Second // what is asked is what a write means, not how quick a busy machine is
	c := dealer()
	applied, failed := map[tenant.Band]int{}, map[tenant.Band]int{}
	rapid.Check(t, func(t *rapid.T) {
		met := arbitrary(t)
		view := met
		if rapid.Bool().Draw(t, "moved on") {
			view = arbitrary(t)
		}
		c.Anonymous = rapid.Bool().Draw(t, "caller")
		w := view.Charge(noon, c, rapid.SampledFrom([]string{"new", "id0"}).Draw(t, "id"), rapid.IntRange(1, 3).Draw(t, "cost"), retention)
		put(c.ID, met)
		got, err := store.update(context.Background(), c.ID, w)
		if err != nil {
			in := input("", "", w)
			t.Fatalf("%v\n%s\nIF %s", err, aws.ToString(in.UpdateExpression), aws.ToString(in.ConditionExpression))
		}
		if holds := w.Holds(met); holds != (got == nil) {
			t.Fatalf("the core says %v, DynamoDB says %v\n%+v\non %+v", holds, got == nil, w, met)
		}
		after := account(t, c.ID)
		want := met
		if got != nil {
			failed[w.Band]++
			if !reflect.DeepEqual(*got, met) {
				t.Fatalf("the failed write shows %+v, it met %+v", *got, met)
			}
		} else {
			applied[w.Band]++
			want = w.Apply(met)
		}
		if !reflect.DeepEqual(after, want) {
			t.Fatalf("DynamoDB has\n%+v, the core\n%+v\nafter %+v", after, want, w)
		}
	})
	for _, b := range []tenant.Band{tenant.Fresh, tenant.Busy, tenant.Reset} {
		if applied[b] < 2 || failed[b] < 2 {
			t.Errorf("%v: %d applied, %d failed: this shows little", b, applied[b], failed[b])
		}
	}
}

func TestAnAdmissionCostsOneWriteAndOneReadASecond(t *testing.T) {
	for _, c := range []tenant.Caller{dealer(), visitor()} {
		c.Plan.Burst = 100
		i := newInstance()
		for n := range 20 {
			if r := i.look(t, c); r != nil {
				t.Fatalf("refused: %+v", r)
			}
			i.charge(t, c, fmt.Sprint("id", n), 1)
			i.pass(90 * time.Millisecond)
		}
		if n := i.Count("UpdateItem"); n != 20 {
			t.Errorf("%d writes for 20 admissions", n)
		}
		if n := i.Count("GetItem"); n != 1 { // each write shows the account anew
			t.Errorf("%d reads", n)
		}
		for range 20 {
			i.look(t, c)
			i.pass(100 * time.Millisecond)
		}
		if n := i.Count("GetItem"); n > 3 {
			t.Errorf("%d reads for looks within two seconds", n)
		}
		if a := account(t, c.ID); a.TAT != noon+20*second || (a.Expires != 0) != c.Anonymous {
			t.Errorf("%+v", a)
		}
	}
}

// envoy ratelimit#427, #440: whoever is refused has spent nothing, to the byte, and nobody paid for a write.
func TestEnvoyRatelimit427_ARefusalLeavesEveryByteAndCostsNoCall(t *testing.T) {
	i, c := newInstance(), dealer()
	for n := range 3 {
		i.charge(t, c, fmt.Sprint(n), 1)
	}
	before, reads, writes := stored(t, c.ID), i.Count("GetItem"), i.Count("UpdateItem")
	for range 50 {
		r := i.look(t, c)
		if r == nil || r.RetryAfter < time.Second {
			t.Fatalf("%+v", r)
		}
		i.pass(19 * time.Millisecond)
	}
	if !reflect.DeepEqual(stored(t, c.ID), before) {
		t.Error("refusals changed the account")
	}
	if r, w := i.Count("GetItem")-reads, i.Count("UpdateItem")-writes; r != 0 || w != 0 {
		t.Errorf("%d reads and %d writes for refusals", r, w)
	}
	// Another instance learns it by one read, and is right without any from then on, for as long as the bucket is dry.
	other := newInstance()
	for range 10 {
		if r := other.look(t, c); r == nil {
			t.Fatal("let through by another instance")
		}
	}
	if n := other.Count("GetItem"); n != 1 {
		t.Errorf("%d reads of another instance", n)
	}
	i.pass(50 * time.Millisecond)
	if r := i.look(t, c); r != nil {
		t.Errorf("refused when a token is there: %+v", r)
	}
}

// zae-limiter#428: drained, waited for as told, and let through again, by whichever instance.
func TestWhatIsLeftIsToldFromMemoryAlone(t *testing.T) {
	i, c := newInstance(), dealer()
	left := func(wantCalls int, wantNext time.Duration, wantOK bool) {
		t.Helper()
		before := i.Count("GetItem")
		if calls, next, ok := i.Left(c); calls != wantCalls && wantOK || next != wantNext && wantOK || ok != wantOK {
			t.Errorf("left %d, the next in %v, %v; want %d, %v, %v", calls, next, ok, wantCalls, wantNext, wantOK)
		}
		if i.Count("GetItem") != before {
			t.Error("it asked the table")
		}
	}
	left(0, 0, false)
	i.charge(t, c, "a", 1)
	left(2, time.Second, true)
	i.pass(1100 * time.Millisecond)
	left(0, 0, false) // others may have used it since
	i.charge(t, c, "b", 3)
	left(0, time.Second, true)
	i.pass(900 * time.Millisecond)
	left(0, 100*time.Millisecond, true)
	c.Plan = tenant.Plan{}
	left(0, 0, false)
}

func TestZaeLimiter428_WhoWaitsAsToldIsLetThrough(t *testing.T) {
	for _, c := range []tenant.Caller{dealer(), visitor()} {
		one, other := newInstance(), newInstance()
		other.pass(-2 * skew) // as far behind as clocks may be apart
		for n := 0; one.look(t, c) == nil; n++ {
			one.charge(t, c, fmt.Sprint(n), 1)
		}
		for round := range 3 {
			r := one.look(t, c)
			if r == nil {
				t.Fatal("not drained")
			}
			one.pass(r.RetryAfter)
			other.pass(r.RetryAfter)
			if r := other.look(t, c); r != nil {
				t.Fatalf("round %d: refused again: %+v", round, r)
			}
			other.charge(t, c, fmt.Sprint("again", round), 1)
			for n := 0; other.look(t, c) == nil; n++ {
				other.charge(t, c, fmt.Sprint("more", round, n), 1)
			}
			if one.look(t, c) == nil {
				one.charge(t, c, fmt.Sprint("one", round), 1)
			}
		}
	}
}

// P7: the answer is lost after the write was applied, and another caller of the same tenant comes before the retry.
func TestALostAnswerIsChargedOnceAlsoWhenAnotherCallerCameBetween(t *testing.T) {
	for name, f := range map[string]ddbtest.Fault{"connection lost": {Lost: true}, "timed out": {Hang: true}} {
		for _, begin := range []string{"never seen", "busy", "idle", "expired"} {
			for _, between := range []int{0, 1, 3} {
				t.Run(fmt.Sprintf("%s/%s/%d between", name, begin, between), func(t *testing.T) {
					t.Parallel()
					i, other, c := newInstance(), newInstance(), visitor()
					tat := noon
					switch begin {
					case "busy":
						tat = noon + 2*second
						put(c.ID, tenant.Account{There: true, TAT: tat, Recent: map[string]gate.Millis{}})
					case "idle":
						put(c.ID, tenant.Account{There: true, TAT: noon - 9*second, Recent: map[string]gate.Millis{}})
					case "expired":
						put(c.ID, tenant.Account{There: true, TAT: noon + 9*second, Recent: map[string]gate.Millis{}, Expires: noon.Time().Unix() - 1})
					}
					i.Script(func(op string, n int) ddbtest.Fault {
						if op != "UpdateItem" || n > 2 {
							return ddbtest.Fault{}
						}
						if n == 2 { // before the retry
							for b := range between {
								other.charge(t, c, fmt.Sprint("other", b), 1)
							}
							return ddbtest.Fault{}
						}
						return f
					})
					i.charge(t, c, "mine", 2)
					if a := account(t, c.ID); a.TAT != tat+gate.Micros(2+between)*second || !a.Charged("mine") {
						t.Errorf("%d tokens were charged for %d: %+v", (a.TAT-tat)/second, 2+between, a)
					}
				})
			}
		}
	}
}

// Every answer is lost: the account says once, the caller hears that nobody knows.
func TestWithEveryAnswerLostTheAccountIsChargedOnce(t *testing.T) {
	i, c := newInstance(), dealer()
	i.Script(func(op string, _ int) ddbtest.Fault { return ddbtest.Fault{Lost: op == "UpdateItem"} })
	err := i.Charge(t.Context(), c, "mine", 1)
	var e *Error
	if !errors.As(err, &e) || e.Fault != ddb.Unreachable {
		t.Errorf("%v", err)
	}
	if a := account(t, c.ID); a.TAT != noon+second {
		t.Errorf("%+v", a)
	}
	i.Script(nil)
	i.charge(t, c, "mine", 1) // asked for again from outside, while it is remembered
	if a := account(t, c.ID); a.TAT != noon+second {
		t.Errorf("charged twice: %+v", a)
	}
}

// An instance that is frozen between two tries thaws when its id has been forgotten. It must not try again.
func TestAThawedInstanceDoesNotChargeAgain(t *testing.T) {
	i, other, c := newInstance(), newInstance(), dealer()
	i.Script(func(op string, n int) ddbtest.Fault {
		if op == "UpdateItem" && n == 1 {
			i.pass(5 * time.Minute)
			other.pass(5 * time.Minute)
			return ddbtest.Fault{Lost: true}
		}
		return ddbtest.Fault{}
	})
	err := i.Charge(t.Context(), c, "mine", 1)
	var e *Error
	if !errors.As(err, &e) || e.Fault != ddb.Timeout {
		t.Errorf("%v", err)
	}
	other.charge(t, c, "other", 1) // which forgets the id
	if a := account(t, c.ID); a.Charged("mine") || a.TAT != noon+301*second {
		t.Errorf("%+v", a)
	}
	if n := i.Count("UpdateItem"); n != 1 {
		t.Errorf("%d writes", n)
	}
}

func TestACallerWhoLeftIsCharged(t *testing.T) {
	i, c := newInstance(), dealer()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.Charge(ctx, c, "mine", 1); err != nil {
		t.Error(err)
	}
	if !account(t, c.ID).Charged("mine") {
		t.Error("not charged")
	}
}

func TestManyInstancesChargeOneAccountExactly(t *testing.T) {
	const instances, each = 6, 8
	for _, c := range []tenant.Caller{dealer(), visitor()} {
		var wg sync.WaitGroup
		for n := range instances {
			i := newInstance()
			i.pass(time.Duration(n-instances/2) * skew / instances)
			wg.Go(func() {
				for k := range each {
					if err := i.Charge(t.Context(), c, fmt.Sprintf("%d/%d", n, k), 1); err != nil {
						var e *Error // two busy cores may exhaust a charge's time; nothing else may go wrong
						if !errors.As(err, &e) || e.Fault != ddb.Timeout && e.Fault != ddb.Contended {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		a := account(t, c.ID)
		first := slices.Min(slices.Collect(maps.Values(a.Recent)))
		if got := int((a.TAT.Millis() - first + 500) / 1000); len(a.Recent) == instances*each && got != instances*each {
			t.Errorf("%d tokens charged, want %d", got, instances*each)
		}
	}
}

// A charge costs a second write only where it meets another that was the first after a pause, too.
func TestAChargeMeetsAnotherOnlyAfterAPause(t *testing.T) {
	one, other, c := newInstance(), newInstance(), dealer()
	for round, begin := range []time.Duration{0, time.Hour} { // never seen; idle
		one.pass(begin)
		other.pass(begin)
		one.look(t, c)
		other.look(t, c)
		for n, want := range []struct{ i, writes int }{{0, 1}, {1, 2}, {0, 1}, {1, 1}, {1, 1}, {0, 1}} {
			i := []*instance{one, other}[want.i]
			before := i.Count("UpdateItem")
			i.charge(t, c, fmt.Sprint(round, n), 1)
			if got := i.Count("UpdateItem") - before; got != want.writes {
				t.Errorf("round %d, charge %d: %d writes, want %d", round, n, got, want.writes)
			}
		}
	}
}

// An item is in its first KB with what is granted to one tenant within the time its ids are kept.
func TestAnAccountIsOneWriteUnit(t *testing.T) {
	i, c := newInstance(), visitor()
	for n := range 200 {
		i.charge(t, c, fmt.Sprintf("lease%05d", n), 1)
		i.pass(time.Second / 20) // a whole budget of 20/s
	}
	a := account(t, c.ID)
	if size := 60 + len(a.Recent)*(10+1+8); len(a.Recent) < 5 || size > 1024 {
		t.Errorf("%d ids, about %d bytes", len(a.Recent), size)
	}
}

// zae-limiter#332: no error of the store is ever told as a limit that was reached, and none lets anybody through.
func TestZaeLimiter332_EveryStoreErrorIsAnErrorOfItsFault(t *testing.T) {
	for name, tc := range map[string]struct {
		f    ddbtest.Fault
		want ddb.Fault
	}{
		"throttled":          {ddbtest.Fault{Status: 400, Code: "ProvisionedThroughputExceededException"}, ddb.Throttled},
		"conflict":           {ddbtest.Fault{Status: 400, Code: "TransactionConflictException"}, ddb.Contended},
		"validation":         {ddbtest.Fault{Status: 400, Code: "ValidationException"}, ddb.Invalid},
		"denied":             {ddbtest.Fault{Status: 400, Code: "AccessDeniedException"}, ddb.Denied},
		"missing table":      {ddbtest.Fault{Status: 400, Code: "ResourceNotFoundException"}, ddb.MissingTable},
		"internal error":     {ddbtest.Fault{Status: 500, Code: "InternalServerError"}, ddb.Unreachable},
		"unreadable answer":  {ddbtest.Fault{Status: 200, Body: "{"}, ddb.Unreachable},
		"damaged item":       {ddbtest.Fault{Status: 200, Body: `{"Item":{"pk":{"S":"x"},"t":{"S":"1"}},"Attributes":{}}`}, ddb.Invalid},
		"refused connection": {ddbtest.Fault{Cut: true}, ddb.Unreachable},
		"no answer":          {ddbtest.Fault{Before: true}, ddb.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, c := newInstance(), dealer()
			i.Script(func(string, int) ddbtest.Fault { return tc.f })
			check := func(op string, err error) {
				t.Helper()
				var e *Error
				if !errors.As(err, &e) || e.Fault != tc.want || e.Op != op {
					t.Errorf("%s: %v, want %s", op, err, tc.want)
				}
			}
			began := time.Now()
			r, err := i.Look(t.Context(), c, 1)
			if r != nil {
				t.Errorf("%+v", r)
			}
			check("look", err)
			_, found, err := i.Find(t.Context(), tenant.Hash{})
			if found {
				t.Error("found")
			}
			check("find a key", err)
			if name != "damaged item" { // an unreadable answer to a write says that it was written
				check("charge", i.Charge(t.Context(), c, "a", 1))
			}
			if took := time.Since(began); took > 5*time.Second { // a hang, not a measurement
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestAReadIsTriedAgain(t *testing.T) {
	i, c := newInstance(), dealer()
	i.Script(func(op string, n int) ddbtest.Fault { return ddbtest.Fault{Cut: n == 1, Lost: n == 2} })
	if r := i.look(t, c); r != nil {
		t.Errorf("%+v", r)
	}
}

// A replica that is behind must not make a dry account look full.
func TestAnOlderAnswerHidesNothing(t *testing.T) {
	i, c := newInstance(), dealer()
	for n := range 3 {
		i.charge(t, c, fmt.Sprint(n), 1)
	}
	put(c.ID, tenant.Account{There: true, TAT: noon, Recent: map[string]gate.Millis{}}) // as it was before
	i.pass(900 * time.Millisecond)
	i.memory.Update(c.ID, func(s seen, _ bool) seen { s.at = time.Time{}; return s })
	if _, err := i.read(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if r := i.look(t, c); r == nil {
		t.Error("let through")
	}
}

func TestALookAfterTheAccountsEndIsOfANewOne(t *testing.T) {
	i, c := newInstance(), visitor()
	put(c.ID, tenant.Account{There: true, TAT: noon + 9000*second, Recent: map[string]gate.Millis{}, Expires: noon.Time().Unix() + 1})
	if r := i.look(t, c); r == nil {
		t.Error("let through before its end")
	}
	i.pass(2 * time.Second)
	if r := i.look(t, c); r != nil {
		t.Errorf("refused after its end: %+v", r)
	}
	for n := range 3 {
		i.charge(t, c, fmt.Sprint(n), 1)
	}
	if r := i.look(t, c); r == nil || account(t, c.ID).TAT != noon+5*second {
		t.Errorf("%+v, %+v", r, account(t, c.ID))
	}
}

func TestNobodyIsLetThroughWithoutAPlan(t *testing.T) {
	i := newInstance()
	for _, c := range []tenant.Caller{{}, {ID: "x"}, {Plan: tenant.Plan{RatePerSecond: 1, Burst: 1}}, {ID: "x", Plan: tenant.Plan{RatePerSecond: 1}}} {
		if r, err := i.Look(t.Context(), c, 1); r != nil || err == nil {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
		if err := i.Charge(t.Context(), c, "a", 1); err == nil {
			t.Errorf("%+v is charged", c)
		}
	}
}

func TestTheNamesAreTheTables(t *testing.T) {
	if attrKey != tables.Key || attrExpires != tables.TTL {
		t.Errorf("%s and %s, the table has %s and %s", attrKey, attrExpires, tables.Key, tables.TTL)
	}
}
