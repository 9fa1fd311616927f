// Package eval measures a model and samples from it: forward passes only, on
// weights handed in, with memory of its own, so that nothing it does can
// change training. Losses are means over tokens, in nats.
package eval

import (
	"context"
	"errors"
	"fmt"
	"math"

	"refrain/gpu"
	"refrain/model"
	"refrain/stages/item"
)

// Set is a fixed list of rows of T tokens.
type Set interface {
	item.RowReader // g counts rows from 0
	Rows() int64
}

// Config describes the forward pass.
type Config struct {
	Model          model.Config
	B, T           int // rows a pass, positions a row
	DocMask        bool
	ResetPositions bool
	Policy         model.Policy // precision; the zero value is f32
}

// Evaluator holds weights and a forward Program on one device. One goroutine
// at a time uses it. It shares the device with a trainer: kernels of the two
// take turns.
type Evaluator struct {
	c       Config
	logits  bool // the result of a pass is the logits and not the losses
	d       gpu.Device
	q       gpu.Lanes
	x       *gpu.Exec
	total   int
	weights gpu.Span
	batch   gpu.Span
	loss    gpu.Span
	spans   []gpu.Span
	host    gpu.Pinned // one batch, then its losses or logits
	lossOff int64
	done    gpu.Event // the losses, or the weights, have arrived
}

// Result is the loss over a set.
type Result struct {
	Loss   float64 // mean over scored targets, nats; 0 when there are none
	Sum    float64 // sum of the token losses
	Tokens int64   // scored targets
	Rows   int64
}

const (
	extWeights = "weights"
	extBatch   = "batch"
	extLoss    = "loss"
	extCos     = "cos"
	extSin     = "sin"
)

// Footprint returns the bytes that an evaluator takes: on its device, and of pinned
// memory for a batch and its losses.
func Footprint(c Config) (device, pinned int64, err error) {
	return footprint(c, false)
}

func footprint(c Config, logits bool) (device, pinned int64, err error) {
	p, err := record(c, logits)
	if err != nil {
		return 0, 0, err
	}
	lay := item.Layout{N: c.B, T: c.T}
	pinned = lay.Bytes() + c.resultBytes(logits)
	return pinned + int64(c.Model.Layout().Total)*4 + 2*c.tableBytes() + p.ArenaBytes(), pinned, nil
}

func (c *Config) tableBytes() int64 { return int64(c.T*(c.Model.C()/2)) * 4 }

// resultBytes is what a pass leaves: a loss, or logits, for every position.
func (c *Config) resultBytes(logits bool) int64 {
	if logits {
		return int64(c.B*c.T) * int64(c.Model.Vocab) * 4
	}
	return int64(c.B*c.T) * 4
}

// record is the forward pass as a Program.
func record(c Config, logits bool) (*gpu.Program, error) {
	l := c.Model.Layout()
	p := gpu.NewProgram("eval")
	lay := item.Layout{N: c.B, T: c.T}
	if l.Total > math.MaxInt32 {
		return nil, fmt.Errorf("eval: the model has %d parameters; at most %d fit into one buffer", l.Total, math.MaxInt32)
	}
	if n := lay.Bytes(); n > math.MaxInt32 {
		return nil, fmt.Errorf("eval: %d rows of %d tokens at a time take %d bytes; at most %d can be moved at once: use a smaller eval.batch", c.B, c.T, n, math.MaxInt32)
	}
	n, half := c.B*c.T, c.Model.C()/2
	w := p.Extern(extWeights, gpu.F32, l.Total)
	buf := p.Extern(extBatch, gpu.U8, int(lay.Bytes()))
	tab := model.Tables{Cos: p.Extern(extCos, gpu.F32, c.T, half), Sin: p.Extern(extSin, gpu.F32, c.T, half)}
	section := func(off, bytes int64) gpu.Span { return buf.Span.Sub(off, bytes) }
	weights, batch := model.NewWeights(c.Model, l, w), model.Batch{
		B: c.B, T: c.T,
		Tokens:  gpu.NewTensor(section(lay.TokensOff(), int64(n)*4), gpu.I32, n),
		Targets: gpu.NewTensor(section(lay.TargetsOff(), int64(n)*4), gpu.I32, n),
		Starts:  gpu.NewTensor(section(lay.StartsOff(), int64(c.B*lay.StartsRow())), gpu.U8, c.B, lay.StartsRow()),
		DocMask: c.DocMask, ResetPositions: c.ResetPositions,
	}
	if logits {
		model.RecordLogits(p.On(gpu.Math), c.Model, weights, p.Extern(extLoss, gpu.F32, n, c.Model.Vocab), batch, tab, c.Policy)
	} else {
		model.RecordLoss(p.On(gpu.Math), c.Model, weights, p.Extern(extLoss, gpu.F32, n), batch, tab, c.Policy)
	}
	return p, p.Seal()
}

// New prepares an evaluator on d. Load gives it weights.
func New(ctx context.Context, d gpu.Device, c Config) (*Evaluator, error) {
	return open(ctx, d, c, false)
}

func open(ctx context.Context, d gpu.Device, c Config, logits bool) (*Evaluator, error) {
	p, err := record(c, logits)
	if err != nil {
		return nil, err
	}
	e := &Evaluator{c: c, logits: logits, d: d, total: c.Model.Layout().Total}
	ext := map[string]gpu.Span{}
	err = d.Run(ctx, func() error { return e.setUp(p, item.Layout{N: c.B, T: c.T}, ext) })
	if err == nil {
		err = e.loadTables(ctx, ext)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eval: %w", err), e.Close())
	}
	return e, nil
}

func (e *Evaluator) alloc(name string, bytes int64) (gpu.Span, error) {
	s, err := e.d.Alloc(bytes, "eval "+name)
	if err == nil {
		e.spans = append(e.spans, s)
	}
	return s, err
}

// setUp allocates everything and leaves the externs of p in ext.
func (e *Evaluator) setUp(p *gpu.Program, lay item.Layout, ext map[string]gpu.Span) error {
	table := e.c.tableBytes()
	for _, a := range []struct {
		name  string
		bytes int64
	}{
		{extWeights, int64(e.total) * 4}, {extBatch, lay.Bytes()}, {extLoss, e.c.resultBytes(e.logits)}, {extCos, table}, {extSin, table},
	} {
		s, err := e.alloc(a.name, a.bytes)
		if err != nil {
			return err
		}
		ext[a.name] = s
	}
	arena, err := e.alloc("activations", p.ArenaBytes())
	if err != nil {
		return err
	}
	e.weights, e.batch, e.loss = ext[extWeights], ext[extBatch], ext[extLoss]
	if e.q, err = gpu.NewLanes(e.d, "eval"); err != nil {
		return err
	}
	if e.x, err = p.Bind(e.d, gpu.Binding{Arena: arena, Extern: ext}); err != nil {
		return err
	}
	e.lossOff = lay.Bytes()
	if e.host, err = e.d.AllocPinned(e.lossOff + e.loss.Len); err != nil {
		return err
	}
	e.done, err = e.d.NewEvent()
	return err
}

func (e *Evaluator) loadTables(ctx context.Context, to map[string]gpu.Span) error {
	cos, sin := model.RotaryTables(e.c.Model, e.c.T)
	if err := gpu.UploadFloats(ctx, e.d, e.q[gpu.Math], to[extCos], cos); err != nil {
		return err
	}
	return gpu.UploadFloats(ctx, e.d, e.q[gpu.Math], to[extSin], sin)
}

// release ends the lanes after everything on them, then frees what they read and
// write.
func release(d gpu.Device, l *gpu.Lanes, spans []gpu.Span, host gpu.Pinned) error {
	return d.Run(context.Background(), func() error {
		errs := []error{l.Close()}
		for _, s := range spans {
			errs = append(errs, d.Free(s))
		}
		if host != nil {
			errs = append(errs, host.Free())
		}
		return errors.Join(errs...)
	})
}

// Load copies weights, in the layout of the model, to the device.
func (e *Evaluator) Load(ctx context.Context, weights []float32) error {
	return gpu.UploadFloats(ctx, e.d, e.q[gpu.Math], e.weights, weights)
}

// LoadFrom is Load for weights that lie at byte off of pinned memory already,
// without a copy on the host. It blocks until they have arrived, even when ctx
// ends meanwhile: p is the caller's again when it returns.
func (e *Evaluator) LoadFrom(ctx context.Context, p gpu.Pinned, off int64) error {
	q := e.q[gpu.Math]
	err := e.d.Run(ctx, func() error { return errors.Join(q.Upload(e.weights, p, off), q.Record(e.done)) })
	if err == nil {
		err = e.done.Sync(ctx)
	}
	if err != nil {
		_ = e.done.Sync(context.WithoutCancel(ctx)) // the error of a dead device is in err
		return fmt.Errorf("eval: weights: %w", err)
	}
	return nil
}

// Run evaluates the rows of set in order. visit, if not nil, sees the targets
// and the token losses of every row (both of T elements, valid during the
// call; the loss of a masked target is 0). The result is the same to the last
// bit for every B: rows do not influence each other and sums run in row order.
func (e *Evaluator) Run(ctx context.Context, set Set, visit func(row int64, targets []int32, loss []float32)) (Result, error) {
	var r Result
	tokens, err := e.each(ctx, set, 0, set.Rows(), func(row int64, targets []int32, loss []float32) error {
		var sum float64
		for _, v := range loss {
			sum += float64(v)
		}
		r.Sum += sum
		r.Rows++
		if visit != nil {
			visit(row, targets, loss)
		}
		return nil
	})
	r.Tokens = tokens
	if err != nil {
		return r, err
	}
	if r.Tokens > 0 {
		r.Loss = r.Sum / float64(r.Tokens)
	}
	return r, nil
}

// each runs rows [from, to) of set and calls visit for every one in order, with what
// the pass left for it; scored counts the targets of the rows that were read.
func (e *Evaluator) each(ctx context.Context, set Set, from, to int64, visit func(row int64, targets []int32, result []float32) error) (scored int64, err error) {
	lay := item.Layout{N: e.c.B, T: e.c.T}
	b := e.host.Bytes()
	ints := func(off int64) []int32 { return gpu.BytesToInt32s(b[off : off+int64(lay.N*lay.T)*4]) }
	tokens, targets := ints(lay.TokensOff()), ints(lay.TargetsOff())
	starts := b[lay.StartsOff() : lay.StartsOff()+int64(lay.N*lay.StartsRow())]
	result := gpu.BytesToFloat32s(b[e.lossOff : e.lossOff+e.loss.Len])
	width := len(result) / lay.N // floats a row
	for row := from; row < to; row += int64(lay.N) {
		n := int(min(int64(lay.N), to-row))
		for i := range lay.N {
			tok, tgt, st := tokens[i*lay.T:(i+1)*lay.T], targets[i*lay.T:(i+1)*lay.T], starts[i*lay.StartsRow():(i+1)*lay.StartsRow()]
			if i >= n { // unused rows of the last pass
				clear(tok)
				clear(st)
				for j := range tgt {
					tgt[j] = -1
				}
				continue
			}
			k, err := set.ReadRow(row+int64(i), tok, tgt, st)
			if err != nil {
				return scored, fmt.Errorf("eval: row %d: %w", row+int64(i), err)
			}
			scored += int64(k)
		}
		err := e.d.Run(ctx, func() error { return e.pass(ctx) })
		if err == nil {
			err = e.done.Sync(ctx) // outside Run: a training step may be enqueued meanwhile
		}
		if err != nil {
			return scored, fmt.Errorf("eval: rows from %d: %w", row, err)
		}
		for i := range n {
			if err := visit(row+int64(i), targets[i*lay.T:(i+1)*lay.T], result[i*width:(i+1)*width]); err != nil {
				return scored, err
			}
		}
	}
	return scored, nil
}

// pass enqueues the upload of the batch in host memory, the Program, and the
// download of its result.
func (e *Evaluator) pass(ctx context.Context) error {
	q := e.q[gpu.Math]
	if err := q.Upload(e.batch, e.host, 0); err != nil {
		return err
	}
	if err := e.x.Enqueue(ctx, &e.q); err != nil {
		return err
	}
	if err := q.Download(e.host, e.lossOff, e.loss); err != nil {
		return err
	}
	return q.Record(e.done)
}

// Close waits for the evaluator's work on the device and frees its memory.
func (e *Evaluator) Close() error {
	err := release(e.d, &e.q, e.spans, e.host)
	e.spans, e.host = nil, nil
	return err
}
