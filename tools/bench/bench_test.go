package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vingate/internal/devstack"
	"vingate/internal/gate"
	"vingate/internal/load"
	"vingate/internal/meter"
	"vingate/internal/tables"
	"vingate/internal/virtual"
)

// What is compared must be comparable: every variant serves the same calls, keeps the budget and meets no error. The counts are taken in
// virtual time, so they do not depend on this machine.
func TestEveryVariantKeepsTheSameBudget(t *testing.T) {
	store, err := devstack.StartStore(t.Context(), devstack.Options{Dynoxide: devstack.Find(filepath.Join("..", ".."), os.Getenv).Dynoxide})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if _, err := tables.Create(t.Context(), store.Client, tables.Names{Coordination: coordination, Results: "results"}); err != nil {
		t.Fatal(err)
	}
	desk := meter.NewOutside(store.Client)
	defer desk.Close()
	for _, s := range scenarios {
		if s.name == "flood50" {
			continue // the flood again
		}
		got := map[string]row{}
		for _, variant := range variants {
			virtual.Time(t, gate.Epoch.Add(time.Hour))(func() {
				r, err := bench{api: desk, table: coordination, span: 2 * time.Second, seed: 1}.run(context.Background(), s, variant)
				if err != nil {
					t.Error(err)
				}
				got[variant] = r
			})
			r := got[variant]
			t.Logf("%+v", r)
			if r.OverAdmissions != 0 || r.Errors != 0 || r.Admitted == 0 || r.Offered != got["vingate"].Offered {
				t.Errorf("%s, %s: %+v", s.name, variant, r)
			}
			if r.WritesPerAdmission < 2 || r.ReadsPerAdmission <= 0 || r.P50 < 3000 || r.P99 < r.P50 || r.Jain <= 0 || r.Jain > 1 {
				t.Errorf("%s, %s: not believable: %+v", s.name, variant, r)
			}
		}
		if got["vingate"].Contended != 0 {
			t.Errorf("%s: %d of vingate's calls met others at every attempt", s.name, got["vingate"].Contended)
		}
		for _, other := range []string{"cas", "read-put"} {
			if mine, its := got["vingate"].writes(), got[other].writes(); mine >= its {
				t.Errorf("%s: vingate takes %.0f writes, %s %.0f", s.name, mine, other, its)
			}
		}
	}
}

// writes is what all calls took together.
func (r row) writes() float64 {
	return r.WritesPerAdmission*float64(r.Admitted) + r.WritesPerRefusal*float64(r.Offered-r.Admitted)
}

func TestTheSameSeedOffersEveryVariantTheSame(t *testing.T) {
	for _, s := range scenarios {
		a := s.calls(5*time.Second, 1)
		if !reflect.DeepEqual(a, s.calls(5*time.Second, 1)) {
			t.Errorf("%s: two draws differ", s.name)
		}
		if !slices.IsSortedFunc(a, func(x, y load.Call) int { return int(x.At - y.At) }) || len(a) < 50 {
			t.Errorf("%s: %d calls", s.name, len(a))
		}
		tenants := map[string]bool{}
		for _, c := range a {
			tenants[c.Tenant] = true
		}
		if len(tenants) != s.tenants {
			t.Errorf("%s: %d tenants of %d", s.name, len(tenants), s.tenants)
		}
	}
}

func TestKnobsOfTheBenchmarkAreOnesTheGateTakes(t *testing.T) {
	if faults := knobs().Validate(); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
}

func TestALineOfJSONHasTheAgreedKeys(t *testing.T) {
	var line map[string]any
	b, err := json.Marshal(row{Scenario: "light", Variant: "cas"})
	if err == nil {
		err = json.Unmarshal(b, &line)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"scenario", "variant", "offered", "admitted", "budgetUse", "overAdmissions", "writesPerAdmission", "readsPerAdmission",
		"writesPerRefusal", "readsPerRefusal", "p50us", "p99us", "jain"} {
		if _, there := line[key]; !there {
			t.Errorf("no key %s in %s", key, b)
		}
	}
}

func TestTheTableHasARowForEach(t *testing.T) {
	var out bytes.Buffer
	table(&out, []row{{Scenario: "light", Variant: "vingate", Offered: 9, Admitted: 9, P50: 10500}, {Scenario: "flood", Variant: "cas", Offered: 9, Admitted: 3, WritesPerRefusal: 0.5}})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), &out)
	}
	for _, l := range lines {
		if n := strings.Count(l, "|"); n != 13 {
			t.Errorf("%d bars in %q", n, l)
		}
	}
	if !strings.Contains(lines[2], "| - | - | 10.5 ms |") || !strings.Contains(lines[3], "| 3 of 9 |") || !strings.Contains(lines[3], "| 0.500 |") {
		t.Errorf("\n%s", &out)
	}
}

func TestTheShortTableSetsTheVariantsSideBySide(t *testing.T) {
	var out bytes.Buffer
	short(&out, []row{
		{Scenario: "light", Variant: "vingate", Offered: 2, Admitted: 2, WritesPerAdmission: 2, ReadsPerAdmission: 0.5, BudgetUse: 0.5, P99: 9600},
		{Scenario: "flood", Variant: "vingate", Offered: 9, Admitted: 3},
		{Scenario: "light", Variant: "read-put", Offered: 2, Admitted: 1, WritesPerAdmission: 4, WritesPerRefusal: 8, ReadsPerAdmission: 2, ReadsPerRefusal: 4, P99: 90400},
		{Scenario: "light", Variant: "cas", Offered: 2, Admitted: 2, WritesPerAdmission: 3, BudgetUse: 1},
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[2] != "| light: 18/s, evenly, at 10 instances | 2.00 / 3.00 / 4.00 | - / - / 8.00 | 0.5 / 0.0 / 3.0 | 0.50 / 1.00 / 0.00 | 10 ms / 0 ms / 90 ms |" {
		t.Errorf("\n%s", &out)
	}
}

// The whole of it once, as make bench-gate does it, in virtual time.
func TestARunPrintsALineForEachVariant(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"--scenario", "light", "--for", "1s"}, &out, &errs, virtual.Time(t, gate.Epoch.Add(time.Hour))); code != 0 {
		t.Fatalf("%d, %q", code, &errs)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Scenario != "light" || r.Admitted < 15 || r.BudgetUse <= 0 {
			t.Errorf("%v: %s", err, line)
		}
		got = append(got, r.Variant)
	}
	if !slices.Equal(got, variants) {
		t.Errorf("lines of %v", got)
	}
}

func TestAFormerRunIsShownAsATable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	var lines, fromFile, direct, errs bytes.Buffer
	rows := []row{{Scenario: "light", Variant: "cas", Offered: 2, Admitted: 2, P50: 9600, Jain: 0.5}, {Scenario: "flood", Variant: "cas", Offered: 9}}
	for _, r := range rows {
		if err := json.NewEncoder(&lines).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	table(&direct, rows)
	if code := run(t.Context(), []string{"--from", path, "--table"}, &fromFile, &errs, nil); code != 0 || !strings.HasSuffix(fromFile.String(), direct.String()) {
		t.Errorf("%d, %q:\n%s", code, &errs, &fromFile)
	}
	if err := os.WriteFile(path, []byte("{]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"--from", path, "--table"}, &fromFile, &errs, nil); code != 1 || !strings.Contains(errs.String(), path) {
		t.Errorf("%d, %q", code, &errs)
	}
}

func TestWrongArgumentsAreToldAndStartNothing(t *testing.T) {
	for _, args := range [][]string{{"--scenario", "storm"}, {"--variant", "redis"}, {"--for", "1ms"}, {"--nonsense"}, {"more"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs, virtual.Time(t, gate.Epoch.Add(time.Hour))); code != 2 || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: %d, %q, %q", args, code, &out, &errs)
		}
	}
}
