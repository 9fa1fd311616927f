package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"refrain/internal/run"
	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/stages/shards"
	"refrain/tokenize"
)

// IngestConfig measures the making of a token store against the encoder alone.
type IngestConfig struct {
	Inputs    []string // as for data prepare
	Options   shards.Options
	Tokenizer *tokenize.Tokenizer
	File      string // where Tokenizer comes from
	Name      string // of the vocabulary, for the lines
	Workers   int
	Rounds    int
	Dir       string // an empty folder for stores; each is removed after its round
}

// Ingest returns a line for the encoder alone, Workers fresh encoders on documents
// that lie in memory, and one for the whole of data prepare on the same inputs: look
// at every file, fingerprint, read, drop duplicates, encode, write, sync. The two take
// turns. Figures are medians over rounds, of wall time; the ratios are inside a round:
//
//	of-encoder       encoder's wall time over that of the whole
//	store-of-encoder the same for the part after the files were found
//	of-encoder-CPU   encoder's CPU time over that of the whole, on any number of cores
func Ingest(ctx context.Context, c IngestConfig, emit func(Line)) error {
	blocks, size, err := readBlocks(ctx, c.Inputs, c.Options)
	if err != nil {
		return err
	}
	var enc, whole []time.Duration
	var encCPU, wholeCPU, ratio, storeRatio, cpuRatio []float64
	var tokens int64
	for i := range c.Rounds {
		runtime.GC() // neither pays for what the other left behind
		cpu, t0 := processTime(), time.Now()
		tokens = encodeBlocks(ctx, c.Tokenizer, blocks, c.Workers)
		a, aCPU := time.Since(t0), (processTime() - cpu).Seconds()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		runtime.GC()
		var began time.Time // of the last part
		cpu, t0 = processTime(), time.Now()
		out := filepath.Join(c.Dir, fmt.Sprint("store-", i))
		r, err := run.Ingest(ctx, run.IngestConfig{
			Inputs: c.Inputs, Options: c.Options, Out: out, Tokenizer: c.File, Workers: c.Workers,
			Progress: func(p run.IngestProgress) {
				if p.Phase == run.PhaseEncode && began.IsZero() {
					began = time.Now()
				}
			},
		})
		b, bCPU := time.Since(t0), (processTime() - cpu).Seconds()
		if err != nil {
			return err
		}
		part := time.Since(began)
		if got := r.Train.Tokens - r.Train.Documents; got != tokens {
			return fmt.Errorf("the store has %d tokens without boundaries and the encoders made %d of the same documents", got, tokens)
		}
		if err := os.RemoveAll(out); err != nil {
			return err
		}
		enc, whole = append(enc, a), append(whole, b)
		encCPU, wholeCPU = append(encCPU, aCPU), append(wholeCPU, bCPU)
		ratio = append(ratio, a.Seconds()/b.Seconds())
		storeRatio = append(storeRatio, a.Seconds()/part.Seconds())
		cpuRatio = append(cpuRatio, aCPU/bCPU)
	}
	line := func(part string, wall []time.Duration, cpu []float64, more ...Metric) {
		m := median(wall)
		_, perCPU, _ := Quartiles(cpu)
		emit(Line{Name: fmt.Sprintf("Ingest/vocab=%s/%s", c.Name, part), Threads: c.Workers, N: c.Rounds, PerOp: m,
			Metrics: append([]Metric{{float64(size) / m.Seconds() / 1e6, "MB/s"}, {float64(size) / perCPU / 1e6, "MB/CPU-s"},
				{float64(tokens) / m.Seconds() / 1e6, "Mtok/s"}}, more...)})
	}
	line("encoder", enc, encCPU)
	var more []Metric
	for _, q := range []struct {
		unit string
		of   []float64
	}{{"of-encoder", ratio}, {"store-of-encoder", storeRatio}, {"of-encoder-CPU", cpuRatio}} {
		lo, mid, hi := Quartiles(q.of)
		more = append(more, Metric{mid, q.unit}, Metric{lo, q.unit + "-q1"}, Metric{hi, q.unit + "-q3"})
	}
	line("prepare", whole, wholeCPU, more...)
	return nil
}

// readBlocks returns the documents of the inputs as the encoders of an ingest get
// them, and their bytes.
func readBlocks(ctx context.Context, inputs []string, o shards.Options) (blocks []*item.Docs, size int64, err error) {
	in, err := shards.Discover(inputs, o)
	if err != nil {
		return nil, 0, err
	}
	p := pipeline.New()
	docs := pipeline.Source(p, "shards", pipeline.LinkConfig{Items: 16, Bytes: 32 << 20}, shards.New(in, o))
	pipeline.Sink(p, "memory", docs, pipeline.StageFunc[*item.Docs, struct{}](
		func(ctx context.Context, in pipeline.In[*item.Docs], _ pipeline.Out[struct{}]) error {
			for b, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				blocks, size = append(blocks, b), size+b.Bytes
			}
			return nil
		}))
	return blocks, size, p.Run(ctx)
}

// encodeBlocks encodes all blocks on n goroutines with a fresh encoder each and
// returns the number of ids. It ends early when ctx does.
func encodeBlocks(ctx context.Context, t *tokenize.Tokenizer, blocks []*item.Docs, n int) int64 {
	var next, tokens atomic.Int64
	g := pipeline.NewGroup(ctx)
	for range n {
		g.Go(func(ctx context.Context) error {
			enc := t.NewEncoder(0)
			var ids []uint32
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(blocks) {
					return nil
				}
				for _, d := range blocks[i].Docs {
					ids = enc.Append(ids[:0], d.Text)
					tokens.Add(int64(len(ids)))
				}
			}
			return context.Cause(ctx)
		})
	}
	_ = g.Wait() // only ctx ends it early, and the caller looks at that
	return tokens.Load()
}
