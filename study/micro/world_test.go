package micro

import (
	"fmt"
	"math"
	"testing"

	"refrain/internal/num"
	"refrain/study"
)

// world says what losses would come, in place of training. Documents differ far more than
// recipes do, and every run has some noise of its own.
type world struct {
	// loss is what a recipe comes to, without noise; members is 1 for a single model.
	loss  func(p Point, members int) float64
	train func(p Point) float64
	noise float64 // standard deviation over seeds
	fails func(p Point, seed uint64) bool
}

// millions are about the parameters of a size.
func millions(p Point) float64 {
	return map[string]float64{"XXS": 0.156, "XS": 0.363, "S": 0.726, "M": 1.33}[p.Size]
}

// usualWorld is as the papers say: an interior stop at the usual decay, a strong tuned decay
// and a gain from size, ensembles of less decayed members, packing anew, a middle batch, and
// embeddings that are better decayed and tied.
func usualWorld() world {
	lg := func(x, of float64) float64 { return math.Log2(x / of) }
	return world{
		noise: 0.002,
		loss: func(p Point, members int) float64 {
			bestDecay := 3.2 * float64(p.Batch) / 8
			over := math.Max(0, lg(float64(p.Epochs), 8)+lg(bestDecay, p.Decay)*0.2-0.5) // overfitting
			under := math.Max(0, -lg(float64(p.Epochs), 16))
			l := 4.5 + 0.05/math.Sqrt(millions(p)) + 0.09*over*over + 0.05*under + 0.03*math.Pow(lg(p.Decay, bestDecay), 2)
			l += 0.03*math.Pow(lg(float64(p.Batch), 8), 2)*0.5 + 0.01*math.Pow(lg(p.LR, 4e-3), 2)
			switch p.Order {
			case "fixed":
				l += 0.10
			case "reshuffle":
				l += 0.05
			}
			if p.Embed > 0 {
				l -= 0.05
			}
			if p.Tied {
				l -= 0.03
			}
			if p.Text != "" { // what members wrote keeps them from overfitting
				return 4.35 + 0.05*math.Sqrt(math.Abs(float64(len(p.Text)-15)))
			}
			// Members that are less decayed differ more.
			gain := 0.2 + 0.12*math.Max(0, lg(bestDecay, p.Decay))
			return l - gain*(1-1/float64(members))
		},
		train: func(p Point) float64 { return 4 - 0.2*math.Log2(float64(p.Epochs)/p.Decay) },
	}
}

// docs are the losses of documents that have such a mean: the same documents every time,
// with a little that is the run's own.
func (w world) docs(c *Corpus, mean float64, words ...uint64) []float64 {
	texts, own := num.NewStream("micro world documents"), num.NewStream("micro world runs", words...)
	shift := w.noise * own.Normal(1<<40)
	out := make([]float64, len(c.TestTokens))
	for i, n := range c.TestTokens {
		out[i] = rounded(float64(n) * (mean + shift + 0.5*texts.Normal(uint64(i)) + 0.02*own.Normal(uint64(i))))
	}
	return out
}

// simulate goes through the program of a form as a study does.
func simulate(t *testing.T, f *Form, w world, corpora ...string) *Results {
	t.Helper()
	r := newResults(Options{Form: f, Args: []string{"refrain", "study", "micro"}})
	for _, name := range corpora {
		c := Corpus{Name: name, Unique: f.text.unique, Pools: f.text.pools, Digest: name}
		for i := range 110 {
			c.TestTokens = append(c.TestTokens, int64(500+37*(i%60)))
		}
		r.Corpora = append(r.Corpora, c)
	}
	for round := 0; ; round++ {
		if round > 20 {
			t.Fatal("the program does not end")
		}
		d := f.demand(r)
		more := false
		for _, x := range d.models {
			if m := r.model(x.Point, x.Seed); m == nil {
				r.Models = append(r.Models, w.model(f, r, x))
				more = true
			} else if x.Test && m.Test == nil && m.well() {
				m.Test = w.docs(r.corpus(x.Corpus), w.loss(x.Point, 1), key(x.Point), x.Seed)
				more = true
			}
		}
		for _, x := range d.texts {
			if r.text(x.Corpus, x.Name) == nil {
				r.Texts = append(r.Texts, &Text{Corpus: x.Corpus, Name: x.Name, Tokens: x.Tokens, Documents: 400, Recipe: x.Teacher.Label()})
				more = true
			}
		}
		for _, x := range d.ensembles {
			if old := r.ensemble(x.Point); old == nil {
				r.Ensembles = append(r.Ensembles, w.ensemble(r, x))
				more = true
			} else if x.Weights && old.Weights == nil && len(old.Val) > 0 {
				*old = *w.ensemble(r, x)
				more = true
			}
		}
		if !more {
			return r
		}
	}
}

// key is a number that belongs to a point.
func key(p Point) uint64 { return num.Key(fmt.Sprintf("%+v", p)) }

func (w world) model(f *Form, r *Results, x want) *Model {
	m := &Model{Point: x.Point, Seed: x.Seed, Run: fmt.Sprintf("runs/%016x-%d", key(x.Point), x.Seed), Status: study.Done}
	m.DataHash, m.ValHash, m.TokenizerHash, m.Code = fmt.Sprint("data of ", x.Corpus, x.Pool, x.Text), "val of "+x.Corpus, "tokenizer of "+x.Corpus, "code"
	for _, s := range f.text.sizes {
		if s.Name == x.Size {
			m.Params = 2*f.text.vocab*s.Dim + s.Layers*(4*s.Dim*s.Dim+3*s.Dim*s.Hide)
		}
	}
	m.Steps = int64(x.Epochs) * f.text.unique / int64(f.text.seq*x.Batch)
	if w.fails != nil && w.fails(x.Point, x.Seed) {
		m.Status, m.Reason = study.NaN, "loss not finite"
		return m
	}
	own := num.NewStream("micro world runs", key(x.Point), x.Seed)
	val, train := w.loss(x.Point, 1)+w.noise*own.Normal(1<<40), w.train(x.Point)
	m.Val, m.Train = &val, &train
	if x.Test {
		m.Test = w.docs(r.corpus(x.Corpus), w.loss(x.Point, 1), key(x.Point), x.Seed)
	}
	return m
}

func (w world) ensemble(r *Results, x wantEnsemble) *Ensemble {
	e := &Ensemble{Point: x.Point}
	for seed := range uint64(x.Members) {
		if !r.model(x.Point, seed).well() {
			return &Ensemble{Point: x.Point}
		}
		e.Seeds = append(e.Seeds, seed)
	}
	for k := range x.Members {
		loss := w.loss(x.Point, k+1)
		e.Val = append(e.Val, loss)
		e.Logit = append(e.Logit, w.docs(r.corpus(x.Corpus), loss, key(x.Point), 100, uint64(k)))
		e.Prob = append(e.Prob, w.docs(r.corpus(x.Corpus), loss-0.02, key(x.Point), 200, uint64(k)))
	}
	if x.Weights {
		e.Weights, e.Weighted = []float64{1}, w.docs(r.corpus(x.Corpus), e.Val[x.Members-1]-0.001, key(x.Point), 300)
	}
	return e
}

// answerOf is that of a question on the first corpus.
func answerOf(t *testing.T, f *Form, r *Results, id string) *Answer {
	t.Helper()
	for _, q := range questions() {
		if q.id == id {
			a := f.answer(f.scopes(r)[0], q)
			t.Logf("(%s) %s", a.ID, a.Text)
			for _, n := range a.Notes {
				t.Logf("    %s", n)
			}
			return a
		}
	}
	t.Fatalf("no answer (%s)", id)
	return nil
}

// referenceSeconds are those of one core for a result, where the XS model trains on 62,000
// tokens a second: what forms are made to fit. A forward pass is a third of a step.
func referenceSeconds(f *Form, r *Results) (total float64) {
	const rate, testTokens, valTokens = 62_000.0, 165_000.0, 125_000.0
	times := map[string]float64{"XXS": 0.5, "XS": 1, "S": 2.1, "M": 3.9}
	for _, m := range r.Models {
		tokens := float64(m.Epochs)*float64(f.text.unique)/(1-m.Fraction) + valTokens/3
		if m.Test != nil {
			tokens += testTokens / 3
		}
		total += times[m.Size] * tokens / rate
	}
	for _, x := range r.Texts { // a forward pass a token, in products that are a few rows tall
		total += float64(x.Tokens) / rate
	}
	for _, e := range r.Ensembles { // a forward pass and about as much for the sums over logits
		total += times[e.Size] * float64(len(e.Seeds)) * (testTokens + valTokens) * 2 / 3 / rate
	}
	return total
}

// TestFormsFitTheirTime: 10 and 100 minutes on two cores, with a tenth to spare, whichever
// recipes turn out to be the best ones.
func TestFormsFitTheirTime(t *testing.T) {
	long := usualWorld() // the more epochs the better
	short := long.loss
	long.loss = func(p Point, members int) float64 { return short(p, members) - 0.3*math.Log2(float64(p.Epochs)) }
	for _, c := range []struct {
		form        string
		corpora     []string
		usual, most float64
	}{{"quick", []string{"go"}, 950, 1080}, {"short", []string{"go", "prose"}, 8640, 10_800}} {
		f, err := FindForm(c.form)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range []world{usualWorld(), long} {
			r := simulate(t, f, w, c.corpora...)
			s := referenceSeconds(f, r)
			t.Logf("%s: %d runs, %d ensembles, %.0f s of one core", c.form, len(r.Models), len(r.Ensembles), s)
			if i == 0 && s > c.usual || s > c.most {
				t.Errorf("%s takes %.0f s of one core", c.form, s)
			}
		}
	}
}
