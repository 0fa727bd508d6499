package config

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vingate/internal/gate"
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
		Gate: Gate{CoordinationTable: "vingate-coordination", ResultsTable: "vingate-results", Knobs: gate.Knobs{
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
		{"a deadline below the batch's wait", []string{requestDeadline, "20s"}, requestDeadline, []string{"MAX_WAIT_BATCH", "26s"}},
		{"a deadline below the single wait", []string{maxWait, "20s"}, requestDeadline, []string{"whole of MAX_WAIT:", "31s"}},
		{"a relative URL", []string{upstreamURL, "/api/vehicles"}, upstreamURL, []string{"absolute http or https URL"}},
		{"a URL of another scheme", []string{upstreamURL, "ftp://example.org/api"}, upstreamURL, []string{"absolute http or https URL"}},
		{"a host without scheme", []string{upstreamURL, "vpic.nhtsa.dot.gov/api"}, upstreamURL, []string{"absolute http or https URL"}},
		{"a URL with a query", []string{upstreamURL, "https://example.org/api?format=json"}, upstreamURL, []string{"leave out user, query"}},
		{"a URL with a user", []string{upstreamURL, "https://me:pw@example.org/api"}, upstreamURL, []string{"leave out user, query"}},
		{"a contact with a line break", []string{upstreamContact, "me@example.org\r\nX: y"}, upstreamContact, []string{"HTTP header", `\r\n`}},
		{"soft after hard", []string{cacheTTL, "1h"}, cacheSoftTTL, []string{`"168h" (default)`, "longer than CACHE_TTL (1h0m0s)"}},
		{"a batch dearer than the bucket", []string{batchTokenCost, "3"}, batchTokenCost, []string{"15 tokens", "RATE_BURST (10)"}},
		{"a batch dearer than the tenant's bucket", []string{tenantBurst, "4"}, batchTokenCost, []string{"5 tokens", "TENANT_BURST (4)"}},
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
		if c.RequestDeadline > 29*time.Second || max(c.MaxWait, c.MaxWaitBatch)+c.UpstreamTimeout >= c.RequestDeadline {
			t.Fatalf("deadline %v for waits %v, %v and a call of %v", c.RequestDeadline, c.MaxWait, c.MaxWaitBatch, c.UpstreamTimeout)
		}
		if c.CacheSoftTTL > c.CacheTTL || c.CacheSoftTTL <= 0 || c.NegativeTTL <= 0 {
			t.Fatalf("lives %v %v %v", c.CacheSoftTTL, c.CacheTTL, c.NegativeTTL)
		}
		if math.IsNaN(c.Tenant.PerSecond) || c.Tenant.PerSecond <= 0 || 5*c.BatchTokenCost > min(c.Tenant.Burst, c.Anon.Burst, k.Burst) {
			t.Fatalf("batch of %d against %+v %+v %d", c.BatchTokenCost, c.Tenant, c.Anon, k.Burst)
		}
	})
	if accepted == 0 {
		t.Error("no configuration was accepted: the property showed nothing")
	}
}

func show(c Config) string {
	return strings.Join([]string{strconv.Quote(string(c.TenantHashKey)), c.UpstreamURL, c.UpstreamContact, c.CoordinationTable, c.ResultsTable, c.Knobs.Pack(),
		c.UpstreamTimeout.String(), c.MaxWait.String(), c.MaxWaitBatch.String(), c.BulkheadWait.String(), c.RequestDeadline.String(),
		c.CacheTTL.String(), c.CacheSoftTTL.String(), c.NegativeTTL.String(), strconv.Itoa(c.BatchTokenCost),
		strconv.FormatFloat(c.Tenant.PerSecond, 'g', -1, 64), strconv.Itoa(c.Tenant.Burst), strconv.FormatFloat(c.Anon.PerSecond, 'g', -1, 64), strconv.Itoa(c.Anon.Burst)}, " ")
}
