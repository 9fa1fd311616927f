package bench

import (
	"context"
	"fmt"
	"math"
	"time"
	"unsafe"

	"refrain/internal/num"
	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/kernels/gemm"
)

// GEMMKind says which product is measured.
type GEMMKind struct {
	Precision string // of the terms: f32 or bf16. Sums are float32
	Operands  string // how A, B and C are stored: f32 or bf16. Of bf16 products only
}

// GEMMKinds returns what is measured at a precision: at bf16 the product of
// matrices that are stored as bfloat16, and that of float32 matrices with their
// conversion.
func GEMMKinds(precision string) []GEMMKind {
	if precision == "bf16" {
		return []GEMMKind{{"bf16", "bf16"}, {"bf16", "f32"}}
	}
	return []GEMMKind{{"f32", "f32"}}
}

// name is the part of a line's name that tells kinds apart.
func (k GEMMKind) name() string {
	if k.Precision == "f32" {
		return ""
	}
	return "/precision=bf16/operands=" + k.Operands
}

// GEMMConfig measures the packed matrix product on its 27 shapes.
type GEMMConfig struct {
	Kinds   []GEMMKind
	Threads []int // for instance 1 and 2
	Rounds  int   // samples of every shape, at least, on both sides; the best counts
	Alloc   func(n int) []float32
	// Peer, when not nil, is asked between our samples for the best GFLOP/s of as many
	// samples of the same product.
	Peer func(ctx context.Context, k GEMMKind, s gemm.Shape, threads, samples int) (float64, error)
	Lost Lost
}

// GEMM returns a line for every kind, shape and number of threads, and for every
// kind and number of threads a last line with the geometric means.
func GEMM(ctx context.Context, c GEMMConfig, emit func(Line)) error {
	if c.Alloc == nil {
		c.Alloc = func(n int) []float32 { return make([]float32, n) }
	}
	for _, kind := range c.Kinds {
		for _, threads := range c.Threads {
			if err := gemmThreads(ctx, &c, kind, threads, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	// gemmTurns is how often a shape's samples and the peer's alternate.
	gemmTurns = 3
	// turnFLOPs is what the samples of a turn compute at least, some 15 ms: of a product
	// that takes less than a millisecond few samples are none in which both threads had
	// a core from start to end.
	turnFLOPs = 2e9
	// settle is how long a peer with several threads is left alone before we go on: the
	// threads of OpenBLAS poll for a tenth of a second after a product, those of OpenMP
	// for a fifth, and would take a core from what is measured next. Ours park at once.
	settle = 250 * time.Millisecond
)

// sleep waits for d or returns the cause of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func gemmThreads(ctx context.Context, c *GEMMConfig, kind GEMMKind, threads int, emit func(Line)) error {
	pool := par.New(threads)
	defer pool.Close()
	scratch := gemm.NewScratch(threads, c.Alloc)
	var logShare, logRatio float64
	for _, s := range gemm.Shapes() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		m := gemmSamples{product: kind.product(pool, scratch, s, c.Alloc), flops: s.FLOPs()}
		samples := max((c.Rounds+gemmTurns-1)/gemmTurns, int(turnFLOPs/m.flops))
		var peer float64
		for range gemmTurns {
			m.take(pool, kind.peak(), samples)
			if c.Peer == nil {
				continue
			}
			rate, err := c.Peer(ctx, kind, s, threads, samples)
			if err != nil {
				if err := c.Lost.lose(ctx, "gemm", err); err != nil {
					return err
				}
				c.Peer = nil // and of what it said of this shape nothing counts
				continue
			}
			peer = max(peer, rate)
			if threads > 1 {
				if err := sleep(ctx, settle); err != nil {
					return err
				}
			}
		}
		share := m.best / m.peak
		l := Line{Name: fmt.Sprintf("GEMM/shape=%v%s/threads=%d", s, kind.name(), threads), Threads: threads, N: len(m.times), PerOp: median(m.times),
			Metrics: []Metric{{m.best / 1e9, "GFLOP/s"}, {share, "of-peak"}}}
		logShare += math.Log(share)
		if c.Peer != nil {
			l.Metrics = append(l.Metrics, Metric{peer, "peer-GFLOP/s"}, Metric{m.best / 1e9 / peer, "x-peer"})
			logRatio += math.Log(m.best / 1e9 / peer)
		}
		emit(l)
	}
	n := float64(len(gemm.Shapes()))
	all := Line{Name: fmt.Sprintf("GEMM/geomean%s/threads=%d", kind.name(), threads), Threads: threads, N: 1, Metrics: []Metric{{math.Exp(logShare / n), "of-peak"}}}
	if c.Peer != nil {
		all.Metrics = append(all.Metrics, Metric{math.Exp(logRatio / n), "x-peer"})
	}
	emit(all)
	return nil
}

// peak returns the ceiling of the kind's instructions.
func (k GEMMKind) peak() func(n int) int {
	if k.Precision == "bf16" {
		return asm.PeakBF16
	}
	return asm.FMAPeak
}

// product prepares a product of the kind with operands of its own.
func (k GEMMKind) product(pool *par.Pool, scratch *gemm.Scratch, s gemm.Shape, alloc func(int) []float32) (run func()) {
	a, b := alloc(s.M*s.K), alloc(s.K*s.N)
	r := num.NewStream("bench gemm", 1)
	for i := range a {
		a[i] = float32(r.Float64(uint64(i))) - 0.5
	}
	for i := range b {
		b[i] = float32(r.Float64(uint64(i)+1<<40)) - 0.5
	}
	lda, ldb, ldc := s.Strides()
	switch {
	case k.Precision == "f32":
		c := alloc(s.M * s.N)
		plan := gemm.NewPlan(scratch, pool, s.TransA(), s.TransB(), s.M, s.N, s.K, lda, ldb, ldc, false)
		return func() { plan.Run(a, b, c) }
	case k.Operands == "f32":
		c := alloc(s.M * s.N)
		plan := gemm.NewPlan16[float32, float32](scratch, pool, s.TransA(), s.TransB(), s.M, s.N, s.K, lda, ldb, ldc, false)
		return func() { plan.Run(a, b, c) }
	}
	halves := func(n int) []uint16 { // on the pages that alloc gives
		mem := alloc((n + 1) / 2)
		return unsafe.Slice((*uint16)(unsafe.Pointer(&mem[0])), n)
	}
	ah, bh, c := halves(len(a)), halves(len(b)), halves(s.M*s.N)
	asm.ToBF16(ah, a)
	asm.ToBF16(bh, b)
	plan := gemm.NewPlan16[uint16, uint16](scratch, pool, s.TransA(), s.TransB(), s.M, s.N, s.K, lda, ldb, ldc, false)
	return func() { plan.RunRounded(ah, bh, c) }
}

// gemmSamples are the samples of one product.
type gemmSamples struct {
	product    func()
	flops      float64
	best, peak float64 // FLOP/s
	times      []time.Duration
}

// take alternates n samples of the product and of the peak, after a product that does
// not count.
func (m *gemmSamples) take(pool *par.Pool, peakOf func(n int) int, n int) {
	m.product()
	for range n {
		t0 := time.Now()
		m.product()
		d := time.Since(t0)
		m.times = append(m.times, d)
		m.best = max(m.best, m.flops/d.Seconds())
		m.peak = max(m.peak, peakRate(pool, peakOf))
	}
}
