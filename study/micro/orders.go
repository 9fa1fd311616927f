package micro

import (
	"fmt"
)

// orderArm is a recipe whose order of the data is varied.
type orderArm struct {
	name string
	Point
}

// orderArms are the tuned recipe at one or two batch sizes, and the usual decay for as many
// epochs, where a model is overfit.
func (s scope) orderArms() (list []orderArm, ok bool) {
	single, ok := s.tuned(s.middle())
	if !ok {
		return nil, false
	}
	list = append(list, orderArm{fmt.Sprintf("B=%d", single.Batch), single})
	for _, b := range s.t.batches {
		if b.batch != s.t.orderBatch {
			continue
		}
		p, ok := s.tunedAt(b)
		if !ok {
			return nil, false
		}
		list = append(list, orderArm{fmt.Sprintf("B=%d", p.Batch), p})
	}
	usual := s.point(s.middle().name, trial{Epochs: single.Epochs, LR: s.middle().lr, Decay: usualDecay})
	return append(list, orderArm{fmt.Sprintf("B=%d, decay 0.1", usual.Batch), usual}), true
}

func ordered(p Point, order string) Point {
	p.Order = order
	return p
}

func (s scope) wantOrders(d *demand) {
	arms, ok := s.orderArms()
	if s.t.orders == nil || !ok {
		return
	}
	for _, arm := range arms {
		s.confirm(d, arm.Point)
		for _, o := range s.t.orders {
			s.confirm(d, ordered(arm.Point, o))
		}
	}
}

// answerOrders: (e). Expected is fixed above reshuffle above repack at every batch size
// with tuned decay; what happens at 0.1 and whether the gain grows with the batch is told
// beside it.
func (s scope) answerOrders(a *Answer) {
	arms, ok := s.orderArms()
	if !ok {
		a.fail("the tuned recipes are not known")
		return
	}
	t := Table{Title: "Order of the data", Head: []string{"setting", "first minus second", "difference", "95 % interval", "by pool", "verdict"},
		Caption: "Mean test loss of the first order minus that of the second, over the same seeds, pools and documents; above zero the second is better."}
	var verdicts []Verdict
	text := ""
	var gains [][]side
	for _, arm := range arms {
		for _, pair := range [][2]string{{"fixed", "repack"}, {"reshuffle", "repack"}, {"fixed", "reshuffle"}} {
			x, y := s.sides(ordered(arm.Point, pair[0])), s.sides(ordered(arm.Point, pair[1]))
			e, ok := s.contrast(a, fmt.Sprintf("%s: %s minus %s", arm.name, pair[0], pair[1]), x, y)
			if !ok {
				return
			}
			v := judge(e, 1)
			t.Rows = append(t.Rows, effectRow(arm.name, pair[0]+" - "+pair[1], e, v))
			if arm.Decay != usualDecay {
				verdicts = append(verdicts, v)
				text += fmt.Sprintf("; %s: %s minus %s %v (%s)", arm.name, pair[0], pair[1], e, v)
				if pair == [2]string{"fixed", "repack"} {
					gains = append(gains, minus(x, y))
				}
			} else {
				a.note("%s, %d epochs: %s minus %s %v (%s)", arm.name, arm.Epochs, pair[0], pair[1], e, v)
			}
		}
	}
	a.Tables = append(a.Tables, t)
	if len(gains) == 2 {
		if e, ok := s.contrast(a, fmt.Sprintf("gain of packing anew at %s minus that at %s", arms[1].name, arms[0].name), gains[1], gains[0]); ok {
			a.note("a larger gain of packing anew at the larger batch: %s, %v", judge(e, 1), e)
		}
	}
	if text == "" {
		a.fail("the tuned decay is the usual one, so there is nothing to compare")
		return
	}
	a.say(all(verdicts...), "%s", text[2:])
}

func effectRow(setting, name string, e Effect, v Verdict) []string {
	between := ""
	if e.Interval != nil {
		between = fmt.Sprintf("%+.4f to %+.4f", e.Interval[0], e.Interval[1])
	}
	return []string{setting, name, fmt.Sprintf("%+.4f", e.Difference), between, pools(e), string(v)}
}

// minus are the differences of the pairs of equal pool and seed.
func minus(a, b []side) (out []side) {
	for _, x := range a {
		for _, y := range b {
			if x.pool == y.pool && x.seed == y.seed {
				docs := make([]float64, len(x.docs))
				for i := range docs {
					docs[i] = x.docs[i] - y.docs[i]
				}
				out = append(out, side{x.pool, x.seed, docs})
			}
		}
	}
	return out
}
