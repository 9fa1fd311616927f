package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/kernels/gemm"
)

// expRun is how many exponentials one assembly call does: about 15 us, so that
// the garbage collector is never kept waiting.
const expRun = 1 << 15

// headLoss is the bound form of HeadLoss over hidden states and a head stored as E.
type headLoss[E gemm.Elem] struct {
	pool           *par.Pool
	loss, dw       []float32
	x, w, dx       []E
	scale, logits  []float32
	targets        []int32
	n, v, d, chunk int
	full, tail     headProducts[E]
	accumulate     bool
	rows           func(worker, lo, hi int) // work on rows of the chunk at first
	first          int                      // token of the chunk's first row
	clean          []E                      // [Chunk,D]: hidden states of a chunk with zeros where masked
	soft           softLoss                 // what HeadDistill adds
}

// headProducts are the products of one chunk size. inputs and weights take the
// gradient of the logits; weights adds to dw where add is 1.
type headProducts[E gemm.Elem] interface {
	logits(x, w []E, logits []float32)
	inputs(dlogits []float32, w, dx []E)
	weights(add int, dlogits []float32, x []E, dw []float32)
}

// headPlans are those in f32. add[1] adds to dw, add[0] does not.
type headPlans struct {
	score, dx *gemm.Plan
	dw        [2]*gemm.Plan
}

func (p *headPlans) logits(x, w, logits []float32)        { p.score.Run(x, w, logits) }
func (p *headPlans) inputs(dlogits, w, dx []float32)      { p.dx.Run(dlogits, w, dx) }
func (p *headPlans) weights(add int, dl, x, dw []float32) { p.dw[add].Run(dl, x, dw) }

// headPlans16 are those in bf16; the gradient of the logits, which is f32, is
// rounded while it is packed.
type headPlans16 struct {
	score *gemm.Plan16[uint16, uint16]
	dx    *gemm.Plan16[float32, uint16]
	dw    [2]*gemm.Plan16[float32, uint16]
}

func (p *headPlans16) logits(x, w []uint16, logits []float32) { p.score.Run(x, w, logits) }
func (p *headPlans16) inputs(dl []float32, w, dx []uint16)    { p.dx.RunRounded(dl, w, dx) }
func (p *headPlans16) weights(add int, dl []float32, x []uint16, dw []float32) {
	p.dw[add].Run(dl, x, dw)
}

func headLossFast(h gpu.Host, a *HeadLossArgs) func() {
	if a.X.DType == gpu.BF16 {
		l := bindHead16(h, a)
		l.rows = l.softmaxRows
		return l.run
	}
	l := bindHead32(h, a)
	l.rows = l.softmaxRows
	return l.run
}

func bindHead16(h gpu.Host, a *HeadLossArgs) *headLoss[uint16] {
	clean := halves(h.Scratch("head_loss.x", (a.Logits.Dim(0)*a.X.Dim(1)+1)/2))
	return bindHead(h, a, gpu.BF16s, clean, newHeadPlans16)
}

func bindHead32(h gpu.Host, a *HeadLossArgs) *headLoss[float32] {
	return bindHead(h, a, gpu.Float32s, h.Scratch("head_loss.x", a.Logits.Dim(0)*a.X.Dim(1)), newHeadPlans)
}

// bindHead binds a, whose hidden states and head view resolves. What is done with rows of
// logits is the caller's to say.
func bindHead[E gemm.Elem](h gpu.Host, a *HeadLossArgs, view func(gpu.Host, gpu.Tensor) []E, clean []E, plans func(h gpu.Host, m, v, d int) headProducts[E]) *headLoss[E] {
	l := &headLoss[E]{
		pool: h.Pool(), loss: gpu.Float32s(h, a.Loss), x: view(h, a.X), w: view(h, a.W),
		logits: gpu.Float32s(h, a.Logits), targets: gpu.Int32s(h, a.Targets),
		n: a.X.Dim(0), v: a.W.Dim(0), d: a.W.Dim(1), chunk: a.Logits.Dim(0), accumulate: a.AccumulateDW,
		clean: clean,
	}
	if a.grads() {
		l.scale = gpu.Float32s(h, a.Scale)
	}
	if !a.DX.IsZero() {
		l.dx = view(h, a.DX)
	}
	if !a.DW.IsZero() {
		l.dw = gpu.Float32s(h, a.DW)
	}
	l.full = plans(h, l.chunk, l.v, l.d)
	if r := l.n % l.chunk; r != 0 {
		l.tail = plans(h, r, l.v, l.d)
	}
	return l
}

func newHeadPlans(h gpu.Host, m, v, d int) headProducts[float32] {
	s, pool := packing(h), h.Pool()
	p := &headPlans{
		score: gemm.NewPlan(s, pool, false, true, m, v, d, d, d, v, false),
		dx:    gemm.NewPlan(s, pool, false, false, m, d, v, v, d, d, false),
	}
	for i, accumulate := range []bool{false, true} {
		p.dw[i] = gemm.NewPlan(s, pool, true, false, v, d, m, v, d, d, accumulate)
	}
	return p
}

func newHeadPlans16(h gpu.Host, m, v, d int) headProducts[uint16] {
	s, pool := packing(h), h.Pool()
	p := &headPlans16{
		score: gemm.NewPlan16[uint16, uint16](s, pool, false, true, m, v, d, d, d, v, false),
		dx:    gemm.NewPlan16[float32, uint16](s, pool, false, false, m, d, v, v, d, d, false),
	}
	for i, accumulate := range []bool{false, true} {
		p.dw[i] = gemm.NewPlan16[float32, uint16](s, pool, true, false, v, d, m, v, d, d, accumulate)
	}
	return p
}

func (l *headLoss[E]) run() {
	written := 0 // 1 once dw holds something to add to
	if l.accumulate {
		written = 1
	}
	for l.first = 0; l.first < l.n; l.first += l.chunk {
		m := min(l.chunk, l.n-l.first)
		p := l.full
		if m < l.chunk {
			p = l.tail
		}
		x := l.x[l.first*l.d : (l.first+m)*l.d]
		switch l.masked(m) {
		case m:
			clear(l.loss[l.first : l.first+m])
			if l.dx != nil {
				clear(l.dx[l.first*l.d : (l.first+m)*l.d])
			}
			continue
		case 0:
		default:
			x = l.withoutMasked(x)
		}
		p.logits(x, l.w, l.logits)
		l.pool.For(m, 4, l.rows)
		if l.dx != nil {
			p.inputs(l.logits, l.w, l.dx[l.first*l.d:])
		}
		if l.dw != nil {
			p.weights(written, l.logits, x, l.dw)
			written = 1
		}
	}
	if l.dw != nil && written == 0 {
		clear(l.dw)
	}
}

// masked counts the masked rows of a chunk of m.
func (l *headLoss[E]) masked(m int) (count int) {
	for _, target := range l.targets[l.first : l.first+m] {
		if target == -1 {
			count++
		}
	}
	return count
}

// withoutMasked copies the chunk's hidden states with zeros for masked rows, so
// that what stands there cannot reach dw even when it is not finite.
func (l *headLoss[E]) withoutMasked(x []E) []E {
	copy(l.clean, x)
	for i := range len(x) / l.d {
		if l.targets[l.first+i] == -1 {
			clear(l.clean[i*l.d : (i+1)*l.d])
		}
	}
	return l.clean[:len(x)]
}

// expRow sets dst to exp(x*scale - sub) and returns the sum. dst may be x.
func expRow(dst, x []float32, scale, sub float32) (sum float64) {
	for len(x) > 0 {
		n := min(expRun, len(x))
		sum += float64(asm.ExpSum(dst[:n], x[:n], scale, sub))
		dst, x = dst[n:], x[n:]
	}
	return sum
}

// softmaxRows turns logits of rows [lo,hi) of the chunk into losses and, where
// gradients are wanted, into the logits' gradient.
func (l *headLoss[E]) softmaxRows(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		row, target := l.logits[i*l.v:(i+1)*l.v], l.targets[l.first+i]
		checkTarget(l.first+i, target, l.v)
		if target < 0 {
			// Its row of logits is zero already, as its hidden state was: that is
			// the gradient of a row that does not count.
			l.loss[l.first+i] = 0
			continue
		}
		z, top := row[target], asm.Max(row)
		sum := expRow(row, row, 1, top)
		l.loss[l.first+i] = float32(float64(top) - float64(z) + math.Log(sum))
		if l.scale == nil {
			continue
		}
		s := l.scale[0]
		asm.Scale(row, float32(float64(s)/sum))
		row[target] -= s
	}
}
