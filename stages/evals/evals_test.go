package evals

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/model"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/train"
	"refrain/train/eval"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const seqT, numRows, vocab = 8, 3, 32

// set is a validation set of a few rows whose documents do not end with rows:
// document 0 is the first 11 targets, document 1 the rest but the last 3, which
// are masked and of document 2.
type set struct{}

func (set) Rows() int64 { return numRows }

func (set) ReadRow(g int64, tokens, targets []int32, starts []byte) (scored int, err error) {
	s := num.NewStream("validation", uint64(g))
	clear(starts)
	for i := range tokens {
		tokens[i], targets[i] = int32(s.Uintn(uint64(i), vocab)), int32(s.Uintn(uint64(100+i), vocab))
		if docOf(g, i) == 2 {
			targets[i] = -1
			continue
		}
		scored++
	}
	return scored, nil
}

func docOf(row int64, i int) int {
	switch p := int(row)*seqT + i; {
	case p < 11:
		return 0
	case p < numRows*seqT-3:
		return 1
	}
	return 2
}

func docs(row int64, at func(doc, from, to int)) {
	from := 0
	for i := 1; i <= seqT; i++ {
		if i == seqT || docOf(row, i) != docOf(row, from) {
			at(docOf(row, from), from, i)
			from = i
		}
	}
}

// rig is a trainer that makes snapshots and an evaluator, on one device.
type rig struct {
	tr   *train.Trainer
	ev   *eval.Evaluator
	pool *train.SnapshotPool
}

func newRig(t testing.TB, snapshots int) *rig {
	t.Helper()
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	m := model.Config{Vocab: vocab, Layers: 1, Dim: 16, Heads: 2, KVHeads: 1, FFN: 24, MaxT: seqT, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
	o := train.Options{
		Model: m, Steps: 10, Batch: 1, T: seqT, Shards: 1, Devices: 1, Micro: 1, Slots: 2,
		Optim: train.Optim{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Warmup: 1},
	}
	r := &rig{}
	if r.tr, err = train.New(t.Context(), o, []gpu.Device{d}); err != nil {
		t.Fatal(err)
	}
	if r.pool, err = r.tr.NewSnapshotPool(snapshots, false); err != nil {
		t.Fatal(err)
	}
	if r.ev, err = eval.New(t.Context(), d, eval.Config{Model: m, B: 2, T: seqT, DocMask: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.pool.Close(), r.ev.Close(), r.tr.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// take makes n snapshots of steps 1 to n, all of the same weights.
func (r *rig) take(t testing.TB, n int) (all []*train.Snapshot) {
	t.Helper()
	for k := range n {
		s, err := r.tr.TrySnapshot(r.pool)
		if err != nil || s == nil {
			t.Fatalf("snapshot %d of %d: %v %v; one of an earlier run is not home", k, n, s, err)
		}
		s.Step = int64(k + 1)
		all = append(all, s)
	}
	return all
}

func (r *rig) stage() *Stage {
	return New(Config{Evaluator: r.ev, Set: set{}, Docs: docs, NumDocs: 3})
}

func TestConforms(t *testing.T) {
	const n = 6
	r := newRig(t, n)
	s := r.take(t, 1)[0]
	want, err := r.stage().Evaluate(t.Context(), s)
	s.Release()
	if err != nil {
		t.Fatal(err)
	}
	timeless := func(r Result) Result { r.Busy = 0; return r }
	pipelinetest.Run(t, pipelinetest.Case[*train.Snapshot, Result]{
		New:          func() pipeline.Stage[*train.Snapshot, Result] { return r.stage() },
		Inputs:       func() []*train.Snapshot { return r.take(t, n) },
		ReleaseInput: (*train.Snapshot).Release,
		Equal:        func(a, b Result) bool { return reflect.DeepEqual(timeless(a), timeless(b)) },
		Want: func(got []Result) error {
			if len(got) != n {
				return fmt.Errorf("%d results, want %d", len(got), n)
			}
			for i, g := range got {
				if w := want; g.Step != int64(i+1) || g.Loss != w.Loss || g.Tokens != w.Tokens || g.Busy <= 0 || !reflect.DeepEqual(g.Docs, w.Docs) {
					return fmt.Errorf("result %d is %+v, want %+v", i, g, w)
				}
			}
			return nil
		},
	})
}

// TestLossByDocument: the parts add up to the whole, and every target goes to
// the document that it stands in.
func TestLossByDocument(t *testing.T) {
	r := newRig(t, 1)
	s := r.take(t, 1)[0]
	defer s.Release()
	got, err := r.stage().Evaluate(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{11, numRows*seqT - 11 - 3, 0}; len(got.Docs) != 3 || got.Docs[0].Tokens != want[0] || got.Docs[1].Tokens != want[1] || got.Docs[2] != (DocLoss{}) {
		t.Errorf("documents %+v, want %v tokens", got.Docs, want)
	}
	if got.Tokens != numRows*seqT-3 || math.Abs(got.Docs[0].Sum+got.Docs[1].Sum-got.Sum) > 1e-9*got.Sum || got.Loss != got.Sum/float64(got.Tokens) {
		t.Errorf("result %+v", got)
	}
	// The first document once more, from the loss of every target.
	var sum float64
	if err := r.ev.Load(t.Context(), s.Weights); err != nil {
		t.Fatal(err)
	}
	_, err = r.ev.Run(t.Context(), set{}, func(row int64, targets []int32, loss []float32) {
		for i := range targets {
			if docOf(row, i) == 0 {
				sum += float64(loss[i])
			}
		}
	})
	if err != nil || sum != got.Docs[0].Sum {
		t.Errorf("document 0 has %v, its targets %v, %v", got.Docs[0].Sum, sum, err)
	}
}

// TestDropOldest: when the stage cannot keep up, what waited is dropped and
// released, and the newest snapshot is measured.
func TestDropOldest(t *testing.T) {
	const n = 5
	r := newRig(t, n)
	p := pipeline.New()
	src := pipeline.Source(p, "step", pipeline.LinkConfig{Items: 1}, pipeline.StageFunc[struct{}, int](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[int]) error {
		return out.Send(ctx, 1)
	}))
	in, out := pipeline.Output[*train.Snapshot](p, src, pipeline.LinkConfig{Items: 1, DropOldest: true, Release: pipeline.ReleaseOf((*train.Snapshot).Release)})
	// All snapshots are sent before the stage runs: only the newest is left.
	for _, s := range r.take(t, n) {
		if err := out.Send(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	var got []int64
	pipeline.Sink(p, "log", pipeline.Then(p, "evals", in, pipeline.LinkConfig{Items: 1}, r.stage()), pipeline.StageFunc[Result, struct{}](
		func(ctx context.Context, in pipeline.In[Result], _ pipeline.Out[struct{}]) error {
			for v, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				got = append(got, v.Step)
			}
			return nil
		}))
	pipeline.Sink(p, "results", src, pipeline.StageFunc[int, struct{}](func(ctx context.Context, in pipeline.In[int], _ pipeline.Out[struct{}]) error {
		for _, err := range pipeline.Each(ctx, in) {
			if err != nil {
				return err
			}
		}
		return nil
	}))
	if err := p.Run(t.Context()); err != nil || len(got) != 1 || got[0] != n {
		t.Errorf("evaluated %v, %v; want [%d]", got, err, n)
	}
}

// endless is a set that takes far longer to measure than a stop may wait, and
// asks for the stop itself.
type endless struct {
	set
	stop func()
}

func (endless) Rows() int64 { return 1 << 40 }

func (e endless) ReadRow(g int64, tokens, targets []int32, starts []byte) (int, error) {
	if g == 4 {
		e.stop()
	}
	return e.set.ReadRow(g%numRows, tokens, targets, starts)
}

// TestStop: a stop ends the evaluation under way, and the snapshots behind it go
// home unmeasured.
func TestStop(t *testing.T) {
	const n = 3
	r := newRig(t, n)
	stop := make(chan struct{})
	st := New(Config{Evaluator: r.ev, Set: endless{stop: sync.OnceFunc(func() { close(stop) })}, Stop: stop})
	p := pipeline.New()
	all := r.take(t, n)
	src := pipeline.Source(p, "step", pipeline.LinkConfig{Items: 1}, pipeline.StageFunc[struct{}, *train.Snapshot](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*train.Snapshot]) error {
		for _, s := range all {
			if err := out.Send(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}))
	pipeline.Sink(p, "log", pipeline.Then(p, "evals", src, pipeline.LinkConfig{Items: 1}, st), pipeline.StageFunc[Result, struct{}](
		func(ctx context.Context, in pipeline.In[Result], _ pipeline.Out[struct{}]) error {
			for v, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				t.Errorf("a result of step %d after the stop", v.Step)
			}
			return nil
		}))
	if err := p.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if got := st.LeftOut(); got != n {
		t.Errorf("the newest snapshot left out is of step %d, want %d", got, n)
	}
	for _, s := range r.take(t, n) { // all are home
		s.Release()
	}
}
