package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"vingate/internal/devstack"
	"vingate/internal/gate/dynamo"
	"vingate/internal/load"
	"vingate/internal/tables"
	"vingate/internal/virtual"
)

// The test's own binary is an instance, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "instance" {
		if err := runInstance(os.Args[2]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// perfect keeps the budget exactly, in memory that all instances share; give is what it allows beyond.
func perfect(give budget) model {
	return shared(func(b budget) limiter {
		return local{bucket: newBucket(float64(b.Rate+give.Rate), float64(b.Burst+give.Burst)), slots: make(chan struct{}, b.Slots+give.Slots)}
	})
}

// measured is what the phases make of a limiter, in virtual time.
func measured(t *testing.T, m model) row {
	t.Helper()
	b := &bench{}
	l, err := b.lab(peer{name: "test", slots: true, model: m}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var r row
	virtual.Time(t, time.Time{})(func() {
		for _, step := range phases {
			if err := step.run(l, context.Background(), &r); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
	})
	t.Logf("%+v", r)
	return r
}

func TestAPerfectLimiterIsFoundToKeepTheBudgetAndToUseIt(t *testing.T) {
	r := measured(t, perfect(budget{}))
	if r.Excess != 0 || r.AtOnce != theBudget.Slots || r.Use < 0.99 || r.Use > 1.01 || r.Errors != 0 {
		t.Errorf("excess %d, at once %d, use %v, faults %d", r.Excess, r.AtOnce, r.Use, r.Errors)
	}
	if r.LightAdmitted != r.LightOffered || r.LightAdmitted == 0 || r.FloodAdmitted >= r.FloodOffered/5 {
		t.Errorf("light %d of %d, flood %d of %d", r.LightAdmitted, r.LightOffered, r.FloodAdmitted, r.FloodOffered)
	}
	if r.LoneAdmitted != 8 || r.LoneAsked != 8 || r.LoneTold || r.CrowdServed != 300 || r.CrowdTries < 2 {
		t.Errorf("lone %d of %d, told %t; crowd %d in %v tries", r.LoneAdmitted, r.LoneAsked, r.LoneTold, r.CrowdServed, r.CrowdTries)
	}
}

func TestInstancesThatDoNotAgreeAreFoundOut(t *testing.T) {
	r := measured(t, alone)
	if r.Excess < instances*theBudget.Burst-theBudget.Burst || r.AtOnce < 5*theBudget.Slots || r.Use < 9 {
		t.Errorf("excess %d, at once %d, use %v", r.Excess, r.AtOnce, r.Use)
	}
}

func TestOneCallTooManyIsFound(t *testing.T) {
	for what, give := range map[string]budget{"burst": {Burst: 1}, "rate": {Rate: 1}, "slot": {Slots: 1}} {
		r := measured(t, perfect(give))
		if over, more := r.Excess > 0, r.AtOnce > theBudget.Slots; over != (give.Slots == 0) || more != (give.Slots > 0) {
			t.Errorf("one more %s: excess %d, at once %d", what, r.Excess, r.AtOnce)
		}
	}
}

func TestTheModelsAreAsGoodAsTheirRulesAllow(t *testing.T) {
	if r := measured(t, usagePlan); r.Excess != 0 || r.Use != 1 || r.AtOnce <= theBudget.Slots {
		t.Errorf("usage plan: %+v", r)
	}
	if r := measured(t, reserved); r.Excess == 0 || r.AtOnce != theBudget.Slots {
		t.Errorf("reserved concurrency: %+v", r)
	}
	if r := measured(t, queued); r.Excess == 0 || r.AtOnce != theBudget.Slots || r.FloodAdmitted != r.FloodOffered || r.PoliteShare != 1 {
		t.Errorf("queue: %+v", r)
	}
	if r := measured(t, split); r.Excess != 0 || r.AtOnce > theBudget.Slots {
		t.Errorf("a share in each: %+v", r)
	}
}

func at(seconds ...float64) []span {
	var calls []span
	for _, s := range seconds {
		start := time.Unix(0, 0).Add(time.Duration(s * float64(time.Second)))
		calls = append(calls, span{start, start.Add(time.Second)})
	}
	return calls
}

func TestTheJudge(t *testing.T) {
	b := budget{Rate: 1, Burst: 2}
	for _, c := range []struct {
		calls        []span
		excess, most int
	}{
		{nil, 0, 0},
		{at(0, 0), 0, 2},
		{at(0, 0, 0), 1, 3},
		{at(0, 0, 1), 0, 2}, // one ends as another starts
		{at(0, 0, 0.9), 1, 3},
		{at(9, 3, 9, 9.5), 1, 3}, // in any order, in a window anywhere
		{at(0, 1, 2, 3, 4, 5, 5, 5), 1, 3},
	} {
		if got := b.excess(c.calls); got != c.excess {
			t.Errorf("%v: excess %d, want %d", c.calls, got, c.excess)
		}
		if got := atOnce(c.calls); got != c.most {
			t.Errorf("%v: %d at once, want %d", c.calls, got, c.most)
		}
	}
	if got := b.use(at(0, 1, 2, 3), time.Unix(1, 0), time.Unix(3, 0)); got != 1 {
		t.Errorf("use %v", got)
	}
	if got := full(at(0, 3, 3.5, 9), 2); !got.Equal(time.Unix(3, 5e8)) {
		t.Errorf("full at %v", got)
	}
	if got := full(at(0, 3), 2); !got.IsZero() {
		t.Errorf("full at %v", got)
	}
}

func TestCommandsAreCountedHoweverTheyArrive(t *testing.T) {
	const three = "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n*1\r\n$0\r\n\r\n"
	for _, size := range []int{1, 7, 1000} {
		n := 0
		err := eachCommand(chunks{strings.NewReader(three), size}, func() { n++ })
		if n != 3 || err == nil {
			t.Errorf("%d in pieces of %d, %v", n, size, err)
		}
	}
	if err := eachCommand(strings.NewReader("GET a\r\n"), func() { t.Error("counted") }); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Error(err)
	}
}

// chunks reads in small pieces.
type chunks struct {
	from *strings.Reader
	size int
}

func (c chunks) Read(p []byte) (int, error) { return c.from.Read(p[:min(len(p), c.size)]) }

// miniredis stands in for Redis here: what is tested is the harness.
func TestInstancesAreProcessesOnOneStoreThatCanGoAway(t *testing.T) {
	stand := miniredis.RunT(t)
	tap, err := tapRedis(stand.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { tap.shut() }()
	b := &bench{redis: tap, stderr: os.Stderr}
	l, err := b.lab(peer{name: "redis_rate", store: "Redis", needs: "go"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.launch(t.Context(), "test", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ask := func(instance int, hold time.Duration) *call {
		return f.ask(t.Context(), load.Call{Instance: instance, Upstream: hold}, time.Minute)
	}
	for i := range instances { // connections and the script
		if c := ask(i, 0); c.is != "admitted" {
			t.Fatalf("%+v", c)
		}
	}
	before := tap.counts()
	for i := range instances {
		ask(i, 0)
	}
	if got := tap.counts().less(before); got != (counts{Commands: instances}) {
		t.Errorf("%d calls, %+v", instances, got)
	}
	f.open.Wait()

	c := ask(0, time.Hour)
	if c.is != "admitted" {
		t.Fatalf("%+v", c)
	}
	f.instances[0].kill()
	f.open.Wait()
	if c.over.IsZero() || ask(0, 0).is != "failed" {
		t.Errorf("killed: %+v", c)
	}

	tap.shut()
	if c := ask(1, 0); c.is != "failed" || c.err == "" {
		t.Errorf("without a store: %+v", c)
	}
	if err := tap.open(); err != nil {
		t.Fatal(err)
	}
	if c := ask(1, 0); c.is != "admitted" {
		t.Errorf("with a store again: %+v", c)
	}
}

func TestVingateIsMeasuredByItsOwnGate(t *testing.T) {
	stack, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(filepath.Join("..", ".."), os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stack.Close() })
	if _, err := tables.Create(t.Context(), stack.Client, tables.Names{Coordination: coordination, Results: "results"}); err != nil {
		t.Fatal(err)
	}
	if err := dynamo.New(dynamo.Config{Client: stack.Client, Table: coordination, Name: "test", Now: time.Now}).Init(t.Context(), theBudget.knobs(), dynamo.FullBucket); err != nil {
		t.Fatal(err)
	}
	tap, err := tapDynamoDB(stack.StoreURL)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.shut()
	l, err := open(settings{Peer: "vingate", Store: "http://" + tap.Address, Table: coordination, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	admitted := 0
	for range 8 { // the burst leaves room for as many
		release, _, err := l.Acquire(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		if release != nil {
			admitted++
			release(t.Context())
		}
	}
	// A slow machine may need more, never less.
	if got := tap.counts(); admitted == 0 || got.Writes < float64(2*admitted) || got.Reads == 0 || got.Commands != 0 {
		t.Errorf("%d admitted, %+v", admitted, got)
	}
}

func TestKnobsOfTheComparisonAreOnesTheGateTakes(t *testing.T) {
	if faults := theBudget.knobs().Validate(); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
}

func TestARunPrintsALineAndATable(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--peer", "a share"}, &out, &errs, virtual.Time(t, time.Time{})); code != 0 {
		t.Fatalf("%d, %q", code, &errs)
	}
	var r row
	first, rest, _ := strings.Cut(out.String(), "\n")
	if err := json.Unmarshal([]byte(first), &r); err != nil || r.Peer != "in memory, a share in each" || !r.Modelled || r.FloodAdmitted == 0 {
		t.Errorf("%v: %s", err, first)
	}
	for l := range strings.Lines(strings.TrimSpace(rest)) {
		if n := strings.Count(l, "|"); n != 3 {
			t.Errorf("%d bars in %q", n, l)
		}
	}

	// The same from the file.
	path := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if code := run(t.Context(), []string{"--from", path}, &again, &errs, nil); code != 0 || again.String() != rest {
		t.Errorf("%d, %q:\n%s", code, &errs, &again)
	}
}

func TestTimesAreRatiosToTheFirst(t *testing.T) {
	var out bytes.Buffer
	table(&out, []row{
		{Peer: "a", Store: "DynamoDB", Slots: true, P50: 2000, PerAdmission: counts{Writes: 2}, Held: 10, FirstBack: 4, AllBack: 5},
		{Peer: "b", Store: "Redis", AtOnce: 40, P50: 500, PerAdmission: counts{Commands: 1}, LoneAsked: 8},
	})
	for _, want := range []string{"| 1.00 (2.0 ms) | 0.25 (0.5 ms) |", "| 2.00 writes, 0.00 reads | 1.00 commands |", "| 4.0 s, 5.0 s | - |", "| 0 | 40 (no limit) |", "| - | not told; after 1 s 0 of 8 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestWrongArgumentsAreToldAndStartNothing(t *testing.T) {
	for _, args := range [][]string{{"--peer", "nobody"}, {"--phase", "none"}, {"--nonsense"}, {"more"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs, virtual.Time(t, time.Time{})); code != 2 || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: %d, %q, %q", args, code, &out, &errs)
		}
	}
}
