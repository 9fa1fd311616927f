package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/internal/par"
	"refrain/kernels/asm"
)

// softTargets is the bound form of SoftTargets.
type softTargets struct {
	pool          *par.Pool
	z, p, entropy []float32
	ids           []int32
	n, v, k       int
	scale         float32
	rows          func(worker, lo, hi int)
}

func softTargetsFast(h gpu.Host, a *SoftTargetsArgs) func() {
	s := &softTargets{
		pool: h.Pool(), z: gpu.Float32s(h, a.Logits), entropy: gpu.Float32s(h, a.Entropy),
		n: a.Logits.Dim(0), v: a.Logits.Dim(1), scale: a.Scale,
	}
	s.rows = s.all
	if a.sparse() {
		s.ids, s.p, s.k = gpu.Int32s(h, a.IDs), gpu.Float32s(h, a.P), a.IDs.Dim(1)
		s.rows = s.likeliest
	}
	return func() { s.pool.For(s.n, 4, s.rows) }
}

// all replaces whole rows.
func (s *softTargets) all(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		s.entropy[i] = softmaxRow(s.z[i*s.v:(i+1)*s.v], s.scale)
	}
}

// softmaxRow replaces z by softmax(scale*z) and returns its entropy.
func softmaxRow(z []float32, scale float32) (entropy float32) {
	var before [halfRun]float32
	top := scale * asm.Max(z)
	var sum, mean float64
	for r := z; len(r) > 0; r = r[min(halfRun, len(r)):] {
		part := r[:min(halfRun, len(r))]
		was := before[:len(part)]
		copy(was, part)
		sum += float64(asm.ExpSum(part, part, scale, top))
		mean += float64(asm.Dot(was, part))
	}
	asm.Scale(z, float32(1/sum))
	return float32(math.Log(sum) + float64(top) - float64(scale)*mean/sum)
}

// likeliest picks the first k of rows.
func (s *softTargets) likeliest(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		ids, best := s.ids[i*s.k:(i+1)*s.k], s.p[i*s.k:(i+1)*s.k]
		pick(ids, best, s.z[i*s.v:(i+1)*s.v])
		s.entropy[i] = softmaxRow(best, s.scale)
	}
}

// pick leaves in ids and best the largest of z, the largest first and the lower id first
// among equals. While it looks, they are a heap whose first entry is the one to go next.
func pick(ids []int32, best, z []float32) {
	k := len(ids)
	for i := range k {
		ids[i], best[i] = int32(i), z[i]
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(ids, best, i)
	}
	for i := k; i < len(z); i++ {
		if z[i] > best[0] { // an equal one has a higher id
			ids[0], best[0] = int32(i), z[i]
			sink(ids, best, 0)
		}
	}
	for n := k - 1; n > 0; n-- { // the one to go next is the last in order
		ids[0], ids[n] = ids[n], ids[0]
		best[0], best[n] = best[n], best[0]
		sink(ids[:n], best[:n], 0)
	}
}

// sink moves entry i down to where all below it come later in order than it, which is:
// goes before them.
func sink(ids []int32, best []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(ids) {
			return
		}
		if c+1 < len(ids) && goesFirst(ids, best, c+1, c) {
			c++
		}
		if !goesFirst(ids, best, c, i) {
			return
		}
		ids[i], ids[c] = ids[c], ids[i]
		best[i], best[c] = best[c], best[i]
		i = c
	}
}

// goesFirst tells whether entry i leaves the heap before entry j: its logit is smaller, or
// equal with a higher id.
func goesFirst(ids []int32, best []float32, i, j int) bool {
	return best[i] < best[j] || best[i] == best[j] && ids[i] > ids[j]
}

// softLoss is what the bound form of HeadDistill has beside that of HeadLoss.
type softLoss struct {
	q, p, entropy []float32
	ids           []int32
	k             int
	weight, temp  float32
	warm          []float32 // [threads,V]: exponentials at temp; nil where temp is 1
}

func headDistillFast(h gpu.Host, a *HeadDistillArgs) func() {
	s := softLoss{entropy: gpu.Float32s(h, a.Entropy), weight: a.Weight, temp: a.Temperature}
	if a.sparse() {
		s.ids, s.p, s.k = gpu.Int32s(h, a.IDs), gpu.Float32s(h, a.P), a.IDs.Dim(1)
	} else {
		s.q = gpu.Float32s(h, a.Q)
	}
	if s.temp != 1 {
		s.warm = h.Scratch("head_distill.row", h.Pool().Threads()*a.W.Dim(0))
	}
	base := a.base()
	if a.X.DType == gpu.BF16 {
		l := bindHead16(h, &base)
		l.soft, l.rows = s, l.distillRows
		return l.run
	}
	l := bindHead32(h, &base)
	l.soft, l.rows = s, l.distillRows
	return l.run
}

// distillRows is softmaxRows with the second term.
func (l *headLoss[E]) distillRows(worker, lo, hi int) {
	s := &l.soft
	for i := lo; i < hi; i++ {
		row, at := l.logits[i*l.v:(i+1)*l.v], l.first+i
		target := l.targets[at]
		checkTarget(at, target, l.v)
		if target < 0 {
			l.loss[at] = 0 // as in softmaxRows
			continue
		}
		z, top := row[target], asm.Max(row)
		weight, temp := float64(s.weight), float64(s.temp)
		mean := s.mean(row, at)
		warm, warmSum, warmTop := row, 0.0, top
		if s.warm != nil {
			warm, warmTop = s.warm[worker*l.v:(worker+1)*l.v], (1/s.temp)*top
			warmSum = expRow(warm, row, 1/s.temp, warmTop)
		}
		sum := expRow(row, row, 1, top)
		if s.warm == nil {
			warmSum = sum
		}
		ce := float64(top) - float64(z) + math.Log(sum)
		kl := float64(warmTop) + math.Log(warmSum) - mean/temp - float64(s.entropy[at])
		// Products that are rounded before they are added, on every processor.
		l.loss[at] = float32(float64((1-weight)*ce) + float64(weight*temp*temp*kl))
		if l.scale == nil {
			continue
		}
		scale := float64(l.scale[0])
		if s.warm == nil {
			asm.Scale(row, float32(scale/sum))
		} else {
			asm.Scale(row, float32(scale*(1-weight)/sum))
			asm.Axpy(row, warm, float32(scale*weight*temp/warmSum))
		}
		row[target] -= float32(scale * (1 - weight))
		s.subtract(row, at, float32(scale*weight*temp))
	}
}

// mean is the mean of logits z under the teacher's probabilities of row at.
func (s *softLoss) mean(z []float32, at int) (sum float64) {
	if s.q == nil {
		for j, id := range s.ids[at*s.k : (at+1)*s.k] {
			sum += float64(float64(s.p[at*s.k+j]) * float64(z[id]))
		}
		return sum
	}
	q := s.q[at*len(z) : (at+1)*len(z)]
	for len(q) > 0 {
		n := min(halfRun, len(q))
		sum += float64(asm.Dot(q[:n], z[:n]))
		q, z = q[n:], z[n:]
	}
	return sum
}

// subtract takes factor times the teacher's probabilities of row at from dz.
func (s *softLoss) subtract(dz []float32, at int, factor float32) {
	if s.q == nil {
		for j, id := range s.ids[at*s.k : (at+1)*s.k] {
			dz[id] -= float32(factor * s.p[at*s.k+j])
		}
		return
	}
	asm.Axpy(dz, s.q[at*len(dz):(at+1)*len(dz)], -factor)
}
