package train_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/model"
	"refrain/train"
)

// smallTeacher is a teacher of another shape than tinyModel.
func smallTeacher() model.Config {
	return model.Config{Vocab: 61, Layers: 1, Dim: 16, Heads: 2, KVHeads: 1, FFN: 24, MaxT: 40, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
}

func fresh(c model.Config, seed uint64) func(context.Context) ([]float32, error) {
	return func(context.Context) ([]float32, error) {
		l := c.Layout()
		w := make([]float32, l.Total)
		model.Initialize(w, c, l, seed)
		return w, nil
	}
}

// distilled is tinyOptions with two teachers.
func distilled(devices int) train.Options {
	o := tinyOptions(devices)
	o.Distill = &train.Distill{Weight: 0.5, Temperature: 2, TopK: 9, Teachers: []train.Teacher{
		{Name: "same", Model: tinyModel(), Weights: fresh(tinyModel(), 21)},
		{Name: "small", Model: smallTeacher(), Weights: fresh(smallTeacher(), 22)},
	}}
	return o
}

func TestRow26BitsDoNotDependOnDevicesOrThreads(t *testing.T) {
	sameBits(t, distilled)
	halved := func(devices int) train.Options {
		o := distilled(devices)
		o.Policy, o.Distill.TopK = model.Policy{Act: gpu.BF16}, 0
		return o
	}
	t.Run("bf16", func(t *testing.T) { sameBits(t, halved) })
	noisy := func(devices int) train.Options {
		o := distilled(devices)
		o.Dropout, o.Masked = 0.1, train.Masked{Weight: 0.3, From: 0.1, To: 0.5, ID: -1, Vocab: 61}
		return o
	}
	t.Run("noise", func(t *testing.T) { sameBits(t, noisy) })
}

func TestRow26RestoreEqualsNeverStopped(t *testing.T) {
	straight := newRig(t, distilled(1), host.Config{Threads: 1})
	straight.run(5)
	want := bits(straight.snapshot(true).Weights)
	a := newRig(t, distilled(1), host.Config{Threads: 2})
	a.run(3)
	s := a.snapshot(true)
	b := newRig(t, distilled(2), host.Config{Threads: 2})
	if err := b.tr.Restore(t.Context(), s.Step, s.Weights, s.M, s.V); err != nil {
		t.Fatal(err)
	}
	b.run(5)
	if !slices.Equal(bits(b.snapshot(true).Weights), want) {
		t.Error("resumed on two devices: weights differ from the run that never stopped")
	}
}

// TestRow26LearnsFromTheTeacher trains a student on nothing but a trained teacher's
// predictions: it comes near them, and nearer to it than to the targets of a teacher that
// says something else.
func TestRow26LearnsFromTheTeacher(t *testing.T) {
	o := tinyOptions(1)
	o.Steps = 40
	teacher := newRig(t, o, host.Config{Threads: 2})
	taught := teacher.run(40)
	w := slices.Clone(teacher.snapshot(false).Weights)
	o.Distill = &train.Distill{Weight: 1, Temperature: 1, Teachers: []train.Teacher{{
		Name: "trained", Model: tinyModel(), Weights: func(context.Context) ([]float32, error) { return w, nil },
	}}}
	o.Seed = 8
	student := newRig(t, o, host.Config{Threads: 2})
	res := student.run(40)
	first, last := res[0].Loss, res[39].Loss
	if last > first/4 {
		t.Errorf("the divergence from the teacher went from %.4f to %.4f", first, last)
	}
	if end := taught[39].Loss; end > taught[0].Loss-0.5 {
		t.Fatalf("the teacher's loss ends at %.3f; it has learned nothing to teach", end)
	}
	// As good a student from the start has nothing to learn.
	o.Steps, o.Seed = 2, 7
	same := newRig(t, o, host.Config{Threads: 2})
	if err := same.tr.Restore(t.Context(), 0, w, nil, nil); err != nil {
		t.Fatal(err)
	}
	if res := same.run(1); math.Abs(res[0].Loss) > 1e-4 || res[0].Norm > 1e-2 {
		t.Errorf("a student that is its teacher has divergence %g and gradient %g", res[0].Loss, res[0].Norm)
	}
}

func TestDistillRefuses(t *testing.T) {
	other := smallTeacher()
	other.Vocab = 60
	short := smallTeacher()
	short.MaxT = 8
	for _, c := range []struct {
		want  string
		spoil func(d *train.Distill)
	}{
		{"no teachers", func(d *train.Distill) { d.Teachers = nil }},
		{"weight is 0", func(d *train.Distill) { d.Weight = 0 }},
		{"weight is 1.5", func(d *train.Distill) { d.Weight = 1.5 }},
		{"temperature is 0", func(d *train.Distill) { d.Temperature = 0 }},
		{"top_k is 62", func(d *train.Distill) { d.TopK = 62 }},
		{"small has a vocabulary of 60 and the student one of 61", func(d *train.Distill) { d.Teachers[1].Model = other }},
		{"covers 8 positions, and the rows have 16", func(d *train.Distill) { d.Teachers[1].Model = short }},
	} {
		o := distilled(1)
		c.spoil(o.Distill)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	gone := errors.New("gone")
	o := distilled(1)
	o.Distill.Teachers[1].Weights = func(context.Context) ([]float32, error) { return nil, gone }
	if _, err := train.New(t.Context(), o, []gpu.Device{d}); !errors.Is(err, gone) || !strings.Contains(err.Error(), "teacher small") {
		t.Errorf("a teacher that cannot be read: %v", err)
	}
	o = distilled(1)
	o.Distill.Teachers[0].Weights = func(context.Context) ([]float32, error) { return make([]float32, 3), nil }
	if _, err := train.New(t.Context(), o, []gpu.Device{d}); err == nil || !strings.Contains(err.Error(), "3 weights") {
		t.Errorf("a teacher of another size: %v", err)
	}
	a, err := train.Footprint(&o)
	if err != nil {
		t.Fatal(err)
	}
	o.Distill = nil
	b, err := train.Footprint(&o)
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.FLOPs <= b.Cost.FLOPs || len(a.Memory) != len(b.Memory)+1 {
		t.Errorf("teachers cost nothing: %+v, %+v", a, b)
	}
}
