package saves

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/model"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/train"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trainer opens a tiny trainer and a pool of n snapshots.
func trainer(t testing.TB, n int) (*train.Trainer, *train.SnapshotPool) {
	t.Helper()
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	o := train.Options{
		Model: model.Config{Vocab: 32, Layers: 1, Dim: 16, Heads: 2, KVHeads: 1, FFN: 24, MaxT: 8, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers},
		Steps: 10, Batch: 1, T: 8, Shards: 1, Devices: 1, Micro: 1, Slots: 2,
		Optim: train.Optim{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Warmup: 1},
	}
	tr, err := train.New(t.Context(), o, []gpu.Device{d})
	if err != nil {
		t.Fatal(errors.Join(err, d.Close()))
	}
	p, err := tr.NewSnapshotPool(n, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), tr.Close(), d.Close()); err != nil { // p says when a snapshot is not home
			t.Error(err)
		}
	})
	return tr, p
}

// take makes n saves of steps 1 to n; the last says that it is.
func take(t testing.TB, tr *train.Trainer, p *train.SnapshotPool, n int) (all []*train.Save) {
	t.Helper()
	for k := range n {
		s, err := tr.TrySnapshot(p)
		if err != nil || s == nil {
			t.Fatalf("snapshot %d of %d: %v %v; one of an earlier run is not home", k, n, s, err)
		}
		s.Step = int64(k + 1)
		all = append(all, &train.Save{Snapshot: s, Window: int64(k), Last: k == n-1})
	}
	return all
}

var errDisk = errors.New("no space left")

func TestConforms(t *testing.T) {
	const n = 8
	tr, p := trainer(t, n)
	pipelinetest.Run(t, pipelinetest.Case[*train.Save, Result]{
		New: func() pipeline.Stage[*train.Save, Result] {
			return New(func(ctx context.Context, s *train.Save) (string, error) {
				if ctx.Err() != nil {
					return "", context.Cause(ctx)
				}
				if s.Snapshot.Step == 3 {
					return "", errDisk
				}
				return fmt.Sprint("step-", s.Snapshot.Step), nil
			})
		},
		Inputs:       func() []*train.Save { return take(t, tr, p, n) },
		ReleaseInput: (*train.Save).Drop,
		Equal: func(a, b Result) bool {
			a.Busy, b.Busy = 0, 0
			return a == b
		},
		Want: func(got []Result) error {
			for i, r := range got {
				want := Result{Step: int64(i + 1), Path: fmt.Sprint("step-", i+1), Last: i == n-1, Busy: r.Busy}
				if i == 2 {
					want.Path, want.Err = "", errDisk
				}
				if r != want {
					return fmt.Errorf("result %d is %+v, want %+v", i, r, want)
				}
			}
			if len(got) != n {
				return fmt.Errorf("%d results, want %d", len(got), n)
			}
			return nil
		},
	})
}

// save runs the stage over inputs and returns its results.
func save(t *testing.T, in []*train.Save, s *Stage) (got []Result, err error) {
	t.Helper()
	p := pipeline.New()
	src := pipeline.Source(p, "source", pipeline.LinkConfig{Items: len(in), Release: pipeline.ReleaseOf((*train.Save).Drop)},
		pipeline.StageFunc[struct{}, *train.Save](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*train.Save]) error {
			for _, v := range in {
				if err := out.Send(ctx, v); err != nil {
					return err
				}
			}
			return nil
		}))
	out := pipeline.Then(p, "saves", src, pipeline.LinkConfig{Items: 1}, s)
	pipeline.Sink(p, "sink", out, pipeline.StageFunc[Result, struct{}](func(ctx context.Context, in pipeline.In[Result], _ pipeline.Out[struct{}]) error {
		for r, err := range pipeline.Each(ctx, in) {
			if err != nil {
				return err
			}
			got = append(got, r)
		}
		return nil
	}))
	err = p.Run(t.Context())
	return got, err
}

func TestTimeAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, p := trainer(t, 3)
		writing := 0
		got, err := save(t, take(t, tr, p, 3), New(func(context.Context, *train.Save) (string, error) {
			writing++
			defer func() { writing-- }()
			time.Sleep(3 * time.Second)
			if writing != 1 {
				t.Errorf("%d saves at a time", writing)
			}
			return "x", nil
		}))
		if err != nil || len(got) != 3 {
			t.Fatalf("%d results, %v", len(got), err)
		}
		for _, r := range got {
			if r.Busy != 3*time.Second {
				t.Errorf("a save of 3s is reported as %v", r.Busy)
			}
		}
	})
}

// TestNotFiniteIsNeverWritten: a model after a step that was not finite is
// released without a result; the step stage reports it.
func TestNotFiniteIsNeverWritten(t *testing.T) {
	tr, p := trainer(t, 2)
	w := make([]float32, tr.Layout().Total)
	if err := tr.Restore(t.Context(), 0, w, nil, nil); err != nil {
		t.Fatal(err)
	}
	in := take(t, tr, p, 2)
	// The first word of a snapshot's memory is the halt flag, just before the
	// weights; here a step that went wrong is played by setting it.
	if err := in[0].Snapshot.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	setHalt(in[0].Snapshot)
	if err := in[0].Snapshot.Wait(t.Context()); !errors.Is(err, train.ErrNotFinite) {
		t.Fatalf("the flag is elsewhere: %v", err)
	}
	var written []int64
	got, err := save(t, in, New(func(_ context.Context, s *train.Save) (string, error) {
		written = append(written, s.Snapshot.Step)
		return "x", nil
	}))
	if err != nil || len(got) != 1 || !slices.Equal(written, []int64{2}) {
		t.Errorf("wrote %v, results %v, %v", written, got, err)
	}
}

func TestPanicNamesTheCheckpoint(t *testing.T) {
	tr, p := trainer(t, 2)
	in := take(t, tr, p, 2)
	_, err := save(t, in, New(func(_ context.Context, s *train.Save) (string, error) {
		if s.Snapshot.Step == 2 {
			defer s.Snapshot.Release() // the stage cannot any more
			panic("disk controller " + fmt.Sprint(math.Pi))
		}
		return "x", nil
	}))
	if err == nil || !strings.Contains(err.Error(), "stage saves: panic at checkpoint of step 2: disk controller 3.14") {
		t.Errorf("error %v", err)
	}
}

// setHalt writes the halt flag of a snapshot, 64 bytes before its weights.
func setHalt(s *train.Snapshot) {
	*(*int32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.Weights)), -64)) = 1
}
