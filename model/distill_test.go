package model_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/model"
)

// teachers declares what a distillation of s reads, or returns nil.
func teachers(p *gpu.Program, s spec) *model.Distill {
	if len(s.Teachers) == 0 {
		return nil
	}
	d := s.Distill
	for i, c := range s.Teachers {
		l := c.Layout()
		d.Teachers = append(d.Teachers, model.Teacher{
			Config: c, Weights: model.NewWeights(c, l, p.Extern(fmt.Sprintf("teacher%d", i), gpu.F32, l.Total)),
			Tables: model.Tables{Cos: p.Extern(fmt.Sprintf("cos%d", i), gpu.F32, s.T, c.C()/2), Sin: p.Extern(fmt.Sprintf("sin%d", i), gpu.F32, s.T, c.C()/2)},
		})
	}
	return &d
}

// other is a teacher of another shape than tiny, with its vocabulary.
func other() model.Config {
	return model.Config{Vocab: 29, Layers: 1, Dim: 12, Heads: 3, KVHeads: 3, FFN: 8, MaxT: 40, RopeTheta: 500, NormEps: 1e-6, Tie: true, Init: model.InitPapers}
}

func distillSpecs() []spec {
	base := spec{Config: tiny(false), B: 4, T: 11, Shards: 2, Mask: true}
	with := func(tie bool, d model.Distill, teachers ...model.Config) spec {
		s := base
		s.Tie, s.Distill, s.Teachers = tie, d, teachers
		return s
	}
	return []spec{
		with(false, model.Distill{Weight: 0.5, Temperature: 1}, tiny(false)),
		with(true, model.Distill{Weight: 0.75, Temperature: 2}, tiny(false), other()),
		with(false, model.Distill{Weight: 0.5, Temperature: 2, TopK: 5}, other(), tiny(true), other()),
	}
}

// TestRow26DistillSlope (N2): in float64 the gradient of a student with teachers predicts
// the slope of its loss.
func TestRow26DistillSlope(t *testing.T) {
	for i, s := range distillSpecs() {
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
				t.Errorf("spec %d, direction %d: gradient says %.10g, central difference %.10g", i, k, slope, want)
			}
		}
	}
}

// TestRow26DistillLoss works the loss out from the logits of student and teachers, which
// other Programs give.
func TestRow26DistillLoss(t *testing.T) {
	for i, s := range distillSpecs() {
		w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
		exact := on(t, wide, s, w, r)
		mean := make([]float64, len(exact.get("logits")))
		for j, c := range s.Teachers {
			teacher := on(t, wide, spec{Config: c, B: s.B, T: s.T, Mask: s.Mask, WithoutTrain: true}, weightsOf(c, uint64(50+j)), r)
			for k, z := range teacher.get("logits") {
				mean[k] += z / float64(len(s.Teachers))
			}
		}
		a, temp := float64(s.Distill.Weight), float64(s.Distill.Temperature)
		var want float64
		for n, target := range r.targets {
			if target < 0 {
				continue
			}
			z, q := exact.get("logits")[n*s.Vocab:(n+1)*s.Vocab], mean[n*s.Vocab:(n+1)*s.Vocab]
			ce, kl := -logSoftmax(z, 1)[target], 0.0
			student, teacher := logSoftmax(z, temp), logSoftmax(q, temp)
			if k := s.Distill.TopK; k > 0 {
				teacher = onlyTop(teacher, k)
			}
			for id, lq := range teacher {
				if !math.IsInf(lq, -1) {
					kl += math.Exp(lq) * (lq - student[id])
				}
			}
			want += (1-a)*ce + a*temp*temp*kl
		}
		if got := exact.get("sum")[0]; math.Abs(got-want) > 1e-9*want {
			t.Errorf("spec %d: loss %.12g, want %.12g", i, got, want)
		}
		// And the float32 bodies agree with it.
		x := exact.get("grads")
		for _, bd := range []body{fast, reference} {
			got := on(t, bd, s, w, r)
			if g := got.get("sum")[0]; math.Abs(g-want) > 1e-6*want {
				t.Errorf("spec %d, %s: loss %.9g, in float64 %.9g", i, bd, g, want)
			}
			g := got.get("grads")
			for _, p := range got.l.Params {
				if d := relative(g[p.Off:p.Off+p.Len], x[p.Off:p.Off+p.Len]); d > 1e-4 {
					t.Errorf("spec %d, %s: gradient of %s differs by %.2g of its norm", i, bd, p.Name, d)
				}
			}
		}
	}
}

func logSoftmax(z []float64, temp float64) []float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range z {
		top = max(top, x/temp)
	}
	for _, x := range z {
		sum += math.Exp(x/temp - top)
	}
	out := make([]float64, len(z))
	for i, x := range z {
		out[i] = x/temp - top - math.Log(sum)
	}
	return out
}

// onlyTop leaves the k largest log probabilities, as parts of 1, and -Inf elsewhere.
func onlyTop(p []float64, k int) []float64 {
	out := make([]float64, len(p))
	sum := 0.0
	for i, x := range p {
		larger := 0
		for _, y := range p {
			if y > x {
				larger++
			}
		}
		if out[i] = x; larger >= k {
			out[i] = math.Inf(-1)
			continue
		}
		sum += math.Exp(x)
	}
	for i := range out {
		out[i] -= math.Log(sum)
	}
	return out
}

// TestDistillHalf: with bf16 activations student and teachers stay near float64.
func TestDistillHalf(t *testing.T) {
	s := distillSpecs()[1]
	w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
	want := on(t, wide, s, w, r)
	s.Act = gpu.BF16
	got := on(t, fast, s, w, r)
	if g, x := got.mean(), want.mean(); math.Abs(g-x) > 0.02*x {
		t.Errorf("loss %.6g, in float64 %.6g", g, x)
	}
}

func TestDistillRefuses(t *testing.T) {
	small := other()
	small.Vocab = 28
	for _, c := range []struct {
		want  string
		spoil func(s *spec)
	}{
		{"vocabulary of 28", func(s *spec) { s.Teachers[0] = small }},
		{"the 30 likeliest of 29", func(s *spec) { s.Distill.TopK = 30 }},
		{"weight is 2", func(s *spec) { s.Distill.Weight = 2 }},
		{"scale is -1", func(s *spec) { s.Distill.Temperature = -1 }},
	} {
		s := distillSpecs()[0]
		c.spoil(&s)
		if err := record(s, s.Layout()).Seal(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
