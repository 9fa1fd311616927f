package kernels

import (
	"fmt"
	"math"
	"testing"

	"refrain/gpu"
	"refrain/kernels/kerneltest"
)

// attnShapes are shapes around the block height, with and without groups.
var attnShapes = []shape{{1, 1, 1, 1, 1}, {2, 3, 2, 1, 5}, {2, 97, 4, 2, 16}, {1, 200, 3, 3, 24}, {1, 130, 4, 1, 8}}

func attentionArgs(b *builder, s shape, starts ...int) AttentionArgs {
	return AttentionArgs{
		O: b.Out("o", s.n(), s.h*s.c), LSE: b.Out("lse", s.b, s.h, s.t), QKV: b.Normal("qkv", 1, s.n(), s.q()),
		Seg: segTensor(b, s.b, s.t, starts...), B: s.b, T: s.t, H: s.h, KV: s.kv, C: s.c,
	}
}

// documents are boundaries to try on rows of t positions.
func documents(t int) [][]int {
	every := make([]int, t)
	for i := range every {
		every[i] = i
	}
	return [][]int{nil, {t / 3, t / 2, t - 1}, every}
}

func attentionSuite() suite {
	s := suite{kernel: "attn", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range attnShapes {
		for i, docs := range documents(c.t) {
			s.cases = append(s.cases, both(&Attention, fmt.Sprint(c, i), func(b *builder) AttentionArgs { return attentionArgs(b, c, docs...) }, "o", "qkv")...)
		}
	}
	s.cases = append(s.cases, of(&Attention, "large scores", func(b *builder) AttentionArgs {
		a := attentionArgs(b, shape{1, 20, 1, 1, 8})
		a.QKV = b.Normal("large", 12, 20, 24)
		return a
	}))
	for i, docs := range documents(6) {
		s.gradients[fmt.Sprint("documents ", i)] = func(t testing.TB, b *builder) kerneltest.Gradient {
			return attentionGradient(t, b, shape{2, 6, 4, 2, 3}, docs...)
		}
	}
	s.wrong["3 query heads do not divide into 2 key heads"] = refuse(&Attention, func(b *builder) AttentionArgs {
		return attentionArgs(b, shape{1, 4, 3, 2, 4})
	})
	s.wrong["seg is i32[1 5], want i32[1 4]"] = refuse(&Attention, func(b *builder) AttentionArgs {
		a := attentionArgs(b, shape{1, 4, 1, 1, 4})
		a.Seg = segTensor(b, 1, 5)
		return a
	})
	s.wrong["H is 0, want at least 1"] = refuse(&Attention, func(b *builder) AttentionArgs {
		a := attentionArgs(b, shape{1, 4, 1, 1, 4})
		a.H = 0
		return a
	})
	return s
}

func backwardOf(b *builder, a AttentionArgs, do, dqkv gpu.Tensor) AttentionBwdArgs {
	return AttentionBwdArgs{DQKV: dqkv, DO: do, O: a.O, LSE: a.LSE, QKV: a.QKV, Seg: a.Seg, B: a.B, T: a.T, H: a.H, KV: a.KV, C: a.C}
}

func attentionGradient(t testing.TB, b *builder, s shape, docs ...int) kerneltest.Gradient {
	a := attentionArgs(b, s, docs...)
	do, dqkv := b.Normal("do", 1, s.n(), s.h*s.c), b.Out("dqkv", s.n(), s.q())
	return kerneltest.Gradient{
		Forward:  ops(must(t, &Attention, a)),
		Backward: ops(must(t, &AttentionBwd, backwardOf(b, a, do, dqkv))),
		Outs:     tensors(a.O), Cotangents: tensors(do), Inputs: tensors(a.QKV), Grads: tensors(dqkv),
	}
}

// halfAttention are the tensors of AttentionBwd that bf16 changes.
var halfAttention = []string{"dqkv", "do", "o", "qkv"}

// attentionBwdArgs has a plausible O and LSE: LSE must be that of the scores,
// or the recomputed weights are no weights, so the forward op makes both.
func attentionBwdArgs(b *builder, s shape, docs ...int) AttentionBwdArgs {
	f := &builder{}
	fa := attentionArgs(f, s, docs...)
	h := kerneltest.NewHost(f, nil, true)
	op, err := Attention.Op(fa)
	if err != nil { // of reports it: the same arguments are refused again
		return AttentionBwdArgs{}
	}
	h.Allow(op)
	op.BindHost(h)()
	o, lse := gpu.Float32s(h, fa.O), gpu.Float32s(h, fa.LSE)
	return AttentionBwdArgs{
		DQKV: b.Out("dqkv", s.n(), s.q()), DO: b.Normal("do", 1, s.n(), s.h*s.c),
		O:   b.Values("o", func(i int) float64 { return float64(o[i]) }, s.n(), s.h*s.c),
		LSE: b.Values("lse", func(i int) float64 { return float64(lse[i]) }, s.b, s.h, s.t),
		QKV: b.Copy(f, fa.QKV), Seg: segTensor(b, s.b, s.t, docs...), B: s.b, T: s.t, H: s.h, KV: s.kv, C: s.c,
	}
}

func attentionBwdSuite() suite {
	s := suite{kernel: "attn_bwd", noGrad: "checked with attn", wrong: map[string]func(*builder) error{}}
	for _, c := range attnShapes {
		for i, docs := range documents(c.t) {
			s.cases = append(s.cases, both(&AttentionBwd, fmt.Sprint(c, i), func(b *builder) AttentionBwdArgs { return attentionBwdArgs(b, c, docs...) }, halfAttention...)...)
		}
	}
	s.wrong["do is f32[4 5], want f32[4 4]"] = refuse(&AttentionBwd, func(b *builder) AttentionBwdArgs {
		a := attentionBwdArgs(b, shape{1, 4, 1, 1, 4})
		a.DO = b.Normal("wrong", 1, 4, 5)
		return a
	})
	return s
}

// attend runs forward and backward on n threads over QKV and DO given as
// functions of the index, and returns O and DQKV.
func attend(t *testing.T, s shape, reference bool, docs []int, qkv, do func(i int) float64) (o, dqkv []float32) {
	t.Helper()
	b := &builder{}
	a := attentionArgs(b, s, docs...)
	a.QKV = b.Values("in", qkv, s.n(), s.q())
	back := backwardOf(b, a, b.Values("dout", do, s.n(), s.h*s.c), b.Out("dqkv", s.n(), s.q()))
	h, run := bind(t, b, must(t, &Attention, a), 1, reference)
	run()
	op := must(t, &AttentionBwd, back)
	h.Allow(op)
	op.BindHost(h)()
	return append([]float32(nil), gpu.Float32s(h, back.O)...), append([]float32(nil), gpu.Float32s(h, back.DQKV)...)
}

// TestAttentionKeepsDocumentsApart (N8): whatever stands in one document, NaN
// included, the others keep their bits, forward and backward.
func TestAttentionKeepsDocumentsApart(t *testing.T) {
	s := shape{2, 130, 4, 2, 8}
	docs := []int{0, 20, 125}
	base := func(i int) float64 { return math.Sin(float64(i) * 1.7) }
	for _, reference := range []bool{true, false} {
		o, d := attend(t, s, reference, docs, base, base)
		for name, alien := range map[string]float64{"large": 300, "NaN": math.NaN(), "Inf": math.Inf(1)} {
			inside := func(pos int) bool { return pos >= 20 && pos < 125 }
			change := func(width int) func(i int) float64 {
				return func(i int) float64 {
					if inside(i / width % s.t) {
						return alien
					}
					return base(i)
				}
			}
			o2, d2 := attend(t, s, reference, docs, change(s.q()), change(s.h*s.c))
			for _, x := range []struct {
				what      string
				want, got []float32
				width     int
			}{{"o", o, o2, s.h * s.c}, {"dqkv", d, d2, s.q()}} {
				changed := false
				for i := range x.want {
					same := math.Float32bits(x.want[i]) == math.Float32bits(x.got[i])
					if !same && !inside(i/x.width%s.t) {
						t.Fatalf("reference %v, %s: %s changed at position %d of another document", reference, name, x.what, i/x.width%s.t)
					}
					changed = changed || !same
				}
				if !changed {
					t.Errorf("reference %v, %s: %s did not change at all", reference, name, x.what)
				}
			}
		}
	}
}

// TestAttentionIsCausal (N7): changing position p leaves outputs before p
// bit-equal and changes those from p on.
func TestAttentionIsCausal(t *testing.T) {
	s := shape{1, 150, 2, 1, 8}
	base := func(i int) float64 { return math.Sin(float64(i) * 1.7) }
	o, _ := attend(t, s, false, nil, base, base)
	for _, p := range []int{0, 5, 95, 96, 97, 149} {
		o2, _ := attend(t, s, false, nil, func(i int) float64 {
			if i/s.q() == p {
				return base(i) + 1
			}
			return base(i)
		}, base)
		for pos := range s.t {
			same := true
			for i := pos * s.h * s.c; i < (pos+1)*s.h*s.c; i++ {
				same = same && math.Float32bits(o[i]) == math.Float32bits(o2[i])
			}
			if same != (pos < p) {
				t.Fatalf("position %d changed: output %d equal is %v", p, pos, same)
			}
		}
	}
}

// TestBlockRows: strips stay within bounds and blocks are never empty.
func TestBlockRows(t *testing.T) {
	for _, c := range [][2]int{{1, 96}, {512, 96}, {1365, 96}, {2048, 60}, {8192, 12}, {100000, 6}} {
		if got := blockRows(c[0]); got != c[1] {
			t.Errorf("blockRows(%d) = %d, want %d", c[0], got, c[1])
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	bench(b, &Attention, func(b *builder) AttentionArgs { return attentionArgs(b, shape{8, 512, 5, 5, 64}) })
}

func BenchmarkAttentionBwd(b *testing.B) {
	bench(b, &AttentionBwd, func(b *builder) AttentionBwdArgs { return attentionBwdArgs(b, shape{8, 512, 5, 5, 64}) })
}
