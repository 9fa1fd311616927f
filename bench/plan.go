package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"refrain/internal/num"
	"refrain/stages/repack"
)

// PlanConfig measures the epoch plan of REPACK: what is computed once an epoch,
// while the one before is trained on.
type PlanConfig struct {
	Docs   []int // documents of each corpus
	T      int
	Rounds int
}

// lengthsOnly is a corpus of documents of 26 to 2,525 tokens that nobody reads.
type lengthsOnly struct {
	lengths []uint32
	total   int64
}

func newLengths(n int) *lengthsOnly {
	c := &lengthsOnly{lengths: make([]uint32, n)}
	r := num.NewStream("bench plan", 1)
	for i := range c.lengths {
		c.lengths[i] = 26 + uint32(r.Uintn(uint64(i), 2500))
		c.total += int64(c.lengths[i])
	}
	return c
}

func (c *lengthsOnly) NumDocs() int                    { return len(c.lengths) }
func (c *lengthsOnly) NumTokens() int64                { return c.total }
func (c *lengthsOnly) Lengths() []uint32               { return c.lengths }
func (c *lengthsOnly) Fingerprint() [32]byte           { return [32]byte{1} }
func (c *lengthsOnly) Copy(_, from, to int, _ []int32) {}

// Plan returns a line for each size: the time to build a plan, medians over the
// rounds, and the bytes that live afterwards for each document, in one plan and the
// stream that holds it; the lengths are the corpus's own.
func Plan(ctx context.Context, c PlanConfig, emit func(Line)) error {
	for _, n := range c.Docs {
		corpus := newLengths(n)
		var times []time.Duration
		var cpu, live, made []float64
		for round := range c.Rounds {
			before := heap()
			s, err := repack.NewStream(corpus, repack.Config{Mode: repack.Repack, Seed: 1, T: c.T})
			if err != nil {
				return err
			}
			t0, c0 := time.Now(), processTime()
			if _, err := s.Prepare(ctx, int64(round)); err != nil {
				return err
			}
			times, cpu = append(times, time.Since(t0)), append(cpu, (processTime()-c0).Seconds())
			total := heap()
			live = append(live, float64(int64(total.HeapAlloc)-int64(before.HeapAlloc))/float64(n))
			made = append(made, float64(total.TotalAlloc-before.TotalAlloc)/float64(n))
			runtime.KeepAlive(s)
		}
		ms := make([]float64, len(times))
		for i, d := range times {
			ms[i] = 1e3 * d.Seconds()
		}
		lo, mid, hi := Quartiles(ms)
		_, c, _ := Quartiles(cpu)
		_, b, _ := Quartiles(live)
		_, m, _ := Quartiles(made)
		emit(Line{Name: fmt.Sprintf("Plan/docs=%d", n), Threads: 1, N: len(times), PerOp: median(times),
			Metrics: []Metric{{mid, "ms"}, {lo, "ms-q1"}, {hi, "ms-q3"}, {1e3 * c, "CPU-ms"}, {b, "B/doc"}, {m, "alloc-B/doc"}}})
	}
	return nil
}

// heap is the state of the heap after a collection.
func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
