package chaos

import (
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
// scheduler sees it, not where it left. Bounds in wall time, and they alone, grow with what the machine was measured to be late at that time.
const (
	hangUpSeen = 250 * time.Millisecond  // until the stand-in has noticed that a caller hung up
	grip       = 1500 * time.Millisecond // how long before its call a process may have been stopped between its last look at the clock and the socket
	change     = 1500 * time.Millisecond // a change of knobs is under way: a grant of before it may start until then
	spread     = 1500 * time.Millisecond // until what one instance heard of NHTSA is in the shared budget
	own        = time.Second             // what the gate's own calls may take beyond a wait
	tardy      = 100 * time.Millisecond  // a machine that lets one wait so long at once may let an attempt of 120 ms run out
	sluggish   = 0.15                    // and so may one that lets those wait that much of the time who wake often: an attempt is a dozen wakings
)

// Verdict is what came of one promise.
type Verdict struct {
	Promise string
	What    string
	Seen    int      // how many things were looked at; with none the promise is unseen
	Broken  []string // each breach, in words
	Numbers string
	Excused int // breaches of processes that were stopped by force, which the promise leaves out
	Late    int // breaches of a bound in wall time by no more than the machine was late
	LateBy  time.Duration
}

// late notes a breach that the machine's own lateness explains.
func (v *Verdict) late(by time.Duration) { v.Late, v.LateBy = v.Late+1, max(v.LateBy, by) }

// Judge holds the promises against the evidence.
func Judge(e Evidence) []Verdict {
	j := judge{e: e}
	j.match()
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
		late := ""
		if v.Late > 0 {
			late = fmt.Sprintf("; %d excused: machine up to %v late", v.Late, v.LateBy.Round(time.Millisecond))
		}
		_, _ = fmt.Fprintf(w, "%-4s %-11s %7d %8d  %s: %s%s\n", v.Promise, verdict, v.Seen, v.Excused+v.Late, v.What, v.Numbers, late)
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

type judge struct {
	e      Evidence
	leases map[int]*Lease // of each call, by its number; none: it had none of its own
	past   map[int]bool   // the lease had been given back, or taken away, when the call began
	used   map[*Lease]bool
}

// late is how long the machine let somebody wait between two moments, and in the second before.
func (j *judge) late(from, until time.Time) (sum, most time.Duration) {
	return j.e.Late.Between(from.Add(-time.Second), until)
}

// kept says whether the machine may have kept somebody from the store between two moments, and how long it let him wait.
func (j *judge) kept(from, until time.Time) (by time.Duration, kept bool) {
	sum, most := j.late(from, until)
	return sum, most >= tardy || float64(sum) >= sluggish*float64(until.Sub(from)+time.Second)
}

// match gives each call a lease of its own: one of its caller's, granted before it, and still held if there is such a one.
func (j *judge) match() {
	j.leases, j.past, j.used = map[int]*Lease{}, map[int]bool{}, map[*Lease]bool{}
	of := map[string][]*Lease{} // granted, not used yet
	next := 0
	for n, c := range j.e.Calls {
		at := micros(c.Start)
		for ; next < len(j.e.Book.Leases) && !j.e.Book.Leases[next].Granted.After(at); next++ {
			l := j.e.Book.Leases[next]
			of[l.Of.Name] = append(of[l.Of.Name], l)
		}
		if len(c.VINs) == 0 {
			continue
		}
		name, best := flow(c.VINs[0]), -1
		for i, l := range of[name] {
			if held := l.Gone.IsZero() || !l.Gone.Before(at); held && (best < 0 || sooner(l.Gone, of[name][best].Gone)) {
				best = i
			}
		}
		if best < 0 && len(of[name]) > 0 {
			best = len(of[name]) - 1
			j.past[n] = true
		}
		if best >= 0 {
			j.leases[n], j.used[of[name][best]] = of[name][best], true
			of[name] = slices.Delete(of[name], best, best+1)
		}
	}
}

// sooner says whether a lease that went at a went before one that went at b; zero is never.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// breaches puts what the book found against a promise into its verdict.
func (j *judge) breaches(v *Verdict) {
	for _, f := range j.e.Book.broken[v.Promise] {
		v.Broken = append(v.Broken, fmt.Sprintf("at %s %s", j.when(f.at), f.text))
	}
}

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
	steps := j.e.Book.Steps
	first := sort.Search(len(steps), func(i int) bool { return steps[i].At.After(from) })
	for _, s := range steps[max(0, first-1):] {
		if s.At.After(until) {
			break
		}
		item = max(item, s.Limit)
	}
	if item == 0 {
		return declared
	}
	return min(declared, item)
}

// slots is P1: at every start, the calls under way are within the limit of when it was admitted, and no call runs on a lease that is not held any more.
func (j *judge) slots() Verdict {
	v := Verdict{Promise: "P1", What: "calls at once", Seen: len(j.e.Calls)}
	peak, within := 0, 0
	var open []standin.Call
	for n, c := range j.e.Calls {
		at := micros(c.Start)
		if l := j.leases[n]; l != nil && j.past[n] {
			if j.stopped(instance(c.By), l.Granted.Add(-grip), at) {
				v.Excused++
			} else {
				v.Broken = append(v.Broken, fmt.Sprintf("at %s a call started, its lease was gone since %s", j.when(at), j.when(l.Gone)))
			}
		}
		open = slices.DeleteFunc(open, func(o standin.Call) bool { return !end(o).After(at) })
		open = append(open, c)
		limit := j.limitAt(at.Add(-grip), at)
		if peak = max(peak, len(open)); len(open) <= limit {
			within++
			continue
		}
		// Excused are calls of a process that was stopped while it had them, past its lease, or just before it made them.
		pushed, noted := 0, 0
		var by time.Duration
		for i, o := range open {
			late, _ := j.late(at, end(o))
			switch over := end(o).Sub(at); {
			case j.stopped(instance(o.By), micros(o.Start).Add(-grip), at):
				pushed++
			case i < len(open)-1 && over <= late: // it was over, and the stand-in was late to say so
				noted, by = noted+1, max(by, over)
			}
		}
		switch {
		case len(open)-pushed <= limit:
			v.Excused++
		case len(open)-pushed-noted <= limit:
			v.late(by)
		default:
			v.Broken = append(v.Broken, fmt.Sprintf("at %s %d calls under way, the limit is %d (%d of them of processes that stood still)", j.when(at), len(open), limit, pushed))
		}
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
			if j.stopped(instance(c.By), at.Add(-grip), at) {
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
	for n, c := range j.e.Calls {
		if c.Kind != standin.AnswerQuotaRate && c.Kind != standin.AnswerQuotaConcurrency {
			continue
		}
		at := micros(c.Start)
		if j.stopped(0, at.Add(-j.e.Knobs.LeaseTTL-grip), at) {
			v.Excused++
			continue
		}
		if c.Kind == standin.AnswerQuotaConcurrency && slices.ContainsFunc(j.e.Calls[max(0, n-64):n], func(o standin.Call) bool {
			late, _ := j.late(at, end(o))
			over := end(o).Sub(at)
			return over > 0 && over <= late // that one was over, and the stand-in was late to say so
		}) {
			late, _ := j.late(at, at)
			v.late(late)
			continue
		}
		v.Broken = append(v.Broken, fmt.Sprintf("at %s a call was answered with %s", j.when(at), c.Kind))
	}
	v.Numbers = fmt.Sprintf("%d calls above it", len(v.Broken)+v.Excused+v.Late)
	return v
}

// bulkheads is P3: places in the item, and live calls at the stand-in by whose VIN they are about.
func (j *judge) bulkheads() Verdict {
	v := Verdict{Promise: "P3", What: "places and slots of each key", Seen: j.e.Book.Places}
	j.breaches(&v)
	live, batches := 0, 0
	// One key never holds every slot, nor do all batches.
	open := map[string][]standin.Call{}
	for _, c := range j.e.Calls {
		at := micros(c.Start)
		limit := j.limitAt(at.Add(-grip), at)
		shares := []string{key(c)}
		if len(c.VINs) > 1 {
			shares = append(shares, "the batch route")
		}
		for _, share := range shares {
			open[share] = append(slices.DeleteFunc(open[share], func(o standin.Call) bool { return !end(o).After(at) }), c)
			n := len(open[share])
			if len(c.VINs) > 1 {
				batches = max(batches, n)
			} else {
				live = max(live, n)
			}
			if v.Seen++; limit < 2 || n < limit {
				continue
			}
			if slices.ContainsFunc(open[share], func(o standin.Call) bool { return j.stopped(instance(o.By), micros(o.Start).Add(-grip), at) }) || n < j.limitAt(at.Add(-j.e.Knobs.LeaseTTL), at) {
				v.Excused++ // or the limit was cut while it had them
				continue
			}
			v.Broken = append(v.Broken, fmt.Sprintf("at %s %s has all %d slots", j.when(at), share, limit))
		}
	}
	v.Numbers = fmt.Sprintf("at most %d places of one caller, %d of all without a key; %d live calls of one key, %d of all batches", j.e.Book.Most[false], j.e.Book.Most[true], live, batches)
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
	case i >= 0 && Clients[i].keys > 0:
		client = flow(c.VINs[0]) // each has a key of its own
	case i >= 0 && !Clients[i].Keyed:
		client = gate.Anonymous
	}
	return route + client
}

// flow is for whom the line is fair, of a VIN: its client, and of one that comes with many keys each key.
func flow(vin string) string { return keyOf(ClientOf(vin), vin) }

// wait is a caller's time in the line.
type wait struct {
	flow        string
	from, until time.Time
	served      bool
}

// waits are those of callers with keys, in the calm and after it, who were alone in their tenant's part of the line: his next turn was theirs.
func (j *judge) waits() []wait {
	all := map[string][]wait{}
	for _, a := range j.e.Answers {
		i := slices.IndexFunc(Clients, func(c Client) bool { return c.Name == a.Client })
		if i < 0 || !Clients[i].Keyed || a.Batch || a.Done.Before(j.e.Began.Add(j.e.Plan.Calm+3*time.Second)) {
			continue
		}
		until := a.Done.Add(-a.Upstream)
		w := wait{flow(a.VIN), until.Add(-a.InLine), until, a.Status == 200 && a.Live && a.InLine >= 150*time.Millisecond}
		all[w.flow] = append(all[w.flow], w)
	}
	var alone []wait
	const apart = 100 * time.Millisecond // in which nobody can say who came first
	for _, name := range slices.Sorted(maps.Keys(all)) {
		waits := all[name]
		slices.SortFunc(waits, func(a, b wait) int { return a.from.Compare(b.from) })
		last := time.Time{} // when the last of those that began before was over
		for n, w := range waits {
			if w.served && !last.Add(apart).After(w.from) && (n+1 == len(waits) || waits[n+1].from.After(w.from.Add(apart))) {
				alone = append(alone, w)
			}
			last = later(last, w.until)
		}
	}
	return alone
}

// fair is P4: while somebody waits for his tenant's next turn, each other tenant has at most one; the way of a grant to the wire may bring one in at
// each end. Where there is room for several, those behind need not wait for those ahead. And a head of the line that does not use its turn for 300 ms is
// passed, which a machine brings about that is late. So one in ten, and one more, may see more than three.
func (j *judge) fair() Verdict {
	v := Verdict{Promise: "P4", What: "turns of another tenant while one waits for his"}
	most, sum, passed := 0, 0, 0
	for _, w := range j.waits() {
		turns := map[string]int{}
		for _, c := range j.callsBetween(w.from, w.until) {
			if len(c.VINs) > 0 {
				turns[flow(c.VINs[0])]++
			}
		}
		delete(turns, w.flow)
		n := 0
		for _, t := range turns {
			n = max(n, t)
		}
		v.Seen++
		sum, most = sum+n, max(most, n)
		if n > mostTurns {
			v.Broken = append(v.Broken, fmt.Sprintf("%s waited from %s to %s, and another had %d turns", w.flow, j.when(w.from), j.when(w.until), n))
		}
	}
	if passed = len(v.Broken); passed <= 1+v.Seen/10 {
		v.Broken = nil
	}
	turns, over, worst := 0, 0, 0
	for n, times := range j.e.Book.Turns {
		turns += times
		if n > mostTurns {
			over += times
		}
		worst = max(worst, n)
	}
	if over > 1+turns/10 {
		v.Broken = append(v.Broken, fmt.Sprintf("of %d turns in the line %d came after more than %d of another", turns, over, mostTurns))
	}
	v.Excused = passed + over
	v.Seen += turns
	v.Numbers = fmt.Sprintf("seen from NHTSA at most %d, %.2f on average, %d of %d were passed; of %d turns in the line %d were, at most by %d: %v", most, float64(sum)/float64(max(1, v.Seen-turns)),
		passed, v.Seen-turns, turns, over, worst, j.e.Book.Turns)
	return v
}

// mostTurns of another while one waits for his.
const mostTurns = 3

// callsBetween are those that started after from and before until.
func (j *judge) callsBetween(from, until time.Time) []standin.Call {
	after := func(t time.Time) int {
		return sort.Search(len(j.e.Calls), func(i int) bool { return micros(j.e.Calls[i].Start).After(t) })
	}
	first, last := after(from), after(until)
	for last > first && !micros(j.e.Calls[last-1].Start).Before(until) {
		last--
	}
	return j.e.Calls[min(first, last):last]
}

// bounded is P5: nobody waits longer than his patience, and the line is bounded. Who asks what another asked shortly before may wait for the other's
// answer instead, until his own deadline: also when that other is dead.
func (j *judge) bounded() Verdict {
	v := Verdict{Promise: "P5", What: "waits and the line", Seen: j.e.Book.Writes}
	j.breaches(&v)
	var longest, slowest time.Duration
	asked := map[string][]Told{}
	for _, a := range j.e.Answers {
		if !a.Batch {
			asked[a.VIN] = append(asked[a.VIN], a)
		}
	}
	for _, a := range j.e.Answers {
		if a.Left || a.Failed || a.Status == 0 {
			continue
		}
		v.Seen++
		took := a.Done.Sub(a.Asked)
		patience := j.e.Patience + j.e.BulkheadWait
		if a.Batch {
			patience = j.e.PatienceBatch + j.e.BulkheadWait
		}
		for _, o := range asked[a.VIN] {
			if !o.Asked.Equal(a.Asked) && o.Asked.After(a.Asked.Add(-j.e.Deadline)) && o.Asked.Before(a.Done) {
				patience = j.e.Deadline
			}
		}
		over := max(a.InLine-patience-own, took-j.e.Deadline-own)
		if over > 0 && j.stopped(a.Instance, a.Asked, a.Done) {
			v.Excused++
			continue
		}
		longest, slowest = max(longest, a.InLine), max(slowest, took)
		late, _ := j.late(a.Asked, a.Done)
		switch {
		case over <= 0:
		case over <= late:
			v.late(over)
		default:
			v.Broken = append(v.Broken, fmt.Sprintf("%s at %s waited %v, was answered after %v with %d %s", a.Client, j.when(a.Asked), a.InLine, took.Round(time.Millisecond), a.Status, strings.Join(a.Codes, " ")))
		}
	}
	v.Numbers = fmt.Sprintf("at most %v in the line and before it, answered within %v; at most %d in the line", longest, slowest.Round(time.Millisecond), j.e.Book.Line)
	return v
}

// noLeak is P6: all that was granted was given back, or ran out because its holder died or could not reach the store; nothing early, and nothing is left.
func (j *judge) noLeak() Verdict {
	v := Verdict{Promise: "P6", What: "leases", Seen: len(j.e.Book.Leases)}
	j.breaches(&v)
	released, expired, left := 0, 0, 0
	for _, l := range j.e.Book.Leases {
		_, there := j.e.Final.Leases[l.ID]
		switch {
		case l.Gone.IsZero() && there:
			left++
		case l.Gone.IsZero():
			v.Broken = append(v.Broken, fmt.Sprintf("lease %s is gone, and no write of those seen took it away", l.ID))
		case !l.Expired:
			released++
		default:
			expired++
			if j.cut(l.Granted.Add(-grip), l.End.Time()) {
				continue
			}
			if by, kept := j.kept(l.Granted, l.End.Time()); kept {
				v.late(by)
				continue
			}
			v.Broken = append(v.Broken, fmt.Sprintf("lease %s of %s ran out at %s, and nothing had kept its holder from giving it back since %s", l.ID, l.Of.Name, j.when(l.End.Time()), j.when(l.Granted)))
		}
	}
	f := j.e.Final
	if n := len(f.Leases) + len(f.Tickets) + len(f.Places) + len(f.Batch) + len(f.Flows) + len(f.Owned); n > 0 {
		v.Broken = append(v.Broken, fmt.Sprintf("at the end %d leases, %d tickets, %d places and %d flows are left", len(f.Leases), len(f.Tickets), len(f.Places), len(f.Flows)))
	}
	v.Numbers = fmt.Sprintf("%d granted = %d released + %d expired + %d left; %d killed, %d stopped, %d answers of the store lost", len(j.e.Book.Leases), released, expired, left, len(j.e.Kills), len(j.e.Stops), j.e.Book.Lost)
	return v
}

// cut says whether something kept an instance from the store between two moments: it died, it was stopped, or the store was in trouble.
func (j *judge) cut(from, until time.Time) bool {
	overlaps := func(s Span) bool { return s.overlaps(from, until) }
	return slices.ContainsFunc(j.e.Kills, overlaps) || slices.ContainsFunc(j.e.Stops, overlaps) || slices.ContainsFunc(j.e.Troubled, overlaps)
}

// once is P7: each call has a lease of its own, each lease one token (the book counts them), and nobody more leases than requests that may have taken
// one: a live answer, one that failed behind the gate, or one of which nobody knows, since the store was in trouble or the machine may have let an attempt
// run out that was applied after all. Whoever else was sent away at the gate has taken none.
func (j *judge) once() Verdict {
	v := Verdict{Promise: "P7", What: "a call, a lease, a token", Seen: len(j.e.Calls) + len(j.e.Book.Leases)}
	j.breaches(&v)
	for n, c := range j.e.Calls {
		if j.leases[n] == nil && len(c.VINs) > 0 {
			v.Broken = append(v.Broken, fmt.Sprintf("at %s a call of %s started, and no lease of its own was granted", j.when(micros(c.Start)), flow(c.VINs[0])))
		}
	}
	granted, may := map[string]int{}, map[string]int{}
	for _, l := range j.e.Book.Leases {
		granted[l.Of.Name]++
	}
	for _, c := range j.e.Calls {
		if len(c.VINs) > 0 && throttled(c) {
			may[flow(c.VINs[0])]++ // such an answer reads as one that was given at the gate
		}
	}
	sure := 0
	for _, a := range j.e.Answers {
		_, kept := j.kept(a.Asked, a.Done)
		switch {
		case a.Spent, kept, a.Done.Sub(a.Asked) > j.e.Deadline-own, // its own time was over, not that of its flight
			slices.ContainsFunc(j.e.Troubled, func(s Span) bool { return s.overlaps(a.Asked, a.Done) }): // what it could not write it could not give back
			may[flow(a.VIN)]++
		default:
			sure++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(granted)) {
		if granted[name] > may[name] {
			v.Broken = append(v.Broken, fmt.Sprintf("%s took %d leases for %d requests that may have had one", name, granted[name], may[name]))
		}
	}
	v.Numbers = fmt.Sprintf("%d calls on %d leases of their own, %d leases unused, a token each; %d requests that took none", len(j.leases), len(j.e.Book.Leases), len(j.e.Book.Leases)-len(j.used), sure)
	return v
}

// honest is P8.
func (j *judge) honest() Verdict {
	v := Verdict{Promise: "P8", What: "answers"}
	about := map[string][]time.Time{} // when NHTSA was asked
	firstThrottle := time.Time{}
	for _, c := range j.e.Calls {
		at := micros(c.Start)
		for _, vin := range c.VINs {
			about[vin] = append(about[vin], at)
		}
		if throttled(c) && firstThrottle.IsZero() {
			firstThrottle = at
		}
	}
	decodes, refused, gateway, left, unprovoked := 0, map[string]int{}, 0, 0, 0
	for _, a := range j.e.Answers {
		switch {
		case a.Left:
			left++
			continue
		case a.Gateway:
			gateway++
			continue
		case a.Status == 0:
			continue
		}
		v.Seen++
		decodes += a.Decodes
		for _, f := range a.Faults {
			v.Broken = append(v.Broken, fmt.Sprintf("%s at %s: %s", a.Client, j.when(a.Asked), f))
		}
		if a.Live && !a.Batch && !slices.ContainsFunc(about[a.VIN], func(at time.Time) bool { return at.After(a.Asked) && at.Before(a.Done) }) {
			v.Broken = append(v.Broken, fmt.Sprintf("%s at %s: a live answer about %s, and NHTSA was not asked", a.Client, j.when(a.Asked), a.VIN))
		}
		for _, code := range a.Codes {
			refused[code]++
			if code == "UPSTREAM_THROTTLED" && (firstThrottle.IsZero() || !firstThrottle.Before(a.Done)) {
				v.Broken = append(v.Broken, fmt.Sprintf("%s at %s: NHTSA is said to throttle, and never did", a.Client, j.when(a.Asked)))
			}
			if code == "COORDINATION_UNAVAILABLE" && !j.stopped(a.Instance, a.Asked.Add(-grip), a.Done) &&
				!slices.ContainsFunc(j.e.Troubled, func(s Span) bool { return s.overlaps(a.Asked.Add(-grip), a.Done) }) {
				unprovoked++
			}
		}
	}
	var codes []string
	for _, c := range slices.Sorted(maps.Keys(refused)) {
		codes = append(codes, fmt.Sprintf("%s %d", c, refused[c]))
	}
	v.Numbers = fmt.Sprintf("%d decodes as the data say; refused: %s (%d times the store did not answer in time though nothing struck it); %d hung up, %d ended with their process", decodes, strings.Join(codes, ", "), unprovoked, left, gateway)
	return v
}

func throttled(c standin.Call) bool {
	return c.Kind == string(standin.HTTP429) || c.Kind == string(standin.HTTP403) || c.Kind == standin.AnswerQuotaRate || c.Kind == standin.AnswerQuotaConcurrency
}

// yield is P9: after NHTSA said 429 or 403 nobody calls until its Retry-After, no lease is granted while the item holds the gate, and the limit is cut
// once an episode.
func (j *judge) yield() Verdict {
	v := Verdict{Promise: "P9", What: "pauses that NHTSA asked for"}
	j.breaches(&v)
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
		deaf := j.stopped(who, said.Add(-grip), said.Add(spread)) ||
			slices.ContainsFunc(j.e.Kills, func(s Span) bool {
				return (who == 0 || s.Instance == who) && s.overlaps(said.Add(-grip), said.Add(spread))
			}) ||
			slices.ContainsFunc(j.e.Troubled, func(s Span) bool { return s.overlaps(said.Add(-grip), said.Add(spread)) })
		for _, o := range j.callsBetween(said.Add(spread), until) {
			at := micros(o.Start)
			after++
			late, _ := j.late(said, at)
			switch over := at.Sub(said.Add(spread)); {
			case deaf || j.stopped(instance(o.By), at.Add(-grip), at):
				v.Excused++
			case over <= late:
				v.late(over)
			default:
				v.Broken = append(v.Broken, fmt.Sprintf("NHTSA said %s at %s and to come back in %ds; at %s a call started", c.Kind, j.when(said), n, j.when(at)))
			}
		}
	}
	cuts, last := 0, time.Time{}
	limit, knobs := 0, 0
	for _, s := range j.e.Book.Steps {
		if s.Version == knobs && s.Limit < limit && s.Reason == gate.HoldThrottled {
			if cuts++; !last.IsZero() && s.At.Sub(last) < j.e.Knobs.LeaseTTL-2*j.e.Knobs.SkewBound && s.Limit > 1 {
				v.Broken = append(v.Broken, fmt.Sprintf("at %s the limit was cut to %d, %v after it had been cut", j.when(s.At), s.Limit, s.At.Sub(last)))
			}
			last = s.At
		}
		limit, knobs = s.Limit, s.Version
	}
	if n := len(j.e.Changes); n > 0 && v.Seen > 0 && j.e.Final.Limit < j.e.Changes[n-1].InFlight {
		v.Broken = append(v.Broken, fmt.Sprintf("at the end the limit is still %d of %d", j.e.Final.Limit, j.e.Changes[n-1].InFlight))
	}
	v.Numbers = fmt.Sprintf("%d calls later than %v after it; the limit cut %d times, at the end %d", after, spread, cuts, j.e.Final.Limit)
	return v
}

// returning is P10: in the calm after the storm a lone client that waits as long as it was told is admitted, and so is a crowd, soon. Whom the machine kept from the store
// is told to come back soon, by nobody who knows when, and has lost his place: he may try twice more.
func (j *judge) returning() Verdict {
	v := Verdict{Promise: "P10", What: "who comes back when told"}
	came, in := 0, 0
	tries, again := map[string]int{}, 0
	var first, lastIn time.Time
	for _, a := range j.e.Answers {
		late, kept := j.kept(a.Asked, a.Done)
		kept = kept && slices.Contains(a.Codes, "COORDINATION_UNAVAILABLE")
		if a.Client == "lone" && a.Try > 1 {
			v.Seen++
			came++
			switch {
			case a.Status == 200:
				in++
			case kept:
				v.late(late)
			default:
				v.Broken = append(v.Broken, fmt.Sprintf("a lone client came back after %v and got %d %s", a.Waited, a.Status, strings.Join(a.Codes, " ")))
			}
		}
		if a.Client == "crowd" {
			v.Seen++
			tries[a.VIN]++
			if kept {
				v.late(late)
				again++
			}
			if first.IsZero() || a.Asked.Before(first) {
				first = a.Asked
			}
			if a.Status == 200 {
				lastIn = later(lastIn, a.Done)
			}
		}
	}
	sum, refused := 0, 0
	for _, n := range tries {
		if n > 1 {
			sum += n
			refused++
		}
	}
	mean := float64(sum) / float64(max(1, refused))
	if refused > 0 && mean > 2.7+2*float64(again)/float64(refused) {
		v.Broken = append(v.Broken, fmt.Sprintf("a crowd that obeys needed %.2f tries on average", mean))
	}
	v.Numbers = fmt.Sprintf("lone client %d of %d; of a crowd of %d, %d refused at first needed %.2f tries, the last was in after %v", in, came, len(tries), refused, mean, lastIn.Sub(first).Round(100*time.Millisecond))
	return v
}

// closed is P11: while nobody reaches the store nobody calls NHTSA without a lease from before, and nobody with one once its time to start is over.
func (j *judge) closed() Verdict {
	v := Verdict{Promise: "P11", What: "calls while the store is out"}
	// A grant of just before may still start: until StartBy, by a clock that may be off.
	k := j.e.Knobs
	grace := k.Attempt + k.StartGrace + 2*k.SkewBound + 250*time.Millisecond
	calls := 0
	var dark time.Duration
	for _, o := range j.e.Outages {
		// While NHTSA's pause lasts nobody would call anyhow, and nothing is shown.
		steps, from := j.e.Book.Steps, o.From.Add(grace)
		if n := sort.Search(len(steps), func(i int) bool { return steps[i].At.After(o.From) }); n > 0 {
			from = later(from, steps[n-1].Hold.Time())
		}
		if open := o.Until.Sub(from); open > 0 {
			v.Seen++
			dark += open
		}
		for n, c := range j.e.Calls {
			at := micros(c.Start)
			if !at.After(o.From) || !at.Before(o.Until) || j.leases[n] != nil && !j.past[n] && !at.After(o.From.Add(grace)) {
				continue
			}
			calls++
			late, _ := j.late(o.From, at)
			switch over := at.Sub(o.From.Add(grace)); {
			case j.stopped(instance(c.By), at.Add(-grip), at):
				v.Excused++
			case j.leases[n] != nil && !j.past[n] && over <= late: // it left in time, and was seen late
				v.late(over)
			default:
				v.Broken = append(v.Broken, fmt.Sprintf("the store was out from %s to %s; at %s a call started", j.when(o.From), j.when(o.Until), j.when(at)))
			}
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

// atRest: nothing piles up in the processes, neither beyond what an instance needs nor beyond what it had early in its life.
func (j *judge) atRest() Verdict {
	v := Verdict{Promise: "--", What: "processes at rest", Seen: len(j.e.Processes)}
	files, goroutines, memory := 0, 0, int64(0)
	for _, p := range j.e.Processes {
		files, goroutines, memory = max(files, p.Files), max(goroutines, p.Goroutines), max(memory, p.Memory)
		grown := p.Early.Memory > 0 && p.Memory > p.Early.Memory*3/2+16<<20 || p.Early.Files > 0 && p.Files > p.Early.Files+40 ||
			p.Early.Goroutines > 0 && p.Goroutines > p.Early.Goroutines+60
		if p.Files > mostFiles || p.Goroutines > mostGoroutines || p.Memory > mostMemory || grown {
			v.Broken = append(v.Broken, fmt.Sprintf("instance %d after %d requests: %d open files, %d goroutines, %d MB (after its first 100: %d, %d, %d MB)", p.Instance, p.Invocations,
				p.Files, p.Goroutines, p.Memory>>20, p.Early.Files, p.Early.Goroutines, p.Early.Memory>>20))
		}
	}
	v.Numbers = fmt.Sprintf("at most %d open files, %d goroutines, %d MB", files, goroutines, memory>>20)
	return v
}

// Circumstances prints what struck, and how late the machine was: what a verdict was reached under.
func Circumstances(w io.Writer, e Evidence) {
	var struck []string
	for _, k := range slices.Sorted(maps.Keys(e.Struck)) {
		struck = append(struck, fmt.Sprintf("%s %d", k, e.Struck[k]))
	}
	sum, most := e.Late.Between(e.Late.From, e.Late.From.Add(time.Duration(len(e.Late.Slots))*lateSlot))
	pressure := ""
	if e.Stalled > 0 {
		pressure = fmt.Sprintf("; somebody waited for a processor %.0f %% of the time", 100*e.Stalled)
	}
	_, _ = fmt.Fprintf(w, "\nstruck: %s\nmachine: who slept woke up to %v late, %.1f %% of the time in all%s\n", strings.Join(struck, ", "), most.Round(time.Millisecond),
		100*float64(sum)/float64(max(1, time.Duration(len(e.Late.Slots))*lateSlot)), pressure)
}
