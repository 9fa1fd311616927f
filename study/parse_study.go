package study

import (
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"refrain/internal/run/config"
)

// study reads the keys that studies add to a sweep.
func (p *specParser) study(nodes map[string]*ast.MappingValueNode) {
	if kv := nodes["test"]; kv != nil {
		text, ok := config.Scalar(kv.Value)
		if !ok || text == "" {
			p.at(kv.Key, "test: want the folder of a token store, got %s", config.Describe(kv.Value))
		}
		p.spec.Test = text
	}
	if kv := nodes["compare"]; kv != nil {
		p.compare(kv)
	}
	if kv := nodes["batches"]; kv != nil {
		p.batches(kv)
	}
	if kv := nodes["pools"]; kv != nil {
		if !sections(kv.Value) {
			p.at(kv.Key, "pools: want entries such as - {data.pool: 1/2}, got %s", config.Describe(kv.Value))
		} else {
			p.pools(kv)
		}
	}
}

// compare reads the settings of the cell that others are held against. The grid or list is
// read by now.
func (p *specParser) compare(kv *ast.MappingValueNode) {
	p.spec.Compare = p.settings(kv.Value, "compare")
	if len(p.spec.Compare) == 0 || p.spec.Descend != nil {
		p.at(kv.Key, "compare: give settings of one cell of the grid or list, such as {data.mode: fixed}; it does not go with descend")
		return
	}
	if len(p.problems.List) > 0 {
		return // the points may be others than were meant
	}
	points := p.spec.points()
	for _, s := range p.spec.Compare {
		if !slices.ContainsFunc(points, func(x []Setting) bool { return holds(x, []Setting{s}) }) {
			p.at(kv.Key, "compare: no cell has %s", s)
			return
		}
	}
	n := 0
	for _, x := range points {
		if holds(x, p.spec.Compare) {
			n++
		}
	}
	if n != 1 {
		p.at(kv.Key, "compare: %s stand together in %d cells; give settings that only one has", label(p.spec.Compare), n)
	}
}

// holds reports whether all of want stand in a point.
func holds(point, want []Setting) bool {
	for _, w := range want {
		if !slices.ContainsFunc(point, func(s Setting) bool { return s.Key == w.Key && s.Value == w.Value }) {
			return false
		}
	}
	return true
}

const batchKey = "train.batch"

// batches reads the batch sizes of a batch study, in increasing order.
func (p *specParser) batches(kv *ast.MappingValueNode) {
	p.spec.Batches = p.values(batchKey, kv.Value, kv.Key)
	last := 0
	for _, b := range p.spec.Batches {
		n, err := strconv.Atoi(b.Value)
		if err != nil || n <= last {
			p.at(kv.Key, "batches: want whole numbers from 1 in increasing order, got %s after %d", b.Value, last)
			return
		}
		last = n
	}
	if p.spec.Descend == nil {
		p.at(kv.Key, "batches: each is tuned on a grid; add grid and descend: {start: ...}")
	}
	if len(p.spec.Descend.sizes()) > 0 {
		p.at(kv.Key, "batches and descend.sizes are both there; keep one")
	}
	if p.axis(batchKey) != nil {
		p.at(kv.Key, "batches and an axis %s are both there; keep one", batchKey)
	}
}

// pools reads the data of each pool, which may not set what the study varies.
func (p *specParser) pools(kv *ast.MappingValueNode) {
	p.spec.Pools = p.entries(kv.Value, "pools")
	for i, pool := range p.spec.Pools {
		if len(pool) == 0 {
			p.at(kv.Key, "pools: entry %d is empty", i+1)
		}
		for _, s := range pool {
			if p.axis(s.Key) != nil || s.Key == batchKey {
				p.at(kv.Key, "pools: %s is varied by the study itself", s.Key)
			}
		}
		if slices.ContainsFunc(p.spec.Pools[:i], func(o []Setting) bool { return label(o) == label(pool) }) {
			p.at(kv.Key, "pools: entry %d stands twice", i+1)
		}
	}
	if p.spec.Batches == nil {
		p.at(kv.Key, "pools belong to a batch study, which has batches")
	}
}

// sizes are those that the file has.
func (d *Descend) sizes() [][]Setting {
	if d == nil {
		return nil
	}
	return d.Sizes
}
