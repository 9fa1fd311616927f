package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"refrain/internal/num"
	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/kernels/gemm"
)

// GEMMConfig measures the packed matrix product on its 27 shapes.
type GEMMConfig struct {
	Threads []int // for instance 1 and 2
	Rounds  int   // samples of every shape; the best counts
	Alloc   func(n int) []float32
	// Peer, when not nil, is asked for the best GFLOP/s of the same product
	// between our samples.
	Peer func(ctx context.Context, s gemm.Shape, threads int) (float64, error)
}

// GEMM returns a line for every shape and number of threads, and for every
// number of threads a last line with the geometric means.
func GEMM(ctx context.Context, c GEMMConfig, emit func(Line)) error {
	for _, threads := range c.Threads {
		if err := gemmThreads(ctx, c, threads, emit); err != nil {
			return err
		}
	}
	return nil
}

func gemmThreads(ctx context.Context, c GEMMConfig, threads int, emit func(Line)) error {
	pool := par.New(threads)
	defer pool.Close()
	scratch := gemm.NewScratch(threads, c.Alloc)
	var logShare, logRatio float64
	for _, s := range gemm.Shapes() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		best, share, per := gemmShape(pool, scratch, s, c.Rounds, c.Alloc)
		l := Line{Name: fmt.Sprintf("GEMM/shape=%v/threads=%d", s, threads), Threads: threads, N: c.Rounds, PerOp: per,
			Metrics: []Metric{{best / 1e9, "GFLOP/s"}, {share, "of-peak"}}}
		logShare += math.Log(share)
		if c.Peer != nil {
			peer, err := c.Peer(ctx, s, threads)
			if err != nil {
				return err
			}
			l.Metrics = append(l.Metrics, Metric{peer, "peer-GFLOP/s"}, Metric{best / 1e9 / peer, "x-peer"})
			logRatio += math.Log(best / 1e9 / peer)
		}
		emit(l)
	}
	n := float64(len(gemm.Shapes()))
	all := Line{Name: fmt.Sprintf("GEMM/geomean/threads=%d", threads), Threads: threads, N: 1, Metrics: []Metric{{math.Exp(logShare / n), "of-peak"}}}
	if c.Peer != nil {
		all.Metrics = append(all.Metrics, Metric{math.Exp(logRatio / n), "x-peer"})
	}
	emit(all)
	return nil
}

// gemmShape alternates samples of the product and of the peak.
func gemmShape(pool *par.Pool, scratch *gemm.Scratch, s gemm.Shape, rounds int, alloc func(int) []float32) (best, share float64, per time.Duration) {
	if alloc == nil {
		alloc = func(n int) []float32 { return make([]float32, n) }
	}
	a, b, out := alloc(s.M*s.K), alloc(s.K*s.N), alloc(s.M*s.N)
	r := num.NewStream("bench gemm", 1)
	for i := range a {
		a[i] = float32(r.Float64(uint64(i))) - 0.5
	}
	for i := range b {
		b[i] = float32(r.Float64(uint64(i)+1<<40)) - 0.5
	}
	lda, ldb, ldc := s.Strides()
	plan := gemm.NewPlan(scratch, pool, s.TransA(), s.TransB(), s.M, s.N, s.K, lda, ldb, ldc, false)
	flops := make([]int, pool.Threads()*16)
	peakBody := func(w int) { flops[w*16] = asm.FMAPeak(50_000) }
	plan.Run(a, b, out)
	var peak float64
	var times []time.Duration
	for range rounds {
		t0 := time.Now()
		plan.Run(a, b, out)
		d := time.Since(t0)
		times = append(times, d)
		best = max(best, s.FLOPs()/d.Seconds())
		t0 = time.Now()
		pool.Run(peakBody)
		d = time.Since(t0)
		total := 0
		for w := range pool.Threads() {
			total += flops[w*16]
		}
		peak = max(peak, float64(total)/d.Seconds())
	}
	return best, best / peak, median(times)
}
