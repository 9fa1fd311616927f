// Package distill trains one student to predict what an ensemble predicts, and says how much
// of the ensemble's gain it keeps (Kim et al. 2025, section 6). The student learns from
// documents that the teachers wrote, mixed with the real ones ([Recipe.Synthetic]), from the
// teachers' logits on its own rows ([Recipe.Teachers]), or from both. A student of one member
// is self-distillation.
//
// What is trained and what is generated are refrain/internal/run and refrain/study/generate;
// this package has the settings that join them, and the report.
package distill

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/study/ensemble"
)

// Recipe is what a student learns from beside its documents.
type Recipe struct {
	Synthetic string   // token store that the teachers wrote; "" mixes none in
	Fraction  float64  // share of its rows
	Teachers  []string // whose logits the student learns from; none learns from tokens alone
}

// Overrides are the recipe as settings of a run, over its configuration.
func (r *Recipe) Overrides() (list []string, err error) {
	if r.Synthetic == "" && len(r.Teachers) == 0 {
		return nil, errors.New("distill: a student needs a synthetic store or teachers' logits to learn from")
	}
	if r.Synthetic != "" {
		list = append(list, "data.synthetic.store="+r.Synthetic, "data.synthetic.fraction="+strconv.FormatFloat(r.Fraction, 'g', -1, 64))
	}
	if len(r.Teachers) > 0 {
		quoted := make([]string, len(r.Teachers))
		for i, t := range r.Teachers {
			quoted[i] = strconv.Quote(t)
		}
		list = append(list, "distill.teachers=["+strings.Join(quoted, ", ")+"]")
	}
	return list, nil
}

// Request names finished runs. Each is a run folder, of which the newest good checkpoint
// counts, or a checkpoint.
type Request struct {
	Student  string
	Teachers []string // the ensemble: the mean of their logits
	Single   string   // the best single model; "" is the best of the teachers
	Self     bool     // the student learned from the first of the teachers alone

	Overrides []string // key=value, over the configurations of all runs
	Val       string   // validation store; "" is that of the runs
	Rows      int64    // measure on this many rows only; 0 is all
	Threads   int      // 0 is one a processor
	Memory    int64    // as in ensemble.Options
	Samples   int      // for the interval; 0 leaves it out
	Seed      uint64   // of the samples
}

// Model is the loss of a model, or of a mean of models, in nats a token.
type Model struct {
	Path             string   `json:"path,omitempty"` // of its checkpoint; none for a mean
	Run              string   `json:"run,omitempty"`  // as it was named
	Step             int64    `json:"step,omitempty"`
	Loss             float64  `json:"loss"`
	StdErr           *float64 `json:"stderr_over_documents"` // null with fewer than two documents
	*ensemble.Source          // not of a mean
}

// Paired is a difference of losses over the same documents.
type Paired struct {
	Difference float64  `json:"difference"`
	StdErr     *float64 `json:"stderr"`
}

// Report is what is known about a student.
type Report struct {
	Store    string `json:"store"`
	DataHash string `json:"data_hash"`
	Seq      int    `json:"seq"`
	DocMask  bool   `json:"doc_mask"`
	Rows     int64  `json:"rows"`
	Tokens   int64  `json:"tokens"`
	Docs     int    `json:"documents"`

	Single   Model   `json:"single"`
	OfMany   bool    `json:"single_is_a_teacher"` // the best of the teachers stands for the best single model
	Members  []Model `json:"teachers"`
	Ensemble Model   `json:"ensemble"` // of all teachers: mean logits
	Student  Model   `json:"student"`
	Self     bool    `json:"self"`

	OverSingle   Paired    `json:"student_over_single"`   // below 0: the student is better
	OverEnsemble Paired    `json:"student_over_ensemble"` // likewise
	OverOwn      *Paired   `json:"student_over_own_teacher"`
	Retention    Retention `json:"retention"`

	Learned  Learned  `json:"learned_from"`
	Warnings []string `json:"warnings"`
}

// Learned is what the student's configuration says it learned from.
type Learned struct {
	Epochs      float64  `json:"epochs"` // of the real documents
	Synthetic   string   `json:"synthetic_store,omitempty"`
	Fraction    float64  `json:"synthetic_fraction,omitempty"`
	Teachers    []string `json:"logits_of,omitempty"`
	Weight      float64  `json:"weight,omitempty"`
	Temperature float64  `json:"temperature,omitempty"`
	TopK        int      `json:"top_k,omitempty"`
}

// LearnedFrom reads that from a configuration.
func LearnedFrom(c *config.Config) (l Learned) {
	l.Epochs = c.Train.Epochs
	if m := c.Data.Synthetic; m.Store != "" {
		l.Synthetic, l.Fraction = m.Store, m.Fraction
	}
	if d := c.Distill; len(d.Teachers) > 0 {
		l.Teachers, l.Weight, l.Temperature, l.TopK = d.Teachers, d.Weight, d.Temperature, d.TopK
	}
	return l
}

// Measure compares a student with its teachers and the best single model on the same
// documents. It blocks for a pass of every model and writes nothing.
func Measure(ctx context.Context, r Request) (*Report, error) {
	if len(r.Teachers) == 0 {
		return nil, errors.New("distill: there are no teachers")
	}
	others := []string{r.Student}
	if r.Single != "" {
		others = append(others, r.Single)
	}
	t, err := ensemble.Beside(ctx, ensemble.Request{
		Members: r.Teachers, Overrides: r.Overrides, Val: r.Val, Rows: r.Rows, Threads: r.Threads, Memory: r.Memory,
	}, others)
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Store: t.Store, DataHash: t.DataHash, Seq: t.Seq, DocMask: t.DocMask, Rows: t.Rows, Tokens: t.Tokens, Docs: t.Docs,
		Self: r.Self, Warnings: append([]string{}, t.Warnings...),
	}
	single := best(t.Members)
	if r.Single != "" {
		single = t.Others[1]
		if b := best(t.Members); b.Tally.Loss < single.Tally.Loss {
			rep.Warnings = append(rep.Warnings, fmt.Sprintf("the teacher %s alone (loss %.4f) is better than the single model %s (%.4f)", b.Path, b.Tally.Loss, single.Path, single.Tally.Loss))
		}
	} else {
		rep.OfMany = true
	}
	for _, m := range t.Members {
		rep.Members = append(rep.Members, modelOf(m))
	}
	student := t.Others[0]
	rep.Single, rep.Student, rep.Ensemble = modelOf(single), modelOf(student), modelOf(ensemble.Model{Tally: t.Ensemble})
	rep.OverSingle, rep.OverEnsemble = paired(single.Tally, student.Tally), paired(t.Ensemble, student.Tally)
	if r.Self {
		own := paired(t.Members[0].Tally, student.Tally)
		rep.OverOwn = &own
	}
	rep.Retention, err = Retain(single.Tally.Docs, t.Ensemble.Docs, student.Tally.Docs, r.Samples, r.Seed)
	return rep, err
}

// Ready reports what would keep Measure from comparing runs with a student that is to be
// trained with configuration c: models that cannot be read, another tokenizer, other rows. It
// blocks while checkpoints are read and verified. r.Student is not looked at.
func Ready(ctx context.Context, r Request, c *config.Config) error {
	if len(r.Teachers) == 0 {
		return errors.New("distill: there are no teachers")
	}
	if r.Self {
		own, err := run.Expand(r.Teachers[:1])
		if err != nil {
			return err
		}
		if len(own) > 1 {
			return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s stands for %d models; self-distillation learns from one, such as %s", r.Teachers[0], len(own), own[len(own)-1])}
		}
	}
	var others []string
	if r.Single != "" {
		others = []string{r.Single}
	}
	return ensemble.Ready(ctx, ensemble.Request{Members: r.Teachers, Overrides: r.Overrides, Val: r.Val}, others, c)
}

func best(list []ensemble.Model) ensemble.Model {
	b := list[0]
	for _, m := range list[1:] {
		if m.Tally.Loss < b.Tally.Loss {
			b = m
		}
	}
	return b
}

func modelOf(m ensemble.Model) Model {
	out := Model{Path: m.Ckpt, Run: m.Path, Step: m.Step, Loss: m.Tally.Loss, StdErr: number(m.Tally.StdErr())}
	if m.Ckpt != "" {
		out.Source = &m.Source
	}
	return out
}

func paired(from, to *ensemble.Tally) Paired {
	d, se := ensemble.Difference(from, to)
	return Paired{d, number(se)}
}

// number is nil for what is no number.
func number(x float64) *float64 {
	if x != x {
		return nil
	}
	return &x
}
