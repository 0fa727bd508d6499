package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"vingate/internal/ddb/ddbtest"
	"vingate/internal/devstack"
	"vingate/internal/gate"
	"vingate/internal/gate/dynamo"
	"vingate/internal/observe"
	"vingate/internal/tables"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

var real *dynamodb.Client

func run(m *testing.M) int {
	store, err := devstack.StartStore(context.Background(), devstack.Options{Dynoxide: devstack.Find(".", os.Getenv).Dynoxide})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer store.Close()
	real = store.Client
	return m.Run()
}

func knobs() gate.Knobs {
	return gate.Knobs{MaxInFlight: 4, RatePerSecond: 2, Burst: 10, MaxQueued: 24, BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
		LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt}
}

// restored is a store whose tables came out of a backup.
type restored struct{ tables.Witness }

func (r restored) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, o ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	out, err := r.Witness.DescribeTable(ctx, in, o...)
	if err == nil {
		out.Table.RestoreSummary = &types.RestoreSummary{RestoreInProgress: aws.Bool(false), RestoreDateTime: aws.Time(time.Now())}
	}
	return out, err
}

// house is a keeper and the table it keeps.
type house struct {
	*Keeper
	store *dynamo.Store
	table string
	wire  *ddbtest.Wire
	out   *bytes.Buffer
	clock time.Time
}

func newHouse(t *testing.T, witness func(tables.Witness) tables.Witness) *house {
	t.Helper()
	name := strings.NewReplacer("/", "-", "'", "").Replace(t.Name())
	h := &house{table: fmt.Sprintf("c-%.200s", name), out: &bytes.Buffer{}, clock: time.Now()}
	if _, err := tables.Create(t.Context(), real, tables.Names{Coordination: h.table, Results: h.table + "-r"}); err != nil {
		t.Fatal(err)
	}
	var client *dynamodb.Client
	client, h.wire = ddbtest.On(real)
	now := func() time.Time { return h.clock }
	h.store = dynamo.New(dynamo.Config{Client: client, Table: h.table, Name: "nhtsa", Now: now, NewID: func() string { return "abcdef" }})
	var w tables.Witness = client
	if witness != nil {
		w = witness(client)
	}
	h.Keeper = New(Config{Gate: h.store, Knobs: knobs(), Now: now, Log: observe.NewLogger(h.out, "", "test"), Metrics: observe.NewMetrics(h.out, "", "test", "vingate/test"),
		Unused: func(ctx context.Context) (bool, string, error) { return tables.Unused(ctx, w, h.table, h.clock) }})
	return h
}

// keep invokes once, and returns the answer and the line of gauges.
func (h *house) keep(t *testing.T) (answer, map[string]any) {
	t.Helper()
	h.out.Reset()
	b, err := h.Invoke(t.Context(), []byte(`{"source":"vingate.keeper"}`))
	if err != nil {
		t.Fatalf("%v\n%s", err, h.out)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(h.out.String()), "\n")
	var gauges map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &gauges); err != nil {
		t.Fatal(err)
	}
	return a, gauges
}

func (h *house) state(t *testing.T) gate.State {
	t.Helper()
	i, err := h.store.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i.State
}

func (h *house) putItem(t *testing.T, pk string) {
	t.Helper()
	if _, err := real.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(h.table), Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}}); err != nil {
		t.Fatal(err)
	}
}

// Design: a gate made on new tables starts with a full bucket; one made on old or restored tables starts empty and held for LEASE_TTL.
func TestAGateStartsFullOnlyWhereNobodyCanHaveCalled(t *testing.T) {
	for name, tc := range map[string]struct {
		witness func(tables.Witness) tables.Witness
		arrange func(*testing.T, *house)
		made    string
	}{
		"a new table":                        {nil, func(*testing.T, *house) {}, "full"},
		"a table out of a backup":            {func(w tables.Witness) tables.Witness { return restored{w} }, func(*testing.T, *house) {}, "held"},
		"a table that is an hour old":        {nil, func(_ *testing.T, h *house) { h.clock = h.clock.Add(time.Hour) }, "held"},
		"a table with a tenant's bucket":     {nil, func(t *testing.T, h *house) { h.putItem(t, "tenant#a") }, "held"},
		"a table from after this clock":      {nil, func(_ *testing.T, h *house) { h.clock = h.clock.Add(-time.Hour) }, "held"},
		"a table with keys for the new gate": {nil, func(t *testing.T, h *house) { h.putItem(t, "key#0") }, "held"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, tc.witness)
			tc.arrange(t, h)
			a, _ := h.keep(t)
			if a.Made != tc.made {
				t.Fatalf("made %q, want %q\n%s", a.Made, tc.made, h.out)
			}
			s, now := h.state(t), gate.MicrosOf(h.clock)
			held, empty := s.InForce(now), s.View(now).Tokens == 0
			if full := tc.made == "full"; full == (held.Reason == gate.HoldStarting) || full == empty || s.Knobs != knobs() {
				t.Errorf("hold %+v, view %+v", held, s.View(now))
			}
			if tc.made == "held" && held.Until.Time().Sub(h.clock) < 15*time.Second {
				t.Errorf("held for %v only", held.Until.Time().Sub(h.clock))
			}
			if a, _ := h.keep(t); a.Made != "" {
				t.Errorf("made another: %+v", a)
			}
		})
	}
}

func TestTwoKeepersMakeOneGate(t *testing.T) {
	h := newHouse(t, nil)
	other := *h.Keeper
	calls := 0
	other.Unused = func(context.Context) (bool, string, error) {
		calls++
		h.keep(t) // comes between the look and the write
		return true, "", nil
	}
	b, err := other.Invoke(t.Context(), []byte(`{"source":"vingate.keeper"}`))
	if err != nil || calls != 1 || string(b) != `{"leases":0,"tickets":0}` {
		t.Errorf("%s, %v", b, err)
	}
	if s := h.state(t); s.Version != 1 {
		t.Errorf("version %d", s.Version)
	}
}

func TestKeepingSpendsNothingAndChangesNoNumber(t *testing.T) {
	h := newHouse(t, nil)
	h.keep(t)
	lease, refusal, err := h.store.Acquire(t.Context(), gate.Request{Key: gate.Key{Route: gate.Interactive, Tenant: "alice"}})
	if lease == nil {
		t.Fatal(refusal, err)
	}
	h.Knobs.RatePerSecond = 5 // the environment of a deployment that came later
	before, writes := h.state(t), h.wire.Count("UpdateItem")+h.wire.Count("PutItem")
	a, gauges := h.keep(t)
	after := h.state(t)
	if n := h.wire.Count("UpdateItem") + h.wire.Count("PutItem") - writes; n != 0 {
		t.Errorf("%d writes with nothing to clear away", n)
	}
	if after.TAT != before.TAT || after.Knobs != before.Knobs || after.Version != before.Version || a.Leases != 0 {
		t.Errorf("%+v became %+v, %+v", before, after, a)
	}
	for name, want := range map[string]any{observe.InFlight: 1.0, observe.Limit: 4.0, observe.Queued: 0.0, observe.HoldActive: 0.0, observe.LeakedLeases: 0.0,
		observe.KnobsDiffer: 1.0, "level": "WARN"} {
		if gauges[name] != want {
			t.Errorf("%s is %v, want %v in %v", name, gauges[name], want, gauges)
		}
	}
	if gauges["Tokens"].(float64) < 1 || fmt.Sprint(gauges["knobsDiffer"]) != "[RATE_PER_SECOND is 2 in the gate, 5 in the environment]" {
		t.Errorf("%v", gauges)
	}

	// The instance that held it is gone.
	h.clock = lease.End.Add(time.Second)
	a, gauges = h.keep(t)
	if after := h.state(t); a.Leases != 1 || gauges[observe.LeakedLeases] != 1.0 || len(after.Leases) != 0 || after.TAT != before.TAT {
		t.Errorf("%+v, %v, %+v", a, gauges, after)
	}
}

func TestAHoldIsToldWithItsReasonAndLeftAlone(t *testing.T) {
	h := newHouse(t, nil)
	h.keep(t)
	if _, err := h.store.Pause(t.Context(), 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	before := h.state(t)
	_, gauges := h.keep(t)
	if gauges[observe.HoldActive] != 1.0 || gauges[observe.Reason] != "operator" || gauges["heldForSeconds"].(float64) < 600 {
		t.Errorf("%v", gauges)
	}
	if after := h.state(t); after.Hold != before.Hold || after.Version != before.Version {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestWhatIsWrongShowsAmongTheErrors(t *testing.T) {
	h := newHouse(t, nil)
	for _, payload := range []string{`{"source":"vingate.warmup"}`, `{}`, `nonsense`, `{"version":"2.0"}`} {
		var e *EventError
		if _, err := h.Invoke(t.Context(), []byte(payload)); !errors.As(err, &e) {
			t.Errorf("%s: %v", payload, err)
		}
	}
	h.Unused = func(context.Context) (bool, string, error) { return false, "", errors.New("denied") }
	if _, err := h.Invoke(t.Context(), []byte(`{"source":"vingate.keeper"}`)); err == nil || h.wire.Count("PutItem") != 0 {
		t.Errorf("a table that cannot be looked at: %v, %d gates made", err, h.wire.Count("PutItem"))
	}
	h.wire.Script(func(string, int) ddbtest.Fault { return ddbtest.Fault{Status: 400, Code: "AccessDeniedException"} })
	if _, err := h.Invoke(t.Context(), []byte(`{"source":"vingate.keeper"}`)); err == nil || !strings.Contains(h.out.String(), "the gate was not kept") {
		t.Errorf("%v\n%s", err, h.out)
	}
}
