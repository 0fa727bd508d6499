package chaos

import (
	"encoding/json"
	"errors"
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

// holders: in these histories a flow is its client's name's.
var holders = func() map[gate.Flow]Holder {
	out := map[gate.Flow]Holder{}
	for _, c := range Clients {
		for n := range max(1, c.keys) {
			name := keyOf(c.Name, VINOf(c.Name, n))
			out[gate.FlowOf(name)] = Holder{name, !c.Keyed}
		}
	}
	return out
}()

// id is a lease's or a ticket's of that client; "x" of nobody known.
func id(of, name string) string { return string(gate.FlowOf(of)) + name }

// history is the evidence with what makes it: the judge gets it digested.
type history struct {
	Evidence
	answers []Answer
	writes  []written
	rows    map[string]map[string]string
}

// written is a write by what it changes: the leases in its state are those that it adds.
type written struct {
	Write
	gone []string
}

// write grants these leases, each until its end, and takes the others away.
func write(seconds float64, grants map[string]float64, gone ...string) written {
	s := gate.State{Version: 1, Knobs: knobs, Limit: 2, Leases: map[string]gate.Millis{}, Places: map[gate.Place][]string{}}
	names := slices.Clone(gone)
	for id, end := range grants {
		s.Leases[id] = gate.MicrosOf(at(end)).Millis()
		names = append(names, id)
	}
	return written{Write{Sent: at(seconds), At: at(seconds), Names: names, State: s}, gone}
}

// lease is granted to that client, and given back.
func (h *history) lease(of, name string, from, until float64) {
	h.writes = append(h.writes, write(from, map[string]float64{id(of, name): from + 6}), write(until, nil, id(of, name)))
}

// asked is a call of that client under a lease of its own, whose answer nobody saw.
func (h *history) asked(from, until float64, instance int, client string, n int) {
	c := call(from, until, instance, client, n)
	h.Calls = append(h.Calls, c)
	slices.SortStableFunc(h.Calls, func(a, b standin.Call) int { return int(a.Start - b.Start) })
	h.lease(flow(c.VINs[0]), fmt.Sprint(client, n), from-0.01, until+0.01)
	h.answers = append(h.answers, Answer{Client: client, VINs: c.VINs, Try: 1, Asked: at(from - 0.1), Done: at(until + 0.1), Left: true})
}

// judged is what the judge makes of it. Each write that grants takes a token, unless the history says something else.
func (h history) judged() []Verdict {
	e := h.Evidence
	e.Book = NewBook(holders)
	held, tat := map[string]gate.Millis{}, gate.MicrosOf(began)
	all := slices.Clone(h.writes)
	slices.SortStableFunc(all, func(a, b written) int { return a.At.Compare(b.At) })
	for _, w := range all {
		if len(w.State.Leases) > 0 {
			tat += gate.Micros(knobs.T().Microseconds())
		}
		maps.Copy(held, w.State.Leases)
		for _, id := range w.gone {
			delete(held, id)
		}
		w.State.Leases = maps.Clone(held)
		w.State.TAT += tat
		e.Book.Add(w.Write)
	}
	for _, a := range h.answers {
		e.Answers = append(e.Answers, Digest(a, func(vin string) (map[string]string, error) {
			if row, known := h.rows[vin]; known {
				return row, nil
			}
			return nil, errors.New("not known")
		}))
	}
	return Judge(e)
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

// sound is a run in which everything went well: two calls at once, one of which was of an instance that was killed, one that NHTSA throttled, and a lone client that came back.
func sound() history {
	vin := VINOf("anna", 1)
	h := history{
		Evidence: Evidence{
			Plan: Plan{Seed: 1, For: time.Minute, Calm: 40 * time.Second}, Began: began, Knobs: knobs,
			Patience: 3 * time.Second, PatienceBatch: 6 * time.Second, BulkheadWait: 2 * time.Second, UpstreamTimeout: 3 * time.Second, Deadline: 12 * time.Second,
			Changes: []Change{{began, began, Numbers{2, 2, 10}}},
			Kills:   []Span{{2, at(12), at(12)}},
			Outages: []Span{{From: at(50), Until: at(54)}},
			Final:   write(60, nil).State, Processes: []Process{{Instance: 1, Invocations: 200, Files: 20, Goroutines: 60, Memory: 30 << 20, Early: Early{18, 50, 25 << 20}}},
			Late: Lateness{From: began},
		},
		rows: map[string]map[string]string{vin: {"VIN": vin, "Make": "HONDA", "Doors": ""}, VINOf("lone", 1): {"VIN": VINOf("lone", 1)}},
	}
	a, b, c := id("anna", "a"), id("keyed-1", "b"), id("anna", "c")
	h.writes = []written{
		write(9.9, map[string]float64{a: 15.9}),
		write(10.4, map[string]float64{b: 16.4}),
		write(11.1, nil, a),
		write(29.9, map[string]float64{c: 35.9}, b), // b ran out and was taken away with c's admission
		write(30.3, nil, c),
	}
	h.Calls = []standin.Call{call(10, 11, 1, "anna", 1), call(10.5, 12, 2, "keyed-1", 1), call(30, 30.2, 1, "anna", 3)}
	h.Calls[2].Kind, h.Calls[2].RetryAfter = string(standin.HTTP429), "5"
	first := answer("anna", 1, 200, "", decoded(vin, map[string]string{"VIN": vin, "Make": "HONDA"}))
	first.Asked, first.Done = at(9.8), at(11.2)
	killed := answer("keyed-1", 1, 502, "", `{"message":"Internal Server Error"}`)
	killed.Type = "application/json"
	third := answer("anna", 3, 503, "5", `{"code":"UPSTREAM_THROTTLED","detail":"NHTSA asks.","waitedMs":0,"retryAfterSeconds":5}`)
	third.Asked, third.Done = at(29.8), at(30.4)
	h.answers = []Answer{first, answer("anna", 2, 429, "2", dry), killed, third}
	h.asked(56, 56.1, 1, "lone", 1)
	lone := answer("lone", 1, 200, "", decoded(VINOf("lone", 1), map[string]string{"VIN": VINOf("lone", 1)}))
	lone.Try, lone.Waited, lone.Asked, lone.Done = 2, 2*time.Second, at(55.9), at(56.2)
	h.answers[len(h.answers)-1] = lone
	return h
}

// of is the client's answer in the history.
func (h *history) of(client string) *Answer {
	return &h.answers[slices.IndexFunc(h.answers, func(a Answer) bool { return a.Client == client })]
}

// of the refusal of anna's second request.
const second = 1

// broken are the promises that the judge finds broken.
func broken(h history) []string {
	set := map[string]bool{}
	for _, v := range h.judged() {
		if len(v.Broken) > 0 {
			set[v.Promise] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func TestOfASoundRunAllPromisesHeld(t *testing.T) {
	if b := broken(sound()); len(b) > 0 {
		t.Errorf("found broken: %v %s", b, table(sound()))
	}
	var out strings.Builder
	if n := Table(&out, 1, sound().judged()); n != 0 || !strings.HasSuffix(out.String(), "\nseed 1\nall promises held\n") {
		t.Errorf("%d\n%s", n, out.String())
	}
}

// Its holder may read of a lease before the proxy, on a busy machine, has the answer of the write that left it.
func TestACallMayStartBeforeTheAnswerOfItsLeasesWrite(t *testing.T) {
	h := sound()
	h.writes[0].At = at(10.3) // its call began at 10
	if b := broken(h); len(b) > 0 {
		t.Errorf("found broken: %v %s", b, table(h))
	}
	h.writes[0].Sent = at(10.1)
	if b := broken(h); !slices.Equal(b, []string{"P7"}) {
		t.Errorf("before it was sent: %v %s", b, table(h))
	}
}

// Each case spoils the sound run in one way; the promise that it breaks is found (or the two), and no other.
func TestEachBreachIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		promise string
		spoil   func(*history)
	}{
		"a third call beside two": {"P1", func(h *history) { h.asked(10.6, 11, 3, "keyed-2", 1) }},
		"a call beside one of a process that stood still, within its lease's limit": {"P1", func(h *history) {
			h.asked(10.6, 11, 3, "keyed-2", 1)
			h.asked(10.7, 11, 4, "keyed-3", 1)
			h.Stops = []Span{{1, at(10.1), at(10.3)}}
		}},
		"a call whose slot had been given back before": {"P1", func(h *history) {
			h.writes[2].At = at(9.95)
		}},
		"thirteen starts in a second": {"P2", func(h *history) {
			for i := range 13 {
				h.asked(20+float64(i)/13, 20.01+float64(i)/13, 1, "keyed-1", 10+i)
			}
		}},
		"the stand-in had to use its quota": {"P1+2", func(h *history) { h.Calls[0].Kind = standin.AnswerQuotaConcurrency }},
		"a third place of a key with two": {"P3", func(h *history) {
			waits(&h.writes[1], map[string]gate.Place{id("keyed-1", "p"): "iabcdefgh", id("keyed-1", "q"): "iabcdefgh", id("keyed-2", "r"): "iabcdefgh"})
			h.writes[1].State.Knobs.MaxQueued = 9
		}},
		"a third place of one caller, under other keys each time": {"P3", func(h *history) {
			waits(&h.writes[1], map[string]gate.Place{id("keyed-1", "p"): "iabcdefgh", id("keyed-1", "q"): "ibbcdefgh"})
		}},
		"a fifth place of one address": {"P3", func(h *history) {
			waits(&h.writes[1], map[string]gate.Place{id("bert", "p"): "iabcdefgh", id("bert", "q"): "ibbcdefgh", id("bert", "r"): "iccdefghi", id("bert", "s"): "idcdefghi", id("bert", "t"): "iecdefghi"})
			h.writes[1].State.Knobs.MaxQueued, h.writes[1].State.Knobs.BulkheadAnon = 9, 9
		}},
		"one key has every slot": {"P3", func(h *history) {
			h.asked(40, 42, 1, "keyed-2", 1)
			h.asked(40.5, 42, 2, "keyed-2", 2)
		}},
		"batches have every slot": {"P3", func(h *history) {
			for n, client := range []string{"keyed-2", "keyed-3"} {
				h.asked(40+float64(n)/10, 42, 1, client, 1)
				c := slices.IndexFunc(h.Calls, func(c standin.Call) bool { return c.VINs[0] == VINOf(client, 1) })
				h.Calls[c].VINs = append(h.Calls[c].VINs, VINOf(client, 2))
			}
		}},
		"another had four turns, twice": {"P4", func(h *history) {
			for n, until := range []float64{48.5, 62.5} {
				h.asked(until, until+0.1, 1, "keyed-1", 5+n)
				vin := VINOf("keyed-1", 5+n)
				a := answer("keyed-1", 5+n, 200, "", strings.Replace(decoded(vin, map[string]string{"VIN": vin}), `"waitedMs":3`, `"waitedMs":2500`, 1))
				a.Asked, a.Done = at(until-2.5), at(until+0.1)
				h.answers[len(h.answers)-1] = a
				h.rows[vin] = map[string]string{"VIN": vin}
				for i := range 4 {
					from := until - 2.3 + float64(i)*0.5
					h.asked(from, from+0.1, 1, "keyed-2", 4*n+i)
				}
			}
		}},
		"another had five turns in the line, three times": {"P4", func(h *history) {
			add := func(w written, waiting []string) {
				waits(&w, nil, waiting...)
				w.State.Knobs.MaxQueued, w.State.Knobs.BulkheadInteractive = 9, 9
				h.writes = append(h.writes, w)
			}
			for n := range 3 {
				began, line := 60+20*float64(n), []string{id("keyed-1", fmt.Sprint("w", n))}
				for i := range 5 {
					line = append(line, id("keyed-2", fmt.Sprint("w", n, i)))
				}
				add(write(began, nil), line)
				for ; len(line) > 0; began++ { // whoever came first is served last
					last := line[len(line)-1]
					line = line[:len(line)-1]
					add(write(began+0.1, map[string]float64{last: began + 6.1}), line)
					add(write(began+0.9, nil, last), line)
					h.answers = append(h.answers, Answer{Client: holders[gate.FlowOfID(last)].Name, VINs: []string{VINOf(holders[gate.FlowOfID(last)].Name, 40)}, Left: true})
				}
			}
		}},
		"a wait of nine seconds": {"P5", func(h *history) {
			h.answers[second].Body = []byte(strings.Replace(dry, `"waitedMs":0`, `"waitedMs":9000`, 1))
		}},
		"an answer after a minute": {"P5", func(h *history) { h.answers[second].Done = at(80) }},
		"three in a line of two": {"P5", func(h *history) {
			waits(&h.writes[0], map[string]gate.Place{id("keyed-1", "u"): "", id("keyed-2", "v"): "", id("bert", "w"): ""})
		}},
		"a lease given away early": {"P6", func(h *history) { h.writes[3].Sent, h.writes[3].At = at(15), at(15) }},
		"a lease that is left over": {"P6", func(h *history) {
			h.Final = write(60, map[string]float64{id("keyed-1", "b"): 16.4}).State
			h.writes[3].gone = nil
		}},
		"a ticket that is left over":                 {"P6", func(h *history) { h.Final.Tickets = map[string]gate.Ticket{"u": {}} }},
		"a lease that nobody took":                   {"P6", func(h *history) { h.writes[3].Names = []string{id("anna", "c")} }},
		"a lease that nothing kept from coming back": {"P6", func(h *history) { h.Kills = nil }},
		"a call without a lease":                     {"P7", func(h *history) { h.Calls = append(h.Calls, call(57, 57.1, 1, "anna", 9)) }},
		"a call on the lease of another":             {"P7", func(h *history) { h.Calls[1].VINs = []string{VINOf("keyed-2", 1)} }},
		"a lease that took two tokens": {"P7", func(h *history) {
			for n := range h.writes[1:] {
				h.writes[1+n].State.TAT += gate.Micros(knobs.T().Microseconds())
			}
		}},
		"a lease that took none": {"P7", func(h *history) {
			for n := range h.writes[1:] {
				h.writes[1+n].State.TAT -= gate.Micros(knobs.T().Microseconds())
			}
		}},
		"a release that moved the bucket": {"P7", func(h *history) {
			for n := range h.writes[2:] {
				h.writes[2+n].State.TAT -= 5
			}
		}},
		"two leases with one write": {"P7", func(h *history) {
			h.writes[3].State.Leases[id("anna", "d")] = gate.MicrosOf(at(35.9)).Millis()
			h.writes[4].gone = append(h.writes[4].gone, id("anna", "d"))
			h.writes[4].Names = append(h.writes[4].Names, id("anna", "d"))
			h.answers = append(h.answers, Answer{Client: "anna", VINs: []string{VINOf("anna", 4)}, Left: true})
		}},
		"two leases for one request": {"P7", func(h *history) { h.lease("keyed-1", "twice", 20, 20.1) }},
		"a lease for one who was sent away": {"P7", func(h *history) {
			h.lease("anna", "refused", 20.1, 20.2)
		}},
		"a lease twice": {"P7", func(h *history) {
			h.answers = append(h.answers, Answer{Client: "anna", VINs: []string{VINOf("anna", 4)}, Left: true})
			h.lease("anna", "a", 20, 20.1)
		}},
		"another VIN": {"P8", func(h *history) { h.of("anna").Body = []byte(decoded(VINOf("anna", 2), nil)) }},
		"another make": {"P8", func(h *history) {
			h.of("anna").Body = []byte(decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1), "Make": "ACURA"}))
		}},
		"a field that is made up": {"P8", func(h *history) {
			h.of("anna").Body = []byte(decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1), "Make": "HONDA", "Doors": "4"}))
		}},
		"a field that is left out": {"P8", func(h *history) {
			h.of("anna").Body = []byte(decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1)}))
		}},
		"a refusal with a vehicle":      {"P8", func(h *history) { h.answers[second].Body = []byte(strings.Replace(dry, `{`, `{"make":"HONDA",`, 1)) }},
		"a refusal without Retry-After": {"P8", func(h *history) { h.answers[second].After = "" }},
		"a refusal with a 200": {"P8", func(h *history) {
			h.answers = append(h.answers, answer("anna", 1, 200, "", dry))
		}},
		"a live answer that NHTSA was not asked for": {"P8", func(h *history) {
			h.answers = append(h.answers, answer("anna", 1, 200, "", decoded(VINOf("anna", 1), map[string]string{"VIN": VINOf("anna", 1), "Make": "HONDA"})))
		}},
		"NHTSA blamed for nothing": {"P8", func(h *history) {
			h.answers[second] = answer("anna", 2, 503, "2", `{"code":"UPSTREAM_THROTTLED","detail":"NHTSA asks.","waitedMs":0,"retryAfterSeconds":2}`)
		}},
		"a call before NHTSA's time":     {"P9", func(h *history) { h.asked(33, 33.1, 2, "anna", 4) }},
		"a lease while the gate is held": {"P9", func(h *history) { h.writes[2].State.Hold = gate.MicrosOf(at(40)).Millis() }},
		"a limit that stays small":       {"P9", func(h *history) { h.Final.Limit = 1 }},
		"a limit cut twice for one episode": {"P9", func(h *history) {
			h.Changes[0].InFlight = 4
			for i := range h.writes {
				h.writes[i].State.Reason, h.writes[i].State.Limit = gate.HoldThrottled, 4
			}
			h.writes[2].State.Limit, h.writes[1].State.Limit = 2, 3
			h.Final.Limit = 4
		}},
		"a lone client that came in vain": {"P10", func(h *history) {
			a := h.of("lone")
			a.Status, a.Type, a.After, a.Body = 429, "application/problem+json", "2", []byte(dry)
			h.Calls, h.writes = h.Calls[:3], h.writes[:5]
		}},
		"a crowd that came five times": {"P10", func(h *history) {
			for try := 1; try <= 5; try++ {
				a := answer("crowd", 1, 429, "2", dry)
				a.Try = try
				h.answers = append(h.answers, a)
			}
		}},
		"a call in the dark": {"P11", func(h *history) {
			h.Calls = append(h.Calls[:3], call(52, 52.1, 1, "anna", 5), h.Calls[3])
			h.lease("anna", "z", 49, 55)
			h.answers = append(h.answers, Answer{Client: "anna", VINs: []string{VINOf("anna", 5)}, Left: true})
		}},
		"a call right after the light went out, on a lease that is gone": {"P1 P11", func(h *history) {
			h.Calls = append(h.Calls[:3], call(50.1, 50.2, 1, "anna", 5), h.Calls[3])
			h.lease("anna", "z", 49, 50.05)
			h.answers = append(h.answers, Answer{Client: "anna", VINs: []string{VINOf("anna", 5)}, Left: true})
		}},
		"descriptors that pile up":       {"--", func(h *history) { h.Processes[0].Files = 70 }},
		"goroutines that pile up":        {"--", func(h *history) { h.Processes[0].Goroutines = 120 }},
		"memory that grows":              {"--", func(h *history) { h.Processes[0].Memory = 60 << 20 }},
		"more than an instance may have": {"--", func(h *history) { h.Processes[0] = Process{Files: 500, Goroutines: 50} }},
		"a test that did not work":       {"--", func(h *history) { h.Refused = []string{"store-reset: no such toxic"} }},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			c.spoil(&h)
			if got := broken(h); !slices.Equal(got, strings.Fields(c.promise)) {
				t.Errorf("found broken: %v, want %s\n%s", got, c.promise, table(h))
			}
			var out strings.Builder
			if n := Table(&out, 7, h.judged()); n != len(strings.Fields(c.promise)) || !strings.HasSuffix(out.String(), fmt.Sprintf("\nseed 7\n%d promises broken\n", n)) {
				t.Errorf("the table says\n%s", out.String())
			}
		})
	}
}

// waits puts tickets into a write's state, each with a place.
func waits(w *written, tickets map[string]gate.Place, homeless ...string) {
	w.State.Tickets = map[string]gate.Ticket{}
	for _, id := range homeless {
		w.State.Tickets[id] = gate.Ticket{Deadline: gate.MicrosOf(w.At.Add(time.Second)).Millis()}
	}
	for id, place := range tickets {
		w.State.Tickets[id] = gate.Ticket{Deadline: gate.MicrosOf(w.At.Add(time.Second)).Millis()}
		if place != "" {
			w.State.Places[place] = append(w.State.Places[place], id)
		}
	}
}

func table(h history) string {
	var out strings.Builder
	Table(&out, 1, h.judged())
	return out.String()
}

// What the promises leave out is counted apart: a process that stood still past its lease, or on its way to the socket. So is, where a bound is one in wall
// time, what the machine's own lateness explains, and no more than that.
func TestWhatIsExcusedIsCountedApart(t *testing.T) {
	tooLate := func(from, until float64) Lateness {
		l := Lateness{From: began}
		l.add(at(from), time.Duration((until-from)*1e9))
		return l
	}
	for name, c := range map[string]struct {
		promise      string
		stopped      bool // else it is the machine
		spoil, worse func(*history)
	}{
		"its call outlasts its lease": {"P1", true, func(h *history) {
			h.asked(20, 21, 2, "keyed-1", 7)
			h.asked(20.1, 21, 3, "keyed-2", 1)
			h.Calls[0].End = at(25).UnixMicro()
			h.Stops = []Span{{1, at(10.2), at(24)}}
		}, func(h *history) { h.Stops = nil }},
		"it calls after its thaw in the dark": {"P11", true, func(h *history) {
			h.asked(52, 52.1, 1, "anna", 5)
			h.Stops = []Span{{1, at(49.1), at(51.9)}}
		}, func(h *history) { h.Stops = nil }},
		"it does not hear what NHTSA says": {"P9", true, func(h *history) {
			h.asked(33, 33.1, 2, "anna", 4)
			h.Kills = append(h.Kills, Span{1, at(30.1), at(30.3)})
		}, func(h *history) { h.Kills = h.Kills[:1] }},
		"the stand-in noticed an end late": {"P1", false, func(h *history) {
			h.asked(11.2, 11.3, 3, "keyed-2", 1)
			h.Calls[0].End = at(11.5).UnixMicro()
			h.Late = tooLate(11, 11.4)
		}, func(h *history) { h.Calls[0].End = at(11.9).UnixMicro() }},
		"an answer that the machine made late": {"P5", false, func(h *history) {
			h.answers[second].Done = at(34)
			h.Late = tooLate(25, 28)
		}, func(h *history) { h.answers[second].Done = at(37) }},
		"a pause that the machine told of late": {"P9", false, func(h *history) {
			h.asked(31.9, 32, 2, "anna", 4)
			h.Late = tooLate(30.3, 31)
		}, func(h *history) { h.Late = Lateness{From: began} }},
		"a release that the machine kept from its time": {"P6", false, func(h *history) {
			h.Kills = nil
			h.Late = tooLate(12, 13)
		}, func(h *history) { h.Late = tooLate(17, 18) }},
		"a lone client whom the machine kept from the store": {"P10", false, func(h *history) {
			a := h.of("lone")
			a.Status, a.Type, a.After = 503, "application/problem+json", "2"
			a.Body = []byte(`{"code":"COORDINATION_UNAVAILABLE","detail":"Down.","waitedMs":0,"retryAfterSeconds":2}`)
			h.Late = tooLate(55.8, 56.1)
		}, func(h *history) { h.Late = Lateness{From: began} }},
		"a lease of one who was sent away, by an attempt that the machine made late": {"P7", false, func(h *history) {
			h.lease("anna", "late", 20.1, 20.2)
			h.Late = tooLate(20, 20.2)
		}, func(h *history) { h.lease("anna", "again", 20.3, 20.4) }},
		"a crowd whom the machine kept from the store": {"P10", false, func(h *history) {
			for try := 1; try <= 5; try++ {
				a := answer("crowd", 1, 503, "2", `{"code":"COORDINATION_UNAVAILABLE","detail":"Down.","waitedMs":0,"retryAfterSeconds":2}`)
				a.Try = try
				h.answers = append(h.answers, a)
			}
			h.Late = tooLate(20.1, 20.3)
		}, func(h *history) { h.Late = tooLate(20.1, 20.15) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			c.spoil(&h)
			find := func(h history) Verdict {
				all := h.judged()
				return all[slices.IndexFunc(all, func(v Verdict) bool { return v.Promise == c.promise })]
			}
			if v := find(h); len(v.Broken) > 0 || c.stopped && v.Excused == 0 || !c.stopped && c.promise != "P7" && (v.Late == 0 || v.LateBy == 0) {
				t.Errorf("not excused: %+v\n%s", v, table(h))
			}
			if c.worse(&h); len(find(h).Broken) == 0 {
				t.Errorf("excused too: %s", table(h))
			}
		})
	}
}

// Around a change of the rate the higher one counts, and no more.
func TestAWindowOverAChangeOfTheRate(t *testing.T) {
	e := sound().Evidence
	e.Changes = []Change{{began, began, Numbers{2, 2, 10}}, {at(20), at(20.1), Numbers{2, 8, 10}}, {at(30), at(30.1), Numbers{2, 1, 10}}}
	j := judge{e: e}
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
