package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"refrain/study/frontier"
)

// frontiers are the losses to be had on so many GPUs in so much time: those of runs, and
// in a panel of their own those that are projected.
func (b *builder) frontiers() {
	for _, f := range b.r.files {
		r := f.frontier
		if r == nil {
			continue
		}
		rows := b.frontierRows(f, r)
		for i := range r.Models {
			m := &r.Models[i]
			name := number(float64(m.Params)) + " parameters"
			text := fmt.Sprintf("Of runs whose schedule ended, with %d rows a GPU at a time", m.PerGPU)
			if m.PerGPUAssumed {
				text += ", the smallest batch of its runs"
			}
			text += "; a step of B rows on G GPUs is as many optimiser-step equivalents as rounds of so many rows."
			b.panel(m.Frontier, rows, "Frontier, "+name, text, false)
			if m.Projected != nil {
				b.projection(m, rows, name)
			}
		}
		if r.Wall != nil {
			b.panel(r.Wall, rows, "Frontier in seconds", fmt.Sprintf("Over all sizes of models; %s.", r.Wall.Axis), false)
		}
		b.frontierSays(r, rows)
		for _, l := range r.Left {
			b.warn("", "left out of the frontier of %s: %s: %s", f.path, l.Path, l.Why)
		}
		for _, w := range r.Warnings {
			b.warn(Ref(slices.Concat(rows...)...), "frontier of %s: %s", f.path, w)
		}
	}
}

// frontierRows are the rows of every run of a frontier in the provenance.
func (b *builder) frontierRows(f *file, r *frontier.Report) (rows [][]int) {
	own := b.fileRow(f, "frontier of runs", "")
	src := Source{Code: f.head.Code}
	if d := r.Data; d != nil {
		b.page.Sources.list[own-1].Data, b.page.Sources.list[own-1].Tokenizer = d.DataHash, d.TokenizerHash
		src = Source{Data: d.DataHash, Tokenizer: d.TokenizerHash, Code: d.Code}
	}
	for i := range r.Runs {
		list := []int{own}
		for _, from := range r.Runs[i].From {
			n, ok := b.page.Sources.at["run "+from]
			if !ok {
				s, known := f.behind[from]
				if !known {
					s = src
				}
				s.What, s.Where = r.Runs[i].Name, from
				n = b.page.Sources.Add("run "+from, s)
			}
			list = append(list, n)
		}
		rows = append(rows, list)
	}
	return rows
}

// rowsOf are those of a point's run, whose index a damaged record may have wrong.
func rowsOf(rows [][]int, p *frontier.Point) string {
	if p == nil || p.Run < 0 || p.Run >= len(rows) {
		return ""
	}
	return Ref(rows[p.Run]...)
}

func (b *builder) projection(m *frontier.Model, rows [][]int, name string) {
	text := "Projected, not observed: no run has shown this. p GPUs share the work of one"
	if l := m.Latency; l != nil {
		text += fmt.Sprintf(" and make its step 1/(f + (1-f)/p + c log2 p) times faster, with f = %s and c = %s (%s)", number(l.Serial), number(l.Communication), l.From)
		if l.Residual > 0 {
			text += fmt.Sprintf(", which is off by %s at most", number(significant(l.Residual, 2)))
		}
	}
	var list []string
	for i, w := range m.Ways {
		if i < len(m.Speedups) {
			list = append(list, fmt.Sprintf("%.3g with %d", m.Speedups[i], w))
		}
	}
	if len(list) > 0 {
		text += ": " + strings.Join(list, ", ")
	}
	b.panel(m.Projected, rows, "Projection, "+name, text+".", true)
}

// panel is a figure of the least loss over time for every number of GPUs, the grid, and
// the points that no other equals in GPUs, time and loss.
func (b *builder) panel(p *frontier.Panel, rows [][]int, title, text string, projected bool) {
	fig := &Figure{Title: "Least loss over time, " + lower(title), XLabel: "deadline, " + axisName(p.Axis), YLabel: "nats a token", LogX: true,
		Caption: "The least loss within a deadline, for every number of GPUs; bars are the standard deviation over seeds."}
	if projected {
		fig.Caption = "Projected, not observed. " + fig.Caption
	}
	last := 0.0
	for i := range p.Pareto {
		last = max(last, p.Pareto[i].Time)
	}
	var before []float64
	for i, gpus := range p.GPUs {
		name := fmt.Sprintf("%d GPUs", gpus)
		if gpus == 1 {
			name = "1 GPU"
		}
		if projected {
			name += ", projected"
		}
		s := staircase(p.Pareto, gpus, rows)
		s.Name, s.Hue, s.Dash = name, i, projected || i >= numHues
		if len(s.X) == 0 || slices.Equal(s.X, before) { // these GPUs have nothing to do
			continue
		}
		before = slices.Clone(s.X)
		if n := len(s.X) - 1; s.X[n] < last {
			s.Add(last, s.Y[n], math.NaN(), s.Sources[n])
		}
		fig.Series = append(fig.Series, s)
	}
	sec := Section{Title: title, Text: []string{text}, Tables: []Table{b.gridTable(p, rows), paretoTable(p, rows)}}
	if len(fig.Series) > 0 {
		sec.Figures = []*Figure{fig}
	}
	b.section(sec)
}

// axisName is the measure of time alone; the text has the rest.
func axisName(axis string) string {
	name, _, _ := strings.Cut(axis, ",")
	return name
}

// staircase is the least loss over time with so many GPUs. The points that no other equals
// hold all of it.
func staircase(pareto []frontier.Point, gpus int, rows [][]int) Series {
	s := Series{Marks: true, Steps: true}
	var fit []*frontier.Point
	for i := range pareto {
		if x := &pareto[i]; x.GPUs <= gpus && x.Time > 0 {
			fit = append(fit, x)
		}
	}
	slices.SortStableFunc(fit, func(x, y *frontier.Point) int {
		return cmp.Or(cmp.Compare(x.Time, y.Time), cmp.Compare(x.Loss, y.Loss))
	})
	least := math.Inf(1)
	for _, x := range fit {
		if x.Loss >= least {
			continue
		}
		least = x.Loss
		s.Add(x.Time, x.Loss, x.SD, rowsOf(rows, x))
	}
	return s
}

// gridTable has the best run for every number of GPUs and deadline.
func (b *builder) gridTable(p *frontier.Panel, rows [][]int) Table {
	t := Table{Title: "The best within a deadline", Head: []string{"GPUs"},
		Caption: "Loss, batch and GPUs really used. Deadlines are in " + p.Axis + ". An @ marks a prefix of a longer schedule, whose learning rate had not come down."}
	for _, x := range p.Deadlines {
		t.Head = append(t.Head, number(significant(x, 6)))
	}
	for _, gpus := range p.GPUs {
		row := []string{fmt.Sprint(gpus)}
		var refs []int
		for _, deadline := range p.Deadlines {
			i := slices.IndexFunc(p.Grid, func(c frontier.Cell) bool { return c.GPUs == gpus && c.Deadline == deadline })
			text := ""
			if i >= 0 && p.Grid[i].Best != nil {
				x := p.Grid[i].Best
				text = fmt.Sprintf("%.4f, %d rows on %d", x.Loss, x.Batch, x.GPUs)
				if x.Prefix {
					text += " @"
				}
				if x.Ways > 1 {
					text += fmt.Sprintf(", %d share a step", x.Ways)
				}
				if x.Run >= 0 && x.Run < len(rows) {
					refs = append(refs, rows[x.Run]...)
				}
			}
			row = append(row, text)
		}
		t.add(Ref(refs...), row...)
	}
	return t
}

func pointHead() []string {
	return []string{"GPUs", "time", "seconds", "loss", "spread", "seeds", "batch", "steps", "epochs", "recipe"}
}

func pointCells(x *frontier.Point) []string {
	spread, epochs, name := "", "", x.Name
	if x.Seeds > 1 {
		spread = loss4(x.SD)
	}
	if x.Epochs > 0 {
		epochs = number(significant(x.Epochs, 4))
	}
	if x.Prefix {
		name += " @ prefix"
	}
	secs := ""
	if x.Seconds != nil {
		secs = number(significant(*x.Seconds, 4))
	}
	return []string{fmt.Sprint(x.GPUs), number(significant(x.Time, 6)), secs, loss4(x.Loss), spread, fmt.Sprint(x.Seeds), fmt.Sprint(x.Batch), fmt.Sprint(x.Steps), epochs, name}
}

func paretoTable(p *frontier.Panel, rows [][]int) Table {
	t := Table{Title: "Nothing else is as good in GPUs, time and loss", Head: pointHead(), Caption: "Times are in " + p.Axis + "."}
	for i := range p.Pareto {
		if i == mostRecipes {
			t.Caption += fmt.Sprintf(" The first %d of %d.", mostRecipes, len(p.Pareto))
			break
		}
		t.add(rowsOf(rows, &p.Pareto[i]), pointCells(&p.Pareto[i])...)
	}
	return t
}

// frontierSays words where more GPUs gain the most, among deadlines at which the fewest have
// a run.
func (b *builder) frontierSays(r *frontier.Report, rows [][]int) {
	for i := range r.Models {
		p, params := r.Models[i].Frontier, number(float64(r.Models[i].Params))
		if len(p.GPUs) < 2 {
			continue
		}
		few, many := p.GPUs[0], p.GPUs[len(p.GPUs)-1]
		at := func(gpus int, deadline float64) *frontier.Point {
			k := slices.IndexFunc(p.Grid, func(c frontier.Cell) bool { return c.GPUs == gpus && c.Deadline == deadline })
			if k < 0 {
				return nil
			}
			return p.Grid[k].Best
		}
		var one, best *frontier.Point
		var when float64
		for _, deadline := range p.Deadlines {
			x, y := at(few, deadline), at(many, deadline)
			if x != nil && y != nil && (one == nil || x.Loss-y.Loss > one.Loss-best.Loss) {
				one, best, when = x, y, deadline
			}
		}
		switch {
		case one == nil:
		case best.Loss < one.Loss:
			b.says(rowsOf(rows, best), "Of %s parameters, more GPUs gain the most within %s %s: %.4f on %d of up to %d GPUs, with batch %d, against %.4f on up to %d.",
				params, number(significant(when, 6)), axisName(p.Axis), best.Loss, best.GPUs, many, best.Batch, one.Loss, few)
		default:
			b.says(rowsOf(rows, best), "Of %s parameters, up to %d GPUs reach no lower loss than %d within any deadline listed.", params, many, few)
		}
	}
}

// plans are the runs to repeat for a deadline.
func (b *builder) plans() {
	for _, f := range b.r.files {
		a := f.plan
		if a == nil {
			continue
		}
		ref := Ref(b.fileRow(f, "plan for a deadline", ""))
		t := Table{Head: append([]string{"choice"}, pointHead()...), Caption: "Times are in seconds."}
		row := func(name string, x *frontier.Point) { t.add(ref, append([]string{name}, pointCells(x)...)...) }
		what := fmt.Sprintf("%d GPUs for %s seconds", a.GPUs, number(significant(a.Seconds, 6)))
		switch {
		case a.Best != nil:
			row("best", a.Best)
			b.says(ref, "With %s the best run is batch %d for %d steps, with a loss of %.4f on %d GPU(s).", what, a.Best.Batch, a.Best.Steps, a.Best.Loss, a.Best.GPUs)
		case a.Fastest != nil:
			row("shortest, too long", a.Fastest)
			b.says(ref, "No run fits into %s; the shortest takes %s seconds.", what, number(significant(a.Fastest.Time, 4)))
		default:
			b.says(ref, "No run was timed on %d GPUs or fewer.", a.GPUs)
		}
		for i := range a.Fewer {
			row("on fewer", &a.Fewer[i])
		}
		sec := Section{Title: "Plan: " + what}
		if len(t.Rows) > 0 {
			sec.Tables = []Table{t}
		}
		b.section(sec)
	}
}

// lower is a title inside a sentence.
func lower(title string) string { return strings.ToLower(title[:1]) + title[1:] }
