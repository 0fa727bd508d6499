package console

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"vingate/internal/bulk"
	"vingate/internal/decode"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// notDecoded are the outcomes without an answer, as a person reads them. Those with one have a sentence from package vpic.
var notDecoded = map[bulk.Outcome]string{bulk.Invalid: "not a VIN", bulk.Damaged: "damaged before it came here", bulk.Refused: "not answered"}

// Cards prints each record as it comes: as a card, or as a line of JSON. It is the bulk.Book of VINs that stand on the command line.
type Cards struct {
	W    io.Writer
	JSON bool
	Now  func() time.Time

	printed  int
	answered map[bulk.Key]bulk.Record
}

// Has is false: nothing was printed before.
func (c *Cards) Has(bulk.Row) (bool, error) { return false, nil }

// Answered gives what was printed for the same question.
func (c *Cards) Answered(k bulk.Key) (bulk.Record, bool, error) {
	r, ok := c.answered[k]
	return r, ok, nil
}

// Append prints records.
func (c *Cards) Append(records []bulk.Record) error {
	for _, r := range records {
		if k, ok := r.Key(); ok {
			if c.answered == nil {
				c.answered = map[bulk.Key]bulk.Record{}
			}
			c.answered[k] = r
		}
		c.printed++
		if c.JSON {
			e := json.NewEncoder(c.W)
			e.SetEscapeHTML(false)
			if err := e.Encode(r); err != nil {
				return err
			}
			continue
		}
		p := &printer{w: c.W}
		if c.printed > 1 {
			p.line("")
		}
		p.card(r, c.Now())
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// notApplicable is what NHTSA says of parts that such a vehicle cannot have.
const notApplicable = "Not Applicable"

// card prints a record for a person. Of what NHTSA reported nothing is left out silently.
func (p *printer) card(r bulk.Record, now time.Time) {
	d := r.Decoded
	if d == nil {
		why := notDecoded[r.Outcome]
		if r.Code == string(decode.ModelYearInvalid) {
			why = "not with this model year"
		}
		p.line("%s: %s", plain(shown(r.VIN)), why)
		p.line("  %s", plain(r.Reason))
		if r.Suggestion != "" {
			p.line("  It may be %s; that one was not asked for.", plain(r.Suggestion))
		}
		return
	}
	title := d.VIN
	if name := vehicle(d); name != "" {
		title += "  " + name
	}
	p.line("%s", plain(title))
	p.line("  %s", plain(r.Reason))
	p.line("  %s.", source(d, now))
	if r.Suggestion != "" {
		p.line("  NHTSA suggests %s; that one was not asked for.", plain(r.Suggestion))
	}
	if v, err := vin.Parse(r.VIN); err == nil {
		for _, a := range v.Advice {
			p.line("  Remark: %s", plain(a.Message))
		}
	}
	p.fields(d.Fields)
}

// fields prints NHTSA's fields in its groups. What only says that something does not apply, or stands above already, is counted.
func (p *printer) fields(fields map[string]string) {
	if len(fields) == 0 {
		return
	}
	width, apply, known := 0, 0, 0
	lists := map[string][][2]string{}
	groups := vpic.Groups()
	add := func(group, name, label string) {
		text := fields[name]
		switch {
		case text == "":
			return
		case text == notApplicable:
			apply++
			return
		}
		lists[group] = append(lists[group], [2]string{label, text})
		width = max(width, len([]rune(label)))
	}
	for _, g := range groups {
		known += len(g.Fields)
		if g.Name == vpic.GroupAnswer {
			continue
		}
		for _, f := range g.Fields {
			add(g.Name, f.Name, f.Label)
		}
	}
	var others []string
	for name := range fields {
		if vpic.FieldOf(name).Group == vpic.GroupOther {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		add(vpic.GroupOther, name, name)
	}
	for _, g := range append(groups, vpic.Group{Name: vpic.GroupOther}) {
		if len(lists[g.Name]) == 0 {
			continue
		}
		p.line("")
		p.line("  %s", g.Name)
		for _, f := range lists[g.Name] {
			p.line("    %-*s  %s", width, plain(f[0]), plain(f[1]))
		}
	}
	p.line("")
	p.line("  NHTSA reported %d of %d fields (%q in %d); --json shows them all. Blank does not mean absent:", len(fields), known, notApplicable, apply)
	p.line("  a part that NHTSA did not report may be there.")
}

// shown is a VIN as it came, where there is one.
func shown(text string) string {
	if strings.TrimSpace(text) == "" {
		return "(empty)"
	}
	return text
}

// vehicle is year, make and model, as far as NHTSA has them.
func vehicle(d *bulk.Decoded) string {
	var parts []string
	if d.ModelYear != nil {
		parts = append(parts, strconv.Itoa(*d.ModelYear))
	}
	for _, s := range []*string{d.Make, d.Model} {
		if s != nil {
			parts = append(parts, *s)
		}
	}
	return strings.Join(parts, " ")
}

// source says where an answer comes from and how old it is.
func source(d *bulk.Decoded, now time.Time) string {
	if d.Source == "nhtsa" {
		return "From NHTSA just now"
	}
	return fmt.Sprintf("NHTSA's answer from %s (%s), stored", clock(d.FetchedAt), ago(now.Sub(d.FetchedAt)))
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "less than a minute ago"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes ago", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours ago", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days ago", int(d/(24*time.Hour)))
}

// Lines tells of a run in lines of a log, where there is no terminal to draw on: how far it is every now and then, and what it waits for.
type Lines struct {
	W io.Writer
	// Every is the time between two lines, but for a pause as long as that, which is told at once. 0 tells of every pause and of nothing else.
	Every time.Duration
	Now   func() time.Time

	last    time.Time
	waiting bool
	waited  time.Duration // in pauses that no line has told of
	why     string        // of the last of them
}

// Report takes a run's state.
func (l *Lines) Report(s bulk.State) {
	now := l.Now()
	due := l.Every > 0 && now.Sub(l.last) >= l.Every
	begins := s.Wait != nil && !l.waiting
	l.waiting = s.Wait != nil
	var text string
	switch {
	case begins && l.Every == 0:
		text = Waiting(*s.Wait, s.Wait.For)
	case begins && (due || s.Wait.For >= l.Every):
		text = Progress(s) + "; " + Waiting(*s.Wait, s.Wait.For)
	case due && s.Wait == nil:
		if text = Progress(s); l.waited > 0 {
			text += fmt.Sprintf("; waited %v: %s", l.waited.Round(time.Second), plain(l.why))
		}
	default:
		if begins {
			l.waited += s.Wait.For
			l.why = s.Wait.Why
		}
		return
	}
	l.last, l.waited = now, 0
	_, _ = fmt.Fprintf(l.W, "%s vingate: %s\n", now.Format(time.TimeOnly), text)
}

// Progress is how far a run is, in one line.
func Progress(s bulk.State) string {
	text := fmt.Sprintf("%d of %d rows", s.Done, s.Total)
	if speed := Speed(s); speed != "" {
		text += ", " + speed
	}
	return text
}

// Speed is how fast a run is and how long it will take at that, "" as long as nobody can say.
func Speed(s bulk.State) string {
	if s.RowsPerSecond <= 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f rows/s", s.RowsPerSecond)
	if s.RowsPerSecond < 0.1 {
		text = fmt.Sprintf("%.1f rows/min", s.RowsPerSecond*60)
	}
	if s.Left > 0 {
		text += ", about " + s.Left.Round(time.Second).String() + " left"
	}
	return text
}

// Waiting says why a run pauses, with what is left of the pause.
func Waiting(w bulk.Wait, left time.Duration) string {
	left = max(0, left+time.Second-1).Truncate(time.Second)
	if w.Told {
		return fmt.Sprintf("waiting %v as told: %s", left, plain(w.Why))
	}
	return fmt.Sprintf("waiting %v: %s", left, plain(w.Why))
}

// counted is 1 call, 2 calls.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Summary says what a run over a file came to, and what to do about what is left.
func Summary(w io.Writer, s bulk.Summary, in, out string) {
	p := &printer{w: w}
	n := s.Counts
	answered := n["clean"] + n["warned"] + n["partial"] + n["unknown"]
	p.line("%d of %d rows of %s have a record in %s:", s.Done, s.Total, in, out)
	p.line("  %7d answered by NHTSA: %d clean, %d with warnings, %d partly, %d not in its data", answered, n["clean"], n["warned"], n["partial"], n["unknown"])
	for _, o := range []struct {
		outcome bulk.Outcome
		words   string
	}{{bulk.Invalid, "that cannot be a VIN, or a model year"}, {bulk.Damaged, "damaged before they came here"}, {bulk.Refused, "not answered, for the reason in their record"}} {
		if n[o.outcome] > 0 {
			p.line("  %7d %s", n[o.outcome], o.words)
		}
	}
	if s.Before > 0 {
		p.line("%d of them were finished before and were not asked again.", s.Before)
	}
	p.line("This run asked for %s in %s.", counted(s.Asked, "VIN"), counted(s.Calls, "call"))
	switch left := s.Total - s.Done; {
	case s.End == bulk.Interrupted:
		p.line("Stopped with %d rows left.", left)
	case s.End == bulk.OutOfTime:
		p.line("Stopped: the next call would have to wait %v (%s).", s.Wait.Round(time.Second), plain(s.Err.Error()))
	case s.End == bulk.Unusable:
		p.line("Stopped: %s", plain(s.Err.Error()))
	}
	if s.Total > s.Done || n[bulk.Refused] > 0 {
		p.line("The same command goes on where this one ended, and asks again for what was not answered.")
	}
}
