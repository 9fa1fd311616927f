package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"refrain/gpu"
	"refrain/model"
)

// Teacher is a model that a run learns from.
type Teacher struct {
	Name  string // in errors
	Model model.Config
	// Weights returns the parameters in the layout of Model. It is called once.
	Weights func(ctx context.Context) ([]float32, error)
}

// Distill is a second term of the loss: (1-Weight) times the cross entropy of the targets
// plus Weight * Temperature^2 * KL(q || p), where p is the student's prediction and q that
// of the mean of the teachers' logits on the same windows, both at Temperature.
type Distill struct {
	Teachers    []Teacher
	Weight      float64 // above 0, at most 1
	Temperature float64
	TopK        int // keep the K largest probabilities of q, as parts of 1; 0 keeps all
}

// Validate reports every impossible value at once. Options.Validate calls it.
func (d *Distill) Validate(o *Options) error { return errors.Join(d.validate(o)...) }

func (d *Distill) validate(o *Options) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("distill: "+format, args...)) }
	if len(d.Teachers) == 0 {
		bad("there are no teachers")
	}
	if !(d.Weight > 0 && d.Weight <= 1) {
		bad("the weight is %g; it must be above 0 and at most 1", d.Weight)
	}
	if t := float32(d.Temperature); !(t > 0) || math.IsInf(float64(t), 0) {
		bad("the temperature is %g; it must be above 0", d.Temperature)
	}
	if d.TopK < 0 || d.TopK > o.Model.Vocab {
		bad("top_k is %d; it must be 0, for all, or up to the vocabulary of %d", d.TopK, o.Model.Vocab)
	}
	for _, t := range d.Teachers {
		if err := t.Model.Validate(); err != nil {
			bad("teacher %s: %w", t.Name, err)
		}
		if t.Model.Vocab != o.Model.Vocab {
			bad("teacher %s has a vocabulary of %d and the student one of %d; they must predict the same tokens", t.Name, t.Model.Vocab, o.Model.Vocab)
		}
		if t.Model.MaxT < o.T {
			bad("teacher %s covers %d positions, and the rows have %d; use a shorter seq", t.Name, t.Model.MaxT, o.T)
		}
	}
	return errs
}

// extern is memory that a step Program is given.
type extern struct {
	name  string
	bytes int64
}

func teacherName(i int) (params, cos, sin string) {
	params = fmt.Sprintf("teacher%d", i)
	return params, params + "." + extCos, params + "." + extSin
}

// teacherExterns are the memory of the teachers on a device.
func (o *Options) teacherExterns() (list []extern) {
	if o.Distill == nil {
		return nil
	}
	for i, t := range o.Distill.Teachers {
		params, cos, sin := teacherName(i)
		table := int64(o.T) * int64(t.Model.C()/2) * 4
		list = append(list, extern{params, int64(t.Model.Layout().Total) * 4}, extern{cos, table}, extern{sin, table})
	}
	return list
}

// recordTeachers declares the teachers and records the rounding of their weights, once
// for all micro-steps.
func recordTeachers(r *gpu.Recorder, o *Options) *model.Distill {
	if o.Distill == nil {
		return nil
	}
	p := r.Program()
	d := &model.Distill{Weight: float32(o.Distill.Weight), Temperature: float32(o.Distill.Temperature), TopK: o.Distill.TopK}
	for i, t := range o.Distill.Teachers {
		params, cos, sin := teacherName(i)
		l, half := t.Model.Layout(), t.Model.C()/2
		d.Teachers = append(d.Teachers, model.Teacher{
			Config:  t.Model,
			Weights: model.NewWeights(t.Model, l, p.Extern(params, gpu.F32, l.Total)).Round(r, o.Policy, params+"."),
			Tables:  model.Tables{Cos: p.Extern(cos, gpu.F32, o.T, half), Sin: p.Extern(sin, gpu.F32, o.T, half)},
		})
	}
	return d
}

func (r *replica) loadTeacherTables(ctx context.Context) error {
	o := &r.t.o
	if o.Distill == nil {
		return nil
	}
	for i, t := range o.Distill.Teachers {
		_, cosName, sinName := teacherName(i)
		cos, sin := model.RotaryTables(t.Model, o.T)
		if err := errors.Join(r.upload(ctx, r.memory[cosName], cos), r.upload(ctx, r.memory[sinName], sin)); err != nil {
			return err
		}
	}
	return nil
}

// loadTeachers reads the weights of one teacher after the other and puts them on every
// device.
func (t *Trainer) loadTeachers(ctx context.Context) error {
	if t.o.Distill == nil {
		return nil
	}
	for i, teacher := range t.o.Distill.Teachers {
		w, err := teacher.Weights(ctx)
		if err != nil {
			return fmt.Errorf("train: teacher %s: %w", teacher.Name, err)
		}
		if want := teacher.Model.Layout().Total; len(w) != want {
			return fmt.Errorf("train: teacher %s: %d weights for a model of %d", teacher.Name, len(w), want)
		}
		params, _, _ := teacherName(i)
		for _, r := range t.reps {
			if err := r.upload(ctx, r.memory[params], w); err != nil {
				return fmt.Errorf("train: loading teacher %s: %w", teacher.Name, err)
			}
		}
	}
	return nil
}
