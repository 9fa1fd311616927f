package report

import (
	"fmt"
	"math"
	"slices"
)

// memory is the section about what runs know by heart: the training loss on windows that
// they have seen against the validation loss at the same step.
func (b *builder) memory() {
	t := Table{Head: []string{"run", "epochs", "train loss", "val loss", "val - train", "lowest val", "at epoch", "risen since", "seen windows", "val at that step", "val - seen"},
		Caption: "Train loss is the mean over the last epoch, whose windows were all seen before in a run of two epochs or more; val loss is at the last step. " +
			"Seen windows is the loss of `refrain eval --seen`: the trained model on the last windows that it was trained on, at the same step as the val loss beside it. Risen since is the val loss at the end minus its lowest."}
	type known struct {
		p   *point
		gap float64
	}
	var most *known
	for _, p := range b.points {
		r := p.run
		if r == nil || math.IsNaN(p.train) || len(r.Evals) == 0 {
			continue
		}
		last, low := r.Evals[len(r.Evals)-1], r.Evals[0]
		for _, e := range r.Evals {
			if e.Loss < low.Loss {
				low = e
			}
		}
		gap := last.Loss - p.train
		row := []string{p.name, number(p.epochs), loss4(p.train), loss4(last.Loss), fmt.Sprintf("%+.4f", gap), loss4(low.Loss), number(significant(low.Epoch, 3)), fmt.Sprintf("%.4f", last.Loss-low.Loss), "", "", ""}
		if seen, val, ok := r.seen(); ok {
			row[8], row[9], row[10] = loss4(seen.Loss), loss4(val), fmt.Sprintf("%+.4f", val-seen.Loss)
			gap = val - seen.Loss
		}
		t.add(Ref(p.ref), row...)
		if p.epochs >= 2 && (most == nil || gap > most.gap) {
			most = &known{p, gap}
		}
	}
	if len(t.Rows) == 0 {
		return
	}
	if len(t.Rows) > mostRecipes {
		t.Caption += fmt.Sprintf(" The first %d of %d runs.", mostRecipes, len(t.Rows))
		t.Rows, t.Refs = t.Rows[:mostRecipes], t.Refs[:mostRecipes]
	}
	sec := Section{Title: "Training against validation", Tables: []Table{t}}
	if most != nil && most.gap > 0 {
		text := fmt.Sprintf("The largest distance between validation and training is %.4f nats, of %s.", most.gap, most.p.name)
		sec.Text = []string{text}
		b.says(Ref(most.p.ref), "%s", text)
	}
	if f := b.memoryFigure(); f != nil {
		sec.Figures = []*Figure{f}
	}
	b.section(sec)
}

// seen is the newest measurement on windows that were trained on, with the validation loss
// of the same step.
func (r *Run) seen() (m Measured, val float64, ok bool) {
	for _, x := range r.Measured {
		if !x.Seen || ok && x.Step < m.Step {
			continue
		}
		i := slices.IndexFunc(r.Evals, func(e Eval) bool { return e.Step == x.Step })
		if i >= 0 {
			m, val, ok = x, r.Evals[i].Loss, true
		}
	}
	return m, val, ok
}

// memoryFigure has validation over training loss: runs go down and then, where they learn
// by heart, to the left and up.
func (b *builder) memoryFigure() *Figure {
	f := &Figure{Title: "Validation over training loss", XLabel: "training loss on seen windows", YLabel: "validation loss",
		Caption: "One line a run, in the order of its evaluations: from the right to the left as it learns. The training loss is the mean over the steps since the evaluation before. A line that turns up learns its windows by heart."}
	for i, r := range b.page.Runs {
		s := Series{Name: r.Name, Hue: i, Dash: i/numHues%2 == 1, Marks: true}
		train := map[float64]float64{}
		epochs, gaps := r.Gaps()
		for k, e := range epochs {
			train[e] = gaps[k]
		}
		for _, e := range r.Evals {
			gap, ok := train[e.Epoch]
			if !ok || e.Epoch <= 1 { // windows of the first epoch were not seen before
				continue
			}
			s.Add(e.Loss-gap, e.Loss, math.NaN(), b.page.ref(r))
		}
		if len(s.X) > 1 {
			f.Series = append(f.Series, s)
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	return f
}
