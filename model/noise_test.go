package model_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/model"
)

// noisy are the kinds of noise, in batches of shards.
func noisy() map[string]spec {
	return map[string]spec{
		"dropout":      {Config: tiny(false), B: 4, T: 9, Shards: 2, Mask: true, Noise: noise{Dropout: 0.2, Key: 11}},
		"masked":       {Config: tiny(true), B: 4, T: 9, Shards: 2, Mask: true, Noise: noise{Weight: 0.7, From: 0.1, To: 0.6, ID: -1, Key: 12}},
		"masked by id": {Config: tiny(false), B: 2, T: 11, Shards: 1, Reset: true, Noise: noise{Weight: 0.4, From: 0.3, To: 0.3, ID: 2, Key: 13}},
		"both":         {Config: tiny(true), B: 4, T: 8, Shards: 4, Mask: true, Noise: noise{Dropout: 0.5, Weight: 1, To: 0.5, ID: -1, Key: 14}},
	}
}

// TestNoiseDirectionalDerivatives: with the masks held, the gradient in float64 predicts
// the slope of loss plus weighted second loss along random directions.
func TestNoiseDirectionalDerivatives(t *testing.T) {
	for name, s := range noisy() {
		t.Run(name, func(t *testing.T) {
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
				return e.total()
			}
			for k := range 8 {
				const h = 1e-6
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

// TestNoiseIsCloseToFloat64: both float32 bodies, and mixed precision, against float64
// with the same masks; the fast one has the same bits on any number of threads.
func TestNoiseIsCloseToFloat64(t *testing.T) {
	for name, s := range noisy() {
		t.Run(name, func(t *testing.T) {
			w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
			want := on(t, wide, s, w, r)
			threads := s
			threads.Threads = 3
			a := on(t, fast, s, w, r)
			if !same(a.get("grads"), on(t, fast, threads, w, r).get("grads")) {
				t.Error("the gradients depend on the number of threads")
			}
			for _, c := range []struct {
				name         string
				e            *engine
				loss, relMax float64
			}{{"fast", a, 1e-6, 1e-4}, {"reference", on(t, reference, s, w, r), 1e-6, 1e-4}, {"bf16", on(t, fast, half(s), w, r), 0.01, 0.08}} {
				if g, x := c.e.total(), want.total(); math.Abs(g-x) > c.loss*x {
					t.Errorf("%s: loss %.9g, in float64 %.9g", c.name, g, x)
				}
				if d := relative(c.e.get("grads"), want.get("grads")); d > c.relMax {
					t.Errorf("%s: the gradient differs by %.2g of its norm", c.name, d)
				}
			}
		})
	}
}

// TestRandomNoise: random shapes, most of them odd, with random noise, against float64:
// widths and lengths that blocks of random bits cut through, any shards.
func TestRandomNoise(t *testing.T) {
	for seed := range uint64(16) {
		s := randomModel(seed + 1)
		if s.Dim < 3 { // as in TestRandomHalf: a norm over one or two values leaves only rounding
			s.Dim += 3
		}
		rnd := num.NewStream("random noise", seed)
		if seed%3 != 0 {
			s.Noise.Dropout = 0.9 * rnd.Float64(0)
		}
		if seed%3 != 1 {
			s.Noise.Weight, s.Noise.To = 2*rnd.Float64(1), rnd.Float64(2)
			s.Noise.From = s.Noise.To * rnd.Float64(3)
			s.Noise.ID = int(rnd.Uintn(4, uint64(s.Vocab))) - 1
		}
		s.Noise.Key, s.Noise.Row = rnd.Uint64(5), int(rnd.Uintn(6, 5))
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w, r := weightsOf(s.Config, seed), rowsOf(s, seed)
			want, got := on(t, wide, s, w, r), on(t, fast, s, w, r)
			if g, x := got.total(), want.total(); math.Abs(g-x) > 1e-5*max(1, x) {
				t.Errorf("%+v: loss %.8g, in float64 %.8g", s, g, x)
			}
			g, x := got.get("grads"), want.get("grads")
			all := norm(x)
			for _, p := range got.l.Params {
				a, b := g[p.Off:p.Off+p.Len], x[p.Off:p.Off+p.Len]
				if d := relative(a, b); d > 1e-4 && d*norm(b) > 1e-6*all {
					t.Errorf("%+v: gradient of %s differs by %.2g of its norm", s, p.Name, d)
				}
			}
		})
	}
}

// TestNoiseLeavesEvaluationAlone: loss and logits of a model that is trained with noise
// are those of the model.
func TestNoiseLeavesEvaluationAlone(t *testing.T) {
	for name, s := range noisy() {
		w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
		plain := s
		plain.Noise = noise{}
		a, b := on(t, fast, s, w, r), on(t, fast, plain, w, r)
		if !same(a.get("losses"), b.get("losses")) || !same(a.get("logits"), b.get("logits")) {
			t.Errorf("%s: evaluation knows of the noise", name)
		}
		if s.Noise.Dropout == 0 && !same(a.get("sum"), b.get("sum")) {
			t.Errorf("%s: the loss of the clean rows is %v, without noise %v", name, a.get("sum"), b.get("sum"))
		}
		if same(a.get("grads"), b.get("grads")) {
			t.Errorf("%s: the gradient knows nothing of the noise", name)
		}
		other := s
		other.Noise.Key++
		if same(a.get("grads"), on(t, fast, other, w, r).get("grads")) {
			t.Errorf("%s: two keys give one gradient", name)
		}
	}
}

// TestMaskedLossIsThatOfMaskedRows: with every token replaced, the second loss is the loss
// of rows that hold nothing else; with none it is the first loss, and the gradient
// that of the first times one plus the weight.
func TestMaskedLossIsThatOfMaskedRows(t *testing.T) {
	plain := spec{Config: tiny(false), B: 4, T: 9, Shards: 2, Mask: true}
	w, r := weightsOf(plain.Config, 1), rowsOf(plain, 2)
	all := plain
	all.Noise = noise{Weight: 0.5, From: 1, To: 1, ID: 3}
	blank := rows{slices.Repeat([]int32{3}, len(r.tokens)), r.targets, r.starts}
	if got, want := on(t, fast, all, w, r).get("masked sum"), on(t, fast, plain, w, blank).get("sum"); !same(got, want) {
		t.Errorf("all tokens replaced: second loss %v, want %v", got, want)
	}
	none := plain
	none.Noise = noise{Weight: 0.5, ID: 3}
	a, b := on(t, wide, none, w, r), on(t, wide, plain, w, r)
	if math.Abs(a.get("masked sum")[0]-b.get("sum")[0]) > 1e-9 {
		t.Errorf("no token replaced: second loss %v, want %v", a.get("masked sum"), b.get("sum"))
	}
	want := b.get("grads")
	for i := range want {
		want[i] *= 1.5
	}
	if d := relative(a.get("grads"), want); d > 1e-9 {
		t.Errorf("no token replaced: the gradient differs from 1.5 times the plain one by %.2g of its norm", d)
	}
}

// TestNoiseKeepsShards: shards that are worked off on their own, as on devices or in
// micro-steps, have the gradients they have in the whole batch.
func TestNoiseKeepsShards(t *testing.T) {
	for _, tie := range []bool{false, true} {
		s := spec{Config: tiny(tie), B: 4, T: 8, Shards: 2, Mask: true, Noise: noise{Dropout: 0.3, Weight: 0.6, To: 0.5, ID: -1, Key: 5}}
		w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
		whole := on(t, fast, s, w, r)
		grads := make([]float64, len(w))
		var loss, second float64
		for i := range 2 {
			part := s
			part.B, part.Shards, part.Noise.Row = 2, 1, 2*i
			n, starts := 2*s.T, len(r.starts)/2
			e := newEngine(t, part, fast)
			e.put("weights", w)
			e.batch(rows{r.tokens[i*n : (i+1)*n], r.targets[i*n : (i+1)*n], r.starts[i*starts : (i+1)*starts]})
			e.put("scale", whole.get("scale"))
			e.put("masked scale", whole.get("masked scale"))
			e.run()
			for k, g := range e.get("grads") {
				grads[k] = float64(float32(grads[k]) + float32(g))
			}
			loss = float64(float32(loss) + float32(e.get("sum")[0]))
			second = float64(float32(second) + float32(e.get("masked sum")[0]))
		}
		if !same(grads, whole.get("grads")) || loss != whole.get("sum")[0] || second != whole.get("masked sum")[0] {
			t.Errorf("tie=%v: two halves do not add up to the whole, bit for bit: losses %v and %v, want %v and %v", tie, loss, second, whole.get("sum"), whole.get("masked sum"))
		}
	}
}

// TestNoiseRefuses: what cannot be recorded is an error of Seal.
func TestNoiseRefuses(t *testing.T) {
	for want, change := range map[string]func(n *model.Noise){
		"noise without Draw":  func(n *model.Noise) { n.Draw = gpu.Tensor{} },
		"dropout: rate is 1":  func(n *model.Noise) { n.Dropout = 1 },
		"id 29 is outside":    func(n *model.Noise) { n.Masked.ID = 29 },
		"share from 0 to 1.5": func(n *model.Noise) { n.Masked.To = 1.5 },
	} {
		s := noisy()["both"]
		p := gpu.NewProgram("refused")
		n := s.noise(p)
		change(&n)
		l := s.Layout()
		model.RecordTrain(p.On(gpu.Math), s.Config, model.TrainArgs{
			Weights: model.NewWeights(s.Config, l, p.Extern("weights", gpu.F32, l.Total)), Grads: model.NewWeights(s.Config, l, p.Extern("grads", gpu.F32, l.Total)),
			Loss: p.Extern("sum", gpu.F32, 1), Scale: p.Extern("scale", gpu.F32, 1),
			Tables: model.Tables{Cos: p.Extern("cos", gpu.F32, s.T, 3), Sin: p.Extern("sin", gpu.F32, s.T, 3)},
			Batch: model.Batch{B: s.B, T: s.T, Tokens: p.Extern("tokens", gpu.I32, s.B*s.T), Targets: p.Extern("targets", gpu.I32, s.B*s.T),
				Starts: p.Extern("starts", gpu.U8, s.B, 1), DocMask: true},
			Shards: s.Shards, Noise: n,
		})
		if err := p.Seal(); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
