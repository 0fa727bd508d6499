package simulate

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"time"
)

//go:embed report.html sweep.html
var pages embed.FS

var pageTemplate = template.Must(template.New("report.html").Funcs(template.FuncMap{
	"whole": whole, "percent": percent, "seconds": seconds, "rate": rate, "usd": usd,
	"bar": func(share float64) template.CSS {
		return template.CSS(fmt.Sprintf("width:%.2f%%", 100*max(0, min(1, share))))
	},
	"tone":  func(t tone) template.CSS { return template.CSS(fmt.Sprintf("background:var(--t%d)", t)) },
	"int64": func(n int) int64 { return int64(n) }, "float": func(n int64) float64 { return float64(n) },
	"div":   func(n int64, by float64) float64 { return float64(n) / max(by, 1e-9) },
	"units": func(x float64) string { return whole(int64(math.Round(x))) },
}).ParseFS(pages, "*.html"))

// toneOf is the colour of an outcome, everywhere.
var toneOf = [outcomes]tone{FromMemory: blue, FromTable: sky, Shared: teal, Refreshed: lime, Live: green, TenantDry: violet, NoToken: orange, LineFull: amber, NoSlotInTime: brown,
	PlacesFull: pink, OwnFull: rose, Throttled: red, Unavailable: wine, TooLate: grey, UpstreamThrottled: coral, UpstreamFailed: wine, UpstreamTimedOut: red, Unreadable: ink, NoInstance: grey}

func usd(x float64) string {
	switch {
	case x >= 1000:
		return whole(int64(math.Round(x)))
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// drawnFigure is a figure as a page shows it.
type drawnFigure struct {
	Title, Caption string
	SVG            template.HTML
	Legend         []legendEntry
}

type legendEntry struct {
	Name string
	Tone tone
}

type countRow struct {
	Count
	Tone tone
	Bar  float64
}

type costRow struct {
	Cost
	Bar float64
}

// HTML writes the report as a page that needs nothing else.
func (r *Report) HTML(w io.Writer) error {
	figures, err := drawAll(r.figures())
	if err != nil {
		return err
	}
	var counts []countRow
	most := int64(1)
	for _, c := range r.Counts {
		most = max(most, c.N)
	}
	for _, c := range r.Counts {
		if c.N > 0 {
			counts = append(counts, countRow{c, toneOf[c.Outcome], float64(c.N) / float64(most)})
		}
	}
	var costs []costRow
	total := r.Month[len(r.Month)-1].USD
	for _, c := range r.Month {
		costs = append(costs, costRow{c, c.USD / max(total, 1e-9)})
	}
	wait := r.Routes[0].Wait
	return pageTemplate.Execute(w, map[string]any{
		"R": r, "Figures": figures, "Counts": counts, "Costs": costs, "Wait": wait, "Knobs": r.Setup.Knobs.Named(), "Title": r.title(),
		"Answered": 1 - r.Refused, "Light": palette(light), "Dark": palette(dark), "Setup": r.Setup,
		"Budget": r.budgetText(), "Items": r.items(), "Pauses": r.pauseRows(), "PausesText": r.pausesText(),
	})
}

func palette(colors [tones]string) template.CSS {
	var b strings.Builder
	for i, c := range colors {
		fmt.Fprintf(&b, "--t%d:%s;", i, c)
	}
	return template.CSS(b.String())
}

func (r *Report) title() string {
	return fmt.Sprintf("%s at %s requests a second", spell(r.For), rate(float64(r.Offered)/r.ForSeconds))
}

func spell(d time.Duration) string {
	switch {
	case d == 24*time.Hour:
		return "A day"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d == time.Hour:
		return "An hour"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d hours", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return d.String()
}

// itemRow is an item that all instances share, with the busiest second it had.
type itemRow struct {
	Units
	MostWrites, MostReads float64
	OfWrites, OfReads     float64
}

func (r *Report) items() []itemRow {
	most := [kinds][2]float64{gates: {r.MostWrites, r.MostReads}, promises: {r.PromiseW, r.MostPromise}, accounts: {0, r.MostAccount}}
	var out []itemRow
	for i, u := range r.Dynamo {
		out = append(out, itemRow{u, most[i][0], most[i][1], most[i][0] / ItemWriteUnits, most[i][1] / ItemReadUnits})
	}
	return out
}

// figures are the pictures of a run.
func (r *Report) figures() []figure {
	labels, ticks := r.hours()
	over := func(title, note string, unit func(float64) string, lines ...line) figure {
		return figure{Title: title, Caption: note, lines: lines, labels: labels, ticks: ticks, unit: unit}
	}
	column := func(of func(Point) float64) (v []float64) {
		for _, p := range r.Course {
			v = append(v, of(p))
		}
		return append(v, v[len(v)-1]) // to the end of the last part
	}
	var all, asked []line
	for _, o := range []Outcome{Live, Refreshed, Shared, FromMemory, FromTable, TenantDry, NoToken, LineFull, NoSlotInTime, PlacesFull, OwnFull, Throttled, Unavailable, TooLate,
		UpstreamThrottled, UpstreamFailed, UpstreamTimedOut, Unreadable, NoInstance} {
		if r.Counts[o].N == 0 {
			continue
		}
		l := line{o.Text(), toneOf[o], column(func(p Point) float64 { return p.Rates[o] })}
		if all = append(all, l); !o.stored() {
			asked = append(asked, l)
		}
	}
	became := over("What became of the requests", "Requests a second. Stored answers go out whatever the budget says.", nil, all...)
	became.stacked = true
	figures := []figure{became}
	if len(asked) > 0 && len(asked) < len(all) {
		f := over("What NHTSA had to be asked for", "The same without stored answers. The green part is what the shared rate allows: all above it is refused, at once where that can be known.", nil, asked...)
		f.stacked = true
		figures = append(figures, f)
	}
	figures = append(figures, over("Waiting for a place at NHTSA", "Of those who got one: half waited less than the one line, nineteen of twenty less than the other.", secondsTick,
		line{"95 of 100 waited less", orange, column(func(p Point) float64 { return p.P95 })},
		line{"half waited less", blue, column(func(p Point) float64 { return p.P50 })}))
	if f, ok := r.waitFigure(); ok {
		figures = append(figures, f)
	}
	slots := []line{{"calls under way", green, column(func(p Point) float64 { return p.InFlight })}, {"callers in the line", amber, column(func(p Point) float64 { return p.Line })}}
	if len(r.Pauses) > 0 {
		slots = append(slots, line{"slots in force", ink, column(func(p Point) float64 { return p.Slots })})
		figures = append(figures, over("Pauses", "The share of the time in which nobody might start a call, because NHTSA had asked for it or failed. After each the slots in force grow back one by one: see below.",
			func(x float64) string { return trimmed(100*x) + " %" }, line{"nobody may start", red, column(func(p Point) float64 { return p.Held })}))
	}
	figures = append(figures,
		over("Slots and line", fmt.Sprintf("On average over each part of the time. Of %d slots %d were in use at most; the longest line had %d callers.", r.Slots, r.Peak, r.PeakLine), nil, slots...),
		over("DynamoDB", "Units a second over all items. One item takes 1,000 written and 3,000 read; the table below has the busiest second of each.", nil,
			line{"read units", sky, column(func(p Point) float64 { return p.ReadUnits })},
			line{"write units", violet, column(func(p Point) float64 { return p.WriteUnits })}))
	return figures
}

// hours are the labels of the time axis.
func (r *Report) hours() (labels []string, ticks int) {
	for i := range len(r.Course) + 1 {
		at := time.Duration(float64(i) / float64(len(r.Course)) * float64(r.For))
		switch {
		case r.For > 48*time.Hour:
			labels = append(labels, fmt.Sprintf("day %d, %02d:00", int(at.Hours())/24+1, int(at.Hours())%24))
		case r.For >= 2*time.Hour:
			labels = append(labels, fmt.Sprintf("%02d:%02d", int(at.Hours()), int(at.Minutes())%60))
		default:
			labels = append(labels, fmt.Sprintf("%d:%02d", int(at.Minutes()), int(at.Seconds())%60))
		}
	}
	labels[len(labels)-1] = "" // there is no room for it
	return labels, 13
}

// waitFigure is how many waited how long.
func (r *Report) waitFigure() (figure, bool) {
	if len(r.Waits) == 0 {
		return figure{}, false
	}
	longest := 0.0
	for _, b := range r.Waits {
		longest = max(longest, b.Seconds)
	}
	step := 0.01
	for _, s := range []float64{0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5} {
		if longest/step > 40 {
			step = s
		}
	}
	every := int(math.Ceil(math.Ceil(longest/step) / 14)) // bars for each label
	n := int(math.Ceil(longest/step/float64(every)))*every + 1
	values, labels := make([]float64, n), make([]string, n)
	for i := range labels {
		labels[i] = trimmed(float64(i)*step) + " s"
	}
	for _, b := range r.Waits {
		values[min(n-1, int(b.Seconds/step))] += float64(b.N)
	}
	return figure{Title: "How long they waited", Caption: "Calls to NHTSA by the wait before them, all of the time.", bars: true, labels: labels, ticks: (n-1)/every + 1, lines: []line{{"calls", blue, values}}}, true
}
