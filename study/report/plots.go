package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series is one line of a figure.
type Series struct {
	Name string
	X, Y []float64
	Dash bool
	Hue  int // series of one hue share a colour
}

// Figure is a plot with the numbers behind it.
type Figure struct {
	Title, XLabel, YLabel string
	Caption               string
	Series                []Series
	EpochMarks            bool // x counts epochs: ticks and light lines at whole ones
}

// LegendEntry is a name with the colour of its line; the page shows it beside
// the figure, where it covers no curve.
type LegendEntry struct {
	Name  string
	Color string // #rrggbb
	Dash  bool
}

// Legend returns the entries of the figure's series, in their order.
func (f *Figure) Legend() []LegendEntry {
	var out []LegendEntry
	for _, s := range f.Series {
		r, g, b, _ := palette(s.Hue).RGBA()
		out = append(out, LegendEntry{s.Name, fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8), s.Dash})
	}
	return out
}

// palette is Okabe and Ito's eight colours, which differ for every kind of
// colour vision, without the yellow that white paper swallows.
func palette(i int) color.Color {
	c := []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x44, 0x44, 0x44, 0xff},
	}
	return c[i%len(c)]
}

// SVG draws the figure.
func (f *Figure) SVG() (template.HTML, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = f.XLabel, f.YLabel
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = 10, 10
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 9, 9
	if f.EpochMarks {
		if err := f.marks(p); err != nil {
			return "", err
		}
	}
	for _, s := range f.Series {
		if len(s.X) == 0 {
			continue
		}
		pts := make(plotter.XYs, len(s.X))
		for i := range s.X {
			pts[i] = plotter.XY{X: s.X[i], Y: s.Y[i]}
		}
		l, err := plotter.NewLine(pts)
		if err != nil {
			return "", fmt.Errorf("figure %s, series %s: %w", f.Title, s.Name, err)
		}
		l.Color, l.Width = palette(s.Hue), vg.Points(1.4)
		if s.Dash {
			l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(l)
	}
	w, h := vg.Points(660), vg.Points(330)
	c := vgsvg.New(w, h)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	svg := b.String()
	if i := strings.Index(svg, "<svg"); i > 0 {
		svg = svg[i:] // without the XML declaration, which HTML does not want
	}
	// The library writes the text; everything in it was escaped by it.
	return template.HTML(svg), nil
}

// marks draws a light vertical line at every whole epoch.
func (f *Figure) marks(p *plot.Plot) error {
	hi, lo, top := 0.0, 0.0, 0.0
	first := true
	for _, s := range f.Series {
		for i := range s.X {
			hi = max(hi, s.X[i])
			if first {
				lo, top, first = s.Y[i], s.Y[i], false
			}
			lo, top = min(lo, s.Y[i]), max(top, s.Y[i])
		}
	}
	if hi >= 2 {
		p.X.Tick.Marker = plot.TickerFunc(wholeTicks)
	}
	for e := 1.0; e <= hi && hi <= 128; e++ {
		l, err := plotter.NewLine(plotter.XYs{{X: e, Y: lo}, {X: e, Y: top}})
		if err != nil {
			return err
		}
		l.Color, l.Width = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}, vg.Points(0.7)
		p.Add(l)
	}
	return nil
}

// wholeTicks puts labels at whole numbers, at most ten of them, at steps of 1, 2
// or 5 times a power of ten.
func wholeTicks(lo, hi float64) (ticks []plot.Tick) {
	step := 1.0
	for i := 0; (hi-lo)/step > 10; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	for x := math.Ceil(lo/step) * step; x <= hi; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	return ticks
}

// CSV is the data of the figure, one point a line.
func (f *Figure) CSV() string {
	var b strings.Builder
	b.WriteString("series,x,y\n")
	for _, s := range f.Series {
		for i := range s.X {
			fmt.Fprintf(&b, "%s,%g,%g\n", s.Name, s.X[i], s.Y[i])
		}
	}
	return b.String()
}

func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
