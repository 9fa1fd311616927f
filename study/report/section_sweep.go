package report

import (
	"fmt"
	"path/filepath"
	"strings"

	"refrain/study"
	"refrain/study/descent"
)

// sweepRecord is what `refrain sweep --json` prints, as far as the cells do not say it.
type sweepRecord struct {
	Registry    string               `json:"registry"`
	Status      string               `json:"status"`
	Reason      string               `json:"reason"`
	Cells       []*study.Record      `json:"cells"`
	Certificate *descent.Certificate `json:"certificate"`
	Recipe      *study.Recipe        `json:"recipe"`
}

// sweeps are the certificates of descents, and what came of sizes.
func (b *builder) sweeps() {
	for _, f := range b.r.files {
		if f.sweep == nil {
			continue
		}
		if f.sweep.Status != "done" {
			b.warn("", "the sweep of %s is %s: %s", f.path, f.sweep.Status, f.sweep.Reason)
		}
		r := f.sweep.Recipe
		if r == nil {
			continue
		}
		sec := Section{Title: "Descent on the grid"}
		for i, s := range r.Sizes {
			if s.Certificate == nil {
				continue
			}
			sec.Tables = append(sec.Tables, b.certificate(f.sweep.Registry, &r.Sizes[i]))
		}
		if len(sec.Tables) == 0 {
			continue
		}
		b.section(sec)
		for _, w := range r.Warnings {
			b.warn("", "descent of %s: %s", f.path, w)
		}
	}
}

// certificate lists the neighbours of the best place.
func (b *builder) certificate(registry string, s *study.Sized) Table {
	c := s.Certificate
	t := Table{Title: fmt.Sprintf("%s, %s parameters", s.Label, number(float64(s.Params))), Head: []string{"place", "move", "loss", "difference", "spread", "clear"}}
	verdict := "certified: every neighbour was measured and none is better"
	if !c.Certified {
		verdict = "no certificate"
	}
	t.Caption = fmt.Sprintf("Best place of %d measured; %s. A difference is to the best place over the same seeds, and clear where it exceeds its spread.", c.Measured, verdict)
	place := func(values []float64) string {
		text := ""
		for i, v := range values {
			if i > 0 {
				text += " "
			}
			text += c.Axes[i].Name + "=" + number(v)
		}
		return text
	}
	refs := func(o descent.Outcome) string {
		var rows []int
		for _, r := range o.Runs {
			if n, ok := b.page.Sources.at["run "+filepath.Join(registry, r)]; ok {
				rows = append(rows, n)
			}
		}
		return Ref(rows...)
	}
	t.add(refs(c.Outcome), place(c.Values), "best", fmt.Sprintf("%.4f", c.Loss), "", "", "")
	b.says(refs(c.Outcome), "Descent ends at %s with a loss of %.4f (%s).", place(c.Values), c.Loss, verdict)
	for _, n := range c.Neighbours {
		move := fmt.Sprintf("%s %+d", n.Axis, n.Step)
		if n.Edge {
			t.add("", place(n.Values), move+", beyond the grid", "", "", "", "")
			continue
		}
		loss, diff, spread, isClear := "", "", "", ""
		if n.Loss != nil {
			loss, diff = fmt.Sprintf("%.4f", *n.Loss), fmt.Sprintf("%+.4f", n.Difference)
			if len(n.Outcome.Losses) > 1 {
				spread, isClear = fmt.Sprintf("%.4f", n.Spread), map[bool]string{true: "yes", false: "no"}[n.Clear]
			}
		}
		t.add(refs(n.Outcome), place(n.Values), move, loss, diff, spread, isClear)
	}
	for _, w := range c.Withheld {
		b.warn(refs(c.Outcome), "certificate of %s withheld: %s", s.Label, w)
	}
	if len(c.Edges) > 0 {
		b.warn(refs(c.Outcome), "%s is best at the end of the grid in %s: the optimum may lie beyond", s.Label, strings.Join(c.Edges, ", "))
	}
	return t
}
