package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/internal/par"
	"refrain/kernels"
	"refrain/kernels/asm"
)

// passWidth is the length of a row where an op has rows.
const passWidth = 1024

// passes are ops that read and write each element once, on one device.
type passes struct {
	dev   gpu.Device
	q     gpu.Queue
	elems int // of an array
	data  []float32
	ops   []pass
}

// pass is an op, ready to run, and the bytes that it cannot avoid to move.
type pass struct {
	name   string
	bound  gpu.Bound
	bytes  float64
	ratios []float64
	times  []time.Duration
}

// Passes returns, for every number of threads, a line for each op that is bound by
// memory: its bytes a second over those of a plain copy in the same round (of-copy).
func Passes(ctx context.Context, c KernelsConfig, threads []int, emit func(Line)) error {
	for _, n := range threads {
		if err := passesOn(ctx, c, n, emit); err != nil {
			return err
		}
	}
	return nil
}

func passesOn(ctx context.Context, c KernelsConfig, threads int, emit func(Line)) (err error) {
	p := &passes{elems: c.Elems, data: make([]float32, 2*c.Elems)}
	r := num.NewStream("bench passes", 1)
	for i := range p.data {
		p.data[i] = float32(r.Float64(uint64(i))) // second moments are not negative
	}
	if p.dev, err = host.New(host.Config{Threads: threads}).Open(0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.dev.Close()) }()
	if p.q, err = p.dev.NewQueue("bench"); err != nil {
		return err
	}
	if err := p.record(ctx); err != nil {
		return err
	}
	p.data = nil
	for round := range c.Rounds + 1 { // the first is not counted
		var copied float64
		for i := range p.ops {
			o := &p.ops[i]
			best := time.Duration(math.MaxInt64)
			for range 3 {
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				t0 := time.Now()
				if err := errors.Join(p.q.Do(o.bound), p.q.Sync(ctx)); err != nil {
					return err
				}
				best = min(best, time.Since(t0))
			}
			rate := o.bytes / best.Seconds()
			if i == 0 {
				copied = rate
			}
			if round > 0 {
				o.ratios, o.times = append(o.ratios, rate/copied), append(o.times, best)
			}
		}
	}
	for _, o := range p.ops {
		lo, mid, hi := Quartiles(o.ratios)
		t := median(o.times)
		emit(Line{Name: fmt.Sprintf("Kernels/op=%s/threads=%d", o.name, threads), Threads: threads, N: 3 * c.Rounds, PerOp: t,
			Metrics: []Metric{{o.bytes / t.Seconds() / 1e9, "GB/s"}, {mid, "of-copy"}, {lo, "of-copy-q1"}, {hi, "of-copy-q3"}}})
	}
	return nil
}

// array is a tensor with random content; without content its memory would be one page
// of zeros that is read again and again.
func (p *passes) array(ctx context.Context, shape ...int) (t gpu.Tensor, err error) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	t = shaped(shape...)
	if t.Span, err = p.dev.Alloc(int64(n)*4, "bench"); err != nil {
		return t, err
	}
	return t, gpu.UploadFloats(ctx, p.dev, p.q, t.Span, p.data[:n])
}

// shaped is a float32 tensor without memory.
func shaped(shape ...int) gpu.Tensor {
	t := gpu.Tensor{DType: gpu.F32, Rank: int8(len(shape))}
	for i, d := range shape {
		t.Shape[i] = int32(d)
	}
	return t
}

// record prepares the ops.
func (p *passes) record(ctx context.Context) error {
	rows := p.elems / passWidth
	var t []gpu.Tensor
	for _, shape := range [][]int{{rows, passWidth}, {rows, passWidth}, {rows, 2 * passWidth}, {rows}, {passWidth}, {rows, passWidth}} {
		x, err := p.array(ctx, shape...)
		if err != nil {
			return err
		}
		t = append(t, x)
	}
	out, x, wide, rstd, w, v := t[0], t[1], t[2], t[3], t[4], t[5]
	hyper, one, halt := shaped(8), shaped(1), shaped(1)
	halt.DType = gpu.I32
	values := kernels.AdamHyper(1e-3, 0.9, 0.95, 1e-8, 10)
	for _, s := range []struct {
		t    *gpu.Tensor
		data []float32
	}{{&hyper, values[:]}, {&one, []float32{1}}, {&halt, []float32{0}}} {
		span, err := p.dev.Alloc(int64(len(s.data))*4, "bench")
		if err != nil {
			return err
		}
		if err := gpu.UploadFloats(ctx, p.dev, p.q, span, s.data); err != nil {
			return err
		}
		s.t.Span = span
	}
	gradient, moment := shaped(rows, passWidth), shaped(rows, passWidth) // the halves of the wide array
	half := wide.Span.Len / 2
	gradient.Span, moment.Span = wide.Sub(0, half), wide.Sub(half, half)
	return errors.Join( // the copy first
		addPass(p, &kernels.Copy, kernels.CopyArgs{Dst: out, Src: x}),
		addPass(p, &kernels.RMSNorm, kernels.RMSNormArgs{Out: out, Rstd: rstd, X: x, W: w, Eps: 1e-5}),
		addPass(p, &kernels.SwiGLU, kernels.SwiGLUArgs{A: out, GU: wide}),
		addPass(p, &kernels.AdamW, kernels.AdamWArgs{P: x, G: gradient, M: moment, V: v, Hyper: hyper, Scale: one, Halt: halt, WeightDecay: 0.1, LRMul: 1}),
	)
}

// addPass binds one op.
func addPass[A any](p *passes, k *kernels.Kernel[A], a A) error {
	op, err := k.Op(a)
	if err != nil {
		return err
	}
	b, err := p.dev.Bind(op, func(s gpu.Span) gpu.Span { return s })
	if err != nil {
		return err
	}
	p.ops = append(p.ops, pass{name: k.Name, bound: b, bytes: op.Cost().Bytes})
	return nil
}

// Small measures what is not bound by memory: the exponential against the standard
// library's, and an empty parallel region of several threads.
func Small(ctx context.Context, c KernelsConfig, emit func(Line)) error {
	x, y := make([]float32, 4096), make([]float32, 4096)
	for i := range x {
		x[i] = -float32(i%64) / 8
	}
	var ratios, ours []float64
	for range c.Rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		fast := bestOf(20, 20, func() { asm.ExpSum(y, x, 1, 0) })
		slow := bestOf(20, 5, func() {
			for i, v := range x {
				y[i] = float32(math.Exp(float64(v)))
			}
		})
		ratios, ours = append(ratios, slow.Seconds()/fast.Seconds()), append(ours, float64(fast.Nanoseconds())/float64(len(x)))
	}
	lo, mid, hi := Quartiles(ratios)
	_, per, _ := Quartiles(ours)
	emit(Line{Name: "Kernels/exp", Threads: 1, N: c.Rounds, PerOp: time.Duration(per * float64(len(x))),
		Metrics: []Metric{{per, "ns/element"}, {mid, "x-math.Exp"}, {lo, "x-math.Exp-q1"}, {hi, "x-math.Exp-q3"}}})
	if c.Threads < 2 {
		return nil
	}
	pool := par.New(c.Threads)
	defer pool.Close()
	var empty []time.Duration
	for range 50 * c.Rounds {
		t0 := time.Now()
		pool.Run(func(int) {})
		empty = append(empty, time.Since(t0))
	}
	slices.Sort(empty)
	med := median(empty)
	emit(Line{Name: fmt.Sprintf("Kernels/region/threads=%d", c.Threads), Threads: c.Threads, N: len(empty), PerOp: med,
		Metrics: []Metric{{float64(med.Nanoseconds()) / 1e3, "us"}, {float64(empty[len(empty)/4].Nanoseconds()) / 1e3, "us-q1"}, {float64(empty[3*len(empty)/4].Nanoseconds()) / 1e3, "us-q3"}}})
	return nil
}

// bestOf is the least time of a call over samples of a few calls each.
func bestOf(samples, calls int, f func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for range samples {
		t0 := time.Now()
		for range calls {
			f()
		}
		best = min(best, time.Since(t0)/time.Duration(calls))
	}
	return best
}
