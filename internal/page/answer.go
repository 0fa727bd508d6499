package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vingate/internal/decode"
	"vingate/internal/vin"
	"vingate/internal/vpic"
)

// Answer is a decode as the page shows it.
type Answer struct {
	Outcome  string
	State    State
	Headline string // year, make and model as NHTSA has them
	Kind     string // what NHTSA adds to them: trim, body
	Plate    *Plate

	Says    string // what the answer amounts to
	Remarks []string
	Instead *Instead

	Facts         []Field // the few that most people look for
	Reported      int     // fields with something in them, other than that they do not apply
	Total         int     // fields there are, of NHTSA's or in this answer
	Groups        []Group // what is reported
	NotApplicable []string
	Blank         []Group // labels only
	BlankCount    int
	Caution       string

	Raw    string // NHTSA's fields, blank ones included
	API    string
	Source string
}

// Group and Field are NHTSA's, under NHTSA's names.
type (
	Group struct {
		Name   string
		Fields []Field
	}
	Field struct{ Label, Value string }
)

// Plate is a VIN, position by position.
type Plate struct {
	VIN   string
	Cells []Cell
	Marks []Mark
}

// Cell is one position. Zone names the part of the VIN it belongs to.
type Cell struct {
	Char, Zone string
	Marked     bool
}

// Mark says in words what is odd about one position.
type Mark struct {
	Position int
	Char     string // what stands there, "" where nothing does
	Says     string
}

// Instead is another VIN somebody may have meant. Nobody puts it in place of what was typed but the person.
type Instead struct{ VIN, Year, Link string }

const caution = "What is blank, NHTSA does not have. That does not mean that the vehicle lacks it."

// Answered makes the answer for a decode.
func Answered(d decode.Result, asked Lookup) *Answer {
	fields := d.Fields()
	a := &Answer{
		Outcome: string(d.Outcome()), State: stateOf(d.Outcome()), Says: d.Sentence(), Headline: headline(d), Remarks: d.Remarks(), Caution: caution,
		Raw: raw(fields), API: api(d.VIN.Value, asked.ModelYear), Source: source(d),
		Plate: plate(d.VIN.Value, marks(d)),
	}
	for _, key := range []string{"Trim", "BodyClass"} {
		a.Kind = join(a.Kind, said(d, key), " · ")
	}
	if v := d.Correction(); v != "" {
		a.Instead = instead(v, asked.ModelYear)
	}
	for _, name := range facts {
		if s := said(d, name); s != "" {
			a.Facts = append(a.Facts, Field{vpic.FieldOf(name).Label, s})
		}
	}
	a.sort(d.Groups())
	return a
}

// said is a field's text, "" where NHTSA reports none.
func said(d decode.Result, key string) string {
	if v := d.Value(key); v.State() == vpic.Reported {
		return v.Text()
	}
	return ""
}

// facts are the fields that most people look for, in this order.
var facts = []string{"VehicleType", "FuelTypePrimary", "DisplacementL", "EngineCylinders", "DriveType", "TransmissionStyle", "Doors", "GVWR", "PlantCountry", "Manufacturer"}

// sort puts every field into its group: reported, not applicable or blank.
func (a *Answer) sort(groups []vpic.ValueGroup) {
	for _, g := range groups {
		name := strings.ReplaceAll(g.Name, " / ", ": ")
		filled, blank := Group{Name: name}, Group{Name: name}
		a.Total += len(g.Values)
		for _, v := range g.Values {
			label := v.Field().Label
			switch v.State() {
			case vpic.Reported:
				filled.Fields = append(filled.Fields, Field{label, v.Text()})
			case vpic.NotApplicable:
				a.NotApplicable = append(a.NotApplicable, label)
			default:
				blank.Fields = append(blank.Fields, Field{Label: label})
			}
		}
		if len(filled.Fields) > 0 {
			a.Groups = append(a.Groups, filled)
			a.Reported += len(filled.Fields)
		}
		if len(blank.Fields) > 0 {
			a.Blank = append(a.Blank, blank)
			a.BlankCount += len(blank.Fields)
		}
	}
}

// headline is year, make and model as NHTSA has them, or that there are none.
func headline(d decode.Result) string {
	if s := d.Summary(); s != "" && d.Outcome() != vpic.Unknown {
		return s
	}
	if s := said(d, "Manufacturer"); s != "" {
		return "Made by " + s
	}
	return "NHTSA has nothing on this VIN"
}

func join(a, b, between string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

// zones are the parts of a VIN: where each ends.
var zones = []struct {
	end  int
	name string
}{{3, "maker"}, {8, "vehicle"}, {9, "check"}, {10, "year"}, {11, "plant"}, {17, "serial"}}

// plate lays out a VIN of up to 17 characters; what is left out at its end stays empty.
func plate(value string, marks []Mark) *Plate {
	p := &Plate{VIN: value, Marks: marks}
	chars := []rune(value)
	for i := range vin.Length {
		c := Cell{Marked: slices.ContainsFunc(marks, func(m Mark) bool { return m.Position == i+1 })}
		if i < len(chars) {
			c.Char = string(chars[i])
		}
		for _, z := range zones {
			if i < z.end {
				c.Zone = z.name
				break
			}
		}
		p.Cells = append(p.Cells, c)
	}
	for i, m := range p.Marks {
		if m.Position <= len(chars) {
			p.Marks[i].Char = string(chars[m.Position-1])
		}
	}
	return p
}

// raw is NHTSA's row, sorted by key.
func raw(fields map[string]string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(fields); err != nil {
		panic(err) // texts only
	}
	return b.String()
}

func api(value, year string) string {
	s := "/v1/vins/" + url.PathEscape(value)
	if year = strings.TrimSpace(year); year != "" {
		s += "?modelYear=" + url.QueryEscape(year)
	}
	return s
}

func instead(value, year string) *Instead {
	year = strings.TrimSpace(year)
	return &Instead{VIN: value, Year: year, Link: Lookup{value, year}.link()}
}

// source says where the answer is from, how old it is, and what took how long.
func source(d decode.Result) string {
	fetched := d.FetchedAt.UTC().Format("2 January 2006, 15:04 UTC")
	if d.Source == decode.FromCache {
		s := fmt.Sprintf("NHTSA’s answer of %s, stored here: %s.", fetched, ago(d.Age))
		if d.Stale() {
			s += " It is stale" + decode.Unrefreshed(d.Trouble)
		}
		return s
	}
	s := fmt.Sprintf("NHTSA’s answer, just now (%s).", fetched)
	if d.Waited >= 50*time.Millisecond {
		s += fmt.Sprintf(" Waited %s for a free place.", seconds(d.Waited))
	}
	s += fmt.Sprintf(" NHTSA took %s.", seconds(d.Upstream))
	if d.Shared {
		s += " Somebody else asked for the same VIN at the same time, so NHTSA was asked once."
	}
	return s
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
}

// marks are the positions NHTSA doubts, each with what it says of them.
func marks(d decode.Result) []Mark {
	says := map[int][]string{}
	for _, position := range d.Doubted() {
		says[position] = append(says[position], "does not fit, NHTSA says.")
	}
	notes := d.Notes()
	for _, invalid := range notes.Invalid {
		says[invalid.Position] = append(says[invalid.Position], "cannot stand here, NHTSA says.")
	}
	for _, position := range notes.Unexplained {
		says[position] = append(says[position], "is not explained by what the maker has filed.")
	}
	var list []Mark
	for _, position := range slices.Sorted(maps.Keys(says)) {
		list = append(list, Mark{Position: position, Says: says[position][0]})
	}
	return list
}
