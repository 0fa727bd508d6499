// Package console is what a person sees at the command line: decodes and the runs over files of them, and what an operator sees of the live
// tables and does to them, the API keys and the shared budget.
//
// It promises that what it prints is what the API or the table said, at the time it says; that what was not decoded has a reason and no word
// about a vehicle; that a change is told as old and new, after it is made; that
// an API key is printed once, by the command that made it, and is kept nowhere; and that nothing another person wrote (a label) reaches the
// terminal as anything but plain characters.
package console

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table writes rows in aligned columns, the first in capitals being the head.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		for i, cell := range r {
			if cell == "" {
				cell = "-"
			}
			if i > 0 {
				_, _ = t.Write([]byte("\t"))
			}
			_, _ = t.Write([]byte(cell))
		}
		_, _ = t.Write([]byte("\n"))
	}
	return t.Flush()
}

func asJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// clock is a time as a person reads it.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// span is a duration as a person reads it: tenths of a second below a minute, whole seconds above.
func span(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// plain is a text that somebody else wrote, without anything that a terminal would obey.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// printer keeps the first error of many writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) table(rows [][]string) {
	if p.err == nil {
		p.err = table(p.w, rows)
	}
}
