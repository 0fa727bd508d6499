package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"vingate/internal/load"
)

const (
	instances = 10
	tenants   = 10
	flood     = 10 // times the budget

	answerWithin = 8 * time.Second // then there is no answer
	patient      = 2 * time.Minute // where a line without bounds is to be seen
)

// lab is where one limiter is measured.
type lab struct {
	peer   peer
	budget budget
	seed   uint64
	tap    *tap // what its store is asked; nil where it has none

	// launch starts a fleet on a budget of its own, with a line of so many in each instance, the first with its clock off.
	launch func(ctx context.Context, name string, queue int, skew time.Duration) (*fleet, error)
}

// phases are all that is measured, in order.
var phases = []struct {
	name string
	run  func(lab, context.Context, *row) error
}{
	{"light", lab.light}, {"flood", lab.flood}, {"slots", lab.slots}, {"skew", lab.skew}, {"kill", lab.kill},
	{"lone", lab.lone}, {"crowd", lab.crowd}, {"fair", lab.fair}, {"down", lab.down},
}

func (l lab) with(ctx context.Context, name string, queue int, skew time.Duration, f func(*fleet) error) error {
	fleet, err := l.launch(ctx, name, queue, skew)
	if err != nil {
		return err
	}
	defer fleet.close()
	return f(fleet)
}

// once is a caller that takes the first answer.
func once(ctx context.Context, f *fleet) func(load.Call) *call {
	return func(c load.Call) *call { return f.ask(ctx, c, patient) }
}

func (l lab) calls(perSecond float64, poisson bool, span, hold time.Duration) []load.Call {
	return load.Shape{PerSecond: perSecond, Poisson: poisson, For: span, Instances: instances, Tenants: tenants, Seed: l.seed,
		Call: func(_ *rand.Rand, c *load.Call) { c.Upstream = hold }}.Draw()
}

// short is how long a call takes where that does not matter.
const short = 100 * time.Millisecond

// light is three quarters of the rate, evenly: nobody need be refused, so what the store is asked is asked for admissions.
func (l lab) light(ctx context.Context, r *row) error {
	return l.with(ctx, "light", 0, 0, func(f *fleet) error {
		offer := func(span time.Duration) []*call {
			defer time.Sleep(short) // the last are given back
			return f.play(ctx, l.calls(0.75*float64(l.budget.Rate), false, span, short), once(ctx, f))
		}
		offer(2 * time.Second) // connections are made and code is compiled
		before, start := l.tap.counts(), time.Now()
		done := offer(6 * time.Second)
		took := f.took("admitted", start)
		r.LightOffered, r.LightAdmitted, r.Errors = len(done), len(took), r.Errors+f.count("failed")
		r.PerAdmission = l.tap.counts().less(before).each(float64(len(took)))
		r.P50, r.P99 = load.Quantile(took, 0.5).Microseconds(), load.Quantile(took, 0.99).Microseconds()
		return nil
	})
}

// flood is ten times the rate at random, with calls so short that the slots do not matter.
func (l lab) flood(ctx context.Context, r *row) error {
	const span, settled = 8 * time.Second, 2 * time.Second // by then the burst is used up
	return l.with(ctx, "flood", 0, 0, func(f *fleet) error {
		before := l.tap.counts()
		start := time.Now()
		done := f.play(ctx, l.calls(flood*float64(l.budget.Rate), true, span, short), once(ctx, f))
		time.Sleep(short)
		r.FloodOffered, r.FloodAdmitted, r.Errors = len(done), f.count("admitted"), r.Errors+f.count("failed")
		r.Excess = l.budget.excess(f.spans())
		r.Use = round(l.budget.use(f.spans(), start.Add(settled), start.Add(span)))
		r.PerRefusal = l.tap.counts().less(before).less(r.PerAdmission.each(1 / float64(r.FloodAdmitted))).each(float64(f.count("refused")))
		took := f.took("refused", start.Add(time.Second))
		r.RefusalP50, r.RefusalP99 = load.Quantile(took, 0.5).Microseconds(), load.Quantile(took, 0.99).Microseconds()
		return nil
	})
}

// slots offers ten times what the slots can serve, with calls so long that the rate matters less.
func (l lab) slots(ctx context.Context, r *row) error {
	return l.with(ctx, "slots", 0, 0, func(f *fleet) error {
		f.play(ctx, l.calls(flood*float64(l.budget.Slots), true, 6*time.Second, time.Second), once(ctx, f))
		r.AtOnce = atOnce(f.spans())
		r.Errors += f.count("failed")
		return nil
	})
}

// skew plays a load that is bound by the slots at first and by the rate later, with the clock of one instance of ten off to either side.
func (l lab) skew(ctx context.Context, r *row) error {
	if l.peer.model != nil {
		return nil
	}
	const span, settled = 6 * time.Second, 3 * time.Second
	for _, by := range []time.Duration{250 * time.Millisecond, 5 * time.Second} {
		s := skewed{By: by.Milliseconds(), Use: math.Inf(1)}
		for _, skew := range []time.Duration{-by, by} {
			if err := l.with(ctx, fmt.Sprintf("skew%v", skew), 0, skew, func(f *fleet) error {
				start := time.Now()
				f.play(ctx, l.calls(flood*float64(l.budget.Rate), true, span, 300*time.Millisecond), once(ctx, f))
				s.Excess, s.AtOnce = max(s.Excess, l.budget.excess(f.spans())), max(s.AtOnce, atOnce(f.spans()))
				s.Use = min(s.Use, round(l.budget.use(f.spans(), start.Add(settled), start.Add(span))))
				return nil
			}); err != nil {
				return err
			}
		}
		r.Skew = append(r.Skew, s)
	}
	return nil
}

// kill lets half of the instances hold all slots, kills them, and looks when the others have the slots.
func (l lab) kill(ctx context.Context, r *row) error {
	if !l.peer.slots || l.peer.model != nil {
		return nil
	}
	const apart, patience = 70 * time.Millisecond, 25 * time.Second
	wave := func(first int, hold time.Duration) []load.Call {
		var calls []load.Call
		for i := range l.budget.Slots {
			calls = append(calls, load.Call{At: time.Duration(i) * apart, Instance: first + i%(instances/2), Tenant: fmt.Sprint("tenant", i), Upstream: hold})
		}
		return calls
	}
	return l.with(ctx, "kill", 0, 0, func(f *fleet) error {
		start := time.Now()
		for _, c := range wave(0, time.Minute) {
			time.Sleep(time.Until(start.Add(c.At)))
			f.ask(ctx, c, answerWithin)
		}
		r.Held = f.count("admitted")
		killed := time.Now()
		for _, i := range f.instances[:instances/2] {
			i.kill()
		}
		f.open.Wait()
		for time.Since(killed) < patience && ctx.Err() == nil {
			begin := time.Now()
			f.play(ctx, wave(instances/2, 800*time.Millisecond), once(ctx, f))
			var later []span
			for _, s := range f.spans() {
				if s.start.After(killed) {
					later = append(later, s)
				}
			}
			if r.FirstBack == 0 && len(later) > 0 {
				r.FirstBack = round(startsOf(later)[0].Sub(killed).Seconds())
			}
			if at := full(later, l.budget.Slots); !at.IsZero() {
				r.AllBack = round(at.Sub(killed).Seconds())
				break
			}
			time.Sleep(time.Until(begin.Add(900 * time.Millisecond)))
		}
		r.AtOnceKilled = atOnce(f.spans())
		return nil
	})
}

// told is when a caller that goes by the answer comes back: whole seconds as in a Retry-After; a second where it is not told.
func told(c *call) time.Duration {
	if c.retry < 0 || c.is == "failed" {
		return time.Second
	}
	return time.Duration(max(1, math.Ceil(c.retry.Seconds()))) * time.Second
}

// dry uses up the burst, one call after the other, and returns the first that is sent away; nil where there is no end to it.
func (l lab) dry(ctx context.Context, f *fleet) *call {
	for n := range 5 * l.budget.Burst {
		if c := f.ask(ctx, load.Call{Instance: n % instances, Tenant: "alone"}, answerWithin); c.is != "admitted" {
			return c
		}
	}
	return nil
}

// lone sends away one caller, who comes back when told; eight times.
func (l lab) lone(ctx context.Context, r *row) error {
	return l.with(ctx, "lone", 0, 0, func(f *fleet) error {
		for range 8 {
			refused := l.dry(ctx, f)
			if refused == nil {
				return nil
			}
			r.LoneTold = refused.retry >= 0
			time.Sleep(told(refused))
			r.LoneAsked++
			if again := f.ask(ctx, refused.Call, answerWithin); again.is == "admitted" {
				r.LoneAdmitted++
			}
		}
		return nil
	})
}

// insist is a caller who comes back when told, to the next instance, as long as that is within its patience.
func (l lab) insist(ctx context.Context, f *fleet, patience time.Duration) func(load.Call) *call {
	return func(c load.Call) *call {
		late := time.Duration(rand.New(rand.NewPCG(l.seed, uint64(c.Number))).Int64N(int64(50 * time.Millisecond))) // nobody comes to the millisecond
		came := time.Now()
		for tries := 1; ; tries++ {
			answer := f.ask(ctx, c, patient)
			answer.tries = tries
			wait := told(answer) + late
			left := patience - time.Since(came) - wait
			if answer.is == "admitted" || left < 0 || ctx.Err() != nil {
				return answer
			}
			time.Sleep(wait)
			c.Instance, c.Patience = (c.Instance+1)%instances, min(c.Patience, left)
		}
	}
}

// crowd has a hundred come at once when the burst is used up; three times, each anew. Where there is a line, they may wait in it for three seconds.
func (l lab) crowd(ctx context.Context, r *row) error {
	const heads, rounds = 100, 3
	for round := range rounds {
		if err := l.with(ctx, fmt.Sprint("crowd", round), l.budget.Queue/instances, 0, func(f *fleet) error {
			dice := rand.New(rand.NewPCG(l.seed, uint64(round)))
			l.dry(ctx, f)
			var calls []load.Call
			for i := range heads {
				calls = append(calls, load.Call{Number: i, At: time.Duration(i) * 2 * time.Millisecond, Instance: dice.IntN(instances), Tenant: fmt.Sprint("head", i), Patience: 3 * time.Second, Upstream: short})
			}
			start, last := time.Now(), time.Duration(0)
			for _, c := range f.play(ctx, calls, l.insist(ctx, f, 20*time.Second)) {
				r.CrowdTries += float64(c.tries) / (heads * rounds)
				if c.is == "admitted" {
					r.CrowdServed++
					last = max(last, c.answered.Sub(start))
				}
			}
			r.CrowdLast += last.Seconds() / rounds
			return nil
		}); err != nil {
			return err
		}
	}
	r.CrowdTries, r.CrowdLast = round(r.CrowdTries), round(r.CrowdLast)
	return nil
}

// fair lets one tenant offer almost ten times the budget and another a quarter of it. Both have three seconds of patience: they wait in the line where there
// is one, and come back when told.
func (l lab) fair(ctx context.Context, r *row) error {
	const span, patience = 8 * time.Second, 3 * time.Second
	polite := float64(l.budget.Rate) / 4
	calls := l.calls(flood*float64(l.budget.Rate)-polite, true, span, short)
	for i := range calls {
		calls[i].Tenant, calls[i].Patience = "flood", patience
	}
	for _, c := range (load.Shape{PerSecond: polite, Poisson: true, For: span, Instances: instances, Tenants: 1, Seed: l.seed + 1}).Draw() {
		c.Tenant, c.Patience, c.Upstream = "polite", patience, short
		calls = append(calls, c)
	}
	slices.SortStableFunc(calls, func(a, b load.Call) int { return int(a.At - b.At) })
	return l.with(ctx, "fair", l.budget.Queue/instances, 0, func(f *fleet) error {
		start := time.Now()
		offered, got := map[string]float64{}, map[string]float64{}
		for _, c := range f.play(ctx, calls, l.insist(ctx, f, patience)) {
			offered[c.Tenant]++
			if c.is == "admitted" && c.answered.Sub(start)-c.At <= patience+short {
				got[c.Tenant]++
			}
		}
		r.PoliteShare, r.FloodShare = round(got["polite"]/offered["polite"]), round(got["flood"]/offered["flood"])
		return nil
	})
}

// down takes the store away, asks twenty times, brings it back, and asks again.
func (l lab) down(ctx context.Context, r *row) error {
	if l.tap == nil {
		return nil
	}
	ask := func(f *fleet, n int) []*call {
		var calls []load.Call
		for i := range n {
			calls = append(calls, load.Call{At: time.Duration(i) * short, Instance: i % instances, Tenant: fmt.Sprint("tenant", i%tenants)})
		}
		return f.play(ctx, calls, func(c load.Call) *call { return f.ask(ctx, c, answerWithin) })
	}
	return l.with(ctx, "down", 0, 0, func(f *fleet) error {
		ask(f, instances)
		time.Sleep(time.Second)
		l.tap.shut()
		time.Sleep(500 * time.Millisecond)
		r.Down = outcomes{}
		for _, c := range ask(f, 2*instances) {
			switch c.is {
			case "admitted":
				r.Down.Admitted++
			case "refused":
				r.Down.Refused++
			case "failed":
				r.Down.Failed++
				r.Down.SlowestMs = max(r.Down.SlowestMs, c.answered.Sub(c.asked).Milliseconds())
				r.Down.Says = c.err
			default:
				r.Down.Silent++
			}
		}
		if err := l.tap.open(); err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
		for _, c := range ask(f, instances) {
			if c.is == "admitted" {
				r.Down.Back++
			}
		}
		return nil
	})
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
