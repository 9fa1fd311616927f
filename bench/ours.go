package bench

import (
	"context"
	"math/bits"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/pipeline"
	"refrain/stages/batch"
	"refrain/stages/item"
	"refrain/stages/repack"
)

// Delivery is what a consumer saw of a loader.
type Delivery struct {
	Tokens int64         // inputs of full batches after the first
	Wall   time.Duration // from the first batch to the last
	CPU    time.Duration // of the loader's processes in the same time
	First  time.Duration // from nothing running to the first batch
	Wait   struct{ P50, P99, Most time.Duration }
	Found  float64 // paced: share of steps that found a batch
}

// foundWithin is the part of a step's time within which a batch must come so that
// the step counts as having found it: less than that no user feels.
const foundWithin = 0.05

// Loads is a loader under comparison: ours or a peer.
type Loads interface {
	// Settings names the ways it can be run; the best is what counts.
	Settings() []string
	// Deliver reads batches for at most limit, beginning with the given epoch. pace,
	// when not 0, is the time that the consumer sleeps after each.
	Deliver(ctx context.Context, setting string, mode repack.Mode, epoch int, limit, pace time.Duration) (Delivery, error)
	// Epoch reads one whole epoch and returns its digest; docs is that of the
	// documents put together again, in repack only.
	Epoch(ctx context.Context, setting string, mode repack.Mode, epoch int) (rows, docs Digest, err error)
}

// The settings of ours: rows gathered by the consumer itself straight into the
// ring, and the chain of a training run up to the upload, in which rows are asked
// for, gathered into a ring of pinned buffers ahead of the consumer, with their
// boundaries, every id checked, and a checksum taken.
const (
	oursGather = "gather"
	oursChain  = "chain"
)

// Limits, in the place of a setting. Nothing that fills such a ring is faster than
// writing it, with one row that stays in the first-level cache, and no chain that
// gathers ahead of its consumer is faster than handing over buffers that one goroutine
// writes and another one reads. On several cores each line that was written has to
// travel to where it is read, and back to be written again.
const (
	limitWrite    = "write"
	limitHandOver = "hand-over"
)

// ours is our loader.
type ours struct {
	c       *RowCorpus
	dev     gpu.Device
	streams map[repack.Mode]*repack.Stream
	touched uint32 // of what was read, so that reading is not left out
}

// NewOurs returns our loader on the corpus. Close gives its device back.
func NewOurs(c *RowCorpus) (Loads, func() error, error) {
	dev, err := host.New(host.Config{Devices: 1, Threads: 1}).Open(0)
	if err != nil {
		return nil, nil, err
	}
	o := &ours{c: c, dev: dev, streams: map[repack.Mode]*repack.Stream{}}
	for _, m := range []repack.Mode{repack.Fixed, repack.Reshuffle, repack.Repack} {
		if o.streams[m], err = repack.NewStream(c.Store, repack.Config{Mode: m, Seed: c.Seed, T: c.T}); err != nil {
			dev.Close()
			return nil, nil, err
		}
	}
	return o, dev.Close, nil
}

func (o *ours) Settings() []string { return []string{oursGather, oursChain} }

// Limits is what the gather and the chain cannot be faster than.
func (o *ours) Limits() []string { return []string{limitWrite, limitHandOver} }

// read runs a setting from the first batch of an epoch and hands every batch to
// take until that returns false or end batches have passed.
func (o *ours) read(ctx context.Context, setting string, mode repack.Mode, epoch, end int, take func(b *item.Batch, wait time.Duration) bool) error {
	switch setting {
	case oursGather:
		return o.gather(ctx, mode, epoch, end, take)
	case limitWrite:
		row := make([]byte, 4*o.c.T)
		return o.alone(ctx, end, take, func(mem []byte) error { repeat(mem, row); return nil })
	case limitHandOver:
		return o.handOver(ctx, mode, epoch, take)
	}
	return o.chain(ctx, mode, epoch, end, take)
}

// gather reads rows into a ring of four buffers on the caller's goroutine.
func (o *ours) gather(ctx context.Context, mode repack.Mode, epoch, end int, take func(b *item.Batch, wait time.Duration) bool) error {
	B, T := o.c.B, o.c.T
	lay := item.Layout{N: B, T: T}
	g := int64(epoch * o.c.W)
	return o.alone(ctx, end, take, func(mem []byte) error {
		tokens := gpu.BytesToInt32s(mem[lay.TokensOff() : lay.TokensOff()+int64(B*T)*4])
		targets := gpu.BytesToInt32s(mem[lay.TargetsOff() : lay.TargetsOff()+int64(B*T)*4])
		for i := range B {
			at := lay.StartsOff() + int64(i*lay.StartsRow())
			if _, err := o.streams[mode].ReadRow(g, tokens[i*T:(i+1)*T], targets[i*T:(i+1)*T], mem[at:at+int64(lay.StartsRow())]); err != nil {
				return err
			}
			g++
		}
		return nil
	})
}

// alone fills a ring of four buffers on the caller's goroutine.
func (o *ours) alone(ctx context.Context, end int, take func(b *item.Batch, wait time.Duration) bool, fill func(mem []byte) error) error {
	lay := item.Layout{N: o.c.B, T: o.c.T}
	var ring [4]*item.Batch
	for i := range ring {
		p, err := o.dev.AllocPinned(lay.Bytes())
		if err != nil {
			return err
		}
		defer p.Free()
		ring[i] = &item.Batch{N: lay.N, T: lay.T, Host: p}
	}
	for k := 0; end == 0 || k < end; k++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		t0 := time.Now()
		b := ring[k%len(ring)]
		if err := fill(b.Host.Bytes()); err != nil {
			return err
		}
		if !take(b, time.Since(t0)) {
			return nil
		}
	}
	return nil
}

// repeat fills mem with copies of row: tokens, targets and starts, as they follow each
// other.
func repeat(mem, row []byte) {
	for len(mem) > 0 {
		mem = mem[copy(mem, row):]
	}
}

func (o *ours) chain(ctx context.Context, mode repack.Mode, epoch, end int, take func(b *item.Batch, wait time.Duration) bool) (err error) {
	b, err := batch.New(o.dev, batch.Config{N: o.c.B, T: o.c.T, Ring: 4, Vocab: o.c.Store.Vocab()})
	if err != nil {
		return err
	}
	err = o.through(ctx, mode, epoch, end, b, take)
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	return err
}

// handOver is the chain with batches of one row, over and over.
func (o *ours) handOver(ctx context.Context, mode repack.Mode, epoch int, take func(b *item.Batch, wait time.Duration) bool) (err error) {
	lay := item.Layout{N: o.c.B, T: o.c.T}
	var made []gpu.Pinned
	defer func() {
		for _, p := range made {
			if ferr := p.Free(); err == nil {
				err = ferr
			}
		}
	}()
	var ring *pipeline.Pool[*item.Batch]
	ring, err = pipeline.NewPool(4, func(int) (*item.Batch, error) {
		p, err := o.dev.AllocPinned(lay.Bytes())
		if err != nil {
			return nil, err
		}
		made = append(made, p)
		b := &item.Batch{N: lay.N, T: lay.T, Host: p}
		b.Release = func() { ring.Put(b) }
		return b, nil
	})
	if err != nil {
		return err
	}
	row := make([]byte, 4*lay.T)
	return o.through(ctx, mode, epoch, 0, pipeline.StageFunc[item.Rows, *item.Batch](
		func(ctx context.Context, in pipeline.In[item.Rows], out pipeline.Out[*item.Batch]) error {
			for _, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				b, err := ring.Get(ctx)
				if err != nil {
					return err
				}
				repeat(b.Host.Bytes(), row)
				if err := out.Send(ctx, b); err != nil {
					return err
				}
			}
			return nil
		}), take)
}

// through runs the stages of a training run around fill up to the upload.
func (o *ours) through(ctx context.Context, mode repack.Mode, epoch, end int, fill pipeline.Stage[item.Rows, *item.Batch], take func(b *item.Batch, wait time.Duration) bool) error {
	first := int64(epoch * o.c.W / o.c.B)
	last := int64(repack.Endless)
	if end > 0 {
		last = first + int64(end)
	}
	p := pipeline.New()
	rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 4}, repack.Source(o.streams[mode], o.c.B, first, last))
	batches := pipeline.Then(p, "batch", rows, pipeline.LinkConfig{Items: 2, Release: pipeline.ReleaseOf((*item.Batch).Drop)}, fill)
	pipeline.Sink(p, "consumer", batches, pipeline.StageFunc[*item.Batch, struct{}](
		func(ctx context.Context, in pipeline.In[*item.Batch], _ pipeline.Out[struct{}]) error {
			t0 := time.Now()
			for b, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				more := take(b, time.Since(t0))
				b.Release()
				if !more {
					return nil
				}
				t0 = time.Now()
			}
			return nil
		}))
	return p.Run(ctx)
}

func (o *ours) Deliver(ctx context.Context, setting string, mode repack.Mode, epoch int, limit, pace time.Duration) (d Delivery, err error) {
	var list []float64
	var start, now time.Time
	var cpu time.Duration
	found := 0
	touched := uint32(0)
	began := time.Now()
	err = o.read(ctx, setting, mode, epoch, 0, func(b *item.Batch, wait time.Duration) bool {
		touched += touch(b.Host.Bytes())
		now = time.Now()
		switch {
		case start.IsZero():
			d.First = now.Sub(began)
			start, cpu = now, processTime()
		default:
			d.Tokens += int64(b.N * b.T)
			list = append(list, wait.Seconds())
			if wait.Seconds() <= foundWithin*pace.Seconds() {
				found++
			}
		}
		if now.Sub(start) >= limit {
			return false
		}
		if pace > 0 {
			time.Sleep(pace)
		}
		return true
	})
	if err != nil {
		return d, err
	}
	d.CPU, d.Wall = processTime()-cpu, now.Sub(start)
	p50, p99, most := waits(list)
	d.Wait.P50, d.Wait.P99, d.Wait.Most = seconds(p50), seconds(p99), seconds(most)
	d.Found = float64(found) / float64(max(1, len(list)))
	o.touched = touched
	return d, nil
}

// touch reads one word of every cache line.
func touch(b []byte) (sum uint32) {
	for i := 0; i < len(b); i += 64 {
		sum += uint32(b[i])
	}
	return sum
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (o *ours) Epoch(ctx context.Context, setting string, mode repack.Mode, epoch int) (rows, docs Digest, err error) {
	T, W := o.c.T, o.c.W
	lay := item.Layout{N: o.c.B, T: T}
	row := make([]int32, T+1)
	// In repack the rows are laid where the contract's order of windows says they
	// belong in the stream, and documents are cut out of it by the boundary bits.
	var stream []int32
	var at []bool
	sigma := repack.NewPRP(uint64(W), repack.NewKey("win", o.c.Seed, uint64(epoch)))
	if mode == repack.Repack {
		stream, at = make([]int32, W*T+1), make([]bool, W*T+1)
	}
	n := 0
	err = o.read(ctx, setting, mode, epoch, W/o.c.B, func(b *item.Batch, _ time.Duration) bool {
		mem := b.Host.Bytes()
		tokens := gpu.BytesToInt32s(mem[lay.TokensOff() : lay.TokensOff()+int64(b.N*T)*4])
		targets := gpu.BytesToInt32s(mem[lay.TargetsOff() : lay.TargetsOff()+int64(b.N*T)*4])
		for i := range b.N {
			copy(row, tokens[i*T:(i+1)*T])
			row[T] = targets[(i+1)*T-1]
			rows.Add(row)
			if mode == repack.Repack {
				j := int(sigma.At(uint64(n)))
				copy(stream[j*T:], row) // the last target is the next window's first input
				for k, bit := range mem[lay.StartsOff()+int64(i*lay.StartsRow()):][:lay.StartsRow()] {
					for ; bit != 0; bit &= bit - 1 {
						at[j*T+8*k+bits.TrailingZeros8(bit)] = true
					}
				}
			}
			n++
		}
		return true
	})
	if mode == repack.Repack && err == nil {
		var starts []int
		for i, s := range at {
			if s {
				starts = append(starts, i)
			}
		}
		docs = documentDigest(stream, starts)
	}
	return rows, docs, err
}
