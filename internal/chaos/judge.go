package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"vingate/internal/gate"
	"vingate/internal/standin"
)

// What the judge allows for. None of it makes a promise weaker than the machine's own imprecision: a call is seen where the stand-in's
// scheduler sees it, not where it left.
const (
	hangUpSeen = 250 * time.Millisecond  // until the stand-in has noticed that a caller hung up
	scheduling = 1500 * time.Millisecond // a process that was not run in time by a busy machine
	change     = 1500 * time.Millisecond // a change of knobs is under way: a grant of before it may start until then
	spread     = 1500 * time.Millisecond // until what one instance heard of NHTSA is in the shared budget
)

// Verdict is what came of one promise.
type Verdict struct {
	Promise string
	What    string
	Seen    int      // how many things were looked at; with none the promise is unseen
	Broken  []string // each breach, in words
	Numbers string
	Excused int // breaches of processes that were stopped by force, which the promise leaves out
}

// Judge holds the promises against the evidence.
func Judge(e Evidence) []Verdict {
	j := judge{e}
	verdicts := []Verdict{j.slots(), j.rate(), j.quota(), j.bulkheads(), j.fair(), j.bounded(), j.noLeak(), j.once(), j.honest(), j.yield(), j.returning(), j.closed(), j.atRest()}
	for _, fault := range e.Refused {
		verdicts = append(verdicts, Verdict{Promise: "--", What: "the test itself", Seen: 1, Broken: []string{fault}})
	}
	return verdicts
}

// Table prints the verdicts, the breaches below, and the last line. It returns how many promises are broken.
func Table(w io.Writer, seed uint64, verdicts []Verdict) int {
	broken := map[string]bool{}
	_, _ = fmt.Fprintf(w, "\n%-4s %-11s %7s %8s  %s\n", "", "verdict", "looked", "excused", "")
	for _, v := range verdicts {
		verdict := "held"
		switch {
		case len(v.Broken) > 0:
			verdict = "BROKEN"
			broken[v.Promise] = true
		case v.Seen == 0:
			verdict = "unseen"
		}
		_, _ = fmt.Fprintf(w, "%-4s %-11s %7d %8d  %s: %s\n", v.Promise, verdict, v.Seen, v.Excused, v.What, v.Numbers)
	}
	for _, v := range verdicts {
		for i, b := range v.Broken {
			if i == 5 {
				_, _ = fmt.Fprintf(w, "\n%s: and %d more", v.Promise, len(v.Broken)-i)
				break
			}
			_, _ = fmt.Fprintf(w, "\n%s: %s", v.Promise, b)
		}
	}
	_, _ = fmt.Fprintf(w, "\nseed %d\n", seed)
	if len(broken) == 0 {
		_, _ = fmt.Fprintln(w, "all promises held")
	} else {
		_, _ = fmt.Fprintf(w, "%d promises broken\n", len(broken))
	}
	return len(broken)
}

type judge struct{ e Evidence }

func micros(us int64) time.Time { return time.UnixMicro(us) }

// Contact is how an instance names itself to NHTSA, so that the stand-in's log tells whose call it was.
func Contact(instance int) string { return fmt.Sprintf("i%d@chaos.example", instance) }

// instance is whose call that is, 0 when it cannot be told.
func instance(by string) int {
	i := strings.Index(by, "@chaos.example")
	if i < 0 {
		return 0
	}
	n, _ := strconv.Atoi(by[strings.LastIndexByte(by[:i], 'i')+1 : i])
	return n
}

func end(c standin.Call) time.Time {
	if c.End == 0 {
		return time.Unix(1<<40, 0)
	}
	t := micros(c.End)
	if c.Kind == standin.AnswerClientGone || c.Kind == string(standin.Hang) || c.Kind == "" {
		t = t.Add(-hangUpSeen)
	}
	return t
}

// stopped says whether an instance stood still at any time between.
func (j *judge) stopped(instance int, from, until time.Time) bool {
	return slices.ContainsFunc(j.e.Stops, func(s Span) bool { return (s.Instance == instance || instance == 0) && s.overlaps(from, until) })
}

// limitAt is the most slots that were in force at any time between: in the item, and by the operator's own numbers.
func (j *judge) limitAt(from, until time.Time) int {
	declared, item := 0, 0
	for i, c := range j.e.Changes {
		if c.From.After(until) {
			break
		}
		if i+1 == len(j.e.Changes) || j.e.Changes[i+1].Done.After(from) {
			declared = max(declared, c.InFlight)
		}
	}
	first := sort.Search(len(j.e.Writes), func(i int) bool { return j.e.Writes[i].At.After(from) })
	for _, w := range j.e.Writes[max(0, first-1):] {
		if w.At.After(until) {
			break
		}
		item = max(item, w.State.Limit)
	}
	if item == 0 {
		return declared
	}
	return min(declared, item)
}

// slots is P1: at every start, the calls under way are within the limit of when it was admitted.
func (j *judge) slots() Verdict {
	v := Verdict{Promise: "P1", What: "calls at once", Seen: len(j.e.Calls)}
	peak, within := 0, 0
	calls := slices.Clone(j.e.Calls)
	slices.SortFunc(calls, func(a, b standin.Call) int { return int(a.Start - b.Start) })
	var open []standin.Call
	for _, c := range calls {
		at := micros(c.Start)
		open = slices.DeleteFunc(open, func(o standin.Call) bool { return !end(o).After(at) })
		open = append(open, c)
		limit := j.limitAt(at.Add(-scheduling), at)
		if peak = max(peak, len(open)); len(open) <= limit {
			within++
			continue
		}
		// Excused are calls of a process that was stopped while it had them, past its lease, or just before it made them.
		pushed := 0
		for _, o := range open {
			if j.stopped(instance(o.By), micros(o.Start).Add(-scheduling), at) {
				pushed++
			}
		}
		if len(open)-pushed <= limit {
			v.Excused++
			continue
		}
		v.Broken = append(v.Broken, fmt.Sprintf("at %s %d calls under way, the limit is %d (%d of them of processes that stood still)", j.when(at), len(open), limit, pushed))
	}
	v.Numbers = fmt.Sprintf("at most %d; limits from 1 to %d; %d starts within, %d beside a process that was stopped past its lease", peak, j.mostInFlight(), within, v.Excused)
	return v
}

func (j *judge) mostInFlight() int {
	n := 0
	for _, c := range j.e.Changes {
		n = max(n, c.InFlight)
	}
	return n
}

func (j *judge) when(t time.Time) string { return fmt.Sprintf("%.3fs", t.Sub(j.e.Began).Seconds()) }

// credit is how many starts the rate in force allows from the beginning until t. Around a change the higher rate counts.
func (j *judge) credit(t time.Time) float64 {
	sum, last := 0.0, time.Time{}
	for i, c := range j.e.Changes {
		from := c.From
		if i == 0 {
			from = from.Add(-time.Hour)
		} else if c.Rate < j.e.Changes[i-1].Rate {
			from = c.Done.Add(change) // a lower rate counts later
		}
		from = later(from, last)
		until := t
		if i+1 < len(j.e.Changes) {
			next := j.e.Changes[i+1]
			until = next.From
			if next.Rate < c.Rate {
				until = next.Done.Add(change)
			}
			if until.After(t) {
				until = t
			}
		}
		if until.After(from) {
			sum += c.Rate * until.Sub(from).Seconds()
			last = until
		}
	}
	return sum
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rate is P2: no window holds more starts than burst + rate x its length. The worst window ends at a start and begins at one.
func (j *judge) rate() Verdict {
	v := Verdict{Promise: "P2", What: "starts in every window"}
	burst := 0
	for _, c := range j.e.Changes {
		burst = max(burst, c.Burst)
	}
	worst, excused := j.window(func(c standin.Call) bool { return true }), 0
	if worst.over > float64(burst) {
		// Once more without those that a process made after it had been stopped on its way to the socket.
		worst = j.window(func(c standin.Call) bool {
			at := micros(c.Start)
			if j.stopped(instance(c.By), at.Add(-scheduling), at) {
				excused++
				return false
			}
			return true
		})
	}
	v.Seen, v.Excused = worst.n, excused
	if worst.over > float64(burst) {
		v.Broken = append(v.Broken, fmt.Sprintf("between %s and %s %.1f calls more started than the rate gives; the burst is %d", j.when(worst.from), j.when(worst.until), worst.over, burst))
	}
	v.Numbers = fmt.Sprintf("at most %.1f beyond rate x window, the burst is %d", worst.over, burst)
	return v
}

type worstWindow struct {
	n           int
	over        float64
	from, until time.Time
}

func (j *judge) window(counts func(standin.Call) bool) worstWindow {
	var starts []time.Time
	for _, c := range j.e.Calls {
		if counts(c) {
			starts = append(starts, micros(c.Start))
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	w := worstWindow{n: len(starts)}
	// n starts from i to k are k-i+1; over = k+1-credit(k) - (i-credit(i)).
	least, at := 0.0, 0
	for k, t := range starts {
		c := j.credit(t)
		if own := float64(k) - c; k == 0 || own < least {
			least, at = own, k
		}
		if over := float64(k+1) - c - least; over > w.over {
			w.over, w.from, w.until = over, starts[at], t
		}
	}
	return w
}

// quota: NHTSA's stand-in has a quota of the same numbers, and never had to use it.
func (j *judge) quota() Verdict {
	v := Verdict{Promise: "P1+2", What: "the stand-in's own strict quota", Seen: len(j.e.Calls)}
	for _, c := range j.e.Calls {
		if c.Kind != standin.AnswerQuotaRate && c.Kind != standin.AnswerQuotaConcurrency {
			continue
		}
		at := micros(c.Start)
		if j.stopped(0, at.Add(-j.e.Knobs.LeaseTTL-scheduling), at) {
			v.Excused++
			continue
		}
		v.Broken = append(v.Broken, fmt.Sprintf("at %s a call was answered with %s", j.when(at), c.Kind))
	}
	v.Numbers = fmt.Sprintf("%d calls above it", len(v.Broken)+v.Excused)
	return v
}

// bulkheads is P3: places in the item, and live calls at the stand-in by whose VIN they are about.
func (j *judge) bulkheads() Verdict {
	v := Verdict{Promise: "P3", What: "places of each key"}
	most, live, batches := map[bool]int{}, 0, 0
	anon := gate.Key{Route: gate.Interactive, Tenant: gate.Anonymous}.Place()
	skew := gate.Millis(j.e.Knobs.SkewBound.Milliseconds())
	for _, w := range j.e.Writes {
		now := gate.MicrosOf(w.At).Millis()
		for place, ids := range w.State.Places {
			v.Seen++
			n := 0
			for _, id := range ids {
				end, leased := w.State.Leases[id]
				ticket, queued := w.State.Tickets[id]
				if !(leased && end+skew < now || queued && ticket.Deadline+skew < now) {
					n++
				}
			}
			k := w.State.Knobs
			ceiling := k.BulkheadInteractive
			switch {
			case place == anon:
				ceiling = k.BulkheadAnon
			case place[0] == 'b':
				ceiling = k.BulkheadBatch
			}
			most[place == anon] = max(most[place == anon], n)
			if n > ceiling {
				v.Broken = append(v.Broken, fmt.Sprintf("at %s a key holds %d places, its ceiling is %d", j.when(w.At), n, ceiling))
			}
		}
		batches = max(batches, len(w.State.Batch))
	}
	// One key never holds every slot.
	open := map[string][]standin.Call{}
	for _, c := range j.e.Calls {
		key := key(c)
		at := micros(c.Start)
		open[key] = append(slices.DeleteFunc(open[key], func(o standin.Call) bool { return !end(o).After(at) }), c)
		limit := j.limitAt(at.Add(-scheduling), at)
		n := len(open[key])
		live = max(live, n)
		if v.Seen++; limit > 1 && n >= limit {
			if slices.ContainsFunc(open[key], func(o standin.Call) bool { return j.stopped(instance(o.By), micros(o.Start).Add(-scheduling), at) }) || n < j.limitAt(at.Add(-j.e.Knobs.LeaseTTL), at) {
				v.Excused++ // or the limit was cut while it had them
				continue
			}
			v.Broken = append(v.Broken, fmt.Sprintf("at %s %s has all %d slots", j.when(at), key, limit))
		}
	}
	v.Numbers = fmt.Sprintf("at most %d of a key, %d of all without one; %d live of one key, %d batches", most[false], most[true], live, batches)
	return v
}

// key is whose bulkhead a call is in.
func key(c standin.Call) string {
	if len(c.VINs) == 0 {
		return "nobody"
	}
	client := ClientOf(c.VINs[0])
	i := slices.IndexFunc(Clients, func(o Client) bool { return o.Name == client })
	route := "interactive:"
	if len(c.VINs) > 1 {
		route = "batch:"
	}
	switch {
	case client == "crowd":
		client = crowdKey(number(c.VINs[0])) // each has a key of its own
	case i >= 0 && !Clients[i].Keyed:
		client = gate.Anonymous
	}
	return route + client
}

// flow is for whom the line is fair, of a VIN: its client, and of the crowd each key.
func flow(vin string) string {
	client := ClientOf(vin)
	if client == "crowd" {
		client = crowdKey(number(vin))
	}
	return client
}

// wait is a caller's time in the line.
type wait struct {
	flow        string
	from, until time.Time
	served      bool
}

// waits are those of callers with keys, in the calm and after it, who stood at the head of their tenant's part of the line: his next turn is theirs.
func (j *judge) waits() []wait {
	var all []wait
	for _, a := range j.e.Answers {
		i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == a.Client })
		waited := waitedOf(a)
		if i < 0 || !Clients[i].Keyed || a.Batch || waited < 150*time.Millisecond || a.Asked.Before(j.e.Began.Add(j.e.Plan.Calm+5*time.Second)) {
			continue
		}
		var body struct {
			Provenance struct {
				UpstreamMs int64
				Source     string
				Shared     bool
			}
		}
		_ = json.Unmarshal(a.Body, &body)
		until := a.Done.Add(-time.Duration(body.Provenance.UpstreamMs) * time.Millisecond)
		all = append(all, wait{flow(a.VINs[0]), until.Add(-waited), until, a.Status == 200 && body.Provenance.Source == "nhtsa" && !body.Provenance.Shared})
	}
	return slices.DeleteFunc(slices.Clone(all), func(w wait) bool {
		return !w.served || slices.ContainsFunc(all, func(o wait) bool {
			return o.flow == w.flow && o.from.Before(w.from) && o.until.After(w.from)
		})
	})
}

// fair is P4: while somebody waits for his tenant's next turn, each other tenant has at most one; the way of a grant to the wire may bring one in at
// each end. A head of the line that does not use its turn for 300 ms is passed, which a busy machine brings about now and then: so one in ten may be.
func (j *judge) fair() Verdict {
	v := Verdict{Promise: "P4", What: "turns of another tenant while one waits for his"}
	most, sum := 0, 0
	for _, w := range j.waits() {
		turns := map[string]int{}
		for _, c := range j.e.Calls {
			if at := micros(c.Start); at.After(w.from) && at.Before(w.until) && len(c.VINs) > 0 {
				turns[flow(c.VINs[0])]++
			}
		}
		delete(turns, w.flow)
		n := 0
		for _, t := range turns {
			n = max(n, t)
		}
		v.Seen++
		sum += n
		most = max(most, n)
		if n > 3 {
			v.Broken = append(v.Broken, fmt.Sprintf("%s waited from %s to %s, and another had %d turns", w.flow, j.when(w.from), j.when(w.until), n))
		}
	}
	if passed := len(v.Broken); passed*10 <= v.Seen {
		v.Broken, v.Excused = nil, passed
	}
	v.Numbers = fmt.Sprintf("at most %d, %.2f on average, %d were passed", most, float64(sum)/float64(max(1, v.Seen)), max(v.Excused, len(v.Broken)))
	return v
}

// bounded is P5: nobody waits longer than his patience, and the line is bounded. Who asks what another asked shortly before may wait for the other's
// answer instead, until his own deadline: also when that other is dead.
func (j *judge) bounded() Verdict {
	v := Verdict{Promise: "P5", What: "waits and the line"}
	var longest, slowest time.Duration
	line := 0
	for _, w := range j.e.Writes {
		line = max(line, len(w.State.Tickets))
		if v.Seen++; len(w.State.Tickets) > w.State.Knobs.MaxQueued {
			v.Broken = append(v.Broken, fmt.Sprintf("at %s %d wait, the line has %d places", j.when(w.At), len(w.State.Tickets), w.State.Knobs.MaxQueued))
		}
	}
	asked := map[string][]Answer{}
	for _, a := range j.e.Answers {
		if !a.Batch {
			asked[a.VINs[0]] = append(asked[a.VINs[0]], a)
		}
	}
	for _, a := range j.e.Answers {
		if a.Left || a.Failed != "" || a.Status == 0 {
			continue
		}
		v.Seen++
		took, waited := a.Done.Sub(a.Asked), waitedOf(a)
		patience := j.e.Patience + j.e.BulkheadWait
		if a.Batch {
			patience = j.e.PatienceBatch + j.e.BulkheadWait
		}
		for _, o := range asked[a.VINs[0]] {
			if !o.Asked.Equal(a.Asked) && o.Asked.After(a.Asked.Add(-j.e.Deadline)) && o.Asked.Before(a.Done) {
				patience = j.e.Deadline
			}
		}
		late := waited > patience+scheduling || took > j.e.Deadline+scheduling
		if late && j.stopped(a.Instance, a.Asked, a.Done) {
			v.Excused++
			continue
		}
		longest, slowest = max(longest, waited), max(slowest, took)
		if late {
			v.Broken = append(v.Broken, fmt.Sprintf("%s at %s waited %v, was answered after %v with %d %.120s", a.Client, j.when(a.Asked), waited, took.Round(time.Millisecond), a.Status, a.Body))
		}
	}
	v.Numbers = fmt.Sprintf("at most %v in the line and before it, answered within %v; at most %d in the line", longest, slowest.Round(time.Millisecond), line)
	return v
}

func waitedOf(a Answer) time.Duration {
	var body struct {
		WaitedMs   int64
		Provenance struct{ WaitedMs int64 }
	}
	_ = json.Unmarshal(a.Body, &body)
	return time.Duration(max(body.WaitedMs, body.Provenance.WaitedMs)) * time.Millisecond
}

// noLeak is P6: all that was granted was given back or ran out, nothing early, and nothing is left.
func (j *judge) noLeak() Verdict {
	v := Verdict{Promise: "P6", What: "leases"}
	released, expired, lost := 0, 0, 0
	held := map[string]gate.Millis{}
	granted := map[string]bool{}
	for _, w := range j.e.Writes {
		fresh := false
		for id, end := range w.State.Leases {
			if !granted[id] {
				granted[id], fresh = true, true
			}
			held[id] = end
		}
		if w.Lost {
			lost++
		}
		for id, end := range held {
			if _, there := w.State.Leases[id]; there || !slices.Contains(w.Names, id) {
				continue
			}
			delete(held, id)
			if !fresh {
				released++
				continue
			}
			expired++
			if early := end.Time().Sub(w.At); early > 10*time.Millisecond {
				v.Broken = append(v.Broken, fmt.Sprintf("at %s lease %s was given to somebody else %v before its end", j.when(w.At), id, early))
			}
		}
	}
	v.Seen = len(granted)
	left := 0
	for id := range held {
		if _, there := j.e.Final.Leases[id]; there {
			left++
			continue
		}
		v.Broken = append(v.Broken, fmt.Sprintf("lease %s is gone, and no write of those seen took it away", id))
	}
	if n := len(j.e.Final.Leases) + len(j.e.Final.Tickets) + len(j.e.Final.Places) + len(j.e.Final.Batch) + len(j.e.Final.Flows) + len(j.e.Final.Owned); n > 0 {
		v.Broken = append(v.Broken, fmt.Sprintf("at the end %d leases, %d tickets, %d places and %d flows are left", len(j.e.Final.Leases), len(j.e.Final.Tickets), len(j.e.Final.Places), len(j.e.Final.Flows)))
	}
	v.Numbers = fmt.Sprintf("%d granted = %d released + %d expired + %d left; %d killed, %d stopped, %d answers of the store lost", len(granted), released, expired, left, len(j.e.Kills), len(j.e.Stops), lost)
	return v
}

// once is P7 as far as it is seen from outside: no call without a lease of its own.
func (j *judge) once() Verdict {
	v := Verdict{Promise: "P7", What: "calls and leases", Seen: len(j.e.Calls)}
	type event struct {
		at   time.Time
		call bool
	}
	var events []event
	granted := map[string]bool{}
	for _, w := range j.e.Writes {
		for id := range w.State.Leases {
			if !granted[id] {
				granted[id] = true
				events = append(events, event{w.At, false})
			}
		}
	}
	for _, c := range j.e.Calls {
		events = append(events, event{micros(c.Start), true})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	calls, leases := 0, 0
	for _, ev := range events {
		if !ev.call {
			leases++
		} else if calls++; calls > leases {
			v.Broken = append(v.Broken, fmt.Sprintf("at %s the call number %d, and %d leases were granted", j.when(ev.at), calls, leases))
		}
	}
	v.Numbers = fmt.Sprintf("%d calls on %d leases", calls, leases)
	return v
}

// vehicleKeys say something about a vehicle. No refusal has one.
var vehicleKeys = []string{"vin", "modelYear", "make", "model", "outcome", "summary", "codes", "messages", "suggestedVin", "fields", "numbers", "answer"}

// refusals are the codes that an answer may have here, by status.
var refusals = map[int][]string{
	429: {"RATE_LIMITED", "BULKHEAD_TIMEOUT", "DECODE_QUEUE_FULL", "DECODE_WAIT_TIMEOUT"},
	502: {"UPSTREAM_BAD_RESPONSE"},
	503: {"UPSTREAM_THROTTLED", "UPSTREAM_UNAVAILABLE", "COORDINATION_UNAVAILABLE"},
	504: {"UPSTREAM_TIMEOUT"},
}

// honest is P8.
func (j *judge) honest() Verdict {
	v := Verdict{Promise: "P8", What: "answers"}
	decodes, refused, gateway, unprovoked := 0, map[string]int{}, 0, 0
	for _, a := range j.e.Answers {
		if a.Left || a.Status == 0 {
			continue
		}
		if a.Type == "application/json" && a.Status >= 500 && strings.HasPrefix(string(a.Body), `{"message":`) {
			gateway++ // what API Gateway says when the function does not answer
			continue
		}
		v.Seen++
		fault := func(format string, args ...any) {
			v.Broken = append(v.Broken, fmt.Sprintf("%s at %s: ", a.Client, j.when(a.Asked))+fmt.Sprintf(format, args...)+fmt.Sprintf(": %d %.200s", a.Status, a.Body))
		}
		if a.Status == 200 && a.Batch {
			var body struct {
				Results []struct {
					VIN     string
					Status  int
					Answer  json.RawMessage
					Problem json.RawMessage
				}
			}
			if err := json.Unmarshal(a.Body, &body); err != nil || len(body.Results) != len(a.VINs) {
				fault("%d results for %d VINs (%v)", len(body.Results), len(a.VINs), err)
				continue
			}
			for i, r := range body.Results {
				if r.VIN != a.VINs[i] {
					fault("result %d is about %s, asked was %s", i, r.VIN, a.VINs[i])
				}
				if r.Status == 200 {
					decodes++
					if wrong := j.decoded(a.VINs[i], r.Answer); wrong != "" {
						fault("%s", wrong)
					}
				} else if code, wrong := j.refusal(r.Status, "", r.Problem, a); wrong != "" {
					fault("%s", wrong)
				} else {
					refused[code]++
				}
			}
			continue
		}
		if a.Status == 200 {
			decodes++
			if wrong := j.decoded(a.VINs[0], a.Body); wrong != "" {
				fault("%s", wrong)
			}
			continue
		}
		code, wrong := j.refusal(a.Status, a.After, a.Body, a)
		if wrong == "" && a.Type != "application/problem+json" {
			wrong = "a refusal that is " + a.Type
		}
		if wrong != "" {
			fault("%s", wrong)
			continue
		}
		refused[code]++
		if code == "COORDINATION_UNAVAILABLE" && !j.stopped(a.Instance, a.Asked.Add(-scheduling), a.Done) &&
			!slices.ContainsFunc(j.e.Troubled, func(s Span) bool { return s.overlaps(a.Asked.Add(-scheduling), a.Done) }) {
			unprovoked++
		}
	}
	var codes []string
	for _, c := range slices.Sorted(maps.Keys(refused)) {
		codes = append(codes, fmt.Sprintf("%s %d", c, refused[c]))
	}
	v.Numbers = fmt.Sprintf("%d decodes as the data say; refused: %s (%d times the store did not answer in time though nothing struck it); %d ended with their process", decodes, strings.Join(codes, ", "), unprovoked, gateway)
	return v
}

// decoded says what is wrong with a decode, "" when nothing is.
func (j *judge) decoded(vin string, body []byte) string {
	var b struct {
		VIN        string
		Fields     map[string]string
		Provenance struct{ Source string }
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return "not a decode: " + err.Error()
	}
	row, known := j.e.Rows[vin]
	switch {
	case b.VIN != vin:
		return fmt.Sprintf("asked was %s, the answer is about %s", vin, b.VIN)
	case b.Provenance.Source != "nhtsa" && b.Provenance.Source != "cache":
		return fmt.Sprintf("source %q", b.Provenance.Source)
	case !known:
		return "the data were not asked about " + vin
	}
	for name, value := range row {
		if strings.TrimSpace(value) == "" {
			continue
		}
		if got := b.Fields[name]; strings.TrimSpace(got) != strings.TrimSpace(value) {
			return fmt.Sprintf("%s is %q, the data say %q", name, got, value)
		}
	}
	for name, value := range b.Fields {
		if strings.TrimSpace(row[name]) == "" && strings.TrimSpace(value) != "" {
			return fmt.Sprintf("%s is %q, the data say nothing", name, value)
		}
	}
	return ""
}

// refusal says what is wrong with a refusal.
func (j *judge) refusal(status int, after string, body []byte, a Answer) (code, wrong string) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return "", "a refusal that cannot be read: " + err.Error()
	}
	for _, k := range vehicleKeys {
		if _, there := keys[k]; there {
			return "", fmt.Sprintf("a refusal with %q", k)
		}
	}
	var p struct {
		Code, Detail      string
		WaitedMs          *int64
		RetryAfterSeconds int64
	}
	_ = json.Unmarshal(body, &p)
	if !slices.Contains(refusals[status], p.Code) || p.Detail == "" || p.WaitedMs == nil {
		return "", "a refusal with a strange code, without a sentence, or without its wait"
	}
	if status == 429 || status == 503 {
		if p.RetryAfterSeconds < 1 || !a.Batch && after != fmt.Sprint(p.RetryAfterSeconds) {
			return "", fmt.Sprintf("Retry-After %q beside %d", after, p.RetryAfterSeconds)
		}
	}
	if p.Code == "UPSTREAM_THROTTLED" && !slices.ContainsFunc(j.e.Calls, func(c standin.Call) bool { return throttled(c) && micros(c.Start).Before(a.Done) }) {
		return "", "NHTSA is said to throttle, and never did"
	}
	return p.Code, ""
}

func throttled(c standin.Call) bool {
	return c.Kind == string(standin.HTTP429) || c.Kind == string(standin.HTTP403) || c.Kind == standin.AnswerQuotaRate || c.Kind == standin.AnswerQuotaConcurrency
}

// yield is P9: after NHTSA said 429 or 403 nobody calls until its Retry-After, and the limit is cut once an episode.
func (j *judge) yield() Verdict {
	v := Verdict{Promise: "P9", What: "pauses that NHTSA asked for"}
	after := 0
	for _, c := range j.e.Calls {
		if !throttled(c) {
			continue
		}
		n, err := strconv.Atoi(c.RetryAfter)
		if err != nil {
			continue
		}
		v.Seen++
		said := micros(c.End)
		until := said.Add(time.Duration(n)*time.Second - j.e.Knobs.SkewBound)
		who := instance(c.By)
		deaf := j.stopped(who, said.Add(-scheduling), said.Add(spread)) ||
			slices.ContainsFunc(j.e.Kills, func(s Span) bool {
				return (who == 0 || s.Instance == who) && s.overlaps(said.Add(-scheduling), said.Add(spread))
			}) ||
			slices.ContainsFunc(j.e.Troubled, func(s Span) bool { return s.overlaps(said.Add(-scheduling), said.Add(spread)) })
		for _, o := range j.e.Calls {
			at := micros(o.Start)
			if !at.After(said.Add(spread)) || !at.Before(until) {
				continue
			}
			after++
			if deaf || j.stopped(instance(o.By), at.Add(-scheduling), at) {
				v.Excused++
				continue
			}
			v.Broken = append(v.Broken, fmt.Sprintf("NHTSA said %s at %s and to come back in %ds; at %s a call started", c.Kind, j.when(said), n, j.when(at)))
		}
	}
	cuts, last := 0, time.Time{}
	limit, knobs := 0, 0
	for _, w := range j.e.Writes {
		if w.State.Version == knobs && w.State.Limit < limit && w.State.Reason == gate.HoldThrottled {
			if cuts++; !last.IsZero() && w.At.Sub(last) < j.e.Knobs.LeaseTTL-2*j.e.Knobs.SkewBound && w.State.Limit > 1 {
				v.Broken = append(v.Broken, fmt.Sprintf("at %s the limit was cut to %d, %v after it had been cut", j.when(w.At), w.State.Limit, w.At.Sub(last)))
			}
			last = w.At
		}
		limit, knobs = w.State.Limit, w.State.Version
	}
	if n := len(j.e.Changes); n > 0 && v.Seen > 0 && j.e.Final.Limit < j.e.Changes[n-1].InFlight {
		v.Broken = append(v.Broken, fmt.Sprintf("at the end the limit is still %d of %d", j.e.Final.Limit, j.e.Changes[n-1].InFlight))
	}
	v.Numbers = fmt.Sprintf("%d calls later than %v after it; the limit cut %d times, at the end %d", after, spread, cuts, j.e.Final.Limit)
	return v
}

// returning is P10: in the calm after the storm a lone client that waits as long as it was told is admitted, and so is a crowd, soon.
func (j *judge) returning() Verdict {
	v := Verdict{Promise: "P10", What: "who comes back when told"}
	came, in := 0, 0
	tries := map[string]int{}
	var first, lastIn time.Time
	for _, a := range j.e.Answers {
		if a.Client == "lone" && a.Try > 1 {
			v.Seen++
			came++
			if a.Status == 200 {
				in++
			} else {
				v.Broken = append(v.Broken, fmt.Sprintf("a lone client came back after %v and got %d %.160s", a.Waited, a.Status, a.Body))
			}
		}
		if a.Client == "crowd" {
			v.Seen++
			tries[a.VINs[0]] = max(tries[a.VINs[0]], a.Try)
			if first.IsZero() || a.Asked.Before(first) {
				first = a.Asked
			}
			if a.Status == 200 {
				lastIn = later(lastIn, a.Done)
			}
		}
	}
	if in*100 >= came*99 {
		v.Broken = nil
	}
	sum, refused := 0, 0
	for _, n := range tries {
		if n > 1 {
			sum += n
			refused++
		}
	}
	mean := float64(sum) / float64(max(1, refused))
	if refused > 0 && mean > 2.7 {
		v.Broken = append(v.Broken, fmt.Sprintf("a crowd that obeys needed %.2f tries on average", mean))
	}
	v.Numbers = fmt.Sprintf("lone client %d of %d; of a crowd of %d, %d refused at first needed %.2f tries, the last was in after %v", in, came, len(tries), refused, mean, lastIn.Sub(first).Round(100*time.Millisecond))
	return v
}

// closed is P11: while nobody reaches the store nobody calls NHTSA.
func (j *judge) closed() Verdict {
	v := Verdict{Promise: "P11", What: "calls while the store is out"}
	// A grant of just before may still start: until StartBy, by a clock that may be off.
	k := j.e.Knobs
	grace := k.Attempt + k.StartGrace + 2*k.SkewBound + 250*time.Millisecond
	calls := 0
	var dark time.Duration
	for _, o := range j.e.Outages {
		// While NHTSA's pause lasts nobody would call anyhow, and nothing is shown.
		from := o.From.Add(grace)
		if n := sort.Search(len(j.e.Writes), func(i int) bool { return j.e.Writes[i].At.After(o.From) }); n > 0 {
			from = later(from, j.e.Writes[n-1].State.Hold.Time())
		}
		if open := o.Until.Sub(from); open > 0 {
			v.Seen++
			dark += open
		}
		for _, c := range j.e.Calls {
			at := micros(c.Start)
			if !at.After(o.From.Add(grace)) || !at.Before(o.Until) {
				continue
			}
			calls++
			if j.stopped(instance(c.By), at.Add(-scheduling), at) {
				v.Excused++
				continue
			}
			v.Broken = append(v.Broken, fmt.Sprintf("the store was out from %s to %s; at %s a call started", j.when(o.From), j.when(o.Until), j.when(at)))
		}
	}
	v.Numbers = fmt.Sprintf("%d in %d outages, %v in the dark without a pause of NHTSA's", calls, len(j.e.Outages), dark.Round(100*time.Millisecond))
	return v
}

// Bounds of an instance at rest: its Runtime API's pollers, and connections to the store that nobody has closed yet.
const (
	mostFiles      = 120
	mostGoroutines = 160
	mostMemory     = 160 << 20
)

// atRest: nothing piles up in the processes.
func (j *judge) atRest() Verdict {
	v := Verdict{Promise: "--", What: "processes at rest", Seen: len(j.e.Processes)}
	files, goroutines, memory := 0, 0, int64(0)
	for _, p := range j.e.Processes {
		files, goroutines, memory = max(files, p.Files), max(goroutines, p.Goroutines), max(memory, p.Memory)
		if p.Files > mostFiles || p.Goroutines > mostGoroutines || p.Memory > mostMemory || p.Early > 0 && p.Memory > p.Early*2+32<<20 {
			v.Broken = append(v.Broken, fmt.Sprintf("instance %d after %d requests: %d open files, %d goroutines, %d MB (early in its life %d MB)", p.Instance, p.Invocations, p.Files, p.Goroutines, p.Memory>>20, p.Early>>20))
		}
	}
	v.Numbers = fmt.Sprintf("at most %d open files, %d goroutines, %d MB", files, goroutines, memory>>20)
	return v
}
