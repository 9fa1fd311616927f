package model

import (
	"fmt"

	"refrain/gpu"
	"refrain/kernels"
)

// TrainArgs are the buffers of one recording of forward and backward.
type TrainArgs struct {
	Weights Weights
	Grads   Weights    // written everywhere; nothing is accumulated
	Loss    gpu.Tensor // [1] f32: sum of the token losses, in nats
	Scale   gpu.Tensor // [1] f32: 1 / scored targets of the global step
	Tables  Tables
	Batch   Batch
	Policy  Policy
	Tag     string // prefix of temporaries, unique within the Program
}

// RecordTrain appends forward and backward of a batch: Grads receives
// Scale * d(sum of token losses)/d(weights), Loss the unscaled sum. Errors
// stick to the Program and are reported by Seal.
func RecordTrain(r *gpu.Recorder, c Config, a TrainArgs) {
	m := newRecorder(r, c, a.Batch, a.Tables, a.Policy, a.Tag)
	w, g := a.Weights, a.Grads
	n, d, f := m.b.B*m.b.T, c.Dim, c.FFN
	hf, xf, rf, layers := m.forward(w)

	// Gradients of the residual stream (dx) and of a normed branch (dh) live
	// through the whole backward pass.
	dx, dh := m.temp("dx", n, d), m.temp("dh", n, d)
	loss := m.p.Temp(m.tag+"loss", gpu.F32, n)
	kernels.Add(r, &kernels.HeadLoss, kernels.HeadLossArgs{
		Loss: loss, X: hf, W: w.head(), Targets: m.b.Targets, Scale: a.Scale,
		DX: dh, DW: g.head(), Logits: m.p.Temp(m.tag+"logits", gpu.F32, min(headChunk, n), c.Vocab),
	})
	kernels.Add(r, &kernels.SumLoss, kernels.SumLossArgs{Out: a.Loss, X: loss})
	m.normBwd(dx, g.norm(), dh, xf, w.norm(), rf, false)

	da, dgu := m.temp("da", n, f), m.temp("dgu", n, 2*f)
	do, dqkv := m.temp("do", n, c.Heads*c.C()), m.temp("dqkv", n, c.Q())
	for i := c.Layers - 1; i >= 0; i-- {
		s := layers[i]
		m.linearBwd(da, g.down(i), dx, s.a, w.down(i))
		kernels.Add(r, &kernels.SwiGLUBwd, kernels.SwiGLUBwdArgs{DGU: dgu, DA: da, GU: s.gu})
		m.linearBwd(dh, g.gateUp(i), dgu, s.h2, w.gateUp(i))
		m.normBwd(dx, g.norm2(i), dh, s.x2, w.norm2(i), s.r2, true)
		m.linearBwd(do, g.out(i), dx, s.o, w.out(i))
		kernels.Add(r, &kernels.AttentionBwd, kernels.AttentionBwdArgs{
			DQKV: dqkv, DO: do, O: s.o, LSE: s.lse, QKV: s.qkv, Seg: m.seg,
			B: m.b.B, T: m.b.T, H: c.Heads, KV: c.KVHeads, C: c.C(),
		})
		kernels.Add(r, &kernels.RoPE, m.rope(dqkv, true))
		m.linearBwd(dh, g.qkv(i), dqkv, s.h1, w.qkv(i))
		m.normBwd(dx, g.norm1(i), dh, s.x, w.norm1(i), s.r1, true)
	}
	kernels.Add(r, &kernels.EmbedBwd, kernels.EmbedBwdArgs{DW: g.embed(), DX: dx, Tokens: m.b.Tokens, Accumulate: c.Tie})
}

// linearBwd records both gradients of y = x * w^T.
func (m *recorder) linearBwd(dx, dw, dy, x, w gpu.Tensor) {
	kernels.Add(m.r, &kernels.MatMulDW, kernels.MatMulDWArgs{DW: dw, DY: dy, X: x})
	kernels.Add(m.r, &kernels.MatMulDX, kernels.MatMulDXArgs{DX: dx, DY: dy, W: w})
}

// normBwd records the gradients of RMSNorm; with accumulate the input's is
// added to dx, which is how the residual connection's gradient joins.
func (m *recorder) normBwd(dx, dw, dy, x, w, rstd gpu.Tensor, accumulate bool) {
	part := m.p.Temp(fmt.Sprintf("%spart%d", m.tag, m.p.Len()), gpu.F32, kernels.NormPartials, m.c.Dim)
	kernels.Add(m.r, &kernels.RMSNormBwd, kernels.RMSNormBwdArgs{
		DX: dx, DW: dw, DY: dy, X: x, W: w, Rstd: rstd, Part: part, AccumulateDX: accumulate,
	})
}

// RecordLoss appends a forward pass that leaves the loss of every target, in
// nats, in loss [N] f32 (0 where the target is masked).
func RecordLoss(r *gpu.Recorder, c Config, w Weights, loss gpu.Tensor, b Batch, tab Tables, pol Policy) {
	m := newRecorder(r, c, b, tab, pol, "")
	n := b.B * b.T
	hf, _, _, _ := m.forward(w)
	kernels.Add(r, &kernels.HeadLoss, kernels.HeadLossArgs{
		Loss: loss, X: hf, W: w.head(), Targets: b.Targets,
		Logits: m.p.Temp("logits", gpu.F32, min(headChunk, n), c.Vocab),
	})
}

// RecordLogits appends a forward pass that leaves the logits of every position
// in logits [N,V] f32.
func RecordLogits(r *gpu.Recorder, c Config, w Weights, logits gpu.Tensor, b Batch, tab Tables, pol Policy) {
	m := newRecorder(r, c, b, tab, pol, "")
	hf, _, _, _ := m.forward(w)
	kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: logits, X: hf, W: w.head()})
}
