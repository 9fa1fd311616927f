package report

import (
	"fmt"
	"math"
	"slices"

	"refrain/study/fit"
)

// lawResamples are enough for intervals that are read off a page.
const lawResamples = 400

// law is a fitted law with what it is of.
type law struct {
	what, unit string // "parameters", "millions"
	fit.Result
	sd   []float64 // of the points over seeds; nil or NaN: not known
	refs []string  // of the points
	ref  string    // of all
}

// laws fits the losses of one set over parameters and over unique tokens.
func (b *builder) laws(s *pointSet) {
	for _, x := range []struct {
		name string
		of   func(*point) float64
		free []string
	}{
		{"parameters", func(p *point) float64 { return p.params }, sizeKeys},
		{"unique tokens", func(p *point) float64 { return p.tokens }, dataKeys},
	} {
		n := 0
		for _, part := range s.strata(x.free) {
			l, fair := s.fairLine(part.groups, axis{of: x.of, keys: x.free})
			if len(l.at) < 2 {
				continue
			}
			if n++; n > mostStrata {
				continue
			}
			b.law(s, part, l, x.name, x.of)
			if !fair {
				var rows []int
				for _, g := range l.at {
					for _, p := range g.points {
						rows = append(rows, p.ref)
					}
				}
				b.warn(Ref(rows...), "over %s not every place was tuned by as many recipes, so the law compares more with less tuning", x.name)
			}
		}
	}
}

// fairLine is the line over an axis that a law may be fitted to: the best recipe at every
// place where equally many were tried at each, or else the recipe that is there at all
// places. fair is false where there is no such line; it is the first one then.
func (s *pointSet) fairLine(list []*group, x axis) (l *line, fair bool) {
	best := tuned(list, x.of)
	count := map[float64]int{}
	for _, g := range usable(list, x.of) {
		count[x.of(g.first)]++
	}
	same := true
	for _, g := range best.at {
		same = same && count[x.of(g.first)] == count[x.of(best.at[0].first)]
	}
	if same {
		return best, true
	}
	for _, o := range s.lines(list, x, nil) {
		if len(o.at) == len(best.at) {
			return o, true
		}
	}
	return best, false
}

// law fits the losses of a line over an axis.
func (b *builder) law(s *pointSet, part stratum, l *line, name string, of func(*point) float64) {
	var points []fit.Point
	w := law{what: name + s.name}
	if part.name != "" {
		w.what += ", " + part.name
	}
	var unit float64
	unit, w.unit = unitOf(of(l.at[len(l.at)-1].first))
	var rows []int
	for _, g := range l.at {
		points = append(points, fit.Point{X: of(g.first) / unit, Loss: g.mean})
		w.sd, w.refs = append(w.sd, g.sd), append(w.refs, g.ref())
		for _, p := range g.points {
			rows = append(rows, p.ref)
		}
	}
	w.ref = Ref(rows...)
	if len(points) < 3 {
		w.Points = points
		b.lawSection(&w, false)
		return
	}
	var err error
	if w.Result, err = fit.Fit(points, fit.Options{Start: fit.Params, Resamples: lawResamples}); err != nil {
		w.Points = points
		b.warn(w.ref, "no law over %s: %v", w.what, err)
		b.lawSection(&w, false)
		return
	}
	b.lawSection(&w, true)
}

// unitOf is a unit in which x has few digits.
func unitOf(x float64) (unit float64, name string) {
	switch {
	case x >= 1e9:
		return 1e9, "billions"
	case x >= 1e6:
		return 1e6, "millions"
	}
	return 1e3, "thousands"
}

// fits are the laws that were saved as records.
func (b *builder) fits() {
	for _, f := range b.r.files {
		ref := func(what string) string {
			return Ref(b.page.Sources.Add("file "+f.path, Source{What: what, Code: f.head.Code, Where: f.path}))
		}
		switch {
		case f.fit != nil:
			r := ref("fit of points that were given")
			w := &law{what: "x, of " + f.path, unit: "", Result: f.fit.Result, ref: r, refs: slices.Repeat([]string{r}, len(f.fit.Points))}
			b.lawSection(w, true)
			if e := f.fit.Efficiency; e != nil {
				b.says(r, "The recipe is worth %.3g times its data.", *e)
			} else if f.fit.Undefined != "" {
				b.says(r, "Data efficiency is undefined: %s.", f.fit.Undefined)
			}
		case f.limit != nil:
			b.limit(f.limit, ref("double limit of losses that were given"), f.path)
		}
	}
}

// limit is a double limit: laws over members for every size, and over sizes.
func (b *builder) limit(l *fit.Limit, ref, path string) {
	fig := &Figure{Title: "Laws over members, of " + path, XLabel: "members", YLabel: "nats a token", LogX: true,
		Caption: "A law over members for every size; its end is where more members would lead."}
	for i, in := range l.ByN {
		marks, curve := lawSeries(&in.Result, "N = "+number(in.N), i, nil, nil)
		fig.Series = append(fig.Series, marks, curve)
	}
	b.section(Section{Title: "Members, then parameters", Figures: []*Figure{fig}, Tables: []Table{b.limitTable(l, ref)}})
	for _, s := range l.Skipped {
		b.warn(ref, "left out of the double limit: %s", s)
	}
	b.lawSection(&law{what: "N, of asymptotes over members", Result: l.Joint, ref: ref, refs: slices.Repeat([]string{ref}, len(l.Joint.Points))}, true)
}

func (b *builder) limitTable(l *fit.Limit, ref string) Table {
	t := Table{Head: lawHead()}
	for _, in := range l.ByN {
		t.add(ref, lawRow("members, N = "+number(in.N), &in.Result)...)
		b.lawWarnings(ref, "members at N = "+number(in.N), &in.Result)
	}
	return t
}

func lawHead() []string {
	return []string{"law over", "A", "alpha", "E", "E from", "to", "by", "rmse", "points"}
}

func lawRow(name string, r *fit.Result) []string {
	row := []string{name, fmt.Sprintf("%.4g", r.A), fmt.Sprintf("%.4g", r.Alpha), fmt.Sprintf("%.4f", r.E), "", "", "", fmt.Sprintf("%.5f", r.RMSE), fmt.Sprint(len(r.Points))}
	if in := r.Intervals; in != nil {
		row[1] += fmt.Sprintf(" (%.3g to %.3g)", in.A[0], in.A[1])
		row[2] += fmt.Sprintf(" (%.3g to %.3g)", in.Alpha[0], in.Alpha[1])
		row[4], row[5], row[6] = fmt.Sprintf("%.4f", in.E[0]), fmt.Sprintf("%.4f", in.E[1]), in.Method
	}
	return row
}

func (b *builder) lawWarnings(ref, name string, r *fit.Result) {
	for _, w := range r.Warnings {
		b.warn(ref, "law over %s: %s", name, w)
	}
	if r.Broken {
		b.warn(ref, "law over %s: the fit is broken; its asymptote says nothing", name)
	}
}

// lawSection shows points, and a law through them where there is one.
func (b *builder) lawSection(w *law, fitted bool) {
	label := w.what
	if w.unit != "" {
		label += ", " + w.unit
	}
	fig := &Figure{Title: "Loss over " + w.what, XLabel: label, YLabel: "nats a token", LogX: true,
		Caption: "Marks are the best recipe at every place, with the standard deviation over seeds where it is known."}
	marks, curve := lawSeries(&w.Result, "measured", 0, w.sd, w.refs)
	fig.Series = []Series{marks}
	sec := Section{Title: "Loss over " + w.what, Figures: []*Figure{fig}}
	if fitted && w.Broken {
		t := Table{Head: lawHead()}
		t.add(w.ref, lawRow(w.what, &w.Result)...)
		sec.Tables = []Table{t}
		b.lawWarnings(w.ref, w.what, &w.Result)
	} else if fitted {
		curve.Name, curve.Hue = fmt.Sprintf("L = A / x^alpha + E, E = %.4f", w.E), 1
		fig.Series = append(fig.Series, curve)
		fig.Caption += " The law is fitted by least squares; the dashed line is where it ends."
		end := Series{Name: "E", Hue: 1, Dash: true, X: []float64{curve.X[0], curve.X[len(curve.X)-1]}, Y: []float64{w.E, w.E}}
		fig.Series = append(fig.Series, end)
		interval := ""
		if in := w.Intervals; in != nil {
			interval = fmt.Sprintf(" (%.4f to %.4f by %s)", in.E[0], in.E[1], in.Method)
		}
		b.says(w.ref, "Over %s the loss would end at %.4f%s.", w.what, w.E, interval)
		t := Table{Head: lawHead()}
		t.add(w.ref, lawRow(w.what, &w.Result)...)
		sec.Tables = []Table{t}
		b.lawWarnings(w.ref, w.what, &w.Result)
	}
	b.section(sec)
}

// lawSeries are the points of a law and its curve, to four times the largest x.
func lawSeries(r *fit.Result, name string, hue int, sd []float64, refs []string) (marks, curve Series) {
	marks, curve = Series{Name: name, Hue: hue, NoLine: true}, Series{Name: name + ", law", Hue: hue}
	lo, hi := math.Inf(1), 0.0
	for i, p := range r.Points {
		e, ref := math.NaN(), ""
		if i < len(sd) {
			e = sd[i]
		}
		if i < len(refs) {
			ref = refs[i]
		}
		marks.Add(p.X, p.Loss, e, ref)
		lo, hi = min(lo, p.X), max(hi, p.X)
	}
	const steps = 40
	for k := range steps + 1 {
		x := lo * math.Pow(4*hi/lo, float64(k)/steps)
		curve.X, curve.Y = append(curve.X, significant(x, 6)), append(curve.Y, r.At(x))
	}
	return marks, curve
}
