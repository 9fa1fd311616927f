package model

import (
	"fmt"

	"refrain/gpu"
	"refrain/kernels"
)

// DecodeArgs are the buffers of one decoding step for B sequences.
type DecodeArgs struct {
	Weights Weights
	B, MaxT int
	Tokens  gpu.Tensor // [B] i32, the newest token of every sequence
	Pos     gpu.Tensor // [B] i32, its position, below MaxT
	Keys    gpu.Tensor // [Layers,B,KV*MaxT*C] f32, read and extended at Pos
	Values  gpu.Tensor // like Keys
	Tables  Tables     // of MaxT positions
	Logits  gpu.Tensor // [B,V] f32, of the next token
}

// CacheShape is the shape of the key (and of the value) cache.
func (c Config) CacheShape(b, maxT int) []int {
	return []int{c.Layers, b, c.KVHeads * maxT * c.C()}
}

// RecordDecode appends one step of generation with a key-value cache.
func RecordDecode(r *gpu.Recorder, c Config, a DecodeArgs) {
	if err := c.Validate(); err != nil {
		r.Fail(fmt.Errorf("model: %w", err))
		return
	}
	p, w, d := r.Program(), a.Weights, c.Dim
	f32 := func(name string, shape ...int) gpu.Tensor { return p.Temp(name, gpu.F32, shape...) }
	x := f32("x0", a.B, d)
	kernels.Add(r, &kernels.Embed, kernels.EmbedArgs{Out: x, Tokens: a.Tokens, W: w.embed()})
	layer := a.B * c.KVHeads * a.MaxT * c.C()
	for i := range c.Layers {
		t := func(s string, shape ...int) gpu.Tensor { return f32(fmt.Sprintf("%d.%s", i, s), shape...) }
		h, qkv, o := t("h1", a.B, d), t("qkv", a.B, c.Q()), t("o", a.B, c.Heads*c.C())
		kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: h, Rstd: t("r1", a.B), X: x, W: w.norm1(i), Eps: float32(c.NormEps)})
		kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: qkv, X: h, W: w.qkv(i)})
		kernels.Add(r, &kernels.RoPEAt, kernels.RoPEAtArgs{QKV: qkv, Cos: a.Tables.Cos, Sin: a.Tables.Sin, Pos: a.Pos, H: c.Heads, KV: c.KVHeads, C: c.C()})
		kernels.Add(r, &kernels.AttnDecode, kernels.AttnDecodeArgs{
			O: o, QKV: qkv, Pos: a.Pos, H: c.Heads, KV: c.KVHeads, C: c.C(),
			KCache: a.Keys.View(i*layer, a.B, c.KVHeads, a.MaxT, c.C()),
			VCache: a.Values.View(i*layer, a.B, c.KVHeads, a.MaxT, c.C()),
		})
		x2, h2, gu, act := t("x2", a.B, d), t("h2", a.B, d), t("gu", a.B, 2*c.FFN), t("a", a.B, c.FFN)
		kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: x2, X: o, W: w.out(i), Add: x})
		kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: h2, Rstd: t("r2", a.B), X: x2, W: w.norm2(i), Eps: float32(c.NormEps)})
		kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: gu, X: h2, W: w.gateUp(i)})
		kernels.Add(r, &kernels.SwiGLU, kernels.SwiGLUArgs{A: act, GU: gu})
		x = t("out", a.B, d)
		kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: x, X: act, W: w.down(i), Add: x2})
	}
	hf := f32("hf", a.B, d)
	kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: hf, Rstd: f32("rf", a.B), X: x, W: w.norm(), Eps: float32(c.NormEps)})
	kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: a.Logits, X: hf, W: w.head()})
}
