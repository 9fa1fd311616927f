package report

import (
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one line, or a set of points, of a figure.
type Series struct {
	Name    string
	X, Y    []float64
	Err     []float64 // half the height of the bar at each point; nil: none, NaN: none there
	Sources []string  // of every point, for the CSV: references to the provenance; nil: none
	Dash    bool
	Marks   bool // a mark at every point
	NoLine  bool // marks only
	Steps   bool // the line keeps its height up to the next point
	Hue     int  // series of one hue share a colour
}

// Add appends a point.
func (s *Series) Add(x, y, err float64, source string) {
	s.X, s.Y, s.Err, s.Sources = append(s.X, x), append(s.Y, y), append(s.Err, err), append(s.Sources, source)
}

// Figure is a plot with the numbers behind it: lines and points, or a heat map.
type Figure struct {
	Title, XLabel, YLabel string
	Caption               string
	Series                []Series
	EpochMarks            bool // x counts epochs: ticks and light lines at whole ones
	LogX                  bool // x above 0
	Heat                  *Heat
}

// LegendEntry is a name with the look of its line; the page shows it beside
// the figure, where it covers no curve.
type LegendEntry struct {
	Name  string
	Class string // of its colour in the style sheet
	Kind  string // line, dash or mark
}

// Legend returns the entries of the figure's series, in their order.
func (f *Figure) Legend() []LegendEntry {
	var out []LegendEntry
	for _, s := range f.Series {
		e := LegendEntry{s.Name, "s" + hue(s.Hue).class(), "line"}
		switch {
		case s.NoLine:
			e.Kind = "mark"
		case s.Dash:
			e.Kind = "dash"
		}
		out = append(out, e)
	}
	return out
}

// size is one of the two sizes that every figure is drawn in; the style sheet shows the
// one that fits. A drawing that is scaled down to a phone would have illegible text.
type size struct {
	class          string
	w, h           float64 // pixels
	xTicks, yTicks int     // most of them
}

func sizes() [2]size {
	return [2]size{{"wide", 720, 340, 11, 7}, {"slim", 328, 248, 5, 6}}
}

// text sizes in pixels.
const (
	tickText  = 11
	labelText = 12
)

// SVG draws the figure in both sizes.
func (f *Figure) SVG() (template.HTML, error) {
	var out []string
	for _, s := range sizes() {
		c := newCanvas(s.w, s.h)
		p, err := f.plot(s)
		if err != nil {
			return "", fmt.Errorf("figure %s: %w", f.Title, err)
		}
		p.Draw(draw.Crop(draw.New(c), 1, -1, 1, -1))
		if c.err != nil {
			return "", fmt.Errorf("figure %s: %w", f.Title, c.err)
		}
		out = append(out, c.svg(s.class, f.Title))
	}
	// The canvas escapes every text in it.
	return template.HTML(strings.Join(out, "\n")), nil
}

func (f *Figure) plot(s size) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = nil // the page's
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
		a.Color, a.Tick.Color, a.Label.TextStyle.Color, a.Tick.Label.Color = inkText, inkText, inkText, inkText
		a.Label.TextStyle.Font, a.Tick.Label.Font = font.From(sans, labelText), font.From(sans, tickText)
		a.Label.Padding = 4
	}
	p.X.Label.Text, p.Y.Label.Text = f.XLabel, f.YLabel
	if f.Heat != nil {
		return p, f.Heat.draw(p, s)
	}
	for _, series := range f.Series {
		if i := slices.IndexFunc(series.X, func(x float64) bool { return !(x > 0) || math.IsInf(x, 0) }); f.LogX && i >= 0 {
			return nil, fmt.Errorf("series %s: %g has no place on a logarithmic axis; the record is damaged", series.Name, series.X[i])
		}
	}
	f.axes(p, s)
	for _, series := range f.Series {
		if err := series.draw(p); err != nil {
			return nil, fmt.Errorf("series %s: %w", series.Name, err)
		}
	}
	f.room(p)
	return p, nil
}

// axes sets ticks and light lines.
func (f *Figure) axes(p *plot.Plot, s size) {
	p.Y.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick { return niceTicks(lo, hi, s.yTicks) })
	p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick { return niceTicks(lo, hi, s.xTicks) })
	switch {
	case f.LogX:
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick { return logTicks(lo, hi, f.xs(), s.xTicks) })
	case f.EpochMarks:
		p.X.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
			if hi < 2 {
				return niceTicks(lo, hi, s.xTicks)
			}
			return wholeTicks(lo, hi, s.xTicks)
		})
	}
	g := plotter.NewGrid()
	g.Horizontal.Color, g.Horizontal.Width = inkGrid, 0.7
	g.Vertical.Color, g.Vertical.Width = inkGrid, 0
	if f.EpochMarks || f.LogX {
		g.Vertical.Width = 0.7
	}
	p.Add(g)
}

// room widens a range that is one value, which no axis can show.
func (f *Figure) room(p *plot.Plot) {
	if f.LogX && p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}
	if p.Y.Min == p.Y.Max {
		d := max(1e-3, math.Abs(p.Y.Min)*1e-3)
		p.Y.Min, p.Y.Max = p.Y.Min-d, p.Y.Max+d
	}
}

// xs are the x of the figure that are worth a label: those of marks, where there are any.
func (f *Figure) xs() (x []float64) {
	for _, marked := range []bool{true, false} {
		for _, s := range f.Series {
			if s.Marks || s.NoLine || !marked {
				x = append(x, s.X...)
			}
		}
		if len(x) > 0 {
			break
		}
	}
	return x
}

func (s *Series) draw(p *plot.Plot) error {
	var pts plotter.XYs
	bars := struct {
		plotter.XYs
		plotter.YErrors
	}{}
	for i := range s.X {
		at := plotter.XY{X: s.X[i], Y: s.Y[i]}
		if math.IsNaN(at.Y) || math.IsInf(at.Y, 0) {
			continue // it is in the CSV
		}
		pts = append(pts, at)
		if i < len(s.Err) && s.Err[i] > 0 {
			bars.XYs = append(bars.XYs, at)
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{s.Err[i], s.Err[i]})
		}
	}
	if len(pts) == 0 {
		return nil
	}
	if len(bars.XYs) > 0 {
		e, err := plotter.NewYErrorBars(bars)
		if err != nil {
			return err
		}
		e.Color, e.LineStyle.Width, e.CapWidth = hue(s.Hue), 1, 5
		p.Add(e)
	}
	if !s.NoLine {
		l, err := plotter.NewLine(pts)
		if err != nil {
			return err
		}
		l.Color, l.Width = hue(s.Hue), 1.6
		if s.Steps {
			l.StepStyle = plotter.PostStep
		}
		if s.Dash {
			l.Dashes = []vg.Length{5, 3}
		}
		p.Add(l)
	}
	if s.Marks || s.NoLine || len(pts) == 1 {
		m, err := plotter.NewScatter(pts)
		if err != nil {
			return err
		}
		m.GlyphStyle = draw.GlyphStyle{Color: hue(s.Hue), Radius: 2.6, Shape: draw.CircleGlyph{}}
		p.Add(m)
	}
	return nil
}

// CSV is the data of the figure, one point a line.
func (f *Figure) CSV() string {
	if f.Heat != nil {
		return f.Heat.csv(f)
	}
	head := []string{"series", "x", "y"}
	withErr, withSource := false, false
	for _, s := range f.Series {
		for i := range s.X {
			withErr = withErr || i < len(s.Err) && s.Err[i] > 0
			withSource = withSource || i < len(s.Sources) && s.Sources[i] != ""
		}
	}
	if withErr {
		head = append(head, "error")
	}
	if withSource {
		head = append(head, "provenance")
	}
	rows := [][]string{head}
	for _, s := range f.Series {
		for i := range s.X {
			row := []string{s.Name, exact(s.X[i]), exact(s.Y[i])}
			if withErr {
				e := ""
				if i < len(s.Err) && s.Err[i] > 0 {
					e = exact(s.Err[i])
				}
				row = append(row, e)
			}
			if withSource {
				e := ""
				if i < len(s.Sources) {
					e = s.Sources[i]
				}
				row = append(row, e)
			}
			rows = append(rows, row)
		}
	}
	return csvText(rows)
}

// csvText writes rows; a strings.Builder does not fail.
func csvText(rows [][]string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.WriteAll(rows)
	return b.String()
}

// exact is a number as it can be read back.
func exact(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// Download is a link that holds the CSV.
func (f *Figure) Download() template.URL {
	return template.URL("data:text/csv;base64," + base64.StdEncoding.EncodeToString([]byte(f.CSV())))
}

// File is the name that the CSV is saved under.
func (f *Figure) File() string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, f.Title)
	return strings.Trim(name, "-") + ".csv"
}
