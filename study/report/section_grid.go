package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// axis is a number that recipes differ in.
type axis struct {
	name, label string
	of          func(*point) float64 // 0 or NaN: not known
	keys        []string             // settings that say it
}

func axisEpochs() axis {
	return axis{"epochs", "epochs", func(p *point) float64 { return p.epochs }, lengthKeys}
}

func axisBatch() axis {
	return axis{"batch", "rows in a step", func(p *point) float64 { return p.batch }, []string{keyBatch}}
}

// line is groups that differ in one axis only, in its order.
type line struct {
	label string
	at    []*group
}

// best is the group with the lowest loss.
func (l *line) best() *group {
	best := l.at[0]
	for _, g := range l.at {
		if g.mean < best.mean {
			best = g
		}
	}
	return best
}

// usable are groups whose every seed ended well and whose x is known.
func usable(list []*group, x func(*point) float64) (out []*group) {
	for _, g := range list {
		if !math.IsNaN(g.mean) && !g.trouble && x(g.first) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// lines are groups over an axis, everything else equal, with two or more places on it;
// those with the lowest loss come first. Their labels leave out the unsaid keys.
func (s *pointSet) lines(list []*group, x axis, unsaid []string) (out []*line) {
	at := map[string]*line{}
	for _, g := range usable(list, x.of) {
		key := labelOf(g.first.settings, x.keys...)
		l := at[key]
		if l == nil {
			l = &line{label: s.label(g.first.settings, slices.Concat(x.keys, unsaid)...)}
			at[key] = l
			out = append(out, l)
		}
		l.at = append(l.at, g)
	}
	for _, l := range out {
		slices.SortStableFunc(l.at, func(a, b *group) int { return cmp.Compare(x.of(a.first), x.of(b.first)) })
	}
	out = slices.DeleteFunc(out, func(l *line) bool { return x.of(l.at[0].first) == x.of(l.at[len(l.at)-1].first) })
	slices.SortStableFunc(out, func(a, b *line) int { return cmp.Compare(a.best().mean, b.best().mean) })
	return out
}

// tuned is the best group at every place of an axis, whatever else it has.
func tuned(list []*group, x func(*point) float64) *line {
	l := &line{label: "best of all else"}
	for _, g := range usable(list, x) {
		i := slices.IndexFunc(l.at, func(o *group) bool { return x(o.first) == x(g.first) })
		switch {
		case i < 0:
			l.at = append(l.at, g)
		case g.mean < l.at[i].mean:
			l.at[i] = g
		}
	}
	slices.SortStableFunc(l.at, func(a, b *group) int { return cmp.Compare(x(a.first), x(b.first)) })
	return l
}

// paired is the difference of a minus b over the seeds that both have.
func paired(a, b *group) (mean, stdErr float64, n int) {
	var d []float64
	for _, p := range a.points {
		for _, q := range b.points {
			if p.seed == q.seed {
				d = append(d, p.val-q.val)
				break
			}
		}
	}
	if len(d) == 0 {
		return math.NaN(), math.NaN(), 0
	}
	mean, sd := stat.MeanStdDev(d, nil)
	if len(d) < 2 {
		sd = math.NaN()
	}
	return mean, sd / math.Sqrt(float64(len(d))), len(d)
}

// difference words how much higher a is than b.
func difference(a, b *group) string {
	mean, se, n := paired(a, b)
	switch {
	case n == 0:
		return "of other seeds"
	case math.IsNaN(se):
		return fmt.Sprintf("%.4f (one seed)", mean)
	}
	return fmt.Sprintf("%.4f +- %.4f (%d seeds)", mean, se, n)
}

// grids are the figures over epochs and over batch, and the heat map.
func (b *builder) grids(s *pointSet) {
	for _, x := range []axis{axisEpochs(), axisBatch()} {
		b.over(s, x)
	}
	b.heat(s)
}

// mostLines is how many curves a figure has beside that of the best.
const mostLines = 6

// mostStrata is how many sizes of models and of data have figures over epochs or batch.
const mostStrata = 4

// over is the section about one axis.
func (b *builder) over(s *pointSet, x axis) {
	sec := Section{Title: "Over " + x.name + s.name}
	n := 0
	for _, part := range s.strata(nil) {
		all := s.lines(part.groups, x, fixedKeys())
		if len(all) == 0 {
			continue
		}
		if n++; n > mostStrata {
			continue
		}
		sec.Figures = append(sec.Figures, b.overFigures(s, part, all, x)...)
		text, ref := turn(all[0], x, part.name)
		sec.Text = append(sec.Text, text)
		if n == 1 {
			b.says(ref, "%s", text)
		}
	}
	if n > mostStrata {
		sec.Text = append(sec.Text, fmt.Sprintf("There are %d sizes of models and data with several %s; the %d with the lowest losses are shown.", n, x.name, mostStrata))
	}
	if n > 0 {
		b.section(sec)
	}
}

// overFigures are validation and training loss over an axis in one stratum.
func (b *builder) overFigures(s *pointSet, part stratum, all []*line, x axis) []*Figure {
	where := s.name
	if part.name != "" {
		where += ", " + part.name
	}
	val := &Figure{Title: "Validation loss over " + x.name + where, XLabel: x.label, YLabel: "nats a token", LogX: true,
		Caption: "Means over seeds; bars are the standard deviation over seeds."}
	train := &Figure{Title: "Training loss over " + x.name + where, XLabel: x.label, YLabel: "nats a token", LogX: true,
		Caption: "Of the same runs: means over the last epoch, on windows that were trained on."}
	shown := all[:min(len(all), mostLines)]
	if len(all) > 1 {
		l := tuned(part.groups, x.of)
		shown = append([]*line{l}, shown...)
		val.Caption += " Best of all else takes the best recipe at every place; the lowest of several noisy means is a little too low."
	}
	if len(all) > mostLines {
		val.Caption += fmt.Sprintf(" Of %d recipes the %d with the lowest losses.", len(all), mostLines)
	}
	for i, l := range shown {
		name := nameOf(l.label)
		a, c := Series{Name: name, Hue: i, Marks: true, Dash: i >= numHues}, Series{Name: name, Hue: i, Marks: true, Dash: i >= numHues}
		for _, g := range l.at {
			at := x.of(g.first)
			a.Add(at, g.mean, g.sd, g.ref())
			if !math.IsNaN(g.trainMean) {
				c.Add(at, g.trainMean, math.NaN(), g.ref())
			}
		}
		val.Series = append(val.Series, a)
		if len(c.X) > 0 {
			train.Series = append(train.Series, c)
		}
	}
	if len(train.Series) == 0 {
		return []*Figure{val}
	}
	return []*Figure{val, train}
}

// turn words where on an axis the best line is lowest, and by how much the ends are above.
func turn(l *line, x axis, stratum string) (text, ref string) {
	best, first, last := l.best(), l.at[0], l.at[len(l.at)-1]
	where := fmt.Sprintf("%s = %s", x.name, number(x.of(best.first)))
	with := ""
	for _, text := range []string{stratum, l.label} {
		if text != "" && with == "" {
			with = " with " + text
		} else if text != "" {
			with += " " + text
		}
	}
	switch best {
	case first, last:
		other := last
		if best == last {
			other = first
		}
		text = fmt.Sprintf("Over %s the loss is lowest at the end of what was tried, %s%s; at %s it is %s higher.", x.name, where, with, number(x.of(other.first)), difference(other, best))
	default:
		text = fmt.Sprintf("Over %s the loss is lowest inside what was tried, at %s%s: at %s it is %s higher, at %s %s.", x.name, where, with,
			number(x.of(first.first)), difference(first, best), number(x.of(last.first)), difference(last, best))
	}
	var rows []int
	for _, g := range []*group{best, first, last} {
		for _, p := range g.points {
			rows = append(rows, p.ref)
		}
	}
	return text, Ref(rows...)
}

// heat is the map of epochs and weight decay.
func (b *builder) heat(s *pointSet) {
	for i, part := range s.strata(nil) {
		if i < mostStrata {
			b.heatOf(s, part)
		}
	}
}

func (b *builder) heatOf(s *pointSet, part stratum) {
	name := s.name
	if part.name != "" {
		name += ", " + part.name
	}
	epochs, decay := func(p *point) float64 { return p.epochs }, func(p *point) float64 { return p.decay }
	var xs, ys []float64
	best := map[[2]float64]*group{}
	for _, g := range part.groups {
		x, y := decay(g.first), epochs(g.first)
		if math.IsNaN(g.mean) || g.trouble || math.IsNaN(x) || !(y > 0) {
			continue
		}
		xs, ys = append(xs, x), append(ys, y)
		if o := best[[2]float64{x, y}]; o == nil || g.mean < o.mean {
			best[[2]float64{x, y}] = g
		}
	}
	slices.Sort(xs)
	slices.Sort(ys)
	xs, ys = slices.Compact(xs), slices.Compact(ys)
	// A descent walks a grid in part; a map with most of its places empty shows nothing.
	if len(xs) < 2 || len(ys) < 2 || 3*len(best) < len(xs)*len(ys) {
		return
	}
	h := &Heat{}
	for _, x := range xs {
		h.Cols = append(h.Cols, number(x))
	}
	for _, y := range ys {
		h.Rows = append(h.Rows, number(y))
		var row []float64
		var refs []string
		for _, x := range xs {
			v, ref := math.NaN(), ""
			if g := best[[2]float64{x, y}]; g != nil {
				v, ref = g.mean, g.ref()
			}
			row, refs = append(row, v), append(refs, ref)
		}
		h.Value, h.Sources = append(h.Value, row), append(h.Sources, refs)
	}
	b.section(Section{Title: "Epochs and weight decay" + name, Figures: []*Figure{{
		Title: "Validation loss by epochs and weight decay" + name, XLabel: "weight decay", YLabel: "epochs", Heat: h,
		Caption: "Means over seeds, in nats a token; where recipes differ in more, the best. The frame is around the lowest; a line through a field means that it was not trained, or not to a good end.",
	}}})
}
