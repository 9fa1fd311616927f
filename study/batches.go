package study

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"refrain/study/descent"
	"refrain/study/ensemble"
)

// Tuned is what coordinate descent found for one batch on the first pool.
type Tuned struct {
	Batch       string               `json:"batch"`
	Certificate *descent.Certificate `json:"certificate"`       // null when it could not begin
	Trouble     string               `json:"trouble,omitempty"` // why it could not

	settings []Setting // without pool and batch; nil without a certificate
}

// Endpoint is the best that was found for a batch, trained on one pool over the seeds.
type Endpoint struct {
	Batch string `json:"batch"`
	*Arm
	Steps int64 `json:"steps"`
	// Val is the mean over seeds of the loss that settings are chosen by, and Train that of
	// the loss on documents that the runs were trained on, after training; null where a seed
	// is missing.
	Val   *float64 `json:"val"`
	Train *float64 `json:"train"`
}

// Shape is what the endpoints of a pool say about the batch, read from clear differences
// only.
type Shape string

// The shapes.
const (
	UShaped Shape = "u-shaped" // a smaller and a larger batch are clearly worse than the reference
	Falling Shape = "falling"  // the reference is the largest batch, and a smaller one is clearly worse
	Rising  Shape = "rising"   // the reference is the smallest batch, and a larger one is clearly worse
	Moved   Shape = "moved"    // another batch is clearly better than the reference
	Unclear Shape = "unclear"  // none of these
)

// PoolResult are the endpoints of all batches on one pool.
type PoolResult struct {
	Pool      string     `json:"pool"`
	DataHash  string     `json:"data_hash"`
	Tuned     bool       `json:"tuned"` // settings were chosen on it
	Endpoints []Endpoint `json:"endpoints"`
	Shape     Shape      `json:"shape"`
}

// BatchStudy is a comparison of batches that are each tuned for themselves.
type BatchStudy struct {
	Registry string  `json:"registry"`
	Store    string  `json:"store"` // of the documents that losses and differences are of
	DataHash string  `json:"data_hash"`
	Rows     int64   `json:"rows"`
	Tokens   int64   `json:"tokens"`
	Tuned    []Tuned `json:"tuned"`
	// Reference is the batch that others are held against on every pool: that with the
	// lowest loss by which settings are chosen, on the first pool. Empty when there is none.
	Reference string       `json:"reference"`
	Pools     []PoolResult `json:"pools"`
	Warnings  []string     `json:"warnings"`
}

// CheckBatches refuses a file that a batch study cannot be made of.
func (s *Spec) CheckBatches() error {
	switch {
	case len(s.Batches) < 2:
		return s.refuse("batches is not set: two or more values of train.batch, such as batches: [4, 16, 64]")
	case len(s.Compare) > 0:
		return s.refuse("compare belongs to an ablation; a batch study holds all batches against the best")
	}
	return nil
}

// CheckPools looks at what batches are trained and tested on before anything is. Pools that
// are the same documents and a test store that shares some with any of them are errors;
// documents that two pools share are a warning.
func (s *Spec) CheckPools() (warnings []string, err error) {
	_, start, err := s.Axes()
	if err != nil {
		return nil, err
	}
	var firsts []*Cell
	for i := range max(1, len(s.Pools)) {
		cells, err := s.At(s.Point(append(slices.Clone(s.pool(i)), s.Batches[0]), start))
		if err != nil {
			return nil, err
		}
		if err := Open(cells, 0); err != nil {
			return nil, fmt.Errorf("pool %s: %w", label(s.pool(i)), err)
		}
		for k, other := range firsts {
			if other.DataHash == cells[0].DataHash {
				return nil, s.refuse("the pools %s and %s are the same documents", label(s.Pools[k]), label(s.Pools[i]))
			}
			both, err := shared(other, cells[0])
			if err != nil {
				return nil, err
			}
			if both != "" {
				warnings = append(warnings, fmt.Sprintf("the pools %s and %s share documents: %s", label(s.Pools[k]), label(s.Pools[i]), both))
			}
		}
		firsts = append(firsts, cells[0])
	}
	if len(firsts) == 1 {
		warnings = append(warnings, "there is one pool, so whether the same batch is best on other documents is not known; add pools")
	}
	return warnings, CheckTest(firsts, s.Test)
}

// shared describes a document that two cells are both trained on, or is empty.
func shared(a, b *Cell) (both string, err error) {
	x, err := a.setup(1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	y, err := b.setup(1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, y.Close()) }()
	return ensemble.Shared(x.Corpus, y.Corpus), nil
}

// Tune descends for every batch on the first pool. The first batch starts where the file
// says, each other one from the best place of the batch before it, which is near.
func (w *Work) Tune(ctx context.Context) ([]Tuned, error) {
	axes, start, err := w.Spec.Axes()
	if err != nil {
		return nil, err
	}
	var out []Tuned
	for i, size := range w.Spec.Sizes() {
		cells, err := w.Spec.At(w.Spec.Point(size, start))
		if err != nil {
			return nil, err
		}
		if err := Open(cells, w.Rate); err != nil {
			return nil, err
		}
		x := Tuned{Batch: w.Spec.Batches[i].Value}
		if x.Certificate, err = w.descend(ctx, size, axes, start); err != nil {
			if !w.startFailed(ctx, cells) {
				return nil, err
			}
			x.Trouble = err.Error()
		} else {
			start = x.Certificate.Best
			x.settings = w.Spec.Point(nil, start)
		}
		out = append(out, x)
	}
	return out, nil
}

// Batches tunes every batch on the first pool, trains what it found on the others, and
// measures all. It returns ErrBudget, beside what there is, when the budget did not reach
// for a pool.
func (w *Work) Batches(ctx context.Context, m *Meter) (*BatchStudy, error) {
	tuned, err := w.Tune(ctx)
	if err != nil {
		return nil, err
	}
	b := &BatchStudy{Registry: w.Spec.Out, Tuned: tuned, Warnings: []string{}}
	var short error
	for pool := range max(1, len(w.Spec.Pools)) {
		var cells []*Cell
		for i, t := range tuned {
			if t.Certificate == nil {
				continue
			}
			more, err := w.Spec.At(append(append(slices.Clone(w.Spec.pool(pool)), w.Spec.Batches[i]), t.settings...))
			if err != nil {
				return nil, err
			}
			cells = append(cells, more...)
		}
		if err := Open(cells, w.Rate); err != nil {
			return nil, err
		}
		do := w.Sweep
		if pool == 0 {
			do = w.Answers // the descents have counted them
		}
		records, err := do(ctx, cells)
		if errors.Is(err, ErrBudget) {
			short = err
		} else if err != nil {
			return nil, err
		}
		p, err := b.pool(ctx, w.Spec, pool, m, cells, records)
		if err != nil {
			return nil, err
		}
		b.Pools = append(b.Pools, *p)
	}
	if err := b.compare(); err != nil {
		return nil, err
	}
	b.warn(w.Spec)
	return b, short
}

// pool measures the endpoints of a pool, a batch after the other in cells.
func (b *BatchStudy) pool(ctx context.Context, s *Spec, pool int, m *Meter, cells []*Cell, records []*Record) (*PoolResult, error) {
	p := &PoolResult{Pool: label(s.pool(pool)), Tuned: pool == 0, Endpoints: []Endpoint{}}
	if len(cells) == 0 {
		return p, nil
	}
	p.DataHash = cells[0].DataHash
	scores, err := m.Score(ctx, cells, records, Split{Store: s.Test})
	if err != nil {
		return nil, err
	}
	// As many rows of what was seen as there are of what was not.
	seen, err := m.Score(ctx, cells, records, Split{Seen: true, Rows: cells[0].ValRows})
	if err != nil {
		return nil, err
	}
	at := 0
	for _, t := range b.Tuned {
		if t.Certificate == nil {
			continue
		}
		seeds := max(1, len(s.Seeds))
		from, to := at, at+seeds
		at = to
		e := Endpoint{Batch: t.Batch, Arm: newArm(cells[from:to], records[from:to], scores[from:to]), Steps: cells[from].Cost.Steps}
		var val, train []float64
		for i := from; i < to; i++ {
			if x := scores[i]; x != nil {
				b.Store, b.DataHash, b.Rows, b.Tokens = x.Store, x.DataHash, x.Rows, x.Tokens
				val, train = append(val, records[i].Result()), append(train, seen[i].Loss)
			}
		}
		if e.Loss != nil {
			v, t := stat.Mean(val, nil), stat.Mean(train, nil)
			e.Val, e.Train = &v, &t
		}
		p.Endpoints = append(p.Endpoints, e)
	}
	return p, nil
}

// compare finds the reference and holds everything against it.
func (b *BatchStudy) compare() error {
	best := -1
	first := b.Pools[0].Endpoints
	for i, e := range first {
		if e.Val != nil && (best < 0 || *e.Val < *first[best].Val) {
			best = i
		}
	}
	for k := range b.Pools {
		p := &b.Pools[k]
		p.Shape = Unclear
		if best < 0 {
			continue
		}
		for i, e := range p.Endpoints {
			two := pairs(p.Endpoints[best].Arm, e.Arm)
			if i == best || len(two) == 0 {
				continue
			}
			var err error
			if e.Contrast, err = NewContrast(two); err != nil {
				return fmt.Errorf("batch %s against %s: %w", e.Batch, first[best].Batch, err)
			}
		}
		p.Shape = shapeOf(p.Endpoints, best)
	}
	if best >= 0 {
		b.Reference = first[best].Batch
	}
	return nil
}

// shapeOf reads the shape from the contrasts with endpoint best.
func shapeOf(endpoints []Endpoint, best int) Shape {
	smaller, larger := false, false // one of them is clearly worse
	for i, e := range endpoints {
		switch c := e.Contrast; {
		case c == nil || !c.Clear:
		case c.Difference < 0:
			return Moved
		case i < best:
			smaller = true
		default:
			larger = true
		}
	}
	switch {
	case smaller && larger:
		return UShaped
	case smaller && best == len(endpoints)-1:
		return Falling
	case larger && best == 0:
		return Rising
	}
	return Unclear
}

// warn tells what keeps the study from meaning what it seems to.
func (b *BatchStudy) warn(s *Spec) {
	add := func(format string, args ...any) { b.Warnings = append(b.Warnings, fmt.Sprintf(format, args...)) }
	for _, key := range []string{"optim.lr", "optim.weight_decay", "train.epochs"} {
		if !slices.ContainsFunc(s.Grid, func(a Axis) bool { return a.Key == key }) || slices.Contains(s.Descend.Freeze, key) {
			add("%s is not tuned for each batch", key)
		}
	}
	for _, t := range b.Tuned {
		switch c := t.Certificate; {
		case c == nil:
			add("batch %s is missing: %s", t.Batch, t.Trouble)
		case !c.Certified:
			add("batch %s has no certificate: %s", t.Batch, c.Withheld[0])
		}
		if t.Certificate != nil && len(t.Certificate.Edges) > 0 {
			add("batch %s is best at the end of the grid in %s: the optimum may be outside", t.Batch, strings.Join(t.Certificate.Edges, ", "))
		}
	}
	for _, p := range b.Pools {
		for _, e := range p.Endpoints {
			for _, t := range e.Trouble {
				add("batch %s on %s: %s", e.Batch, p.Pool, t)
			}
		}
	}
	if s.Test == "" {
		add("losses are of the documents that settings were chosen by, and so too low; name others with test:")
	}
	if len(s.Seeds) < 2 {
		add("with one seed the noise of training is not known, and no difference is clear")
	}
}
