package standin

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFaultsThatMakeNoSenseAreRefusedByName(t *testing.T) {
	for _, test := range []struct{ document, wants string }{
		{``, "EOF"},
		{`[]`, "cannot unmarshal"},
		{`{} {}`, "more text"},
		{`{"rule":[]}`, `unknown field "rule"`},
		{`{"rules":[{"kind":"http-429","sometimes":true}]}`, `unknown field "sometimes"`},
		{`{"latency":{"distribution":"fixed","value":200}}`, "latency"},
		{`{"latency":{"distribution":"fixed","value":"200"}}`, "is no duration"},
		{`{"latency":{"distribution":"normal"}}`, "latency.distribution"},
		{`{"latency":{"distribution":"fixed","value":"-1s"}}`, "latency.value"},
		{`{"latency":{"distribution":"fixed","value":"11m"}}`, "latency.value"},
		{`{"latency":{"distribution":"fixed","value":"1s","sigma":1}}`, "fixed does not use"},
		{`{"latency":{"distribution":"uniform","min":"2s","max":"1s"}}`, "min must not be greater"},
		{`{"latency":{"distribution":"lognormal","sigma":1}}`, "latency.median"},
		{`{"latency":{"distribution":"lognormal","median":"1s","sigma":-1}}`, "latency.sigma"},
		{`{"quota":{}}`, "neither"},
		{`{"quota":{"ratePerSecond":1}}`, "belong together"},
		{`{"quota":{"burst":1}}`, "belong together"},
		{`{"quota":{"ratePerSecond":-1,"burst":1}}`, "quota.ratePerSecond"},
		{`{"quota":{"concurrency":-1}}`, "quota.concurrency"},
		{`{"quota":{"concurrency":1,"retryAfter":"1500ms"}}`, "quota.retryAfter"},
		{`{"quota":{"concurrency":1,"retryAfterAs":"date"}}`, "quota.retryAfterAs"},
		{`{"rules":[{}]}`, "rules[0].kind"},
		{`{"rules":[{"kind":"xml"},{"kind":"boom"}]}`, "rules[1].kind"},
		{`{"rules":[{"kind":"xml","probability":0}]}`, "rules[0].probability"},
		{`{"rules":[{"kind":"xml","probability":1.1}]}`, "rules[0].probability"},
		{`{"rules":[{"kind":"xml","count":-1}]}`, "rules[0].count"},
		{`{"rules":[{"kind":"xml","retryAfter":"1s"}]}`, "rules[0].retryAfter"},
		{`{"rules":[{"kind":"http-429","retryAfter":"25h"}]}`, "rules[0].retryAfter"},
		{`{"rules":[{"kind":"http-429","retryAfter":"1s","retryAfterAs":"weeks"}]}`, "rules[0].retryAfterAs"},
		{`{"rules":[{"kind":"slow-body"}]}`, "rules[0].over"},
		{`{"rules":[{"kind":"hang","over":"1s"}]}`, "rules[0].over"},
		{`{"rules":[{"kind":"hang","message":"x"}]}`, "rules[0].message"},
		{`{"rules":[` + strings.Repeat(`{"kind":"hang"},`, 1000) + `{"kind":"hang"}]}`, "1001 are more"},
	} {
		if _, err := ParseFaults(strings.NewReader(test.document)); err == nil || !strings.Contains(err.Error(), test.wants) {
			t.Errorf("%.80s: error %v, want one with %q", test.document, err, test.wants)
		}
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	_, err := ParseFaults(strings.NewReader(`{"latency":{"distribution":"x"},"quota":{},"rules":[{"kind":"xml","count":-1,"probability":2}]}`))
	for _, want := range []string{"latency.distribution", "quota", "rules[0].count", "rules[0].probability"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// picks gives the kinds that a number of calls get, "" for none.
func picks(s *faultState, vins []string, n int) (kinds []Kind) {
	for range n {
		rule, _, _ := s.pick(vins)
		kinds = append(kinds, rule.Kind)
	}
	return kinds
}

func TestRulesAreAskedInOrderAndUsedUp(t *testing.T) {
	f := Faults{Rules: []Rule{
		{Kind: HTTP503, Count: ptr(0)},
		{Kind: HTTP429, Count: ptr(2), VIN: "1hg*"},
		{Kind: Reset, Count: ptr(1)},
		{Kind: XML, VIN: "5UX*"},
	}}
	s := newFaultState(f, time.Time{})
	if got, want := picks(s, []string{accord}, 4), []Kind{HTTP429, HTTP429, Reset, ""}; !slices.Equal(got, want) {
		t.Errorf("calls get %q, want %q", got, want)
	}
	if got, want := picks(s, []string{accord, "5UXWX7C5*BA"}, 2), []Kind{XML, XML}; !slices.Equal(got, want) {
		t.Errorf("a batch gets %q, want %q", got, want)
	}
	if _, index, _ := s.pick([]string{accord, "5UXWX7C5*BA"}); index != 1 {
		t.Errorf("VIN %d met the rule, want 1", index)
	}
	if *f.Rules[1].Count != 2 {
		t.Error("the caller's own Faults were changed")
	}
	if left := s.current(); *left.Rules[1].Count != 0 || *left.Rules[2].Count != 0 {
		t.Errorf("left is %+v", left.Rules)
	}
}

func TestARuleForAVINMissesCallsWithoutOne(t *testing.T) {
	s := newFaultState(Faults{Rules: []Rule{{Kind: XML, VIN: "*"}}}, time.Time{})
	if got := picks(s, nil, 1); got[0] != "" {
		t.Errorf("a call without VIN gets %q", got)
	}
}

func TestProbabilityIsRepeatable(t *testing.T) {
	run := func(seed uint64) []Kind {
		return picks(newFaultState(Faults{Seed: seed, Rules: []Rule{{Kind: HTTP429, Probability: ptr(0.25)}}}, time.Time{}), nil, 2000)
	}
	first := run(1)
	if !slices.Equal(first, run(1)) {
		t.Error("the same seed gives other faults")
	}
	if slices.Equal(first, run(2)) {
		t.Error("another seed gives the same faults")
	}
	hits := 0
	for _, k := range first {
		if k == HTTP429 {
			hits++
		}
	}
	if hits < 420 || hits > 580 { // 500 +- 4 standard deviations
		t.Errorf("%d of 2000 with a probability of 1/4", hits)
	}
}

func TestARareRuleDoesNotUseUpItsCountByNotHappening(t *testing.T) {
	s := newFaultState(Faults{Rules: []Rule{{Kind: HTTP429, Probability: ptr(0.1), Count: ptr(3)}}}, time.Time{})
	hits := 0
	for _, k := range picks(s, nil, 2000) {
		if k == HTTP429 {
			hits++
		}
	}
	if hits != 3 {
		t.Errorf("%d faults, want 3", hits)
	}
}

func TestLatencyDistributions(t *testing.T) {
	draw := func(l Latency, n int) (drawn []time.Duration) {
		t.Helper()
		f := Faults{Seed: 3, Latency: &l}
		if err := f.Validate(); err != nil {
			t.Fatal(err)
		}
		s := newFaultState(f, time.Time{})
		for range n {
			drawn = append(drawn, s.wait())
		}
		slices.Sort(drawn)
		return drawn
	}
	ms := func(n int) Duration { return Duration(time.Duration(n) * time.Millisecond) }
	if got := draw(Latency{Distribution: Fixed, Value: ms(200)}, 2); got[0] != 200*time.Millisecond || got[1] != got[0] {
		t.Errorf("fixed gives %v", got)
	}
	if got := draw(Latency{Distribution: Uniform, Min: ms(5), Max: ms(5)}, 2); got[0] != 5*time.Millisecond {
		t.Errorf("uniform between equals gives %v", got)
	}
	got := draw(Latency{Distribution: Uniform, Min: ms(100), Max: ms(300)}, 1000)
	if got[0] < 100*time.Millisecond || got[999] > 300*time.Millisecond || got[0] > 105*time.Millisecond || got[999] < 295*time.Millisecond {
		t.Errorf("uniform gives %v to %v", got[0], got[999])
	}
	got = draw(Latency{Distribution: Lognormal, Median: ms(600), Sigma: 0.5, Max: ms(2000)}, 4000)
	if m := got[2000]; m < 570*time.Millisecond || m > 630*time.Millisecond {
		t.Errorf("the median is %v, want 600ms", m)
	}
	if p95, want := got[3800], 600*math.Exp(0.5*1.645); math.Abs(float64(p95/time.Millisecond)-want) > 0.08*want {
		t.Errorf("the 95th of 100 is %v, want %.0fms", p95, want)
	}
	if got[3999] != 2*time.Second {
		t.Errorf("the longest is %v, want the cut at 2s", got[3999])
	}
	if got := draw(Latency{Distribution: Lognormal, Median: Duration(maxWait), Sigma: 5}, 100); got[99] != maxWait {
		t.Errorf("the longest is %v, want %v", got[99], maxWait)
	}
	if got := newFaultState(Faults{}, time.Time{}).wait(); got != 0 {
		t.Errorf("no latency waits %v", got)
	}
}

// The quota lets no more than burst + rate x w calls start in any window of w.
func TestQuotaHoldsInEveryWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.5, 50).Draw(t, "rate")
		burst := rapid.IntRange(1, 20).Draw(t, "burst")
		start := time.Unix(1_700_000_000, 0)
		s := newFaultState(Faults{Quota: &Quota{RatePerSecond: rate, Burst: burst}}, start)
		var admitted []time.Time
		now := start
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			if refused, _ := s.admit(now, 0); refused == "" {
				admitted = append(admitted, now)
			}
		}
		for i := range admitted {
			for j := i; j < len(admitted); j++ {
				if allowed := float64(burst) + rate*admitted[j].Sub(admitted[i]).Seconds(); float64(j-i+1) > allowed+1e-6 {
					t.Fatalf("%d calls in %v, %.3f are allowed", j-i+1, admitted[j].Sub(admitted[i]), allowed)
				}
			}
		}
	})
}

func TestLike(t *testing.T) {
	for _, test := range []struct {
		pattern, vin string
		want         bool
	}{
		{"1HGCM82633A004352", "1hgcm82633a004352 ", true},
		{"1HG", "1HGCM82633A004352", false},
		{"1HG*", "1HGCM82633A004352", true},
		{"*352", "1HGCM82633A004352", true},
		{"1HG*352", "1HGCM82633A004352", true},
		{"1*82*4*2", "1HGCM82633A004352", true},
		{"1*28*", "1HGCM82633A004352", false},
		{"*", "", true},
		{"**", "X", true},
		{"AB*BA", "ABA", false},
		{"5UX*", "5UXWX7C5*BA", true},
	} {
		if got := like(test.pattern, test.vin); got != test.want {
			t.Errorf("%q like %q: %v, want %v", test.vin, test.pattern, got, test.want)
		}
	}
}

func FuzzFaults(f *testing.F) {
	for _, seed := range []string{`{}`, `{"seed":1,"latency":{"distribution":"lognormal","median":"1s","sigma":1e9}}`, `{"rules":[{"kind":"xml","probability":1e-300}]}`,
		`{"quota":{"ratePerSecond":1e5,"burst":3,"concurrency":1,"retryAfter":"24h","retryAfterAs":"date"}}`, `{"latency":{"distribution":"uniform","min":"0s","max":"10m"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		faults, err := ParseFaults(strings.NewReader(document))
		if err != nil {
			return
		}
		s := newFaultState(faults, time.Unix(0, 0))
		if d := s.wait(); d < 0 || d > maxWait {
			t.Fatalf("waits %v", d)
		}
		s.pick([]string{accord})
		s.admit(time.Unix(1, 0), 0)
		text, err := marshal(s.current())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseFaults(strings.NewReader(string(text))); err != nil {
			t.Fatalf("%s is given out but not taken: %v", text, err)
		}
	})
}
