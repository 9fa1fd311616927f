package kernels

import (
	"math"

	"refrain/gpu"
)

// AttentionArgs are the arguments of Attention.
type AttentionArgs struct {
	O        gpu.Tensor // [N,H*C] of the type of QKV
	LSE      gpu.Tensor // [B,H,T] f32: log of the sum of exp(score), kept for the gradient
	QKV      gpu.Tensor // [N,Q] f32 or bf16: H query heads, KV key heads, KV value heads of C
	Seg      gpu.Tensor // [B,T] i32 from Segments
	B, T     int
	H, KV, C int
}

// Attention is causal softmax attention within documents: position t of a row
// sees the keys of positions seg[t] to t. Query head h uses key head
// h / (H/KV). Scores are scaled by 1/sqrt(C).
//
// Keys of other documents are not touched at all. Later keys of the same
// document may meet a weight of exactly zero, which leaves finite values
// without influence to the bit.
//
// In bf16 the scores, their softmax and LSE are f32. A fast version may round the
// weights, and in the gradient dS, where it multiplies them.
var Attention = Kernel[AttentionArgs]{
	Name: "attn",
	Check: func(a *AttentionArgs) error {
		var c checker
		c.heads(a.B, a.T, a.H, a.KV, a.C)
		n := a.B * a.T
		dt, _ := c.stored("qkv", a.QKV, 2)
		c.is("qkv", a.QKV, dt, n, (a.H+2*a.KV)*a.C)
		c.is("o", a.O, dt, n, a.H*a.C)
		c.f32("lse", a.LSE, a.B, a.H, a.T)
		c.i32("seg", a.Seg, a.B, a.T)
		c.apart(names{{"o", a.O}, {"lse", a.LSE}}, names{{"qkv", a.QKV}, {"seg", a.Seg}})
		return c.err
	},
	Access: func(a *AttentionArgs) (reads, writes []gpu.Span) {
		return spans(a.QKV, a.Seg), spans(a.O, a.LSE)
	},
	Cost: func(a *AttentionArgs) gpu.Cost {
		// Two products over the causal half, as if there were one document a row.
		return gpu.Cost{FLOPs: 4 * causalPairs(a.B, a.T) * float64(a.H*a.C), Bytes: bytesOf(a.QKV, a.O, a.LSE, a.Seg)}
	},
	Ref:  func(h gpu.Host, a *AttentionArgs) { attentionRef(narrow(h), a) },
	Wide: func(h WideHost, a *AttentionArgs) { attentionRef(wide(h), a) },
	Fast: attentionFast,
	CUDA: attentionCUDA,
}

// causalPairs counts query-key pairs with key <= query.
func causalPairs(b, t int) float64 { return float64(b) * float64(t) * float64(t+1) / 2 }

// headRows finds heads inside the rows of a fused QKV buffer, or of one like it.
type headRows[T real | uint16] struct {
	buf    []T
	stride int // elements a row
	c      int // head width
}

func (r headRows[T]) at(n, head int) []T {
	o := n*r.stride + head*r.c
	return r.buf[o : o+r.c]
}

func attentionRef[T real](m memory[T], a *AttentionArgs) {
	lse, seg := m.reals(a.LSE), m.ints(a.Seg)
	o, store := m.values(a.O)
	qkv := headRows[T]{m.read(a.QKV), (a.H + 2*a.KV) * a.C, a.C}
	out := headRows[T]{o, a.H * a.C, a.C}
	p := make([]float64, a.T)
	acc := make([]float64, a.C)
	for b := range a.B {
		for h := range a.H {
			kv := h / (a.H / a.KV)
			for t := range a.T {
				n := b*a.T + t
				first := b*a.T + int(seg[n])
				l := softmaxScores(p, qkv, n, first, h, a.H+kv)
				lse[(b*a.H+h)*a.T+t] = T(l)
				clear(acc)
				for j := first; j <= n; j++ {
					for i, v := range qkv.at(j, a.H+a.KV+kv) {
						acc[i] += p[j-first] * float64(v)
					}
				}
				for i, s := range acc {
					out.at(n, h)[i] = T(s)
				}
			}
		}
	}
	store()
}

// softmaxScores fills p[j-first] with the attention of row n to row j for j in
// [first,n], and returns the log of the sum of the exponentials.
func softmaxScores[T real](p []float64, qkv headRows[T], n, first, q, k int) float64 {
	scale := 1 / math.Sqrt(float64(qkv.c))
	top := math.Inf(-1)
	for j := first; j <= n; j++ {
		s := dot(qkv.at(n, q), qkv.at(j, k)) * scale
		p[j-first] = s
		top = max(top, s)
	}
	var sum float64
	for j := range n - first + 1 {
		p[j] = math.Exp(p[j] - top)
		sum += p[j]
	}
	for j := range n - first + 1 {
		p[j] /= sum
	}
	return top + math.Log(sum)
}

// AttentionBwdArgs are the arguments of AttentionBwd.
type AttentionBwdArgs struct {
	DQKV     gpu.Tensor // [N,Q] of the type of QKV, written everywhere
	DO       gpu.Tensor // [N,H*C] of the type of QKV, gradient of O
	O        gpu.Tensor // [N,H*C] of the type of QKV, from the forward op
	LSE      gpu.Tensor // [B,H,T] f32, from the forward op
	QKV      gpu.Tensor // [N,Q] f32 or bf16
	Seg      gpu.Tensor // [B,T] i32
	B, T     int
	H, KV, C int
}

// AttentionBwd is the gradient of Attention. The weights P are computed again
// from LSE (Dao et al., FlashAttention, 2022, algorithm 4):
//
//	D = sum(dO*O) of a row; dP = dO*V; dS = P*(dP - D)/sqrt(C)
//	dQ = dS*K; dK = transpose(dS)*Q; dV = transpose(P)*dO
//
// where dK and dV of a key head sum over the query heads that share it.
var AttentionBwd = Kernel[AttentionBwdArgs]{
	Name: "attn_bwd",
	Check: func(a *AttentionBwdArgs) error {
		var c checker
		c.heads(a.B, a.T, a.H, a.KV, a.C)
		n, q := a.B*a.T, (a.H+2*a.KV)*a.C
		dt, _ := c.stored("qkv", a.QKV, 2)
		c.is("qkv", a.QKV, dt, n, q)
		c.is("dqkv", a.DQKV, dt, n, q)
		c.is("o", a.O, dt, n, a.H*a.C)
		c.is("do", a.DO, dt, n, a.H*a.C)
		c.f32("lse", a.LSE, a.B, a.H, a.T)
		c.i32("seg", a.Seg, a.B, a.T)
		c.apart(names{{"dqkv", a.DQKV}}, names{{"do", a.DO}, {"o", a.O}, {"lse", a.LSE}, {"qkv", a.QKV}, {"seg", a.Seg}})
		return c.err
	},
	Access: func(a *AttentionBwdArgs) (reads, writes []gpu.Span) {
		return spans(a.DO, a.O, a.LSE, a.QKV, a.Seg), spans(a.DQKV)
	},
	Cost: func(a *AttentionBwdArgs) gpu.Cost {
		// Five products over the causal half.
		return gpu.Cost{FLOPs: 10 * causalPairs(a.B, a.T) * float64(a.H*a.C), Bytes: bytesOf(a.QKV, a.DQKV, a.O, a.DO, a.LSE, a.Seg)}
	},
	Ref:  func(h gpu.Host, a *AttentionBwdArgs) { attentionBwdRef(narrow(h), a) },
	Wide: func(h WideHost, a *AttentionBwdArgs) { attentionBwdRef(wide(h), a) },
	Fast: attentionBwdFast,
	CUDA: attentionBwdCUDA,
}

func attentionBwdRef[T real](m memory[T], a *AttentionBwdArgs) {
	lse, seg := m.reals(a.LSE), m.ints(a.Seg)
	qkv := headRows[T]{m.read(a.QKV), (a.H + 2*a.KV) * a.C, a.C}
	grad, store := m.values(a.DQKV)
	dqkv := headRows[T]{grad, qkv.stride, a.C}
	o := headRows[T]{m.read(a.O), a.H * a.C, a.C}
	do := headRows[T]{m.read(a.DO), a.H * a.C, a.C}
	scale := 1 / math.Sqrt(float64(a.C))
	sum := headRows[float64]{make([]float64, len(dqkv.buf)), qkv.stride, a.C}
	for b := range a.B {
		for h := range a.H {
			k := a.H + h/(a.H/a.KV)
			v := k + a.KV
			for t := range a.T {
				n := b*a.T + t
				l := float64(lse[(b*a.H+h)*a.T+t])
				d := dot(do.at(n, h), o.at(n, h))
				for j := b*a.T + int(seg[n]); j <= n; j++ {
					p := math.Exp(dot(qkv.at(n, h), qkv.at(j, k))*scale - l)
					ds := p * (dot(do.at(n, h), qkv.at(j, v)) - d) * scale
					for i := range a.C {
						sum.at(n, h)[i] += ds * float64(qkv.at(j, k)[i])
						sum.at(j, k)[i] += ds * float64(qkv.at(n, h)[i])
						sum.at(j, v)[i] += p * float64(do.at(n, h)[i])
					}
				}
			}
		}
	}
	for i, s := range sum.buf {
		dqkv.buf[i] = T(s)
	}
	store()
}
