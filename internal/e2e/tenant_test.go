package e2e

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"vingate/internal/devstack"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
)

// as asks from an address of the loopback, with a key or without.
func (p *product) as(t *testing.T, address, apiKey, vin string) answer {
	t.Helper()
	dial := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dial.DialContext, DisableKeepAlives: true}, Timeout: time.Minute}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.EdgeURL+"/v1/vins/"+vin, nil)
	if err != nil {
		t.Fatal(err)
	}
	if apiKey != "" {
		req.Header.Set("X-Api-Key", apiKey)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(b)}
	if err := json.Unmarshal(b, &a.body); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return a
}

// key is a new one of a tenant.
func (p *product) key(t *testing.T, id string) string {
	t.Helper()
	var random [tenant.KeyEntropy]byte
	_, _ = rand.Read(random[:])
	apiKey, hash := tenant.NewAPIKey(random)
	ring := &tenants.Keyring{Client: p.Client, Table: p.Config.CoordinationTable}
	if err := ring.Create(t.Context(), tenant.Key{Hash: hash, Tenant: id, Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return apiKey
}

// A tenant who has used his share is refused for it, by every instance, and nobody else is.
func TestATenantsBucketIsHisAloneOnEveryInstance(t *testing.T) {
	p := start(t, 3, 1, "RATE_PER_SECOND=20", "RATE_BURST=40", "ANON_RATE_PER_SECOND=0.05", "ANON_BURST=5")
	apiKey := p.key(t, "abcdefghijkl")
	vins := accords(16)
	served := 0
	for _, vin := range vins[:8] {
		a := p.as(t, "127.0.0.2", "", vin)
		honest(t, vin, a)
		switch {
		case a.status == http.StatusOK:
			served++
		case a.status != http.StatusTooManyRequests || a.body["code"] != "RATE_LIMITED" || a.body["scope"] != "tenant":
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	if s := p.stats(t); served != 5 || s.Calls != 5 {
		t.Errorf("%d served and %d calls of a burst of 5", served, s.Calls)
	}
	for _, other := range []answer{p.as(t, "127.0.0.3", "", vins[8]), p.as(t, "127.0.0.2", apiKey, vins[9])} {
		if other.status != http.StatusOK {
			t.Errorf("another tenant: %s", other.text)
		}
	}
	if a := p.as(t, "127.0.0.2", "", vins[0]); a.status != http.StatusOK {
		t.Errorf("a stored answer: %s", a.text)
	}
	p.empty(t)
}

// The kill switch: every instance stops, stored answers still go out, and nothing is left of it when it is lifted.
func TestTheKillSwitchStopsEveryInstance(t *testing.T) {
	p := start(t, 3, 1, "RATE_PER_SECOND=20", "RATE_BURST=40")
	vins := accords(8)
	for _, vin := range vins[:3] {
		if a := p.decode(t, vin); a.status != http.StatusOK {
			t.Fatalf("%s", a.text)
		}
	}
	budget := devstack.NewGateStore(p.Client, p.Config.CoordinationTable)
	if _, err := budget.Pause(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for i, a := range p.all(t, vins[3:6]) {
		honest(t, vins[3+i], a)
		after, _ := a.body["retryAfterSeconds"].(float64)
		if a.status != http.StatusTooManyRequests || a.body["scope"] != "upstream-budget" || after < 50 || after > 68 { // the hold, twice the clocks, and the spread of those who come back
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	if a := p.decode(t, vins[0]); a.status != http.StatusOK {
		t.Errorf("a stored answer: %s", a.text)
	}
	if s := p.stats(t); s.Calls != 3 {
		t.Errorf("%d calls, of which 3 before the switch", s.Calls)
	}
	if _, err := budget.Lift(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	until(t, "instances call again", 3*time.Second, func() bool { return p.decode(t, vins[7]).status == http.StatusOK })
}
