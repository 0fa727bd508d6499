// Package load offers calls to a shared budget as many callers at many instances do, and reports what became of them and what
// it cost. It promises that the same seed offers the same calls at the same times, whoever serves them, that no two calls come in the same
// instant (so that their order is the seed's and not the machine's), and that callers do not wait for one another: a slow answer thins
// out no load.
package load

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"vingate/internal/meter"
)

// Call is what one caller wants.
type Call struct {
	Number   int           // in the run, from 0 on
	At       time.Duration // after the start of the run
	Instance int
	Tenant   string
	Patience time.Duration // longest wait in the line, 0 none
	Leaves   time.Duration // it hangs up after that, 0 never
	Upstream time.Duration // how long the call itself takes
}

// Gate is one instance's way to the shared budget.
type Gate interface {
	// Acquire asks for the call. Release is not nil when it may start; with neither release nor error it was refused.
	Acquire(context.Context, Call) (release func(ctx context.Context, took time.Duration) error, err error)
}

// Done is what became of a call.
type Done struct {
	Call
	Arrived, Answered time.Time
	Admitted, Left    bool // neither, and no error: refused
	Err               error
	Account           *meter.Account // pays for asking, and for the release
	Joined            time.Time      // when its ticket was written; zero when it never stood in the line
	Ahead             int            // grants to others while an admitted call stood in the line
}

// Shape draws calls over a time.
type Shape struct {
	PerSecond float64
	For       time.Duration
	Poisson   bool // else evenly paced
	Instances int
	Tenants   int
	Seed      uint64
	Call      func(*rand.Rand, *Call) // the rest of each call; nil leaves it
}

// step is the least time between two calls.
const step = time.Microsecond

// Draw draws the calls. PerSecond 0 means one call of each tenant, all at once: a microsecond apart.
func (s Shape) Draw() []Call {
	r := rand.New(rand.NewPCG(s.Seed, 1))
	var calls []Call
	add := func(at time.Duration, tenant int) {
		if n := len(calls); n > 0 {
			at = max(at, calls[n-1].At+step)
		}
		c := Call{Number: len(calls), At: at, Instance: r.IntN(s.Instances), Tenant: name(tenant)}
		if s.Call != nil {
			s.Call(r, &c)
		}
		calls = append(calls, c)
	}
	if s.PerSecond == 0 {
		for i := range s.Tenants {
			add(0, i)
		}
		return calls
	}
	gap := time.Duration(float64(time.Second) / s.PerSecond)
	for at := gap; at < s.For; {
		add(at, r.IntN(s.Tenants))
		if s.Poisson {
			at += time.Duration(float64(gap) * r.ExpFloat64())
		} else {
			at += gap
		}
	}
	return calls
}

func name(tenant int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	s := ""
	for ; ; tenant /= len(letters) {
		s += letters[tenant%len(letters) : tenant%len(letters)+1]
		if tenant < len(letters) {
			return s
		}
	}
}

// Run offers the calls to the gates, one for each instance, and returns when the last call is over.
func Run(ctx context.Context, gates []Gate, calls []Call) Report {
	done := make([]Done, len(calls))
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range calls {
		wait(ctx, time.Until(start.Add(c.At)))
		wg.Go(func() { done[i] = one(ctx, gates[c.Instance], c) })
	}
	wg.Wait()
	r := Report{Start: start, Calls: done}
	grants := r.grants()
	for i, d := range done {
		if d.Admitted && !d.Joined.IsZero() {
			from, _ := slices.BinarySearchFunc(grants, d.Joined, time.Time.Compare)
			to, _ := slices.BinarySearchFunc(grants, d.Answered, time.Time.Compare)
			done[i].Ahead = to - from
		}
	}
	return r
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func one(ctx context.Context, g Gate, c Call) Done {
	d := Done{Call: c, Arrived: time.Now(), Account: &meter.Account{Number: uint64(c.Number) + 1}}
	ctx = meter.Charge(ctx, d.Account)
	asking, cancel := ctx, context.CancelFunc(func() {})
	if c.Leaves > 0 {
		asking, cancel = context.WithTimeout(ctx, c.Leaves)
	}
	defer cancel()
	release, err := g.Acquire(asking, c)
	d.Answered = time.Now()
	switch {
	case release != nil:
		d.Admitted = true
		if applied := d.Account.Applied(); len(applied) > 1 { // the ticket, then the claim
			d.Joined = applied[0]
		}
		wait(ctx, c.Upstream)
		d.Err = release(ctx, time.Since(d.Answered))
	case asking.Err() != nil && ctx.Err() == nil:
		d.Left = true
	default:
		d.Err = err
	}
	return d
}

// Report is a run.
type Report struct {
	Start time.Time
	Calls []Done
}

// grants lists when calls were admitted, in order.
func (r Report) grants() []time.Time {
	var at []time.Time
	for _, d := range r.Calls {
		if d.Admitted {
			at = append(at, d.Answered)
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	return at
}

// Count counts the calls.
func (r Report) Count(which func(Done) bool) int {
	n := 0
	for _, d := range r.Calls {
		if which(d) {
			n++
		}
	}
	return n
}

// Admitted, Refused, Waited and Broken are kinds of calls.
func Admitted(d Done) bool { return d.Admitted }

// Refused calls were told no, or hung up.
func Refused(d Done) bool { return !d.Admitted && d.Err == nil }

// Waited calls were admitted from the line.
func Waited(d Done) bool { return d.Admitted && !d.Joined.IsZero() }

// Broken calls met an error.
func Broken(d Done) bool { return d.Err != nil }

// Bill is what calls cost, their releases included: for items of those kinds, or without a kind for all.
func (r Report) Bill(which func(Done) bool, kinds ...string) meter.Bill {
	var b meter.Bill
	for _, d := range r.Calls {
		if which(d) {
			b.Add(d.Account.Bill(kinds...))
		}
	}
	return b
}

// Use is how much of the budget the run took: calls admitted within the span, of those that a bucket allows which begins with
// that many tokens and is refilled at that rate.
func (r Report) Use(tokens int, perSecond float64, span time.Duration) float64 {
	end := r.Start.Add(span)
	n := r.Count(func(d Done) bool { return d.Admitted && !d.Answered.After(end) })
	return float64(n) / math.Floor(float64(tokens)+perSecond*span.Seconds())
}

// Over counts the starts that no budget of that burst, rate and number of slots allows.
func (r Report) Over(burst int, perSecond float64, slots int) int {
	type change struct {
		at   time.Time
		live int
	}
	var changes []change
	for _, d := range r.Calls {
		if d.Admitted {
			changes = append(changes, change{d.Answered, 1}, change{d.Answered.Add(d.Upstream), -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.live - b.live
	})
	tokens, live, over := float64(burst), 0, 0
	last := r.Start
	for _, c := range changes {
		live += c.live
		if c.live < 0 {
			continue
		}
		tokens = min(float64(burst), tokens+c.at.Sub(last).Seconds()*perSecond)
		last = c.at
		if tokens < 1-1e-6 || live > slots {
			over++
			continue
		}
		tokens--
	}
	return over
}

// Waits are the times from asking to the answer, sorted.
func (r Report) Waits(which func(Done) bool) []time.Duration {
	var waits []time.Duration
	for _, d := range r.Calls {
		if which(d) {
			waits = append(waits, d.Answered.Sub(d.Arrived))
		}
	}
	slices.Sort(waits)
	return waits
}

// Quantile of a sorted list, 0 when it is empty.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Jain is Jain's fairness index of what each tenant got: 1 when all got the same, 1/n when one got everything.
func (r Report) Jain() float64 {
	got := map[string]float64{}
	for _, d := range r.Calls {
		if _, known := got[d.Tenant]; !known {
			got[d.Tenant] = 0
		}
		if d.Admitted {
			got[d.Tenant]++
		}
	}
	var sum, squares float64
	for _, n := range got {
		sum += n
		squares += n * n
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}
