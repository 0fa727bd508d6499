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

// over is how fast a count grows: a second's mean over ten.
func over(count func(chaos.Sample) int) func(int, []chaos.Sample) float64 {
	return func(i int, s []chaos.Sample) float64 {
		from := max(0, i-10)
		if passed := s[i].At - s[from].At; passed > 0 {
			return float64(count(s[i])-count(s[from])) / passed.Seconds()
		}
		return 0
	}
}

func now(value func(chaos.Sample) int) func(int, []chaos.Sample) float64 {
	return func(i int, s []chaos.Sample) float64 { return float64(value(s[i])) }
}

var panels = []panel{
	{"a second", []line{
		{"answered", over(func(s chaos.Sample) int { return s.Served })},
		{"refused", over(func(s chaos.Sample) int { return s.Refused })},
		{"writes to the gate", over(func(s chaos.Sample) int { return s.Writes })},
	}},
	{"the gate", []line{
		{"limit", now(func(s chaos.Sample) int { return s.Limit })},
		{"live", now(func(s chaos.Sample) int { return s.Live })},
		{"in the line", now(func(s chaos.Sample) int { return s.Queued })},
	}},
	{"the largest instance", []line{
		{"memory in MB", now(func(s chaos.Sample) int { return int(s.Memory >> 20) })},
		{"open files", now(func(s chaos.Sample) int { return s.Files })},
	}},
}

// Write draws the samples into a file.
func Write(path string, samples []chaos.Sample) error {
	const width, height = 24 * vg.Centimeter, 7 * vg.Centimeter
	canvas := vgsvg.New(width, height*vg.Length(len(panels)))
	whole := draw.New(canvas)
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for row, p := range panels {
		drawn := plot.New()
		drawn.Title.Text, drawn.X.Label.Text = p.title, "seconds"
		drawn.Legend.Top = true
		drawn.Y.Min = 0
		drawn.Add(plotter.NewGrid())
		for n, l := range p.lines {
			points := make(plotter.XYs, len(samples))
			for i := range samples {
				points[i].X, points[i].Y = samples[i].At.Seconds(), l.of(i, samples)
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
		drawn.Draw(tiles.At(whole, 0, row))
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
