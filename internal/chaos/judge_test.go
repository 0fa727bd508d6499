package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"vingate/internal/gate"
	"vingate/internal/standin"
)

var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

// call is one at the stand-in, of an instance and about a client's n-th VIN.
func call(from, until float64, instance int, client string, n int) standin.Call {
	return standin.Call{Start: at(from).UnixMicro(), End: at(until).UnixMicro(), Kind: standin.AnswerDecoded, VINs: []string{VINOf(client, n)},
		By: "vingate/1 (+" + Contact(instance) + ")"}
}

var knobs = gate.Knobs{MaxInFlight: 2, RatePerSecond: 2, Burst: 10, MaxQueued: 2, BulkheadInteractive: 2, BulkheadBatch: 1, BulkheadAnon: 3,
	LeaseTTL: 6 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt}

// write leaves these leases, each until its end.
func write(seconds float64, names []string, leases map[string]float64) Write {
	s := gate.State{Version: 1, Knobs: knobs, Limit: 2, Leases: map[string]gate.Millis{}, Places: map[gate.Place][]string{}}
	for id, end := range leases {
		s.Leases[id] = gate.MicrosOf(at(end)).Millis()
	}
	return Write{At: at(seconds), Names: names, State: s}
}

func answer(client string, n int, status int, after, body string) Answer {
	kind := "application/problem+json"
	if status == 200 {
		kind = "application/json"
	}
	return Answer{Client: client, VINs: []string{VINOf(client, n)}, Try: 1, Asked: at(20), Done: at(20.5), Status: status, Type: kind, After: after, Body: []byte(body)}
}

func decoded(vin string, fields map[string]string) string {
	b, _ := json.Marshal(map[string]any{"vin": vin, "fields": fields, "provenance": map[string]any{"source": "nhtsa", "waitedMs": 3}})
	return string(b)
}

const dry = `{"code":"RATE_LIMITED","scope":"tenant","detail":"Too many.","waitedMs":0,"retryAfterSeconds":2}`

// sound is the evidence of a run in which everything went well.
func sound() Evidence {
	vin := VINOf("anna", 1)
	row := map[string]string{"VIN": vin, "Make": "HONDA", "Doors": ""}
	throttledCall := call(30, 30.2, 1, "anna", 3)
	throttledCall.Kind, throttledCall.RetryAfter = string(standin.HTTP429), "5"
	lone := answer("lone", 1, 200, "", decoded(VINOf("lone", 1), map[string]string{"VIN": VINOf("lone", 1)}))
	lone.Try, lone.Waited = 2, 2*time.Second
	final := write(60, nil, nil).State
	return Evidence{
		Plan: Plan{Seed: 1, For: time.Minute, Calm: 40 * time.Second}, Began: began, Knobs: knobs,
		Patience: 3 * time.Second, PatienceBatch: 6 * time.Second, BulkheadWait: 2 * time.Second, UpstreamTimeout: 3 * time.Second, Deadline: 12 * time.Second,
		Changes: []Change{{began, began, Numbers{2, 2, 10}}},
		Calls:   []standin.Call{call(10, 11, 1, "anna", 1), call(10.5, 12, 2, "keyed-1", 1), throttledCall},
		Writes: []Write{
			write(9.9, []string{"a"}, map[string]float64{"a": 16}),
			write(10.4, []string{"b"}, map[string]float64{"a": 16, "b": 16.4}),
			write(11.1, []string{"a"}, map[string]float64{"b": 16.4}),
			write(29.9, []string{"b", "c"}, map[string]float64{"c": 36}), // b ran out and was taken away with c's admission
			write(30.3, []string{"c"}, nil),
		},
		Answers: []Answer{answer("anna", 1, 200, "", decoded(vin, map[string]string{"VIN": vin, "Make": "HONDA"})), answer("anna", 2, 429, "2", dry), lone},
		Outages: []Span{{From: at(50), Until: at(54)}},
		Rows:    map[string]map[string]string{vin: row, VINOf("lone", 1): {"VIN": VINOf("lone", 1)}},
		Final:   final, Processes: []Process{{Instance: 1, Invocations: 200, Files: 20, Goroutines: 60, Memory: 30 << 20, Early: 25 << 20}},
	}
}

// broken are the promises that the judge finds broken.
func broken(e Evidence) []string {
	set := map[string]bool{}
	for _, v := range Judge(e) {
		if len(v.Broken) > 0 {
			set[v.Promise] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func TestOfASoundRunAllPromisesHeld(t *testing.T) {
	if b := broken(sound()); len(b) > 0 {
		t.Errorf("found broken: %v %+v", b, Judge(sound()))
	}
	var out strings.Builder
	if n := Table(&out, 1, Judge(sound())); n != 0 || !strings.HasSuffix(out.String(), "\nseed 1\nall promises held\n") {
		t.Errorf("%d\n%s", n, out.String())
	}
}

// Each case spoils the sound run in one way; the promise that it breaks is found, and no other.
func TestEachBreachIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		promise string
		spoil   func(*Evidence)
	}{
		"a third call beside two": {"P1", func(e *Evidence) {
			e.Calls = append(e.Calls, call(10.6, 11, 3, "keyed-2", 1))
			e.Writes = append(e.Writes, write(10.5, []string{"x"}, map[string]float64{"a": 16, "b": 16.4, "x": 16}), write(10.55, []string{"x"}, map[string]float64{"a": 16, "b": 16.4}))
			sortWrites(e)
		}},
		"a call beside one of a process that stood still, within its lease's limit": {"P1", func(e *Evidence) {
			e.Calls = append(e.Calls, call(10.6, 11, 3, "keyed-2", 1), call(10.7, 11, 4, "keyed-3", 1))
			e.Stops = []Span{{1, at(10.1), at(10.3)}}
			for i, id := range []string{"x", "y"} {
				e.Writes = append(e.Writes, write(10.5+float64(i)/100, []string{id}, map[string]float64{"a": 16, "b": 16.4, id: 16}), write(10.505+float64(i)/100, []string{id}, map[string]float64{"a": 16, "b": 16.4}))
			}
			sortWrites(e)
		}},
		"thirteen starts in a second": {"P2", func(e *Evidence) {
			for i := range 13 {
				s := 20 + float64(i)/13
				e.Calls = append(e.Calls, call(s, s+0.01, 1, "keyed-1", 10+i))
				id := fmt.Sprint("r", i)
				e.Writes = append(e.Writes, write(s-0.01, []string{id}, map[string]float64{"b": 16.4, id: s + 6}), write(s+0.02, []string{id}, map[string]float64{"b": 16.4}))
			}
			sortWrites(e)
		}},
		"the stand-in had to use its quota": {"P1+2", func(e *Evidence) { e.Calls[0].Kind = standin.AnswerQuotaConcurrency }},
		"a third place of a key with two": {"P3", func(e *Evidence) {
			e.Writes[1].State.Places[gate.Key{Route: gate.Interactive, Tenant: "t"}.Place()] = []string{"p", "q", "r"}
		}},
		"one key has every slot": {"P3", func(e *Evidence) { e.Calls[1].VINs = []string{VINOf("bert", 1)} }},
		"another had four turns": {"P4", func(e *Evidence) {
			a := answer("keyed-1", 5, 200, "", strings.Replace(decoded(VINOf("keyed-1", 5), map[string]string{"VIN": VINOf("keyed-1", 5)}), `"waitedMs":3`, `"waitedMs":2500`, 1))
			a.Asked, a.Done = at(46), at(48.6)
			e.Answers = append(e.Answers, a)
			e.Rows[VINOf("keyed-1", 5)] = map[string]string{"VIN": VINOf("keyed-1", 5)}
			for i := range 4 {
				s := 46.2 + float64(i)*0.5
				id := fmt.Sprint("t", i)
				e.Calls = append(e.Calls, call(s, s+0.1, 1, "keyed-2", i))
				e.Writes = append(e.Writes, write(s-0.01, []string{id}, map[string]float64{id: s + 6}), write(s+0.11, []string{id}, nil))
			}
		}},
		"a wait of nine seconds": {"P5", func(e *Evidence) {
			e.Answers[1].Body = []byte(strings.Replace(dry, `"waitedMs":0`, `"waitedMs":9000`, 1))
		}},
		"an answer after a minute": {"P5", func(e *Evidence) { e.Answers[0].Done = at(80) }},
		"three in a line of two":   {"P5", func(e *Evidence) { e.Writes[0].State.Tickets = map[string]gate.Ticket{"u": {}, "v": {}, "w": {}} }},
		"a lease given away early": {"P6", func(e *Evidence) {
			e.Writes[1] = write(10.4, []string{"b"}, map[string]float64{"a": 16, "b": 36})
			e.Writes[2] = write(11.1, []string{"a"}, map[string]float64{"b": 36})
		}},
		"a lease that is left over": {"P6", func(e *Evidence) {
			e.Final = write(60, nil, map[string]float64{"b": 16.4}).State
			e.Writes[3] = write(29.9, []string{"c"}, map[string]float64{"b": 16.4, "c": 36})
			e.Writes[4] = write(30.3, []string{"c"}, map[string]float64{"b": 16.4})
		}},
		"a ticket that is left over": {"P6", func(e *Evidence) { e.Final.Tickets = map[string]gate.Ticket{"u": {}} }},
		"a lease that nobody took":   {"P6", func(e *Evidence) { e.Writes[3].Names = []string{"c"} }},
		"a call without a lease":     {"P7", func(e *Evidence) { e.Calls = append(e.Calls, call(40, 40.1, 1, "anna", 9)) }},
		"another VIN":                {"P8", func(e *Evidence) { e.Answers[0].Body = []byte(decoded(VINOf("anna", 2), nil)) }},
		"another make": {"P8", func(e *Evidence) {
			e.Answers[0].Body = []byte(decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1), "Make": "ACURA"}))
		}},
		"a field that is made up": {"P8", func(e *Evidence) {
			e.Answers[0].Body = []byte(decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1), "Make": "HONDA", "Doors": "4"}))
		}},
		"a field that is left out": {"P8", func(e *Evidence) {
			e.Answers[0].Body = []byte(decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1)}))
		}},
		"a refusal with a vehicle":      {"P8", func(e *Evidence) { e.Answers[1].Body = []byte(strings.Replace(dry, `{`, `{"make":"HONDA",`, 1)) }},
		"a refusal without Retry-After": {"P8", func(e *Evidence) { e.Answers[1].After = "" }},
		"a refusal with a 200":          {"P8", func(e *Evidence) { e.Answers[0].Body = []byte(dry) }},
		"NHTSA blamed for nothing": {"P8", func(e *Evidence) {
			e.Answers[1] = answer("anna", 2, 503, "2", `{"code":"UPSTREAM_THROTTLED","detail":"NHTSA asks.","waitedMs":0,"retryAfterSeconds":2}`)
		}},
		"a call before NHTSA's time": {"P9", func(e *Evidence) {
			e.Calls = append(e.Calls, call(33, 33.1, 2, "anna", 4))
			e.Writes = append(e.Writes, write(32.9, []string{"d"}, map[string]float64{"d": 39}), write(33.2, []string{"d"}, nil))
		}},
		"a limit that stays small": {"P9", func(e *Evidence) { e.Final.Limit = 1 }},
		"a limit cut twice for one episode": {"P9", func(e *Evidence) {
			e.Changes[0].InFlight = 4
			for i := range e.Writes {
				e.Writes[i].State.Reason, e.Writes[i].State.Limit = gate.HoldThrottled, 4
			}
			e.Writes[2].State.Limit, e.Writes[1].State.Limit = 2, 3
			e.Final.Limit = 4
		}},
		"a lone client that came in vain": {"P10", func(e *Evidence) {
			e.Answers[2].Status, e.Answers[2].Type, e.Answers[2].After, e.Answers[2].Body = 429, "application/problem+json", "2", []byte(dry)
		}},
		"a crowd that came five times": {"P10", func(e *Evidence) {
			for try := 1; try <= 5; try++ {
				a := answer("crowd", 1, 429, "2", dry)
				a.Try = try
				e.Answers = append(e.Answers, a)
			}
		}},
		"a call in the dark": {"P11", func(e *Evidence) {
			e.Calls = append(e.Calls, call(52, 52.1, 1, "anna", 5))
			e.Writes = append(e.Writes, write(49, []string{"z"}, map[string]float64{"z": 55}), write(55, []string{"z"}, nil))
		}},
		"descriptors that pile up": {"--", func(e *Evidence) { e.Processes[0].Files = 500 }},
		"goroutines that pile up":  {"--", func(e *Evidence) { e.Processes[0].Goroutines = 5000 }},
		"memory that grows":        {"--", func(e *Evidence) { e.Processes[0].Memory = 120 << 20 }},
		"a test that did not work": {"--", func(e *Evidence) { e.Refused = []string{"store-reset: no such toxic"} }},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.spoil(&e)
			if got := broken(e); !slices.Equal(got, []string{c.promise}) {
				t.Errorf("found broken: %v, want %s\n%s", got, c.promise, table(e))
			}
			var out strings.Builder
			if n := Table(&out, 7, Judge(e)); n != 1 || !strings.HasSuffix(out.String(), "\nseed 7\n1 promises broken\n") {
				t.Errorf("the table says\n%s", out.String())
			}
		})
	}
}

func table(e Evidence) string {
	var out strings.Builder
	Table(&out, 1, Judge(e))
	return out.String()
}

func sortWrites(e *Evidence) {
	slices.SortStableFunc(e.Writes, func(a, b Write) int { return a.At.Compare(b.At) })
}

// What the promises leave out is counted apart: a process that stood still past its lease, or on its way to the socket.
func TestWhatAProcessDoesThatWasStoppedIsCountedApart(t *testing.T) {
	for name, c := range map[string]struct {
		promise string
		spoil   func(*Evidence)
	}{
		"its call outlasts its lease": {"P1", func(e *Evidence) {
			e.Calls = []standin.Call{call(10, 25, 1, "anna", 1), call(20, 21, 2, "keyed-1", 1), call(20.1, 21, 3, "keyed-2", 1)}
			e.Stops = []Span{{1, at(10.2), at(24)}}
		}},
		"it calls after its thaw in the dark": {"P11", func(e *Evidence) {
			e.Calls = append(e.Calls, call(52, 52.1, 1, "anna", 5))
			e.Writes = append(e.Writes, write(49, []string{"z"}, map[string]float64{"z": 55}), write(55, []string{"z"}, nil))
			e.Stops = []Span{{1, at(49.1), at(51.9)}}
		}},
		"it does not hear what NHTSA says": {"P9", func(e *Evidence) {
			e.Calls = append(e.Calls, call(33, 33.1, 2, "anna", 4))
			e.Writes = append(e.Writes, write(32.9, []string{"d"}, map[string]float64{"d": 39}), write(33.2, []string{"d"}, nil))
			e.Kills = []Span{{1, at(30.1), at(30.3)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.spoil(&e)
			if e.Writes == nil {
				t.Fatal("no writes")
			}
			for _, v := range Judge(e) {
				if v.Promise == c.promise && v.Excused == 0 {
					t.Errorf("%s excuses nothing: %+v", c.promise, v)
				}
				if v.Promise == c.promise && len(v.Broken) > 0 {
					t.Errorf("%s: %v", c.promise, v.Broken)
				}
			}
		})
	}
}

// Around a change of the rate the higher one counts, and no more.
func TestAWindowOverAChangeOfTheRate(t *testing.T) {
	e := sound()
	e.Changes = []Change{{began, began, Numbers{2, 2, 10}}, {at(20), at(20.1), Numbers{2, 8, 10}}, {at(30), at(30.1), Numbers{2, 1, 10}}}
	j := judge{e}
	for _, c := range []struct{ from, until, want float64 }{
		{0, 10, 20}, {20, 30, 80}, {18, 22, 4 + 16}, {29, 31, 16}, {31.6, 41.6, 10}, {10, 40, 20 + 8*11.6 + 8.4},
	} {
		if got := j.credit(at(c.until)) - j.credit(at(c.from)); got < c.want-0.01 || got > c.want+0.01 {
			t.Errorf("from %v to %v: %v, want %v", c.from, c.until, got, c.want)
		}
	}
}

func TestWhoseCallThatIs(t *testing.T) {
	for by, want := range map[string]int{
		"vingate/1.2 (+" + Contact(17) + ")": 17, Contact(3): 3, "vingate/dev (i@chaos.example)": 0, "curl/8": 0, "": 0,
	} {
		if got := instance(by); got != want {
			t.Errorf("%q: %d, want %d", by, got, want)
		}
	}
}
