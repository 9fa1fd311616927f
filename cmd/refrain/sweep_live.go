package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"refrain/study"
)

// liveRows is the most lines that the table on a terminal has.
const liveRows = 12

// liveCell is a cell that goes on.
type liveCell struct{ step, steps int64 }

// livePoint is a line of the table.
type livePoint struct {
	label   string
	seeds   int // in all
	running []string
	group   *study.Group // nil: none of its cells was known when the last one ended
	order   int          // 0 best, 1 goes on, 2 has ended, 3 waits
}

// loss is the mean, infinite where there is none.
func (p *livePoint) loss() float64 {
	if p.group == nil || p.group.Mean == nil {
		return math.Inf(1)
	}
	return *p.group.Mean
}

// text is the line: loss, seeds that are done, settings, and how the point stands.
func (p *livePoint) text() string {
	mark, loss, done := "", "-", 0
	if g := p.group; g != nil {
		loss, done, mark = withSpread(g), len(g.Losses), strings.Join(g.Trouble, ", ")
	}
	if len(p.running) > 0 {
		mark = strings.Join(p.running, ", ")
	}
	if p.order == 0 {
		mark = strings.TrimSuffix("best, "+mark, ", ")
	}
	return fmt.Sprintf("  %s\t%d/%d\t%s\t%s\n", loss, done, p.seeds, p.label, mark)
}

// livePoints joins what is known of every point, in the order of the table: the best one,
// those that go on, then the others from the best one up.
func livePoints(cells []*study.Cell, groups []*study.Group, now map[string]*liveCell) []*livePoint {
	var list []*livePoint
	at := map[string]*livePoint{}
	for _, c := range cells {
		p := at[c.Label()]
		if p == nil {
			p = &livePoint{label: c.Label(), order: 3}
			at[p.label] = p
			list = append(list, p)
		}
		p.seeds++
		if x := now[c.Key()]; x != nil {
			p.order = 1
			p.running = append(p.running, fmt.Sprintf("seed %d %.0f %%", c.Seed, 100*float64(x.step)/float64(max(1, x.steps))))
		}
	}
	best := study.BestOf(groups)
	for _, g := range groups {
		p := at[g.Label]
		p.group = g
		switch {
		case g == best:
			p.order = 0
		case p.order == 3 && len(g.Losses)+len(g.Trouble) > 0:
			p.order = 2
		}
	}
	slices.SortStableFunc(list, func(a, b *livePoint) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.loss(), b.loss()))
	})
	return list
}

// liveTable is what a sweep has come to, in at most so many lines of that width; the last
// one says how many points it leaves out.
func liveTable(cells []*study.Cell, groups []*study.Group, now map[string]*liveCell, rows, width int) []string {
	list := livePoints(cells, groups, now)
	more := 0
	if len(list) > rows {
		more = len(list) - rows + 1
		list = list[:rows-1]
	}
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range list {
		fmt.Fprint(t, p.text())
	}
	t.Flush()
	if more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		if runes := []rune(line); width > 0 && len(runes) > width {
			line = string(runes[:width])
		}
		lines = append(lines, line)
	}
	return lines
}
