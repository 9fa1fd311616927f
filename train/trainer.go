package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"refrain/gpu"
	"refrain/gpu/collective"
	"refrain/model"
	"refrain/stages/item"
)

// Options describe a training run as far as the trainer is concerned.
type Options struct {
	Model model.Config
	Optim Optim
	Seed  uint64 // of the initial weights
	Steps int64  // horizon of the schedule, frozen for the run

	Batch   int // rows of a step, over all devices
	T       int // positions of a row
	Shards  int // logical shards of a batch: equal parts whose gradients are added in a fixed tree
	Devices int // a power of two that divides Shards
	Micro   int // micro-steps a device takes one after the other to save memory; a power of two; Devices*Micro divides Shards
	Slots   int // batches that may lie on a device at once; at least 2

	DocMask        bool
	ResetPositions bool
	Policy         model.Policy // precision; the zero value is f32

	Dropout float64 // share dropped from embeddings and branches, in [0,1); 0 turns it off
	Masked  Masked
	Distill *Distill // nil for none
}

// Masked is the second next-token loss, on rows with a share of their input tokens
// replaced. A step differentiates loss + Weight * second loss.
type Masked struct {
	Weight   float64 // 0 turns it off
	From, To float64 // range of the share, drawn for every row
	ID       int     // what a token becomes; -1 for any of Vocab at random
	Vocab    int     // ids that occur in the data, at most Model.Vocab
}

// check reports what is impossible.
func (m *Masked) check(vocab int, bad func(format string, args ...any)) {
	if m.Weight == 0 {
		return
	}
	if !(m.Weight > 0 && m.Weight <= 100) {
		bad("the weight of the masked loss is %g; it must be in [0, 100]", m.Weight)
	}
	if !(m.From >= 0 && m.From <= m.To && m.To <= 1) {
		bad("masked inputs: a share from %g to %g; both must be in [0, 1], the first at most the second", m.From, m.To)
	}
	if m.Vocab < 1 || m.Vocab > vocab {
		bad("masked inputs: %d ids to draw from, the model has %d", m.Vocab, vocab)
	}
	if m.ID < -1 || m.ID >= m.Vocab {
		bad("masked inputs: the id %d is outside [0, %d) and not -1", m.ID, m.Vocab)
	}
}

// Validate reports every impossible value at once.
func (o *Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := o.Model.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := o.Optim.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := o.Policy.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Steps < 1 {
		bad("steps is %d; it must be at least 1", o.Steps)
	} else if err := o.Optim.Cycles.check(&o.Optim, o.Steps); err != nil {
		errs = append(errs, err)
	}
	if o.Batch < 1 || o.T < 1 {
		bad("a batch of %d rows of %d tokens is empty", o.Batch, o.T)
	}
	if o.T > o.Model.MaxT {
		bad("seq (%d) is longer than the model's max_t (%d)", o.T, o.Model.MaxT)
	}
	if o.Shards < 1 || o.Batch%max(1, o.Shards) != 0 {
		bad("batch (%d) does not divide into %d logical shards", o.Batch, o.Shards)
	}
	if o.Devices < 1 || o.Devices&(o.Devices-1) != 0 || o.Shards%max(1, o.Devices) != 0 {
		bad("%d devices: the number must be a power of two that divides the %d logical shards", o.Devices, o.Shards)
	}
	if o.Micro < 1 || o.Micro&(o.Micro-1) != 0 || o.Shards%max(1, o.Micro*o.Devices) != 0 {
		bad("%d micro-steps: the number must be a power of two, and with %d devices divide the %d logical shards", o.Micro, o.Devices, o.Shards)
	}
	if !(o.Dropout >= 0 && o.Dropout <= maxDropout) {
		bad("dropout is %g; it must be in [0, %g]", o.Dropout, maxDropout)
	}
	o.Masked.check(o.Model.Vocab, bad)
	if o.Distill != nil {
		errs = append(errs, o.Distill.validate(o)...)
	}
	if o.Slots < 2 {
		bad("%d device slots; at least 2 keep the device fed", o.Slots)
	}
	if len(errs) == 0 {
		o.checkSize(bad)
	}
	return errors.Join(errs...)
}

// maxDropout is the most that may be dropped: kernels.Dropout counts in 2^-16.
const maxDropout = 0.99

// sums is the number of loss sums that travel behind the gradients.
func (o *Options) sums() int {
	if o.Masked.Weight > 0 {
		return 2
	}
	return 1
}

// noisy reports whether a step draws random bits.
func (o *Options) noisy() bool { return o.Dropout > 0 || o.Masked.Weight > 0 }

// deviceLayout is the layout of one device's share of a batch.
func (o *Options) deviceLayout() item.Layout {
	return item.Layout{N: o.Batch / o.Devices, T: o.T}
}

// ErrNotFinite is wrapped by the error of a step whose loss or gradient norm
// was NaN or infinite. No weight was changed by that step or any later one.
var ErrNotFinite = errors.New("loss or gradient norm is not finite")

// StepResult is what one optimiser step reports.
type StepResult struct {
	Step   int64 // updates done, this one included
	Cursor item.Cursor
	Rows   int
	Loss   float64 // mean over scored targets, nats; what was differentiated
	Masked float64 // the same of the masked rows; 0 without them
	Norm   float64 // global gradient norm before clipping
	LR     float64
	Tokens int64 // scored targets
	CRC    uint32
}

// Trainer owns the replicas of a model and steps them. One goroutine calls it.
type Trainer struct {
	o    Options
	l    *model.Layout
	reps []*replica
	step int64 // updates enqueued

	ring    [2]pendingStep // steps whose results have not been read
	pending int
}

type pendingStep struct {
	res   StepResult
	valid int64
}

// New opens nothing: the devices are the caller's, one a replica, and stay
// open until after Close. The weights are initialised from Options.Seed.
func New(ctx context.Context, o Options, devs []gpu.Device) (*Trainer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(devs) != o.Devices {
		return nil, fmt.Errorf("train: %d devices given, %d configured", len(devs), o.Devices)
	}
	t := &Trainer{o: o, l: o.Model.Layout()}
	p, err := stepProgram(&t.o, t.l)
	if err != nil {
		return nil, err
	}
	group, err := collective.NewGroup(o.Devices)
	if err != nil {
		return nil, err
	}
	weights := make([]float32, t.l.Total)
	model.Initialize(weights, o.Model, t.l, o.Seed)
	for rank, d := range devs {
		r, err := newReplica(ctx, t, p, d, group, rank)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.reps = append(t.reps, r)
		if err := r.load(ctx, weights, nil, nil); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	if err := t.loadTeachers(ctx); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Layout returns the parameter layout.
func (t *Trainer) Layout() *model.Layout { return t.l }

// Steps returns the number of updates enqueued so far.
func (t *Trainer) Steps() int64 { return t.step }

// Restore replaces weights and moments (Layout().Total elements each) by those
// of a checkpoint taken after step updates. It copies its arguments.
func (t *Trainer) Restore(ctx context.Context, step int64, weights, m, v []float32) error {
	if step < 0 || step > t.o.Steps {
		return fmt.Errorf("train: checkpoint of step %d; the run has %d", step, t.o.Steps)
	}
	for _, r := range t.reps {
		if err := r.load(ctx, weights, m, v); err != nil {
			return err
		}
	}
	t.step = step
	return nil
}

// Slot is where the upload stage puts device d's rows of the batch in slot s:
// a span of item.Layout{Batch/Devices, T}.Bytes() bytes.
func (t *Trainer) Slot(d, s int) gpu.Span { return t.reps[d].slots[s] }

// NumSlots returns the number of slots a device has.
func (t *Trainer) NumSlots() int { return t.o.Slots }

// Step enqueues the update for batch b on every device and returns the result
// of the step before, if there is one that has not been returned: the host
// stays one step ahead of the devices. It takes b over: b's slot is released
// as soon as the work that reads it is enqueued. On error the trainer is dead.
func (t *Trainer) Step(ctx context.Context, b *item.DeviceBatch) (res StepResult, ok bool, err error) {
	if t.step >= t.o.Steps {
		return res, false, fmt.Errorf("train: step %d of a run of %d", t.step+1, t.o.Steps)
	}
	if b.N != t.o.Batch || b.T != t.o.T {
		return res, false, fmt.Errorf("train: batch of %dx%d, expected %dx%d", b.N, b.T, t.o.Batch, t.o.T)
	}
	t.step++
	slot := &t.ring[t.step%2]
	*slot = pendingStep{valid: b.Valid, res: StepResult{
		Step: t.step, Cursor: b.Cursor, Rows: b.N, Tokens: b.Valid, CRC: b.CRC, LR: t.o.Optim.Rate(t.step, t.o.Steps),
	}}
	if err := t.onAll(ctx, b); err != nil {
		return res, false, err
	}
	b.Release()
	t.pending++
	if t.pending < 2 {
		return res, false, nil
	}
	res, err = t.result(ctx, t.step-1)
	return res, err == nil, err
}

// Flush waits for the last step enqueued and returns its result.
func (t *Trainer) Flush(ctx context.Context) (res StepResult, ok bool, err error) {
	if t.pending == 0 {
		return res, false, nil
	}
	res, err = t.result(ctx, t.step)
	return res, err == nil, err
}

// onAll enqueues the step on every replica: in the caller with one device, in
// the replicas' goroutines otherwise, since each blocks in a collective until
// its peers have enqueued theirs.
func (t *Trainer) onAll(ctx context.Context, b *item.DeviceBatch) error {
	if len(t.reps) == 1 {
		return t.reps[0].do(job{ctx, t.step, b})
	}
	for _, r := range t.reps {
		r.jobs <- job{ctx, t.step, b}
	}
	var first error
	for _, r := range t.reps {
		// The replica that failed says more than those that waited for it.
		if err := <-r.answers; err != nil && (first == nil || errors.Is(first, collective.ErrAborted)) {
			first = err
		}
	}
	return first
}

// result waits until step k is done on every device and reads it on the first;
// all devices hold the same sums. A device that died in it has sent its peers
// undefined gradients, so a step counts only when none has.
func (t *Trainer) result(ctx context.Context, k int64) (StepResult, error) {
	p := &t.ring[k%2]
	t.pending--
	for _, r := range t.reps[1:] {
		if err := r.done[k%2].Sync(ctx); err != nil {
			return StepResult{}, err
		}
	}
	loss, masked, sumsq, halt, err := t.reps[0].result(ctx, k)
	if err != nil {
		return StepResult{}, err
	}
	p.res.Loss, p.res.Masked = float64(loss), float64(masked)
	if p.valid > 0 {
		p.res.Loss /= float64(p.valid)
		p.res.Masked /= float64(p.valid)
	}
	p.res.Norm = math.Sqrt(float64(sumsq))
	if halt {
		return p.res, fmt.Errorf("step %d (windows %d to %d): loss %g, gradient norm %g: %w; no weight was changed by it",
			k, p.res.Cursor.Window, p.res.Cursor.Window+int64(p.res.Rows)-1, p.res.Loss, p.res.Norm, ErrNotFinite)
	}
	return p.res, nil
}

// Cost returns the FLOPs and bytes of one step on one device.
func (t *Trainer) Cost() gpu.Cost { return t.reps[0].program.Cost() }

// Idle is how long the math queue of the first device has had nothing to do.
func (t *Trainer) Idle() time.Duration { return t.reps[0].lanes[gpu.Math].Idle() }

// Close frees what the trainer allocated on its devices.
func (t *Trainer) Close() error {
	for _, r := range t.reps {
		r.drain()
	}
	var errs []error
	for _, r := range t.reps {
		errs = append(errs, r.free())
	}
	t.reps = nil
	return errors.Join(errs...)
}
