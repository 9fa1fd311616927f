package model_test

import (
	"fmt"
	"math"
	"testing"

	"refrain/internal/num"
	"refrain/model"
)

// randomModel draws the shape of that number.
func randomModel(seed uint64) spec {
	rnd := num.NewStream("random model", seed)
	at := uint64(0)
	draw := func(lo, hi int) int { at++; return lo + int(rnd.Uintn(at, uint64(hi-lo+1))) }
	kv := draw(1, 3)
	s := spec{Config: model.Config{
		Vocab: draw(2, 70), Layers: draw(1, 2), Dim: draw(1, 40), Heads: kv * draw(1, 3), KVHeads: kv, HeadDim: 2 * draw(1, 9),
		FFN: draw(1, 50), MaxT: 400, RopeTheta: 10000, NormEps: 1e-5, Tie: draw(0, 1) == 1, Init: model.InitPapers,
	}, T: draw(1, 40), Mask: draw(0, 1) == 1, Reset: draw(0, 1) == 1, Threads: draw(1, 3)}
	if seed%6 == 0 {
		s.T = draw(130, 300)
	}
	s.Shards = draw(1, 3)
	s.B = s.Shards * draw(1, 2)
	return s
}

// TestRandomModels (N3): random shapes, most of them odd, against float64: head
// sizes and counts, widths that no vector register divides, rows longer than the
// blocks of attention, more tokens than a chunk of logits, any shards.
func TestRandomModels(t *testing.T) {
	for seed := range uint64(24) {
		s := randomModel(seed)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w, r := weightsOf(s.Config, seed), rowsOf(s, seed)
			want, got := on(t, wide, s, w, r), on(t, fast, s, w, r)
			if g, x := got.mean(), want.mean(); math.Abs(g-x) > 1e-5*max(1, x) {
				t.Errorf("%+v: loss %.8g, in float64 %.8g", s, g, x)
			}
			for _, name := range []string{"logits", "losses"} {
				if d := relative(got.get(name), want.get(name)); d > 2e-5 {
					t.Errorf("%+v: %s differ by %.2g of their norm", s, name, d)
				}
			}
			g, x := got.get("grads"), want.get("grads")
			all := norm(x)
			for _, p := range got.l.Params {
				a, b := g[p.Off:p.Off+p.Len], x[p.Off:p.Off+p.Len]
				// A gradient that cancels almost wholly is measured by the whole gradient.
				if d := relative(a, b); d > 1e-4 && d*norm(b) > 1e-6*all {
					t.Errorf("%+v: gradient of %s differs by %.2g of its norm", s, p.Name, d)
				}
			}
		})
	}
}

// TestRandomHalf (N3): the same shapes in mixed precision, against float64 within
// the bounds of TestHalfIsCloseToFloat64 and against the reference, which rounds
// in the same places, within half of those.
func TestRandomHalf(t *testing.T) {
	for seed := range uint64(13) {
		s := half(randomModel(seed))
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w, r := weightsOf(s.Config, seed), rowsOf(s, seed)
			want, ref, got := on(t, wide, s, w, r), on(t, reference, s, w, r), on(t, fast, s, w, r)
			if g, x := got.mean(), want.mean(); math.Abs(g-x) > 0.005*max(1, x) {
				t.Errorf("%+v: loss %.6g, in float64 %.6g", s, g, x)
			}
			for _, name := range []string{"logits", "losses", "grads"} {
				bound := map[string]float64{"logits": 0.02, "losses": 0.01, "grads": 0.06}[name]
				if name == "grads" && s.Dim < 3 {
					// A norm over one or two values lets next to nothing of a gradient pass: what
					// arrives is the difference of equal terms, that is, their rounding.
					continue
				}
				if d := relative(got.get(name), want.get(name)); d > bound {
					t.Errorf("%+v: %s differ by %.2g of their norm from float64", s, name, d)
				}
				if d := relative(got.get(name), ref.get(name)); d > bound/2 {
					t.Errorf("%+v: %s differ by %.2g of their norm from the reference", s, name, d)
				}
			}
		})
	}
}

// TestLongRows (N7, N8): causality and isolation across the blocks that
// attention works in, where an index that is off by one would hide.
func TestLongRows(t *testing.T) {
	s := spec{Config: tiny(false), B: 1, T: 200, WithoutTrain: true}
	s.Layers = 1
	w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
	v := s.Vocab
	e := on(t, fast, s, w, r)
	before := e.get("logits")
	for _, at := range []int{31, 32, 63, 64, 65, 127, 128, 191, 199} {
		c := rows{append([]int32(nil), r.tokens...), r.targets, r.starts}
		c.tokens[at] = (c.tokens[at] + 1) % int32(v)
		e.batch(c)
		e.run()
		after := e.get("logits")
		if !same(before[:at*v], after[:at*v]) {
			t.Errorf("token %d changes logits before it", at)
		}
		if same(before[199*v:], after[199*v:]) {
			t.Errorf("token %d does not reach the last position", at)
		}
	}
	s.Mask = true
	m := newEngine(t, s, fast)
	m.put("weights", w)
	for _, border := range []int{1, 31, 32, 63, 64, 65, 100, 128, 129, 199} {
		c := rows{append([]int32(nil), r.tokens...), r.targets, make([]byte, len(r.starts))}
		c.starts[border/8] |= 1 << (border % 8)
		m.batch(c)
		m.run()
		before := m.get("logits")
		for i := range border {
			c.tokens[i] = (c.tokens[i] + 5) % int32(v)
		}
		m.batch(c)
		m.run()
		after := m.get("logits")
		if !same(before[border*v:], after[border*v:]) {
			t.Errorf("the document before position %d reaches the one behind it", border)
		}
		if same(before[:border*v], after[:border*v]) {
			t.Errorf("the document before position %d does not see its own change", border)
		}
	}
}

// TestCost: the FLOPs of a recorded step are six for every matrix element and
// token, as the rule of thumb has it, plus attention and what is linear in
// the activations; a forward pass has a third of them.
func TestCost(t *testing.T) {
	for _, tie := range []bool{false, true} {
		c := model.Config{Vocab: 512, Layers: 3, Dim: 128, Heads: 4, KVHeads: 2, FFN: 352, MaxT: 64, RopeTheta: 10000, NormEps: 1e-5, Tie: tie, Init: model.InitPapers}
		s := spec{Config: c, B: 2, T: 64}
		l := c.Layout()
		matrices := c.Vocab * c.Dim // the head
		for _, p := range l.Params {
			if p.Role == model.Hidden {
				matrices += p.Len
			}
		}
		n := float64(s.B * s.T)
		forward := 2 * n * float64(matrices)
		attention := 4 * n * float64(s.T) * float64(c.Layers*c.Heads*c.C()) // without causality
		linear := 60 * n * float64(c.Layers*(c.Dim+c.Q()+c.FFN)+c.Vocab)
		// record holds training, the losses and the logits: 3 + 1 + 1 forward passes.
		p := record(s, l)
		if err := p.Seal(); err != nil {
			t.Fatal(err)
		}
		if got := p.Cost().FLOPs; got < 5*forward+attention || got > 5*forward+5.5*attention+linear {
			t.Errorf("tie=%v: %.4g FLOPs; matrices alone take %.4g, attention at most %.4g, the rest at most %.4g", tie, got, 5*forward, 5.5*attention, linear)
		}
		s.WithoutTrain = true
		q := record(s, l)
		if err := q.Seal(); err != nil {
			t.Fatal(err)
		}
		if got := q.Cost().FLOPs; got < 2*forward || got > 2*(forward+attention)+linear {
			t.Errorf("tie=%v: two forward passes take %.4g FLOPs, their matrices %.4g", tie, got, 2*forward)
		}
	}
}
