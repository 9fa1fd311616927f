// Package study runs what a researcher plans: sweeps over configurations and seeds, with
// a registry in which every cell is trained once whatever happens, and what is built on
// them. Its parts that need no training, such as laws (study/fit) and descent on a grid
// (study/descent), are packages of their own.
package study

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"refrain/internal/run/config"
)

// Vary says which seeds of a run follow the seed of its cell.
type Vary string

// The choices.
const (
	VaryBoth  Vary = "both"  // initial weights and order of the data
	VaryInit  Vary = "init"  // initial weights only
	VaryOrder Vary = "order" // order of the data only
)

// CodePolicy says which code a record may come from to count for a cell.
type CodePolicy string

// The policies.
const (
	SameCode CodePolicy = "same" // this program's revision only
	AnyCode  CodePolicy = "any"  // any revision
)

// Setting is one key of the configuration that a cell sets, and where it was written.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`

	line, col int
}

func (s Setting) String() string { return s.Key + "=" + s.Value }

// Axis is one key of a grid with its values, in the order of the file; or a name of its
// own with levels that set several keys each.
type Axis struct {
	Key    string
	Values []Setting
	Many   [][]Setting // instead of Values
}

// Levels are the settings of every level of the axis.
func (a *Axis) Levels() [][]Setting {
	if a.Many != nil {
		return a.Many
	}
	var out [][]Setting
	for _, v := range a.Values {
		out = append(out, []Setting{v})
	}
	return out
}

// keys are those of the configuration that the axis sets.
func (a *Axis) keys() (list []string) {
	for _, l := range a.Levels() {
		for _, s := range l {
			if !slices.Contains(list, s.Key) {
				list = append(list, s.Key)
			}
		}
	}
	return list
}

// Budget bounds what a sweep may spend, finished cells included. Zero is no bound.
type Budget struct {
	CoreSeconds float64 `json:"core_seconds,omitempty"`
	Steps       int64   `json:"steps,omitempty"`
}

// Descend asks for coordinate descent on the grid instead of all of it.
type Descend struct {
	Start  []Setting // one value for every axis
	Freeze []string  // axes that stay where they start
	// Sizes are descended for one after the other, each the settings of a model; empty is
	// the base configuration's.
	Sizes [][]Setting
}

// Sizes are those of the descent, or the one of the base configuration; of a batch study
// the batches on the first pool.
func (s *Spec) Sizes() [][]Setting {
	if len(s.Batches) > 0 {
		var out [][]Setting
		for _, b := range s.Batches {
			out = append(out, append(slices.Clone(s.pool(0)), b))
		}
		return out
	}
	if s.Descend == nil || len(s.Descend.Sizes) == 0 {
		return [][]Setting{nil}
	}
	return s.Descend.Sizes
}

// pool is the data of a pool; that of the base configuration where none are written.
func (s *Spec) pool(i int) []Setting {
	if i < len(s.Pools) {
		return s.Pools[i]
	}
	return nil
}

// Spec is a sweep: a base configuration, what varies, and over which seeds.
type Spec struct {
	Path    string // of the file, as given
	Grid    []Axis
	List    [][]Setting
	Seeds   []uint64 // empty: the seed of the base configuration
	Vary    Vary
	Budget  Budget
	Out     string // folder of the registry
	Code    CodePolicy
	Descend *Descend

	// What the studies ask for; a sweep trains the same cells without.
	Compare []Setting   // of the cell that others are held against: they stand in one cell only
	Test    string      // store on which results are told; empty is the validation store
	Batches []Setting   // train.batch, each with settings of its own
	Pools   [][]Setting // the data of each pool; the first one is that settings are chosen on

	baseName string
	baseText []byte
}

// MaxCells bounds the cells of a sweep; a grid grows fast, and a slip of the keyboard should not
// resolve a million configurations.
const MaxCells = 10_000

// LoadSpec reads a sweep file. Its keys are described in docs/formats/sweep.md. Names of
// files are taken as they stand, relative to the working directory. The error is a
// *config.Problems that lists everything that is wrong with the file; what is wrong with
// the configurations it leads to is told by Cells.
func LoadSpec(path string) (*Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &config.Problems{List: []config.Problem{{Where: path, Text: describeOpen(err)}}}
	}
	return ParseSpec(path, text)
}

func describeOpen(err error) string {
	if os.IsNotExist(err) {
		return "no such file; refrain sweep --help shows one"
	}
	return err.Error()
}

// ParseSpec is LoadSpec for a text in memory; name stands for its path.
func ParseSpec(name string, text []byte) (*Spec, error) {
	p := &specParser{spec: &Spec{Path: name, Vary: VaryBoth, Code: SameCode}, text: text}
	root, err := config.Tree(name, text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		p.at(nil, "the file is empty; refrain sweep --help shows one")
	} else {
		p.file(root)
	}
	if len(p.problems.List) > 0 {
		return nil, &p.problems
	}
	return p.spec, nil
}

// Cells resolves every cell of the sweep: every point of the grid, or entry of the list,
// with every seed, seeds fastest, then the last axis. With Descend these are all cells
// that it could come to. The error is a *config.Problems with everything that is wrong.
func (s *Spec) Cells() ([]*Cell, error) {
	var r resolver
	var cells []*Cell
	for _, settings := range s.points() {
		cells = append(cells, r.seeds(s, settings)...)
	}
	if len(r.problems.List) > 0 {
		return nil, &r.problems
	}
	return cells, nil
}

// At resolves the cells of one point of the grid, one for every seed.
func (s *Spec) At(settings []Setting) ([]*Cell, error) {
	var r resolver
	cells := r.seeds(s, settings)
	if len(r.problems.List) > 0 {
		return nil, &r.problems
	}
	return cells, nil
}

// Base resolves the base configuration with the settings of the first cell, for what is
// the same in all of them, such as the inputs of the store.
func (s *Spec) Base() (*config.Resolved, error) {
	var r resolver
	cells := r.seeds(s, s.points()[0])
	if len(r.problems.List) > 0 {
		return nil, &r.problems
	}
	return cells[0].resolved, nil
}

// points expands the grid or the list.
func (s *Spec) points() [][]Setting {
	if s.List != nil {
		return s.List
	}
	points := s.Sizes()
	for _, a := range s.Grid {
		var next [][]Setting
		for _, p := range points {
			for _, l := range a.Levels() {
				next = append(next, append(slices.Clone(p), l...))
			}
		}
		points = next
	}
	return points
}

// Files are the names of everything that training cells reads and writes: the file of the
// sweep and of the base configuration, the registry and the stores.
func (s *Spec) Files(cells []*Cell) []string {
	list := []string{s.Path, s.Out}
	add := func(f string) {
		if f != "" && !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	add(s.baseName)
	for _, c := range cells {
		add(c.resolved.Config.Data.Store)
		add(c.resolved.Config.Data.Val)
	}
	return list
}

// number of cells, without making them.
func (s *Spec) number() float64 {
	n := 1.0
	for _, a := range s.Grid {
		n *= float64(max(len(a.Values), len(a.Many)))
	}
	if s.List != nil {
		n = float64(len(s.List))
	}
	return n * math.Max(1, float64(len(s.Seeds))) * float64(len(s.Sizes()))
}

// resolver resolves cells and gathers what is wrong, each complaint once.
type resolver struct {
	problems config.Problems
	seen     map[config.Problem]bool
}

func (r *resolver) seeds(s *Spec, settings []Setting) []*Cell {
	if len(s.Seeds) == 0 {
		return r.cell(s, settings, nil)
	}
	var cells []*Cell
	for _, seed := range s.Seeds {
		cells = append(cells, r.cell(s, settings, &seed)...)
	}
	return cells
}

// cell resolves one; nil after adding to the problems.
func (r *resolver) cell(s *Spec, settings []Setting, seed *uint64) []*Cell {
	overrides := make([]string, 0, len(settings)+2)
	for _, x := range settings {
		overrides = append(overrides, x.String())
	}
	res, err := config.Parse(s.baseName, s.baseText, overrides)
	if err == nil && seed != nil {
		// The order follows train.seed unless data.seed is set, so the one that must not
		// vary is held where the base has it.
		train, data := *seed, *seed
		switch s.Vary {
		case VaryInit:
			data = *res.Config.Data.Seed
		case VaryOrder:
			train = res.Config.Train.Seed
		}
		overrides = append(overrides, fmt.Sprintf("train.seed=%d", train), fmt.Sprintf("data.seed=%d", data))
		res, err = config.Parse(s.baseName, s.baseText, overrides)
	}
	if err != nil {
		r.add(s, settings, err)
		return nil
	}
	c := &Cell{Settings: settings, Seed: res.Config.Train.Seed, overrides: overrides, spec: s, resolved: res}
	if seed != nil {
		c.Seed = *seed
	} else if s.Vary == VaryOrder {
		c.Seed = *res.Config.Data.Seed
	}
	return []*Cell{c}
}

// add takes over the problems of a configuration. What an override is blamed for is
// blamed on its line in the file of the sweep.
func (r *resolver) add(s *Spec, settings []Setting, err error) {
	list, ok := err.(*config.Problems)
	if !ok {
		list = &config.Problems{List: []config.Problem{{Where: s.Path, Text: err.Error()}}}
	}
	for _, p := range list.List {
		if rest, ok := strings.CutPrefix(p.Where, "override "); ok {
			number, what, _ := strings.Cut(rest, " ")
			if n, err := strconv.Atoi(number); err == nil && n >= 1 && n <= len(settings) {
				x := settings[n-1]
				p = config.Problem{Where: fmt.Sprintf("%s:%d:%d", s.Path, x.line, x.col), Text: fmt.Sprintf("%s: %s", x, p.Text)}
			} else {
				p = config.Problem{Where: s.Path, Text: fmt.Sprintf("the seed %s: %s", what, p.Text)}
			}
		} else {
			p = config.Problem{Where: p.Where, Text: p.Text}
		}
		if !r.seen[p] {
			if r.seen == nil {
				r.seen = map[config.Problem]bool{}
			}
			r.seen[p] = true
			r.problems.List = append(r.problems.List, p)
		}
	}
}
