package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"refrain/kernels/asm"
)

// KernelsConfig measures the innermost loops alone.
type KernelsConfig struct {
	Threads int // of what is measured on several threads beside one
	Elems   int // of the arrays of what is bound by memory, a multiple of 1024; 16 << 20 are too large for any cache
	Rounds  int
}

// Kernels emits the lines of the micro-kernels, of the passes over memory on one
// thread and on all, and of the exponential and an empty parallel region.
func Kernels(ctx context.Context, c KernelsConfig, emit func(Line)) error {
	if err := Tiles(ctx, c, emit); err != nil {
		return err
	}
	threads := []int{1}
	if c.Threads > 1 {
		threads = append(threads, c.Threads)
	}
	if err := Passes(ctx, c, threads, emit); err != nil {
		return err
	}
	return Small(ctx, c, emit)
}

// tileSample is how many floating point operations a sample of a micro-kernel makes:
// some 100 us.
const tileSample = 16_000_000

// Tiles returns a line for every micro-kernel that this processor runs, on packed
// operands that stay in the first cache: the best rate of a round over the best rate
// of its own multiply-adds on registers alone, which is measured between its samples
// (of-peak, median and quartiles over rounds). The one that products use has "best" in
// its name.
func Tiles(ctx context.Context, c KernelsConfig, emit func(Line)) error {
	for i, t := range asm.TileSets() {
		const k = 256
		x, y, z := make([]float32, k*t.Rows()), make([]float32, k*t.Cols()), make([]float32, t.Rows()*t.Cols())
		err := c.tile(ctx, tileName(t.String(), "f32", i), k*t.Rows()*t.Cols()*2, func() { t.Tile(k, x, y, z, t.Cols(), false) }, asm.FMAPeak, emit)
		if err != nil {
			return err
		}
	}
	for i, t := range asm.TileSets16() {
		const k = 512 // as many words where they hold pairs
		n := t.Words(k)
		x, y, z := make([]uint32, n*t.Rows()), make([]uint32, n*t.Cols()), make([]float32, asm.MaxTile16)
		err := c.tile(ctx, tileName(t.String(), "bf16", i), k*t.Rows()*t.Cols()*2, func() { t.Tile(n, x, y, z, t.Cols(), false) }, t.Peak, emit)
		if err != nil {
			return err
		}
	}
	return nil
}

// tileName is the name of a line; the first set is the one in use.
func tileName(set, precision string, i int) string {
	name := fmt.Sprintf("Kernels/tile=%s/precision=%s", strings.ReplaceAll(set, " ", "_"), precision)
	if i == 0 {
		name += "/best"
	}
	return name
}

// tile measures a micro-kernel of that many operations a call.
func (c *KernelsConfig) tile(ctx context.Context, name string, flops int, call func(), peakOf func(n int) int, emit func(Line)) error {
	const samples = 20
	calls := max(1, tileSample/flops)
	rounds := max(1, tileSample/peakOf(1))
	var shares, rates, peaks []float64
	for range c.Rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		var best, peak float64
		for range samples {
			t0 := time.Now()
			for range calls {
				call()
			}
			best = max(best, float64(calls*flops)/time.Since(t0).Seconds())
			t0 = time.Now()
			n := peakOf(rounds)
			peak = max(peak, float64(n)/time.Since(t0).Seconds())
		}
		shares, rates, peaks = append(shares, best/peak), append(rates, best/1e9), append(peaks, peak/1e9)
	}
	lo, mid, hi := Quartiles(shares)
	_, rate, _ := Quartiles(rates)
	_, peak, _ := Quartiles(peaks)
	emit(Line{Name: name, Threads: 1, N: c.Rounds * samples * calls, PerOp: time.Duration(float64(flops) / rate),
		Metrics: []Metric{{rate, "GFLOP/s"}, {peak, "peak-GFLOP/s"}, {mid, "of-peak"}, {lo, "of-peak-q1"}, {hi, "of-peak-q3"}}})
	return nil
}
