package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Axis is a number that a sweep changes from run to run.
type Axis struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// mostRuns bounds a sweep, and mostValue its ranges.
const mostRuns, mostValue = 1000, 1_000_000_000

// ParseSweep reads rate=1..10,in-flight=2|4|8: one or two axes, each a range of whole numbers, with a step where there is one (1..100/10), or
// a list of anything.
func ParseSweep(text string) ([]Axis, error) {
	var axes []Axis
	runs := 1
	for part := range strings.SplitSeq(text, ",") {
		name, values, ok := strings.Cut(part, "=")
		if !ok || name == "" || values == "" {
			return nil, fmt.Errorf("sweep %q: %q is not NAME=FROM..TO or NAME=A|B|C", text, part)
		}
		a := Axis{Name: name}
		if from, to, isRange := strings.Cut(values, ".."); isRange {
			to, by, _ := strings.Cut(to, "/")
			step := 1
			lo, err1 := strconv.Atoi(from)
			hi, err2 := strconv.Atoi(to)
			var err3 error
			if by != "" {
				step, err3 = strconv.Atoi(by)
			}
			if err := errors.Join(err1, err2, err3); err != nil || step < 1 || step > mostValue || lo < -mostValue || hi > mostValue || hi < lo || (hi-lo)/step >= mostRuns {
				return nil, fmt.Errorf("sweep %q: %q is no range of whole numbers such as 1..10 or 0..1000/100, of at most %d", text, values, mostRuns)
			}
			for n := lo; n <= hi; n += step {
				a.Values = append(a.Values, strconv.Itoa(n))
			}
		} else {
			a.Values = strings.Split(values, "|")
			if slices.Contains(a.Values, "") {
				return nil, fmt.Errorf("sweep %q: a value of %s is empty", text, name)
			}
		}
		if slices.ContainsFunc(axes, func(b Axis) bool { return b.Name == name }) {
			return nil, fmt.Errorf("sweep %q: %s is there twice", text, name)
		}
		axes = append(axes, a)
		runs *= len(a.Values)
	}
	if len(axes) > 2 || runs > mostRuns {
		return nil, fmt.Errorf("sweep %q: at most two numbers and %d runs", text, mostRuns)
	}
	return axes, nil
}

// metric is a number of a report that a sweep shows.
type metric struct {
	Name, Text string
	of         func(*Report) float64
	unit       func(float64) string
}

// The metrics that --plot knows, by name.
var metrics = []metric{
	{"served", "share of what had to be asked for that was answered", (*Report).served, func(x float64) string { return trimmed(100*x) + " %" }},
	{"wait-p95", "95 of 100 of those who got a place waited less", func(r *Report) float64 { return r.wait().P95 }, secondsTick},
	{"wait-p50", "half of those who got a place waited less", func(r *Report) float64 { return r.wait().P50 }, secondsTick},
	{"told-no-p99", "99 of 100 of the refused were told so within", func(r *Report) float64 { return r.Routes[0].Refusals.P99 }, secondsTick},
	{"refused", "share of all requests that was refused", func(r *Report) float64 { return r.Refused }, func(x float64) string { return trimmed(100*x) + " %" }},
	{"use", "share of the budget that was used", func(r *Report) float64 { return r.Use }, func(x float64) string { return trimmed(100*x) + " %" }},
	{"fairness", "Jain's index over all callers", func(r *Report) float64 { return r.Fairness }, nil},
	{"writes-per-refusal", "write units on gate and promise for each refusal", func(r *Report) float64 { return r.PerRefusal }, nil},
	{"writes-per-call", "write units on the gate for each call", func(r *Report) float64 { return r.PerCall }, nil},
	{"gate-writes", "write units on one gate in its busiest second, of 1,000", func(r *Report) float64 { return r.MostWrites }, nil},
	{"gate-writes-mean", "write units on all gates a second, on average", func(r *Report) float64 { return r.GateWrites }, nil},
	{"gate-reads", "read units on one gate in its busiest second, of 3,000", func(r *Report) float64 { return r.MostReads }, nil},
	{"promise-reads", "read units on one promise in its busiest second, of 3,000", func(r *Report) float64 { return r.MostPromise }, nil},
	{"promise-writes", "write units on one promise in its busiest second, of 1,000", func(r *Report) float64 { return r.PromiseW }, nil},
	{"account-reads", "read units on one caller's account in its busiest second, of 3,000", func(r *Report) float64 { return r.MostAccount }, nil},
	{"unreadable", "share of all requests that met a throttled item", func(r *Report) float64 { return r.Counts[Unreadable].Share }, func(x float64) string { return trimmed(100*x) + " %" }},
	{"calls", "calls to NHTSA a second", func(r *Report) float64 { return float64(r.Calls) / r.ForSeconds }, nil},
	{"usd", "USD a month", func(r *Report) float64 { return r.Month[len(r.Month)-1].USD }, nil},
	{"usd-per-million", "USD for a million requests", func(r *Report) float64 { return r.PerMillion }, nil},
	{"instances", "instances that were used", func(r *Report) float64 { return float64(r.Instances) }, nil},
}

// MetricNames lists what a sweep can show.
func MetricNames() (names []string) {
	for _, m := range metrics {
		names = append(names, m.Name)
	}
	return names
}

// wait is that of all routes that got places.
func (r *Report) wait() Quantiles { return r.Routes[0].Wait }

// served is the share of what had to be asked of NHTSA that was answered.
func (r *Report) served() float64 {
	stored := r.Counts[FromMemory].N + r.Counts[FromTable].N + r.Counts[Refreshed].N
	if r.Requests == stored {
		return 1
	}
	return float64(r.Counts[Live].N+r.Counts[Shared].N) / float64(r.Requests-stored)
}

// Cell is one run of a sweep.
type Cell struct {
	Values  []string           `json:"values"` // of the axes
	Caption string             `json:"caption,omitempty"`
	Metrics map[string]float64 `json:"metrics"`
}

// Sweep is many runs that differ in one or two numbers.
type Sweep struct {
	Axes    []Axis   `json:"axes"`
	Cells   []Cell   `json:"cells"` // the first axis in rows, the second in columns
	Knees   []Knee   `json:"knees"` // one for each value of the second axis
	Command string   `json:"command,omitempty"`
	Shown   []string `json:"shown"` // metrics
}

// Knee is where more of the first number stops to pay.
type Knee struct {
	Column string  `json:"column,omitempty"` // value of the second axis
	At     string  `json:"at,omitempty"`     // value of the first; "": there is none, it pays all the way
	Served float64 `json:"served"`
}

// RunSweep runs them all. build makes the model of the numbers, and says what it changed besides.
func RunSweep(ctx context.Context, axes []Axis, shown []string, build func(map[string]string) (m Setup, note string, err error)) (*Sweep, error) {
	for _, name := range shown {
		if !slices.ContainsFunc(metrics, func(m metric) bool { return m.Name == name }) {
			return nil, fmt.Errorf("there is no metric %q: %s", name, strings.Join(MetricNames(), ", "))
		}
	}
	s := &Sweep{Axes: axes, Shown: shown}
	if len(s.Axes) == 1 {
		s.Axes = append(s.Axes, Axis{Values: []string{""}})
	}
	var models []Setup
	for _, row := range s.Axes[0].Values {
		for _, column := range s.Axes[1].Values {
			set := map[string]string{s.Axes[0].Name: row}
			values := []string{row}
			if s.Axes[1].Name != "" {
				set[s.Axes[1].Name] = column
				values = append(values, column)
			}
			m, note, err := build(set)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.named(values), err)
			}
			models = append(models, m)
			s.Cells = append(s.Cells, Cell{Values: values, Caption: note, Metrics: map[string]float64{}})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, m := range models {
		g.Go(func() error {
			r, err := Run(ctx, m)
			if err != nil {
				return err
			}
			for _, m := range metrics {
				s.Cells[i].Metrics[m.Name] = m.of(r)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for c, column := range s.Axes[1].Values {
		served := make([]float64, len(s.Axes[0].Values))
		for row := range served {
			served[row] = s.cell(row, c).Metrics["served"]
		}
		k := Knee{Column: column, Served: served[len(served)-1]}
		if at := kneeOf(s.Axes[0].numbers(), served); at >= 0 {
			k.At, k.Served = s.Axes[0].Values[at], served[at]
		}
		s.Knees = append(s.Knees, k)
	}
	return s, nil
}

// named is one run, by its values.
func (s *Sweep) named(values []string) string {
	var parts []string
	for i, v := range values {
		parts = append(parts, s.Axes[i].Name+"="+v)
	}
	return strings.Join(parts, ",")
}

func (s *Sweep) cell(row, column int) *Cell { return &s.Cells[row*len(s.Axes[1].Values)+column] }

// numbers are the values, or their places where they are none.
func (a Axis) numbers() []float64 {
	out := make([]float64, len(a.Values))
	for i, v := range a.Values {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			for i := range out {
				out[i] = float64(i)
			}
			return out
		}
		out[i] = f
	}
	return out
}

// kneeOf is the point of a curve that lies furthest above the line from its first to its last point (Satopää and others, Finding a
// "Kneedle" in a Haystack, 2011), with both ways of it scaled to 1; -1 where none lies a tenth above it.
func kneeOf(x, y []float64) int {
	n := len(x)
	if n < 3 || x[n-1] <= x[0] {
		return -1
	}
	top := slices.Max(y)
	if top-y[0] < 0.02 { // it is flat
		return -1
	}
	best, at := 0.1, -1
	for i := range x {
		if d := (y[i]-y[0])/(top-y[0]) - (x[i]-x[0])/(x[n-1]-x[0]); d > best {
			best, at = d, i
		}
	}
	return at
}

func metricOf(name string) metric {
	return metrics[slices.IndexFunc(metrics, func(m metric) bool { return m.Name == name })]
}

func (m metric) text(x float64) string {
	if m.unit != nil {
		return m.unit(round3(x))
	}
	return plainNumber(round3(x))
}

// round3 keeps three digits that count.
func round3(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	p := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*p) / p
}

// JSON writes the sweep for programs.
func (s *Sweep) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

// Print writes the sweep for people: a table for each metric, the knee of each column marked.
func (s *Sweep) Print(w io.Writer) error {
	p := &page{w: w}
	for _, name := range s.Shown {
		m := metricOf(name)
		p.line("\n%s: %s", m.Name, m.Text)
		head := []string{s.Axes[0].Name}
		if s.Axes[1].Name != "" {
			for _, c := range s.Axes[1].Values {
				head = append(head, s.Axes[1].Name+" "+c)
			}
		} else {
			head = append(head, "")
		}
		rows := [][]string{head}
		for r, value := range s.Axes[0].Values {
			row := []string{value}
			for c := range s.Axes[1].Values {
				text := m.text(s.cell(r, c).Metrics[name])
				if s.Knees[c].At == value {
					text += " *"
				}
				row = append(row, text)
			}
			rows = append(rows, row)
		}
		p.table(rows)
	}
	p.line("")
	for _, text := range s.kneeTexts() {
		p.line("%s", text)
	}
	for _, note := range s.notes() {
		p.line("note: %s", note)
	}
	return p.err
}

// notes are what the builds changed besides, once each.
func (s *Sweep) notes() (notes []string) {
	for _, c := range s.Cells {
		if c.Caption != "" && !slices.Contains(notes, c.Caption) {
			notes = append(notes, c.Caption)
		}
	}
	return notes
}

func (s *Sweep) kneeTexts() (texts []string) {
	for _, k := range s.Knees {
		with := ""
		if k.Column != "" {
			with = fmt.Sprintf(" with %s %s", s.Axes[1].Name, k.Column)
		}
		if k.At == "" {
			texts = append(texts, fmt.Sprintf("no knee%s: more %s pays all the way, or not at all; %s are served at its end", with, s.Axes[0].Name, percent(k.Served)))
			continue
		}
		texts = append(texts, fmt.Sprintf("* the knee%s is at %s %s: %s are served, more pays less", with, s.Axes[0].Name, k.At, percent(k.Served)))
	}
	return texts
}

// figures are the pictures of a sweep, one for each metric.
func (s *Sweep) figures(legend bool) []figure {
	order := []tone{blue, orange, green, violet, red, teal, amber, brown, pink, wine, sky, grey}
	var out []figure
	for _, name := range s.Shown {
		m := metricOf(name)
		f := figure{Title: m.Text, labels: s.Axes[0].Values, ticks: len(s.Axes[0].Values), unit: m.text, dots: true, legend: legend && s.Axes[1].Name != "", x: s.Axes[0].Name}
		if len(f.labels) > 14 {
			f.ticks = 0
		}
		least, most := math.Inf(1), 0.0
		for c, column := range s.Axes[1].Values {
			l := line{name: strings.TrimSpace(s.Axes[1].Name + " " + column), tone: order[c%len(order)]}
			for r := range s.Axes[0].Values {
				v := s.cell(r, c).Metrics[name]
				l.values = append(l.values, v)
				if v > 0 {
					least, most = min(least, v), max(most, v)
				}
			}
			f.lines = append(f.lines, l)
		}
		f.log = most > 50*least
		out = append(out, f)
	}
	return out
}

// SVG writes one picture, in light colours, for a document.
func (s *Sweep) SVG(w io.Writer, name string) error {
	i := slices.Index(s.Shown, name)
	if i < 0 {
		return fmt.Errorf("%s is not among what is shown", name)
	}
	svg, err := s.figures(true)[i].svg(320)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.Replace(onItsOwn(svg), "<path", fmt.Sprintf(`<rect width="100%%" height="100%%" fill="%s"/><path`, light[paper]), 1))
	return err
}

// HTML writes the sweep as a page that needs nothing else.
func (s *Sweep) HTML(w io.Writer) error {
	figures, err := drawAll(s.figures(false))
	if err != nil {
		return err
	}
	type cell struct {
		Text string
		Knee bool
	}
	type grid struct {
		Text, Row string
		Head      []string
		Rows      [][]cell
	}
	var tables []grid
	for _, name := range s.Shown {
		m := metricOf(name)
		g := grid{Text: m.Text, Row: s.Axes[0].Name}
		for _, c := range s.Axes[1].Values {
			g.Head = append(g.Head, strings.TrimSpace(s.Axes[1].Name+" "+c))
		}
		for r, value := range s.Axes[0].Values {
			row := []cell{{Text: value}}
			for c := range s.Axes[1].Values {
				row = append(row, cell{m.text(s.cell(r, c).Metrics[name]), s.Knees[c].At == value})
			}
			g.Rows = append(g.Rows, row)
		}
		tables = append(tables, g)
	}
	title := "What " + s.Axes[0].Name + " decides"
	if s.Axes[1].Name != "" {
		title = "What " + s.Axes[0].Name + " and " + s.Axes[1].Name + " decide"
	}
	return pageTemplate.ExecuteTemplate(w, "sweep", map[string]any{"S": s, "Title": title, "Figures": figures, "Tables": tables, "Knees": s.kneeTexts(), "Notes": s.notes(),
		"Light": palette(light), "Dark": palette(dark), "NotModelled": NotModelled})
}

// drawAll draws pictures for a page.
func drawAll(figures []figure) (drawn []drawnFigure, err error) {
	for _, f := range figures {
		svg, err := f.svg(280)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Title, err)
		}
		// The library escapes what stands in it.
		d := drawnFigure{Title: f.Title, Caption: f.Caption, SVG: template.HTML(inPage(svg))}
		for _, l := range f.lines {
			if len(f.lines) > 1 {
				d.Legend = append(d.Legend, legendEntry{l.name, l.tone})
			}
		}
		drawn = append(drawn, d)
	}
	return drawn, nil
}
