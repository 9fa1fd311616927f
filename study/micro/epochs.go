package micro

import (
	"fmt"
	"math"
	"strings"
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
// choices; interior means that the fewest and the most that were tried are worse on the other one.
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
	// The ends decide: a neighbour may be as good as the best and the minimum still inside.
	var ends []Effect
	var words []string
	for i, p := range points {
		end := i == 0 || i == len(points)-1
		if !end && i != best-1 && i != best+1 {
			continue
		}
		e, ok := s.contrast(a, fmt.Sprintf("%s: %d epochs minus %d", z.name, p.Epochs, at), s.sides(p), s.sides(points[best]))
		if !ok {
			return
		}
		words = append(words, fmt.Sprintf("%d cost %v", p.Epochs, e))
		if end {
			ends = append(ends, e)
		}
	}
	a.say(all(judge(ends[0], 1), judge(ends[1], 1)), "with model %s %d epochs are best; %s nats more", z.name, at, strings.Join(words, ", "))
}
