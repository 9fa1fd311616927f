package kernels

import (
	"context"
	"math"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/kernels/kerneltest"
)

// recordBlock records one layer with everything a model has: embedding, norm,
// fused QKV, RoPE, attention between document boundaries, projection with
// residual, SwiGLU, tied head; forward and backward.
func recordBlock(p *gpu.Program, s shape, v, f int) {
	r, n, d := p.On(gpu.Math), s.n(), s.h*s.c
	x := func(name string, dims ...int) gpu.Tensor { return p.Extern(name, gpu.F32, dims...) }
	t := func(name string, dims ...int) gpu.Tensor { return p.Temp(name, gpu.F32, dims...) }
	emb, w1, wqkv, wo, w2, wgu, wd := x("emb", v, d), x("w1", d), x("wqkv", s.q(), d), x("wo", d, d), x("w2", d), x("wgu", 2*f, d), x("wd", d, f)
	demb, dw1, dwqkv, dwo, dw2, dwgu, dwd := x("d.emb", v, d), x("d.w1", d), x("d.wqkv", s.q(), d), x("d.wo", d, d), x("d.w2", d), x("d.wgu", 2*f, d), x("d.wd", d, f)
	tokens, targets := p.Extern("tokens", gpu.I32, n), p.Extern("targets", gpu.I32, n)
	starts, seg := p.Extern("starts", gpu.U8, s.b, (s.t+7)/8), p.Temp("seg", gpu.I32, s.b, s.t)
	cos, sin, scale, loss := x("cos", s.t, s.c/2), x("sin", s.t, s.c/2), x("scale", 1), x("loss", 1)
	rope := RoPEArgs{Cos: cos, Sin: sin, Seg: seg, Reset: true, B: s.b, T: s.t, H: s.h, KV: s.kv, C: s.c}

	x0, h1, r1, qkv, o, lse, x1 := t("x0", n, d), t("h1", n, d), t("r1", n), t("qkv", n, s.q()), t("o", n, d), t("lse", s.b, s.h, s.t), t("x1", n, d)
	h2, r2, gu, a, x2 := t("h2", n, d), t("r2", n), t("gu", n, 2*f), t("a", n, f), t("x2", n, d)
	Add(r, &Segments, SegmentsArgs{Starts: starts, Seg: seg, Mask: true})
	Add(r, &Embed, EmbedArgs{Out: x0, Tokens: tokens, W: emb})
	Add(r, &RMSNorm, RMSNormArgs{Out: h1, Rstd: r1, X: x0, W: w1, Eps: 1e-5})
	Add(r, &MatMul, MatMulArgs{Y: qkv, X: h1, W: wqkv})
	rope.QKV = qkv
	Add(r, &RoPE, rope)
	Add(r, &Attention, AttentionArgs{O: o, LSE: lse, QKV: qkv, Seg: seg, B: s.b, T: s.t, H: s.h, KV: s.kv, C: s.c})
	Add(r, &MatMul, MatMulArgs{Y: x1, X: o, W: wo, Add: x0})
	Add(r, &RMSNorm, RMSNormArgs{Out: h2, Rstd: r2, X: x1, W: w2, Eps: 1e-5})
	Add(r, &MatMul, MatMulArgs{Y: gu, X: h2, W: wgu})
	Add(r, &SwiGLU, SwiGLUArgs{A: a, GU: gu})
	Add(r, &MatMul, MatMulArgs{Y: x2, X: a, W: wd, Add: x1})
	losses, dx := t("losses", n), t("dx", n, d)
	Add(r, &HeadLoss, HeadLossArgs{Loss: losses, X: x2, W: emb, Targets: targets, Scale: scale, DX: dx, DW: demb, Logits: t("logits", 4, v)})
	Add(r, &SumLoss, SumLossArgs{Out: loss, X: losses})

	da, dgu, dh, do, dqkv := t("da", n, f), t("dgu", n, 2*f), t("dh", n, d), t("do", n, d), t("dqkv", n, s.q())
	Add(r, &MatMulDW, MatMulDWArgs{DW: dwd, DY: dx, X: a})
	Add(r, &MatMulDX, MatMulDXArgs{DX: da, DY: dx, W: wd})
	Add(r, &SwiGLUBwd, SwiGLUBwdArgs{DGU: dgu, DA: da, GU: gu})
	Add(r, &MatMulDW, MatMulDWArgs{DW: dwgu, DY: dgu, X: h2})
	Add(r, &MatMulDX, MatMulDXArgs{DX: dh, DY: dgu, W: wgu})
	Add(r, &RMSNormBwd, RMSNormBwdArgs{DX: dx, DW: dw2, DY: dh, X: x1, W: w2, Rstd: r2, Part: t("part2", NormPartials, d), AccumulateDX: true})
	Add(r, &MatMulDW, MatMulDWArgs{DW: dwo, DY: dx, X: o})
	Add(r, &MatMulDX, MatMulDXArgs{DX: do, DY: dx, W: wo})
	Add(r, &AttentionBwd, AttentionBwdArgs{DQKV: dqkv, DO: do, O: o, LSE: lse, QKV: qkv, Seg: seg, B: s.b, T: s.t, H: s.h, KV: s.kv, C: s.c})
	rope.QKV, rope.Inverse = dqkv, true
	Add(r, &RoPE, rope)
	Add(r, &MatMulDW, MatMulDWArgs{DW: dwqkv, DY: dqkv, X: h1})
	Add(r, &MatMulDX, MatMulDXArgs{DX: dh, DY: dqkv, W: wqkv})
	Add(r, &RMSNormBwd, RMSNormBwdArgs{DX: dx, DW: dw1, DY: dh, X: x0, W: w1, Rstd: r1, Part: t("part1", NormPartials, d), AccumulateDX: true})
	Add(r, &EmbedBwd, EmbedBwdArgs{DW: demb, DX: dx, Tokens: tokens, Accumulate: true})
}

var blockWeights = []string{"emb", "w1", "wqkv", "wo", "w2", "wgu", "wd"}

// TestBlockDirectionalDerivatives (N2) records a whole block, plans it, runs it
// in float64 and compares the slope along 20 random directions with the
// gradient. It is what proves that the ops fit together: aliased memory, a tied
// matrix that is written by one op and added to by another, a residual stream.
func TestBlockDirectionalDerivatives(t *testing.T) {
	s, v, f := shape{2, 9, 4, 2, 4}, 11, 10
	p := gpu.NewProgram("block")
	recordBlock(p, s, v, f)
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	if p.ArenaBytes() >= p.TempBytes() {
		t.Fatalf("arena of %d bytes for %d bytes of temporaries: nothing is aliased", p.ArenaBytes(), p.TempBytes())
	}
	dev := kerneltest.NewWideDevice()
	t.Cleanup(func() { dev.Close() })
	w := bindBlock(t, dev, p, s, v, f)
	loss := func() float64 {
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		return dev.Float64s(w.mem["loss"])[0] * 0.25
	}
	loss()
	grads := map[string][]float64{}
	for _, name := range blockWeights {
		grads[name] = append([]float64(nil), dev.Float64s(w.mem["d."+name])...)
	}
	for dir := range 20 {
		const h = 1e-5
		var slope float64
		move := func(by float64) {
			for k, name := range blockWeights {
				rnd := num.NewStream("direction", uint64(dir), uint64(k))
				for i := range dev.Float64s(w.mem[name]) {
					dev.Float64s(w.mem[name])[i] += by * rnd.Normal(uint64(i))
				}
			}
		}
		for k, name := range blockWeights {
			rnd := num.NewStream("direction", uint64(dir), uint64(k))
			for i, g := range grads[name] {
				slope += g * rnd.Normal(uint64(i))
			}
		}
		move(h)
		up := loss()
		move(-2 * h)
		down := loss()
		move(h)
		if want := (up - down) / (2 * h); math.Abs(slope-want) > 1e-6*max(1, math.Abs(want)) {
			t.Errorf("direction %d: gradient says %.10g, central difference %.10g", dir, slope, want)
		}
	}
}

// block is a bound Program with its memory by extern name.
type block struct {
	mem map[string]gpu.Span
	run func() error
}

func bindBlock(t *testing.T, dev *kerneltest.WideDevice, p *gpu.Program, s shape, v, f int) block {
	t.Helper()
	d := s.h * s.c
	sizes := map[string]int{"emb": v * d, "w1": d, "wqkv": s.q() * d, "wo": d * d, "w2": d, "wgu": 2 * f * d, "wd": d * f}
	mem := map[string]gpu.Span{}
	alloc := func(name string, n int) gpu.Span {
		span, err := dev.Alloc(int64(n), name)
		if err != nil {
			t.Fatal(err)
		}
		mem[name] = span
		return span
	}
	for k, name := range blockWeights {
		alloc("d."+name, 4*sizes[name])
		rnd, w := num.NewStream("weights", uint64(k)), dev.Float64s(alloc(name, 4*sizes[name]))
		for i := range w {
			w[i] = 0.4 * rnd.Normal(uint64(i))
			if name == "w1" || name == "w2" {
				w[i]++
			}
		}
	}
	tokens, targets := gpu.BytesToInt32s(dev.Bytes(alloc("tokens", 4*s.n()))), gpu.BytesToInt32s(dev.Bytes(alloc("targets", 4*s.n())))
	for i := range tokens {
		tokens[i], targets[i] = int32(i*i%v), int32(i*7%v)
	}
	targets[3] = -1
	copy(dev.Bytes(alloc("starts", s.b*((s.t+7)/8))), []byte{0x10, 0x01, 0x05, 0})
	var b builder
	cos, sin := angles(&b, s.t, s.c)
	for name, x := range map[string]gpu.Tensor{"cos": cos, "sin": sin} {
		copy(dev.Float64s(alloc(name, 4*x.Elems())), b.Initial(x))
	}
	dev.Float64s(alloc("scale", 4))[0] = 0.25
	alloc("loss", 4)
	arena := alloc("arena", int(p.ArenaBytes()))
	delete(mem, "arena")
	exec, err := p.Bind(dev, gpu.Binding{Arena: arena, Extern: mem})
	if err != nil {
		t.Fatal(err)
	}
	lanes, err := gpu.NewLanes(dev, "test")
	if err != nil {
		t.Fatal(err)
	}
	return block{mem, func() error { return exec.Enqueue(context.Background(), &lanes) }}
}
