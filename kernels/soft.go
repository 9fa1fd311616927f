package kernels

import (
	"cmp"
	"math"
	"slices"

	"refrain/gpu"
)

// SoftTargetsArgs are the arguments of SoftTargets. IDs and P belong together.
type SoftTargetsArgs struct {
	Logits  gpu.Tensor // [N,V] f32: sum of the logits of all teachers; without IDs the probabilities afterwards
	IDs     gpu.Tensor // [N,K] i32, optional: the K likeliest ids, the likeliest first
	P       gpu.Tensor // [N,K] f32, with IDs: their probabilities, which sum to 1
	Entropy gpu.Tensor // [N] f32, in nats: of the probabilities
	Scale   float32    // of the logits: 1 / (teachers * temperature)
}

// SoftTargets turns the logits of teachers into what a student learns from:
//
//	q = softmax(scale * logits);  entropy = -sum(q * log(q))
//
// over all ids, in place, or over the K ids with the largest logits; among equal logits
// the lower id counts as larger.
var SoftTargets = Kernel[SoftTargetsArgs]{
	Name: "soft_targets",
	Check: func(a *SoftTargetsArgs) error {
		var c checker
		z := c.ranked("logits", a.Logits, gpu.F32, 2)
		if a.sparse() {
			k := c.ranked("ids", a.IDs, gpu.I32, 2)
			c.i32("ids", a.IDs, z[0], k[1])
			c.f32("p", a.P, z[0], k[1])
			if k[1] > z[1] {
				c.failf("ids has %d of a vocabulary of %d", k[1], z[1])
			}
		}
		c.f32("entropy", a.Entropy, z[0])
		if !(a.Scale > 0) || math.IsInf(float64(a.Scale), 0) {
			c.failf("scale is %v, want a number above 0", a.Scale)
		}
		c.apart(names{{"entropy", a.Entropy}, {"ids", a.IDs}, {"p", a.P}}, names{{"logits", a.Logits}})
		return c.err
	},
	Access: func(a *SoftTargetsArgs) (reads, writes []gpu.Span) {
		if a.sparse() {
			return spans(a.Logits), spans(a.IDs, a.P, a.Entropy)
		}
		return spans(a.Logits), spans(a.Logits, a.Entropy)
	},
	Cost: func(a *SoftTargetsArgs) gpu.Cost {
		n := float64(a.Logits.Elems())
		if a.sparse() {
			return gpu.Cost{FLOPs: n, Bytes: bytesOf(a.Logits, a.IDs, a.P, a.Entropy)}
		}
		return gpu.Cost{FLOPs: 5 * n, Bytes: bytesOf(a.Logits, a.Logits, a.Entropy)}
	},
	Ref:  func(h gpu.Host, a *SoftTargetsArgs) { softTargetsRef(narrow(h), a) },
	Wide: func(h WideHost, a *SoftTargetsArgs) { softTargetsRef(wide(h), a) },
	Fast: softTargetsFast,
	CUDA: softTargetsCUDA,
}

func (a *SoftTargetsArgs) sparse() bool { return !a.IDs.IsZero() || !a.P.IsZero() }

func softTargetsRef[T real](m memory[T], a *SoftTargetsArgs) {
	z, entropy := m.reals(a.Logits), m.reals(a.Entropy)
	n, v := a.Logits.Dim(0), a.Logits.Dim(1)
	for i := range n {
		row := z[i*v : (i+1)*v]
		if !a.sparse() {
			entropy[i] = T(softmaxRef(row, row, float64(a.Scale)))
			continue
		}
		k := a.IDs.Dim(1)
		order := make([]int, v)
		for id := range order {
			order[id] = id
		}
		slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(row[y], row[x]) })
		kept := make([]T, k)
		for j, id := range order[:k] {
			m.ints(a.IDs)[i*k+j] = int32(id)
			kept[j] = row[id]
		}
		entropy[i] = T(softmaxRef(m.reals(a.P)[i*k:(i+1)*k], kept, float64(a.Scale)))
	}
}

// softmaxRef writes softmax(scale*z) to p, which may be z, and returns its entropy.
func softmaxRef[T real](p, z []T, scale float64) (entropy float64) {
	top := math.Inf(-1)
	for _, x := range z {
		top = max(top, scale*float64(x))
	}
	var sum, mean float64
	for _, x := range z {
		e := math.Exp(scale*float64(x) - top)
		sum += e
		mean += e * (scale*float64(x) - top)
	}
	for i, x := range z {
		p[i] = T(math.Exp(scale*float64(x)-top) / sum)
	}
	return math.Log(sum) - mean/sum
}

// HeadDistillArgs are the arguments of HeadDistill: those of HeadLoss, and what a teacher
// predicts. That is Q, or IDs and P.
type HeadDistillArgs struct {
	Loss    gpu.Tensor // [N] f32, in nats; 0 where masked
	X       gpu.Tensor // [N,D] f32 or bf16, final hidden states
	W       gpu.Tensor // [V,D] of the type of X, the head
	Targets gpu.Tensor // [N] i32, each in [0,V) or -1 for masked
	Scale   gpu.Tensor // [1] f32: reciprocal of the gradient's divisor; only needed with DX or DW
	DX      gpu.Tensor // [N,D] of the type of X, optional: gradient of Scale*sum(Loss) for X
	DW      gpu.Tensor // [V,D] f32, optional: the same for W
	Logits  gpu.Tensor // [Chunk,V] f32, temporary: rows are worked off Chunk at a time
	Q       gpu.Tensor // [N,V] f32: probabilities of the teacher
	IDs     gpu.Tensor // [N,K] i32, each in [0,V) and once in a row
	P       gpu.Tensor // [N,K] f32: probabilities of IDs; all others are 0
	Entropy gpu.Tensor // [N] f32, in nats: of Q or P

	Weight       float32 // a, from 0 to 1
	Temperature  float32 // t, above 0; Q has it applied
	AccumulateDW bool
}

// HeadDistill is HeadLoss with a second term, which draws the student to a teacher
// (Hinton, Vinyals, Dean 2015):
//
//	loss[n] = (1-a) * (logsumexp(z) - z[target]) + a * t^2 * KL(q || softmax(z/t))
//	dz      = ((1-a) * (softmax(z) - onehot(target)) + a * t * (softmax(z/t) - q)) * scale
//
// where z are the logits of row n. t^2 keeps the gradients of the second term as large as
// they are at t = 1. q is a constant. Masked rows and types are as in HeadLoss.
var HeadDistill = Kernel[HeadDistillArgs]{
	Name:  "head_distill",
	Check: checkHeadDistill,
	Access: func(a *HeadDistillArgs) (reads, writes []gpu.Span) {
		base := a.base()
		reads, writes = HeadLoss.Access(&base)
		return append(reads, spans(a.Q, a.IDs, a.P, a.Entropy)...), writes
	},
	Cost: func(a *HeadDistillArgs) gpu.Cost {
		base := a.base()
		c := HeadLoss.Cost(&base)
		c.Bytes += bytesOf(a.Q, a.IDs, a.P, a.Entropy)
		c.FLOPs += 2*float64(a.Q.Elems()+a.P.Elems()) + 4*float64(a.X.Dim(0))*float64(a.W.Dim(0))
		return c
	},
	Ref:  func(h gpu.Host, a *HeadDistillArgs) { headDistillRef(narrow(h), a) },
	Wide: func(h WideHost, a *HeadDistillArgs) { headDistillRef(wide(h), a) },
	Fast: headDistillFast,
	CUDA: headDistillCUDA,
}

// base are the arguments that HeadLoss has too.
func (a *HeadDistillArgs) base() HeadLossArgs {
	return HeadLossArgs{
		Loss: a.Loss, X: a.X, W: a.W, Targets: a.Targets, Scale: a.Scale, DX: a.DX, DW: a.DW, Logits: a.Logits,
		AccumulateDW: a.AccumulateDW,
	}
}

func (a *HeadDistillArgs) sparse() bool { return !a.IDs.IsZero() || !a.P.IsZero() }

func checkHeadDistill(a *HeadDistillArgs) error {
	base := a.base()
	if err := HeadLoss.Check(&base); err != nil {
		return err
	}
	var c checker
	n, v := a.X.Dim(0), a.W.Dim(0)
	switch {
	case !a.sparse():
		c.f32("q", a.Q, n, v)
	case !a.Q.IsZero():
		c.failf("q and ids are both there; give the teacher once")
	default:
		k := c.ranked("ids", a.IDs, gpu.I32, 2)
		c.i32("ids", a.IDs, n, k[1])
		c.f32("p", a.P, n, k[1])
		if k[1] > v {
			c.failf("ids has %d of a vocabulary of %d", k[1], v)
		}
	}
	c.f32("entropy", a.Entropy, n)
	if !(a.Weight >= 0 && a.Weight <= 1) {
		c.failf("weight is %v, want 0 to 1", a.Weight)
	}
	if !(a.Temperature > 0) || math.IsInf(float64(a.Temperature), 0) {
		c.failf("temperature is %v, want a number above 0", a.Temperature)
	}
	c.apart(names{{"loss", a.Loss}, {"dx", a.DX}, {"dw", a.DW}, {"logits", a.Logits}},
		names{{"q", a.Q}, {"ids", a.IDs}, {"p", a.P}, {"entropy", a.Entropy}})
	return c.err
}

func headDistillRef[T real](m memory[T], a *HeadDistillArgs) {
	v := a.W.Dim(0)
	teacher, z, soft := make([]float64, v), make([]float64, v), make([]float64, v)
	entropy := m.reals(a.Entropy)
	weight, temp := float64(a.Weight), float64(a.Temperature)
	base := a.base()
	headRef(m, &base, func(row int, dz []float64, x, w []T, target int) float64 {
		clear(teacher)
		if a.sparse() {
			k := a.IDs.Dim(1)
			for j, id := range m.ints(a.IDs)[row*k : (row+1)*k] {
				teacher[id] = float64(m.reals(a.P)[row*k+j])
			}
		} else {
			for id, q := range m.reals(a.Q)[row*v : (row+1)*v] {
				teacher[id] = float64(q)
			}
		}
		ce := crossEntropy(dz, x, w, target)
		for id := range z {
			z[id] = dot(x, w[id*len(x):(id+1)*len(x)]) / temp
		}
		softmaxRef(soft, z, 1)
		top := slices.Max(z)
		var sum, mean float64
		for id, x := range z {
			sum += math.Exp(x - top)
			mean += teacher[id] * x
		}
		// KL = sum(q*log(q)) - sum(q*log(p)), and log(p) = z - logsumexp(z).
		kl := top + math.Log(sum) - mean - float64(entropy[row])
		for id := range dz {
			dz[id] = (1-weight)*dz[id] + weight*temp*(soft[id]-teacher[id])
		}
		return (1-weight)*ce + weight*temp*temp*kl
	})
}
