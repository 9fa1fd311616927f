package eval_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/model"
	"refrain/stages/repack"
	"refrain/train/eval"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tiny() model.Config {
	return model.Config{Vocab: 37, Layers: 2, Dim: 32, Heads: 4, KVHeads: 2, FFN: 40, MaxT: 64, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
}

// weightsOf are weights far from the initial ones, so that predictions differ
// from place to place.
func weightsOf(c model.Config) []float32 {
	l := c.Layout()
	w := make([]float32, l.Total)
	for _, p := range l.Params {
		s := num.NewStream("eval weights/"+p.Name, 1)
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

func open(t testing.TB, threads int) gpu.Device {
	t.Helper()
	d, err := host.New(host.Config{Threads: threads}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newEvaluator(t *testing.T, d gpu.Device, c eval.Config, w []float32) *eval.Evaluator {
	t.Helper()
	e, err := eval.New(t.Context(), d, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := e.Load(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return e
}

// set is a fixed list of rows.
type set struct {
	rows int64
	fill func(row int64, tokens, targets []int32, starts []byte) int
}

func (s set) Rows() int64 { return s.rows }
func (s set) ReadRow(i int64, tokens, targets []int32, starts []byte) (int, error) {
	return s.fill(i, tokens, targets, starts), nil
}

// uneven rows: from no scored target to all of them.
func uneven(vocab int, rows int64) set {
	return set{rows, func(row int64, tokens, targets []int32, starts []byte) (scored int) {
		s := num.NewStream("eval row", uint64(row))
		clear(starts)
		starts[0] = byte(row)
		for i := range tokens {
			tokens[i] = int32(s.Uintn(uint64(2*i), uint64(vocab)))
			targets[i] = int32(s.Uintn(uint64(2*i+1), uint64(vocab)))
			if int64(i)*(rows-1) >= row*int64(len(tokens)) {
				targets[i] = -1
			} else {
				scored++
			}
		}
		return scored
	}}
}

// TestRow12MeanDoesNotDependOnTheBatch (N16; incident I-27): the loss is one division
// of the sum over all token losses by all scored targets, with the same bits
// for any number of rows a pass and any number of threads, a last pass that is
// not full included; the mean of batch means is something else.
func TestRow12MeanDoesNotDependOnTheBatch(t *testing.T) {
	c, s := tiny(), uneven(37, 11)
	w := weightsOf(c)
	var want eval.Result
	for i, v := range []struct{ b, threads int }{{1, 1}, {2, 1}, {3, 2}, {4, 1}, {11, 1}, {16, 3}} {
		e := newEvaluator(t, open(t, v.threads), eval.Config{Model: c, B: v.b, T: 20, DocMask: true}, w)
		var sum, ofMeans float64
		var tokens int64
		means := 0
		r, err := e.Run(t.Context(), s, func(_ int64, targets []int32, loss []float32) {
			var rowSum float64
			n := 0
			for j, l := range loss {
				if targets[j] < 0 {
					if l != 0 {
						t.Errorf("a masked target has loss %v", l)
					}
					continue
				}
				rowSum += float64(l)
				n++
			}
			if n > 0 {
				ofMeans += rowSum / float64(n)
				means++
			}
			sum, tokens = sum+rowSum, tokens+int64(n)
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Sum != sum || r.Tokens != tokens || r.Loss != sum/float64(tokens) || r.Rows != 11 {
			t.Errorf("B=%d: %+v, the rows give %v over %d", v.b, r, sum, tokens)
		}
		if i == 0 {
			want = r
			if d := math.Abs(ofMeans/float64(means) - r.Loss); d < 1e-3 {
				t.Errorf("the mean of means is only %.2g away: these rows cannot tell the two apart", d)
			}
		}
		if r != want {
			t.Errorf("B=%d, %d threads: %+v, one row at a time %+v", v.b, v.threads, r, want)
		}
		again, err := e.Run(t.Context(), s, nil)
		if err != nil || again != r {
			t.Errorf("B=%d: a second evaluation gives %+v, %v", v.b, again, err)
		}
	}
}

// TestNothingScored (N20): no targets is a loss of zero over zero tokens, not a NaN.
func TestNothingScored(t *testing.T) {
	c := tiny()
	e := newEvaluator(t, open(t, 1), eval.Config{Model: c, B: 2, T: 8}, weightsOf(c))
	r, err := e.Run(t.Context(), set{3, func(_ int64, tokens, targets []int32, starts []byte) int {
		clear(tokens)
		clear(starts)
		for i := range targets {
			targets[i] = -1
		}
		return 0
	}}, nil)
	if err != nil || r != (eval.Result{Rows: 3}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := e.Run(t.Context(), set{}, nil); err != nil || r != (eval.Result{}) {
		t.Errorf("no rows: %+v, %v", r, err)
	}
}

// chain is a corpus in which token v is always followed by v+1, also from one
// document to the next in any order: every document counts through the
// vocabulary a whole number of times.
type chain struct {
	vocab   int
	lengths []uint32
}

func (c chain) NumDocs() int { return len(c.lengths) }
func (c chain) NumTokens() (n int64) {
	for _, l := range c.lengths {
		n += int64(l)
	}
	return n
}
func (c chain) Lengths() []uint32     { return c.lengths }
func (c chain) Fingerprint() [32]byte { return [32]byte{1} }
func (c chain) Copy(_, from, to int, dst []int32) {
	for i := from; i < to; i++ {
		dst[i-from] = int32(i % c.vocab)
	}
}

// oracle are weights of a model that is certain that token v is followed by
// v+shift: one-hot embeddings, layers that add nothing, a head that reads them.
func oracle(c model.Config, shift int) []float32 {
	l := c.Layout()
	w := make([]float32, l.Total)
	for _, p := range l.Params {
		x := w[p.Off : p.Off+p.Len]
		switch {
		case p.Role == model.Norm:
			for i := range x {
				x[i] = 1
			}
		case p.Role == model.Embedding:
			for v := range c.Vocab {
				x[v*c.Dim+v] = 1
			}
		case p.Role == model.Head:
			for v := range c.Vocab {
				x[(v+shift)%c.Vocab*c.Dim+v] = 16
			}
		}
	}
	return w
}

// TestLabelShift (N9; incident I-05): over rows of every mode of the stream, a
// model that knows the next token has loss zero, at row ends and at the borders
// of documents too; one that predicts the token itself, the one after the next
// or the one before is wrong everywhere.
func TestLabelShift(t *testing.T) {
	c := model.Config{Vocab: 23, Layers: 1, Dim: 24, Heads: 2, KVHeads: 2, FFN: 8, MaxT: 32, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
	corpus := chain{vocab: c.Vocab}
	for i := range 19 {
		corpus.lengths = append(corpus.lengths, uint32(c.Vocab*(1+i%3)))
	}
	d := open(t, 1)
	for _, mode := range []repack.Config{
		{Mode: repack.Fixed, T: 16}, {Mode: repack.Block, Block: 4, T: 16}, {Mode: repack.Reshuffle, T: 17},
		{Mode: repack.Repack, T: 16}, {Mode: repack.Repack, T: 16, Tail: repack.Carry}, {Mode: repack.Repack, T: 31, Tail: repack.Pad},
	} {
		mode.Seed = 5
		stream, err := repack.NewStream(corpus, mode)
		if err != nil {
			t.Fatal(err)
		}
		rows := 2 * stream.WindowsPerEpoch()
		for shift := -1; shift <= 2; shift++ {
			e := newEvaluator(t, d, eval.Config{Model: c, B: 8, T: mode.T, DocMask: true}, oracle(c, (shift+c.Vocab)%c.Vocab))
			r, err := e.Run(t.Context(), set{rows, func(row int64, tokens, targets []int32, starts []byte) int {
				n, err := stream.ReadRow(row, tokens, targets, starts)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}}, func(row int64, targets []int32, loss []float32) {
				for i, l := range loss {
					if targets[i] >= 0 && (l < 1e-3) != (shift == 1) {
						t.Fatalf("%v: the oracle of shift %d has loss %v at row %d, position %d", mode, shift, l, row, i)
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if minimum := (rows - 3) * int64(mode.T-1); r.Tokens < minimum {
				t.Errorf("%v: %d targets are scored in %d rows", mode, r.Tokens, rows)
			}
			if want := 70.0; shift != 1 && r.Loss < want {
				t.Errorf("%v: the oracle of shift %d has loss %.3f", mode, shift, r.Loss)
			}
		}
	}
}

// TestDocumentLongerThanAWindow (N20): a row that begins inside a document is
// one document from its first position on, and is evaluated as such.
func TestDocumentLongerThanAWindow(t *testing.T) {
	c := tiny()
	corpus := chain{c.Vocab, []uint32{uint32(37 * 5)}}
	stream, err := repack.NewStream(corpus, repack.Config{Mode: repack.Repack, T: 24, Tail: repack.Pad})
	if err != nil {
		t.Fatal(err)
	}
	s := set{stream.WindowsPerEpoch(), func(row int64, tokens, targets []int32, starts []byte) int {
		n, err := stream.ReadRow(row, tokens, targets, starts)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}}
	d := open(t, 1)
	masked, err := newEvaluator(t, d, eval.Config{Model: c, B: 3, T: 24, DocMask: true}, weightsOf(c)).Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := newEvaluator(t, d, eval.Config{Model: c, B: 3, T: 24}, weightsOf(c)).Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	// One document: the mask has nothing to hide. Padding is not scored.
	if masked != whole || masked.Tokens != 37*5-1 {
		t.Errorf("with the mask %+v, without it %+v", masked, whole)
	}
}

// TestSamplingIsTheForwardPass: the most likely token at every place, found
// with the key-value cache one token at a time, is that of the forward pass
// over the whole text: the loss of the generated tokens is the least that any
// token would have.
func TestSamplingIsTheForwardPass(t *testing.T) {
	c := tiny()
	w, d := weightsOf(c), open(t, 1)
	const T = 40
	s, err := eval.NewSampler(t.Context(), d, c, T, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	prompt := []uint32{3, 1, 4, 1, 5}
	text := slices.Clone(prompt)
	if err := s.Generate(t.Context(), prompt, T-len(prompt), eval.SampleConfig{}, func(id uint32) error {
		text = append(text, id)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(text) != T {
		t.Fatalf("%d tokens", len(text))
	}
	// Row v scores token v as the target of every position.
	losses := make([][]float32, c.Vocab)
	_, err = newEvaluator(t, d, eval.Config{Model: c, B: 8, T: T, DocMask: true}, w).Run(t.Context(), set{int64(c.Vocab), func(row int64, tokens, targets []int32, starts []byte) int {
		clear(starts)
		for i := range tokens {
			tokens[i], targets[i] = int32(text[i]), int32(row)
		}
		return len(targets)
	}}, func(row int64, _ []int32, loss []float32) { losses[row] = slices.Clone(loss) })
	if err != nil {
		t.Fatal(err)
	}
	for p := len(prompt) - 1; p+1 < T; p++ {
		for v := range losses {
			if got := losses[text[p+1]][p]; losses[v][p] < got-1e-4 {
				t.Errorf("position %d: token %d was taken with loss %v, token %d has %v", p, text[p+1], got, v, losses[v][p])
			}
		}
	}
}

// TestSamplingFollowsTheDistribution: draws at temperature one have the
// frequencies that the forward pass says, and equal seeds give equal text.
func TestSamplingFollowsTheDistribution(t *testing.T) {
	c := tiny()
	w, d := weightsOf(c), open(t, 1)
	s, err := eval.NewSampler(t.Context(), d, c, 8, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	draw := func(cfg eval.SampleConfig, n int) (ids []uint32) {
		if err := s.Generate(t.Context(), []uint32{7}, n, cfg, func(id uint32) error { ids = append(ids, id); return nil }); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	p := make([]float64, c.Vocab)
	_, err = newEvaluator(t, d, eval.Config{Model: c, B: 8, T: 1}, w).Run(t.Context(), set{int64(c.Vocab), func(row int64, tokens, targets []int32, starts []byte) int {
		tokens[0], targets[0], starts[0] = 7, int32(row), 0
		return 1
	}}, func(row int64, _ []int32, loss []float32) { p[row] = math.Exp(-float64(loss[0])) })
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000
	count := make([]float64, c.Vocab)
	for seed := range uint64(n) {
		count[draw(eval.SampleConfig{Seed: seed, Temperature: 1}, 1)[0]]++
	}
	var chi2 float64
	for v, q := range p {
		chi2 += (count[v] - n*q) * (count[v] - n*q) / (n * q)
	}
	// 36 degrees of freedom: mean 36, standard deviation 8.5.
	if chi2 > 80 {
		t.Errorf("chi-squared of %d draws is %.1f with 36 degrees of freedom", n, chi2)
	}
	cfg := eval.SampleConfig{Seed: 9, Temperature: 0.8, TopK: 10}
	if a, b := draw(cfg, 7), draw(cfg, 7); !slices.Equal(a, b) || len(a) != 7 {
		t.Errorf("equal seeds give %v and %v", a, b)
	}
	top := draw(eval.SampleConfig{}, 1)
	if a := draw(eval.SampleConfig{Seed: 1, Temperature: 1, TopK: 1}, 1); !slices.Equal(a, top) {
		t.Errorf("the best of one is %v, the most likely token %v", a, top)
	}
	if a := draw(eval.SampleConfig{Stop: top}, 5); len(a) != 0 {
		t.Errorf("a stop token is emitted: %v", a)
	}
}

// TestSamplingBeginsADocument: the first token sees the boundary, and the others do not: they
// are those of a forward pass over the text alone.
func TestSamplingBeginsADocument(t *testing.T) {
	c := tiny()
	s, err := eval.NewSampler(t.Context(), open(t, 1), c, 20, weightsOf(c))
	if err != nil {
		t.Fatal(err)
	}
	greedy := func(prompt []uint32, n int, begin bool) (ids []uint32) {
		t.Helper()
		if err := s.Generate(t.Context(), prompt, n, eval.SampleConfig{Begin: begin}, func(id uint32) error { ids = append(ids, id); return nil }); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	begun := greedy([]uint32{7}, 15, true)
	seen := greedy([]uint32{7}, 15, false)
	if begun[0] != seen[0] || slices.Equal(begun, seen) {
		t.Errorf("%v, with the boundary in sight %v", begun, seen)
	}
	if alone := greedy(begun[:1], 14, false); !slices.Equal(begun[1:], alone) {
		t.Errorf("after the boundary %v, without one %v", begun[1:], alone)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSamplerRefuses: what cannot be generated is an error that says so.
func TestSamplerRefuses(t *testing.T) {
	c := tiny()
	d := open(t, 1)
	for _, maxT := range []int{0, 65} {
		if _, err := eval.NewSampler(t.Context(), d, c, maxT, weightsOf(c)); err == nil {
			t.Errorf("%d positions of 64 are accepted", maxT)
		}
	}
	if _, err := eval.NewSampler(t.Context(), d, c, 8, weightsOf(c)[1:]); err == nil {
		t.Error("weights of another model are accepted")
	}
	s, err := eval.NewSampler(t.Context(), d, c, 8, weightsOf(c))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		prompt []uint32
		n      int
	}{{nil, 1}, {[]uint32{1}, 8}, {[]uint32{37}, 1}} {
		err := s.Generate(t.Context(), v.prompt, v.n, eval.SampleConfig{}, func(uint32) error { return fmt.Errorf("emitted") })
		if err == nil || err.Error() == "emitted" {
			t.Errorf("%v and %d more: %v", v.prompt, v.n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestPolicyIsKept: a precision that this version lacks is refused, not replaced.
func TestPolicyIsKept(t *testing.T) {
	_, err := eval.New(t.Context(), open(t, 1), eval.Config{Model: tiny(), B: 2, T: 8, Policy: model.Policy{Act: gpu.U8}})
	if err == nil || !strings.Contains(err.Error(), "u8") {
		t.Errorf("error %v, want one that says u8", err)
	}
}

// TestLoadFrom: weights that are pinned already are read where they lie.
func TestLoadFrom(t *testing.T) {
	c, d := tiny(), open(t, 1)
	w := weightsOf(c)
	cfg := eval.Config{Model: c, B: 2, T: 8, DocMask: true}
	rows := set{5, func(row int64, tokens, targets []int32, starts []byte) int {
		clear(starts)
		for i := range tokens {
			tokens[i], targets[i] = int32((int(row)+3*i)%c.Vocab), int32((int(row)+5*i)%c.Vocab)
		}
		return len(targets)
	}}
	want, err := newEvaluator(t, d, cfg, w).Run(t.Context(), rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	const off = 192
	p, err := d.AllocPinned(off + int64(len(w))*4)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	copy(gpu.BytesToFloat32s(p.Bytes()[off:]), w)
	e := newEvaluator(t, d, cfg, make([]float32, len(w)))
	if err := e.LoadFrom(t.Context(), p, off+4); err == nil {
		t.Error("weights that end past the pinned memory were taken")
	}
	if err := e.LoadFrom(t.Context(), p, off); err != nil {
		t.Fatal(err)
	}
	clear(p.Bytes()) // the caller's again
	if got, err := e.Run(t.Context(), rows, nil); err != nil || got != want {
		t.Errorf("%+v, %v; Load gives %+v", got, err, want)
	}
}
