package model

import (
	"errors"
	"fmt"

	"refrain/gpu"
	"refrain/kernels"
)

// taught is what a teacher leaves for the head: its last hidden states and its head.
type taught struct{ hidden, head gpu.Tensor }

// teach records the teachers' forward passes over the batch.
func (m *recorder) teach(d *Distill) {
	if d == nil {
		return
	}
	if len(d.Teachers) == 0 {
		m.r.Fail(errors.New("model: distillation without a teacher"))
	}
	if d.TopK < 0 || d.TopK > m.c.Vocab {
		m.r.Fail(fmt.Errorf("model: the %d likeliest of %d ids", d.TopK, m.c.Vocab))
	}
	for i, t := range d.Teachers {
		if t.Config.Vocab != m.c.Vocab {
			m.r.Fail(fmt.Errorf("model: teacher %d has a vocabulary of %d and the student one of %d", i, t.Config.Vocab, m.c.Vocab))
			return
		}
		x := newRecorder(m.r, t.Config, m.b, t.Tables, m.pol, fmt.Sprintf("%steacher%d.", m.tag, i))
		w := t.Weights.Round(m.r, m.pol, x.tag)
		hidden, _, _, _ := x.forward(w)
		m.taught = append(m.taught, taught{hidden, w.head()})
	}
}

// headDistill records loss and gradients of the head on shard i, a chunk of rows after the
// other: the teachers' logits of a chunk, what they say, and the student's part, x. The
// sums over the chunks are those that HeadLoss makes of them.
func (m *recorder) headDistill(d *Distill, x kernels.HeadLossArgs, shard int) {
	v, rows, chunk := m.c.Vocab, x.Loss.Dim(0), x.Logits.Dim(0)
	temp := func(name string, dt gpu.DType, width int) gpu.Tensor {
		return m.p.Temp(fmt.Sprintf("%s%s%d", m.tag, name, m.p.Len()), dt, chunk, width)
	}
	sum, entropy := temp("teachers", gpu.F32, v), temp("entropy", gpu.F32, 1)
	var ids, p gpu.Tensor
	if d.TopK > 0 {
		ids, p = temp("ids", gpu.I32, d.TopK), temp("p", gpu.F32, d.TopK)
	}
	for from := 0; from < rows; from += chunk {
		n := min(chunk, rows-from)
		part := func(t gpu.Tensor) gpu.Tensor { // of rows of the shard, those of this chunk
			s := dims(t)
			width := t.Elems() / s[0]
			s[0] = n
			return t.View(from*width, s...)
		}
		first := func(t gpu.Tensor) gpu.Tensor { return t.View(0, n, t.Dim(1)) }
		for i, t := range m.taught {
			z := kernels.MatMulArgs{Y: first(sum), X: part(m.rows(t.hidden, shard)), W: t.head}
			if i > 0 {
				z.Add = z.Y
			}
			kernels.Add(m.r, &kernels.MatMul, z)
		}
		soft := kernels.SoftTargetsArgs{Logits: first(sum), Entropy: entropy.View(0, n), Scale: 1 / (float32(len(m.taught)) * d.Temperature)}
		student := kernels.HeadDistillArgs{
			Loss: part(x.Loss), X: part(x.X), W: x.W, Targets: part(x.Targets), Scale: x.Scale,
			DX: part(x.DX), DW: x.DW, Logits: first(x.Logits), Entropy: soft.Entropy,
			Weight: d.Weight, Temperature: d.Temperature, AccumulateDW: x.AccumulateDW || from > 0,
		}
		if d.TopK > 0 {
			soft.IDs, soft.P = first(ids), first(p)
			student.IDs, student.P = soft.IDs, soft.P
		} else {
			student.Q = soft.Logits
		}
		kernels.Add(m.r, &kernels.SoftTargets, soft)
		kernels.Add(m.r, &kernels.HeadDistill, student)
	}
}
