package ensemble_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/internal/par"
	"refrain/model"
	"refrain/stages/evals"
	"refrain/study/ensemble"
	"refrain/study/fit"
	"refrain/train/eval"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const vocab, seqT, numRows = 37, 12, 7

func tiny() model.Config {
	return model.Config{Vocab: vocab, Layers: 1, Dim: 16, Heads: 2, KVHeads: 1, FFN: 24, MaxT: 16, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
}

// weightsOf are weights far from initial ones, so that members disagree.
func weightsOf(c model.Config, seed uint64) []float32 {
	l := c.Layout()
	w := make([]float32, l.Total)
	for _, p := range l.Params {
		s := num.NewStream("ensemble weights/"+p.Name, seed)
		for i := range p.Len {
			x := 0.3 * s.Normal(uint64(i))
			if p.Role == model.Norm {
				x++
			}
			w[p.Off+i] = float32(x)
		}
	}
	return w
}

func member(c model.Config, seed uint64) ensemble.Member {
	w := weightsOf(c, seed)
	return ensemble.Member{Name: fmt.Sprintf("member %d", seed), Model: c, Weights: func(context.Context) ([]float32, error) { return w, nil }}
}

func members(n int) (list []ensemble.Member) {
	for i := range n {
		list = append(list, member(tiny(), uint64(i+1)))
	}
	return list
}

// set has rows of random tokens, some targets masked, and a document every 5 targets.
type set struct{}

func (set) Rows() int64 { return numRows }
func (set) ReadRow(row int64, tokens, targets []int32, starts []byte) (scored int, err error) {
	s := num.NewStream("ensemble rows", uint64(row))
	clear(starts)
	for i := range tokens {
		tokens[i], targets[i] = int32(s.Uintn(uint64(2*i), vocab)), int32(s.Uintn(uint64(2*i+1), vocab))
		if (int(row)+i)%5 == 0 {
			targets[i] = -1
			continue
		}
		scored++
	}
	return scored, nil
}

func docs(row int64, at func(doc, from, to int)) {
	for from, p := 0, int(row)*seqT; from < seqT; {
		to := min(seqT, from+5-(p+from)%5)
		at((p+from)/5, from, to)
		from = to
	}
}

func data() ensemble.Data {
	return ensemble.Data{Set: set{}, Docs: docs, NumDocs: (numRows*seqT + 4) / 5, T: seqT, DocMask: true}
}

func options(t *testing.T, threads int) ensemble.Options {
	t.Helper()
	d, err := host.New(host.Config{Threads: threads}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	pool := par.New(threads)
	t.Cleanup(func() {
		pool.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return ensemble.Options{Device: d, Pool: pool, Rows: 2, Subsets: ensemble.MostSubsets}
}

func evaluate(t *testing.T, o ensemble.Options, list []ensemble.Member) *ensemble.Losses {
	t.Helper()
	l, err := ensemble.Evaluate(t.Context(), o, list, data())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// alone is what an evaluation of one model gives.
func alone(t *testing.T, d gpu.Device, m ensemble.Member) *ensemble.Tally {
	t.Helper()
	e, err := eval.New(t.Context(), d, eval.Config{Model: m.Model, B: 3, T: seqT, DocMask: true, Policy: m.Policy})
	if err != nil {
		t.Fatal(err)
	}
	w, _ := m.Weights(t.Context())
	if err := e.Load(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	r := &ensemble.Tally{Docs: make([]evals.DocLoss, data().NumDocs)}
	if r.Result, err = e.Run(t.Context(), set{}, evals.ByDocument(r.Docs, docs)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRow19CopiesAreTheModel (E row 19): K copies of one model are that model to the
// bit, in every mean and every subset, and what an evaluation of the model alone says.
func TestRow19CopiesAreTheModel(t *testing.T) {
	for _, act := range []gpu.DType{gpu.F32, gpu.BF16} {
		t.Run(act.String(), func(t *testing.T) { copiesAreTheModel(t, act) })
	}
}

func copiesAreTheModel(t *testing.T, act gpu.DType) {
	o := options(t, 2)
	m := member(tiny(), 1)
	m.Policy.Act = act
	l := evaluate(t, o, []ensemble.Member{m, m, m, m, m})
	want := alone(t, o.Device, m)
	same := func(what string, got *ensemble.Tally) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s of copies: %+v; the model alone: %+v", what, got.Result, want.Result)
		}
	}
	for k := range 5 {
		same(fmt.Sprintf("member %d", k), l.Singles[k])
		same(fmt.Sprintf("logit mean of %d", k+1), l.Logit[k])
		same(fmt.Sprintf("probability mean of %d", k+1), l.Prob[k])
	}
	if len(l.Subsets) != 31 {
		t.Fatalf("%d subsets", len(l.Subsets))
	}
	for _, s := range l.Subsets {
		same(fmt.Sprintf("logit mean of %v", s.Members), s.Logit)
		same(fmt.Sprintf("probability mean of %v", s.Members), s.Prob)
	}
}

// stacked is the ensemble of a subset from all logits at once, in float64 throughout.
func stacked(t *testing.T, d gpu.Device, list []ensemble.Member, of []int) (logit, prob float64) {
	t.Helper()
	var all [][]float32
	var targets []int32
	for _, m := range of {
		x, err := eval.NewLogits(t.Context(), d, eval.Config{Model: list[m].Model, B: 5, T: seqT, DocMask: true})
		if err != nil {
			t.Fatal(err)
		}
		w, _ := list[m].Weights(t.Context())
		if err := x.Load(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		var own []float32
		targets = targets[:0]
		if _, err := x.Run(t.Context(), set{}, 0, numRows, func(_ int64, tg []int32, logits []float32) error {
			own, targets = append(own, logits...), append(targets, tg...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		all = append(all, own)
	}
	n := 0.0
	for p, target := range targets {
		if target < 0 {
			continue
		}
		n++
		mean := make([]float64, vocab)
		p1 := 0.0
		for _, own := range all {
			row, z := own[p*vocab:(p+1)*vocab], 0.0
			for i, v := range row {
				mean[i] += float64(v) / float64(len(all))
				z += math.Exp(float64(v))
			}
			p1 += math.Exp(float64(row[target])) / z / float64(len(all))
		}
		z := 0.0
		for _, v := range mean {
			z += math.Exp(v)
		}
		logit += math.Log(z) - mean[target]
		prob -= math.Log(p1)
	}
	return logit / n, prob / n
}

// TestRow19StreamingIsStacked (E row 19): the members one at a time give what all logits
// at once give, for every subset; and the same bits whatever the block, the rows of a
// pass and the threads, with and without the subsets.
func TestRow19StreamingIsStacked(t *testing.T) {
	o := options(t, 1)
	list := members(4)
	want := evaluate(t, o, list)
	for _, s := range want.Subsets {
		logit, prob := stacked(t, o.Device, list, s.Members)
		if math.Abs(logit-s.Logit.Loss) > 2e-6 || math.Abs(prob-s.Prob.Loss) > 2e-6 {
			t.Errorf("%v: %.7f and %.7f, all at once %.7f and %.7f", s.Members, s.Logit.Loss, s.Prob.Loss, logit, prob)
		}
	}
	if a, b := want.Logit[3].Loss, want.Prob[3].Loss; math.Abs(a-b) < 1e-3 {
		t.Errorf("both means are %.5f: these members cannot tell them apart", a)
	}
	for _, v := range []struct {
		threads, rows int
		memory        int64
		subsets       int
	}{{2, 1, 1, 6}, {3, 3, 3 * seqT * vocab * 24, 4}, {1, 7, 1 << 30, 0}, {2, 2, 2 * seqT * vocab * 8, 3}} {
		o := options(t, v.threads)
		o.Rows, o.Memory, o.Subsets = v.rows, v.memory, v.subsets
		got := evaluate(t, o, list)
		if !reflect.DeepEqual(got.Singles, want.Singles) || !reflect.DeepEqual(got.Logit, want.Logit) || !reflect.DeepEqual(got.Prob, want.Prob) {
			t.Errorf("%+v: other bits than in one block on one thread", v)
		}
		if got.Subsets != nil && !reflect.DeepEqual(got.Subsets, want.Subsets) {
			t.Errorf("%+v: other bits in subsets", v)
		}
		if (got.Subsets == nil) != (v.subsets < 4) {
			t.Errorf("%+v: subsets %v", v, got.Subsets != nil)
		}
	}
}

// TestRow19MemoryIsOneModel (E row 19): every member is asked for once a block, in
// order, and the logits held do not grow with the number of members unless all subsets
// are wanted.
func TestRow19MemoryIsOneModel(t *testing.T) {
	o := options(t, 1)
	o.Subsets, o.Memory = 0, 2*seqT*vocab*8
	var asked []int
	list := members(3)
	for i := range list {
		w := list[i].Weights
		list[i].Weights = func(ctx context.Context) ([]float32, error) { asked = append(asked, i); return w(ctx) }
	}
	l := evaluate(t, o, list)
	if want := []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}; !slices.Equal(asked, want) || l.BlockRows != 2 || l.HeldBytes != o.Memory {
		t.Errorf("asked for %v in blocks of %d rows and %d bytes", asked, l.BlockRows, l.HeldBytes)
	}
	few, _ := ensemble.BlockRows(o, 2, seqT, vocab, numRows)
	many, _ := ensemble.BlockRows(o, 200, seqT, vocab, numRows)
	if few != many {
		t.Errorf("blocks of %d rows for 2 members, of %d for 200", few, many)
	}
}

// TestRow19Shapes (E row 19): members of different shapes average their logits as
// long as they have one vocabulary.
func TestRow19Shapes(t *testing.T) {
	o := options(t, 1)
	wide := tiny()
	wide.Dim, wide.Heads = 32, 4
	list := []ensemble.Member{member(tiny(), 1), member(wide, 2), member(tiny(), 3)}
	l := evaluate(t, o, list)
	for _, s := range l.Subsets {
		logit, prob := stacked(t, o.Device, list, s.Members)
		if math.Abs(logit-s.Logit.Loss) > 2e-6 || math.Abs(prob-s.Prob.Loss) > 2e-6 {
			t.Errorf("%v: %.7f and %.7f, all at once %.7f and %.7f", s.Members, s.Logit.Loss, s.Prob.Loss, logit, prob)
		}
	}
	if _, err := ensemble.Soup(t.Context(), list); err == nil || !strings.Contains(err.Error(), "member 2") {
		t.Errorf("a weight average of two shapes: %v", err)
	}
}

// TestRefuses: what cannot be evaluated names member and place.
func TestRefuses(t *testing.T) {
	o := options(t, 1)
	other := tiny()
	other.Vocab++
	short := tiny()
	short.MaxT = seqT - 1
	nan := member(tiny(), 2)
	w := weightsOf(tiny(), 2)
	w[len(w)-1] = float32(math.NaN())
	nan.Weights = func(context.Context) ([]float32, error) { return w, nil }
	for _, v := range []struct {
		list []ensemble.Member
		says string
	}{
		{nil, "no members"},
		{[]ensemble.Member{member(tiny(), 1), member(other, 2)}, "member 2 has a vocabulary of 38"},
		{[]ensemble.Member{member(tiny(), 1), member(short, 2)}, "member 2 covers 11 positions"},
		{[]ensemble.Member{member(tiny(), 1), nan}, "member 2: row 0, position 1"},
	} {
		if _, err := ensemble.Evaluate(t.Context(), o, v.list, data()); err == nil || !strings.Contains(err.Error(), v.says) {
			t.Errorf("want an error with %q, got %v", v.says, err)
		}
	}
	o.Weights = []float64{1}
	if _, err := ensemble.Evaluate(t.Context(), o, members(2), data()); err == nil {
		t.Error("one weight for two members was taken")
	}
}

// TestRow19Pairs: the error of a difference is that over documents, and none between
// a model and itself.
func TestRow19Pairs(t *testing.T) {
	o := options(t, 1)
	l := evaluate(t, o, members(3))
	if d, se := ensemble.Difference(l.Logit[2], l.Logit[2]); d != 0 || se != 0 {
		t.Errorf("a model differs from itself by %v +- %v", d, se)
	}
	a, b := l.Singles[0], l.Logit[2]
	d, se := ensemble.Difference(a, b)
	// The same from the definition.
	var mean, n, ss, tokens float64
	for i := range a.Docs {
		mean += b.Docs[i].Sum - a.Docs[i].Sum
		tokens += float64(a.Docs[i].Tokens)
	}
	mean /= tokens
	for i := range a.Docs {
		if k := float64(a.Docs[i].Tokens); k > 0 {
			n++
			r := b.Docs[i].Sum - a.Docs[i].Sum - mean*k
			ss += r * r
		}
	}
	if want := math.Sqrt(ss*n/(n-1)) / tokens; math.Abs(d-mean) > 1e-9 || math.Abs(se-want) > 1e-12 || se == 0 {
		t.Errorf("%v +- %v, by hand %v +- %v", d, se, mean, want)
	}
}

// TestRow19LearnedWeights: weights that are fitted are better than equal ones on what
// they are fitted on, no worse than the best member, and nothing near is better.
func TestRow19LearnedWeights(t *testing.T) {
	o := options(t, 2)
	list := members(3)
	r, err := ensemble.FitWeights(t.Context(), o, list, data())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, w := range r.Weights {
		sum += w
		if w < 0 {
			t.Errorf("weights %v", r.Weights)
		}
	}
	loss := func(w []float64) float64 {
		o.Weights = w
		return evaluate(t, o, list).Weighted.Loss
	}
	l := evaluate(t, o, list)
	at := loss(r.Weights)
	if math.Abs(sum-1) > 1e-9 || math.Abs(at-r.Fitted) > 2e-6 || math.Abs(l.Logit[2].Loss-r.Equal) > 2e-6 || r.Fitted >= r.Equal || r.Gap > 1e-5 {
		t.Errorf("%+v; an evaluation gives %.7f, equal weights %.7f", r, at, l.Logit[2].Loss)
	}
	for i := range list {
		if l.Singles[i].Loss < r.Fitted {
			t.Errorf("member %d alone has %.6f, the weights %v %.6f", i, l.Singles[i].Loss, r.Weights, r.Fitted)
		}
		for j := range list {
			if w := slices.Clone(r.Weights); i != j && w[i] > 0 {
				move := min(w[i], 0.02)
				w[i] -= move
				w[j] += move
				if near := loss(w); near < at-1e-6 {
					t.Errorf("%v has %.7f, the weights found, %v, %.7f", w, near, r.Weights, at)
				}
			}
		}
	}
	o.Weights, o.Memory = nil, 1
	again, err := ensemble.FitWeights(t.Context(), o, list, data())
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("row by row %+v, %v; at once %+v", again, err, r)
	}
}

// TestRow27Soup (E row 27): the weight average is the mean of every tensor, exactly the
// model for copies of it. A moving average is its last member without decay.
func TestRow27Soup(t *testing.T) {
	list := members(3)
	soup, err := ensemble.Soup(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := soup.Weights(t.Context())
	var all [][]float32
	for _, m := range list {
		w, _ := m.Weights(t.Context())
		all = append(all, w)
	}
	for i := range got {
		if want := float32((float64(all[0][i]) + float64(all[1][i]) + float64(all[2][i])) / 3); got[i] != want {
			t.Fatalf("weight %d is %v, the mean %v", i, got[i], want)
		}
	}
	copies, err := ensemble.Soup(t.Context(), []ensemble.Member{list[1], list[1], list[1]})
	if err != nil {
		t.Fatal(err)
	}
	if w, _ := copies.Weights(t.Context()); !slices.Equal(w, all[1]) {
		t.Error("the average of copies is another model")
	}
	for _, v := range []struct {
		decay  float64
		shares [3]float64
	}{{0, [3]float64{0, 0, 1}}, {0.5, [3]float64{0.25, 0.25, 0.5}}} {
		m, err := ensemble.EMA(t.Context(), list, v.decay)
		if err != nil {
			t.Fatal(err)
		}
		w, _ := m.Weights(t.Context())
		for i := range w {
			want := v.shares[0]*float64(all[0][i]) + v.shares[1]*float64(all[1][i]) + v.shares[2]*float64(all[2][i])
			if math.Abs(float64(w[i])-want) > 1e-6 {
				t.Fatalf("decay %g: weight %d is %v, want %v", v.decay, i, w[i], want)
			}
		}
	}
	if _, err := ensemble.EMA(t.Context(), list, 1); err == nil {
		t.Error("a decay of 1 was taken")
	}
}

// TestRow20RankByAsymptote (E row 20): the recipe whose ensembles end lowest is first
// though it is worst alone, and a curve without a law is last.
func TestRow20RankByAsymptote(t *testing.T) {
	curve := func(name string, a, e float64) ensemble.Curve {
		c := ensemble.Curve{Name: name}
		for k := 1; k <= 5; k++ {
			c.Points = append(c.Points, fit.Point{X: float64(k), Loss: a/float64(k) + e})
		}
		return c
	}
	flat := ensemble.Curve{Name: "flat", Points: []fit.Point{{X: 1, Loss: 4}, {X: 2, Loss: 4.1}, {X: 3, Loss: 4.3}}}
	list := []ensemble.Curve{curve("single", 0.2, 3.37), flat, curve("overfit", 0.5, 3.21), curve("between", 0.3, 3.3)}
	ranked, err := ensemble.Rank(list, fit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range ranked {
		got = append(got, fmt.Sprintf("%s %d/%d %.3f", r.Name, r.Rank, r.SingleRank, r.Single))
	}
	want := []string{"overfit 1/3 3.710", "between 2/2 3.600", "single 3/1 3.570", "flat 0/4 4.000"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if math.Abs(ranked[0].E-3.21) > 1e-4 {
		t.Errorf("the asymptote is %v", ranked[0].E)
	}
	for _, bad := range []ensemble.Curve{{Name: "short", Points: list[0].Points[:2]}, {Name: "headless", Points: list[0].Points[1:]}} {
		if _, err := ensemble.Rank([]ensemble.Curve{list[0], bad}, fit.Options{}); err == nil || !strings.Contains(err.Error(), bad.Name) {
			t.Errorf("%s: %v", bad.Name, err)
		}
	}
}

// TestRow19Law: the law over members needs three of them, and its end has an interval
// over documents that holds it.
func TestRow19Law(t *testing.T) {
	o := options(t, 1)
	l := evaluate(t, o, members(5))
	a, err := ensemble.Law(l.Logit, fit.Options{Resamples: 50, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if a.ByDocuments == nil || !(a.ByDocuments[0] < a.E && a.E < a.ByDocuments[1]) {
		t.Errorf("E %v, by documents %v", a.E, a.ByDocuments)
	}
	again, err := ensemble.Law(l.Logit, fit.Options{Resamples: 50, Seed: 3})
	if err != nil || !reflect.DeepEqual(a, again) {
		t.Errorf("equal seeds give %+v and %+v, %v", a, again, err)
	}
	if _, err := ensemble.Law(l.Logit[:2], fit.Options{}); err == nil {
		t.Error("a law of two points")
	}
}
