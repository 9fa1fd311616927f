package model_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"refrain/internal/num"
	"refrain/model"
)

// variants are the switches that change what is computed.
func variants() []spec {
	var all []spec
	for _, tie := range []bool{false, true} {
		for i := range 4 {
			all = append(all, spec{Config: tiny(tie), B: 4, T: 11, Shards: 2, Mask: i&1 != 0, Reset: i&2 != 0})
		}
	}
	return all
}

func (s spec) String() string {
	return fmt.Sprintf("tie=%v,mask=%v,reset=%v", s.Tie, s.Mask, s.Reset)
}

// TestRow06DirectionalDerivatives (N2): in float64 the gradient of the whole model
// predicts the slope of the loss along random directions.
func TestRow06DirectionalDerivatives(t *testing.T) {
	for _, s := range variants() {
		t.Run(s.String(), func(t *testing.T) {
			s.B, s.T = 2, 9
			w := weightsOf(s.Config, 1)
			e := on(t, wide, s, w, rowsOf(s, 2))
			grads := e.get("grads")
			at := func(d []float64, by float64) float64 {
				x := make([]float64, len(w))
				for i := range x {
					x[i] = w[i] + by*d[i]
				}
				e.put("weights", x)
				e.run()
				return e.mean()
			}
			for k := range 20 {
				const h = 1e-6 // times |d|, about 70: the third derivative must not show
				rnd := num.NewStream("direction", uint64(k))
				d := make([]float64, len(w))
				var slope float64
				for i := range d {
					d[i] = rnd.Normal(uint64(i))
					slope += d[i] * grads[i]
				}
				if want := (at(d, h) - at(d, -h)) / (2 * h); math.Abs(slope-want) > 1e-6*max(1, math.Abs(want)) {
					t.Errorf("direction %d: gradient says %.10g, central difference %.10g", k, slope, want)
				}
			}
		})
	}
}

// TestRow07TiedGradientIsTheSum: the gradient of a tied matrix is that of the embedding
// plus that of the head of an untied model with two equal matrices, every other gradient
// is the same, and there is one matrix less.
func TestRow07TiedGradientIsTheSum(t *testing.T) {
	tied, apart := spec{Config: tiny(true), B: 2, T: 9, Mask: true}, spec{Config: tiny(false), B: 2, T: 9, Mask: true}
	one, two := tied.Layout(), apart.Layout()
	at := func(l *model.Layout, x []float64, name string) []float64 {
		for _, p := range l.Params {
			if p.Name == name {
				return x[p.Off : p.Off+p.Len]
			}
		}
		t.Fatalf("no %s", name)
		return nil
	}
	const embed, head = "model.embed_tokens.weight", "lm_head.weight"
	w, v := weightsOf(tied.Config, 3), weightsOf(apart.Config, 3)
	copy(at(two, v, head), at(two, v, embed))
	rows := rowsOf(tied, 4)
	g, h := on(t, wide, tied, w, rows).get("grads"), on(t, wide, apart, v, rows).get("grads")
	if norm(at(two, h, embed)) == 0 || norm(at(two, h, head)) == 0 {
		t.Fatal("a part of the sum is zero: it would not be missed")
	}
	for _, p := range one.Params {
		want := slices.Clone(at(two, h, p.Name))
		if p.Name == embed {
			for i, x := range at(two, h, head) {
				want[i] += x
			}
		}
		if d := relative(at(one, g, p.Name), want); d > 1e-12 {
			t.Errorf("the gradient of %s is %.2g of its norm away", p.Name, d)
		}
	}
	if n := tied.Vocab * tied.Dim; two.Total-one.Total != n {
		t.Errorf("tying saves %d parameters, want %d", two.Total-one.Total, n)
	}
}

// TestFloat32IsCloseToFloat64 (N3): both float32 bodies against the whole model
// in float64.
func TestFloat32IsCloseToFloat64(t *testing.T) {
	for _, s := range variants() {
		t.Run(s.String(), func(t *testing.T) {
			w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
			want := on(t, wide, s, w, r)
			for _, bd := range []body{fast, reference} {
				got := on(t, bd, s, w, r)
				if g, x := got.mean(), want.mean(); math.Abs(g-x) > 1e-6*x {
					t.Errorf("%s: loss %.9g, in float64 %.9g", bd, g, x)
				}
				if d := relative(got.get("logits"), want.get("logits")); d > 1e-5 {
					t.Errorf("%s: logits differ by %.2g of their norm", bd, d)
				}
				if d := relative(got.get("losses"), want.get("losses")); d > 1e-5 {
					t.Errorf("%s: token losses differ by %.2g of their norm", bd, d)
				}
				g, x := got.get("grads"), want.get("grads")
				for _, p := range got.l.Params {
					if d := relative(g[p.Off:p.Off+p.Len], x[p.Off:p.Off+p.Len]); d > 1e-4 {
						t.Errorf("%s: gradient of %s differs by %.2g of its norm", bd, p.Name, d)
					}
				}
			}
		})
	}
}

// TestLossIsTheMeanOfTheTokenLosses: what RecordTrain differentiates is what
// RecordLoss reports token by token (incident I-02: one divisor, one place).
func TestLossIsTheMeanOfTheTokenLosses(t *testing.T) {
	s := spec{Config: tiny(false), B: 4, T: 11, Shards: 4, Mask: true}
	r := rowsOf(s, 5)
	e := on(t, fast, s, weightsOf(s.Config, 1), r)
	var sum float64
	for i, l := range e.get("losses") {
		if r.targets[i] < 0 && l != 0 {
			t.Errorf("masked target %d has loss %v", i, l)
		}
		sum += l
	}
	if got := e.get("sum")[0]; math.Abs(got-sum) > 1e-6*sum {
		t.Errorf("training sums %v, the token losses %v", got, sum)
	}
}

// TestInitialLoss (N5): fresh weights know nothing. With logits of variance s2
// around zero the expected loss is ln V + s2/2.
func TestInitialLoss(t *testing.T) {
	for _, tie := range []bool{false, true} {
		c, ok := model.PresetByName("micro-0.3M")
		if !ok {
			t.Fatal("no preset micro-0.3M")
		}
		c.Tie = tie
		s := spec{Config: c, B: 4, T: 256, Mask: true, WithoutTrain: true, Threads: 2}
		l := c.Layout()
		w := make([]float32, l.Total)
		model.Initialize(w, c, l, 3)
		r := rowsOf(s, 7)
		e := newEngine(t, s, fast)
		e.put("weights", widen(w))
		scored := e.batch(r)
		e.run()
		var loss, mean, square float64
		for _, x := range e.get("losses") {
			loss += x / float64(scored)
		}
		logits := e.get("logits")
		for _, x := range logits {
			mean += x / float64(len(logits))
			square += x * x / float64(len(logits))
		}
		if bound := 0.05 + (square-mean*mean)/2; math.Abs(loss-math.Log(float64(c.Vocab))) > bound {
			t.Errorf("tie=%v: loss %.4f, ln V is %.4f, allowed distance %.4f", tie, loss, math.Log(float64(c.Vocab)), bound)
		}
	}
}

// TestCausality (N7): a token changes nothing before itself, and something at
// and after itself.
func TestCausality(t *testing.T) {
	s := spec{Config: tiny(false), B: 2, T: 24}
	w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
	for _, bd := range []body{fast, reference} {
		e := on(t, bd, s, w, r)
		before := e.get("logits")
		v := s.Vocab
		for _, at := range []int{0, 1, 7, 8, 15, 23} {
			c := rows{append([]int32(nil), r.tokens...), r.targets, r.starts}
			c.tokens[at] = (c.tokens[at] + 1) % int32(v)
			e.batch(c)
			e.run()
			after := e.get("logits")
			if !same(before[:at*v], after[:at*v]) {
				t.Errorf("%s: token %d changes logits before it", bd, at)
			}
			if !same(before[s.T*v:], after[s.T*v:]) {
				t.Errorf("%s: token %d of row 0 changes logits of row 1", bd, at)
			}
			for p := at; p < s.T; p++ {
				if same(before[p*v:(p+1)*v], after[p*v:(p+1)*v]) {
					t.Errorf("%s: token %d leaves the logits at %d as they were", bd, at, p)
				}
			}
		}
	}
}

// TestRow03DocumentIsolation (N8, incident I-06): with the mask on, tokens of one
// document of a packed row change neither the logits nor the gradients of the
// other documents; with it off they do, so the test can fail.
func TestRow03DocumentIsolation(t *testing.T) {
	const T = 24
	docs := [][2]int{{0, 5}, {5, 13}, {13, 14}, {14, 24}} // [from, to)
	starts := []byte{0, 0, 0}
	for _, d := range docs {
		starts[d[0]/8] |= 1 << (d[0] % 8)
	}
	for _, v := range []struct {
		bd          body
		mask, reset bool
	}{{fast, true, false}, {fast, true, true}, {reference, true, false}, {reference, true, true}, {fast, false, true}, {reference, false, false}} {
		for _, tie := range []bool{false, true} {
			s := spec{Config: tiny(tie), B: 1, T: T, Mask: v.mask, Reset: v.reset}
			e := newEngine(t, s, v.bd)
			e.put("weights", weightsOf(s.Config, 1))
			leaks := 0
			for keep, b := range docs {
				// Only targets of the kept document count, so that every gradient is its own.
				r := rowsOf(s, 3)
				r.starts = starts
				for i := range r.targets {
					if i < b[0] || i >= b[1] {
						r.targets[i] = -1
					} else {
						r.targets[i] = int32(i % s.Vocab)
					}
				}
				e.batch(r)
				e.run()
				logits, grads := e.get("logits")[b[0]*s.Vocab:b[1]*s.Vocab], e.get("grads")
				for i := range r.tokens {
					if i < b[0] || i >= b[1] {
						r.tokens[i] = (r.tokens[i] + 11) % int32(s.Vocab)
					}
				}
				e.batch(r)
				e.run()
				if !same(logits, e.get("logits")[b[0]*s.Vocab:b[1]*s.Vocab]) || !same(grads, e.get("grads")) {
					leaks++
					if v.mask {
						t.Errorf("%s, reset=%v, tie=%v: other documents change logits or gradients of document %d", v.bd, v.reset, tie, keep)
					}
				}
			}
			if !v.mask && leaks != len(docs)-1 { // the first document sees nothing before it
				t.Errorf("%s, tie=%v: without the mask %d of %d documents saw the others; want all but the first", v.bd, tie, leaks, len(docs))
			}
		}
	}
}

// TestResetPositions: with reset a document computes what it computes alone in
// a row; without it only the positions differ.
func TestResetPositions(t *testing.T) {
	c := tiny(true)
	w := weightsOf(c, 1)
	packed := spec{Config: c, B: 1, T: 16, Mask: true, Reset: true}
	r := rowsOf(packed, 4)
	r.starts = []byte{1 | 1<<6, 0}
	got := on(t, fast, packed, w, r).get("logits")[6*c.Vocab:]
	alone := spec{Config: c, B: 1, T: 10}
	ra := rows{r.tokens[6:], r.targets[6:], []byte{1, 0}}
	want := on(t, fast, alone, w, ra).get("logits")
	if d := relative(got, want); d > 1e-6 {
		t.Errorf("a document after another differs from the same document alone by %.2g of the norm", d)
	}
	// Rotary attention depends on differences of positions only, so keeping the
	// positions of the row changes nothing but rounding.
	packed.Reset = false
	if d := relative(on(t, fast, packed, w, r).get("logits")[6*c.Vocab:], want); d > 1e-5 {
		t.Errorf("positions that do not restart change the logits by %.2g of their norm", d)
	}
}

// TestSharedMemoryChangesNothing: the arena with temporaries in each other's
// memory gives the bits of the arena in which all lie apart.
func TestSharedMemoryChangesNothing(t *testing.T) {
	for _, tie := range []bool{false, true} {
		s := spec{Config: tiny(tie), B: 4, T: 11, Shards: 4, Mask: true}
		w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
		p := record(s, s.Layout())
		if err := p.Seal(); err != nil {
			t.Fatal(err)
		}
		if p.ArenaBytes() >= p.TempBytes() {
			t.Fatalf("arena of %d bytes for %d bytes of temporaries: nothing is shared", p.ArenaBytes(), p.TempBytes())
		}
		a := on(t, fast, s, w, r)
		s.KeepApart = true
		b := on(t, fast, s, w, r)
		for _, name := range []string{"grads", "sum", "losses", "logits"} {
			if !same(a.get(name), b.get(name)) {
				t.Errorf("tie=%v: %s depend on the sharing of memory", tie, name)
			}
		}
	}
}

// TestReplayIsStateless: a second replay over other data in between gives the
// bits of the first, for any number of threads.
func TestReplayIsStateless(t *testing.T) {
	s := spec{Config: tiny(true), B: 4, T: 11, Shards: 2, Mask: true}
	w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
	e := on(t, fast, s, w, r)
	want := e.get("grads")
	e.batch(rowsOf(s, 9))
	e.run()
	if same(want, e.get("grads")) {
		t.Fatal("other rows give the same gradients")
	}
	e.batch(r)
	e.run()
	if !same(want, e.get("grads")) {
		t.Error("the gradients depend on an earlier replay")
	}
	s.Threads = 3
	if !same(want, on(t, fast, s, w, r).get("grads")) {
		t.Error("the gradients depend on the number of threads")
	}
}

// TestOddCases (N20): the smallest shapes there are.
func TestOddCases(t *testing.T) {
	base := tiny(false)
	for _, c := range []struct {
		name string
		s    spec
	}{
		{"V=2", spec{Config: model.Config{Vocab: 2, Layers: 1, Dim: 4, Heads: 1, KVHeads: 1, FFN: 3, MaxT: 8, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}, B: 2, T: 5}},
		{"V=1", spec{Config: model.Config{Vocab: 1, Layers: 1, Dim: 2, Heads: 1, KVHeads: 1, FFN: 1, MaxT: 8, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}, B: 1, T: 3}},
		{"T=1", spec{Config: base, B: 3, T: 1, Mask: true}},
		{"one row", spec{Config: base, B: 1, T: 17, Mask: true, Reset: true}},
		{"one token", spec{Config: tiny(true), B: 1, T: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, r := weightsOf(c.s.Config, 1), rowsOf(c.s, 2)
			r.targets[0] = 0
			want := on(t, wide, c.s, w, r)
			for _, bd := range []body{fast, reference} {
				got := on(t, bd, c.s, w, r)
				if err := num.Check(got.get("logits"), want.get("logits"), num.Float32); err != nil {
					t.Errorf("%s: logits: %v", bd, err)
				}
				if d := relative(got.get("grads"), want.get("grads")); norm(want.get("grads")) > 1e-12 && d > 1e-4 {
					t.Errorf("%s: gradients differ by %.2g of their norm", bd, d)
				}
			}
			if c.s.Vocab == 1 && want.get("sum")[0] != 0 {
				t.Errorf("one class is certain, yet its loss is %v", want.get("sum")[0])
			}
		})
	}
	t.Run("constant input", func(t *testing.T) {
		s := spec{Config: base, B: 2, T: 9}
		r := rowsOf(s, 2)
		for i := range r.tokens {
			r.tokens[i] = 3
		}
		logits := on(t, fast, s, weightsOf(base, 1), r).get("logits")
		// The same token everywhere: attention averages equal values, so every
		// position predicts the same.
		v := s.Vocab
		for p := 1; p < s.B*s.T; p++ {
			if d := relative(logits[p*v:(p+1)*v], logits[:v]); d > 1e-5 {
				t.Errorf("position %d differs from position 0 by %.2g of the norm", p, d)
			}
		}
	})
	t.Run("every target masked", func(t *testing.T) {
		s := spec{Config: tiny(true), B: 2, T: 9, Shards: 2}
		r := rowsOf(s, 2)
		for i := range r.targets {
			r.targets[i] = -1
		}
		e := on(t, fast, s, weightsOf(s.Config, 1), r)
		if g := norm(e.get("grads")); g != 0 || e.get("sum")[0] != 0 {
			t.Errorf("gradient norm %v, loss %v; want zeros", g, e.get("sum")[0])
		}
	})
}
