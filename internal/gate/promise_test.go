package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func sentAway() *rapid.Generator[Sent] {
	return rapid.Custom(func(t *rapid.T) Sent {
		own := time.Duration(rapid.Int64Range(0, 120_000_000).Draw(t, "own time")) * time.Microsecond
		return Sent{ID: rapid.StringN(8, 12, 12).Draw(t, "id"), Now: noon, From: noon + micros(own), Least: RetryAfter(own),
			Pace: Micros(rapid.Int64Range(1000, 20_000_000).Draw(t, "pace")), Places: rapid.IntRange(1, 40).Draw(t, "places")}
	})
}

// desks are a few instances and one promise, whose writes come at once.
type desksAndPromise struct {
	desks []*Desk
	p     Promise
	n     int
	wrote int
}

func newDesks(n int) *desksAndPromise {
	d := &desksAndPromise{}
	for i := range n {
		d.desks = append(d.desks, NewDesk(uint64(i)))
	}
	return d
}

// send is what an instance tells a caller; guest: the place is not its own.
func (d *desksAndPromise) send(instance int, c Sent) (place Micros, guest bool) {
	desk := d.desks[instance]
	if place, ok := desk.Deal(c); ok {
		return place, false
	}
	d.n++
	place, w := desk.Ask(c, fmt.Sprint("block", d.n), d.p)
	if w == nil {
		return place, true
	}
	d.wrote++
	guest = place != 0
	held := w.Holds(d.p)
	if held {
		d.p = w.Apply(d.p)
	}
	switch {
	case guest:
		return place, true
	case held:
		return desk.Took(c, *w, d.p), false
	}
	return desk.Missed(c, d.p), true
}

func TestARetryAfterIsNeverBeforeTheGatesOwnNorBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesks(3)
		if rapid.Bool().Draw(t, "somebody was here") {
			d.p = Promise{Round: 1, Until: noon + Micros(rapid.Int64Range(-1e9, 1e11).Draw(t, "until"))}
		}
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "callers") {
			c := sentAway().Draw(t, "sent away")
			now += Micros(rapid.Int64Range(-100_000, 1_500_000).Draw(t, "later"))
			c.From, c.Now = now+c.From-c.Now, now
			place, _ := d.send(rapid.IntRange(0, 2).Draw(t, "instance"), c)
			for _, place := range []Micros{place, c.Unpromised()} {
				got := c.RetryAfter(place)
				if got < c.Least || got < time.Second || got%time.Second != 0 {
					t.Fatalf("%v, the gate's own is %v", got, c.Least)
				}
				if most := max(c.Least, PromiseHorizon) + PromiseOverflow; got > most {
					t.Fatalf("%v, the bound is %v", got, most)
				}
				if again := c.RetryAfter(place); again != got {
					t.Fatalf("the same caller is told %v and %v", got, again)
				}
			}
		}
	})
}

// P10: a caller who is alone is told the gate's own time, not a second more: on an instance that is new and on one that was busy before, with a
// promise that nobody has made yet and with what is left of an old one.
func TestWhoIsAloneIsToldTheGatesOwnTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesks(2)
		c := sentAway().Draw(t, "sent away")
		switch rapid.IntRange(0, 3).Draw(t, "before") {
		case 1: // another one who was alone, on this instance or another
			before := c
			before.Now -= micros(aloneFor) + 1
			before.From = max(before.Now, c.From-micros(aloneFor)-1)
			d.send(rapid.IntRange(0, 1).Draw(t, "instance"), before)
			if d.p.Until >= c.begin()+c.step() {
				t.Skip("a long one of many tokens: it is not over yet")
			}
		case 2:
			d.p = Promise{Round: 3, Until: c.begin() + c.step() - Micros(rapid.Int64Range(1, 1e9).Draw(t, "over"))}
		case 3: // the mistake of a clock
			d.p = Promise{Round: 3, Until: c.absurd() + Micros(rapid.Int64Range(1, 1e12).Draw(t, "absurd"))}
		}
		if place, guest := d.send(0, c); place != c.From || guest || c.RetryAfter(place) != c.Least {
			t.Fatalf("told %v (place %d), the gate's own is %v (%d)", c.RetryAfter(place), place, c.Least, c.From)
		}
	})
}

// The founding scenario (d) as the caller sees it: two at one a second, clocks and delays taken to be perfect.
func TestBucketOfTwoAtOneASecondTellsASecond(t *testing.T) {
	k := testKnobs()
	k.RatePerSecond, k.Burst, k.SkewBound, k.StartGrace, k.Attempt = 1, 2, 0, 0, 0
	for _, patience := range []time.Duration{0, 500 * time.Millisecond} {
		w := newTown(t, 1, k, 1, patience)
		var told []time.Duration
		for i := range 3 {
			w.call(fmt.Sprint("caller", i), 0, func(after time.Duration) { told = append(told, after) })
			w.run(noon)
		}
		w.run(noon + 1e6)
		w.now = noon + 1e6
		w.call("caller2", 0, func(after time.Duration) { told = append(told, after) })
		if want := []time.Duration{0, 0, time.Second, 0}; !slices.Equal(told, want) {
			t.Errorf("MAX_WAIT %v: told %v, want %v", patience, told, want)
		}
	}
}

// Instances that see what the others have written tell no two callers the same place, whichever of them is asked.
func TestNoTwoCallersAreDealtOnePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, blocksAhead).Draw(t, "instances")
		d, now, pace := newDesks(n), noon, Micros(250_000)
		taken, most := map[Micros]bool{}, noon
		for range rapid.IntRange(1, 150).Draw(t, "callers") {
			now += Micros(rapid.IntRange(0, 3000).Draw(t, "later"))
			c := Sent{ID: "x", Now: now, From: noon + 900_000, Pace: pace, Places: 1}
			place, guest := d.send(rapid.IntRange(0, n-1).Draw(t, "instance"), c)
			if guest {
				if most < c.From+(blocksAhead-1)*c.step() {
					t.Fatalf("the caller %d is a guest", len(taken)+1)
				}
				continue
			}
			most = max(most, d.p.Until)
			if taken[place] || (place-c.From)%pace != 0 {
				t.Fatalf("%d is told twice, or is no place", place-noon)
			}
			taken[place] = true
		}
		if d.wrote > len(taken)/block+n+1 {
			t.Fatalf("%d writes for %d callers on %d instances", d.wrote, len(taken), n)
		}
	})
}

// Many instances with old views, each write perhaps sent twice or late.
func TestPlacesOnlyGoOnAndARepeatedWriteMovesThemOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := Promise{}, noon
		views := make([]Promise, 4)
		var late []Reserve
		for n := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += Micros(rapid.Int64Range(0, 400_000).Draw(t, "pause"))
			i := rapid.IntRange(0, 3).Draw(t, "instance")
			if rapid.Bool().Draw(t, "looks") {
				views[i] = p
			}
			c := Sent{Now: now, From: now + Micros(rapid.Int64Range(0, 3_000_000).Draw(t, "own time")), Pace: 200_000, Places: 1}
			planned := views[i].reserve(fmt.Sprint(n), c, c.horizon(), rapid.Bool().Draw(t, "begins anew"))
			if planned == nil {
				continue
			}
			w := *planned
			if rapid.Bool().Draw(t, "is late") {
				late = append(late, w)
				continue
			}
			writes := append(late, w, w)
			late = nil
			for _, w := range writes {
				before, held := p, w.Holds(p)
				if held {
					p = w.Apply(p)
					if p.Until <= before.Until && before.Round > 0 {
						t.Fatalf("places went back from %d to %d", before.Until, p.Until)
					}
					if p.Until > max(w.Now+micros(PromiseHorizon), w.From+w.Step) {
						t.Fatalf("places are %v away", (p.Until - w.Now).Time().Sub(Epoch))
					}
					views[i] = p
				}
				if w.Holds(p) {
					t.Fatalf("the same write would move the places twice: %+v on %+v", w, p)
				}
			}
		}
	})
}

func TestManyInstancesBeginTheSameRound(t *testing.T) {
	for name, seen := range map[string]Promise{
		"the first of all": {},
		"after a crowd":    {Round: 7, Until: noon - 9e6, Blocks: map[string]Micros{"old": noon - 1e7}},
		"after a mistake":  {Round: 7, Until: noon + 1e12},
	} {
		p := seen
		c := Sent{ID: "x", Now: noon, From: noon + 50_000, Pace: 200_000, Places: 1}
		var guests []Micros
		for n := range 20 { // none of them has seen what another wrote
			desk := NewDesk(uint64(n))
			_, w := desk.Ask(c, fmt.Sprint("block", n), seen)
			if w == nil || w.Holds(p) != (n <= blocksAhead) {
				t.Fatalf("%s: block %d: %+v on %+v", name, n, w, p)
			}
			if !w.Holds(p) {
				guests = append(guests, desk.Missed(c, p))
				continue
			}
			p = w.Apply(p)
			if place := desk.Took(c, *w, p); place != c.From+Micros(n)*c.step() {
				t.Errorf("%s: the first of instance %d has place %d", name, n, place-c.From)
			}
		}
		if p.Round != seen.Round+1 || p.Until != c.From+(blocksAhead+1)*c.step() || len(p.Blocks) != blocksAhead+1 {
			t.Errorf("%s: %+v", name, p)
		}
		for _, place := range guests {
			if place < c.From || place > p.Until+c.step() {
				t.Errorf("%s: a guest at %d", name, place-c.From)
			}
		}
	}
}

// Nobody comes back: not one later caller is told more than the bound, and what is told shrinks as time goes by.
func TestAFloodThatDoesNotComeBackIsForgotten(t *testing.T) {
	w := newTown(t, 1, crowdKnobs(), 10, 0)
	longest := time.Duration(0)
	for i := range 20_000 { // 500 a second
		w.at(noon+Micros(2000*i), func() {
			w.call(fmt.Sprint(i), i%10, func(after time.Duration) { longest = max(longest, after) })
		})
	}
	w.run(noon + 41e6)
	if bound := PromiseHorizon + PromiseOverflow; longest > bound || longest < PromiseHorizon {
		t.Errorf("the flood was told up to %v, the bound is %v", longest, bound)
	}
	if perRefusal := float64(w.writes) / float64(w.refusals); perRefusal > 0.02 {
		t.Errorf("%.3f writes for each refusal", perRefusal)
	}
	t.Logf("%d refusals, %d writes, %d of them failed, told up to %v", w.refusals, w.writes, w.failed, longest)
	p, end := w.promise[len(w.promise)-1].p, w.now
	for gone := time.Duration(0); gone <= 2*time.Minute; gone += 5 * time.Second {
		now := end + micros(gone)
		s := w.state
		s.TAT = now + Micros(s.Knobs.Bucket().Tau+1) // dry at this moment
		for i := range 50 {
			c, _ := s.Send(now, Request{ID: fmt.Sprint("lone", i)}, Refusal{Cause: NoToken, RetryAfter: time.Second})
			d := &desksAndPromise{desks: []*Desk{NewDesk(uint64(i))}, p: p}
			place, _ := d.send(0, c)
			told := c.RetryAfter(place)
			if most := max(0, PromiseHorizon+PromiseOverflow-gone) + blockSpan + time.Second; told > most {
				t.Fatalf("%v after the flood somebody is told %v", gone, told)
			}
		}
	}
}

// What a flood costs: it goes on and nobody comes back, on ten instances and on fifty, at rates at which the minute is full early or late.
func TestRefusalsInAFloodAreHardlyEverWrites(t *testing.T) {
	for _, c := range []struct {
		instances int
		rate      float64
		most      float64
	}{{10, 5, 0.05}, {50, 5, 0.05}, {10, 20, 0.07}, {50, 20, 0.08}, {200, 20, 0.08}} {
		k := crowdKnobs()
		k.RatePerSecond, k.Burst, k.MaxInFlight = c.rate, int(2*c.rate), 10
		w := newTown(t, 1, k, c.instances, 0)
		for i := range int(150 * c.rate) { // fifteen times the budget, ten seconds
			w.at(noon+Micros(w.rng.Int64N(1e7)), func() {
				w.call(fmt.Sprint(i), w.rng.IntN(c.instances), func(time.Duration) {})
			})
		}
		w.run(noon + 11e6)
		perRefusal := float64(w.writes) / float64(w.refusals)
		t.Logf("%d instances, %v a second: %d refusals, %.3f writes each (%d of %d failed), %.2f reads", c.instances, c.rate, w.refusals, perRefusal, w.failed, w.writes, float64(w.reads)/float64(w.refusals))
		if perRefusal > c.most {
			t.Errorf("more than %v", c.most)
		}
	}
}

func TestAnInstanceWritesOnceForTwelveAndGuestsForTheirShare(t *testing.T) {
	d := newDesks(1)
	for n := range 240 {
		d.send(0, Sent{ID: fmt.Sprint(n), Now: noon, From: noon, Pace: 100_000, Places: 1})
	}
	if d.wrote != 20 {
		t.Errorf("%d writes for 240 refusals", d.wrote)
	}
	rng, writes := rand.New(rand.NewPCG(7, 7)), 0
	full := Promise{Round: 1, Until: noon + 30e6, Blocks: map[string]Micros{"other": noon}}
	for range 100 * guestSample { // instances, one guest each
		if place, w := NewDesk(rng.Uint64()).Ask(Sent{Now: noon, From: noon, Pace: 250_000, Places: 1}, "x", full); w != nil {
			writes++
		} else if place < noon || place > full.Until+micros(blockSpan) {
			t.Fatalf("a guest at %d", place-noon)
		}
	}
	if writes < 70 || writes > 130 { // 100, three deviations either way
		t.Errorf("%d instances wrote for their only guest, not about 100", writes)
	}
	if w := full.reserve("batch", Sent{Now: noon, From: noon + 40e6, Pace: 250_000, Places: 30}, noon+60e6, false); w == nil || w.Step != 30*250_000 {
		t.Errorf("a batch of 30 tokens: %+v", w)
	}
}

func TestAHoldEndsForNobodyEarlyAndForACrowdNotInOneSecond(t *testing.T) {
	told := map[time.Duration]int{}
	for i := range 1000 {
		told[AfterHold(Refusal{Cause: Held, RetryAfter: 30 * time.Second}, fmt.Sprint("caller", i))]++
	}
	for after, n := range told {
		if after < 30*time.Second || after >= 30*time.Second+HoldSpread || n > 300 {
			t.Errorf("%d of 1000 are told %v", n, after)
		}
	}
	if len(told) != int(HoldSpread/time.Second) {
		t.Errorf("%v", told)
	}
}

func TestOnlyTheSharedBudgetHasPlaces(t *testing.T) {
	for cause, shared := range map[Cause]bool{NoToken: true, NoSlot: true, QueueFull: true, Held: false, BulkheadFull: false, NoKeySlot: false} {
		if _, got := fresh(testKnobs()).Send(noon, Request{}, Refusal{Cause: cause}); got != shared {
			t.Errorf("%s: %v", cause, got)
		}
	}
}

// P10. Others are being served and stand in the line, their calls last half to one and a half times the usual; they do not come back.
func TestALoneClientThatWaitsExactlyIsAdmitted(t *testing.T) {
	clients := 1000
	if raceDetector {
		clients = 200
	}
	for _, patience := range []time.Duration{0, 3 * time.Second} {
		refused, admitted := 0, 0
		for seed := uint64(0); refused < clients; seed++ {
			rng := rand.New(rand.NewPCG(seed, 2))
			k := crowdKnobs()
			k.MaxInFlight, k.RatePerSecond = 1+rng.IntN(6), []float64{2, 5, 20}[rng.IntN(3)]
			k.Burst = 1 + int(k.RatePerSecond*(1+2*rng.Float64()))
			w := newTown(t, seed, k, 1, patience)
			usual := time.Duration(100+rng.IntN(2900)) * time.Millisecond
			w.state.Latency = Millis(usual.Milliseconds())
			w.takes = func() time.Duration { return usual/2 + time.Duration(rng.Int64N(int64(usual))) }
			if rng.IntN(2) == 0 {
				w.promise = []was{{noon, Promise{Round: 1, Until: noon + Micros(rng.Int64N(60e6))}}}
			}
			for i := range rng.IntN(40) {
				w.at(noon+Micros(rng.Int64N(4e6)), func() { w.call(fmt.Sprint("other", i), 0, func(time.Duration) {}) })
			}
			w.at(noon+4e6, func() {
				w.call("lone", 0, func(after time.Duration) {
					if after == 0 {
						return
					}
					refused++
					w.at(w.now+micros(after), func() {
						w.call("lone", 0, func(again time.Duration) {
							if again == 0 {
								admitted++
							}
						})
					})
				})
			})
			w.run(noon + 1e9)
		}
		t.Logf("seeds from 0, MAX_WAIT %v: %d of %d admitted", patience, admitted, refused)
		if admitted*100 < refused*99 {
			t.Errorf("only %d of %d", admitted, refused)
		}
	}
}
