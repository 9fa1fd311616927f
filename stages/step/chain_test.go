package step

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/batch"
	"refrain/stages/item"
	"refrain/stages/repack"
	"refrain/stages/upload"
	"refrain/train"
)

// corpus is documents of invented tokens.
type corpus struct{ lengths []uint32 }

func newCorpus(docs int) (c corpus) {
	for i := range docs {
		c.lengths = append(c.lengths, uint32(5+i*7%40))
	}
	return c
}

func (c corpus) NumDocs() int          { return len(c.lengths) }
func (c corpus) Lengths() []uint32     { return c.lengths }
func (c corpus) Fingerprint() [32]byte { return [32]byte{7} }

func (c corpus) NumTokens() (n int64) {
	for _, l := range c.lengths {
		n += int64(l)
	}
	return n
}

func (c corpus) Copy(doc, from, to int, dst []int32) {
	for i := range dst[:to-from] {
		dst[i] = int32((doc*5 + from + i) % 32)
	}
}

// chain is repack -> batch -> upload -> step, linked as a run links them.
type chain struct {
	stream *repack.Stream
	devs   []gpu.Device
	batch  *batch.Stage
	upload *upload.Stage
	opts   []pipeline.Option
}

// chainOf opens the stages before step for a trainer with o, whose slots are
// at slot.
func chainOf(t testing.TB, o *train.Options, c repack.Corpus, devs []gpu.Device, slot func(d, s int) gpu.Span) *chain {
	t.Helper()
	r := &chain{devs: devs}
	var err [3]error
	r.stream, err[0] = repack.NewStream(c, repack.Config{Mode: repack.Repack, Seed: 3, T: o.T})
	r.batch, err[1] = batch.New(devs[0], batch.Config{N: o.Batch, T: o.T, Ring: 4, Vocab: o.Model.Vocab})
	r.upload, err[2] = upload.New(t.Context(), upload.Config{Devices: devs, N: o.Batch, T: o.T, Slots: o.Slots, Slot: slot})
	if e := errors.Join(err[:]...); e != nil {
		t.Fatal(e)
	}
	return r
}

// run runs st at the end of the chain, with rows read through wrap.
func (c *chain) run(ctx context.Context, o *train.Options, st *Stage, wrap func(item.RowReader) item.RowReader, log func(Result)) (*pipeline.Pipeline, error) {
	p := pipeline.New(c.opts...)
	rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 4}, repack.Source(c.stream, o.Batch, 0, o.Steps))
	if wrap != nil {
		reader := wrap(c.stream)
		rows = pipeline.Then(p, "wrap", rows, pipeline.LinkConfig{Items: 1}, pipeline.Map(func(_ context.Context, r item.Rows) (item.Rows, error) {
			r.Reader = reader
			return r, nil
		}))
	}
	batches := pipeline.Then(p, "batch", rows, pipeline.LinkConfig{Items: 2, Release: pipeline.ReleaseOf((*item.Batch).Drop)}, c.batch)
	ready := pipeline.Then(p, "upload", batches, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.DeviceBatch).Drop)}, c.upload)
	results := pipeline.Then(p, "step", ready, pipeline.LinkConfig{Items: 16}, st)
	pipeline.Sink(p, "log", results, pipeline.StageFunc[Result, struct{}](func(ctx context.Context, in pipeline.In[Result], _ pipeline.Out[struct{}]) error {
		for r, err := range pipeline.Each(ctx, in) {
			if err != nil {
				return err
			}
			log(r)
		}
		return nil
	}))
	return p, errors.Join(p.Run(ctx), c.batch.Close())
}

// openTrainer opens devices and a trainer on them, closed by the last result.
func openTrainer(t testing.TB, o train.Options, hc host.Config) (*train.Trainer, []gpu.Device, func()) {
	t.Helper()
	hc.Devices = o.Devices
	drv := host.New(hc)
	var devs []gpu.Device
	for i := range o.Devices {
		d, err := drv.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, d)
	}
	tr, err := train.New(t.Context(), o, devs)
	if err != nil {
		t.Fatal(err)
	}
	return tr, devs, func() {
		err := tr.Close()
		for _, d := range devs {
			err = errors.Join(err, d.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestChainIsOrdered runs the real chain, snapshots included, under the race
// check of the devices and with shaken schedules: no wait is missing, and the
// chain of hashes is the same for any number of devices.
func TestChainIsOrdered(t *testing.T) {
	const steps = 24
	var want train.Chain
	for _, devices := range []int{1, 2, 4} {
		for shake := range uint64(2) {
			o := options(devices)
			o.Steps = steps
			tr, devs, closeAll := openTrainer(t, o, host.Config{Threads: devices, RaceCheck: true})
			c := chainOf(t, &o, newCorpus(60), devs, tr.Slot)
			c.opts = []pipeline.Option{pipeline.WithShake(shake + 1)}
			st := New(tr, Config{Steps: steps, EvalDue: every(2), SaveDue: every(5)})
			evals, err1 := tr.NewSnapshotPool(2, false)
			saves, err2 := tr.NewSnapshotPool(1, true)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			st.EvalTo(evals, &pipelinetest.Recorder[*train.Snapshot]{Release: (*train.Snapshot).Release})
			st.SaveTo(saves, &pipelinetest.Recorder[*train.Save]{Release: (*train.Save).Drop})
			var last Result
			_, err := c.run(t.Context(), &o, st, nil, func(r Result) { last = r })
			if err := errors.Join(err, evals.Close(), saves.Close()); err != nil {
				t.Errorf("devices=%d shake=%d: %v", devices, shake, err)
			}
			closeAll()
			if want == (train.Chain{}) {
				want = last.Chain
			}
			if last.Step != steps || last.Chain != want {
				t.Errorf("devices=%d shake=%d: step %d ends with chain %v, want %v", devices, shake, last.Step, last.Chain, want)
			}
		}
	}
}

// TestSteadyStepAllocatesNothing runs the real chain and counts all heap
// allocations of the process between steps. Something that happens once in an
// epoch, or that the runtime does now and then, falls into a few windows of
// steps; an allocation of a step is in all of them.
func TestSteadyStepAllocatesNothing(t *testing.T) {
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprintf("devices=%d", devices), func(t *testing.T) {
			o := options(devices)
			const window, windows, warm = 20, 20, 40
			o.Steps = warm + window*windows
			tr, devs, closeAll := openTrainer(t, o, host.Config{Threads: 2})
			c := chainOf(t, &o, newCorpus(2000), devs, tr.Slot)
			if w := c.stream.WindowsPerEpoch(); w < o.Steps*int64(o.Batch) {
				t.Fatalf("an epoch of %d windows ends within the test", w)
			}
			var m runtime.MemStats
			var counts []uint64
			counts = slices.Grow(counts, windows+1)
			_, err := c.run(t.Context(), &o, New(tr, Config{Steps: o.Steps}), nil, func(r Result) {
				if r.Step >= warm && (r.Step-warm)%window == 0 {
					runtime.ReadMemStats(&m)
					counts = append(counts, m.Mallocs)
				}
			})
			if err != nil {
				t.Error(err)
			}
			closeAll()
			if len(counts) != windows+1 {
				t.Fatalf("%d readings", len(counts))
			}
			var per []uint64
			for i := range windows {
				per = append(per, counts[i+1]-counts[i])
			}
			if slices.Min(per) > 0 {
				t.Errorf("allocations in windows of %d steps: %v", window, per)
			}
		})
	}
}
