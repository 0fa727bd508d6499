package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/api"
	"vingate/internal/vin"
)

// memory is a book without a file.
type memory struct {
	records []Record
	appends int
	fails   error
}

func (m *memory) Has(row Row) (bool, error) {
	return slices.ContainsFunc(m.records, func(r Record) bool { return r.Line == row.Line && r.Outcome != Refused }), nil
}

func (m *memory) Answered(k Key) (Record, bool, error) {
	for _, r := range m.records {
		if found, ok := r.Key(); ok && found == k {
			return r, true, nil
		}
	}
	return Record{}, false, nil
}

func (m *memory) Append(records []Record) error {
	m.appends++
	if m.fails == nil {
		m.records = append(m.records, records...)
	}
	return m.fails
}

// byLine are the outcomes of the lines, the later ones counting.
func (m *memory) byLine() map[int]Outcome {
	out := map[int]Outcome{}
	for _, r := range m.records {
		out[r.Line] = r.Outcome
	}
	return out
}

// accords are n different VINs with true check digits.
func accords(n int) []string {
	var list []string
	for i := range n {
		v := []byte(fmt.Sprintf("1HGCM82603A%06d", 100_000+i))
		v[8], _ = vin.CheckDigit(string(v))
		list = append(list, string(v))
	}
	return list
}

func feed(vins ...string) func() (Row, error) {
	n := 0
	return func() (Row, error) {
		if n == len(vins) {
			return Row{}, io.EOF
		}
		n++
		return Row{Line: n + 1, VIN: vins[n-1]}, nil
	}
}

func answer(q api.Question) api.Result {
	make, model, year := "HONDA", "Accord", 2003
	return api.Result{Answer: &api.Answer{VIN: q.VIN, ModelYear: &year, Make: &make, Model: &model, Outcome: "clean", Sentence: "Fine.", Codes: []int{0},
		Fields: map[string]string{"Make": "HONDA", "Trim": "EX"}, Provenance: api.Provenance{Source: "nhtsa", FetchedAt: time.Unix(1_800_000_000, 0)}}}
}

func refusal(status int, after int64) *api.Problem {
	return &api.Problem{Status: status, Code: "CODE", Title: "Why", Detail: "A sentence.", RetryAfterSeconds: after}
}

// call is one call that was made, and when.
type call struct {
	at   time.Duration
	vins []string
}

// script is an API that answers as its function says; n counts calls from 1.
type script struct {
	began time.Time
	calls []call
	do    func(n int, q []api.Question) ([]api.Result, error)
	took  time.Duration
}

func (s *script) ask(_ context.Context, q []api.Question) ([]api.Result, error) {
	c := call{at: time.Since(s.began)}
	for _, one := range q {
		c.vins = append(c.vins, one.VIN)
	}
	s.calls = append(s.calls, c)
	time.Sleep(s.took)
	return s.do(len(s.calls), q)
}

func all(q []api.Question) ([]api.Result, error) {
	var list []api.Result
	for _, one := range q {
		list = append(list, answer(one))
	}
	return list, nil
}

// run is what the tests begin with.
func (s *script) run(m *memory, vins ...string) Run {
	s.began = time.Now()
	return Run{Next: feed(vins...), Book: m, Ask: s.ask, Batch: 3, Tries: 3, Patience: time.Hour, Jitter: func() float64 { return 0.5 },
		Before: Survey{Total: len(vins)}}
}

func (s *script) times() []time.Duration {
	var list []time.Duration
	for _, c := range s.calls {
		list = append(list, c.at)
	}
	return list
}

func do(t *testing.T, r Run) Summary {
	t.Helper()
	s, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRowsAreAskedInBatchesAndEachGetsARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) { return all(q) }}
		m := &memory{}
		vins := accords(7)
		r := s.run(m, append(vins, "1.23E+16", "nothing")...)
		r.Fields, _ = ParseFields("trim")
		sum := do(t, r)
		if sum.End != Complete || sum.Done != 9 || sum.Asked != 7 || sum.Calls != 3 || sum.Counts["clean"] != 7 || sum.Counts[Damaged] != 1 || sum.Counts[Invalid] != 1 {
			t.Errorf("%+v", sum)
		}
		for i, r := range m.records {
			if r.Line != i+2 || (r.Decoded != nil) != (i < 7) || r.Decoded != nil && (r.Decoded.VIN != vins[i] || !reflect.DeepEqual(r.Decoded.Fields, map[string]string{"Trim": "EX"})) {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestAVINThatStandsThereTwiceIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) { return all(q) }}
		m := &memory{}
		v := accords(4)
		sum := do(t, s.run(m, v[0], v[1], strings.ToLower(v[0]), v[2], v[3], " "+v[1], v[3]))
		if want := [][]string{v[:3], v[3:4]}; len(s.calls) != 2 || !slices.Equal(s.calls[0].vins, want[0]) || !slices.Equal(s.calls[1].vins, want[1]) {
			t.Errorf("asked %v", s.calls)
		}
		if sum.Asked != 4 || sum.Done != 7 || len(m.byLine()) != 7 {
			t.Errorf("%+v", sum)
		}
		for _, r := range m.records {
			if r.Line == 4 && (r.VIN != strings.ToLower(v[0]) || r.Decoded.VIN != v[0]) || r.Line == 7 && r.Decoded.VIN != v[1] {
				t.Errorf("%+v", r)
			}
		}
	})
}

// One call answers one model year for a VIN, so a VIN with two of them goes in two calls.
func TestTwoModelYearsOfAVINAreAskedInDifferentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) { return all(q) }}
		m := &memory{}
		r := s.run(m)
		list := []Row{{2, accord, "1999", ""}, {3, accord, "1973", ""}, {4, accord, "2000", ""}, {5, civic, "", ""}, {6, accord, "2000", ""}}
		r.Next = func() (Row, error) {
			if len(list) == 0 {
				return Row{}, io.EOF
			}
			row := list[0]
			list = list[1:]
			return row, nil
		}
		sum := do(t, r)
		if sum.Calls != 2 || sum.Asked != 3 || !slices.Equal(s.calls[0].vins, []string{accord, civic}) || !slices.Equal(s.calls[1].vins, []string{accord}) {
			t.Errorf("%v", s.calls)
		}
		if m.byLine()[3] != Invalid || m.byLine()[6] != "clean" {
			t.Errorf("%v", m.byLine())
		}
	})
}

// Nothing is asked before the Retry-After is over, neither the refused ones nor others; then exactly those that were refused, filled up with others.
func TestRetryAfterIsObeyedByAllThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []string
		s := &script{took: 100 * time.Millisecond}
		s.do = func(n int, q []api.Question) ([]api.Result, error) {
			list, _ := all(q)
			switch n {
			case 1: // two of three, with different times
				list[1], list[2] = api.Result{Problem: refusal(429, 7)}, api.Result{Problem: refusal(429, 4)}
			case 2: // the whole call
				return nil, refusal(503, 90)
			}
			return list, nil
		}
		m := &memory{}
		v := accords(5)
		r := s.run(m, v...)
		r.Report = func(s State) {
			if s.Wait != nil {
				waits = append(waits, fmt.Sprint(s.Wait.For, " ", s.Wait.Told, " ", s.Wait.Why))
			}
		}
		sum := do(t, r)
		if sum.End != Complete || len(m.records) != 5 {
			t.Errorf("%+v", sum)
		}
		if want := []time.Duration{0, 7100 * time.Millisecond, 97200 * time.Millisecond, 97300 * time.Millisecond}; !slices.Equal(s.times(), want) {
			t.Errorf("calls at %v, want %v", s.times(), want)
		}
		if !slices.Equal(s.calls[1].vins, v[1:4]) || !slices.Equal(s.calls[2].vins, v[1:4]) || !slices.Equal(s.calls[3].vins, v[4:]) {
			t.Errorf("%v", s.calls)
		}
		if want := []string{"7s true Why", "1m30s true Why"}; !slices.Equal(waits, want) {
			t.Errorf("waits %q", waits)
		}
	})
}

func TestARefusalWithoutATimeAndABrokenConnectionAreAnsweredByGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(n int, q []api.Question) ([]api.Result, error) {
			switch {
			case n == 1, n > 9:
				return all(q)
			case n%2 == 0:
				return nil, refusal(503, 0)
			}
			return nil, &api.UnreachableError{URL: "x", Err: io.EOF}
		}}
		sum := do(t, s.run(&memory{}, accords(6)...))
		want := []time.Duration{0, 0}
		for _, pause := range []time.Duration{2, 4, 8, 16, 32, 64, 120, 120} {
			want = append(want, want[len(want)-1]+pause*time.Second)
		}
		if sum.End != Complete || !slices.Equal(s.times(), want) {
			t.Errorf("%v, calls at %v, want %v", sum.End, s.times(), want)
		}
	})
	for n := 1; n < 100; n++ {
		if lo, mid, hi := pause(n, 0), pause(n, 0.5), pause(n, 1); lo < firstPause*8/10 || hi > longestPause*12/10 || lo >= mid || mid >= hi {
			t.Errorf("pause %d is %v to %v", n, lo, hi)
		}
	}
}

// One VIN that NHTSA does not answer, or answers with nonsense, costs its own tries and holds nobody up.
func TestAVINThatFailsByItselfIsGivenUpAndWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := accords(8)
		s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) {
			list, _ := all(q)
			for i, one := range q {
				if one.VIN == v[1] {
					list[i] = api.Result{Problem: refusal(504, 30)}
				}
			}
			return list, nil
		}}
		m := &memory{}
		sum := do(t, s.run(m, append(v, v[1])...))
		asked := 0
		for _, c := range s.calls {
			if slices.Contains(c.vins, v[1]) {
				asked++
			}
		}
		if sum.End != Complete || sum.Counts[Refused] != 2 || sum.Counts["clean"] != 7 || asked != 3 {
			t.Errorf("%+v, asked for %d times", sum, asked)
		}
		if r := m.records[slices.IndexFunc(m.records, func(r Record) bool { return r.Line == 3 })]; r.Decoded != nil || r.Reason != "A sentence." || r.Code != "CODE" {
			t.Errorf("%+v", r)
		}
		if times := s.times(); times[2] != 0 || times[3] < 30*time.Second {
			t.Errorf("calls at %v: the others did not go on, or the one was repeated at once", times)
		}
	})
}

// A VIN that spoils the whole call is found by smaller calls; all others are answered.
func TestAVINThatSpoilsTheWholeCallStopsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := accords(40)
		s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) {
			if slices.ContainsFunc(q, func(q api.Question) bool { return q.VIN == v[5] }) {
				return nil, refusal(504, 2)
			}
			return all(q)
		}}
		m := &memory{}
		r := s.run(m, v...)
		r.Batch = 16
		sum := do(t, r)
		if sum.End != Complete || sum.Counts["clean"] != 39 || m.byLine()[7] != Refused {
			t.Errorf("%+v", sum)
		}
		t.Logf("%d calls, %v", sum.Calls, s.times()[len(s.calls)-1])
		if sum.Calls > 20 {
			t.Errorf("%d calls", sum.Calls)
		}
	})
}

func TestARunEndsWhenItsPatienceIsOver(t *testing.T) {
	v := accords(6)
	for _, tc := range []struct {
		name     string
		patience time.Duration
		do       func(n int, q []api.Question) ([]api.Result, error)
		end      End
		records  int // with a reason
		calls    int
		at       time.Duration // of the end
	}{
		{"a wait beyond it is not begun", time.Minute, func(int, []api.Question) ([]api.Result, error) { return nil, refusal(503, 3600) }, OutOfTime, 3, 1, 0},
		{"none at all repeats nothing", 0, func(int, []api.Question) ([]api.Result, error) { return nil, refusal(429, 1) }, OutOfTime, 3, 1, 0},
		{"many short waits add up", time.Minute, func(int, []api.Question) ([]api.Result, error) { return nil, refusal(429, 25) }, OutOfTime, 3, 3, 50 * time.Second},
		{"the API was there and is gone", time.Minute, func(n int, q []api.Question) ([]api.Result, error) {
			if n == 1 {
				return all(q)
			}
			return nil, &api.UnreachableError{URL: "x", Err: io.EOF}
		}, Unusable, 3, 6, 30 * time.Second},
		{"the API was never there", time.Hour, func(int, []api.Question) ([]api.Result, error) {
			return nil, &api.UnreachableError{URL: "x", Err: io.EOF}
		}, Unusable, 0, 1, 0},
		{"it is no vingate", time.Hour, func(int, []api.Question) ([]api.Result, error) { return nil, &api.ForeignError{URL: "x", Reason: "y"} }, Unusable, 0, 1, 0},
		{"the key is not known", time.Hour, func(n int, q []api.Question) ([]api.Result, error) {
			if n == 1 {
				return all(q)
			}
			return nil, refusal(401, 0)
		}, Unusable, 3, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{do: tc.do}
				m := &memory{}
				r := s.run(m, v...)
				r.Patience = tc.patience
				sum := do(t, r)
				if sum.End != tc.end || sum.Err == nil || len(m.records) != tc.records || len(s.calls) != tc.calls || time.Since(s.began) != tc.at {
					t.Errorf("%v (%v) at %v, %d records, %d calls", sum.End, sum.Err, time.Since(s.began), len(m.records), len(s.calls))
				}
			})
		})
	}
}

func TestAnInterruptLetsTheCallFinishAndEndsAWaitAtOnce(t *testing.T) {
	v := accords(9)
	t.Run("in a call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &script{took: 10 * time.Second, do: func(_ int, q []api.Question) ([]api.Result, error) { return all(q) }}
			m := &memory{}
			r := s.run(m, v...)
			time.AfterFunc(15*time.Second, cancel)
			sum, err := r.Do(ctx)
			if err != nil || sum.End != Interrupted || len(m.records) != 6 || time.Since(s.began) != 20*time.Second {
				t.Errorf("%+v, %v, %d records at %v", sum, err, len(m.records), time.Since(s.began))
			}
		})
	})
	t.Run("in a wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &script{do: func(int, []api.Question) ([]api.Result, error) { return nil, refusal(429, 60) }}
			m := &memory{}
			r := s.run(m, v...)
			time.AfterFunc(15*time.Second, cancel)
			sum, err := r.Do(ctx)
			if err != nil || sum.End != Interrupted || len(m.records) != 0 || time.Since(s.began) != 15*time.Second {
				t.Errorf("%+v, %v, %d records at %v", sum, err, len(m.records), time.Since(s.began))
			}
		})
	})
	t.Run("behind the last row", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) { cancel(); return all(q) }}
			sum, err := s.run(&memory{}, v[:2]...).Do(ctx)
			if err != nil || sum.End != Complete {
				t.Errorf("%+v, %v", sum, err)
			}
		})
	})
}

func TestABookThatFailsEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{do: func(_ int, q []api.Question) ([]api.Result, error) { return all(q) }}
		full := errors.New("disk full")
		if _, err := s.run(&memory{fails: full}, accords(9)...).Do(t.Context()); !errors.Is(err, full) || len(s.calls) != 1 {
			t.Errorf("%v after %d calls", err, len(s.calls))
		}
		r := s.run(&memory{})
		broken := errors.New("broken")
		r.Next = func() (Row, error) { return Row{}, broken }
		if _, err := r.Do(t.Context()); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	})
}

func TestSpeedIsThatOfTheLastMinutesWaitsIncluded(t *testing.T) {
	var s speed
	at := time.Unix(0, 0)
	if s.add(at, 0); s.perSecond(at.Add(time.Second)) != 0 {
		t.Error("a speed out of nothing")
	}
	rows := 0
	for range 1000 { // 10 rows a second
		at = at.Add(time.Second)
		rows += 10
		s.add(at, rows)
	}
	if v := s.perSecond(at); v < 9.9 || v > 10.1 || len(s.marks) > 80 {
		t.Errorf("%v a second, %d marks", v, len(s.marks))
	}
	for range 600 { // then 1
		at = at.Add(time.Second)
		rows++
		s.add(at, rows)
	}
	if v := s.perSecond(at); v < 0.9 || v > 1.1 {
		t.Errorf("%v a second", v)
	}
}

// Whatever the API does: every row has a record in the end, NHTSA's for its own VIN or none, no question is put twice in one call, none is
// repeated before its time, and none is asked again once it is answered.
func TestWhateverTheAPIDoesTheRunKeepsItsPromises(t *testing.T) {
	total := 0
	rapid.Check(t, func(rt *rapid.T) {
		v := accords(12)
		pool := append(slices.Clone(v), "1.23E+16", "short", strings.ToLower(v[0]), " "+v[1])
		vins := rapid.SliceOfN(rapid.SampledFrom(pool), 0, 60).Draw(rt, "vins")
		batch := rapid.IntRange(1, 8).Draw(rt, "batch")
		// What the API does, in turn; when it is used up, all is well. Drawn before the bubble, which rapid cannot see into.
		deeds := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 60).Draw(rt, "deeds")
		var faults []string
		synctest.Test(t, func(t *testing.T) {
			faults = check(t, vins, batch, deeds)
		})
		total += len(vins)
		if len(faults) > 0 {
			rt.Fatal(strings.Join(faults, "\n"))
		}
	})
	if total == 0 {
		t.Error("no row was drawn")
	}
}

// check runs over the VINs with an API that does these deeds, and returns what was wrong.
func check(t *testing.T, vins []string, batch int, deeds []int) (faults []string) {
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	next := func() int {
		if len(deeds) == 0 {
			return 0
		}
		d := deeds[0]
		deeds = deeds[1:]
		return d
	}
	kinds := []struct {
		status int
		after  int64
	}{{429, 0}, {429, 7}, {503, 40}, {504, 0}, {504, 30}, {502, 2}, {500, 0}}
	due := map[string]time.Time{}
	finished := map[string]bool{}
	var hold time.Time
	s := &script{}
	refuse := func(q api.Question, deed int) *api.Problem {
		k := kinds[deed%len(kinds)]
		p := refusal(k.status, k.after)
		due[q.VIN] = time.Now().Add(max(p.RetryAfter(), time.Second)) // also without a time it is never repeated at once
		if p.Shared() && due[q.VIN].After(hold) {
			hold = due[q.VIN]
		}
		return p
	}
	s.do = func(n int, q []api.Question) ([]api.Result, error) {
		if time.Now().Before(hold) {
			wrong("asked %v before anybody may", time.Until(hold))
		}
		if len(q) == 0 || len(q) > batch {
			wrong("%d questions", len(q))
		}
		seen := map[string]bool{}
		for _, one := range q {
			if seen[one.VIN] || finished[one.VIN] {
				wrong("%s is asked for again", one.VIN)
			}
			if time.Now().Before(due[one.VIN]) {
				wrong("%s is repeated too early", one.VIN)
			}
			seen[one.VIN] = true
		}
		switch deed := next(); {
		case deed == 9 && n > 1:
			hold = time.Now().Add(time.Second)
			return nil, &api.UnreachableError{URL: "x", Err: io.EOF}
		case deed >= 7:
			var p *api.Problem
			kind := next()
			for _, one := range q {
				p = refuse(one, kind)
			}
			return nil, p
		}
		var list []api.Result
		for _, one := range q {
			switch deed := next(); {
			case deed == 8:
				finished[one.VIN] = true
				list = append(list, api.Result{Problem: refusal(400, 0)})
			case deed > 4:
				list = append(list, api.Result{Problem: refuse(one, next())})
			default:
				finished[one.VIN] = true
				list = append(list, answer(one))
			}
		}
		return list, nil
	}
	m := &memory{}
	r := s.run(m, vins...)
	r.Batch = batch
	sum, err := r.Do(t.Context())
	if err != nil || sum.End != Complete || sum.Done != len(vins) {
		wrong("%+v, %v", sum, err)
	}
	lines := map[int]bool{}
	for _, rec := range m.records {
		v, err := vin.Parse(vins[rec.Line-2])
		if lines[rec.Line] || rec.VIN != vins[rec.Line-2] || rec.Decoded != nil && (err != nil || rec.Decoded.VIN != v.Value) {
			wrong("%+v for %q", rec, vins[rec.Line-2])
		}
		lines[rec.Line] = true
	}
	if len(lines) != len(vins) {
		wrong("%d records for %d rows", len(lines), len(vins))
	}
	return faults
}
