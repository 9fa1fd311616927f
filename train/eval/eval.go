// Package eval measures a model and samples from it: forward passes only, on
// weights handed in, with memory of its own, so that nothing it does can
// change training. Losses are means over tokens, in nats.
package eval

import (
	"context"
	"errors"
	"fmt"

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
	d       gpu.Device
	q       gpu.Lanes
	x       *gpu.Exec
	total   int
	weights gpu.Span
	batch   gpu.Span
	loss    gpu.Span
	spans   []gpu.Span
	host    gpu.Pinned // one batch, then its losses
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

// New prepares an evaluator on d. Load gives it weights.
func New(ctx context.Context, d gpu.Device, c Config) (*Evaluator, error) {
	l := c.Model.Layout()
	p := gpu.NewProgram("eval")
	lay := item.Layout{N: c.B, T: c.T}
	n, half := c.B*c.T, c.Model.C()/2
	w := p.Extern(extWeights, gpu.F32, l.Total)
	buf := p.Extern(extBatch, gpu.U8, int(lay.Bytes()))
	loss := p.Extern(extLoss, gpu.F32, n)
	tab := model.Tables{Cos: p.Extern(extCos, gpu.F32, c.T, half), Sin: p.Extern(extSin, gpu.F32, c.T, half)}
	section := func(off, bytes int64) gpu.Span { return buf.Span.Sub(off, bytes) }
	model.RecordLoss(p.On(gpu.Math), c.Model, model.NewWeights(c.Model, l, w), loss, model.Batch{
		B: c.B, T: c.T,
		Tokens:  gpu.NewTensor(section(lay.TokensOff(), int64(n)*4), gpu.I32, n),
		Targets: gpu.NewTensor(section(lay.TargetsOff(), int64(n)*4), gpu.I32, n),
		Starts:  gpu.NewTensor(section(lay.StartsOff(), int64(c.B*lay.StartsRow())), gpu.U8, c.B, lay.StartsRow()),
		DocMask: c.DocMask, ResetPositions: c.ResetPositions,
	}, tab, c.Policy)
	if err := p.Seal(); err != nil {
		return nil, err
	}
	e := &Evaluator{c: c, d: d, total: l.Total}
	ext := map[string]gpu.Span{}
	err := d.Run(ctx, func() error { return e.setUp(p, lay, ext) })
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
	table := int64(e.c.T*(e.c.Model.C()/2)) * 4
	for _, a := range []struct {
		name  string
		bytes int64
	}{
		{extWeights, int64(e.total) * 4}, {extBatch, lay.Bytes()}, {extLoss, int64(lay.N*lay.T) * 4}, {extCos, table}, {extSin, table},
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
	lay := item.Layout{N: e.c.B, T: e.c.T}
	b := e.host.Bytes()
	ints := func(off int64) []int32 { return gpu.BytesToInt32s(b[off : off+int64(lay.N*lay.T)*4]) }
	tokens, targets := ints(lay.TokensOff()), ints(lay.TargetsOff())
	starts := b[lay.StartsOff() : lay.StartsOff()+int64(lay.N*lay.StartsRow())]
	loss := gpu.BytesToFloat32s(b[e.lossOff : e.lossOff+int64(lay.N*lay.T)*4])
	for row := int64(0); row < set.Rows(); row += int64(lay.N) {
		n := int(min(int64(lay.N), set.Rows()-row))
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
			scored, err := set.ReadRow(row+int64(i), tok, tgt, st)
			if err != nil {
				return r, fmt.Errorf("eval: row %d: %w", row+int64(i), err)
			}
			r.Tokens += int64(scored)
		}
		err := e.d.Run(ctx, func() error { return e.pass(ctx) })
		if err == nil {
			err = e.done.Sync(ctx) // outside Run: a training step may be enqueued meanwhile
		}
		if err != nil {
			return r, fmt.Errorf("eval: rows from %d: %w", row, err)
		}
		for i := range n {
			l := loss[i*lay.T : (i+1)*lay.T]
			var sum float64
			for _, v := range l {
				sum += float64(v)
			}
			r.Sum += sum
			r.Rows++
			if visit != nil {
				visit(row+int64(i), targets[i*lay.T:(i+1)*lay.T], l)
			}
		}
	}
	if r.Tokens > 0 {
		r.Loss = r.Sum / float64(r.Tokens)
	}
	return r, nil
}

// pass enqueues the upload of the batch in host memory, the Program, and the
// download of the losses.
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
