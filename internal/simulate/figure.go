package simulate

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-analyze/charts"
)

// tone is a colour by what it means. In a page it follows the reader's light or dark; in a file of its own it is the light one.
type tone int

const (
	ink tone = iota
	faint
	grid
	paper
	blue
	sky
	teal
	green
	orange
	amber
	brown
	violet
	red
	wine
	grey
	pink
	lime
	rose
	coral
	tones
)

var light = [tones]string{"#1b1f24", "#667079", "#e4e7ea", "#ffffff", "#2f6db5", "#84b3e3", "#2a9aa0", "#2c9a5f", "#e2802f", "#f0b84a", "#a0703a", "#8059b8", "#d2483f", "#8f2a3c", "#9aa3ab", "#cf5f95", "#8fc04a", "#e9a3c4", "#f08a7d"}
var dark = [tones]string{"#e8eaed", "#9aa3ad", "#2c3138", "#16191d", "#5d9be6", "#a5c8ee", "#4fc0c4", "#4cc283", "#f09a52", "#f5cb6d", "#c0915b", "#a888dc", "#ef6d63", "#c4566b", "#7d868f", "#e48ab5", "#a9d46a", "#b77494", "#f7aba2"}

// The library draws in these, which nothing else has: the page names each as a variable, a file replaces each.
func (t tone) drawn() charts.Color { return charts.ColorRGB(1, 2, uint8(t)) }

var drawnColor = regexp.MustCompile(`rgba?\(1,2,(\d+)(?:,([\d.]+))?\)`)

// inPage gives a picture the colours of the page around it.
func inPage(svg string) string {
	return drawnColor.ReplaceAllStringFunc(svg, func(c string) string {
		m := drawnColor.FindStringSubmatch(c)
		if m[2] == "" {
			return "var(--t" + m[1] + ")"
		}
		alpha, _ := strconv.ParseFloat(m[2], 64)
		return fmt.Sprintf("color-mix(in srgb,var(--t%s) %.0f%%,transparent)", m[1], 100*alpha)
	})
}

// onItsOwn gives a picture the light colours, for a file of its own.
func onItsOwn(svg string) string {
	return drawnColor.ReplaceAllStringFunc(svg, func(c string) string {
		m := drawnColor.FindStringSubmatch(c)
		n, _ := strconv.Atoi(m[1])
		hex := light[min(n, int(tones)-1)]
		if m[2] == "" {
			return hex
		}
		v, _ := strconv.ParseUint(hex[1:], 16, 32)
		return fmt.Sprintf("rgba(%d,%d,%d,%s)", v>>16, v>>8&255, v&255, m[2])
	})
}

// line is one row of numbers in a picture.
type line struct {
	name   string
	tone   tone
	values []float64
}

// figure is a picture.
type figure struct {
	Title, Caption string
	lines          []line
	labels         []string // of the x axis, one for each value
	ticks          int      // how many labels are shown, 0: as many as fit
	unit           func(float64) string
	stacked        bool
	bars           bool
	log            bool // the y axis; values of 0 lie on its floor
	dots           bool
	legend         bool // in the picture; else the page has it
	x, y           string
}

const pictureWidth = 920

func (f figure) svg(height int) (string, error) {
	var names []string
	var colors []charts.Color
	var values [][]float64
	floor, ceiling := math.Inf(1), math.Inf(-1)
	for _, l := range f.lines {
		names, colors = append(names, l.name), append(colors, l.tone.drawn())
		v := l.values
		if f.log {
			v = make([]float64, len(l.values))
			for i, x := range l.values {
				if v[i] = charts.GetNullValue(); x > 0 {
					v[i] = math.Log10(x)
					floor, ceiling = min(floor, v[i]), max(ceiling, v[i])
				}
			}
		}
		values = append(values, v)
	}
	theme := charts.MakeTheme(charts.ThemeOption{AxisStrokeColor: tone(grid).drawn(), XAxisStrokeColor: tone(faint).drawn(), AxisSplitLineColor: tone(grid).drawn(),
		BackgroundColor: charts.ColorTransparent, TextColor: tone(faint).drawn(), TextColorTitle: tone(ink).drawn(), TextColorLegend: tone(ink).drawn(), SeriesColors: colors})
	format := f.unit
	if format == nil {
		format = plainNumber
	}
	y := charts.ValueAxisOption{ValueFormatter: format, Title: f.y, LabelFontStyle: charts.FontStyle{FontSize: 11}, TitleFontStyle: charts.FontStyle{FontSize: 11},
		SplitLineShow: charts.Ptr(true), RangeValuePaddingScale: charts.Ptr(0.05)}
	if !f.log {
		top, steps := niceTop(f.highest())
		y.Min, y.Max, y.LabelCount = charts.Ptr(0.0), &top, steps+1
		y.PreferNiceIntervals, y.RangeValuePaddingScale = charts.Ptr(false), charts.Ptr(0.0)
	} else {
		floor, ceiling = math.Floor(floor), math.Ceil(ceiling)
		if !(ceiling > floor) {
			floor, ceiling = 0, 1
		}
		y.Min, y.Max, y.LabelCount = &floor, &ceiling, int(ceiling-floor)+1
		y.PreferNiceIntervals, y.RangeValuePaddingScale = charts.Ptr(false), charts.Ptr(0.0)
		y.ValueFormatter = func(v float64) string { return format(math.Pow(10, v)) }
	}
	x := charts.CategoryAxisOption{Labels: f.labels, LabelCount: f.ticks, Title: f.x, LabelFontStyle: charts.FontStyle{FontSize: 11}, TitleFontStyle: charts.FontStyle{FontSize: 11}}
	legend := charts.LegendOption{SeriesNames: names, Show: &f.legend, FontStyle: charts.FontStyle{FontSize: 12}}
	padding := charts.NewBox(8, 10, 18, 6)
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: pictureWidth, Height: height, Theme: theme})
	var err error
	if f.bars {
		o := charts.NewBarChartOptionWithData(values)
		o.Theme, o.Padding, o.CategoryAxis, o.ValueAxis, o.Legend, o.StackSeries = theme, padding, x, []charts.ValueAxisOption{y}, legend, charts.Ptr(f.stacked)
		o.BarMargin = charts.Ptr(0.15)
		err = p.BarChart(o)
	} else {
		x.BoundaryGap = charts.Ptr(false)
		o := charts.NewLineChartOptionWithData(values)
		o.Theme, o.Padding, o.XAxis, o.YAxis, o.Legend, o.StackSeries = theme, padding, x, []charts.ValueAxisOption{y}, legend, charts.Ptr(f.stacked)
		o.LineStrokeWidth, o.Symbol = 1.8, charts.Symbol{Shape: charts.SymbolNone}
		if f.dots {
			o.Symbol = charts.Symbol{Shape: charts.SymbolDot}
			o.LineStrokeWidth = 2.2
		}
		if f.stacked {
			o.LineStrokeWidth, o.FillOpacity = 0.6, 205
		}
		err = p.LineChart(o)
	}
	if err != nil {
		return "", err
	}
	b, err := p.Bytes()
	return tidy(string(b)), err
}

// highest is the highest value, of stacked rows their sum.
func (f figure) highest() (top float64) {
	for i := range f.labels {
		sum := 0.0
		for _, l := range f.lines {
			if f.stacked {
				sum += l.values[i]
			} else {
				sum = max(sum, l.values[i])
			}
		}
		top = max(top, sum)
	}
	return top
}

// niceTop is the end of an axis from 0 on that reads well, and in how many steps it is reached.
func niceTop(highest float64) (top float64, steps int) {
	if highest <= 0 {
		return 1, 4
	}
	unit := math.Pow(10, math.Floor(math.Log10(highest))-1)
	for {
		for _, step := range []float64{1, 2, 2.5, 5, 10} {
			if n := math.Ceil(highest * 1.02 / (step * unit)); n <= 6 {
				return n * step * unit, int(n)
			}
		}
		unit *= 10
	}
}

var (
	fontFamily = regexp.MustCompile(`font-family:'[^']*',sans-serif`)
	nothing    = regexp.MustCompile(`<path d="[^"]*" style="stroke:none;fill:none"/>`)
)

// tidy lets a picture use the fonts of the reader, and leaves out what is not seen.
func tidy(svg string) string {
	svg = fontFamily.ReplaceAllString(svg, "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif")
	return strings.ReplaceAll(nothing.ReplaceAllString(svg, ""), "\n", " ")
}

func plainNumber(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1e9:
		return trimmed(x/1e9) + "G"
	case a >= 1e6:
		return trimmed(x/1e6) + "M"
	case a >= 1e4:
		return trimmed(x/1e3) + "k"
	}
	return trimmed(x)
}

func trimmed(x float64) string {
	if a := math.Abs(x); a > 0 && a < 0.01 {
		return strconv.FormatFloat(round3(x), 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64)
}

func secondsTick(x float64) string { return trimmed(x) + " s" }
