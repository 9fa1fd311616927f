package model

import (
	"fmt"

	"refrain/gpu"
	"refrain/kernels"
)

// Noise is what a training step does at random so that a model that sees the same rows
// again and again learns them by heart later. The zero Noise does nothing. Evaluation
// and decoding know none.
type Noise struct {
	// Dropout is the share of elements that is dropped from the embeddings and from what
	// each attention and MLP adds to the residual stream.
	Dropout float64
	Masked  *Masked // nil: every row stands once, as it is

	Draw gpu.Tensor // [4] i32, see kernels.DrawWords; needed for either
	Row  int        // first row of the batch, counted from the first of Draw
}

// Masked is a second next-token loss: every row stands in the batch once more, with a
// share of its input tokens replaced and the same targets. Copies go through the model
// beside their shard, so sums keep their tree, and the batch costs twice as much.
type Masked struct {
	From, To float64    // the share of a row is drawn uniformly between these
	ID       int        // what a lost token becomes; -1 for any of Vocab at random
	Vocab    int        // ids that occur in the data
	Scale    gpu.Tensor // [1] f32: weight of the loss / scored targets of the global step
	Loss     gpu.Tensor // [1] f32: sum of the token losses of the copies, in nats
}

// on reports whether there is anything to record.
func (n *Noise) on() bool { return n.Dropout > 0 || n.Masked != nil }

// copies is how often each row of the batch stands in the recording.
func (m *recorder) copies() int {
	if m.noise.Masked != nil {
		return 2
	}
	return 1
}

// copyOf views what belongs to copy j in shard i of a tensor whose first axis is tokens.
func (m *recorder) copyOf(t gpu.Tensor, i, j int) gpu.Tensor {
	t = m.rows(t, i)
	d := dims(t)
	d[0] /= m.copies()
	return t.View(j*t.Elems()/m.copies(), d...)
}

// addNoise sets up what a says and, for a second loss, puts the rows of every shard into
// the batch twice: as they are, and masked.
func (m *recorder) addNoise(a *TrainArgs) {
	m.noise = a.Noise
	k := a.Noise.Masked
	if k == nil {
		return
	}
	b, t := m.b.B, m.b.T
	tokens, targets := m.p.Temp(m.tag+"tokens", gpu.I32, 2*b, t), m.p.Temp(m.tag+"targets", gpu.I32, 2*b, t)
	kernels.Add(m.r, &kernels.MaskRows, kernels.MaskRowsArgs{
		Out: tokens, Tokens: m.b.Tokens.View(0, b, t), Draw: a.Noise.Draw, Row: a.Noise.Row,
		From: k.From, To: k.To, ID: k.ID, Vocab: k.Vocab, Shards: m.shards,
	})
	kernels.Add(m.r, &kernels.RepeatRows, kernels.RepeatRowsArgs{Out: targets, In: m.b.Targets.View(0, b, t), Shards: m.shards})
	m.b.B, m.b.Tokens, m.b.Targets = 2*b, tokens.View(0, 2*b*t), targets.View(0, 2*b*t)
}

// repeated is t [B,T] for the rows of the recording: t itself unless they stand twice.
func (m *recorder) repeated(name string, t gpu.Tensor) gpu.Tensor {
	if m.copies() == 1 {
		return t
	}
	out := m.p.Temp(m.tag+name+"2", gpu.I32, m.b.B, m.b.T)
	kernels.Add(m.r, &kernels.RepeatRows, kernels.RepeatRowsArgs{Out: out, In: t, Shards: m.shards})
	return out
}

// Places where dropout is applied; every layer has two, after that of the embeddings.
const siteEmbedding = 0

func siteAttention(layer int) int { return 2*layer + 1 }
func siteMLP(layer int) int       { return 2*layer + 2 }

// drop records y = (add +) dropout(x). y may be x.
func (m *recorder) drop(y, x, add gpu.Tensor, site int) {
	kernels.Add(m.r, &kernels.Dropout, kernels.DropoutArgs{
		Y: y, X: x, Add: add, Draw: m.noise.Draw, Rate: m.noise.Dropout, Site: site, Row: m.noise.Row, Each: m.copies() * m.b.T,
	})
}

// branch records y = add + dropout(x * w^T): what a branch adds to the residual stream.
func (m *recorder) branch(y, x, w, add gpu.Tensor, site int) {
	if m.noise.Dropout == 0 {
		kernels.Add(m.r, &kernels.MatMul, kernels.MatMulArgs{Y: y, X: x, W: w, Add: add})
		return
	}
	kernels.Add(m.r, &kernels.MatMul, kernels.MatMulArgs{Y: y, X: x, W: w})
	m.drop(y, y, add, site)
}

// branchGrad returns the gradient of the branch at site, given that of the residual
// stream. It is overwritten by the next call.
func (m *recorder) branchGrad(dx gpu.Tensor, site int) gpu.Tensor {
	if m.noise.Dropout == 0 {
		return dx
	}
	if m.dbranch.IsZero() {
		m.dbranch = m.sum("dbranch", dims(dx)...)
	}
	m.drop(m.dbranch, dx, gpu.Tensor{}, site)
	return m.dbranch
}

// check refuses noise that no Program can be recorded with. The ops check the rest.
func (n *Noise) check() error {
	if n.on() && n.Draw.IsZero() {
		return fmt.Errorf("noise without Draw")
	}
	return nil
}
