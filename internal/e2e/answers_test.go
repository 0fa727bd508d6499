package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vingate/internal/child"
	"vingate/internal/devstack"
	"vingate/internal/gate/dynamo"
	"vingate/internal/standin"
)

// askFrom asks from an address of the loopback: 127.0.0.2 and 127.0.0.3 are two tenants.
func (p *product) askFrom(address, vin string) (answer, error) {
	dial := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dial.DialContext, DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get(p.EdgeURL + "/v1/vins/" + vin)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(b)}
	return a, json.Unmarshal(b, &a.body)
}

// timed is one answer and how long its caller waited.
type timed struct {
	answer
	began time.Time
	took  time.Duration
}

// crowd asks for one VIN n times at once, from five addresses in turn.
func (p *product) crowd(t *testing.T, vin string, n int) []timed {
	t.Helper()
	all := make([]timed, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			began := time.Now()
			a, err := p.askFrom(fmt.Sprintf("127.0.0.%d", 2+i%5), vin)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			all[i] = timed{a, began, time.Since(began)}
		})
	}
	close(gate)
	wg.Wait()
	return all
}

// provenance is what an answer says of where it comes from.
func (a answer) provenance() map[string]any {
	p, _ := a.body["provenance"].(map[string]any)
	return p
}

func fixed(d time.Duration) standin.Faults {
	return standin.Faults{Latency: &standin.Latency{Distribution: standin.Fixed, Value: standin.Duration(d)}}
}

// wake starts every instance, so that what follows meets no cold start.
func (p *product) wake(t *testing.T, n int) {
	t.Helper()
	p.faults(t, fixed(200*time.Millisecond))
	var wg sync.WaitGroup
	for _, vin := range accords(900 + n)[900:] {
		wg.Go(func() { _, _ = get(p.EdgeURL + "/v1/vins/" + vin) })
	}
	wg.Wait()
}

// 200 requests for one VIN at once, ten instances with twenty each, five tenants: one call, one token, 200 answers.
func TestTwoHundredRequestsForOneVINAreOneCall(t *testing.T) {
	p := start(t, 10, 20)
	p.faults(t, fixed(time.Second))
	vin := accords(1)[0]
	shared := 0
	for _, a := range p.crowd(t, vin, 200) {
		honest(t, vin, a.answer)
		if a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
			continue
		}
		if a.provenance()["shared"] == true {
			shared++
		}
	}
	busy := 0
	for _, i := range p.Edge.Instances() {
		if i.Invocations > 0 {
			busy++
		}
	}
	if s := p.stats(t); s.Calls != 1 || shared != 199 || busy < 8 {
		t.Errorf("%d calls, %d answers shared, by %d instances", s.Calls, shared, busy)
	}
	if n := strings.Count(p.log.String(), `"Admissions":1`); n != 1 {
		t.Errorf("%d places were granted", n)
	}
	p.empty(t)
}

// The leader is killed in the middle of its call: one of those who follow takes over when the flight's time is over.
func TestWhenTheLeaderIsKilledOneFollowerTakesOver(t *testing.T) {
	const upstream, call = time.Second, 500 * time.Millisecond
	// What a flight may take, as internal/decode has it: no wait, the gate's attempts, the call, what follows it, and twice what clocks are off by.
	const lease = time.Second + upstream + 2*time.Second + 500*time.Millisecond + 2*250*time.Millisecond
	p := start(t, 8, 1, "UPSTREAM_TIMEOUT=1s", "MAX_WAIT=0s", "BULKHEAD_WAIT=0s", "RATE_PER_SECOND=20", "RATE_BURST=40")
	p.wake(t, 8)
	before := p.stats(t).Calls
	p.faults(t, fixed(call))
	vin := accords(1)[0]
	killed := make(chan answer, 1)
	led := time.Now()
	go func() {
		a, _ := p.askFrom("127.0.0.9", vin)
		killed <- a
	}()
	until(t, "the leader calls", 10*time.Second, func() bool { return p.stats(t).Current == 1 })
	leader := p.busy(t)
	var followers []timed
	var wg sync.WaitGroup
	wg.Go(func() { followers = p.crowd(t, vin, 6) })
	time.Sleep(200 * time.Millisecond)
	if err := p.Edge.Kill(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	<-killed
	wg.Wait()
	slowest := time.Duration(0)
	for _, a := range followers {
		honest(t, vin, a.answer)
		if a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
		}
		slowest = max(slowest, a.began.Add(a.took).Sub(led))
	}
	t.Logf("the flight lasts %v, the second call %v: the last answer came after %v", lease, call, slowest)
	if calls := p.stats(t).Calls - before; calls > 2 {
		t.Errorf("%d calls", calls)
	}
	// The flight, one look (half a second with its sleep), and the call of the one who took over, on a busy machine.
	if slowest > lease+500*time.Millisecond+call+time.Second {
		t.Errorf("somebody had an answer %v after the leader began", slowest)
	}
}

// The leader is refused for its own bucket, or for its own places: those of other tenants are served by a call of their own.
func TestFollowersOfARefusedLeaderAreServed(t *testing.T) {
	t.Run("a dry bucket", func(t *testing.T) {
		p := start(t, 4, 10, "RATE_PER_SECOND=20", "RATE_BURST=40", "ANON_RATE_PER_SECOND=0.05", "ANON_BURST=5")
		for _, vin := range accords(5) {
			if a, err := p.askFrom("127.0.0.2", vin); err != nil || a.status != http.StatusOK {
				t.Fatalf("%v %s", err, a.text)
			}
		}
		p.faults(t, fixed(500*time.Millisecond))
		vin := accords(6)[5]
		served, refused := 0, 0
		for i, a := range p.crowd(t, vin, 40) {
			honest(t, vin, a.answer)
			switch {
			case a.status == http.StatusOK:
				served++
			case i%5 == 0 && a.body["code"] == "RATE_LIMITED" && a.body["scope"] == "tenant": // 127.0.0.2 is dry
				refused++
			default:
				t.Errorf("%d %s", a.status, a.text)
			}
		}
		// Whoever of the dry tenant came while another's call was under way shared it.
		if s := p.stats(t); s.Calls != 6 || served < 32 || served+refused != 40 {
			t.Errorf("%d calls, %d served, %d refused", s.Calls, served, refused)
		}
	})
	t.Run("its places taken", func(t *testing.T) {
		p := start(t, 4, 10, "RATE_PER_SECOND=20", "RATE_BURST=40", "BULKHEAD_ANON=1", "BULKHEAD_WAIT=1s", "MAX_WAIT=1s")
		key := p.key(t, "abcdefghijkl")
		p.faults(t, fixed(3*time.Second))
		vins := accords(2)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = p.askFrom("127.0.0.2", vins[0]) }) // takes the one place of all who have no key
		until(t, "the place is taken", 10*time.Second, func() bool { return p.stats(t).Current == 1 })
		leader := make(chan answer, 1)
		wg.Go(func() {
			a, _ := p.askFrom("127.0.0.3", vins[1]) // leads, and waits for a place
			leader <- a
		})
		time.Sleep(300 * time.Millisecond)
		p.faults(t, fixed(200*time.Millisecond))
		a := p.as(t, "127.0.0.4", key, vins[1])
		honest(t, vins[1], a)
		if a.status != http.StatusOK {
			t.Errorf("the follower: %d %s", a.status, a.text)
		}
		if l := <-leader; l.body["code"] != "BULKHEAD_TIMEOUT" {
			t.Errorf("the leader: %d %s", l.status, l.text)
		}
		wg.Wait()
		if s := p.stats(t); s.Calls != 2 {
			t.Errorf("%d calls", s.Calls)
		}
	})
}

// A hot VIN past its freshness under a hundred requests a second: one call, and one who waits for it.
func TestAHotVINIsRefreshedWithoutAStampede(t *testing.T) {
	const call, soft, perSecond, lasts = 600 * time.Millisecond, 3 * time.Second, 100, 2 * time.Second
	p := start(t, 5, 4, "CACHE_SOFT_TTL=3s", "RATE_PER_SECOND=20", "RATE_BURST=40")
	p.wake(t, 20)
	vin := accords(1)[0]
	if a := p.decode(t, vin); a.status != http.StatusOK {
		t.Fatal(a.text)
	}
	fetched := time.Now()
	p.faults(t, fixed(call))
	p.crowd(t, vin, 40) // every instance knows it
	time.Sleep(time.Until(fetched.Add(soft + 100*time.Millisecond)))
	before := p.stats(t).Calls
	var mu sync.Mutex
	var all []timed
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for n := range perSecond * int(lasts/time.Second) {
		<-tick.C
		wg.Go(func() {
			began := time.Now()
			a, err := p.askFrom(fmt.Sprintf("127.0.0.%d", 2+n%5), vin)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, timed{a, began, time.Since(began)})
		})
	}
	wg.Wait()
	stale, fresh, live, waited, slow := 0, 0, 0, 0, 0
	for _, a := range all {
		honest(t, vin, a.answer)
		from := a.provenance()
		switch {
		case a.status != http.StatusOK:
			t.Errorf("%d %s", a.status, a.text)
		case from["source"] == "nhtsa":
			live++
			if !strings.HasPrefix(a.header.Get("Cache-Status"), "vingate; fwd=stale; fwd-status=200; stored") {
				t.Errorf("Cache-Status %q", a.header.Get("Cache-Status"))
			}
		case from["stale"] == true:
			stale++
			if s := a.header.Get("Cache-Status"); !strings.HasPrefix(s, "vingate; hit; ttl=-") && !strings.HasPrefix(s, "vingate; hit; ttl=0") {
				t.Errorf("Cache-Status %q", s)
			}
		default:
			fresh++
		}
		if a.took > 50*time.Millisecond {
			slow++
		}
		if ms, _ := from["waitedMs"].(float64); ms > 50 || from["source"] == "nhtsa" {
			waited++ // what the caller sees may take longer for other reasons, on a busy machine
		}
	}
	calls := p.stats(t).Calls - before
	t.Logf("%d requests: %d stale, %d with the new answer, %d live; %d waited for NHTSA; %d took more than 50 ms from outside; %d calls", len(all), stale, fresh, live, waited, slow, calls)
	if calls != 1 || live != 1 || waited > 1 || stale == 0 || fresh == 0 {
		t.Errorf("%d calls, %d live, %d waited, %d stale, %d fresh", calls, live, waited, stale, fresh)
	}
	p.empty(t)
}

// Whatever NHTSA does wrong: no refusal says a word about a vehicle, no answer is about another VIN, what is stored goes out, and nothing of what
// NHTSA sent leaves.
func TestEveryFaultOfNHTSAsUnderLoad(t *testing.T) {
	p := start(t, 4, 4, "UPSTREAM_TIMEOUT=500ms", "CACHE_SOFT_TTL=1s", "RATE_PER_SECOND=50", "RATE_BURST=120", "MAX_WAIT=1s", "KEY_SLOTS=4", "MAX_IN_FLIGHT=6")
	budget := devstack.NewGateStore(p.Client, p.Config.CoordinationTable)
	lift := func() {
		if _, err := budget.Lift(t.Context(), true); err == nil {
			time.Sleep(1050 * time.Millisecond) // what instances have seen counts for a second
		} else if !errors.Is(err, dynamo.ErrNothingToDo) {
			t.Fatal(err)
		}
	}
	stored := accords(1)[0]
	if a := p.decode(t, stored); a.status != http.StatusOK {
		t.Fatal(a.text)
	}
	time.Sleep(1100 * time.Millisecond) // past its freshness from now on
	half, after := 0.5, standin.Duration(2*time.Second)
	rules := []standin.Rule{
		{Kind: standin.HTTP429, RetryAfter: standin.RetryAfter{After: &after}}, {Kind: standin.HTTP429}, {Kind: standin.HTTP403}, {Kind: standin.HTTP503}, {Kind: standin.HTTP504},
		{Kind: standin.XML}, {Kind: standin.Truncated}, {Kind: standin.ShortBody}, {Kind: standin.Reset}, {Kind: standin.ResetMidBody}, {Kind: standin.WrongVIN}, {Kind: standin.ErrorMessage},
		{Kind: standin.SlowBody, Over: standin.Duration(2 * time.Second)}, {Kind: standin.Hang},
	}
	codes := map[string]int{}
	next := 1
	for _, r := range rules {
		lift()
		r.Probability = &half
		p.faults(t, standin.Faults{Seed: 1, Rules: []standin.Rule{r}})
		vins := accords(next + 10)[next:]
		next += 10
		at := map[string]int{}
		for i, a := range p.all(t, vins) {
			honest(t, vins[i], a)
			code := fmt.Sprint(a.body["code"])
			if a.status == http.StatusOK {
				code = "answered"
			}
			at[code]++
			codes[code]++
			for _, foreign := range []string{"<html", "<!DOCTYPE", "<?xml", "Results returned"} {
				if a.status != http.StatusOK && strings.Contains(a.text, foreign) {
					t.Errorf("%s: something of NHTSA's left: %s", r.Kind, a.text)
				}
			}
		}
		t.Logf("%-15s %v", r.Kind, at)
		if a := p.decode(t, stored); a.status != http.StatusOK || a.provenance()["source"] != "cache" && a.provenance()["source"] != "nhtsa" {
			t.Errorf("%s: the stored answer: %d %s", r.Kind, a.status, a.text)
		} else if honest(t, stored, a); a.provenance()["stale"] == true && !strings.Contains(a.header.Get("Cache-Status"), "detail=") {
			t.Errorf("%s: Cache-Status %q", r.Kind, a.header.Get("Cache-Status"))
		}
	}
	t.Logf("all: %v", codes)
	for _, want := range []string{"answered", "UPSTREAM_THROTTLED", "UPSTREAM_UNAVAILABLE", "UPSTREAM_BAD_RESPONSE", "UPSTREAM_TIMEOUT"} {
		if codes[want] == 0 {
			t.Errorf("nobody was told %s: this shows little", want)
		}
	}
	lift()
	p.faults(t, standin.Faults{})
	until(t, "decoding goes on", 10*time.Second, func() bool { next++; return p.decode(t, accords(next)[next-1]).status == http.StatusOK })
	p.empty(t)
}

// The store is stopped by force under load and started again: no call without a place that was granted, and service within two seconds of its return.
func TestTheStoreStopsAndComesBackUnderLoad(t *testing.T) {
	parent := child.NewParent()
	t.Cleanup(parent.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	file := filepath.Join(t.TempDir(), "store.db")
	startStore := func() *child.Child {
		c, err := parent.Start(child.Spec{Path: places.Dynoxide, Args: []string{"serve", "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--db-path", file}})
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the store answers", 10*time.Second, func() bool {
			res, err := http.Get(url)
			if err == nil {
				_ = res.Body.Close()
			}
			return err == nil
		})
		return c
	}
	store := startStore()
	p := startWith(t, devstack.Options{StoreURL: url, Client: devstack.LocalClient(url, "us-east-1"), Instances: 4, Concurrency: 4},
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_REGION=us-east-1", "RATE_PER_SECOND=20", "RATE_BURST=40", "MAX_WAIT=1s")
	p.faults(t, fixed(150*time.Millisecond))

	const outage = 1500 * time.Millisecond
	vins := accords(400)
	var next, late atomic.Int32
	var mu sync.Mutex
	var all []timed
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 6 { // each asks for another VIN as soon as it has an answer
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= len(vins) {
					return
				}
				began := time.Now()
				a, err := get(p.EdgeURL + "/v1/vins/" + vins[n])
				if err != nil {
					t.Errorf("%s: %v", vins[n], err)
					return
				}
				honest(t, vins[n], a)
				if detail, _ := a.body["detail"].(string); strings.Contains(detail, "too late to be used") {
					late.Add(1)
				}
				mu.Lock()
				all = append(all, timed{a, began, time.Since(began)})
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	time.Sleep(1200 * time.Millisecond)
	store.Kill()
	<-store.Done()
	down := time.Now()
	time.Sleep(outage)
	startStore()
	back := time.Now()
	time.Sleep(3 * time.Second)
	cancel()
	wg.Wait()

	s := p.stats(t)
	codes := map[string]int{}
	first, slowest := time.Duration(0), time.Duration(0)
	for _, a := range all {
		code := fmt.Sprint(a.body["code"])
		if a.status == http.StatusOK {
			code = "answered"
			if done := a.began.Add(a.took); a.began.After(down.Add(time.Second)) && done.After(back) && (first == 0 || done.Sub(back) < first) {
				first = done.Sub(back)
			}
		}
		codes[code]++
		if code == "COORDINATION_UNAVAILABLE" && a.began.After(down) { // others may have waited in the line before
			slowest = max(slowest, a.took)
		}
	}
	granted := strings.Count(p.log.String(), `"Admissions":1`)
	t.Logf("%v; %d calls for %d places granted, %d of them too late; the slowest was told after %v; served again %v after the store's return", codes, s.Calls, granted, late.Load(), slowest, first)
	if int(s.Calls)+int(late.Load()) != granted {
		t.Errorf("%d calls, %d too late, and %d places granted", s.Calls, late.Load(), granted)
	}
	// A call that had its place starts within START_GRACE; after that nobody calls until the store is back.
	quiet := 0
	for _, at := range s.Starts {
		if when := time.UnixMicro(at); when.After(down.Add(500*time.Millisecond)) && when.Before(back) {
			quiet++
		}
	}
	if quiet > 0 {
		t.Errorf("%d calls started without a store", quiet)
	}
	if first == 0 || first > 2*time.Second {
		t.Errorf("served again %v after the store's return", first)
	}
	if codes["COORDINATION_UNAVAILABLE"] == 0 || codes["answered"] == 0 {
		t.Error("this shows little")
	}
	if slowest > 1200*time.Millisecond {
		t.Errorf("somebody waited %v for nothing", slowest)
	}
}
