package train

import (
	"fmt"

	"refrain/gpu"
	"refrain/gpu/collective"
	"refrain/kernels"
	"refrain/model"
	"refrain/stages/item"
)

// names of the externs of a step Program.
const (
	extParams  = "params"  // [Total] f32
	extM       = "m"       // [Total] f32
	extV       = "v"       // [Total] f32
	extGrads   = "grads"   // [Total+sums] f32, the loss sums last
	extBatch   = "batch"   // item.Layout of this device's rows, bytes
	extHyper   = "hyper"   // [hyperLen] f32
	extResults = "results" // [resultLen] f32
	extHalt    = "halt"    // [1] i32, sticky
	extCos     = "cos"     // [T,C/2] f32
	extSin     = "sin"     // [T,C/2] f32
)

const (
	resultSumSq = 0
	resultScale = 1
	resultLen   = 16
)

// stepProgram records the whole training step of one device: forward and
// backward of each of its micro-steps, their sum in a binary tree, the sum over
// devices, the norm, and the update.
func stepProgram(o *Options, l *model.Layout) (*gpu.Program, error) {
	p := gpu.NewProgram(fmt.Sprintf("train_step/%d", o.Devices))
	r := p.On(gpu.Math)
	t := stepRecorder{o: o, l: l, p: p, r: r}
	t.params = p.Extern(extParams, gpu.F32, l.Total)
	t.grads = p.Extern(extGrads, gpu.F32, l.Total+o.sums())
	m, v := p.Extern(extM, gpu.F32, l.Total), p.Extern(extV, gpu.F32, l.Total)
	t.hyper = p.Extern(extHyper, gpu.F32, hyperLen)
	results := p.Extern(extResults, gpu.F32, resultLen)
	halt := p.Extern(extHalt, gpu.I32, 1)
	half := o.Model.C() / 2
	t.tab = model.Tables{Cos: p.Extern(extCos, gpu.F32, o.T, half), Sin: p.Extern(extSin, gpu.F32, o.T, half)}
	t.batch = p.Extern(extBatch, gpu.U8, int(o.deviceLayout().Bytes()))

	t.weights = model.NewWeights(o.Model, l, t.params).Round(r, o.Policy, "")
	t.distill = recordTeachers(r, o)
	t.tree(0, o.Micro, t.grads)
	if o.Devices > 1 {
		scratch := p.Temp("peer_grads", gpu.F32, l.Total+o.sums())
		add, err := kernels.AddTo.Op(kernels.AddToArgs{Dst: t.grads, Src: scratch})
		if err != nil {
			return nil, err
		}
		collective.AllReduce(p.On(gpu.Comm), o.Devices, t.grads, scratch, add)
	}
	sumsq, scale := results.View(resultSumSq, 1), results.View(resultScale, 1)
	all := t.grads.View(0, l.Total)
	kernels.Add(r, &kernels.SumSquares, kernels.SumSquaresArgs{Out: sumsq, X: all})
	kernels.Add(r, &kernels.Guard, kernels.GuardArgs{Scale: scale, Halt: halt, SumSq: sumsq, Loss: t.grads.View(l.Total, 1), MaxNorm: float32(o.Optim.Clip)})
	var factor gpu.Tensor // of the weight decays; absent where it is always 1
	if o.Optim.Cycles.N > 0 {
		factor = t.hyper.View(hyperDecay, 1)
	}
	for role, rg := range l.Roles {
		if rg.Len() == 0 {
			continue
		}
		kernels.Add(r, &kernels.AdamW, kernels.AdamWArgs{
			P: t.params.View(rg.From, rg.Len()), G: t.grads.View(rg.From, rg.Len()),
			M: m.View(rg.From, rg.Len()), V: v.View(rg.From, rg.Len()),
			Hyper: t.hyper.View(0, 8), Scale: scale, Halt: halt,
			WeightDecay: float32(o.Optim.Decay[role]), LRMul: float32(o.Optim.LRMul[role]), DecayFactor: factor,
		})
	}
	return p, p.Seal()
}

type stepRecorder struct {
	o             *Options
	l             *model.Layout
	p             *gpu.Program
	r             *gpu.Recorder
	params, grads gpu.Tensor
	hyper, batch  gpu.Tensor
	tab           model.Tables
	weights       model.Weights // of params, rounded once for all micro-steps
	distill       *model.Distill
}

// tree leaves in dst the sum of the gradients of micro-steps [lo,hi): halves
// first, then their sum. Micro-steps and devices hold whole subtrees of the
// tree over the logical shards, so any arrangement adds in the same order.
func (t *stepRecorder) tree(lo, hi int, dst gpu.Tensor) {
	if hi-lo == 1 {
		t.leaf(lo, dst)
		return
	}
	mid := (lo + hi) / 2
	t.tree(lo, mid, dst)
	right := t.p.Temp(fmt.Sprintf("grads_%d_%d", mid, hi), gpu.F32, t.l.Total+t.o.sums())
	t.tree(mid, hi, right)
	kernels.Add(t.r, &kernels.AddTo, kernels.AddToArgs{Dst: dst, Src: right})
}

func (t *stepRecorder) leaf(i int, dst gpu.Tensor) {
	o := t.o
	rows := o.Batch / o.Devices / o.Micro
	lay := o.deviceLayout()
	model.RecordTrain(t.r, o.Model, model.TrainArgs{
		Weights: t.weights,
		Grads:   model.NewWeights(o.Model, t.l, dst),
		Loss:    dst.View(t.l.Total, 1),
		Scale:   t.hyper.View(hyperScale, 1),
		Tables:  t.tab,
		Batch:   batchViews(t.batch, lay, i*rows, rows, o.DocMask, o.ResetPositions),
		Policy:  o.Policy,
		Shards:  o.Shards / o.Devices / o.Micro,
		Tag:     fmt.Sprintf("s%d.", i),
		Noise:   t.noise(i*rows, dst),
		Distill: t.distill,
	})
}

// noise is what happens at random to the rows from row on, with the sum of the second
// loss in dst. Nothing is read from the scalars of a step that has none.
func (t *stepRecorder) noise(row int, dst gpu.Tensor) model.Noise {
	o := t.o
	if !o.noisy() {
		return model.Noise{}
	}
	n := model.Noise{
		Dropout: o.Dropout, Row: row,
		Draw: gpu.NewTensor(t.hyper.Span.Sub(hyperDraw*4, drawLen*4), gpu.I32, drawLen),
	}
	if o.Masked.Weight > 0 {
		n.Masked = &model.Masked{
			From: o.Masked.From, To: o.Masked.To, ID: o.Masked.ID, Vocab: o.Masked.Vocab,
			Scale: t.hyper.View(hyperMasked, 1), Loss: dst.View(t.l.Total+1, 1),
		}
	}
	return n
}

// batchViews views rows [from, from+rows) of a batch buffer of layout lay.
func batchViews(buf gpu.Tensor, lay item.Layout, from, rows int, mask, reset bool) model.Batch {
	ints := func(off int64) gpu.Tensor {
		s := buf.Span.Sub(off+int64(from)*int64(lay.T)*4, int64(rows)*int64(lay.T)*4)
		return gpu.NewTensor(s, gpu.I32, rows*lay.T)
	}
	b := int64(lay.StartsRow())
	return model.Batch{
		B: rows, T: lay.T,
		Tokens:  ints(lay.TokensOff()),
		Targets: ints(lay.TargetsOff()),
		Starts:  gpu.NewTensor(buf.Span.Sub(lay.StartsOff()+int64(from)*b, int64(rows)*b), gpu.U8, rows, int(b)),
		DocMask: mask, ResetPositions: reset,
	}
}
