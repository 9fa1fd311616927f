package ensemble_test

import (
	"context"
	"math"
	"testing"

	"refrain/model"
	"refrain/study/choices"
	"refrain/study/ensemble"
)

// The letters of the questions below; 0 stands for what ends a document.
const letters = "\x00abcd"

// table has the probability of every letter after every letter.
type table [len(letters)][len(letters)]float64

// bigram is a model that knows table exactly: one-hot embeddings, layers that add nothing,
// and a head with the logarithms.
func bigram(p table) ensemble.Member {
	c := model.Config{Vocab: len(letters), Layers: 1, Dim: 8, Heads: 2, KVHeads: 1, FFN: 8, MaxT: 32, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
	l := c.Layout()
	w := make([]float32, l.Total)
	norm := 1 / math.Sqrt(1/float64(c.Dim)+c.NormEps) // of a one-hot vector
	for _, x := range l.Params {
		part := w[x.Off : x.Off+x.Len]
		switch x.Role {
		case model.Norm:
			for i := range part {
				part[i] = 1
			}
		case model.Embedding:
			for v := range c.Vocab {
				part[v*c.Dim+v] = 1
			}
		case model.Head:
			for to := range c.Vocab {
				for from := range c.Vocab {
					part[to*c.Dim+from] = float32(math.Log(p[from][to]) / norm)
				}
			}
		}
	}
	return ensemble.Member{Name: "table", Model: c, Weights: func(context.Context) ([]float32, error) { return w, nil }}
}

// TestRow29KnownProbabilities (E row 29): models that know a table of probabilities give
// every choice the log probability that the table says, alone and as ensembles, and so
// the accuracies that follow from it.
func TestRow29KnownProbabilities(t *testing.T) {
	p := table{
		{0.1, 0.2, 0.3, 0.2, 0.2}, // after the end of a document
		{0.1, 0.1, 0.5, 0.2, 0.1}, // after a: b is likely
		{0.05, 0.05, 0.1, 0.6, 0.2},
		{0.25, 0.25, 0.25, 0.125, 0.125},
		{0.2, 0.2, 0.2, 0.2, 0.2},
	}
	q := p
	q[1] = [5]float64{0.1, 0.1, 0.1, 0.6, 0.1} // this one likes c after a
	items := []choices.Item{
		{Context: "da", Choices: []string{"b", "c"}, Label: 0, Line: 1},
		{Context: "a", Choices: []string{"bc", "c", "d"}, Label: 0, Line: 2},
		{Context: "", Choices: []string{"a", "b"}, Label: 0, Line: 3},
		{Context: "dddddddddddddddddddddddda", Choices: []string{"c", "b"}, Label: 1, Line: 4},
	}
	known := [][2]float64{ // of each row by p and by q
		{0.5, 0.1}, {0.2, 0.6}, {0.5 * 0.6, 0.1 * 0.6}, {0.2, 0.6}, {0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}, {0.2, 0.6}, {0.5, 0.1},
	}
	// Mean logits of p and q after a are the roots of 0.01, 0.01, 0.05, 0.12, 0.01.
	z := 3*0.1 + math.Sqrt(0.05) + math.Sqrt(0.12)
	b, c := math.Sqrt(0.05)/z, math.Sqrt(0.12)/z
	logit := []float64{b, c, b * 0.6, c, 0.1 / z, 0.2, 0.3, c, b}
	prob := []float64{0.3, 0.4, 0.3 * 0.6, 0.4, 0.1, 0.2, 0.3, 0.4, 0.3}

	rows, err := choices.Encode("items", items, func(text []byte) (ids []uint32) {
		for _, x := range text {
			ids = append(ids, uint32(x-'a')+1)
		}
		return ids
	}, choices.Start{ID: 0, Before: true}, 32)
	if err != nil {
		t.Fatal(err)
	}
	for _, mask := range []bool{true, false} {
		s, err := ensemble.ScoreRows(t.Context(), options(t, 2), []ensemble.Member{bigram(p), bigram(q)}, rows, mask, false)
		if err != nil {
			t.Fatal(err)
		}
		for i, k := range known {
			for _, x := range []struct {
				name      string
				got, want float64
			}{{"p", s.Members[0][i], k[0]}, {"q", s.Members[1][i], k[1]}, {"mean logits", s.Logit[i], logit[i]}, {"mean probabilities", s.Prob[i], prob[i]}} {
				if math.Abs(x.got-math.Log(x.want)) > 1e-5 {
					t.Errorf("row %d, %s: probability %v instead of %v", i, x.name, math.Exp(x.got), x.want)
				}
			}
		}
		// p: right, right (0.3 against 0.2), wrong, right; by characters also.
		if r := rows.Score(s.Members[0]); r.Acc.Acc != 0.75 || r.Norm.Acc != 0.75 {
			t.Errorf("p has %+v", r)
		}
		// q: all wrong. By characters bc has the root of 0.06, which is below 0.6.
		if r := rows.Score(s.Members[1]); r.Acc.Acc != 0 || r.Norm.Acc != 0 {
			t.Errorf("q has %+v", r)
		}
		if r := rows.Score(s.Logit); r.Acc.Acc != 0 {
			t.Errorf("mean logits have %+v", r)
		}
		one, err := ensemble.ScoreRows(t.Context(), options(t, 1), []ensemble.Member{bigram(p)}, rows, mask, true)
		if err != nil {
			t.Fatal(err)
		}
		for i := range known {
			if one.Logit[i] != s.Members[0][i] || one.Members[0][i] != one.Logit[i] {
				t.Errorf("row %d: alone %v, in the ensemble %v", i, one.Logit[i], s.Members[0][i])
			}
		}
	}
}
