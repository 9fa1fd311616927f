package micro

import (
	"fmt"
	"math"
	"slices"

	"refrain/study/report"
)

// overRecipes are figures of losses over something that recipes differ in: the test loss
// with its spread over runs, and the training loss, which falls so much further that both
// in one would hide the first.
func (s scope) overRecipes(a *Answer, title, xLabel string, points []Point, x func(p Point) float64) {
	test, train := report.Series{Name: "test loss", Marks: true}, report.Series{Name: "training loss", Marks: true, Hue: 1}
	for _, p := range points {
		list := s.sides(p)
		if len(list) == 0 {
			continue
		}
		mean, spread := s.r.mean(s.corpus, list)
		test.Add(x(p), mean, spread, p.Label())
		if v := meanOf(s.models(p), trainOf); !math.IsNaN(v) {
			train.Add(x(p), v, math.NaN(), p.Label())
		}
	}
	for _, f := range []*report.Figure{
		{Title: title, Caption: "Test loss, mean over seeds and pools; bars are the standard deviation over runs.", Series: []report.Series{test}},
		{Title: title + ": training loss", Caption: "Mean over the last epoch, seeds and pools.", Series: []report.Series{train}},
	} {
		if f.XLabel, f.YLabel, f.LogX = xLabel, "nats a token", true; len(f.Series[0].X) > 0 {
			a.figures = append(a.figures, f)
		}
	}
}

// draw adds a figure that has something in it.
func (a *Answer) draw(f *report.Figure) {
	if len(f.Series) > 0 || f.Heat != nil {
		a.figures = append(a.figures, f)
	}
}

// heat is the loss for choices over epochs and decay of what was tried with a size at its
// usual learning rate.
func (s scope) heat(z *sizeTable) *report.Figure {
	f := &report.Figure{Title: "Epochs and decay, model " + z.name, XLabel: "decay", YLabel: "epochs",
		Caption: fmt.Sprintf("Loss for choices at a learning rate of %g, one seed on the first pool.", z.lr)}
	var epochs []int
	var decays []float64
	for _, x := range z.tune {
		if x.LR == z.lr {
			epochs, decays = append(epochs, x.Epochs), append(decays, x.Decay)
		}
	}
	slices.Sort(epochs)
	slices.Sort(decays)
	epochs, decays = slices.Compact(epochs), slices.Compact(decays)
	h := &report.Heat{}
	for _, d := range decays {
		h.Cols = append(h.Cols, fmt.Sprint(d))
	}
	some := false
	for _, e := range epochs {
		h.Rows = append(h.Rows, fmt.Sprint(e))
		row, from := make([]float64, len(decays)), make([]string, len(decays))
		for i, d := range decays {
			row[i] = math.NaN()
			if m := s.r.model(s.point(z.name, trial{e, z.lr, d, 0, 0}), 0); m.well() {
				row[i], from[i], some = *m.Val, m.Run, true
			}
		}
		h.Value, h.Sources = append(h.Value, row), append(h.Sources, from)
	}
	if some {
		f.Heat = h
	}
	return f
}

// overMembers is the test loss over the members of two recipes, on the pools that are
// reported.
func (s scope) overMembers(single, best Point) *report.Figure {
	f := &report.Figure{Title: "Members", XLabel: "members", YLabel: "nats a token", Caption: "Test loss of mean logits, mean over pools; members are the first so many seeds."}
	for i, p := range []Point{single, best} {
		if i == 1 && best == single {
			break
		}
		name := "recipe of the best single model"
		if i == 1 {
			name = "recipe of the lowest limit"
		}
		series := report.Series{Name: name, Marks: true, Hue: i}
		for k := range s.t.members {
			var list []side
			for _, pool := range s.pools() {
				if e := s.r.ensemble(p.in(pool)); e != nil && len(e.Logit) > k {
					list = append(list, side{pool: pool, docs: e.Logit[k]})
				}
			}
			if mean, _ := s.r.mean(s.corpus, list); len(list) > 0 {
				series.Add(float64(k+1), mean, math.NaN(), p.Label())
			}
		}
		if len(series.X) > 0 {
			f.Series = append(f.Series, series)
		}
	}
	return f
}
