package report

import (
	"fmt"
	"math"
	"slices"
)

// runSections are the curves and the table of the page's runs.
func (p *Page) runSections() []Section {
	out := []Section{{Title: "Training curves", Figures: p.figures()}, {Title: "Runs", Tables: []Table{p.runTable()}}}
	if len(out[0].Figures) == 0 {
		out = out[1:]
	}
	return out
}

// hues numbers the groups in order of appearance.
func (p *Page) hues() func(*Run) (name string, hue int, first bool) {
	var names []string
	return func(r *Run) (string, int, bool) {
		name := r.Name
		if p.Group != nil {
			name = p.Group(r)
		}
		if i := slices.Index(names, name); i >= 0 {
			return name, i, false
		}
		names = append(names, name)
		return name, len(names) - 1, true
	}
}

func (p *Page) figures() []*Figure {
	val := &Figure{Title: "Validation loss", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true,
		Caption: "Mean loss over all tokens of the validation store, a fixed set of documents that no run has read."}
	tr := &Figure{Title: "Training loss", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true,
		Caption: "Mean over the steps of each epoch, of a run of few epochs over equal parts of its steps. With repeated data it falls long after the validation loss has turned."}
	gap := &Figure{Title: "Gap between validation and training", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true,
		Caption: "Validation loss minus the mean training loss of the steps before it, as many as lie between evaluations. Where it grows, the model learns its training data by heart."}
	hue := p.hues()
	for _, r := range p.Runs {
		name, h, first := hue(r)
		label := r.Name
		if p.Group != nil && !first {
			label = name + " (again)"
		} else if p.Group != nil {
			label = name
		}
		// Beyond the number of colours the second round is dashed.
		s := Series{Name: label, Hue: h, Dash: !first || h/numHues%2 == 1}
		for i, f := range []*Figure{val, tr, gap} {
			c := s
			switch i {
			case 0:
				for _, e := range r.Evals {
					c.X, c.Y = append(c.X, e.Epoch), append(c.Y, e.Loss)
				}
			case 1:
				c.X, c.Y = r.TrainCurve()
			case 2:
				c.X, c.Y = r.Gaps()
			}
			if len(c.X) == 0 {
				continue
			}
			if ref := p.ref(r); ref != "" {
				c.Sources = slices.Repeat([]string{ref}, len(c.X))
			}
			f.Series = append(f.Series, c)
		}
	}
	var out []*Figure
	for _, f := range []*Figure{val, tr, gap} {
		if len(f.Series) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// ref is the reference of a run's row in the provenance, or empty.
func (p *Page) ref(r *Run) string {
	if n, ok := p.Sources.at[r.key()]; ok {
		return Ref(n)
	}
	return ""
}

func (p *Page) runTable() Table {
	t := Table{Head: []string{"run", "steps", "epochs", "train loss", "val loss", "tok/s", "wait", "status", "config", "data", "chain"},
		Caption: "Train loss is the mean over the last epoch. Speed is the median of the logged steps; wait is the largest logged share of time in which the device had nothing to do, the first line after a start left out. Hashes are shortened."}
	for _, r := range p.Runs {
		row := []string{r.Name, "0", "", "", "", "", "", "unfinished", short(r.Info.ConfigHash), short(r.Info.DataHash), short(r.Chain)}
		if n := len(r.Steps); n > 0 {
			row[1], row[2] = fmt.Sprint(r.Steps[n-1].Step), fmt.Sprintf("%.4g", r.Steps[n-1].Epoch)
			if loss, ok := r.FinalTrain(); ok {
				row[3] = fmt.Sprintf("%.4f", loss)
			}
			tok, wait := r.Speed()
			row[5], row[6] = fmt.Sprintf("%.0f", tok), fmt.Sprintf("%.2f %%", 100*wait)
		}
		if v, ok := r.FinalVal(); ok && !math.IsNaN(v) {
			row[4] = fmt.Sprintf("%.4f", v)
		}
		if r.Exit != nil {
			row[7] = r.Exit.Status
		}
		t.Rows = append(t.Rows, row)
		if ref := p.ref(r); ref != "" {
			t.Refs = append(t.Refs, ref)
		}
	}
	return t
}
