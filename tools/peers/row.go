package main

import (
	"fmt"
	"io"
	"strings"
)

// row is what one limiter came to.
type row struct {
	Peer     string `json:"peer"`
	Store    string `json:"store,omitempty"`
	Modelled bool   `json:"modelled,omitempty"`
	Slots    bool   `json:"slots"` // it has any

	LightOffered  int    `json:"lightOffered"`
	LightAdmitted int    `json:"lightAdmitted"`
	PerAdmission  counts `json:"perAdmission"` // in the light load, giving back included
	P50           int64  `json:"p50us"`        // of an admission in the light load
	P99           int64  `json:"p99us"`

	FloodOffered  int     `json:"floodOffered"`
	FloodAdmitted int     `json:"floodAdmitted"`
	Excess        int     `json:"excess"` // of the worst window over burst + rate x w
	Use           float64 `json:"use"`    // of the rate, when the burst is used up
	PerRefusal    counts  `json:"perRefusal"`
	RefusalP50    int64   `json:"refusalP50us"`
	RefusalP99    int64   `json:"refusalP99us"`

	AtOnce int `json:"atOnce"` // most calls at once when calls are long

	Skew []skewed `json:"skew,omitempty"`

	Held         int     `json:"held,omitempty"`         // by instances that were killed
	FirstBack    float64 `json:"firstBack,omitempty"`    // seconds until another instance has a slot, 0 never
	AllBack      float64 `json:"allBack,omitempty"`      // until the others have all
	AtOnceKilled int     `json:"atOnceKilled,omitempty"` // most calls at once meanwhile

	LoneTold     bool    `json:"loneTold"` // who is refused is told when to come back
	LoneAsked    int     `json:"loneAsked"`
	LoneAdmitted int     `json:"loneAdmitted"`
	CrowdServed  int     `json:"crowdServed"` // of three hundred, within 20 s
	CrowdTries   float64 `json:"crowdTries"`  // each
	CrowdLast    float64 `json:"crowdLast"`   // seconds until the last was in, the mean of three crowds

	PoliteShare float64 `json:"politeShare"` // of its calls that were admitted in three seconds
	FloodShare  float64 `json:"floodShare"`

	Down outcomes `json:"down"`

	Errors int `json:"errors"` // neither admitted nor refused while the store was there
}

// skewed is what came of one clock that is off, the worse of both sides.
type skewed struct {
	By     int64   `json:"ms"`
	Excess int     `json:"excess"`
	AtOnce int     `json:"atOnce"`
	Use    float64 `json:"use"`
}

// outcomes of twenty calls while the store was down, and of ten afterwards.
type outcomes struct {
	Admitted  int    `json:"admitted"`
	Refused   int    `json:"refused"`
	Failed    int    `json:"failed"`
	Silent    int    `json:"silent"` // no answer in eight seconds
	SlowestMs int64  `json:"slowestMs"`
	Says      string `json:"says,omitempty"`
	Back      int    `json:"back"`
}

// table writes one column for each of the rows.
func table(w io.Writer, rows []row) {
	var first row // all times are compared with the first's
	if len(rows) > 0 {
		first = rows[0]
	}
	out := func(what string, figure func(row) string) {
		cells := []string{what}
		said := false
		for _, r := range rows {
			cell := figure(r)
			if cell == "" {
				cell = "-"
			} else {
				said = true
			}
			cells = append(cells, cell)
		}
		if said {
			_, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	out("", func(r row) string { return r.Peer })
	_, _ = fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(rows)+1))
	out("store", func(r row) string { return r.Store })
	out("light load, 15/s: admitted", func(r row) string { return fmt.Sprintf("%d of %d", r.LightAdmitted, r.LightOffered) })
	out("10x, short calls: worst window over burst + rate x w, calls", func(r row) string { return fmt.Sprint(r.Excess) })
	out("10x, short calls: use of the rate", func(r row) string { return fmt.Sprintf("%.2f", r.Use) })
	out(fmt.Sprintf("10x, calls of 1 s: most at once, of %d", theBudget.Slots), func(r row) string {
		if !r.Slots {
			return fmt.Sprintf("%d (no limit)", r.AtOnce)
		}
		return fmt.Sprint(r.AtOnce)
	})
	for i := range 2 {
		of := func(f func(skewed) string) func(row) string {
			return func(r row) string {
				if i >= len(r.Skew) {
					return ""
				}
				return f(r.Skew[i])
			}
		}
		by := []string{"250 ms", "5 s"}[i]
		out("a clock off by "+by+": window / at once / use", of(func(s skewed) string { return fmt.Sprintf("%d / %d / %.2f", s.Excess, s.AtOnce, s.Use) }))
	}
	out("kill -9 of all holders: first slot back, all back", func(r row) string {
		switch {
		case r.Held == 0:
			return ""
		case r.AllBack == 0:
			return fmt.Sprintf("%.1f s, not in 25 s", r.FirstBack)
		}
		return fmt.Sprintf("%.1f s, %.1f s", r.FirstBack, r.AllBack)
	})
	out("store requests per admission", func(r row) string { return asked(r, r.PerAdmission) })
	out("store requests per refusal at 10x", func(r row) string { return asked(r, r.PerRefusal) })
	times := func(us, of int64) string {
		if us == 0 || of == 0 || first.Modelled {
			return ""
		}
		return fmt.Sprintf("%.2f (%.1f ms)", float64(us)/float64(of), float64(us)/1000)
	}
	out("an admission, light load: p50, as a ratio to the first", func(r row) string { return times(r.P50, first.P50) })
	out("p99", func(r row) string { return times(r.P99, first.P99) })
	out("a refusal at 10x: p50", func(r row) string { return times(r.RefusalP50, first.RefusalP50) })
	out("p99", func(r row) string { return times(r.RefusalP99, first.RefusalP99) })
	out("a lone caller who comes back when told is admitted", func(r row) string {
		if r.LoneAsked == 0 {
			return ""
		}
		if !r.LoneTold {
			return fmt.Sprintf("not told; after 1 s %d of %d", r.LoneAdmitted, r.LoneAsked)
		}
		return fmt.Sprintf("%d of %d", r.LoneAdmitted, r.LoneAsked)
	})
	out("a crowd of 100 that does so: tries each, last in", func(r row) string {
		if r.CrowdServed < 300 {
			return fmt.Sprintf("%.1f, %d of 300 not in 20 s", r.CrowdTries, 300-r.CrowdServed)
		}
		return fmt.Sprintf("%.1f, %.1f s", r.CrowdTries, r.CrowdLast)
	})
	out("a polite tenant beside a flooding one: served within 3 s, of its calls / of the other's", func(r row) string {
		return fmt.Sprintf("%.0f %% / %.0f %%", 100*r.PoliteShare, 100*r.FloodShare)
	})
	out("store down, 20 calls: admitted / refused / failed / no answer in 8 s", func(r row) string {
		d := r.Down
		if d.Admitted+d.Refused+d.Failed+d.Silent == 0 {
			return ""
		}
		return fmt.Sprintf("%d / %d / %d / %d", d.Admitted, d.Refused, d.Failed, d.Silent)
	})
	out("slowest failure", func(r row) string {
		if r.Down.Failed == 0 {
			return ""
		}
		return fmt.Sprintf("%d ms", r.Down.SlowestMs)
	})
	out("3 s after it is back, of 10 calls admitted", func(r row) string {
		if r.Modelled {
			return ""
		}
		return fmt.Sprint(r.Down.Back)
	})
	out("faults while the store was there", func(r row) string {
		if r.Modelled {
			return ""
		}
		return fmt.Sprint(r.Errors)
	})
}

func asked(r row, c counts) string {
	switch r.Store {
	case "Redis":
		return fmt.Sprintf("%.2f commands", c.Commands)
	case "DynamoDB":
		return fmt.Sprintf("%.2f writes, %.2f reads", c.Writes, c.Reads)
	}
	return ""
}
