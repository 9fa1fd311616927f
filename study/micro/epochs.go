package micro

import (
	"fmt"
	"math"
)

// epochPoints are a size at the usual decay for every number of epochs.
func (s scope) epochPoints(z *sizeTable) (out []Point) {
	for _, e := range z.epochs {
		p := s.point(z.name, trial{Epochs: e, LR: z.lr, Decay: usualDecay})
		p.Order = usualOrder
		out = append(out, p)
	}
	return out
}

func (s scope) wantEpochs(d *demand) {
	for i := range s.t.sizes {
		for _, p := range s.epochPoints(&s.t.sizes[i]) {
			s.confirm(d, p)
		}
	}
}

// answerEpochs: (a). The number of epochs is chosen by the mean loss on the split for
// choices; interior means that both neighbours are worse on the other one.
func (s scope) answerEpochs(a *Answer) {
	for i := range s.t.sizes {
		if i != s.t.middle && s.t.sizes[i].epochs != nil {
			s.epochsOf(a, &s.t.sizes[i])
			a.note("%s", a.Text)
		}
	}
	s.epochsOf(a, s.middle()) // its verdict counts
}

func (s scope) epochsOf(a *Answer, z *sizeTable) {
	points := s.epochPoints(z)
	t := recipeTable(fmt.Sprintf("Epochs at a decay of 0.1, model %s", z.name), "", "epochs")
	best, least := -1, math.Inf(1)
	for i, p := range points {
		t.recipe(s, fmt.Sprint(p.Epochs), p)
		val := meanOf(s.models(p), valOf)
		if len(s.sides(p)) < s.t.seeds*s.t.pools {
			a.fail("%d of %d runs of %s with %d epochs ended well", len(s.sides(p)), s.t.seeds*s.t.pools, z.name, p.Epochs)
			return
		}
		if val < least {
			best, least = i, val
		}
	}
	a.Tables = append(a.Tables, t)
	s.overRecipes(a, "Epochs at a decay of 0.1, model "+z.name, "epochs", points, func(p Point) float64 { return float64(p.Epochs) })
	at := points[best].Epochs
	if best == 0 || best == len(points)-1 {
		a.say(NotShown, "with model %s %d epochs are best, an end of the %d that were tried (%d to %d)", z.name, at, len(points), points[0].Epochs, points[len(points)-1].Epochs)
		return
	}
	fewer, ok1 := s.contrast(a, fmt.Sprintf("%s: %d epochs minus %d", z.name, points[best-1].Epochs, at), s.sides(points[best-1]), s.sides(points[best]))
	more, ok2 := s.contrast(a, fmt.Sprintf("%s: %d epochs minus %d", z.name, points[best+1].Epochs, at), s.sides(points[best+1]), s.sides(points[best]))
	if !ok1 || !ok2 {
		return
	}
	text := fmt.Sprintf("with model %s %d epochs are best; %d cost %v and %d cost %v nats more", z.name, at, points[best-1].Epochs, fewer, points[best+1].Epochs, more)
	if last := points[len(points)-1]; last != points[best+1] {
		e, ok := s.contrast(a, fmt.Sprintf("%s: %d epochs minus %d", z.name, last.Epochs, at), s.sides(last), s.sides(points[best]))
		if !ok {
			return
		}
		text += fmt.Sprintf(", %d cost %v", last.Epochs, e)
	}
	a.say(all(judge(fewer, 1), judge(more, 1)), "%s", text)
}
