package report

import (
	"fmt"
	"math"
)

// speed is the section about throughput.
func (b *builder) speed() {
	t := Table{Head: []string{"run", "tok/s", "wait", "steps", "parameters", "precision", "processor"},
		Caption: "Input tokens a second, the median of the logged steps; the first line after a start counts the start and is left out, as it is of wait, the largest logged share of time in which the device had nothing to do."}
	f := &Figure{Title: "Throughput", XLabel: "steps", YLabel: "tokens a second", Caption: "Of the logged steps, without those after a start."}
	odd := 0
	for i, r := range b.page.Runs {
		tok, wait := r.Speed()
		if tok == 0 {
			continue
		}
		s := Series{Name: r.Name, Hue: i, Dash: i/numHues%2 == 1}
		for k, x := range r.Steps {
			if x.TokS > 3*tok {
				odd++
				continue
			}
			if x.TokS > 0 && k > 0 && !x.Began {
				s.Add(float64(x.Step), x.TokS, math.NaN(), b.page.ref(r))
			}
		}
		if len(s.X) > 1 {
			s.thin(mostPoints)
			f.Series = append(f.Series, s)
		}
		params := ""
		if r.Plan.Params > 0 {
			params = fmt.Sprint(r.Plan.Params)
		}
		t.add(b.page.ref(r), r.Name, fmt.Sprintf("%.0f", tok), fmt.Sprintf("%.2f %%", 100*wait), fmt.Sprint(r.Steps[len(r.Steps)-1].Step), params, r.Info.Precision, r.Info.CPU)
	}
	if len(t.Rows) == 0 {
		return
	}
	sec := Section{Title: "Throughput", Tables: []Table{t}}
	if odd > 0 {
		f.Caption += fmt.Sprintf(" %d values above three times the median, of moments between two lines, are left out.", odd)
	}
	if len(f.Series) > 0 {
		sec.Figures = []*Figure{f}
	}
	b.section(sec)
}

// mostPoints is how many points of a curve can be told apart.
const mostPoints = 300

// thin keeps every n-th point, so that at most that many are left, and the last.
func (s *Series) thin(most int) {
	n := (len(s.X) + most - 1) / most
	if n < 2 {
		return
	}
	out := Series{Name: s.Name, Hue: s.Hue, Dash: s.Dash, Marks: s.Marks, NoLine: s.NoLine}
	for i := range s.X {
		if i%n == 0 || i == len(s.X)-1 {
			out.Add(s.X[i], s.Y[i], s.Err[i], s.Sources[i])
		}
	}
	*s = out
}
