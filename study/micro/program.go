package micro

import (
	"fmt"
	"math"
	"slices"
)

// usualDecay is the weight decay that everybody starts from.
const usualDecay = 0.1

// trial is one setting of what is tuned.
type trial struct {
	Epochs int
	LR     float64
	Decay  float64
	Embed  float64
	TiedLR float64
}

// Form is how much of the study is done.
type Form struct {
	Name string
	text text
	// main is asked of the first corpus, again of the others.
	main, again table
}

// text is how much is read, and how.
type text struct {
	sizes      []size
	vocab, seq int
	unique     int64 // training tokens of a pool
	pools      int   // that training documents are dealt to, whether they are used or not
	most       int   // bytes of a document
	val, test  int64 // bytes of the splits for choices and for reporting
	fit        int64 // and of the one that ensemble weights are fitted on
	bytes      int64 // of everything
}

// table is what is trained for one corpus. Recipes are tried with one seed on the first
// pool, and the best of them are trained with all seeds on all pools; what is reported is
// of the latter, on documents that had no say in the choice.
type table struct {
	seeds, pools int
	// members of an ensemble; 0 leaves ensembles out.
	members int
	recipes []member    // of members, beside that of the best single model
	sizes   []sizeTable // in rising order
	// middle is the index of the size that questions about one size are asked of.
	middle int
	orders []string // compared with repack
	// other batches than the usual one, in any order, tuned each; orderBatch is the one of
	// them that orders are compared at as well, or 0.
	batches    []batchTable
	orderBatch int
	// embeddings: decayed, tied, tied and decayed; nil leaves the question out.
	decayed, tied, tiedDecayed []trial
	// students learn from text that members wrote; nil leaves the question out.
	students *students
}

type sizeTable struct {
	name   string
	lr     float64 // for the usual decay
	epochs []int   // at the usual decay; nil leaves the question out for this size
	tune   []trial
	// members of an ensemble of this size with half the decay; 0: none.
	members int
}

type batchTable struct {
	batch int
	tune  []trial
}

const (
	usualBatch = 8
	usualOrder = "reshuffle" // of recipes that are not packed anew
	bestOrder  = "repack"
)

// Forms are the forms of the study by name: quick, short and night.
func Forms() []*Form {
	t := text{
		sizes: []size{{"XXS", 2, 32, 2, 88}, {"XS", 2, 64, 2, 176}, {"S", 3, 96, 3, 256}, {"M", 4, 128, 4, 352}},
		vocab: 2048, seq: 128, unique: 65536, pools: 3, most: 6000, val: 300_000, test: 400_000, fit: 120_000, bytes: 1_900_000,
	}
	short, again := shortTable(), againTable()
	night, nightAgain := shortTable(), againTable()
	night.seeds, night.members, night.pools = 8, 8, 3
	nightAgain.seeds, nightAgain.pools = 8, 2
	return []*Form{
		{"quick", t, quickTable(), again},
		{"short", t, short, again},
		{"night", t, night, nightAgain},
	}
}

// FindForm returns the form of that name.
func FindForm(name string) (*Form, error) {
	for _, f := range Forms() {
		if f.Name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("there is no form %q of study micro; use quick, short or night", name)
}

// shortTable takes about 7,500 seconds of one core where the XS model trains on 62,000
// tokens a second. Its middle stands where exploratory runs had their best values.
func shortTable() table {
	return table{
		seeds: 3, pools: 2, middle: 1,
		// The last is what the papers found best.
		members: 4, recipes: []member{{1, 0.5}, {1, 0.25}, {2, 0.5}},
		sizes: []sizeTable{
			{name: "XXS", lr: 8e-3, tune: []trial{
				{16, 8e-3, 0.8, 0, 0}, {16, 8e-3, 1.6, 0, 0}, {16, 8e-3, 3.2, 0, 0}, {32, 8e-3, 1.6, 0, 0}, {32, 8e-3, 3.2, 0, 0}, {16, 4e-3, 1.6, 0, 0},
				{4, 8e-3, usualDecay, 0, 0}, {8, 8e-3, usualDecay, 0, 0}, {16, 8e-3, usualDecay, 0, 0},
			}},
			{name: "XS", lr: 4e-3, epochs: []int{1, 2, 4, 8, 16, 32}, tune: []trial{
				{16, 4e-3, 0.8, 0, 0}, {16, 4e-3, 1.6, 0, 0}, {16, 4e-3, 3.2, 0, 0}, {16, 4e-3, 6.4, 0, 0}, {16, 4e-3, 12.8, 0, 0},
				{8, 4e-3, 1.6, 0, 0}, {8, 4e-3, 3.2, 0, 0}, {32, 4e-3, 3.2, 0, 0}, {32, 4e-3, 6.4, 0, 0}, {32, 4e-3, 12.8, 0, 0},
				{16, 2e-3, 3.2, 0, 0}, {16, 2e-3, 6.4, 0, 0}, {16, 8e-3, 1.6, 0, 0}, {16, 8e-3, 3.2, 0, 0},
				{2, 4e-3, usualDecay, 0, 0}, {4, 4e-3, usualDecay, 0, 0}, {8, 4e-3, usualDecay, 0, 0}, {16, 4e-3, usualDecay, 0, 0},
			}},
			{name: "S", lr: 2e-3, epochs: []int{2, 4, 8, 16}, members: 4, tune: []trial{
				{16, 2e-3, 1.6, 0, 0}, {16, 2e-3, 3.2, 0, 0}, {16, 2e-3, 6.4, 0, 0}, {16, 2e-3, 12.8, 0, 0}, {16, 4e-3, 3.2, 0, 0}, {16, 4e-3, 6.4, 0, 0},
				{8, 2e-3, 3.2, 0, 0}, {32, 2e-3, 6.4, 0, 0}, {32, 2e-3, 12.8, 0, 0},
				{2, 2e-3, usualDecay, 0, 0}, {4, 2e-3, usualDecay, 0, 0}, {8, 2e-3, usualDecay, 0, 0}, {16, 2e-3, usualDecay, 0, 0},
			}},
			{name: "M", lr: 2e-3, tune: []trial{
				{16, 2e-3, 3.2, 0, 0}, {16, 2e-3, 6.4, 0, 0}, {16, 2e-3, 12.8, 0, 0}, {16, 4e-3, 3.2, 0, 0}, {16, 4e-3, 6.4, 0, 0}, {8, 2e-3, 6.4, 0, 0},
				{2, 2e-3, usualDecay, 0, 0}, {4, 2e-3, usualDecay, 0, 0}, {8, 2e-3, usualDecay, 0, 0},
			}},
		},
		orders: []string{"fixed", "reshuffle"}, orderBatch: 32,
		batches: []batchTable{
			{4, []trial{{16, 2e-3, 3.2, 0, 0}, {16, 2e-3, 1.6, 0, 0}, {16, 4e-3, 1.6, 0, 0}, {8, 4e-3, 1.6, 0, 0}, {32, 2e-3, 3.2, 0, 0}}},
			{16, []trial{{16, 4e-3, 3.2, 0, 0}, {16, 4e-3, 6.4, 0, 0}, {16, 8e-3, 3.2, 0, 0}, {16, 8e-3, 6.4, 0, 0}, {16, 8e-3, 1.6, 0, 0}, {32, 4e-3, 6.4, 0, 0}}},
			{32, []trial{{16, 4e-3, 6.4, 0, 0}, {16, 8e-3, 3.2, 0, 0}, {16, 8e-3, 6.4, 0, 0}, {16, 16e-3, 6.4, 0, 0}, {32, 4e-3, 6.4, 0, 0}, {32, 8e-3, 6.4, 0, 0}}},
			{64, []trial{{16, 8e-3, 6.4, 0, 0}, {32, 8e-3, 6.4, 0, 0}, {32, 16e-3, 3.2, 0, 0}, {32, 8e-3, 12.8, 0, 0}, {64, 8e-3, 12.8, 0, 0}}},
		},
		decayed: []trial{{16, 4e-3, 3.2, 1.6, 0}, {16, 4e-3, 3.2, 3.2, 0}, {16, 4e-3, 3.2, 6.4, 0}, {32, 4e-3, 3.2, 3.2, 0}, {32, 4e-3, 6.4, 3.2, 0}, {32, 4e-3, 6.4, 6.4, 0}},
		tied:    []trial{{16, 4e-3, 3.2, 0, 1}, {16, 4e-3, 3.2, 0, 2.5}, {32, 4e-3, 3.2, 0, 2.5}, {32, 4e-3, 3.2, 0, 5}, {32, 4e-3, 6.4, 0, 2.5}},
		tiedDecayed: []trial{
			{16, 4e-3, 3.2, 1.6, 2.5}, {32, 4e-3, 3.2, 0.8, 2.5}, {32, 4e-3, 3.2, 1.6, 2.5}, {32, 4e-3, 3.2, 1.6, 5}, {32, 4e-3, 6.4, 1.6, 2.5},
		},
		students: &students{fraction: 0.75, tokens: 8 * 65536, decays: []float64{usualDecay, 0.8}},
	}
}

// quickTable takes about 850 seconds of one core at the same speed.
func quickTable() table {
	return table{
		seeds: 2, pools: 1, members: 3, recipes: []member{{1, 0.5}}, middle: 1,
		sizes: []sizeTable{
			{name: "XXS", lr: 8e-3, tune: []trial{{16, 8e-3, 1.6, 0, 0}, {16, 8e-3, 3.2, 0, 0}}},
			{name: "XS", lr: 4e-3, epochs: []int{1, 2, 4, 8, 16}, tune: []trial{
				{16, 4e-3, 0.8, 0, 0}, {16, 4e-3, 1.6, 0, 0}, {16, 4e-3, 3.2, 0, 0}, {16, 4e-3, 6.4, 0, 0}, {4, 4e-3, usualDecay, 0, 0}, {8, 4e-3, usualDecay, 0, 0},
			}},
			{name: "S", lr: 2e-3, tune: []trial{{16, 2e-3, 3.2, 0, 0}, {16, 2e-3, 6.4, 0, 0}}},
		},
		orders: []string{"fixed", "reshuffle"}, orderBatch: 32,
		batches:     []batchTable{{4, []trial{{16, 2e-3, 3.2, 0, 0}}}, {32, []trial{{16, 4e-3, 6.4, 0, 0}, {16, 8e-3, 6.4, 0, 0}}}},
		decayed:     []trial{{16, 4e-3, 3.2, 3.2, 0}},
		tied:        []trial{{16, 4e-3, 3.2, 0, 2.5}},
		tiedDecayed: []trial{{16, 4e-3, 3.2, 1.6, 2.5}},
	}
}

// againTable takes about 600 seconds of one core at the same speed, for every corpus after
// the first.
func againTable() table {
	return table{
		seeds: 3, pools: 1, members: 3, recipes: []member{{1, 0.5}}, middle: 0,
		sizes: []sizeTable{{name: "XS", lr: 4e-3, epochs: []int{2, 4, 8, 16}, tune: []trial{
			{16, 4e-3, 0.8, 0, 0}, {16, 4e-3, 1.6, 0, 0}, {16, 4e-3, 3.2, 0, 0}, {16, 4e-3, 6.4, 0, 0}, {4, 4e-3, usualDecay, 0, 0}, {8, 4e-3, usualDecay, 0, 0}, {16, 4e-3, usualDecay, 0, 0},
		}}},
		orders:  []string{"fixed", "reshuffle"},
		decayed: []trial{{16, 4e-3, 3.2, 3.2, 0}},
	}
}

// want is a model that the program asks for.
type want struct {
	Point
	Seed uint64
	Test bool // its losses are reported, so they are measured on the test split
}

// wantEnsemble is an ensemble of the first so many seeds.
type wantEnsemble struct {
	Point
	Members int
	Weights bool // fit weights as well
}

// wantText is documents that the first so many models of a recipe write, in equal shares.
type wantText struct {
	Corpus, Name string
	Teacher      Point
	Members      int
	Tokens       int64
}

// demand is all that the program asks for, given what is known by now.
type demand struct {
	models    []want
	ensembles []wantEnsemble
	texts     []wantText
}

// model asks for one, once; measured if anybody wants it so.
func (d *demand) model(w want) {
	i := slices.IndexFunc(d.models, func(x want) bool { return x.Point == w.Point && x.Seed == w.Seed })
	if i < 0 {
		d.models = append(d.models, w)
		return
	}
	d.models[i].Test = d.models[i].Test || w.Test
}

func (d *demand) ensemble(w wantEnsemble) {
	for seed := range uint64(w.Members) {
		d.model(want{w.Point, seed, false})
	}
	i := slices.IndexFunc(d.ensembles, func(x wantEnsemble) bool { return x.Point == w.Point })
	if i < 0 {
		d.ensembles = append(d.ensembles, w)
		return
	}
	d.ensembles[i].Weights = d.ensembles[i].Weights || w.Weights
}

// scope is the program for one corpus, with the results so far.
type scope struct {
	t      *table
	corpus string
	r      *Results
}

// scopes are one for every corpus, the first with the main table.
func (f *Form) scopes(r *Results) (list []scope) {
	for i, c := range r.Corpora {
		t := &f.main
		if i > 0 {
			t = &f.again
		}
		list = append(list, scope{t, c.Name, r})
	}
	return list
}

// demand is what all questions ask for.
func (f *Form) demand(r *Results) *demand {
	d := &demand{}
	for _, s := range f.scopes(r) {
		for _, q := range questions() {
			q.demand(s, d)
		}
	}
	return d
}

// point is a trial of a size at the usual batch, packed anew every epoch.
func (s scope) point(size string, x trial) Point {
	return Point{Corpus: s.corpus, Pool: 1, Size: size, Order: bestOrder, Batch: usualBatch, Epochs: x.Epochs, LR: x.LR, Decay: x.Decay, Embed: x.Embed, Tied: x.TiedLR > 0, TiedLR: x.TiedLR}
}

func (s scope) points(size string, list []trial) (out []Point) {
	for _, x := range list {
		out = append(out, s.point(size, x))
	}
	return out
}

// try asks for points with the first seed.
func (s scope) try(d *demand, points []Point) {
	for _, p := range points {
		d.model(want{p, 0, false})
	}
}

// confirm asks for a recipe with all seeds on all pools, to be reported.
func (s scope) confirm(d *demand, p Point) { s.confirmOn(d, p, s.pools()) }

func (s scope) confirmOn(d *demand, p Point, pools []int) {
	for _, pool := range pools {
		for seed := range uint64(s.t.seeds) {
			d.model(want{p.in(pool), seed, true})
		}
	}
}

func (s scope) pools() (list []int) {
	for i := range s.t.pools {
		list = append(list, i+1)
	}
	return list
}

// sides are the losses of a recipe that are reported.
func (s scope) sides(p Point) []side { return s.r.sides(p, s.pools(), s.t.seeds) }

// best is the one of points with the least loss on the split for choices, with the first
// seed on the first pool; the first of equals. It is not known before all have ended, nor
// when none ended well.
func (s scope) best(points []Point) (best Point, ok bool) {
	least := math.Inf(1)
	for _, p := range points {
		m := s.r.model(p, 0)
		if m == nil {
			return best, false
		}
		if m.well() && *m.Val < least {
			best, least, ok = p, *m.Val, true
		}
	}
	return best, ok
}

// middle is the size that questions about one size are asked of.
func (s scope) middle() *sizeTable { return &s.t.sizes[s.t.middle] }

// tuned is the best recipe of a size, and usual the best of those with the usual decay.
func (s scope) tuned(z *sizeTable) (Point, bool) { return s.best(s.points(z.name, z.tune)) }

func (s scope) usual(z *sizeTable) (Point, bool) {
	return s.best(s.points(z.name, usualOf(z.tune)))
}

func usualOf(tune []trial) []trial {
	return slices.DeleteFunc(slices.Clone(tune), func(x trial) bool { return x.Decay != usualDecay })
}
