package report

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Heat is a table of losses drawn as shades: the lower, the darker, and the lowest with a
// frame. Rows lie above each other, the first at the bottom.
type Heat struct {
	Cols, Rows []string
	Value      [][]float64 // by row and column; NaN where there is none
	Sources    [][]string  // references to the provenance
}

// deepest is the opacity of the lowest loss: text on it stays readable, light or dark.
const deepest = 0.42

func (h *Heat) bounds() (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, row := range h.Value {
		for _, v := range row {
			if !math.IsNaN(v) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	return lo, hi
}

func (h *Heat) draw(p *plot.Plot, s size) error {
	for _, row := range h.Value {
		if len(row) != len(h.Cols) {
			return fmt.Errorf("a heat map with %d columns has a row of %d", len(h.Cols), len(row))
		}
	}
	// Every second name, or fewer, is left out where they would not stand beside each other.
	name := func(names []string, room, letter float64, of func(string) vg.Length) plot.Ticker {
		var ticks plot.ConstantTicks
		longest := letter
		for _, n := range names {
			longest = max(longest, float64(of(n)))
		}
		most := max(1, int(room/(longest+6)))
		every := (len(names) + most - 1) / most
		for i, n := range names {
			if i%every == 0 {
				ticks = append(ticks, plot.Tick{Value: float64(i), Label: n})
			}
		}
		return ticks
	}
	flat := func(string) vg.Length { return 0 }
	p.X.Tick.Marker = name(h.Cols, s.w-80, 0, p.X.Tick.Label.Width)
	p.Y.Tick.Marker = name(h.Rows, s.h-50, tickText+2, flat)
	p.X.Tick.Length, p.Y.Tick.Length = 0, 0
	p.X.Padding, p.Y.Padding = 2, 2
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(h.Cols))-0.5, -0.5, float64(len(h.Rows))-0.5
	p.Add(h)
	return nil
}

// Plot implements plot.Plotter.
func (h *Heat) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	style := text.Style{
		Color: inkText, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, tickText),
		XAlign: draw.XCenter, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler,
	}
	lo, hi := h.bounds()
	width, height := float64(toX(1)-toX(0)), float64(toY(1)-toY(0))
	format := h.format(lo, hi, func(s string) bool { return float64(style.Width(s)) < width-4 && height > tickText+2 })
	framed := false
	for j, row := range h.Value {
		for i, v := range row {
			x, y := float64(i), float64(j)
			box := vg.Rectangle{Min: vg.Point{X: toX(x - 0.5), Y: toY(y - 0.5)}, Max: vg.Point{X: toX(x + 0.5), Y: toY(y + 0.5)}}
			box.Min.X, box.Min.Y, box.Max.X, box.Max.Y = box.Min.X+1, box.Min.Y+1, box.Max.X-1, box.Max.Y-1
			if math.IsNaN(v) {
				c.StrokeLines(draw.LineStyle{Color: inkGrid, Width: 1}, []vg.Point{box.Min, box.Max})
				continue
			}
			deep := deepest
			if hi > lo {
				deep = 0.04 + (deepest-0.04)*(hi-v)/(hi-lo)
			}
			c.SetColor(shade{inkHeat, deep})
			c.Fill(box.Path())
			if v == lo && !framed {
				framed = true
				c.SetLineStyle(draw.LineStyle{Color: inkText, Width: 1.5})
				c.Stroke(box.Path())
			}
			if format != "" {
				c.FillText(style, vg.Point{X: (box.Min.X + box.Max.X) / 2, Y: (box.Min.Y + box.Max.Y) / 2}, fmt.Sprintf(format, v))
			}
		}
	}
}

// format is the most decimals that fit into a box, or none at all.
func (h *Heat) format(lo, hi float64, fits func(string) bool) string {
	for _, f := range []string{"%.4f", "%.3f", "%.2f"} {
		if fits(fmt.Sprintf(f, lo)) && fits(fmt.Sprintf(f, hi)) {
			return f
		}
	}
	return ""
}

func (h *Heat) csv(f *Figure) string {
	rows := [][]string{{f.XLabel, f.YLabel, "loss", "provenance"}}
	for j, r := range h.Value {
		for i, v := range r {
			if math.IsNaN(v) {
				continue
			}
			source := ""
			if h.Sources != nil {
				source = h.Sources[j][i]
			}
			rows = append(rows, []string{h.Cols[i], h.Rows[j], strconv.FormatFloat(v, 'g', -1, 64), source})
		}
	}
	return csvText(rows)
}
