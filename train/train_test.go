package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/model"
	"refrain/stages/item"
	"refrain/train"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tinyModel() model.Config {
	return model.Config{Vocab: 61, Layers: 2, Dim: 32, Heads: 4, KVHeads: 2, FFN: 40, MaxT: 32, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
}

func tinyOptions(devices int) train.Options {
	o := train.Options{
		Model: tinyModel(), Seed: 7, Steps: 12, Batch: 8, T: 16, Shards: 4, Devices: devices, Micro: 1, Slots: 2, DocMask: true,
		Optim: train.Optim{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1, Warmup: 2},
	}
	for r := range o.Optim.LRMul {
		o.Optim.LRMul[r] = 1
		o.Optim.Decay[r] = 0.1
	}
	return o
}

// rig is a trainer fed by hand.
type rig struct {
	t    testing.TB
	o    train.Options
	devs []gpu.Device
	tr   *train.Trainer
	bufs []gpu.Pinned
	qs   []gpu.Queue
	last [][]gpu.Event // [slot][device], the newest Free event
	dead bool          // a device dies in this test
	fill func(g int64, vocab int, tokens, targets []int32, starts []byte) (scored int)
}

func newRig(t testing.TB, o train.Options, hc host.Config) *rig {
	t.Helper()
	hc.Devices = o.Devices
	drv := host.New(hc)
	r := &rig{t: t, o: o, fill: fillRow}
	for i := range o.Devices {
		d, err := drv.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		r.devs = append(r.devs, d)
		q, err := d.NewQueue("feed")
		if err != nil {
			t.Fatal(err)
		}
		r.qs = append(r.qs, q)
	}
	r.last = make([][]gpu.Event, o.Slots)
	for s := range r.last {
		for _, d := range r.devs {
			e, err := d.NewEvent()
			if err != nil {
				t.Fatal(err)
			}
			r.last[s] = append(r.last[s], e)
		}
	}
	tr, err := train.New(t.Context(), o, r.devs)
	if err != nil {
		t.Fatal(err)
	}
	r.tr = tr
	t.Cleanup(func() {
		for _, q := range r.qs { // a batch that no step took is still being copied into a slot
			if err := q.Sync(context.WithoutCancel(t.Context())); err != nil && !r.dead {
				t.Error(err)
			}
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		for _, b := range r.bufs {
			if err := b.Free(); err != nil {
				t.Error(err)
			}
		}
		for _, d := range r.devs {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// fillRow makes row g: a noisy walk through the vocabulary, with a document
// start and a masked target here and there.
func fillRow(g int64, vocab int, tokens, targets []int32, starts []byte) (scored int) {
	s := num.NewStream("test row", uint64(g))
	at := func(i int) int32 {
		return int32((i*7 + int(s.Uintn(uint64(i), 5))) % vocab)
	}
	clear(starts)
	for i := range tokens {
		tokens[i], targets[i] = at(i), at(i+1)
		if s.Uintn(uint64(1000+i), 6) == 0 {
			starts[i/8] |= 1 << (i % 8)
		}
		if s.Uintn(uint64(2000+i), 9) == 0 {
			targets[i] = -1
			continue
		}
		scored++
	}
	return scored
}

// batch uploads global batch k and returns it.
func (r *rig) batch(k int64) *item.DeviceBatch {
	r.t.Helper()
	n := r.o.Batch / r.o.Devices
	lay := item.Layout{N: n, T: r.o.T}
	b := &item.DeviceBatch{
		Batch: k, Cursor: item.Cursor{Window: k * int64(r.o.Batch)}, N: r.o.Batch, T: r.o.T,
		Slot: int(k % int64(r.o.Slots)), Release: func() {}, CRC: uint32(k),
	}
	for d, dev := range r.devs {
		p, err := dev.AllocPinned(lay.Bytes())
		if err != nil {
			r.t.Fatal(err)
		}
		r.bufs = append(r.bufs, p)
		mem := p.Bytes()
		tok, tgt := gpu.BytesToInt32s(mem[lay.TokensOff():lay.TargetsOff()]), gpu.BytesToInt32s(mem[lay.TargetsOff():lay.StartsOff()])
		for i := range n {
			g := b.Cursor.Window + int64(d*n+i)
			o := int(lay.StartsOff()) + i*lay.StartsRow()
			b.Valid += int64(r.fill(g, r.o.Model.Vocab, tok[i*lay.T:(i+1)*lay.T], tgt[i*lay.T:(i+1)*lay.T], mem[o:o+lay.StartsRow()]))
		}
		ready, err := dev.NewEvent()
		if err != nil {
			r.t.Fatal(err)
		}
		b.Ready, b.Free = append(b.Ready, ready), append(b.Free, r.last[b.Slot][d])
		if err := r.qs[d].Wait(b.Free[d]); err != nil && !r.dead { // it may be dead already
			r.t.Fatal(err)
		}
		if err := r.qs[d].Upload(r.tr.Slot(d, b.Slot), p, 0); err != nil && !r.dead {
			r.t.Fatal(err)
		}
		if err := r.qs[d].Record(ready); err != nil && !r.dead {
			r.t.Fatal(err)
		}
	}
	return b
}

// run does steps until the trainer has done n, and returns their results.
func (r *rig) run(n int64) (res []train.StepResult) {
	r.t.Helper()
	ctx := r.t.Context()
	for r.tr.Steps() < n {
		one, ok, err := r.tr.Step(ctx, r.batch(r.tr.Steps()))
		if err != nil {
			r.t.Fatal(err)
		}
		if ok {
			res = append(res, one)
		}
	}
	one, ok, err := r.tr.Flush(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if ok {
		res = append(res, one)
	}
	return res
}

func (r *rig) snapshot(moments bool) *train.Snapshot {
	r.t.Helper()
	p, err := r.tr.NewSnapshotPool(1, moments)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.tr.Snapshot(r.t.Context(), p)
	if err == nil {
		err = s.Wait(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		s.Release()
		if err := p.Close(); err != nil {
			r.t.Error(err)
		}
	})
	return s
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

func TestLossFalls(t *testing.T) {
	o := tinyOptions(1)
	o.Steps = 60
	r := newRig(t, o, host.Config{Threads: 2})
	res := r.run(60)
	if len(res) != 60 {
		t.Fatalf("%d results, want 60", len(res))
	}
	first, last := res[0], res[59]
	// The head's logits have a variance of about one at the start.
	if want := math.Log(61) + 0.5; math.Abs(first.Loss-want) > 0.2 {
		t.Errorf("first loss %.3f, want about %.3f", first.Loss, want)
	}
	if last.Loss > first.Loss-0.5 {
		t.Errorf("loss went from %.3f to %.3f", first.Loss, last.Loss)
	}
	for i, s := range res {
		if s.Step != int64(i+1) || s.Cursor.Window != int64(i*8) || s.Norm <= 0 {
			t.Errorf("result %d is %+v", i, s)
		}
	}
}

// TestBitsDoNotDependOnDevicesOrThreads is DESIGN D6 for the step.
func TestBitsDoNotDependOnDevicesOrThreads(t *testing.T) { sameBits(t, tinyOptions) }

func sameBits(t *testing.T, options func(devices int) train.Options) {
	var want []uint32
	var losses []train.StepResult
	for _, c := range []struct {
		devices, threads, micro int
		tie                     bool
	}{
		{1, 1, 1, false}, {1, 3, 1, false}, {2, 2, 1, false}, {4, 4, 1, false}, {1, 1, 4, false}, {2, 2, 2, false},
		{1, 1, 1, true}, {2, 2, 1, true}, {4, 4, 1, true}, {1, 2, 2, true},
	} {
		t.Run(fmt.Sprintf("devices=%d,threads=%d,micro=%d,tie=%v", c.devices, c.threads, c.micro, c.tie), func(t *testing.T) {
			o := options(c.devices)
			o.Micro, o.Model.Tie = c.micro, c.tie
			if c.tie && c.devices == 1 && c.micro == 1 {
				want = nil
			}
			r := newRig(t, o, host.Config{Threads: c.threads, RaceCheck: c.devices > 1})
			res := r.run(6)
			got := bits(r.snapshot(false).Weights)
			if want == nil {
				want, losses = got, res
				return
			}
			if !slices.Equal(got, want) {
				t.Error("weights differ from those of one device with one thread")
			}
			if !slices.Equal(res, losses) {
				t.Errorf("results differ:\n%v\n%v", res, losses)
			}
		})
	}
}

func TestRestoreEqualsNeverStopped(t *testing.T) { restoreEquals(t, tinyOptions) }

func restoreEquals(t *testing.T, options func(devices int) train.Options) {
	straight := newRig(t, options(1), host.Config{Threads: 1})
	straight.run(9)
	want := straight.snapshot(true)
	for _, k := range []int64{0, 1, 2, 5, 8} {
		a := newRig(t, options(1), host.Config{Threads: 2})
		a.run(k)
		s := a.snapshot(true)
		b := newRig(t, options(2), host.Config{Threads: 2})
		if err := b.tr.Restore(t.Context(), s.Step, s.Weights, s.M, s.V); err != nil {
			t.Fatal(err)
		}
		b.run(9)
		got := b.snapshot(true)
		for _, x := range []struct {
			name      string
			got, want []float32
		}{{"weights", got.Weights, want.Weights}, {"m", got.M, want.M}, {"v", got.V, want.V}} {
			if !slices.Equal(bits(x.got), bits(x.want)) {
				t.Errorf("resumed at step %d on two devices: %s differ from the run that never stopped", k, x.name)
			}
		}
	}
}

func TestNotFiniteStopsBeforeAnyWeightChanges(t *testing.T) {
	r := newRig(t, tinyOptions(1), host.Config{Threads: 1})
	r.run(3)
	before := slices.Clone(bits(r.snapshot(false).Weights))
	// Poison one weight of the final norm: every logit becomes NaN.
	s := r.snapshot(true)
	w := slices.Clone(s.Weights)
	w[len(w)-1] = float32(math.NaN())
	if err := r.tr.Restore(t.Context(), 3, w, s.M, s.V); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, _, err := r.tr.Step(ctx, r.batch(3)); err != nil {
		t.Fatal(err)
	}
	// The raw value is reported, not a mean of earlier ones (incident I-25).
	if _, _, err := r.tr.Step(ctx, r.batch(4)); !errors.Is(err, train.ErrNotFinite) || !strings.Contains(err.Error(), "loss NaN") {
		t.Fatalf("error %v, want ErrNotFinite with the loss", err)
	}
	p, err := r.tr.NewSnapshotPool(1, false)
	if err != nil {
		t.Fatal(err)
	}
	after, err := r.tr.Snapshot(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := after.Wait(ctx); !errors.Is(err, train.ErrNotFinite) {
		t.Errorf("a snapshot after the failure: error %v, want ErrNotFinite", err)
	}
	got := bits(after.Weights)
	before[len(before)-1] = math.Float32bits(w[len(w)-1])
	if !slices.Equal(got, before) {
		t.Error("weights changed after a step that was not finite")
	}
	after.Release()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
