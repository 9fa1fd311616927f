package kernels

import (
	"fmt"

	"refrain/gpu"
)

// RoPEArgs are the arguments of RoPE.
type RoPEArgs struct {
	QKV      gpu.Tensor // [N,Q] f32 or bf16, in place: H query heads, KV key heads, KV value heads of C
	Cos, Sin gpu.Tensor // [T,C/2] f32: row p holds the angles of position p
	Seg      gpu.Tensor // [B,T] i32 from Segments; may be absent without Reset
	Reset    bool       // positions count from the document's start instead of the row's
	B, T     int
	H, KV, C int
	Inverse  bool // rotate back: the gradient
}

// RoPE rotates query and key heads by their position (Su et al., RoFormer,
// 2021) in the half-split layout: element i of a head pairs with element i+C/2,
//
//	a' = a*cos - b*sin
//	b' = b*cos + a*sin
//
// with the angles of position t, or t-seg[b,t] with Reset. Values are left as
// they are. A rotation is orthogonal, so its gradient is the inverse rotation.
var RoPE = Kernel[RoPEArgs]{
	Name: "rope",
	Check: func(a *RoPEArgs) error {
		var c checker
		c.heads(a.B, a.T, a.H, a.KV, a.C)
		if a.C%2 != 0 {
			c.failf("head width is %d, want an even number", a.C)
		}
		c.either("qkv", a.QKV, gpu.BF16, a.B*a.T, (a.H+2*a.KV)*a.C)
		c.f32("cos", a.Cos, a.T, a.C/2)
		c.f32("sin", a.Sin, a.T, a.C/2)
		if a.Reset {
			c.i32("seg", a.Seg, a.B, a.T)
		}
		c.apart(names{{"qkv", a.QKV}}, names{{"cos", a.Cos}, {"sin", a.Sin}, {"seg", a.Seg}})
		return c.err
	},
	Access: func(a *RoPEArgs) (reads, writes []gpu.Span) {
		reads = spans(a.QKV, a.Cos, a.Sin)
		if a.Reset {
			reads = append(reads, a.Seg.Span)
		}
		return reads, spans(a.QKV)
	},
	Cost: func(a *RoPEArgs) gpu.Cost {
		n := float64(a.B*a.T) * float64((a.H+a.KV)*a.C)
		return gpu.Cost{FLOPs: 3 * n, Bytes: 2*float64(a.QKV.DType.Size())*n + bytesOf(a.Cos, a.Sin)}
	},
	Ref:  func(h gpu.Host, a *RoPEArgs) { ropeRef(narrow(h), a) },
	Wide: func(h WideHost, a *RoPEArgs) { ropeRef(wide(h), a) },
	Fast: ropeFast,
	CUDA: ropeCUDA,
}

// heads demands a possible arrangement of rows, positions and heads.
func (c *checker) heads(b, t, h, kv, width int) {
	c.positive("B", b)
	c.positive("T", t)
	c.positive("H", h)
	c.positive("KV", kv)
	c.positive("C", width)
	if c.err == nil && h%kv != 0 {
		c.failf("%d query heads do not divide into %d key heads", h, kv)
	}
}

func ropeRef[T real](m memory[T], a *RoPEArgs) {
	cos, sin := m.reals(a.Cos), m.reals(a.Sin)
	qkv, store := m.values(a.QKV)
	half, q := a.C/2, (a.H+2*a.KV)*a.C
	var seg []int32
	if a.Reset {
		seg = m.ints(a.Seg)
	}
	for n := range a.B * a.T {
		p := n % a.T
		if a.Reset {
			p -= int(seg[n])
		}
		rotateRow(qkv[n*q:], a.H+a.KV, cos[p*half:(p+1)*half], sin[p*half:(p+1)*half], a.Inverse)
	}
	store()
}

// rotateRow rotates the first heads of one row by the given angles.
func rotateRow[T real](row []T, heads int, cos, sin []T, inverse bool) {
	half := len(cos)
	for h := range heads {
		x, y := row[2*h*half:(2*h+1)*half], row[(2*h+1)*half:(2*h+2)*half]
		for i := range half {
			c, s := float64(cos[i]), float64(sin[i])
			if inverse {
				s = -s
			}
			u, v := float64(x[i]), float64(y[i])
			x[i] = T(u*c - v*s)
			y[i] = T(v*c + u*s)
		}
	}
}

// RoPEAtArgs are the arguments of RoPEAt.
type RoPEAtArgs struct {
	QKV      gpu.Tensor // [B,Q] f32, in place
	Cos, Sin gpu.Tensor // [Tmax,C/2] f32
	Pos      gpu.Tensor // [B] i32, each in [0,Tmax)
	H, KV, C int
}

// RoPEAt is RoPE for decoding: row b holds one token, at position pos[b].
var RoPEAt = Kernel[RoPEAtArgs]{
	Name: "rope_at",
	Check: func(a *RoPEAtArgs) error {
		var c checker
		cos := c.ranked("cos", a.Cos, gpu.F32, 2)
		pos := c.ranked("pos", a.Pos, gpu.I32, 1)
		c.heads(pos[0], cos[0], a.H, a.KV, a.C)
		if a.C%2 != 0 {
			c.failf("head width is %d, want an even number", a.C)
		}
		c.f32("cos", a.Cos, cos[0], a.C/2)
		c.f32("sin", a.Sin, cos[0], a.C/2)
		c.f32("qkv", a.QKV, pos[0], (a.H+2*a.KV)*a.C)
		c.apart(names{{"qkv", a.QKV}}, names{{"cos", a.Cos}, {"sin", a.Sin}, {"pos", a.Pos}})
		return c.err
	},
	Access: func(a *RoPEAtArgs) (reads, writes []gpu.Span) {
		return spans(a.QKV, a.Cos, a.Sin, a.Pos), spans(a.QKV)
	},
	Cost: func(a *RoPEAtArgs) gpu.Cost {
		n := float64(a.Pos.Dim(0)) * float64((a.H+a.KV)*a.C)
		return gpu.Cost{FLOPs: 3 * n, Bytes: 12 * n}
	},
	Ref:  func(h gpu.Host, a *RoPEAtArgs) { ropeAtRef(narrow(h), a) },
	Wide: func(h WideHost, a *RoPEAtArgs) { ropeAtRef(wide(h), a) },
	Fast: ropeAtFast,
}

func ropeAtRef[T real](m memory[T], a *RoPEAtArgs) {
	qkv, cos, sin := m.reals(a.QKV), m.reals(a.Cos), m.reals(a.Sin)
	half, q := a.C/2, (a.H+2*a.KV)*a.C
	for b, p := range m.ints(a.Pos) {
		p := checkPosition("rope_at", b, p, a.Cos.Dim(0))
		rotateRow(qkv[b*q:], a.H+a.KV, cos[p*half:(p+1)*half], sin[p*half:(p+1)*half], false)
	}
}

// checkPosition stops on a position beyond the tables or the cache.
func checkPosition(op string, b int, p int32, limit int) int {
	if uint32(p) >= uint32(limit) {
		panic(fmt.Sprintf("%s: position %d of row %d is outside [0,%d)", op, p, b, limit))
	}
	return int(p)
}
