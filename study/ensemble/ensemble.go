// Package ensemble measures what several models predict together: the mean of their
// logits, which is what Kim et al. 2025 average (section 4), and the mean of their
// probabilities; for the first one, two, ... members, and for all subsets of a few.
//
// Members are loaded one at a time. What is held at once is one model with its
// activations, and the logits of a block of rows, see [Options.Memory]; the probability
// mean needs of every member only the probability of the target.
package ensemble

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"refrain/gpu"
	"refrain/internal/par"
	"refrain/model"
	"refrain/stages/evals"
	"refrain/train/eval"
)

// Member is one model of an ensemble.
type Member struct {
	Name   string // in errors
	Model  model.Config
	Policy model.Policy
	// Weights returns the parameters in the layout of Model. It is called once for each
	// block of rows, so that nobody has to hold them in between.
	Weights func(ctx context.Context) ([]float32, error)
}

// Data is what is predicted: the same rows for every member.
type Data struct {
	Set            eval.Set
	Docs           func(row int64, at func(doc, from, to int)) // as in evals.Config
	NumDocs        int
	T              int
	DocMask        bool
	ResetPositions bool
}

// Options say with what and how to evaluate. No value but Subsets and Weights changes a
// bit of a result.
type Options struct {
	Device gpu.Device
	Pool   *par.Pool // for sums over logits
	Rows   int       // in a pass of the device; 0 is 1
	// Memory bounds the bytes of logits that are held at once, see BlockRows; one row is
	// held even when it needs more. 0 is DefaultMemory.
	Memory int64
	// Subsets is the largest number of members of which all subsets are measured.
	Subsets int
	// Weights, when not nil, has a factor for the logits of every member, whose sum is
	// measured as well.
	Weights []float64
}

// DefaultMemory is the default of Options.Memory.
const DefaultMemory = 256 << 20

// MostSubsets is the largest number of members of which all subsets may be asked for:
// 63 of them.
const MostSubsets = 6

// Tally is a loss over all documents. Docs has one entry a document, in the set's order.
type Tally struct {
	eval.Result
	Docs []evals.DocLoss
}

// Subset is the loss of some of the members.
type Subset struct {
	Members     []int // in rising order
	Logit, Prob *Tally
}

// Losses are what Evaluate finds. Every loss is that of float32 logits, and the sums run
// in row order.
type Losses struct {
	Singles []*Tally // every member alone
	Logit   []*Tally // entry k: the mean logits of members 0 to k
	Prob    []*Tally // entry k: the mean probabilities of members 0 to k
	// Subsets are all of them, in the order of the binary numbers that have bit i for
	// member i; nil for more members than Options.Subsets.
	Subsets  []Subset
	Weighted *Tally // nil without Options.Weights
	// BlockRows were worked on at a time, with HeldBytes of logits.
	BlockRows int64
	HeldBytes int64
}

// Evaluate measures the ensemble of members on data. It blocks for one forward pass of
// every member over all rows. The logits are summed in float64 in the order of the
// members and multiplied by one share, so copies of one model are exactly that model. A
// member whose loss is not finite is an error that names member, row and position.
func Evaluate(ctx context.Context, o Options, members []Member, data Data) (_ *Losses, err error) {
	if o, err = o.checked(members, data); err != nil {
		return nil, err
	}
	b := newBlock(o, members, data)
	defer b.forward.close(&err)
	for row := int64(0); row < data.Set.Rows(); row += b.rows {
		if err := b.run(ctx, row, min(row+b.rows, data.Set.Rows())); err != nil {
			return nil, err
		}
	}
	return b.losses(), nil
}

func (o Options) checked(members []Member, data Data) (Options, error) {
	if o.Rows == 0 {
		o.Rows = 1
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	switch {
	case len(members) == 0:
		return o, errors.New("ensemble: there are no members")
	case o.Rows < 1 || o.Memory < 1:
		return o, fmt.Errorf("ensemble: %d rows a pass and %d bytes; both must be above 0", o.Rows, o.Memory)
	case o.Subsets > MostSubsets:
		return o, fmt.Errorf("ensemble: all subsets of %d members; %d is the most", o.Subsets, MostSubsets)
	case o.Weights != nil && len(o.Weights) != len(members):
		return o, fmt.Errorf("ensemble: %d weights for %d members", len(o.Weights), len(members))
	}
	for _, m := range members[1:] {
		if a := members[0]; m.Model.Vocab != a.Model.Vocab {
			return o, fmt.Errorf("ensemble: %s has a vocabulary of %d and %s one of %d; the members of an ensemble predict the same tokens", m.Name, m.Model.Vocab, a.Name, a.Model.Vocab)
		}
	}
	for _, m := range members {
		if m.Model.MaxT < data.T {
			return o, fmt.Errorf("ensemble: %s covers %d positions, and the rows have %d; evaluate with a shorter data.seq", m.Name, m.Model.MaxT, data.T)
		}
	}
	return o, nil
}

// forward runs one member after the other on the device, with one set of buffers at a
// time: members of one shape share it.
type forward struct {
	o    Options
	data Data
	c    eval.Config
	x    *eval.Logits
}

// run calls visit with the logits of rows [from, to) of member m.
func (f *forward) run(ctx context.Context, m Member, from, to int64, visit func(row int64, targets []int32, logits []float32) error) error {
	c := eval.Config{Model: m.Model, B: f.o.Rows, T: f.data.T, DocMask: f.data.DocMask, ResetPositions: f.data.ResetPositions, Policy: m.Policy}
	if f.x == nil || c != f.c {
		var err error
		if f.close(&err); err != nil {
			return err
		}
		if f.x, err = eval.NewLogits(ctx, f.o.Device, c); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		f.c = c
	}
	w, err := m.Weights(ctx)
	if err != nil {
		return err
	}
	if err := f.x.Load(ctx, w); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	runtime.GC() // or the members that have passed add up until a collection happens to come
	if _, err := f.x.Run(ctx, f.data.Set, from, to, visit); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	return nil
}

// close frees the device's memory and joins a failure to err.
func (f *forward) close(err *error) {
	if f.x != nil {
		*err = errors.Join(*err, f.x.Close())
		f.x = nil
	}
}

// BlockRows is how many rows are worked on at once, and the bytes of logits that are held
// for it: of every logit the float64 sum over members, with weights the weighted sum too,
// and where all subsets are measured the float32 of every member.
func BlockRows(o Options, members, t, vocab int, rows int64) (n, bytes int64) {
	each := int64(8)
	if o.Weights != nil {
		each += 8
	}
	if members <= o.Subsets {
		each += 4 * int64(members)
	}
	each *= int64(t) * int64(vocab)
	n = max(1, min(rows, o.Memory/each))
	return n, n * each
}

// notFinite is the loss of a model that has diverged.
func notFinite(row int64, pos int, loss float32) error {
	return fmt.Errorf("row %d, position %d: loss %g; this member has diverged, leave it out", row, pos, loss)
}

// finite reports the first loss that is not a number.
func finite(row int64, loss []float32) error {
	for i, l := range loss {
		if v := float64(l); math.IsNaN(v) || math.IsInf(v, 0) {
			return notFinite(row, i, l)
		}
	}
	return nil
}
