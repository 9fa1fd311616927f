package bench

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"refrain/internal/fsx"
)

//go:embed page.html
var pageHTML string

// chart is a plot of the report: a bar for each name.
type chart struct {
	Title, Caption string
	SVG            template.HTML
	names          []string
	values         []float64
}

// Report writes one self-contained HTML page of all records in dir to path, whole
// or not at all: the table of figures, a plot of what has several bars, and every
// line of every record with its machine, versions and notes.
func Report(dir, path string) error {
	all, err := ReadRecords(dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s holds no record (*.json); bench ... --record %s makes one", dir, dir)
	}
	slices.Reverse(all) // the newest first
	rows, err := tableRows(all)
	if err != nil {
		return err
	}
	charts := chartsOf(all)
	for i := range charts {
		if err := charts[i].draw(); err != nil {
			return err
		}
	}
	t, err := template.New("bench").Funcs(template.FuncMap{
		"join":  strings.Join,
		"num":   number,
		"ratio": func(p *float64) string { return pressureText(p) },
	}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("bench report: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{"Rows": rows, "Charts": charts, "Records": all})
	if err != nil {
		return fmt.Errorf("bench report: %w", err)
	}
	return fsx.WriteFileAtomic(fsx.OS{}, path, b.Bytes())
}

func pressureText(p *float64) string {
	if p == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f %%", *p)
}

// tableRows is the table of figures; all has the newest record first.
func tableRows(all []Record) (rows [][]string, err error) {
	old := slices.Clone(all)
	slices.Reverse(old)
	for _, f := range figures() {
		value, r, ok, err := f.newest(old)
		if err != nil {
			return nil, err
		}
		if ok {
			state := ""
			if r.Forced {
				state = "forced"
			}
			rows = append(rows, []string{f.what, value, f.bar, "refrain " + f.command, r.Date[:10], state})
		}
	}
	return rows, nil
}

// chartsOf finds what can be drawn: the loaders of each mode beside each other, and
// the ratios to peers of everything else.
func chartsOf(all []Record) []chart {
	var out []chart
	seen := map[string]bool{}
	for _, mode := range []string{"fixed", "reshuffle", "repack"} {
		c := chart{Title: "Loaders, " + mode, Caption: "Whole batches in a ring, million input tokens a CPU-second of all processes of a loader, each at its best settings. More is better; the scale is logarithmic."}
		for _, r := range all { // the newest record of a line counts
			for _, l := range r.Lines {
				x, ok := l.Get("tok/cpu-s")
				if ok && x > 0 && strings.Contains(l.Name, "/mode="+mode+"/") && !seen[l.Name] {
					seen[l.Name] = true
					c.names, c.values = append(c.names, part(l.Name, "loader=")+" "+part(l.Name, "set=")), append(c.values, x/1e6)
				}
			}
		}
		out = append(out, c)
	}
	c := chart{Title: "Against peers", Caption: "How many times as fast as the peer, measured in the same session; medians. The scale is logarithmic."}
	for _, r := range all {
		for _, l := range r.Lines {
			x, ok := l.Get("x-peer")
			if ok && x > 0 && !strings.Contains(l.Name, "shape=") && !seen[l.Name] {
				seen[l.Name] = true
				c.names, c.values = append(c.names, l.Name), append(c.values, x)
			}
		}
	}
	out = append(out, c)
	return slices.DeleteFunc(out, func(c chart) bool { return len(c.names) == 0 })
}

// part returns the value of key in the name of a line.
func part(name, key string) string {
	_, rest, ok := strings.Cut(name, key)
	if !ok {
		return ""
	}
	v, _, _ := strings.Cut(rest, "/")
	return v
}

// draw makes horizontal bars on a logarithmic scale.
func (c *chart) draw() error {
	p := plot.New()
	low, high := slices.Min(c.values), slices.Max(c.values)
	low = min(low/2, 1)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Min, p.X.Max = low, max(high*1.5, 2*low)
	n := len(c.names)
	names := slices.Clone(c.names)
	slices.Reverse(names) // the first on top
	p.NominalY(names...)
	p.Y.Tick.Label.Font.Size, p.X.Tick.Label.Font.Size = 9, 9
	for i, v := range c.values {
		y := float64(n - 1 - i)
		bar, err := plotter.NewPolygon(plotter.XYs{{X: low, Y: y - 0.3}, {X: v, Y: y - 0.3}, {X: v, Y: y + 0.3}, {X: low, Y: y + 0.3}})
		if err != nil {
			return fmt.Errorf("bench report: %s: %w", c.names[i], err)
		}
		bar.Color, bar.LineStyle.Width = color.RGBA{0x00, 0x72, 0xb2, 0xff}, 0
		if strings.HasPrefix(c.names[i], oursName+" ") {
			bar.Color = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
		}
		p.Add(bar)
	}
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	canvas := vgsvg.New(vg.Points(660), vg.Points(40+18*float64(n)))
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("bench report: %w", err)
	}
	svg := b.String()
	if i := strings.Index(svg, "<svg"); i > 0 {
		svg = svg[i:] // without the XML declaration, which HTML does not want
	}
	c.SVG = template.HTML(svg) // the library wrote the text and escaped it
	return nil
}
