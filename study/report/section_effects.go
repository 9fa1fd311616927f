package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"
)

// effects is the table of what settings do that no figure has for its axis: order, tying,
// decay of embeddings and others. Every value of a key is held against the first in runs
// that differ in nothing else, seeds included.
func (b *builder) effects(s *pointSet) {
	drawn := slices.Concat(lengthKeys, sizeKeys, dataKeys, []string{keyDecay, "optim.lr"})
	values := map[string][]string{}
	var keys []string
	for _, p := range s.points {
		for k, v := range p.settings {
			if slices.Contains(drawn, k) {
				continue
			}
			if values[k] == nil {
				keys = append(keys, k)
			}
			if !slices.Contains(values[k], v) {
				values[k] = append(values[k], v)
			}
		}
	}
	slices.Sort(keys)
	t := Table{Head: []string{"setting", "against", "difference", "std. error", "pairs", "better in"},
		Caption: "Mean difference of the validation loss over all pairs of runs that differ in this setting only, seeds equal; below zero the setting is better. The standard error is over pairs, and does not have the choice of documents in it."}
	for _, k := range keys {
		slices.SortFunc(values[k], byNumber)
		base := values[k][0]
		for _, v := range values[k][1:] {
			b.effect(&t, s, k, base, v)
		}
	}
	if len(t.Rows) > 0 {
		b.section(Section{Title: "Effects of settings" + s.name, Tables: []Table{t}})
	}
}

// byNumber orders values by what they are as numbers, and others by their text.
func byNumber(a, b string) int {
	x, errA := strconv.ParseFloat(a, 64)
	y, errB := strconv.ParseFloat(b, 64)
	switch {
	case errA == nil && errB == nil && x < y, (errA != nil || errB != nil) && a < b:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// effect adds the row of one value against another.
func (b *builder) effect(t *Table, s *pointSet, key, base, value string) {
	at := func(p *point) string { return fmt.Sprintf("%s seed %d", labelOf(p.settings, key), p.seed) }
	others := map[string]*point{}
	for _, p := range s.points {
		if p.settings[key] == base && p.status == "done" && !math.IsNaN(p.val) {
			others[at(p)] = p
		}
	}
	var diffs []float64
	var rows []int
	better := 0
	for _, p := range s.points {
		o := others[at(p)]
		if p.settings[key] != value || p.status != "done" || math.IsNaN(p.val) || o == nil {
			continue
		}
		d := p.val - o.val
		diffs, rows = append(diffs, d), append(rows, p.ref, o.ref)
		if d < 0 {
			better++
		}
	}
	if len(diffs) == 0 {
		return
	}
	mean, se := stat.Mean(diffs, nil), ""
	if len(diffs) > 1 {
		_, sd := stat.MeanStdDev(diffs, nil)
		se = fmt.Sprintf("%.4f", sd/math.Sqrt(float64(len(diffs))))
	}
	t.add(Ref(rows...), key+"="+value, base, fmt.Sprintf("%+.4f", mean), se, fmt.Sprint(len(diffs)), fmt.Sprintf("%d of %d", better, len(diffs)))
}
