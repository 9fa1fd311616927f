package model

import (
	"fmt"

	"refrain/gpu"
	"refrain/kernels"
)

// TrainArgs are the buffers of one recording of forward and backward.
type TrainArgs struct {
	Weights Weights    // with rounded copies, or they are made here
	Grads   Weights    // written everywhere; nothing is accumulated
	Loss    gpu.Tensor // [1] f32: sum of the token losses, in nats
	Scale   gpu.Tensor // [1] f32: 1 / scored targets of the global step
	Tables  Tables
	Batch   Batch
	Policy  Policy
	Shards  int    // equal parts of the rows whose sums are added in a fixed tree
	Tag     string // prefix of temporaries, unique within the Program
	Noise   Noise

	Distill *Distill // a second term of the loss; nil for none
}

// Teacher is a model that is only run forward.
type Teacher struct {
	Config  Config // of the student's vocabulary
	Weights Weights
	Tables  Tables
}

// Distill draws a student to the mean of the logits of some teachers, on its own batch;
// kernels.HeadDistill has the loss.
type Distill struct {
	Teachers    []Teacher // one or more
	Weight      float32   // of the teachers' term, from 0 to 1; the targets' has the rest
	Temperature float32
	TopK        int // of the teachers' probabilities only the largest, as parts of 1; 0 for all
}

// RecordTrain appends forward and backward of a batch: Grads receives
// Scale * d(sum of token losses)/d(weights), Loss the unscaled sum. Every sum
// over rows is taken shard by shard and then over shards in a balanced binary
// tree, so its bits are those of any arrangement of whole subtrees over
// devices and micro-steps. Errors stick to the Program and are reported by
// Seal.
func RecordTrain(r *gpu.Recorder, c Config, a TrainArgs) {
	m := newRecorder(r, c, a.Batch, a.Tables, a.Policy, a.Tag)
	if a.Shards < 1 || a.Batch.B%a.Shards != 0 {
		r.Fail(fmt.Errorf("model: %d rows do not divide into %d shards", a.Batch.B, a.Shards))
		return
	}
	if err := a.Noise.check(); err != nil {
		r.Fail(fmt.Errorf("model: %w", err))
		return
	}
	m.shards = a.Shards
	m.teach(a.Distill) // first: on the rows as they are, and their activations are gone when the student's come
	m.addNoise(&a)
	a.Weights = a.Weights.Round(r, m.pol, m.tag)
	w, g := a.Weights, a.Grads
	n, d, f := m.b.B*m.b.T, c.Dim, c.FFN
	hf, xf, rf, layers := m.forward(w)

	// Gradients of the residual stream (dx) and of a normed branch (dh) live
	// through the whole backward pass.
	dx, dh := m.sum("dx", n, d), m.act("dh", n, d)
	m.headBwd(a, hf, dh)
	m.normBwd(dx, g.norm(), dh, xf, w.norm(), rf, false)

	da, dgu := m.act("da", n, f), m.act("dgu", n, 2*f)
	do, dqkv := m.act("do", n, c.Heads*c.C()), m.act("dqkv", n, c.Q())
	for i := c.Layers - 1; i >= 0; i-- {
		s := layers[i]
		m.linearBwd(da, g.down(i), m.branchGrad(dx, siteMLP(i)), s.a, w.down(i))
		kernels.Add(r, &kernels.SwiGLUBwd, kernels.SwiGLUBwdArgs{DGU: dgu, DA: da, GU: s.gu})
		m.linearBwd(dh, g.gateUp(i), dgu, s.h2, w.gateUp(i))
		m.normBwd(dx, g.norm2(i), dh, s.x2, w.norm2(i), s.r2, true)
		m.linearBwd(do, g.out(i), m.branchGrad(dx, siteAttention(i)), s.o, w.out(i))
		kernels.Add(r, &kernels.AttentionBwd, kernels.AttentionBwdArgs{
			DQKV: dqkv, DO: do, O: s.o, LSE: s.lse, QKV: s.qkv, Seg: m.seg,
			B: m.b.B, T: m.b.T, H: c.Heads, KV: c.KVHeads, C: c.C(),
		})
		kernels.Add(r, &kernels.RoPE, m.rope(dqkv, true))
		m.linearBwd(dh, g.qkv(i), dqkv, s.h1, w.qkv(i))
		m.normBwd(dx, g.norm1(i), dh, s.x, w.norm1(i), s.r1, true)
	}
	if m.noise.Dropout > 0 {
		m.drop(dx, dx, gpu.Tensor{}, siteEmbedding)
	}
	m.embedBwd(g, dx)
}

// tree records into dst the sum over shards [lo,hi) of what leaf records into
// its destination: the left half, the right half, then their sum. The leaves
// run in order, which is what lets them share scratch.
func (m *recorder) tree(lo, hi int, dst gpu.Tensor, leaf func(shard int, dst gpu.Tensor)) {
	if hi-lo == 1 {
		leaf(lo, dst)
		return
	}
	mid := (lo + hi) / 2
	m.tree(lo, mid, dst, leaf)
	right := m.p.Temp(fmt.Sprintf("%ssum%d", m.tag, m.p.Len()), gpu.F32, dst.Elems())
	m.tree(mid, hi, right.View(0, dims(dst)...), leaf)
	kernels.Add(m.r, &kernels.AddTo, kernels.AddToArgs{Dst: dst, Src: right.View(0, dims(dst)...)})
}

func dims(t gpu.Tensor) []int {
	d := make([]int, t.Rank)
	for i := range d {
		d[i] = t.Dim(i)
	}
	return d
}

// rows views the rows of shard i of a tensor whose first axis is tokens.
func (m *recorder) rows(t gpu.Tensor, i int) gpu.Tensor {
	d := dims(t)
	d[0] /= m.shards
	return t.View(i*t.Elems()/m.shards, d...)
}

// headBwd records loss and gradients of the head. With a tied matrix the
// shards' gradients stay apart until embedBwd has added its own to each.
func (m *recorder) headBwd(a TrainArgs, hf, dh gpu.Tensor) {
	n := m.b.B * m.b.T
	loss := m.p.Temp(m.tag+"loss", gpu.F32, n)
	logits := m.p.Temp(m.tag+"logits", gpu.F32, min(headChunk, n/m.shards/m.copies()), m.c.Vocab)
	sums, scales := []gpu.Tensor{a.Loss}, []gpu.Tensor{a.Scale}
	if k := m.noise.Masked; k != nil {
		sums, scales = append(sums, k.Loss), append(scales, k.Scale)
	}
	leaf := func(i int, dw gpu.Tensor) {
		for j, scale := range scales {
			x := kernels.HeadLossArgs{
				Loss: m.copyOf(loss, i, j), X: m.copyOf(hf, i, j), W: a.Weights.head(), Targets: m.copyOf(m.b.Targets, i, j), Scale: scale,
				DX: m.copyOf(dh, i, j), DW: dw, Logits: logits, AccumulateDW: j > 0,
			}
			if a.Distill != nil && j == 0 { // masked copies have the targets alone
				m.headDistill(a.Distill, x, i)
				continue
			}
			kernels.Add(m.r, &kernels.HeadLoss, x)
		}
	}
	if m.c.Tie {
		m.tied = []gpu.Tensor{a.Grads.head()}
		for i := 1; i < m.shards; i++ {
			m.tied = append(m.tied, m.p.Temp(fmt.Sprintf("%stied%d", m.tag, i), gpu.F32, m.c.Vocab, m.c.Dim))
		}
		for i, dw := range m.tied {
			leaf(i, dw)
		}
	} else {
		m.tree(0, m.shards, a.Grads.head(), leaf)
	}
	for j, sum := range sums {
		m.tree(0, m.shards, sum, func(i int, out gpu.Tensor) {
			kernels.Add(m.r, &kernels.SumLoss, kernels.SumLossArgs{Out: out, X: m.copyOf(loss, i, j)})
		})
	}
}

// linearBwd records both gradients of y = x * w^T.
func (m *recorder) linearBwd(dx, dw, dy, x, w gpu.Tensor) {
	m.tree(0, m.shards, dw, func(i int, dst gpu.Tensor) {
		kernels.Add(m.r, &kernels.MatMulDW, kernels.MatMulDWArgs{DW: dst, DY: m.rows(dy, i), X: m.rows(x, i)})
	})
	kernels.Add(m.r, &kernels.MatMulDX, kernels.MatMulDXArgs{DX: dx, DY: dy, W: w})
}

// normBwd records the gradients of RMSNorm; with accumulate the input's is
// added to dx, which is how the residual connection's gradient joins.
func (m *recorder) normBwd(dx, dw, dy, x, w, rstd gpu.Tensor, accumulate bool) {
	part := m.p.Temp(fmt.Sprintf("%spart%d", m.tag, m.p.Len()), gpu.F32, kernels.NormPartials, m.c.Dim)
	m.tree(0, m.shards, dw, func(i int, dst gpu.Tensor) {
		kernels.Add(m.r, &kernels.RMSNormBwd, kernels.RMSNormBwdArgs{
			DX: m.rows(dx, i), DW: dst, DY: m.rows(dy, i), X: m.rows(x, i), W: w, Rstd: m.rows(rstd, i),
			Part: part, AccumulateDX: accumulate,
		})
	})
}

// embedBwd records the gradient of the embedding. A tied matrix's gradient is,
// in every shard, the head's plus the embedding's; then the shards are added.
func (m *recorder) embedBwd(g Weights, dx gpu.Tensor) {
	leaf := func(i int, dw gpu.Tensor) {
		kernels.Add(m.r, &kernels.EmbedBwd, kernels.EmbedBwdArgs{DW: dw, DX: m.rows(dx, i), Tokens: m.rows(m.b.Tokens, i), Accumulate: m.c.Tie})
	}
	if !m.c.Tie {
		m.tree(0, m.shards, g.embed(), leaf)
		return
	}
	for i, dw := range m.tied {
		leaf(i, dw)
	}
	m.addTied(0, m.shards)
}

// addTied adds the tied shards [lo,hi) into shard lo, in the order of tree.
func (m *recorder) addTied(lo, hi int) {
	if hi-lo == 1 {
		return
	}
	mid := (lo + hi) / 2
	m.addTied(lo, mid)
	m.addTied(mid, hi)
	kernels.Add(m.r, &kernels.AddTo, kernels.AddToArgs{Dst: m.tied[lo], Src: m.tied[mid]})
}

// RecordLoss appends a forward pass that leaves the loss of every target, in
// nats, in loss [N] f32 (0 where the target is masked).
func RecordLoss(r *gpu.Recorder, c Config, w Weights, loss gpu.Tensor, b Batch, tab Tables, pol Policy) {
	m := newRecorder(r, c, b, tab, pol, "")
	n := b.B * b.T
	w = w.Round(r, m.pol, "loss.")
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
	w = w.Round(r, m.pol, "logits.")
	hf, _, _, _ := m.forward(w)
	kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: logits, X: hf, W: w.head()})
}
