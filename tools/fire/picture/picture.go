// Package picture draws figures over time as SVG.
package picture

import (
	"fmt"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"vingate/internal/chaos"
)

// panel is one of the pictures that stand one below the other.
type panel struct {
	title string
	lines []line
}

type line struct {
	name string
	of   func(i int, s []chaos.Sample) float64
}

// most points of a line; more nobody sees.
const most = 600

// span is how many samples one point stands for: ten seconds, or more in a long run.
func span(s []chaos.Sample) int { return max(10, (len(s)+most-1)/most) }

// over is how fast a count grows, a second.
func over(count func(chaos.Sample) int) func(int, []chaos.Sample) float64 {
	return func(i int, s []chaos.Sample) float64 {
		from := max(0, i-span(s))
		if passed := s[i].At - s[from].At; passed > 0 {
			return float64(count(s[i])-count(s[from])) / passed.Seconds()
		}
		return 0
	}
}

// mean is a value's, over the same time.
func mean(value func(chaos.Sample) int64) func(int, []chaos.Sample) float64 {
	return func(i int, s []chaos.Sample) float64 {
		from, sum := max(0, i-span(s)+1), int64(0)
		for _, o := range s[from : i+1] {
			sum += value(o)
		}
		return float64(sum) / float64(i+1-from)
	}
}

func now(value func(chaos.Sample) int) func(int, []chaos.Sample) float64 {
	return func(i int, s []chaos.Sample) float64 { return float64(value(s[i])) }
}

var panels = []panel{
	{"answers and calls, a second", []line{
		{"answered", over(func(s chaos.Sample) int { return s.Served })},
		{"refused", over(func(s chaos.Sample) int { return s.Refused })},
		{"failed", over(func(s chaos.Sample) int { return s.Failed })},
		{"leases granted", over(func(s chaos.Sample) int { return s.Leases })},
	}},
	{"waits, milliseconds", []line{
		{"half of them", mean(func(s chaos.Sample) int64 { return s.WaitP50.Milliseconds() })},
		{"95 of 100", mean(func(s chaos.Sample) int64 { return s.WaitP95.Milliseconds() })},
	}},
	{"the gate", []line{
		{"limit", now(func(s chaos.Sample) int { return s.Limit })},
		{"live leases", mean(func(s chaos.Sample) int64 { return int64(s.Live) })},
		{"in the line", mean(func(s chaos.Sample) int64 { return int64(s.Queued) })},
	}},
	{"of the instance with most: files, goroutines, MB", []line{
		{"open files", now(func(s chaos.Sample) int { return s.Files })},
		{"goroutines", now(func(s chaos.Sample) int { return s.Goroutines })},
		{"memory", now(func(s chaos.Sample) int { return int(s.Memory >> 20) })},
	}},
}

// Write draws the samples into a file.
func Write(path string, samples []chaos.Sample) error {
	const width, height, legend = 24 * vg.Centimeter, 6 * vg.Centimeter, 4 * vg.Centimeter
	canvas := vgsvg.New(width, height*vg.Length(len(panels)))
	whole := draw.New(canvas)
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for row, p := range panels {
		drawn := plot.New()
		drawn.Title.Text, drawn.X.Label.Text = p.title, "minutes"
		drawn.Legend.Top, drawn.Legend.Left, drawn.Legend.Padding = true, true, vg.Millimeter
		drawn.Y.Min = 0
		drawn.Add(plotter.NewGrid())
		for n, l := range p.lines {
			var points plotter.XYs
			for i := 0; i < len(samples); i += (len(samples) + most - 1) / most {
				points = append(points, plotter.XY{X: samples[i].At.Minutes(), Y: l.of(i, samples)})
			}
			if len(points) == 0 {
				continue
			}
			curve, err := plotter.NewLine(points)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			curve.Color = plotutil.Color(n)
			drawn.Add(curve)
			drawn.Legend.Add(l.name, curve)
		}
		// The names stand beside the lines, not on them.
		names, tile := drawn.Legend, tiles.At(whole, 0, row)
		drawn.Legend = plot.NewLegend()
		drawn.Draw(draw.Crop(tile, 0, -legend, 0, 0))
		names.Draw(draw.Crop(tile, width-legend, 0, 0, 0))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
