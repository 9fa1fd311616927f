package distill

import (
	"fmt"

	"refrain/internal/num"
	"refrain/stages/evals"
	"refrain/study/fit"
)

// Retention is the share of what a teacher gains over the best single model that its student
// keeps: (L_single - L_student) / (L_single - L_teacher), Kim et al. 2025, section 6. 1 is a
// student as good as its teacher, 0 one that is as good as the best single model, and it is
// no number where the teacher gains nothing.
type Retention struct {
	Value *float64 `json:"value"` // null when undefined
	Gap   float64  `json:"gap"`   // L_single - L_teacher, nats a token

	// Interval is the middle Level of the retentions over documents drawn with replacement,
	// the same documents for all three models; null where Value is, without samples, and
	// where too many samples have none.
	Interval *[2]float64 `json:"interval"`
	Level    float64     `json:"level,omitempty"`
	Samples  int         `json:"samples,omitempty"`
	Without  int         `json:"samples_undefined,omitempty"` // of them; the interval is of the others
	// Undefined says why there is no value, or no interval.
	Undefined string `json:"undefined,omitempty"`
}

// Retain works out the retention from losses by document, which must be of the same
// documents. The interval has the noise of the documents in it and not that of seeds: those
// are other models. samples of 0 leaves it out.
func Retain(single, teacher, student []evals.DocLoss, samples int, seed uint64) (Retention, error) {
	if len(single) != len(teacher) || len(single) != len(student) {
		return Retention{}, fmt.Errorf("distill: losses of %d, %d and %d documents; they must be of the same", len(single), len(teacher), len(student))
	}
	ones := make([]float64, len(single))
	scored := 0
	for i := range ones {
		ones[i] = 1
		if single[i].Tokens != teacher[i].Tokens || single[i].Tokens != student[i].Tokens {
			return Retention{}, fmt.Errorf("distill: document %d has %d, %d and %d tokens; the models were measured on other rows", i, single[i].Tokens, teacher[i].Tokens, student[i].Tokens)
		}
		if single[i].Tokens > 0 {
			scored++
		}
	}
	if scored == 0 {
		return Retention{}, fmt.Errorf("distill: there are no targets to score")
	}
	gap, gain, tokens := weigh(ones, single, teacher, student)
	r := Retention{Gap: gap / tokens}
	if !(gap > 0) {
		r.Undefined = fmt.Sprintf("the teacher's loss is %.4f above that of the best single model, so it gains nothing that a student could keep", -r.Gap)
		if gap == 0 {
			r.Undefined = "the teacher's loss is that of the best single model, so it gains nothing that a student could keep"
		}
		return r, nil
	}
	value := gain / gap
	r.Value = &value
	if samples == 0 {
		return r, nil
	}
	if scored < 2 {
		r.Undefined = "one document has no interval"
		return r, nil
	}
	r.sample(single, teacher, student, samples, seed)
	return r, nil
}

// weigh sums over documents, each as often as count says: the losses of single minus those
// of teacher, the same minus those of student, and the tokens.
func weigh(count []float64, single, teacher, student []evals.DocLoss) (gap, gain, tokens float64) {
	for d, c := range count {
		gap += c * (single[d].Sum - teacher[d].Sum)
		gain += c * (single[d].Sum - student[d].Sum)
		tokens += c * float64(single[d].Tokens)
	}
	return gap, gain, tokens
}

// sample draws documents with replacement.
func (r *Retention) sample(single, teacher, student []evals.DocLoss, samples int, seed uint64) {
	rng, draw := num.NewStream("distill documents", seed), uint64(0)
	n := uint64(len(single))
	count := make([]float64, n)
	var values []float64
	r.Samples, r.Level = samples, fit.Level
	for range samples {
		clear(count)
		for range n {
			count[rng.Uintn(draw, n)]++
			draw++
		}
		gap, gain, _ := weigh(count, single, teacher, student)
		if !(gap > 0) {
			r.Without++
			continue
		}
		values = append(values, gain/gap)
	}
	// A ratio whose divisor may be 0 has no interval that ends.
	if float64(r.Without) > (1-fit.Level)/2*float64(samples) {
		r.Undefined = fmt.Sprintf("in %d of %d samples of documents the teacher gains nothing, so the retention has no interval that ends; validate on more documents", r.Without, samples)
		return
	}
	middle := fit.Middle(values, fit.Level)
	r.Interval = &middle
}
