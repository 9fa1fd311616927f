package ensemble

import (
	"context"
	"math"
	"math/bits"

	"refrain/kernels/asm"
	"refrain/stages/evals"
)

// expRun is how many exponentials are summed in float32 at once. It is that of the loss
// that models are trained and evaluated with, so that one member alone has its bits.
const expRun = 1 << 15

// block works through rows: the members one after the other, and what is left to do when
// all of them have passed.
type block struct {
	o       Options
	members []Member
	data    Data
	forward forward

	rows, bytes int64 // of a block
	first       int64 // its first row
	v, t        int

	sum      []float64    // [rows,T,V] of the logits so far
	weighted []float64    // the same with factors, or nil
	stack    [][]float32  // [K][rows,T,V], or nil
	logp     [][]float64  // [K][rows,T]: log probability of the target
	targets  []int32      // [rows,T]
	work     []scratch    // by worker
	row      [4][]float32 // the losses of a row: one member, means of logits and of probabilities, weighted
	order    []int        // 0 to K-1

	singles, logit, prob []*Tally
	subsets              []Subset
	weightedTally        *Tally
}

// scratch is what one worker needs for one position.
type scratch struct {
	mean, exp []float32
	sums      [][]float64 // by depth of the walk through subsets
}

func newBlock(o Options, members []Member, data Data) *block {
	k := len(members)
	b := &block{o: o, members: members, data: data, v: members[0].Model.Vocab, t: data.T}
	b.forward.o, b.forward.data = o, data
	b.rows, b.bytes = BlockRows(o, k, b.t, b.v, data.Set.Rows())
	n := int(b.rows) * b.t
	b.sum, b.targets = make([]float64, n*b.v), make([]int32, n)
	if o.Weights != nil {
		b.weighted, b.weightedTally = make([]float64, n*b.v), b.tally()
	}
	for i := range k {
		b.order = append(b.order, i)
		b.logp = append(b.logp, make([]float64, n))
		b.singles, b.logit, b.prob = append(b.singles, b.tally()), append(b.logit, b.tally()), append(b.prob, b.tally())
	}
	if k <= o.Subsets {
		for range k {
			b.stack = append(b.stack, make([]float32, n*b.v))
		}
		b.subsets = b.allSubsets()
	}
	for range o.Pool.Threads() {
		s := scratch{mean: make([]float32, b.v), exp: make([]float32, b.v)}
		for range k {
			if b.stack != nil {
				s.sums = append(s.sums, make([]float64, b.v))
			}
		}
		b.work = append(b.work, s)
	}
	for i := range b.row {
		b.row[i] = make([]float32, b.t)
	}
	return b
}

func (b *block) tally() *Tally { return &Tally{Docs: make([]evals.DocLoss, b.data.NumDocs)} }

// allSubsets lists the subsets; those that are measured on the way anyway share the
// tallies.
func (b *block) allSubsets() []Subset {
	all := make([]Subset, 1<<len(b.members)-1)
	for i := range all {
		mask := i + 1
		s := &all[i]
		for m := range b.members {
			if mask>>m&1 == 1 {
				s.Members = append(s.Members, m)
			}
		}
		switch {
		case bits.OnesCount(uint(mask)) == 1:
			s.Logit, s.Prob = b.singles[s.Members[0]], b.singles[s.Members[0]]
		case mask&(mask+1) == 0:
			s.Logit, s.Prob = b.logit[len(s.Members)-1], b.prob[len(s.Members)-1]
		default:
			s.Logit, s.Prob = b.tally(), b.tally()
		}
	}
	return all
}

// run measures rows [from, to).
func (b *block) run(ctx context.Context, from, to int64) error {
	b.first = from
	for k, m := range b.members {
		err := b.forward.run(ctx, m, from, to, func(row int64, targets []int32, logits []float32) error {
			return b.add(k, row, targets, logits)
		})
		if err != nil {
			return err
		}
	}
	for row := from; row < to; row++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.walk(row)
	}
	return nil
}

// add takes the logits of a row of member k.
func (b *block) add(k int, row int64, targets []int32, logits []float32) error {
	at := int(row-b.first) * b.t
	copy(b.targets[at:], targets)
	single, logit, prob, weighted := b.row[0], b.row[1], b.row[2], b.row[3]
	last := k == len(b.members)-1
	b.o.Pool.For(b.t, 1, func(worker, lo, hi int) {
		w := &b.work[worker]
		for p := lo; p < hi; p++ {
			if single[p], logit[p], prob[p], weighted[p] = 0, 0, 0, 0; targets[p] < 0 {
				continue
			}
			x, target := logits[p*b.v:(p+1)*b.v], int(targets[p])
			single[p], b.logp[k][at+p] = w.loss(x, target)
			sum := b.sum[(at+p)*b.v : (at+p+1)*b.v]
			accumulate(w.mean, sum, sum, x, k)
			logit[p], _ = w.loss(w.mean, target)
			prob[p] = b.probLoss(at+p, b.order[:k+1])
			if b.stack != nil {
				copy(b.stack[k][(at+p)*b.v:], x)
			}
			if b.weighted != nil {
				wsum := b.weighted[(at+p)*b.v : (at+p+1)*b.v]
				accumulateWeighted(w.mean, wsum, x, b.o.Weights[k], k == 0)
				if last {
					weighted[p], _ = w.loss(w.mean, target)
				}
			}
		}
	})
	if err := finite(row, single); err != nil {
		return err
	}
	b.count(b.singles[k], row, targets, single)
	b.count(b.logit[k], row, targets, logit)
	b.count(b.prob[k], row, targets, prob)
	if last && b.weighted != nil {
		b.count(b.weightedTally, row, targets, weighted)
	}
	return nil
}

// accumulate leaves in sum what is in before plus the logits of one more member, the
// k-th counted from 0, and in mean the mean so far. before may be sum, and is not read
// for the first member. The reciprocal is not exact for every k, but off by far less
// than a float32 can tell: the mean of equal numbers is that number.
func accumulate(mean []float32, sum, before []float64, x []float32, k int) {
	sum, mean = sum[:len(x)], mean[:len(x)]
	if k == 0 {
		for i, v := range x {
			sum[i], mean[i] = float64(v), v
		}
		return
	}
	share := 1 / float64(k+1)
	before = before[:len(x)]
	for i, v := range x {
		s := before[i] + float64(v)
		sum[i], mean[i] = s, float32(s*share)
	}
}

func accumulateWeighted(total []float32, sum []float64, x []float32, factor float64, begin bool) {
	sum, total = sum[:len(x)], total[:len(x)]
	if begin {
		clear(sum)
	}
	for i, v := range x {
		sum[i] += factor * float64(v)
		total[i] = float32(sum[i])
	}
}

// loss is the cross entropy of logits x, rounded as that of a training step is, and the
// log probability of the target.
func (w *scratch) loss(x []float32, target int) (loss float32, logp float64) {
	top, sum := asm.Max(x), 0.0
	for r := x; len(r) > 0; r = r[min(expRun, len(r)):] {
		part := r[:min(expRun, len(r))]
		sum += float64(asm.ExpSum(w.exp[:len(part)], part, 1, top))
	}
	nll := float64(top) - float64(x[target]) + math.Log(sum)
	return float32(nll), -nll
}

// probLoss is the loss of the mean probability of some members at a position.
func (b *block) probLoss(at int, members []int) float32 {
	top := math.Inf(-1)
	for _, m := range members {
		top = math.Max(top, b.logp[m][at])
	}
	sum := 0.0
	for _, m := range members {
		sum += math.Exp(b.logp[m][at] - top)
	}
	return float32(-(top + math.Log(sum/float64(len(members)))))
}

// walk measures the subsets of a row that add did not.
func (b *block) walk(row int64) {
	if len(b.subsets) <= 3 {
		return // one or two members: nothing is left
	}
	at := int(row-b.first) * b.t
	targets := b.targets[at : at+b.t]
	logit, prob := make([][]float32, len(b.subsets)), make([][]float32, len(b.subsets))
	for i := range b.subsets {
		logit[i], prob[i] = make([]float32, b.t), make([]float32, b.t)
	}
	b.o.Pool.For(b.t, 1, func(worker, lo, hi int) {
		for p := lo; p < hi; p++ {
			if targets[p] >= 0 {
				b.descend(&b.work[worker], at+p, 0, 0, func(i int, mean, ofProbs float32) { logit[i][p], prob[i][p] = mean, ofProbs })
			}
		}
	})
	for i, s := range b.subsets {
		if !b.passing(i + 1) {
			b.count(s.Logit, row, targets, logit[i])
			b.count(s.Prob, row, targets, prob[i])
		}
	}
}

// passing says that a subset is one member, or the first few.
func (b *block) passing(mask int) bool {
	return bits.OnesCount(uint(mask)) == 1 || mask&(mask+1) == 0
}

// descend visits the subsets that are mask and members after its last one. Sums grow
// along the way down, in the order of the members.
func (b *block) descend(w *scratch, at, mask, depth int, found func(i int, mean, ofProbs float32)) {
	target := int(b.targets[at])
	for m := bits.Len(uint(mask)); m < len(b.members); m++ {
		x := b.stack[m][at*b.v : (at+1)*b.v]
		accumulate(w.mean, w.sums[depth], w.sums[max(0, depth-1)], x, depth)
		sub := mask | 1<<m
		if !b.passing(sub) {
			mean, _ := w.loss(w.mean, target)
			found(sub-1, mean, b.probLoss(at, b.subsets[sub-1].Members))
		}
		b.descend(w, at, sub, depth+1, found)
	}
}

// count adds the losses of a row to a tally, as an evaluation of one model does.
func (b *block) count(t *Tally, row int64, targets []int32, loss []float32) {
	var sum float64
	for i, l := range loss {
		sum += float64(l)
		if targets[i] >= 0 {
			t.Tokens++
		}
	}
	t.Sum += sum
	t.Rows++
	evals.ByDocument(t.Docs, b.data.Docs)(row, targets, loss)
}

func (b *block) losses() *Losses {
	finish := func(list ...*Tally) {
		for _, t := range list {
			if t != nil && t.Tokens > 0 {
				t.Loss = t.Sum / float64(t.Tokens)
			}
		}
	}
	finish(b.singles...)
	finish(b.logit...)
	finish(b.prob...)
	finish(b.weightedTally)
	for _, s := range b.subsets {
		finish(s.Logit, s.Prob)
	}
	return &Losses{Singles: b.singles, Logit: b.logit, Prob: b.prob, Subsets: b.subsets, Weighted: b.weightedTally, BlockRows: b.rows, HeldBytes: b.bytes}
}
