package train

import (
	"context"
	"errors"
	"fmt"

	"refrain/gpu"
	"refrain/gpu/collective"
	"refrain/model"
	"refrain/stages/item"
)

// replica is the model on one device.
type replica struct {
	t       *Trainer
	d       gpu.Device
	rank    int
	program *gpu.Program
	lanes   gpu.Lanes
	memory  map[string]gpu.Span
	slots   []gpu.Span
	execs   []*gpu.Exec // one a slot
	spans   []gpu.Span  // everything to free
	pinned  []gpu.Pinned

	hyper   [2]gpu.Pinned // uploaded for even and odd steps
	results [2]gpu.Pinned // resultLen floats, then loss sums and halt flag
	done    [2]gpu.Event

	job     job          // what run enqueues
	run     func() error // made once, so that a step allocates nothing
	jobs    chan job     // nil with one device
	answers chan error
	served  chan struct{} // closed when the goroutine of jobs has ended
}

type job struct {
	ctx  context.Context
	step int64
	b    *item.DeviceBatch
}

const (
	resLoss  = resultLen * 4 // byte offset of the loss sums in a results buffer
	resHalt  = resLoss + 8
	resBytes = 128
)

func newReplica(ctx context.Context, t *Trainer, p *gpu.Program, d gpu.Device, g *collective.Group, rank int) (*replica, error) {
	r := &replica{t: t, d: d, rank: rank, program: p, memory: map[string]gpu.Span{}}
	r.run = func() error { return r.enqueue(r.job.ctx, r.job.step, r.job.b) }
	err := d.Run(ctx, func() error { return r.setUp(g) })
	if err == nil {
		err = r.loadTables(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("train: device %d: %w", d.Ordinal(), err), r.close())
	}
	if t.o.Devices > 1 {
		r.jobs, r.answers, r.served = make(chan job), make(chan error, 1), make(chan struct{})
		go r.serve(r.jobs, g)
	}
	return r, nil
}

// serve enqueues steps until jobs is closed. The goroutine belongs to the
// replica and ends in drain. It is given the channel because drain clears the
// field, which may happen before this goroutine has run for the first time. A
// replica that fails tells the group, since its peers wait for it inside their
// collectives.
func (r *replica) serve(jobs <-chan job, g *collective.Group) {
	defer close(r.served)
	for j := range jobs {
		err := r.do(j)
		if err != nil {
			err = fmt.Errorf("train: step %d on device %d: %w", j.step, r.d.Ordinal(), err)
			g.Abort(err)
		}
		r.answers <- err
	}
}

// do enqueues one step.
func (r *replica) do(j job) error {
	r.job = j
	err := r.d.Run(j.ctx, r.run)
	r.job = job{}
	return err
}

func (r *replica) alloc(name string, bytes int64) error {
	s, err := r.d.Alloc(bytes, name)
	if err != nil {
		return err
	}
	r.memory[name] = s
	r.spans = append(r.spans, s)
	return nil
}

func (r *replica) pin(bytes int64) (gpu.Pinned, error) {
	p, err := r.d.AllocPinned(bytes)
	if err == nil {
		r.pinned = append(r.pinned, p)
	}
	return p, err
}

func (r *replica) setUp(g *collective.Group) error {
	o, total := &r.t.o, int64(r.t.l.Total)
	table := int64(o.T) * int64(o.Model.C()/2) * 4
	for _, a := range append([]extern{
		{extParams, total * 4}, {extM, total * 4}, {extV, total * 4}, {extGrads, (total + int64(o.sums())) * 4},
		{extHyper, hyperLen * 4}, {extResults, resultLen * 4}, {extHalt, 4}, {extCos, table}, {extSin, table},
		{"activations", r.program.ArenaBytes()},
	}, o.teacherExterns()...) {
		if err := r.alloc(a.name, a.bytes); err != nil {
			return err
		}
	}
	for range o.Slots {
		s, err := r.d.Alloc(o.deviceLayout().Bytes(), extBatch)
		if err != nil {
			return err
		}
		r.slots, r.spans = append(r.slots, s), append(r.spans, s)
	}
	var err error
	if r.lanes, err = gpu.NewLanes(r.d, "train"); err != nil {
		return err
	}
	for i := range 2 {
		if r.hyper[i], err = r.pin(hyperLen * 4); err != nil {
			return err
		}
		if r.results[i], err = r.pin(resBytes); err != nil {
			return err
		}
		if r.done[i], err = r.d.NewEvent(); err != nil {
			return err
		}
	}
	peers, err := g.Member(r.rank, r.d)
	if err != nil {
		return err
	}
	for _, slot := range r.slots {
		ext := map[string]gpu.Span{extBatch: slot}
		for n, s := range r.memory {
			ext[n] = s
		}
		x, err := r.program.Bind(r.d, gpu.Binding{Arena: r.memory["activations"], Extern: ext, Peers: peers})
		if err != nil {
			return err
		}
		r.execs = append(r.execs, x)
	}
	return nil
}

func (r *replica) loadTables(ctx context.Context) error {
	cos, sin := model.RotaryTables(r.t.o.Model, r.t.o.T)
	if err := r.upload(ctx, r.memory[extCos], cos); err != nil {
		return err
	}
	if err := r.upload(ctx, r.memory[extSin], sin); err != nil {
		return err
	}
	return r.loadTeacherTables(ctx)
}

// upload copies x to dst and waits for it.
func (r *replica) upload(ctx context.Context, dst gpu.Span, x []float32) error {
	return gpu.UploadFloats(ctx, r.d, r.lanes[gpu.Math], dst, x)
}

// load replaces weights and moments; nil moments mean zeros.
func (r *replica) load(ctx context.Context, w, m, v []float32) error {
	if m == nil {
		m = make([]float32, r.t.l.Total)
	}
	if v == nil {
		v = make([]float32, r.t.l.Total)
	}
	for _, x := range []struct {
		name string
		data []float32
	}{{extParams, w}, {extM, m}, {extV, v}} {
		if err := r.upload(ctx, r.memory[x.name], x.data); err != nil {
			return fmt.Errorf("train: loading %s: %w", x.name, err)
		}
	}
	return nil
}

// enqueue enqueues update k on this device: wait for the batch, upload the
// scalars, replay, mark the slot free, download the results.
func (r *replica) enqueue(ctx context.Context, k int64, b *item.DeviceBatch) error {
	i, d := k%2, r.rank
	o, h := &r.t.o, r.hyper[i].Bytes()
	o.hyper(gpu.BytesToFloat32s(h), gpu.BytesToInt32s(h), k, b.Valid, d*o.Batch/o.Devices)
	q := r.lanes[gpu.Math]
	if err := q.Upload(r.memory[extHyper], r.hyper[i], 0); err != nil {
		return err
	}
	if err := q.Wait(b.Ready[d]); err != nil {
		return err
	}
	if err := r.execs[b.Slot].Enqueue(ctx, &r.lanes); err != nil {
		return err
	}
	if err := q.Record(b.Free[d]); err != nil {
		return err
	}
	total := int64(r.t.l.Total) * 4
	if err := q.Download(r.results[i], 0, r.memory[extResults]); err != nil {
		return err
	}
	if err := q.Download(r.results[i], resLoss, r.memory[extGrads].Sub(total, 4*int64(o.sums()))); err != nil {
		return err
	}
	if err := q.Download(r.results[i], resHalt, r.memory[extHalt]); err != nil {
		return err
	}
	return q.Record(r.done[i])
}

// result waits for step k and reads what it left.
func (r *replica) result(ctx context.Context, k int64) (loss, masked, sumsq float32, halt bool, err error) {
	if err := r.done[k%2].Sync(ctx); err != nil {
		return 0, 0, 0, false, err
	}
	b := r.results[k%2].Bytes()
	f := gpu.BytesToFloat32s(b)
	return f[resLoss/4], f[resLoss/4+1], f[resultSumSq], gpu.BytesToInt32s(b)[resHalt/4] != 0, nil
}

// drain ends the replica's goroutine and its queues, after everything it has
// enqueued.
func (r *replica) drain() {
	if r.jobs != nil {
		close(r.jobs)
		<-r.served
		r.jobs = nil
	}
	_ = r.d.Run(context.Background(), r.lanes.Close) // a dead device has reported its error already
}

// free gives the memory back. Every replica must be drained: the copies of a
// peer read the gradients of this one.
func (r *replica) free() error {
	return r.d.Run(context.Background(), func() error {
		var errs []error
		for _, s := range r.spans {
			errs = append(errs, r.d.Free(s))
		}
		for _, p := range r.pinned {
			errs = append(errs, p.Free())
		}
		return errors.Join(errs...)
	})
}

func (r *replica) close() error {
	r.drain()
	return r.free()
}
