package gemm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"refrain/internal/par"
	"refrain/kernels/asm"
)

// peakRounds is one timed sample of asm.FMAPeak: about 40 us on 3 GHz.
const peakRounds = 8000

// BenchmarkPlan runs the 27 shapes with 1 and 2 threads and reports GFLOP/s and
// the share of the multiply-add peak of the same threads, measured between the
// samples of the same run: best sample against best sample.
func BenchmarkPlan(b *testing.B) {
	for _, threads := range []int{1, 2} {
		if threads > runtime.GOMAXPROCS(0) {
			continue
		}
		pool := newPool(b, threads)
		s := NewScratch(threads, nil)
		for _, shape := range Shapes() {
			b.Run(fmt.Sprintf("threads=%d/%v", threads, shape), func(b *testing.B) { benchShape(b, pool, s, shape) })
		}
	}
}

func benchShape(b *testing.B, pool *par.Pool, s *Scratch, shape Shape) {
	r := rand.New(rand.NewPCG(11, 12))
	x, y, z := make([]float32, shape.M*shape.K), make([]float32, shape.K*shape.N), make([]float32, shape.M*shape.N)
	fill(r, x)
	fill(r, y)
	lda, ldb, ldc := shape.Strides()
	plan := NewPlan(s, pool, shape.TransA(), shape.TransB(), shape.M, shape.N, shape.K, lda, ldb, ldc, false)
	flops := make([]int, pool.Threads())
	peak := func(w int) { flops[w] = asm.FMAPeak(peakRounds) }
	var best, bestPeak float64
	for b.Loop() {
		start := time.Now()
		plan.Run(x, y, z)
		best = max(best, shape.FLOPs()/time.Since(start).Seconds())
		start = time.Now()
		pool.Run(peak)
		bestPeak = max(bestPeak, float64(pool.Threads()*flops[0])/time.Since(start).Seconds())
	}
	b.ReportMetric(best/1e9, "GFLOP/s")
	b.ReportMetric(best/bestPeak, "of-peak")
}

// BenchmarkPlan16 runs products of float32 operands and of bfloat16 ones with a
// bfloat16 result, on one thread.
func BenchmarkPlan16(b *testing.B) {
	pool := newPool(b, 1)
	s := NewScratch(1, nil)
	for _, shape := range Shapes() {
		x, y, z := make([]float32, shape.M*shape.K), make([]float32, shape.K*shape.N), make([]float32, shape.M*shape.N)
		r := rand.New(rand.NewPCG(13, 14))
		fill(r, x)
		fill(r, y)
		xh, yh, zh := halfOf(x), halfOf(y), make([]uint16, len(z))
		lda, ldb, ldc := shape.Strides()
		wide := NewPlan16[float32, float32](s, pool, shape.TransA(), shape.TransB(), shape.M, shape.N, shape.K, lda, ldb, ldc, false)
		half := NewPlan16[uint16, uint16](s, pool, shape.TransA(), shape.TransB(), shape.M, shape.N, shape.K, lda, ldb, ldc, false)
		for name, product := range map[string]func(){
			"f32":  func() { wide.Run(x, y, z) },
			"bf16": func() { half.RunRounded(xh, yh, zh) },
		} {
			b.Run(fmt.Sprintf("operands=%s/%v", name, shape), func(b *testing.B) {
				var best, bestPeak float64
				for b.Loop() {
					start := time.Now()
					product()
					best = max(best, shape.FLOPs()/time.Since(start).Seconds())
					start = time.Now()
					flops := asm.PeakBF16(peakRounds)
					bestPeak = max(bestPeak, float64(flops)/time.Since(start).Seconds())
				}
				b.ReportMetric(best/1e9, "GFLOP/s")
				b.ReportMetric(best/bestPeak, "of-peak")
			})
		}
	}
}

// BenchmarkTile runs the micro-kernels alone at depth 256.
func BenchmarkTile(b *testing.B) {
	for _, tiles := range asm.TileSets() {
		b.Run(strings.ReplaceAll(tiles.String(), " ", "-"), func(b *testing.B) { benchTile(b, tiles) })
	}
}

func benchTile(b *testing.B, tiles asm.Tiles) {
	const k = 256
	rows, cols := tiles.Rows(), tiles.Cols()
	x, y, z := make([]float32, k*rows), make([]float32, k*cols), make([]float32, rows*cols)
	var best, bestPeak float64
	for b.Loop() {
		start := time.Now()
		for range 64 {
			tiles.Tile(k, x, y, z, cols, false)
		}
		best = max(best, float64(64*2*k*rows*cols)/time.Since(start).Seconds())
		start = time.Now()
		flops := asm.FMAPeak(peakRounds)
		bestPeak = max(bestPeak, float64(flops)/time.Since(start).Seconds())
	}
	b.ReportMetric(best/1e9, "GFLOP/s")
	b.ReportMetric(best/bestPeak, "of-peak")
}

// BenchmarkSerial runs the products of one attention head, 96 query rows.
func BenchmarkSerial(b *testing.B) {
	s := NewSerial(NewScratch(1, nil))
	for _, shape := range []Shape{{96, 512, 32, NT}, {96, 32, 512, NN}, {512, 32, 96, TN}, {96, 512, 64, NT}, {96, 64, 512, NN}, {512, 64, 96, TN}} {
		b.Run(shape.String(), func(b *testing.B) {
			x, y, z := make([]float32, shape.M*shape.K), make([]float32, shape.K*shape.N), make([]float32, shape.M*shape.N)
			lda, ldb, ldc := shape.Strides()
			for b.Loop() {
				s.Gemm(shape.TransA(), shape.TransB(), shape.M, shape.N, shape.K, x, lda, y, ldb, false, z, ldc)
			}
			b.ReportMetric(shape.FLOPs()*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// BenchmarkTile16 is BenchmarkTile for the bfloat16 micro-kernels.
func BenchmarkTile16(b *testing.B) {
	const k = 512
	for _, tiles := range asm.TileSets16() {
		b.Run(strings.ReplaceAll(tiles.String(), " ", "-"), func(b *testing.B) {
			n := tiles.Words(k)
			x, y, z := make([]uint32, n*tiles.Rows()), make([]uint32, n*tiles.Cols()), make([]float32, asm.MaxTile16)
			var best, bestPeak float64
			for b.Loop() {
				start := time.Now()
				for range 8 {
					tiles.Tile(n, x, y, z, tiles.Cols(), false)
				}
				best = max(best, float64(8*2*k*tiles.Rows()*tiles.Cols())/time.Since(start).Seconds())
				start = time.Now()
				flops := asm.PeakBF16(peakRounds / 4)
				bestPeak = max(bestPeak, float64(flops)/time.Since(start).Seconds())
			}
			b.ReportMetric(best/1e9, "GFLOP/s")
			b.ReportMetric(best/bestPeak, "of-peak")
		})
	}
}

// BenchmarkPack16 packs a block of op(A), 144 x 512, and one of op(B), 1024 wide.
func BenchmarkPack16(b *testing.B) {
	const k, lds = 512, 1200
	wide := make([]float32, 1024*lds)
	for _, half := range []bool{true, false} {
		src := asm.Float32Operand(wide)
		if half {
			src = asm.BF16Operand(make([]uint16, 1024*lds))
		}
		for _, trans := range []bool{false, true} {
			for _, p := range []struct {
				name  string
				lines int
				pack  func(dst []uint32, src asm.Operand, lds int, trans bool, lines, k int)
			}{{"A", 144, asm.BestTiles16().PackA}, {"B", 1024, asm.BestTiles16().PackB}} {
				b.Run(fmt.Sprintf("%s/half=%t/trans=%t", p.name, half, trans), func(b *testing.B) {
					dst := make([]uint32, p.lines*k+asm.PackSlack)
					best := time.Hour
					for b.Loop() {
						start := time.Now()
						p.pack(dst, src, lds, trans, p.lines, k)
						best = min(best, time.Since(start))
					}
					b.ReportMetric(float64(best.Nanoseconds())/float64(p.lines*k), "ns/element")
				})
			}
		}
	}
}

// BenchmarkSerial16 runs the products of one attention head, as BenchmarkSerial
// does, in float32 and in bfloat16 with B packed before, in turn.
func BenchmarkSerial16(b *testing.B) {
	s := NewSerial(NewScratch(1, nil))
	for _, shape := range []Shape{{96, 512, 32, NT}, {96, 32, 512, NN}, {512, 32, 96, TN}, {96, 512, 64, NT}, {96, 64, 512, NN}, {512, 64, 96, TN}} {
		b.Run(shape.String(), func(b *testing.B) {
			x, y, z := make([]float32, shape.M*shape.K), make([]float32, shape.K*shape.N), make([]float32, shape.M*shape.N)
			lda, ldb, ldc := shape.Strides()
			wide := PackB(make([]float32, PackedLen(shape.N, shape.K)), shape.TransB(), shape.N, shape.K, y, ldb)
			half := PackB16(make([]float32, PackedLen16(shape.N, shape.K)), shape.TransB(), shape.N, shape.K, y, ldb)
			var best [2]float64
			for b.Loop() {
				start := time.Now()
				s.GemmPacked(shape.TransA(), shape.M, shape.N, shape.K, x, lda, wide, false, z, ldc)
				best[0] = max(best[0], shape.FLOPs()/time.Since(start).Seconds()/1e9)
				start = time.Now()
				GemmPacked16(s, shape.TransA(), shape.M, shape.N, shape.K, x, lda, half, false, z, ldc)
				best[1] = max(best[1], shape.FLOPs()/time.Since(start).Seconds()/1e9)
			}
			b.ReportMetric(best[0], "GFLOP/s-f32")
			b.ReportMetric(best[1], "GFLOP/s-bf16")
		})
	}
}
