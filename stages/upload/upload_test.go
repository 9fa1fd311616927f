package upload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/item"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rowsN, rowsT = 4, 13

// ring makes batches in pinned memory of a device of their own.
type ring struct {
	d    gpu.Device
	pool *pipeline.Pool[*item.Batch]
}

func newRing(t testing.TB, n int) *ring {
	t.Helper()
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	r := &ring{d: d}
	r.pool, err = pipeline.NewPool(n, func(int) (*item.Batch, error) {
		p, err := d.AllocPinned(item.Layout{N: rowsN, T: rowsT}.Bytes())
		b := &item.Batch{N: rowsN, T: rowsT, Host: p}
		b.Release = func() { r.pool.Put(b) }
		return b, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.pool.Len() != n {
			t.Errorf("%d of %d buffers are home", r.pool.Len(), n)
		}
		for _, b := range r.pool.All() {
			err = errors.Join(err, b.Host.Free())
		}
		if err := errors.Join(err, d.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// take fills n batches, whose bytes tell batch and place.
func (r *ring) take(t testing.TB, n int) (all []*item.Batch) {
	t.Helper()
	for k := range int64(n) {
		b, err := r.pool.Get(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		b.Batch, b.Cursor, b.Valid, b.CRC = k, item.Cursor{Window: k * rowsN}, 7+k, uint32(k)*3
		for i := range b.Host.Bytes() {
			b.Host.Bytes()[i] = content(k, i)
		}
		all = append(all, b)
	}
	return all
}

func content(batch int64, i int) byte { return byte(int(batch)*31 + i*7 + i/251) }

// rowsOf is what device d of n must hold of a batch: rows d*N/n to (d+1)*N/n of
// every section.
func rowsOf(batch int64, d, n int) []byte {
	from, to := item.Layout{N: rowsN, T: rowsT}, item.Layout{N: rowsN / n, T: rowsT}
	out := make([]byte, to.Bytes())
	for _, sec := range [][3]int64{{from.TokensOff(), to.TokensOff(), rowsT * 4}, {from.TargetsOff(), to.TargetsOff(), rowsT * 4}, {from.StartsOff(), to.StartsOff(), int64(to.StartsRow())}} {
		size := int64(to.N) * sec[2]
		for i := range size {
			out[sec[1]+i] = content(batch, int(sec[0]+int64(d)*size+i))
		}
	}
	return out
}

// rig is the stage on n devices under the race check, with a reader that
// plays the trainer.
type rig struct {
	devs  []gpu.Device
	slots [][]gpu.Span // [device][slot]
	read  []gpu.Queue
	pins  []gpu.Pinned
	s     *Stage
}

// keptQueue is a device that makes one queue and hands it out again, so that
// stages may come and go.
type keptQueue struct {
	gpu.Device
	q gpu.Queue
}

func (k *keptQueue) NewQueue(label string) (q gpu.Queue, err error) {
	if k.q == nil {
		k.q, err = k.Device.NewQueue(label)
	}
	return k.q, err
}

func newRig(n, slots int) (r *rig, err error) {
	drv := host.New(host.Config{Devices: n, Threads: n, RaceCheck: true})
	r = &rig{slots: make([][]gpu.Span, n)}
	size := item.Layout{N: rowsN / n, T: rowsT}.Bytes()
	for i := range n {
		d, err := drv.Open(i)
		if err != nil {
			return r, err
		}
		q, err1 := d.NewQueue("reader")
		p, err2 := d.AllocPinned(size)
		if err := errors.Join(err1, err2); err != nil {
			return r, err
		}
		for range slots {
			m, err := d.Alloc(size, "slot")
			if err != nil {
				return r, err
			}
			r.slots[i] = append(r.slots[i], m)
		}
		r.devs, r.read, r.pins = append(r.devs, &keptQueue{Device: d}), append(r.read, q), append(r.pins, p)
	}
	return r, r.newStage()
}

// newStage makes a stage whose copies are ordered after everything read so far.
func (r *rig) newStage() (err error) {
	if r.s != nil {
		for d, q := range r.read {
			e, err := r.devs[d].NewEvent()
			if err := errors.Join(err, q.Record(e), r.s.queues[d].Wait(e)); err != nil {
				return err
			}
		}
	}
	slots := len(r.slots[0])
	r.s, err = New(context.Background(), Config{Devices: r.devs, N: rowsN, T: rowsT, Slots: slots, Slot: func(d, s int) gpu.Span { return r.slots[d][s] }})
	return err
}

// copyOut reads a batch from the devices the way a trainer does: wait for
// Ready, read, record Free.
func (r *rig) copyOut(b *item.DeviceBatch) ([][]byte, error) {
	var out [][]byte
	for d, q := range r.read {
		err := errors.Join(q.Wait(b.Ready[d]), q.Download(r.pins[d], 0, r.slots[d][b.Slot]), q.Record(b.Free[d]), q.Sync(context.Background()))
		if err != nil {
			return nil, err
		}
		out = append(out, slices.Clone(r.pins[d].Bytes()))
	}
	return out, nil
}

func (r *rig) home() error {
	if n := r.s.slots.Len(); n != r.s.slots.Cap() {
		return fmt.Errorf("%d of %d slots are home", n, r.s.slots.Cap())
	}
	return nil
}

func (r *rig) close() error {
	err := r.home()
	for i, d := range r.devs {
		err = errors.Join(err, r.pins[i].Free(), d.Close())
	}
	return err
}

func TestConforms(t *testing.T) {
	const n = 9
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprintf("devices=%d", devices), func(t *testing.T) {
			in := newRing(t, n)
			r, err := newRig(devices, 3)
			if err != nil {
				t.Fatal(err)
			}
			kept := map[*item.DeviceBatch][][]byte{} // by the copies that Keep returns
			pipelinetest.Run(t, pipelinetest.Case[*item.Batch, *item.DeviceBatch]{
				New: func() pipeline.Stage[*item.Batch, *item.DeviceBatch] {
					if err := r.newStage(); err != nil {
						t.Error(err)
					}
					return r.s
				},
				Inputs:       func() []*item.Batch { return in.take(t, n) },
				ReleaseInput: (*item.Batch).Drop,
				Release:      (*item.DeviceBatch).Drop,
				Keep: func(b *item.DeviceBatch) *item.DeviceBatch {
					c := *b
					data, err := r.copyOut(b)
					if err != nil {
						t.Error(err)
					}
					kept[&c] = data
					return &c
				},
				Equal: func(a, b *item.DeviceBatch) bool {
					return a.Batch == b.Batch && slices.EqualFunc(kept[a], kept[b], bytes.Equal)
				},
				Want: func(got []*item.DeviceBatch) error {
					if len(got) != n {
						return fmt.Errorf("%d batches, want %d", len(got), n)
					}
					for k, b := range got {
						if b.Batch != int64(k) || b.Cursor.Window != int64(k*rowsN) || b.Valid != int64(7+k) || b.CRC != uint32(k)*3 || b.N != rowsN || b.T != rowsT {
							return fmt.Errorf("batch %d is stamped %+v", k, b)
						}
						for d := range devices {
							if !bytes.Equal(kept[b][d], rowsOf(int64(k), d, devices)) {
								return fmt.Errorf("batch %d on device %d has other bytes", k, d)
							}
						}
					}
					return nil
				},
				Done: func(error) error {
					if in.pool.Len() != n {
						return fmt.Errorf("%d of %d pinned buffers are home", in.pool.Len(), n)
					}
					return r.home()
				},
				Limits: pipelinetest.Limits{MaxCuts: 10},
			})
			if err := r.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// run uploads n batches of in and hands each to use.
func run(t *testing.T, r *rig, in *ring, n int, use func(ctx context.Context, b *item.DeviceBatch) error) error {
	t.Helper()
	p := pipeline.New()
	src := pipeline.Source(p, "source", pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.Batch).Drop)},
		pipeline.StageFunc[struct{}, *item.Batch](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.Batch]) error {
			for k := range int64(n) {
				b, err := in.pool.Get(ctx)
				if err != nil {
					return err
				}
				if b.Batch = k; out.Send(ctx, b) != nil {
					return context.Cause(ctx)
				}
			}
			return nil
		}))
	out := pipeline.Then(p, "upload", src, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.DeviceBatch).Drop)}, r.s)
	pipeline.Sink(p, "use", out, pipeline.StageFunc[*item.DeviceBatch, struct{}](
		func(ctx context.Context, in pipeline.In[*item.DeviceBatch], _ pipeline.Out[struct{}]) error {
			for b, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				if err := use(ctx, b); err != nil {
					return err
				}
			}
			return nil
		}))
	return p.Run(t.Context())
}

// sleeper is a kernel that holds its queue for a while.
type sleeper struct {
	d   time.Duration
	die bool
}

func (s *sleeper) Name() string              { return "sleeper" }
func (s *sleeper) Access() (r, w []gpu.Span) { return nil, nil }
func (s *sleeper) Cost() gpu.Cost            { return gpu.Cost{} }
func (s *sleeper) Launch(gpu.Launcher) error { return errors.New("not for CUDA") }
func (s *sleeper) BindHost(gpu.Host) func() {
	return func() {
		time.Sleep(s.d)
		if s.die {
			panic("power cut")
		}
	}
}

// TestSlotIsNotOverwrittenBeforeItsLastReader also shows that the next batch is
// copied while the device computes: the device never waits.
func TestSlotIsNotOverwrittenBeforeItsLastReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newRing(t, 3)
		r, err := newRig(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		op, err := r.devs[0].Bind(&sleeper{d: time.Second}, nil)
		if err != nil {
			t.Fatal(err)
		}
		q := r.read[0]
		const steps = 10
		start := time.Now()
		err = run(t, r, in, steps, func(ctx context.Context, b *item.DeviceBatch) error {
			// The host enqueues without waiting, as a trainer does.
			err := errors.Join(q.Wait(b.Ready[0]), q.Do(op), q.Download(r.pins[0], 0, r.slots[0][b.Slot]), q.Record(b.Free[0]))
			b.Release()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != steps*time.Second {
			t.Errorf("%d steps of a second took %v", steps, d)
		}
		if idle := q.Idle(); idle != 0 {
			t.Errorf("the device waited %v", idle)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDeadDevice: the error names batch, device and cause, buffers of the other
// device are not touched before its copies have ended, and everything is home.
func TestDeadDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newRing(t, 3)
		r, err := newRig(2, 2)
		if err != nil {
			t.Fatal(err)
		}
		op, err := r.devs[1].Bind(&sleeper{d: time.Second, die: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = run(t, r, in, 10, func(ctx context.Context, b *item.DeviceBatch) error {
			defer b.Release()
			if n++; n == 3 {
				if err := r.read[1].Do(op); err != nil {
					return err
				}
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		for _, w := range []string{"stage upload", "batch ", "device 1", "sleeper panicked: power cut"} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want one with %q", err, w)
			}
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestRefused(t *testing.T) {
	in := newRing(t, 1)
	r, err := newRig(2, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	slot := func(d, s int) gpu.Span { return r.slots[d][s] }
	for name, c := range map[string]Config{
		"among 0 devices":    {N: 4, T: rowsT, Slots: 2, Slot: slot},
		"do not divide":      {Devices: r.devs, N: 5, T: rowsT, Slots: 2, Slot: slot},
		"0 rows":             {Devices: r.devs, T: rowsT, Slots: 2, Slot: slot},
		"a Pool of 0":        {Devices: r.devs, N: 4, T: rowsT, Slot: slot},
		"slot 0 on device 0": {Devices: r.devs, N: 8, T: rowsT, Slots: 2, Slot: slot},
	} {
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in.pool.All()[0].N = rowsN * 2
	err = run(t, r, in, 1, func(context.Context, *item.DeviceBatch) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "batch 0 is 8x13, expected 4x13") {
		t.Errorf("a batch of another shape: %v", err)
	}
}
