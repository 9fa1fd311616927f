package choices

import (
	"math"
	"unicode/utf8"
)

// Accuracy is the share of items answered rightly, with its standard error over items: the
// deviation of a sample over the root of its size, as lm-evaluation-harness has it. The
// error is null for one item.
type Accuracy struct {
	Acc    float64  `json:"acc"`
	StdErr *float64 `json:"stderr"`
}

// Result is how a model, or an ensemble, did on a file.
type Result struct {
	Acc   Accuracy `json:"acc"`       // the choice of the highest log probability
	Norm  Accuracy `json:"acc_norm"`  // ... divided by the characters of the choice
	Bytes Accuracy `json:"acc_bytes"` // ... divided by its bytes in UTF-8
}

// Score counts answers. logp has the log probability of every row, in their order; of
// equal ones the first is the answer. The delimiter counts into no length.
func (s *Rows) Score(logp []float64) Result {
	var right [3]int
	at := 0
	for _, it := range s.of {
		var best [3]int
		top := [3]float64{math.Inf(-1), math.Inf(-1), math.Inf(-1)}
		for i, c := range it.Choices {
			x := logp[at]
			at++
			for m, by := range [...]float64{1, float64(utf8.RuneCountInString(c)), float64(len(c))} {
				if x/by > top[m] {
					top[m], best[m] = x/by, i
				}
			}
		}
		for m := range best {
			if best[m] == it.Label {
				right[m]++
			}
		}
	}
	n := float64(len(s.of))
	accuracy := func(k int) Accuracy {
		a := Accuracy{Acc: float64(k) / n}
		if n > 1 {
			se := math.Sqrt(a.Acc * (1 - a.Acc) / (n - 1))
			a.StdErr = &se
		}
		return a
	}
	return Result{Acc: accuracy(right[0]), Norm: accuracy(right[1]), Bytes: accuracy(right[2])}
}

// Means are plain means of accuracies over several files.
type Means struct {
	Acc   float64 `json:"acc"`
	Norm  float64 `json:"acc_norm"`
	Bytes float64 `json:"acc_bytes"`
}
