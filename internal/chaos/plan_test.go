package chaos

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vingate/internal/vin"
)

func TestTheSameSeedDrawsTheSamePlan(t *testing.T) {
	a, b := Draw(7, time.Minute, 8, false), Draw(7, time.Minute, 8, false)
	if !reflect.DeepEqual(a, b) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(a, Draw(8, time.Minute, 8, false)) {
		t.Error("two seeds draw one plan")
	}
	var x, y strings.Builder
	a.Print(&x)
	b.Print(&y)
	if x.String() != y.String() || !strings.Contains(x.String(), "seed 7") {
		t.Error("printed, they differ")
	}
}

func TestEveryKindStrikesAndInTheCalmNothingButAPause(t *testing.T) {
	for seed := range uint64(400) {
		last, longest := 2*time.Minute, 20*time.Second
		if seed%2 == 1 {
			last, longest = 30*time.Second, 6*time.Second
		}
		p := Draw(seed, last, 8, false)
		for _, k := range deck {
			if !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == k }) {
				t.Fatalf("seed %d: no %s", seed, k)
			}
		}
		if last := p.Faults[len(p.Faults)-1]; last.Kind != NHTSA429 || last.At < p.Calm {
			t.Fatalf("seed %d: the calm has %+v", seed, last)
		}
		for i, f := range p.Faults[:len(p.Faults)-1] {
			if f.At >= p.Calm || i > 0 && f.At < p.Faults[i-1].At || f.Kind == Stop && (f.For < time.Second || f.For > longest) {
				t.Fatalf("seed %d: %+v", seed, f)
			}
		}
		if seed%2 == 1 && p.Faults[0].Kind != StoreOutage {
			t.Fatalf("seed %d: the outage is not the first in %+v", seed, p.Faults)
		}
		for i, v := range p.Visits {
			if v.At >= p.For || i > 0 && v.At < p.Visits[i-1].At || len(v.VINs) == 0 || len(v.VINs) > 50 {
				t.Fatalf("seed %d: %+v", seed, v)
			}
		}
		for _, s := range p.Skews {
			if s.Abs() > 250*time.Millisecond {
				t.Fatalf("seed %d: a clock is off by %v, beyond the bound", seed, s)
			}
		}
	}
}

func TestEveryCombinationOfNumbersMayBePutIntoForce(t *testing.T) {
	for _, n := range numbers {
		k := knobs
		k.MaxInFlight, k.RatePerSecond, k.Burst = n.InFlight, n.Rate, n.Burst
		k.KeySlots, k.BatchSlots = 0, 0
		if faults := k.Validate(); len(faults) > 0 {
			t.Errorf("%+v: %v", n, faults)
		}
		if !k.Bucket().Fits(5) {
			t.Errorf("%+v: a batch of fifty never fits", n)
		}
	}
}

func TestAVINTellsWhoseItIs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Clients {
		for _, n := range []int{0, 1, 7, 49_999, 50_000, 50_007, 399_999} { // more than there are serial numbers
			v := VINOf(c.Name, n)
			if digit, ok := vin.CheckDigit(v); len(v) != 17 || !ok || v[8] != digit || ClientOf(v) != c.Name || number(v) != n%50_000 || seen[v] {
				t.Errorf("%s %d: %s is %s's number %d", c.Name, n, v, ClientOf(v), number(v))
			}
			seen[v] = true
		}
	}
	if ClientOf("11111111111111111") != "" && ClientOf("short") != "" {
		t.Error("nobody's VIN is somebody's")
	}
}

func TestASteadyRunIsUnderFireUntilHalfAMinuteBeforeItsEnd(t *testing.T) {
	p := Draw(3, 10*time.Minute, 8, true)
	if p.Calm != 9*time.Minute+30*time.Second || len(p.Faults) != 115 || p.Faults[113].At < p.Calm-20*time.Second {
		t.Errorf("calm from %v, %d faults, the last %+v", p.Calm, len(p.Faults), p.Faults[len(p.Faults)-1])
	}
}
