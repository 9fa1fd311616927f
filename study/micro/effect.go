package micro

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"refrain/stages/evals"
	"refrain/study"
)

// level is the share of an interval.
const level = 0.95

// Effect is a difference of mean losses on the test split, nats a token: over the same
// documents, and over the runs of equal seed and pool. A pool with a seed counts as a seed
// of the contrast, so its error over seeds is one over runs.
type Effect struct {
	Name string `json:"name"` // "A minus B"
	*study.Contrast
	ByPool []PoolDiff `json:"by_pool"`
}

// PoolDiff is the difference on one pool.
type PoolDiff struct {
	Pool   int      `json:"pool"`
	Pairs  int      `json:"pairs"`
	Diff   float64  `json:"difference"`
	Spread *float64 `json:"spread"` // standard deviation over seeds; null with one
}

// String is "+0.102 [+0.080, +0.124]".
func (e Effect) String() string {
	if e.Interval == nil {
		return fmt.Sprintf("%+.3f (of one pair of runs)", e.Difference)
	}
	return fmt.Sprintf("%+.3f [%+.3f, %+.3f]", e.Difference, e.Interval[0], e.Interval[1])
}

// sign is 1 where the whole interval and every pool are above 0, -1 where all are below,
// and 0 where that is not known.
func (e Effect) sign() int {
	s := 0
	switch {
	case !e.Clear:
		return 0
	case e.Difference > 0:
		s = 1
	default:
		s = -1
	}
	for _, p := range e.ByPool {
		if p.Diff*float64(s) <= 0 {
			return 0
		}
	}
	return s
}

// side is losses of documents by pool and seed: of a model, an ensemble, or a difference.
type side struct {
	pool int
	seed uint64
	docs []float64
}

// sides are those of the models of a recipe that were measured, over pools and seeds.
func (r *Results) sides(p Point, pools []int, seeds int) (list []side) {
	for _, pool := range pools {
		for seed := range uint64(seeds) {
			if m := r.model(p.in(pool), seed); m.well() && m.Test != nil {
				list = append(list, side{pool, seed, m.Test})
			}
		}
	}
	return list
}

// scores are losses in the form that contrasts are made of.
func (c *Corpus) scores(name string, docs []float64) *study.Scores {
	s := &study.Scores{Run: name, DataHash: c.Digest}
	sum := 0.0
	for i, n := range c.TestTokens {
		sum += docs[i]
		s.Tokens += n
		s.Docs = append(s.Docs, evals.DocLoss{Sum: docs[i], Tokens: n})
	}
	s.Loss = sum / float64(s.Tokens)
	return s
}

// contrast is the mean of a minus that of b over the pairs of equal pool and seed.
func (r *Results) contrast(name, corpus string, a, b []side) (Effect, error) {
	e := Effect{Name: name}
	c := r.corpus(corpus)
	if c == nil {
		return e, fmt.Errorf("%s: there is no corpus %q", name, corpus)
	}
	var pairs []study.Pair
	byPool := map[int][]float64{}
	var pools []int
	for _, x := range a {
		for _, y := range b {
			if x.pool != y.pool || x.seed != y.seed {
				continue
			}
			p := study.Pair{Seed: uint64(x.pool)<<32 | x.seed, A: c.scores(name, y.docs), B: c.scores(name, x.docs)}
			pairs = append(pairs, p)
			if byPool[x.pool] == nil {
				pools = append(pools, x.pool)
			}
			byPool[x.pool] = append(byPool[x.pool], p.B.Loss-p.A.Loss)
		}
	}
	if len(pairs) == 0 {
		return e, fmt.Errorf("%s: no runs of equal seed and pool were measured on both sides", name)
	}
	for _, pool := range pools {
		p := PoolDiff{Pool: pool, Pairs: len(byPool[pool])}
		mean, sd := stat.MeanStdDev(byPool[pool], nil)
		if p.Diff = mean; p.Pairs > 1 {
			p.Spread = &sd
		}
		e.ByPool = append(e.ByPool, p)
	}
	var err error
	e.Contrast, err = study.NewContrast(pairs)
	return e, err
}

// mean is the mean test loss of sides, and the standard deviation over them, which is not a
// number for one side. Without sides neither is.
func (r *Results) mean(corpus string, list []side) (mean, spread float64) {
	var losses []float64
	for _, s := range list {
		losses = append(losses, r.corpus(corpus).scores("", s.docs).Loss)
	}
	if len(losses) == 0 {
		return math.NaN(), math.NaN()
	}
	return stat.MeanStdDev(losses, nil)
}
