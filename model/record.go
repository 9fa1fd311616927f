package model

import (
	"fmt"
	"math"

	"refrain/gpu"
	"refrain/kernels"
)

// Shapes: B rows, T positions, N=B*T tokens, D model, H query heads, KV key
// heads, C head size, Q=(H+2KV)*C, F ffn, V vocabulary.

// Policy is the precision of a Program (docs/decisions/0005): the type in which
// the activations of the branches, their gradients and the copies of the
// matrices that are multiplied with them are stored. Parameters and their
// gradients, moments, the residual stream and its gradient, norms, softmax,
// losses and all sums are f32 whatever it says.
type Policy struct {
	Act gpu.DType // F32, the zero value, or BF16
}

// PolicyOf returns the policy of that name in a configuration: "f32" or "bf16".
func PolicyOf(name string) (Policy, error) {
	for _, dt := range []gpu.DType{gpu.F32, gpu.BF16} {
		if name == dt.String() {
			return Policy{Act: dt}, nil
		}
	}
	return Policy{}, fmt.Errorf("precision %q; it must be f32 or bf16", name)
}

// AutoPolicy is the policy of a run that leaves the choice to this program: BF16
// where its products are faster than those of F32, else F32.
func AutoPolicy() Policy {
	if kernels.FastBF16() {
		return Policy{Act: gpu.BF16}
	}
	return Policy{Act: gpu.F32}
}

// String returns the name that PolicyOf takes.
func (p Policy) String() string { return p.Act.String() }

// Validate reports a precision that no Program can be recorded in.
func (p Policy) Validate() error {
	if p.Act != gpu.F32 && p.Act != gpu.BF16 {
		return fmt.Errorf("activations in %v; the precision must be f32 or bf16", p.Act)
	}
	return nil
}

// Batch is the rows a Program works on and the switches that go with them.
type Batch struct {
	B, T    int
	Tokens  gpu.Tensor // [N] i32, ids below Vocab
	Targets gpu.Tensor // [N] i32, -1 where masked
	Starts  gpu.Tensor // [B,ceil(T/8)] u8, bit t set when a document starts at t

	DocMask        bool // attention stays inside a document
	ResetPositions bool // positions count from the document's first token
}

// Weights are views of one flat f32 buffer: parameters or gradients. Parameters
// may have rounded copies of the matrices beside them, see Round.
type Weights struct {
	c       Config
	l       *Layout
	flat    gpu.Tensor
	rounded gpu.Tensor // bf16 copies of elements l.multiplied() of flat, or absent
}

// NewWeights views flat, of at least l.Total elements, by the layout l of c.
func NewWeights(c Config, l *Layout, flat gpu.Tensor) Weights {
	return Weights{c: c, l: l, flat: flat}
}

// Round returns w as a Program of policy pol multiplies it: for BF16 it records
// one op that rounds every matrix into a temporary named by tag. Recordings that
// are given the result share the copies; the others make their own. Weights
// that are changed afterwards must be rounded again.
func (w Weights) Round(r *gpu.Recorder, pol Policy, tag string) Weights {
	if pol.Act == gpu.F32 || !w.rounded.IsZero() {
		return w
	}
	m := w.l.multiplied()
	w.rounded = r.Program().Temp(tag+"weights."+pol.String(), pol.Act, m.Len())
	kernels.Add(r, &kernels.Cast, kernels.CastArgs{Dst: w.rounded, Src: w.flat.View(m.From, m.Len())})
	return w
}

// multiplied is the range of the matrices that are factors of products: all but
// an embedding that is not the head as well, which is only looked up.
func (l *Layout) multiplied() Range { return Range{l.head, l.Roles[Hidden].To} }

// matrix views a factor of products, its rounded copy where there is one.
func (w Weights) matrix(off, out, in int) gpu.Tensor {
	if w.rounded.IsZero() {
		return w.flat.View(off, out, in)
	}
	return w.rounded.View(off-w.l.multiplied().From, out, in)
}

func (w Weights) embed() gpu.Tensor { return w.flat.View(w.l.embed, w.c.Vocab, w.c.Dim) }
func (w Weights) head() gpu.Tensor  { return w.matrix(w.l.head, w.c.Vocab, w.c.Dim) }
func (w Weights) norm() gpu.Tensor  { return w.flat.View(w.l.norm, w.c.Dim) }
func (w Weights) norm1(i int) gpu.Tensor {
	return w.flat.View(w.l.layers[i].norm1, w.c.Dim)
}
func (w Weights) norm2(i int) gpu.Tensor {
	return w.flat.View(w.l.layers[i].norm2, w.c.Dim)
}
func (w Weights) qkv(i int) gpu.Tensor {
	return w.matrix(w.l.layers[i].qkv, w.c.Q(), w.c.Dim)
}
func (w Weights) out(i int) gpu.Tensor {
	return w.matrix(w.l.layers[i].out, w.c.Dim, w.c.Heads*w.c.C())
}
func (w Weights) gateUp(i int) gpu.Tensor {
	return w.matrix(w.l.layers[i].gateUp, 2*w.c.FFN, w.c.Dim)
}
func (w Weights) down(i int) gpu.Tensor {
	return w.matrix(w.l.layers[i].down, w.c.Dim, w.c.FFN)
}

// Tables are the rotary factors cos and sin, [T,C/2] f32 each.
type Tables struct{ Cos, Sin gpu.Tensor }

// RotaryTables computes the tables of c for positions 0..t-1: position p turns
// pair i by p * theta^(-2i/C), scaled as c says.
func RotaryTables(c Config, t int) (cos, sin []float32) {
	half := c.C() / 2
	cos, sin = make([]float32, t*half), make([]float32, t*half)
	turn := make([]float64, half)
	for i := range half {
		turn[i] = c.RopeScaling.frequency(math.Pow(c.RopeTheta, -2*float64(i)/float64(c.C())))
	}
	for p := range t {
		for i, f := range turn {
			s, co := math.Sincos(float64(p) * f)
			cos[p*half+i], sin[p*half+i] = float32(co), float32(s)
		}
	}
	return cos, sin
}

// headChunk is the number of rows of logits alive at once, so that the logits
// of a chunk stay near the cache (256 rows measured best in the prototype).
const headChunk = 256

// saved is what the backward pass of one layer reads.
type saved struct {
	x, h1, r1, qkv, o, lse, x2, h2, r2, gu, a gpu.Tensor
}

// recorder holds what every part of one recording needs.
type recorder struct {
	r       *gpu.Recorder
	p       *gpu.Program
	c       Config
	b       Batch
	tab     Tables
	pol     Policy
	tag     string // prefix of temporary names
	shards  int
	tied    []gpu.Tensor // gradients of the tied matrix, by shard
	taught  []taught     // what the teachers leave for the head
	noise   Noise
	dbranch gpu.Tensor // gradient of a branch before dropout, see branchGrad
	pos     gpu.Tensor // [B,T] i32, first position of the document, for positions
	seg     gpu.Tensor // [B,T] i32, the same for attention; zeros without DocMask
}

func newRecorder(r *gpu.Recorder, c Config, b Batch, tab Tables, pol Policy, tag string) *recorder {
	if err := pol.Validate(); err != nil {
		r.Fail(fmt.Errorf("model: %w", err))
	}
	if err := c.Validate(); err != nil {
		r.Fail(fmt.Errorf("model: %w", err))
	}
	return &recorder{r: r, p: r.Program(), c: c, b: b, tab: tab, pol: pol, tag: tag}
}

// act is a temporary of a branch, in the type of the policy.
func (m *recorder) act(name string, shape ...int) gpu.Tensor {
	return m.p.Temp(m.tag+name, m.pol.Act, shape...)
}

// sum is a temporary that is f32 under every policy: the residual stream, its
// gradient, and what is summed up over a row.
func (m *recorder) sum(name string, shape ...int) gpu.Tensor {
	return m.p.Temp(m.tag+name, gpu.F32, shape...)
}

// forward records everything up to the final norm and returns its output, what
// backward needs, and the last residual with its reciprocal norms.
func (m *recorder) forward(w Weights) (hf, xf, rf gpu.Tensor, layers []saved) {
	c, r := m.c, m.r
	n, d := m.b.B*m.b.T, c.Dim
	m.segments()
	x := m.sum("x0", n, d)
	kernels.Add(r, &kernels.Embed, kernels.EmbedArgs{Out: x, Tokens: m.b.Tokens, W: w.embed()})
	if m.noise.Dropout > 0 {
		m.drop(x, x, gpu.Tensor{}, siteEmbedding)
	}
	for i := range c.Layers {
		act := func(s string, shape ...int) gpu.Tensor { return m.act(fmt.Sprintf("%d.%s", i, s), shape...) }
		sum := func(s string, shape ...int) gpu.Tensor { return m.sum(fmt.Sprintf("%d.%s", i, s), shape...) }
		s := saved{
			x: x, h1: act("h1", n, d), r1: sum("r1", n), qkv: act("qkv", n, c.Q()),
			o: act("o", n, c.Heads*c.C()), lse: sum("lse", m.b.B, c.Heads, m.b.T), x2: sum("x2", n, d),
			h2: act("h2", n, d), r2: sum("r2", n), gu: act("gu", n, 2*c.FFN), a: act("a", n, c.FFN),
		}
		kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: s.h1, Rstd: s.r1, X: s.x, W: w.norm1(i), Eps: float32(c.NormEps)})
		kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: s.qkv, X: s.h1, W: w.qkv(i)})
		kernels.Add(r, &kernels.RoPE, m.rope(s.qkv, false))
		kernels.Add(r, &kernels.Attention, kernels.AttentionArgs{O: s.o, LSE: s.lse, QKV: s.qkv, Seg: m.seg, B: m.b.B, T: m.b.T, H: c.Heads, KV: c.KVHeads, C: c.C()})
		m.branch(s.x2, s.o, w.out(i), s.x, siteAttention(i))
		kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: s.h2, Rstd: s.r2, X: s.x2, W: w.norm2(i), Eps: float32(c.NormEps)})
		kernels.Add(r, &kernels.MatMul, kernels.MatMulArgs{Y: s.gu, X: s.h2, W: w.gateUp(i)})
		kernels.Add(r, &kernels.SwiGLU, kernels.SwiGLUArgs{A: s.a, GU: s.gu})
		x = sum("out", n, d)
		m.branch(x, s.a, w.down(i), s.x2, siteMLP(i))
		layers = append(layers, s)
	}
	hf, rf = m.act("hf", n, d), m.sum("rf", n)
	kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: hf, Rstd: rf, X: x, W: w.norm(), Eps: float32(c.NormEps)})
	return hf, x, rf, layers
}

// segments records where the document of every position starts. Attention and
// positions share one tensor unless only one of the two switches is on.
func (m *recorder) segments() {
	segment := func(name string, mask bool) gpu.Tensor {
		t := m.p.Temp(m.tag+name, gpu.I32, m.b.B/m.copies(), m.b.T)
		kernels.Add(m.r, &kernels.Segments, kernels.SegmentsArgs{Starts: m.b.Starts, Seg: t, Mask: mask})
		return m.repeated(name, t)
	}
	m.seg = segment("seg", m.b.DocMask)
	m.pos = m.seg
	if m.b.ResetPositions && !m.b.DocMask {
		m.pos = segment("pos", true)
	}
}

func (m *recorder) rope(qkv gpu.Tensor, inverse bool) kernels.RoPEArgs {
	return kernels.RoPEArgs{
		QKV: qkv, Cos: m.tab.Cos, Sin: m.tab.Sin, Seg: m.pos, Reset: m.b.ResetPositions, Inverse: inverse,
		B: m.b.B, T: m.b.T, H: m.c.Heads, KV: m.c.KVHeads, C: m.c.C(),
	}
}
