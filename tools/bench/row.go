package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"vingate/internal/gate/dynamo"
	"vingate/internal/load"
	"vingate/tools/bench/versioned"
)

// row is what one scenario came to under one variant.
type row struct {
	Scenario string `json:"scenario"`
	Variant  string `json:"variant"`

	Offered        int     `json:"offered"`
	Admitted       int     `json:"admitted"`
	BudgetUse      float64 `json:"budgetUse"`      // of what the bucket allows in the span
	OverAdmissions int     `json:"overAdmissions"` // beyond burst + rate x w in some window, or beyond the slots

	WritesPerAdmission float64 `json:"writesPerAdmission"` // release included, failed conditions included
	UnitsPerAdmission  float64 `json:"writeUnitsPerAdmission"`
	ReadsPerAdmission  float64 `json:"readsPerAdmission"` // in eventually consistent ones; a consistent one counts two
	WritesPerRefusal   float64 `json:"writesPerRefusal"`
	UnitsPerRefusal    float64 `json:"writeUnitsPerRefusal"`
	ReadsPerRefusal    float64 `json:"readsPerRefusal"`
	// Of these, those for a Retry-After that spreads a crowd, which only vingate gives.
	PromisesPerRefusal float64 `json:"promiseWritesPerRefusal"`

	P50  int64   `json:"p50us"` // from asking to the lease
	P99  int64   `json:"p99us"`
	Jain float64 `json:"jain"` // over the tenants' admissions

	Contended int `json:"contended"` // of the refused: every attempt met somebody else's write
	Errors    int `json:"errors"`    // anything else that is neither admitted nor refused
}

func summarise(s scenario, variant string, r load.Report, span time.Duration) row {
	k := knobs()
	b := k.Bucket()
	contended := func(d load.Done) bool {
		var e *dynamo.Error
		return !d.Admitted && (errors.Is(d.Err, versioned.ErrContended) || errors.As(d.Err, &e) && e.Kind == dynamo.KindContended)
	}
	refused := func(d load.Done) bool { return load.Refused(d) || contended(d) }
	waits := r.Waits(load.Admitted)
	out := row{
		Scenario: s.name, Variant: variant, Offered: len(r.Calls), Admitted: r.Count(load.Admitted),
		BudgetUse:      round(r.Use(b.Tokens(-b.H-1, 0), k.RatePerSecond, span)),
		OverAdmissions: r.Over(k.Burst, k.RatePerSecond, k.MaxInFlight),
		P50:            load.Quantile(waits, 0.5).Microseconds(), P99: load.Quantile(waits, 0.99).Microseconds(), Jain: round(r.Jain()),
		Contended: r.Count(contended),
		Errors:    r.Count(func(d load.Done) bool { return load.Broken(d) && !contended(d) }),
	}
	per := func(which func(load.Done) bool) (writes, units, reads float64) {
		bill, n := r.Bill(which), float64(max(1, r.Count(which)))
		return round(float64(bill.Writes) / n), round(bill.WriteUnits / n), round(bill.ReadUnits / n)
	}
	out.WritesPerAdmission, out.UnitsPerAdmission, out.ReadsPerAdmission = per(load.Admitted)
	out.WritesPerRefusal, out.UnitsPerRefusal, out.ReadsPerRefusal = per(refused)
	out.PromisesPerRefusal = round(float64(r.Bill(refused, "promise").Writes) / float64(max(1, r.Count(refused))))
	return out
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// table writes the rows as a table in Markdown.
func table(w io.Writer, rows []row) {
	_, _ = fmt.Fprintln(w, "| scenario | variant | admitted of offered | budget use | over | writes per admission | reads per admission | writes per refusal | reads per refusal | p50 | p99 | Jain |")
	_, _ = fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		ms := func(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }
		refusal, reads := fmt.Sprintf("%.3f", r.WritesPerRefusal), fmt.Sprintf("%.2f", r.ReadsPerRefusal)
		if r.Admitted+r.Errors == r.Offered {
			refusal, reads = "-", "-"
		}
		_, _ = fmt.Fprintf(w, "| %s | %s | %d of %d | %.3f | %d | %.2f | %.2f | %s | %s | %s | %s | %.3f |\n", r.Scenario, r.Variant, r.Admitted, r.Offered,
			r.BudgetUse, r.OverAdmissions, r.WritesPerAdmission, r.ReadsPerAdmission, refusal, reads, ms(r.P50), ms(r.P99), r.Jain)
	}
}

// short writes a row for each scenario that has all variants, their figures side by side.
func short(w io.Writer, rows []row) {
	_, _ = fmt.Fprintf(w, "| load | writes per admission | writes per refusal | reads per call | budget use | p99 |\n|---|---|---|---|---|---|\n")
	for ; len(rows) > 0; rows = rows[1:] {
		var same []row
		for _, variant := range variants {
			for _, r := range rows {
				if r.Scenario == rows[0].Scenario && r.Variant == variant {
					same = append(same, r)
				}
			}
		}
		if len(same) != len(variants) {
			continue
		}
		each := func(figure func(row) string) string {
			var figures []string
			for _, r := range same {
				figures = append(figures, figure(r))
			}
			return strings.Join(figures, " / ")
		}
		load := rows[0].Scenario
		if i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == load }); i >= 0 {
			load += ": " + scenarios[i].says
		}
		_, _ = fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", load,
			each(func(r row) string { return fmt.Sprintf("%.2f", r.WritesPerAdmission) }),
			each(func(r row) string {
				if r.Admitted+r.Errors == r.Offered {
					return "-"
				}
				return fmt.Sprintf("%.2f", r.WritesPerRefusal)
			}),
			each(func(r row) string {
				refused := float64(r.Offered - r.Admitted)
				return fmt.Sprintf("%.1f", (r.ReadsPerAdmission*float64(r.Admitted)+r.ReadsPerRefusal*refused)/float64(r.Offered))
			}),
			each(func(r row) string { return fmt.Sprintf("%.2f", r.BudgetUse) }),
			each(func(r row) string { return fmt.Sprintf("%d ms", (r.P99+500)/1000) }))
	}
}
