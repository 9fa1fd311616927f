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

// headLoss is the bound form of HeadLoss.
type headLoss struct {
	pool               *par.Pool
	loss, x, w, dx, dw []float32
	scale, logits      []float32
	targets            []int32
	n, v, d, chunk     int
	full, tail         headPlans
	accumulate         bool
	rows               func(worker, lo, hi int) // work on rows of the chunk at first
	first              int                      // token of the chunk's first row
	clean              []float32                // [Chunk,D]: hidden states of a chunk with zeros where masked
}

// headPlans are the products of one chunk size. dw[1] adds to dw, dw[0] does not.
type headPlans struct {
	logits, dx *gemm.Plan
	dw         [2]*gemm.Plan
}

func headLossFast(h gpu.Host, a *HeadLossArgs) func() {
	if a.X.DType == gpu.BF16 {
		return nil
	}
	l := &headLoss{
		pool: h.Pool(), loss: gpu.Float32s(h, a.Loss), x: gpu.Float32s(h, a.X), w: gpu.Float32s(h, a.W),
		logits: gpu.Float32s(h, a.Logits), targets: gpu.Int32s(h, a.Targets),
		n: a.X.Dim(0), v: a.W.Dim(0), d: a.W.Dim(1), chunk: a.Logits.Dim(0), accumulate: a.AccumulateDW,
	}
	if a.grads() {
		l.scale = gpu.Float32s(h, a.Scale)
	}
	if !a.DX.IsZero() {
		l.dx = gpu.Float32s(h, a.DX)
	}
	if !a.DW.IsZero() {
		l.dw = gpu.Float32s(h, a.DW)
	}
	l.clean = h.Scratch("head_loss.x", l.chunk*l.d)[:l.chunk*l.d]
	l.full = l.plans(h, l.chunk)
	if r := l.n % l.chunk; r != 0 {
		l.tail = l.plans(h, r)
	}
	l.rows = l.softmaxRows
	return l.run
}

func (l *headLoss) plans(h gpu.Host, m int) (p headPlans) {
	s := packing(h)
	p.logits = gemm.NewPlan(s, l.pool, false, true, m, l.v, l.d, l.d, l.d, l.v, false)
	if l.dx != nil {
		p.dx = gemm.NewPlan(s, l.pool, false, false, m, l.d, l.v, l.v, l.d, l.d, false)
	}
	if l.dw != nil {
		for i, accumulate := range []bool{false, true} {
			p.dw[i] = gemm.NewPlan(s, l.pool, true, false, l.v, l.d, m, l.v, l.d, l.d, accumulate)
		}
	}
	return p
}

func (l *headLoss) run() {
	written := 0 // 1 once dw holds something to add to
	if l.accumulate {
		written = 1
	}
	for l.first = 0; l.first < l.n; l.first += l.chunk {
		m := min(l.chunk, l.n-l.first)
		p := &l.full
		if m < l.chunk {
			p = &l.tail
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
		p.logits.Run(x, l.w, l.logits)
		l.pool.For(m, 4, l.rows)
		if l.dx != nil {
			p.dx.Run(l.logits, l.w, l.dx[l.first*l.d:])
		}
		if l.dw != nil {
			p.dw[written].Run(l.logits, x, l.dw)
			written = 1
		}
	}
	if l.dw != nil && written == 0 {
		clear(l.dw)
	}
}

// masked counts the masked rows of a chunk of m.
func (l *headLoss) masked(m int) (count int) {
	for _, target := range l.targets[l.first : l.first+m] {
		if target == -1 {
			count++
		}
	}
	return count
}

// withoutMasked copies the chunk's hidden states with zeros for masked rows, so
// that what stands there cannot reach dw even when it is not finite.
func (l *headLoss) withoutMasked(x []float32) []float32 {
	copy(l.clean, x)
	for i := range len(x) / l.d {
		if l.targets[l.first+i] == -1 {
			clear(l.clean[i*l.d : (i+1)*l.d])
		}
	}
	return l.clean[:len(x)]
}

// softmaxRows turns logits of rows [lo,hi) of the chunk into losses and, where
// gradients are wanted, into the logits' gradient.
func (l *headLoss) softmaxRows(_, lo, hi int) {
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
		var sum float64
		for r := row; len(r) > 0; r = r[min(expRun, len(r)):] {
			part := r[:min(expRun, len(r))]
			sum += float64(asm.ExpSum(part, part, 1, top))
		}
		l.loss[l.first+i] = float32(float64(top) - float64(z) + math.Log(sum))
		if l.scale == nil {
			continue
		}
		s := l.scale[0]
		asm.Scale(row, float32(float64(s)/sum))
		row[target] -= s
	}
}
