package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vingate/internal/standin"
)

func TestFirstAnswerIsLiveThenStoredAndAMistypedVINIsRefused(t *testing.T) {
	p := start(t, 2, 1)
	a := p.decode(t, "1hgcm-82633a004352")
	honest(t, "1HGCM82633A004352", a)
	for key, want := range map[string]any{
		"submitted": "1hgcm-82633a004352", "modelYear": 2003.0, "outcome": "clean", "summary": "2003 HONDA Accord", "suggestedVin": nil, "codes": []any{0.0},
	} {
		if fmt.Sprint(a.body[key]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", key, a.body[key], want)
		}
	}
	provenance := a.body["provenance"].(map[string]any)
	if provenance["source"] != "nhtsa" || provenance["upstreamMs"] == nil || provenance["stale"] != false || provenance["shared"] != false {
		t.Errorf("provenance: %v", provenance)
	}
	if again := p.decode(t, "1HGCM82633A004352"); again.body["provenance"].(map[string]any)["source"] != "cache" {
		t.Errorf("the second answer: %s", again.text)
	}
	bad := p.decode(t, "1HGCM82633A00435O")
	if bad.status != http.StatusBadRequest || bad.body["code"] != "VIN_INVALID" || bad.body["position"] != 17.0 || bad.body["character"] != "O" {
		t.Errorf("mistyped: %d %s", bad.status, bad.text)
	}
	if s := p.stats(t); s.Calls != 1 {
		t.Errorf("NHTSA was called %d times for one live answer", s.Calls)
	}
	p.empty(t)
}

// P1, P2, P8: sixty different VINs in one instant, ten instances with eight requests each, one budget.
func TestSixtyAtOnceStayWithinTheBudget(t *testing.T) {
	p := start(t, 10, 8, "MAX_IN_FLIGHT=4", "RATE_PER_SECOND=20", "RATE_BURST=40")
	served := 0
	codes := map[string]int{}
	p.faults(t, standin.Faults{Latency: &standin.Latency{Distribution: standin.Uniform, Min: standin.Duration(50 * time.Millisecond), Max: standin.Duration(150 * time.Millisecond)}})
	for round := range 3 { // the first meets cold instances
		vins := accords(60 * (round + 1))[60*round:]
		for i, a := range p.all(t, vins) {
			honest(t, vins[i], a)
			switch a.status {
			case http.StatusOK:
				served++
			case http.StatusTooManyRequests:
				codes[fmt.Sprint(a.body["code"])]++
			default:
				t.Errorf("%d %s", a.status, a.text)
			}
		}
	}
	s := p.stats(t)
	t.Logf("served %d, refused %v; NHTSA saw %d calls, at most %d at once", served, codes, s.Calls, s.Peak)
	if s.Peak > 4 {
		t.Errorf("NHTSA saw %d calls at once, the limit is 4", s.Peak)
	}
	window(t, s.Starts, 20, 40)
	if int64(served) != s.Calls || served == 0 {
		t.Errorf("%d served with %d calls", served, s.Calls)
	}
	if len(codes) == 0 {
		t.Error("nobody was refused: this shows nothing")
	}
	p.empty(t)
}

// P2 where the tokens are what is short: one a second, asked for by ten instances at once, again and again.
func TestTheSharedRateHoldsInEveryWindow(t *testing.T) {
	p := start(t, 10, 4, "MAX_IN_FLIGHT=8", "RATE_PER_SECOND=1", "RATE_BURST=7", "MAX_WAIT=0s")
	served, limited := 0, 0
	for round := range 5 {
		vins := accords(12 * (round + 1))[12*round:]
		for i, a := range p.all(t, vins) {
			honest(t, vins[i], a)
			switch {
			case a.status == http.StatusOK:
				served++
			case a.body["code"] == "RATE_LIMITED" && a.body["scope"] == "upstream-budget":
				limited++
			case a.status != http.StatusTooManyRequests:
				t.Errorf("%d %s", a.status, a.text)
			}
		}
	}
	s := p.stats(t)
	t.Logf("served %d, rate limited %d of 60; NHTSA saw %d calls", served, limited, s.Calls)
	window(t, s.Starts, 1, 7)
	if int64(served) != s.Calls || served == 0 || limited == 0 {
		t.Errorf("%d served with %d calls, %d rate limited", served, s.Calls, limited)
	}
	p.empty(t)
}

// P6: kill -9 in the middle of a call. The slot is back once the lease time and the skew bound are over, not before, and
// not one call too many runs.
func TestKilledInstanceGivesItsSlotBack(t *testing.T) {
	const ttl, skew = 4 * time.Second, 250 * time.Millisecond
	p := start(t, 3, 1, "MAX_IN_FLIGHT=1", "LEASE_TTL=4s", "UPSTREAM_TIMEOUT=2s", "MAX_WAIT=0s", "RATE_PER_SECOND=20", "RATE_BURST=40")
	vins := accords(2)
	one := 1
	p.faults(t, standin.Faults{Rules: []standin.Rule{{Kind: standin.Hang, VIN: vins[0], Count: &one}}})

	asked := time.Now()
	killed := make(chan answer, 1)
	go func() {
		a, _ := get(p.EdgeURL + "/v1/vins/" + vins[0])
		killed <- a
	}()
	until(t, "the call is under way", 20*time.Second, func() bool { return p.stats(t).Current == 1 })
	underWay := time.Now()
	if err := p.Edge.Kill(t.Context(), p.busy(t)); err != nil {
		t.Fatal(err)
	}
	if a := <-killed; a.status != http.StatusInternalServerError {
		t.Errorf("the killed instance's caller got %d %s", a.status, a.text)
	}
	refused := 0
	var admitted time.Time
	until(t, "the slot is back", ttl+20*time.Second, func() bool {
		before := time.Now()
		a := p.decode(t, vins[1])
		honest(t, vins[1], a)
		if a.status == http.StatusOK {
			admitted = before
			return true
		}
		if a.status != http.StatusTooManyRequests || a.body["code"] != "DECODE_WAIT_TIMEOUT" {
			t.Errorf("meanwhile: %d %s", a.status, a.text)
		}
		refused++
		return false
	})
	// The grant lies between asked and underWay; this machine has one clock, so skew costs the reclaimer its grace only.
	if early := asked.Add(ttl + skew).Sub(admitted); early > time.Second {
		t.Errorf("admitted %v before the lease could be over", early)
	}
	if late := admitted.Sub(underWay.Add(ttl + skew)); late > 2*time.Second {
		t.Errorf("admitted %v after the lease was over", late)
	}
	if s := p.stats(t); s.Calls != 2 || s.Peak != 1 || refused == 0 {
		t.Errorf("%d calls, %d at once, %d refused meanwhile", s.Calls, s.Peak, refused)
	}
	p.empty(t)
}

// Fifty tabs with one VIN, one instance: one call, one token.
func TestIdenticalVINsInOneInstanceShareOneCall(t *testing.T) {
	p := start(t, 1, 50)
	p.faults(t, standin.Faults{Latency: &standin.Latency{Distribution: standin.Fixed, Value: standin.Duration(500 * time.Millisecond)}})
	vin := accords(1)[0]
	vins := make([]string, 50)
	for i := range vins {
		vins[i] = vin
	}
	shared := 0
	for _, a := range p.all(t, vins) {
		honest(t, vin, a)
		if a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
			continue
		}
		if a.body["provenance"].(map[string]any)["shared"] == true {
			shared++
		}
	}
	if s := p.stats(t); s.Calls != 1 {
		t.Errorf("%d calls for one VIN", s.Calls)
	}
	if shared == 0 {
		t.Error("no answer says that it was shared")
	}
	p.empty(t)
}

// P9 as far as the hold goes: NHTSA says 429 with a Retry-After, and until then nobody calls it, from any instance.
func TestAfterA429NobodyCallsUntilRetryAfter(t *testing.T) {
	p := start(t, 8, 1, "RATE_PER_SECOND=20", "RATE_BURST=40")
	one, pause := 1, standin.Duration(3*time.Second)
	p.faults(t, standin.Faults{Rules: []standin.Rule{{Kind: standin.HTTP429, Count: &one, RetryAfter: standin.RetryAfter{After: &pause}}}})
	vins := accords(8)
	first := p.decode(t, vins[0])
	honest(t, vins[0], first)
	heard := time.Now()
	if first.status != http.StatusServiceUnavailable || first.body["code"] != "UPSTREAM_THROTTLED" {
		t.Fatalf("%d %s", first.status, first.text)
	}
	for i, a := range p.all(t, vins[1:]) {
		honest(t, vins[i+1], a)
		if a.body["code"] != "UPSTREAM_THROTTLED" && time.Since(heard) < time.Duration(pause)-time.Second {
			t.Errorf("while NHTSA throttles: %d %s", a.status, a.text)
		}
	}
	until(t, "decoding goes on", 20*time.Second, func() bool { return p.decode(t, vins[1]).status == http.StatusOK })
	s := p.stats(t)
	if gap := time.Duration(s.Starts[1]-s.Starts[0]) * time.Microsecond; gap < time.Duration(pause)-250*time.Millisecond || s.Calls != 2 {
		t.Errorf("%d calls, the second %v after the 429", s.Calls, gap)
	}
	p.empty(t)
}

// The warm-up recognises itself first, primes the store and spends nothing.
func TestWarmUpSpendsNothing(t *testing.T) {
	p := start(t, 1, 1)
	before, err := get(p.EdgeURL + "/v1/capacity")
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r, err := p.Edge.Invoke(t.Context(), []byte(`{"source":"vingate.warmup"}`))
		if err != nil || string(r.Payload) != `{"warm":true}` {
			t.Fatalf("%s, %v", r.Payload, err)
		}
	}
	after, err := get(p.EdgeURL + "/v1/capacity")
	if err != nil || before.body["tokens"] != after.body["tokens"] {
		t.Errorf("capacity went from %s to %s, %v", before.text, after.text, err)
	}
	if s := p.stats(t); s.Calls != 0 {
		t.Errorf("%d calls", s.Calls)
	}
}

// Nothing that tells a person apart, and no serial of a vehicle, is in the log.
func TestLogNamesNobody(t *testing.T) {
	p := start(t, 1, 1)
	vin := accords(1)[0]
	p.decode(t, vin)
	p.decode(t, "1HGCM82633A00435O")
	p.Edge.Close()
	log := p.log.String()
	if !strings.Contains(log, "1HGCM826*3A") {
		t.Errorf("no descriptor in the log")
	}
	for _, secret := range []string{vin[11:], "A00435O", "sourceIp"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// Founding scenario (a) on the whole product: 2 slots, 2 places in the line, 50 ms of patience, NHTSA takes 80 ms, five VINs at once.
func TestFiveAtOnceOnTwoSlotsAndTwoPlaces(t *testing.T) {
	p := start(t, 5, 1, "MAX_IN_FLIGHT=2", "MAX_QUEUED=2", "MAX_WAIT=50ms", "KEY_SLOTS=1", "RATE_PER_SECOND=20", "RATE_BURST=40")
	p.faults(t, standin.Faults{Latency: &standin.Latency{Distribution: standin.Fixed, Value: standin.Duration(80 * time.Millisecond)}})
	served, refused := 0, 0
	for round := range 3 {
		vins := accords(5 * (round + 1))[5*round:]
		for i, a := range p.all(t, vins) {
			honest(t, vins[i], a)
			switch code := a.body["code"]; {
			case a.status == http.StatusOK:
				served++
			case code == "DECODE_QUEUE_FULL" || code == "DECODE_WAIT_TIMEOUT":
				refused++
			default:
				t.Errorf("%d %s", a.status, a.text)
			}
		}
	}
	if s := p.stats(t); served < 3 || refused < 1 || s.Peak > 2 || int64(served) != s.Calls {
		t.Errorf("%d served, %d refused, %d calls, %d at once", served, refused, s.Calls, s.Peak)
	}
	p.empty(t)
}

// P4, P5: who waits is served in turn when a place comes free, and says how long it waited.
func TestWaitersAreServedWithinTheirPatience(t *testing.T) {
	p := start(t, 8, 1, "MAX_IN_FLIGHT=2", "MAX_WAIT=10s", "REQUEST_DEADLINE=28s", "RATE_PER_SECOND=20", "RATE_BURST=40")
	p.faults(t, standin.Faults{Latency: &standin.Latency{Distribution: standin.Fixed, Value: standin.Duration(200 * time.Millisecond)}})
	vins := accords(8)
	waited := 0
	for i, a := range p.all(t, vins) {
		honest(t, vins[i], a)
		if a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
			continue
		}
		if ms := a.body["provenance"].(map[string]any)["waitedMs"].(float64); ms > 100 {
			waited++
		}
	}
	if s := p.stats(t); s.Calls != 8 || s.Peak > 2 || waited < 4 {
		t.Errorf("%d calls, %d at once, %d waited", s.Calls, s.Peak, waited)
	}
	window(t, p.stats(t).Starts, 20, 40)
	p.empty(t)
}
