//go:build unix

package edge_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vingate/internal/config"
	"vingate/internal/ddb"
	"vingate/internal/decode"
	"vingate/internal/devstack"
	"vingate/internal/edge"
	"vingate/internal/gate/dynamo"
	"vingate/internal/logtest"
	"vingate/internal/results"
	"vingate/internal/tenant"
	tenants "vingate/internal/tenant/dynamo"
	"vingate/internal/vpic"
)

// canary stands in every body of NHTSA's that must not leave the edge.
const canary = "UPSTREAM-TEXT-9917"

// nhtsa plays NHTSA over HTTP. What it does is decided by the VIN's first characters.
type nhtsa struct {
	*httptest.Server
	calls atomic.Int32
	hang  chan struct{} // closed when hanging answers may go on
}

func startNHTSA(t *testing.T) *nhtsa {
	n := &nhtsa{hang: make(chan struct{})}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.calls.Add(1)
		vin := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		body := fmt.Sprintf(`{"Count":1,"Message":"Results returned successfully","SearchCriteria":"VIN(s): %[1]s","Results":[{"ErrorCode":"0","ErrorText":"0 - VIN decoded clean.","Make":"HONDA","Manufacturer":"AMERICAN HONDA MOTOR CO., INC.","Model":"Accord","ModelYear":"2003","VIN":"%[1]s"}]}`, vin)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		switch vin[:3] {
		case "1AA": // a gateway's error page
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = io.WriteString(w, "<html><h1>"+canary+"</h1></html>")
		case "1BB": // the body never ends
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, body)
			w.(http.Flusher).Flush()
			<-n.hang
		case "1CC": // an error page with status 200
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!DOCTYPE html>"+canary)
		case "1DD": // somebody else's VIN
			_, _ = io.WriteString(w, strings.ReplaceAll(body, vin, "1FTMW1T88MFA00001"))
		case "1EE": // broken off
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, body+canary)
		default:
			_, _ = io.WriteString(w, body)
		}
	}))
	t.Cleanup(func() { close(n.hang); n.Close() })
	return n
}

// panicking calls NHTSA and then panics for one VIN.
type panicking struct{ *vpic.Client }

func (p panicking) Decode(ctx context.Context, q vpic.Query) (vpic.Answer, error) {
	a, err := p.Client.Decode(ctx, q)
	if strings.HasPrefix(q.VIN, "1FF") {
		panic("a fault of ours")
	}
	return a, err
}

type stack struct {
	*edge.Handler
	nhtsa  *nhtsa
	budget *dynamo.Store
	keys   *tenants.Keyring
	again  func() *edge.Handler // another instance
	log    *logtest.Buffer
}

// start wires an edge as the function does, over a real store and a played NHTSA.
func start(t *testing.T, env ...string) *stack {
	t.Helper()
	n := startNHTSA(t)
	local, err := devstack.Start(t.Context(), devstack.Options{
		Dynoxide: devstack.Find(".", os.Getenv).Dynoxide, UpstreamURL: n.URL + "/api/vehicles",
		Env: append([]string{"RATE_PER_SECOND=50", "RATE_BURST=120", "ANON_RATE_PER_SECOND=50", "ANON_BURST=120", "UPSTREAM_TIMEOUT=1s"}, env...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Close)
	cfg := local.Config
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", local.StoreURL)
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	client, err := ddb.New(os.Getenv, ddb.RequestPath())
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := vpic.New(vpic.Config{BaseURL: cfg.UpstreamURL, Timeout: cfg.UpstreamTimeout, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{nhtsa: n, log: &logtest.Buffer{}}
	log := slog.New(slog.NewJSONHandler(s.log, nil))
	s.budget = dynamo.New(dynamo.Config{Client: client, Table: cfg.CoordinationTable, Name: "nhtsa", Now: time.Now, NewID: func() string { return rand.Text()[:10] }})
	s.keys = &tenants.Keyring{Client: local.Client, Table: cfg.CoordinationTable}
	s.again = func() *edge.Handler {
		accounts := tenants.New(tenants.Config{Client: client, Table: cfg.CoordinationTable, Now: time.Now, SkewBound: cfg.Knobs.SkewBound})
		callers, err := tenant.New(tenant.Config{HashKey: cfg.TenantHashKey, Keys: accounts, Keyed: plan(cfg.Tenant), Anonymous: plan(cfg.Anon)})
		if err != nil {
			t.Fatal(err)
		}
		budget := dynamo.New(s.budget.Config)
		service := decode.New(decode.Config{
			Gate: budget, Tenants: accounts, Upstream: panicking{upstream},
			Results:         results.New(results.Config{Client: client, Table: cfg.ResultsTable, Lives: results.Lives{Hard: cfg.CacheTTL, Soft: cfg.CacheSoftTTL, Negative: cfg.NegativeTTL}}),
			UpstreamTimeout: cfg.UpstreamTimeout, RequestDeadline: cfg.RequestDeadline, AfterCall: config.AfterCall, Log: log,
		})
		return edge.New(edge.Config{Decoder: service, Gate: budget, Callers: callers, Version: "test", Log: log})
	}
	s.Handler = s.again()
	return s
}

func plan(r config.Rate) tenant.Plan {
	return tenant.Plan{RatePerSecond: r.PerSecond, Burst: r.Burst}
}

func (s *stack) get(t *testing.T, path string) (status int, body map[string]any, raw string) {
	t.Helper()
	return s.getWith(t, "", path)
}

func (s *stack) getWith(t *testing.T, apiKey, path string) (status int, body map[string]any, raw string) {
	t.Helper()
	out, err := s.Invoke(t.Context(), fmt.Appendf(nil,
		`{"version":"2.0","rawPath":%q,"headers":{"x-api-key":%q},"requestContext":{"stage":"$default","requestId":"r","http":{"method":"GET","sourceIp":"127.0.0.2"}}}`, path, apiKey))
	if err != nil {
		t.Fatal(err)
	}
	var res struct {
		StatusCode int
		Body       string
	}
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(res.Body), &body); err != nil {
		t.Fatalf("%v in %s", err, res.Body)
	}
	return res.StatusCode, body, string(out)
}

// held reads the gate itself, not a view that may be a second old.
func (s *stack) held(t *testing.T) int {
	t.Helper()
	fresh := dynamo.New(s.budget.Config)
	v, err := fresh.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.InFlight
}

func TestThroughTheRealStore(t *testing.T) {
	s := start(t)
	t.Run("live, then stored", func(t *testing.T) {
		for _, source := range []string{"nhtsa", "cache", "cache"} {
			status, body, raw := s.get(t, "/v1/vins/1hgcm-82633a004352")
			if status != 200 || body["make"] != "HONDA" || body["provenance"].(map[string]any)["source"] != source {
				t.Errorf("want %s: %s", source, raw)
			}
		}
		if n := s.nhtsa.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
		if n := s.held(t); n != 0 {
			t.Errorf("%d leases are held", n)
		}
	})
	// One table for the ways in which a call ends badly. After each of them nothing is held, and nothing is stored.
	for _, tc := range []struct {
		name, vin string
		status    int
		code      string
	}{
		{"Pelican69: an error page is never shown", "1AACM82633A004352", 503, "UPSTREAM_UNAVAILABLE"},
		{"ConcurrencyLimits190: a body that is never read to its end", "1BBCM82633A004352", 504, "UPSTREAM_TIMEOUT"},
		{"an error page with status 200", "1CCCM82633A004352", 502, "UPSTREAM_BAD_RESPONSE"},
		{"another VIN's row", "1DDCM82633A004352", 502, "UPSTREAM_BAD_RESPONSE"},
		{"a connection that breaks", "1EECM82633A004352", 0, ""},
		{"Kubernetes97206: a panic", "1FFCM82633A004352", 500, "INTERNAL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 { // the second time too: nothing of the first was stored
				before := s.nhtsa.calls.Load()
				status, body, raw := s.get(t, "/v1/vins/"+tc.vin)
				if tc.status != 0 && (status != tc.status || body["code"] != tc.code) || status < 500 {
					t.Errorf("want %d %s: %s", tc.status, tc.code, raw)
				}
				for _, key := range []string{"make", "model", "modelYear", "fields", "summary", "vin"} {
					if _, there := body[key]; there {
						t.Errorf("a refusal with %s: %s", key, raw)
					}
				}
				for _, foreign := range []string{canary, "<html", "HONDA", "1FTMW1T88MFA00001"} {
					if strings.Contains(raw, foreign) || strings.Contains(s.log.String(), foreign) {
						t.Errorf("%s left the edge: %s\n%s", foreign, raw, s.log.String())
					}
				}
				if n := s.nhtsa.calls.Load() - before; n != 1 {
					t.Errorf("%d calls for one request", n)
				}
				if n := s.held(t); n != 0 {
					t.Fatalf("%d leases are held", n)
				}
			}
		})
	}
}

func TestManyAtOnceThroughTheRealStoreLeaveNothingHeld(t *testing.T) {
	s := start(t, "MAX_IN_FLIGHT=3")
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range 30 {
		wg.Go(func() {
			status, body, raw := s.get(t, fmt.Sprintf("/v1/vins/1HGCM82633A0043%02d", i))
			said := "decoded"
			if status != 200 {
				said, _ = body["code"].(string)
				if status != 429 || body["retryAfterSeconds"].(float64) < 1 {
					t.Errorf("%s", raw)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			answers[said]++
		})
	}
	wg.Wait()
	if int(s.nhtsa.calls.Load()) != answers["decoded"] || answers["decoded"] < 1 {
		t.Errorf("%d calls for %v", s.nhtsa.calls.Load(), answers)
	}
	if n := s.held(t); n != 0 {
		t.Errorf("%d leases are held", n)
	}
	// A refusal of ours is no failure of NHTSA's: nothing is held back, nothing shrank.
	if v, err := dynamo.New(s.budget.Config).View(t.Context()); err != nil || v.HeldFor != 0 || v.Limit != 3 {
		t.Errorf("view %+v, %v", v, err)
	}
}

func TestWithoutAStoreNobodyIsCalled(t *testing.T) {
	s := start(t)
	s.get(t, "/v1/vins/1HGCM82633A004352")
	calls := s.nhtsa.calls.Load()
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
	nowhere, err := ddb.New(os.Getenv, ddb.RequestPath())
	if err != nil {
		t.Fatal(err)
	}
	down := s.budget.Config
	down.Client = nowhere
	upstream, err := vpic.New(vpic.Config{BaseURL: s.nhtsa.URL, Timeout: time.Second, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	accounts := tenants.New(tenants.Config{Client: nowhere, Table: "t", Now: time.Now})
	anybody := tenant.Plan{RatePerSecond: 1, Burst: 20}
	callers, err := tenant.New(tenant.Config{HashKey: []byte("0123456789abcdef"), Keys: accounts, Keyed: anybody, Anonymous: anybody})
	if err != nil {
		t.Fatal(err)
	}
	budget := dynamo.New(down)
	service := decode.New(decode.Config{Gate: budget, Tenants: accounts, Upstream: upstream, Results: results.New(results.Config{Client: nowhere, Table: "t"}),
		UpstreamTimeout: time.Second, RequestDeadline: 27 * time.Second, AfterCall: config.AfterCall})
	dark := &stack{Handler: edge.New(edge.Config{Decoder: service, Gate: budget, Callers: callers, Version: "test"})}
	for _, path := range []string{"/v1/vins/1HGCM82633A004352", "/v1/capacity"} {
		began := time.Now()
		status, body, raw := dark.get(t, path)
		if status != 503 || body["code"] != "COORDINATION_UNAVAILABLE" || body["retryAfterSeconds"].(float64) < 1 {
			t.Errorf("%s", raw)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %v", path, took)
		}
	}
	if n := s.nhtsa.calls.Load(); n != calls {
		t.Errorf("%d calls without a budget", n-calls)
	}
}

// A key from its making to its end, and a tenant's bucket from full to dry, through every lane.
func TestAKeyAndItsBucketOnTheRealStore(t *testing.T) {
	s := start(t)
	var random [tenant.KeyEntropy]byte
	_, _ = rand.Read(random[:])
	apiKey, hash := tenant.NewAPIKey(random)
	if status, body, raw := s.getWith(t, apiKey, "/v1/vins/1HGCM82633A004352"); status != 401 || body["code"] != "API_KEY_UNKNOWN" {
		t.Errorf("before it is made: %s", raw)
	}
	if err := s.keys.Create(t.Context(), tenant.Key{Hash: hash, Tenant: "abcdefghijkl", Created: time.Now(), Plan: tenant.Plan{RatePerSecond: 0.01, Burst: 3}}); err != nil {
		t.Fatal(err)
	}
	one, other := s.again(), s.again() // the first has seen that there is none, and keeps that for a minute
	vins := []string{"1HGCM82633A004352", "1HGCM82653A004353", "1HGCM82673A004354", "1HGCM82693A004355", "1HGCM82603A004356"}
	ask := func(h *edge.Handler, key, vin string) (int, map[string]any, string) {
		return (&stack{Handler: h}).getWith(t, key, "/v1/vins/"+vin)
	}
	for i, vin := range vins[:3] {
		if status, _, raw := ask([]*edge.Handler{one, other}[i%2], apiKey, vin); status != 200 {
			t.Fatalf("decode %d: %s", i+1, raw)
		}
	}
	before, calls := s.state(t), s.nhtsa.calls.Load()
	time.Sleep(1100 * time.Millisecond) // views of the tenant are a second old at most
	for _, h := range []*edge.Handler{one, other} {
		status, body, raw := ask(h, apiKey, vins[3])
		if after, _ := body["retryAfterSeconds"].(float64); status != 429 || body["code"] != "RATE_LIMITED" || body["scope"] != "tenant" || after < 90 || after > 101 {
			t.Errorf("the bucket is dry: %s", raw)
		}
	}
	if status, _, raw := ask(one, apiKey, vins[0]); status != 200 || !strings.Contains(raw, `\"source\":\"cache\"`) {
		t.Errorf("a stored answer: %s", raw)
	}
	if after := s.state(t); after != before || s.nhtsa.calls.Load() != calls {
		t.Errorf("a tenant that is refused changed the gate: %s\nto %s", before, after)
	}
	if status, _, raw := ask(one, "", vins[4]); status != 200 {
		t.Errorf("somebody else: %s", raw)
	}
	if err := s.keys.Revoke(t.Context(), hash, time.Now()); err != nil {
		t.Fatal(err)
	}
	if status, body, raw := ask(s.again(), apiKey, vins[0]); status != 403 || body["code"] != "API_KEY_REVOKED" {
		t.Errorf("after its end: %s", raw)
	}
	if strings.Contains(s.log.String(), apiKey) || strings.Contains(s.log.String(), hash.Prefix()) || !strings.Contains(s.log.String(), "abcdefghijkl") {
		t.Errorf("logged: %s", s.log.String())
	}
}

// state is the gate as it is now.
func (s *stack) state(t *testing.T) string {
	t.Helper()
	i, err := dynamo.New(s.budget.Config).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v", i.State)
}
