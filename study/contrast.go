package study

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"refrain/internal/run"
	"refrain/stages/evals"
)

// Pair is two runs whose losses are compared: of one seed, on the same documents.
type Pair struct {
	Seed uint64
	A, B *Scores
}

// Contrast is the mean over pairs of the loss of B minus that of A, nats a token: below 0,
// B is better. There are two sources of noise in it, and an error for each: other documents
// to be measured on (the pairs are averaged document by document first), and other seeds to
// be trained with (documents are averaged first). A difference that counts must hold
// against both, so their variances are added: that counts the part of the noise that
// seeds and documents have in common twice, and errs on the safe side.
type Contrast struct {
	Difference float64   `json:"difference"`
	Pairs      int       `json:"pairs"`
	Documents  int       `json:"documents"` // that have tokens
	Seeds      []uint64  `json:"seeds"`
	BySeed     []float64 `json:"by_seed"` // the mean difference of each
	// Spread is the standard deviation of BySeed; null with one seed.
	Spread          *float64 `json:"spread_seeds"`
	StdErrSeeds     *float64 `json:"stderr_seeds"`     // null with one seed
	StdErrDocuments *float64 `json:"stderr_documents"` // null with one document
	StdErr          *float64 `json:"stderr"`           // of both; null when one of them is
	// Interval holds the difference in 95 of 100 such studies: StdErr times the quantile
	// of Student's t at Freedom degrees of freedom (Welch 1947, Satterthwaite 1946).
	Interval *[2]float64 `json:"interval"`
	Freedom  float64     `json:"freedom,omitempty"`
	// Clear says that the interval leaves out 0.
	Clear bool `json:"clear"`
}

// contrastLevel is the share of intervals that hold what they are about.
const contrastLevel = 0.95

// NewContrast compares pairs. It is an error when there are none, or when two of their
// scores are not of the same documents.
func NewContrast(pairs []Pair) (*Contrast, error) {
	if len(pairs) == 0 {
		return nil, fmt.Errorf("there is no pair of runs to compare")
	}
	first := pairs[0].A
	docs := make([]evals.DocLoss, len(first.Docs))
	sums := map[uint64]float64{}
	number := map[uint64]int{}
	c := &Contrast{Pairs: len(pairs)}
	for _, p := range pairs {
		for _, s := range []*Scores{p.A, p.B} {
			if s.DataHash != first.DataHash || s.Rows != first.Rows || s.Seq != first.Seq || len(s.Docs) != len(docs) || s.Tokens != first.Tokens {
				return nil, fmt.Errorf("%s was measured on %d rows of %d tokens of documents %.12s, and %s on %d of %d of %.12s; their losses do not compare",
					s.Run, s.Rows, s.Seq, s.DataHash, first.Run, first.Rows, first.Seq, first.DataHash)
			}
		}
		if number[p.Seed] == 0 {
			c.Seeds = append(c.Seeds, p.Seed)
		}
		number[p.Seed]++
		sums[p.Seed] += p.B.Loss - p.A.Loss
		for i := range docs {
			docs[i].Sum += (p.B.Docs[i].Sum - p.A.Docs[i].Sum) / float64(len(pairs))
			docs[i].Tokens = p.A.Docs[i].Tokens
		}
	}
	total := 0.0
	for _, seed := range c.Seeds {
		c.BySeed = append(c.BySeed, sums[seed]/float64(number[seed]))
		total += sums[seed]
	}
	c.Difference = total / float64(len(pairs))
	se, n := run.StdErr(docs)
	c.Documents = n
	c.errors(se)
	return c, nil
}

// errors fills in everything about noise. byDocuments is not a number below two documents.
func (c *Contrast) errors(byDocuments float64) {
	if c.Documents > 1 {
		c.StdErrDocuments = &byDocuments
	}
	n := len(c.BySeed)
	if n < 2 {
		return
	}
	_, sd := stat.MeanStdDev(c.BySeed, nil)
	bySeeds := sd / math.Sqrt(float64(n))
	c.Spread, c.StdErrSeeds = &sd, &bySeeds
	if c.Documents < 2 {
		return
	}
	vs, vd := bySeeds*bySeeds, byDocuments*byDocuments
	both := math.Sqrt(vs + vd)
	c.StdErr = &both
	if both == 0 { // the same run twice
		c.Interval = &[2]float64{c.Difference, c.Difference}
		c.Clear = c.Difference != 0
		return
	}
	c.Freedom = (vs + vd) * (vs + vd) / (vs*vs/float64(n-1) + vd*vd/float64(c.Documents-1))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: c.Freedom}.Quantile(0.5 + contrastLevel/2)
	c.Interval = &[2]float64{c.Difference - t*both, c.Difference + t*both}
	c.Clear = c.Interval[0] > 0 || c.Interval[1] < 0
}
