package ensemble

import (
	"context"
	"errors"
	"fmt"
	"math"

	"refrain/kernels/asm"
)

// Weighting is what FitWeights finds.
type Weighting struct {
	// Weights are the factors of the members' logits: none below 0, 1 together, as a softmax
	// of one number a member gives.
	Weights []float64 `json:"weights"`
	Equal   float64   `json:"equal_loss"`  // of equal weights, on the documents fitted on
	Fitted  float64   `json:"fitted_loss"` // of Weights, on the same
	Passes  int       `json:"passes"`      // over these documents
	// Gap bounds by how much any other weights could be better there, nats a token.
	Gap float64 `json:"gap"`
}

const (
	mostPasses = 30
	gapGoal    = 1e-6 // nats a token
)

// FitWeights finds the weights of the members whose weighted sum of logits has the least
// loss on data, which must be documents that neither training nor validation has seen.
// The loss is convex in the weights, so there is one least value; it is searched by
// Newton's method with the constraints kept in the quadratic problem of every step, and
// each step takes a forward pass of every member. Copies of members share a weight in
// whatever way.
func FitWeights(ctx context.Context, o Options, members []Member, data Data) (_ *Weighting, err error) {
	o.Weights, o.Subsets = nil, 0
	if o, err = o.checked(members, data); err != nil {
		return nil, err
	}
	k := len(members)
	c := newCurvature(o, members, data)
	defer c.forward.close(&err)
	r := &Weighting{Weights: make([]float64, k)}
	for i := range r.Weights {
		r.Weights[i] = 1 / float64(k)
	}
	at := quadratic{w: r.Weights}
	if err := c.measure(ctx, &at); err != nil {
		return nil, err
	}
	r.Passes, r.Equal = 1, at.loss
	for ; at.gap() > gapGoal && r.Passes < mostPasses; r.Passes++ {
		next := quadratic{w: at.least()}
		if err := c.measure(ctx, &next); err != nil {
			return nil, err
		}
		for halves := 0; next.loss > at.loss && halves < 8; halves++ { // beyond where the quadratic is good
			for i := range next.w {
				next.w[i] = (next.w[i] + at.w[i]) / 2
			}
			if err := c.measure(ctx, &next); err != nil {
				return nil, err
			}
			r.Passes++
		}
		if next.loss >= at.loss {
			break // what is left is rounding
		}
		at = next
	}
	r.Weights, r.Fitted, r.Gap = at.w, at.loss, at.gap()
	return r, nil
}

// quadratic is the loss around weights: its value, gradient and Hessian, all means over
// targets.
type quadratic struct {
	w    []float64
	loss float64
	g    []float64   // [K]
	h    [][]float64 // [K][K]
}

// gap is the Frank-Wolfe bound on how far the loss is above the least one.
func (q *quadratic) gap() float64 {
	least, mean := math.Inf(1), 0.0
	for i, g := range q.g {
		least, mean = math.Min(least, g), mean+q.w[i]*g
	}
	return math.Max(0, mean-least)
}

// least is where the quadratic is least among weights that are not negative and sum to 1:
// in turn, weight is moved between the two members for which it helps most.
func (q *quadratic) least() []float64 {
	w := append([]float64(nil), q.w...)
	g := append([]float64(nil), q.g...)
	for range 1000 * len(w) {
		from, to := -1, 0
		for i := range w {
			if g[i] < g[to] {
				to = i
			}
			if w[i] > 0 && (from < 0 || g[i] > g[from]) {
				from = i
			}
		}
		if from == to || g[from]-g[to] < 1e-12 {
			break
		}
		step := w[from]
		if bend := q.h[from][from] + q.h[to][to] - 2*q.h[from][to]; bend > 0 {
			step = math.Min(step, (g[from]-g[to])/bend)
		}
		w[from] -= step
		w[to] += step
		for i := range g {
			g[i] += step * (q.h[i][to] - q.h[i][from])
		}
	}
	return w
}

// curvature measures quadratics.
type curvature struct {
	o       Options
	members []Member
	data    Data
	forward forward
	rows    int64
	t, v    int
	stack   [][]float32 // [K][rows,T,V]
	targets []int32
	part    [][]float64 // by position of a row: loss, gradient, upper half of the Hessian
	work    []scratch
}

func newCurvature(o Options, members []Member, data Data) *curvature {
	c := &curvature{o: o, members: members, data: data, forward: forward{o: o, data: data}, t: data.T, v: members[0].Model.Vocab}
	k := len(members)
	row := int64(c.t) * int64(c.v)
	c.rows = max(1, min(data.Set.Rows(), o.Memory/(4*row*int64(k))))
	for range k {
		c.stack = append(c.stack, make([]float32, c.rows*row))
	}
	c.targets = make([]int32, int(c.rows)*c.t)
	for range c.t {
		c.part = append(c.part, make([]float64, 1+k+k*(k+1)/2))
	}
	for range o.Pool.Threads() {
		s := scratch{mean: make([]float32, c.v), exp: make([]float32, c.v)}
		s.sums = append(s.sums, make([]float64, c.v))
		c.work = append(c.work, s)
	}
	return c
}

// measure fills q at its weights. Sums over positions are taken in order.
func (c *curvature) measure(ctx context.Context, q *quadratic) error {
	k := len(c.members)
	total := make([]float64, len(c.part[0]))
	var scored int64
	for first := int64(0); first < c.data.Set.Rows(); first += c.rows {
		end := min(first+c.rows, c.data.Set.Rows())
		for m, member := range c.members {
			err := c.forward.run(ctx, member, first, end, func(row int64, targets []int32, logits []float32) error {
				copy(c.targets[int(row-first)*c.t:], targets)
				copy(c.stack[m][int(row-first)*len(logits):], logits)
				return nil
			})
			if err != nil {
				return err
			}
		}
		for row := first; row < end; row++ {
			at := int(row-first) * c.t
			c.o.Pool.For(c.t, 1, func(worker, lo, hi int) {
				for p := lo; p < hi; p++ {
					if clear(c.part[p]); c.targets[at+p] >= 0 {
						c.position(&c.work[worker], q.w, at+p, c.part[p])
					}
				}
			})
			for p, part := range c.part {
				if c.targets[at+p] >= 0 {
					scored++
				}
				for i, v := range part {
					total[i] += v
				}
			}
		}
	}
	if scored == 0 {
		return errors.New("ensemble: the documents to fit weights on have no targets")
	}
	for i := range total {
		if total[i] /= float64(scored); math.IsNaN(total[i]) || math.IsInf(total[i], 0) {
			return fmt.Errorf("ensemble: the loss of the weights %.3g is %g: a member has diverged, leave it out", q.w, total[0])
		}
	}
	q.loss, q.g, q.h = total[0], total[1:1+k], make([][]float64, k)
	for i := range q.h {
		q.h[i] = make([]float64, k)
	}
	rest := total[1+k:]
	for i := range k {
		for j := i; j < k; j++ {
			q.h[i][j], q.h[j][i], rest = rest[0], rest[0], rest[1:]
		}
	}
	return nil
}

// position writes loss, gradient and Hessian of one target. With p the softmax of the
// weighted logits and x_i those of member i, the gradient is E_p[x_i] - x_i[target] and
// the Hessian the covariance of x_i and x_j under p.
func (c *curvature) position(w *scratch, weights []float64, at int, out []float64) {
	k, target := len(c.members), int(c.targets[at])
	x := func(m int) []float32 { return c.stack[m][at*c.v : (at+1)*c.v] }
	for m := range k {
		accumulateWeighted(w.mean, w.sums[0], x(m), weights[m], m == 0)
	}
	_, logp := w.loss(w.mean, target)
	// The exponentials once more, as probabilities.
	sum := float64(asm.ExpSum(w.exp, w.mean, 1, asm.Max(w.mean)))
	asm.Scale(w.exp, float32(1/sum))
	out[0] = -logp
	for m := range k {
		out[1+m] = float64(asm.Dot(w.exp, x(m)))
	}
	at2 := 1 + k
	for i := range k {
		for j := i; j < k; j++ {
			out[at2] = float64(asm.Dot3(w.exp, x(i), x(j))) - out[1+i]*out[1+j]
			at2++
		}
	}
	for m := range k {
		out[1+m] -= float64(x(m)[target])
	}
}
