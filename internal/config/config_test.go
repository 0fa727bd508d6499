package config

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
	"vingate/internal/vpic"
)

const key = "0123456789abcdef0123456789abcdef"

func env(pairs ...string) func(string) string {
	m := map[string]string{tenantHashKey: key}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// faults loads and returns the lines of the error by variable.
func faults(t *testing.T, getenv func(string) string) map[string][]string {
	t.Helper()
	_, err := Load(getenv)
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Load: %T, want *Error", err)
	}
	if n := len(strings.Split(err.Error(), "\n")); n != len(e.Faults)+1 {
		t.Fatalf("%d lines for %d faults, want one each and a head:\n%v", n, len(e.Faults), err)
	}
	lines := map[string][]string{}
	for _, f := range e.Faults {
		lines[f.Variable] = append(lines[f.Variable], f.String())
	}
	return lines
}

func TestDefaultsAreValid(t *testing.T) {
	cfg, err := Load(env())
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Gate: Gate{CoordinationTable: "vingate-coordination", ResultsTable: "vingate-results", MetricsNamespace: "vingate", Knobs: gate.Knobs{
			MaxInFlight: 4, RatePerSecond: 2, Burst: 10, MaxQueued: 24,
			BulkheadInteractive: 8, BulkheadBatch: 2, BulkheadAnon: 16,
			LeaseTTL: 15 * time.Second, SkewBound: 250 * time.Millisecond, StartGrace: 250 * time.Millisecond, Attempt: gate.Attempt,
		}},
		UpstreamURL: "https://vpic.nhtsa.dot.gov/api/vehicles", UpstreamTimeout: 10 * time.Second,
		MaxWait: 3 * time.Second, MaxWaitBatch: 15 * time.Second, BulkheadWait: 2 * time.Second, RequestDeadline: 27 * time.Second,
		Tenant: Rate{1, 20}, Anon: Rate{1, 20}, BatchTokenCost: 1, TenantHashKey: Secret(key),
		CacheTTL: 720 * time.Hour, CacheSoftTTL: 168 * time.Hour, NegativeTTL: 24 * time.Hour,
	}
	if got, w := show(cfg), show(want); got != w {
		t.Errorf("defaults\n got %s\nwant %s", got, w)
	}
	tools, err := LoadGate(func(string) string { return "" })
	if err != nil {
		t.Errorf("LoadGate without any variable: %v", err)
	}
	if tools != cfg.Gate {
		t.Errorf("LoadGate = %+v, want what Load has: %+v", tools, cfg.Gate)
	}
}

func TestEveryVariableIsRead(t *testing.T) {
	for _, v := range Variables() {
		read := map[string]bool{}
		_, _ = Load(func(name string) string { read[name] = true; return "" })
		if !read[v.Name] {
			t.Errorf("%s is listed but not read", v.Name)
		}
		if v.Description == "" || strings.HasSuffix(v.Description, ".") {
			t.Errorf("%s needs a description without a full stop", v.Name)
		}
	}
}

func TestAFaultNamesVariableValueAndRemedy(t *testing.T) {
	for _, tc := range []struct {
		name     string
		env      []string
		variable string
		says     []string // all of these stand in the variable's lines
	}{
		{"no key", []string{tenantHashKey, ""}, tenantHashKey, []string{"(unset)", "at least 16 bytes"}},
		{"short key", []string{tenantHashKey, "hunter2hunter2x"}, tenantHashKey, []string{"(15 bytes, not shown)", "at least 16 bytes"}},
		{"a word for a number", []string{maxInFlight, "four"}, maxInFlight, []string{`"four"`, "whole number", "such as 4"}},
		{"half a slot", []string{maxInFlight, "2.5"}, maxInFlight, []string{`"2.5"`}},
		{"no slots", []string{maxInFlight, "0"}, maxInFlight, []string{`"0"`}},
		{"negative slots", []string{maxInFlight, "-1"}, maxInFlight, []string{`"-1"`}},
		{"a number beyond 64 bits", []string{maxInFlight, "99999999999999999999"}, maxInFlight, []string{"whole number that fits"}},
		{"more slots than the gate takes", []string{maxInFlight, "65"}, maxInFlight, []string{"not between 1 and 64"}},
		{"more key slots than slots", []string{keySlots, "4"}, keySlots, []string{"between 0 and 3"}},
		{"more batch slots than slots", []string{batchSlots, "9"}, batchSlots, []string{"between 0 and 3"}},
		{"NaN", []string{ratePerSecond, "NaN"}, ratePerSecond, []string{`"NaN"`, "number"}},
		{"infinite rate", []string{ratePerSecond, "Inf"}, ratePerSecond, []string{`"Inf"`}},
		{"negative rate", []string{ratePerSecond, "-2"}, ratePerSecond, []string{`"-2"`}},
		{"zero rate", []string{ratePerSecond, "0"}, ratePerSecond, []string{`"0"`}},
		{"huge rate", []string{ratePerSecond, "1e300"}, ratePerSecond, []string{`"1e300"`}},
		{"a burst that cannot keep any window", []string{ratePerSecond, "20"}, rateBurst, []string{`"10" (default)`, "Use at least"}},
		{"a duration without unit", []string{leaseTTL, "15"}, leaseTTL, []string{`"15"`, "with a unit", "such as 15s"}},
		{"negative duration", []string{leaseTTL, "-15s"}, leaseTTL, []string{`"-15s"`}},
		{"huge duration", []string{leaseTTL, "2540400h"}, leaseTTL, []string{`"2540400h"`}},
		{"overflowing duration", []string{leaseTTL, "9999999999h"}, leaseTTL, []string{"duration"}},
		{"lease shorter than the skew", []string{leaseTTL, "1s"}, leaseTTL, []string{"LEASE_TTL", "1s is not between"}},
		{"a call that outlives its lease", []string{upstreamTimeout, "14s", requestDeadline, "28s", maxWaitBatch, "1s"}, upstreamTimeout, []string{`"14s"`, "outlive its lease", "13.25s", "raise LEASE_TTL"}},
		{"a deadline beyond API Gateway's cap", []string{requestDeadline, "30s"}, requestDeadline, []string{`"30s"`, "1s to 29s"}},
		{"a deadline below the batch's wait", []string{requestDeadline, "20s"}, requestDeadline, []string{"MAX_WAIT_BATCH", "27s"}},
		{"a deadline below the single wait", []string{maxWait, "20s"}, requestDeadline, []string{"whole of MAX_WAIT:", "32s"}},
		{"a deadline that leaves no time for a call", []string{requestDeadline, "3s", upstreamTimeout, "1s", maxWait, "0s", maxWaitBatch, "0s"}, requestDeadline, []string{"no time for a call", "4s", "lower UPSTREAM_TIMEOUT"}},
		{"a namespace that is AWS's own", []string{metricsNamespace, "AWS/Lambda"}, metricsNamespace, []string{`"AWS/Lambda"`, "do not begin with AWS/"}},
		{"an origin with a path", []string{corsOrigins, "https://a.example/page"}, corsOrigins, []string{"no origin", "https://www.example.org"}},
		{"an origin with a slash", []string{corsOrigins, "https://a.example/"}, corsOrigins, []string{"no origin"}},
		{"an origin without a scheme", []string{corsOrigins, "https://a.example, b.example"}, corsOrigins, []string{"no origin"}},
		{"an origin with its usual port", []string{corsOrigins, "https://a.example:443"}, corsOrigins, []string{"no origin"}},
		{"an origin with a user", []string{corsOrigins, "https://u@a.example"}, corsOrigins, []string{"no origin"}},
		{"the origin null", []string{corsOrigins, "null"}, corsOrigins, []string{"no origin"}},
		{"all origins and one", []string{corsOrigins, "*,https://a.example"}, corsOrigins, []string{"* beside other origins"}},
		{"a namespace with a blank", []string{metricsNamespace, "my gate"}, metricsNamespace, []string{"is not a CloudWatch namespace"}},
		{"a relative URL", []string{upstreamURL, "/api/vehicles"}, upstreamURL, []string{"absolute URL", "such as https://"}},
		{"a URL of another scheme", []string{upstreamURL, "ftp://example.org/api"}, upstreamURL, []string{"https:// or http://"}},
		{"a host without scheme", []string{upstreamURL, "vpic.nhtsa.dot.gov/api"}, upstreamURL, []string{"https:// or http://"}},
		{"a URL with a query", []string{upstreamURL, "https://example.org/api?format=json"}, upstreamURL, []string{"without ? or #", "path only"}},
		{"a URL with an empty fragment", []string{upstreamURL, "https://example.org/api#"}, upstreamURL, []string{"without ? or #"}},
		{"a URL with a port alone", []string{upstreamURL, "https://:443/api"}, upstreamURL, []string{"names no host"}},
		{"a URL with a user", []string{upstreamURL, "https://me:pw@example.org/api"}, upstreamURL, []string{"user or a password", "path only"}},
		{"a contact with a line break", []string{upstreamContact, "me@example.org\r\nX: y"}, upstreamContact, []string{"HTTP header", `\r\n`}},
		{"a contact with a name", []string{upstreamContact, "An Operator <ops@example.org>"}, upstreamContact, []string{"HTTP header", "alone"}},
		{"soft after hard", []string{cacheTTL, "1h"}, cacheSoftTTL, []string{`"168h" (default)`, "longer than CACHE_TTL (1h0m0s)"}},
		{"a batch dearer than the bucket", []string{batchTokenCost, "3"}, batchTokenCost, []string{"15 tokens", "RATE_BURST (10)", "lower it or raise RATE_BURST to at least 18"}},
		{"a batch dearer than what clocks leave of the bucket", []string{rateBurst, "5"}, batchTokenCost, []string{"5 tokens", "RATE_BURST (5)", "clocks", "; raise RATE_BURST to at least 8"}},

		{"a batch dearer than the tenant's bucket", []string{tenantBurst, "4"}, batchTokenCost, []string{"5 tokens", "TENANT_BURST (4)", "; raise TENANT_BURST to at least 5"}},
		{"one table for two", []string{resultsTable, "vingate-coordination"}, resultsTable, []string{"same table"}},
		{"a table name with a blank", []string{resultsTable, "my table"}, resultsTable, []string{"DynamoDB table name"}},
		{"a very long value", []string{resultsTable, strings.Repeat("x", 5000)}, resultsTable, []string{"(5000 bytes)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := faults(t, env(tc.env...))
			all := strings.Join(got[tc.variable], "\n")
			if all == "" {
				t.Fatalf("no fault for %s, only %v", tc.variable, got)
			}
			for _, s := range tc.says {
				if !strings.Contains(all, s) {
					t.Errorf("%q is missing in %s", s, all)
				}
			}
			if len(all) > 1000 {
				t.Errorf("a fault of %d bytes", len(all))
			}
		})
	}
}

func TestAllFaultsComeInOneErrorInTheOrderOfTheTable(t *testing.T) {
	_, err := Load(env(tenantHashKey, "s3cr3t", negativeTTL, "soon", upstreamURL, "nowhere", maxInFlight, "many", leaseTTL, "0s"))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Load: %v", err)
	}
	var names []string
	for _, f := range e.Faults {
		names = append(names, f.Variable)
	}
	if got, want := strings.Join(names, " "), "UPSTREAM_URL MAX_IN_FLIGHT LEASE_TTL NEGATIVE_TTL TENANT_HASH_KEY"; got != want {
		t.Errorf("faults of %s, want of %s\n%v", got, want, err)
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the secret is shown: %v", err)
	}
}

func TestASecretIsShownByNoVerb(t *testing.T) {
	cfg, err := Load(env())
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", "config", cfg, "key", cfg.TenantHashKey)
	for _, s := range []string{fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg), fmt.Sprintf("%s %x %q %d", cfg.TenantHashKey, cfg.TenantHashKey, cfg.TenantHashKey, cfg.TenantHashKey), string(encoded), log.String()} {
		for _, bytes := range []string{key, fmt.Sprintf("%x", key), "48 49 50", base64.StdEncoding.EncodeToString([]byte(key))} {
			if strings.Contains(s, bytes) {
				t.Errorf("the key is shown as %s in %s", bytes, s)
			}
		}
	}
}

func TestValuesAreReadWithoutBlanksAround(t *testing.T) {
	cfg, err := Load(env(maxInFlight, " 6\n", upstreamURL, "http://127.0.0.1:9/api/vehicles/ ", keySlots, " ", rateBurst, "+12"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Knobs.MaxInFlight != 6 || cfg.UpstreamURL != "http://127.0.0.1:9/api/vehicles" || cfg.Knobs.KeySlots != 0 || cfg.Knobs.Burst != 12 {
		t.Errorf("read %d, %q, %d, %d", cfg.Knobs.MaxInFlight, cfg.UpstreamURL, cfg.Knobs.KeySlots, cfg.Knobs.Burst)
	}
}

// Whatever stands in the environment: either the configuration keeps the inequalities, or Load says what does not.
func TestProperty_AcceptedMeansConsistent(t *testing.T) {
	values := map[string]*rapid.Generator[string]{}
	for _, v := range Variables() {
		base := []string{v.Default, "", "0", "1", "2", "5", "-1", "1e9", "NaN", "1s", "100ms", "14s", "48h", "x", "1000000000000h"}
		values[v.Name] = rapid.SampledFrom(base)
	}
	values[tenantHashKey] = rapid.SampledFrom([]string{key, key, key, ""})
	names := Variables()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		chosen := map[string]string{tenantHashKey: key}
		for range rapid.IntRange(0, 3).Draw(t, "changed") {
			name := rapid.SampledFrom(names).Draw(t, "variable").Name
			chosen[name] = values[name].Draw(t, name)
		}
		c, err := Load(func(n string) string { return chosen[n] })
		if err != nil {
			return
		}
		accepted++
		k := c.Knobs
		if len(k.Validate()) > 0 {
			t.Fatalf("knobs: %v", k.Validate())
		}
		if c.UpstreamTimeout+k.StartGrace+2*k.SkewBound+gate.Margin > k.LeaseTTL {
			t.Fatalf("a call of %v outlives a lease of %v", c.UpstreamTimeout, k.LeaseTTL)
		}
		if c.RequestDeadline > 29*time.Second || max(c.MaxWait, c.MaxWaitBatch, time.Second)+c.UpstreamTimeout+AfterCall > c.RequestDeadline {
			t.Fatalf("deadline %v for waits %v, %v and a call of %v", c.RequestDeadline, c.MaxWait, c.MaxWaitBatch, c.UpstreamTimeout)
		}
		if c.CacheSoftTTL > c.CacheTTL || c.CacheSoftTTL <= 0 || c.NegativeTTL <= 0 {
			t.Fatalf("lives %v %v %v", c.CacheSoftTTL, c.CacheTTL, c.NegativeTTL)
		}
		if math.IsNaN(c.Tenant.PerSecond) || c.Tenant.PerSecond <= 0 || 5*c.BatchTokenCost > min(c.Tenant.Burst, c.Anon.Burst) || !meets(k, 5*c.BatchTokenCost) {
			t.Fatalf("batch of %d against %+v %+v %d", c.BatchTokenCost, c.Tenant, c.Anon, k.Burst)
		}
	})
	if accepted == 0 {
		t.Error("no configuration was accepted: the property showed nothing")
	}
}

// meets says whether an idle gate with these knobs admits a call of this cost, now or ever: asked of the gate itself.
func meets(k gate.Knobs, cost int) bool {
	now := gate.Micros(1e15)
	_, _, refusal := gate.NewState(k, now, false).Plan(now, gate.Request{ID: "full", Key: gate.Key{Route: gate.Batch, Tenant: "t"}, Cost: cost})
	return refusal == nil
}

// What the message advises is the least that helps.
func TestTheAdvisedBurstIsTheLeastThatMeetsAFullBatch(t *testing.T) {
	advised := regexp.MustCompile(`raise RATE_BURST to at least (\d+)`)
	given := 0
	rapid.Check(t, func(t *rapid.T) {
		e := []string{
			batchTokenCost, strconv.Itoa(rapid.IntRange(1, 20).Draw(t, "cost")), rateBurst, strconv.Itoa(rapid.IntRange(2, 60).Draw(t, "burst")),
			ratePerSecond, strconv.FormatFloat(rapid.Float64Range(0.1, 50).Draw(t, "rate"), 'g', 4, 64), clockSkewBound, strconv.Itoa(rapid.IntRange(0, 2000).Draw(t, "skew")) + "ms",
			tenantBurst, "1000", anonBurst, "1000", leaseTTL, "30s",
		}
		_, err := Load(env(e...))
		if err == nil {
			return
		}
		m := advised.FindStringSubmatch(err.Error())
		if m == nil {
			return
		}
		given++
		least, _ := strconv.Atoi(m[1])
		for _, burst := range []int{least, least - 1} {
			cfg, err := Load(env(append(e, rateBurst, strconv.Itoa(burst))...))
			if ok := err == nil && meets(cfg.Knobs, 5*cfg.BatchTokenCost); ok != (burst == least) {
				t.Fatalf("%v with RATE_BURST=%d: %v", e, burst, err)
			}
		}
	})
	if given == 0 {
		t.Error("no burst was advised: the property showed nothing")
	}
}

// What is accepted here can be called: the client takes it.
func TestProperty_WhatIsAcceptedTheClientTakes(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		anything := rapid.OneOf(rapid.String(), rapid.StringMatching(`(http|https|HTTPS|ftp)?(://|:|//)?[a-z.:@\[\]]{0,8}(:[0-9]{0,6})?(/[a-z%#?/ .]{0,6})?`))
		url := rapid.OneOf(anything, rapid.StringMatching(`https?://[a-z.]{1,8}(:[0-9]{1,6})?(/[a-z%#?@ .]{0,3})?/?`)).Draw(t, "url")
		contact := rapid.OneOf(anything, rapid.StringMatching(`[!-~ é]{0,6}`), rapid.StringMatching(`[a-z@.]{150,250}`)).Draw(t, "contact")
		cfg, err := Load(env(upstreamURL, url, upstreamContact, contact))
		if err != nil {
			return
		}
		accepted++
		if _, err := vpic.New(vpic.Config{BaseURL: cfg.UpstreamURL, Timeout: cfg.UpstreamTimeout, Contact: cfg.UpstreamContact}); err != nil {
			t.Fatalf("%q and %q: %v", url, contact, err)
		}
	})
	if accepted == 0 {
		t.Error("nothing was accepted: the property showed nothing")
	}
}

func show(c Config) string {
	return strings.Join([]string{strconv.Quote(string(c.TenantHashKey)), c.UpstreamURL, c.UpstreamContact, c.CoordinationTable, c.ResultsTable, c.MetricsNamespace, c.Knobs.Pack(), strings.Join(c.CORSOrigins, ","),
		c.UpstreamTimeout.String(), c.MaxWait.String(), c.MaxWaitBatch.String(), c.BulkheadWait.String(), c.RequestDeadline.String(),
		c.CacheTTL.String(), c.CacheSoftTTL.String(), c.NegativeTTL.String(), strconv.Itoa(c.BatchTokenCost),
		strconv.FormatFloat(c.Tenant.PerSecond, 'g', -1, 64), strconv.Itoa(c.Tenant.Burst), strconv.FormatFloat(c.Anon.PerSecond, 'g', -1, 64), strconv.Itoa(c.Anon.Burst)}, " ")
}

func TestOriginsAreReadAsBrowsersSendThem(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " , ": "", "*": "*", "HTTPS://A.Example": "https://a.example", "http://127.0.0.1:8080": "http://127.0.0.1:8080",
		"https://a.example,https://b.example:8443 , https://a.example": "https://a.example https://b.example:8443", "http://[::1]:3000": "http://[::1]:3000",
	} {
		cfg, err := Load(env(corsOrigins, in))
		if got := strings.Join(cfg.CORSOrigins, " "); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}
