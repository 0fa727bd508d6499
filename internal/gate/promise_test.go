package gate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func sentAway() *rapid.Generator[Sent] {
	return rapid.Custom(func(t *rapid.T) Sent {
		own := time.Duration(rapid.Int64Range(0, 120_000_000).Draw(t, "own time")) * time.Microsecond
		return Sent{ID: rapid.StringN(8, 12, 12).Draw(t, "id"), Now: noon, From: noon + micros(own), Least: RetryAfter(own),
			Pace: Micros(rapid.Int64Range(1000, 20_000_000).Draw(t, "pace")), Places: rapid.IntRange(1, 40).Draw(t, "places"), Around: rapid.SampledFrom([]int{placesAround, placesAroundWithoutLine}).Draw(t, "around")}
	})
}

func TestARetryAfterIsNeverBeforeTheGatesOwnNorBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := sentAway().Draw(t, "sent away")
		p := Promise{Round: 1, Until: noon + Micros(rapid.Int64Range(-1e9, 1e11).Draw(t, "until"))}
		got := c.RetryAfter(c.Place(p))
		if got < c.Least || got < time.Second || got%time.Second != 0 {
			t.Fatalf("%v, the gate's own is %v", got, c.Least)
		}
		if most := max(c.Least, PromiseHorizon) + PromiseOverflow; got > most {
			t.Fatalf("%v, the bound is %v", got, most)
		}
		if again := c.RetryAfter(c.Place(p)); again != got {
			t.Fatalf("the same caller is told %v and %v", got, again)
		}
		before := c.Place(p)
		p.Until += 10 * c.Pace
		if after := c.Place(p); p.Until <= c.absurd() && after < before {
			t.Fatalf("the places went on and the caller's went from %d back to %d", before, after)
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
			w, any := views[i].planReserve(fmt.Sprint(n), c, block)
			if !any {
				continue
			}
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
		var step Micros
		for n := range 20 {
			c := Sent{ID: "x", Now: noon, From: noon + 50_000, Pace: 200_000, Places: 1}
			w, any := seen.planReserve(fmt.Sprint("block", n), c, block)
			if !any || !w.Holds(p) {
				t.Fatalf("%s: block %d fails: %+v on %+v", name, n, w, p)
			}
			p, step = w.Apply(p), w.Step
		}
		if p.Round != seen.Round+1 || p.Until != noon+50_000+20*step || len(p.Blocks) != 20 {
			t.Errorf("%s: %+v", name, p)
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
	if perRefusal := float64(w.writes) / float64(w.refusals); perRefusal > 0.09 {
		t.Errorf("%.3f writes for each refusal", perRefusal)
	}
	t.Logf("%d refusals, %d writes, %d of them failed, told up to %v", w.refusals, w.writes, w.failed, longest)
	p, end := w.promise[len(w.promise)-1].p, w.now
	around := time.Duration(placesAroundWithoutLine*spacing) * w.state.grantTime() / 100
	for gone := time.Duration(0); gone <= 2*time.Minute; gone += 5 * time.Second {
		now := end + micros(gone)
		s := w.state
		s.TAT = now + Micros(s.Knobs.Bucket().Tau+1) // dry at this moment
		for i := range 50 {
			c, _ := s.Send(now, Request{ID: fmt.Sprint("lone", i)}, Refusal{Cause: NoToken, RetryAfter: time.Second})
			told := c.RetryAfter(c.Place(p))
			if most := max(0, PromiseHorizon+PromiseOverflow-gone) + around + time.Second; told > most {
				t.Fatalf("%v after the flood somebody is told %v", gone, told)
			}
		}
	}
}

func TestAnInstanceWritesOnceForTwelveAndManyForTheirShare(t *testing.T) {
	c := Sent{Now: noon, From: noon, Pace: 1, Places: 1}
	for phase := range uint64(block) {
		d, writes := NewDesk(phase), 0
		for n := range 240 {
			if _, due := d.Reserve(c, fmt.Sprint(n), Promise{}); due {
				writes++
			}
		}
		if writes != 20 {
			t.Errorf("%d writes for 240 refusals", writes)
		}
	}
	rng, writes := rand.New(rand.NewPCG(7, 7)), 0
	for range 1200 { // instances, one refusal each
		if _, due := NewDesk(rng.Uint64()).Reserve(c, "x", Promise{}); due {
			writes++
		}
	}
	if writes < 70 || writes > 130 { // 100, three deviations either way
		t.Errorf("%d of 1200 instances wrote for their only refusal", writes)
	}
	d := NewDesk(0)
	c.Places = 30
	if w, due := d.Reserve(c, "batch", Promise{}); !due || w.Step != 30 {
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
