package micro

import (
	"fmt"

	"refrain/internal/num"
	"refrain/study/fit"
)

func (s scope) wantDecay(d *demand) {
	for i := range s.t.sizes {
		z := &s.t.sizes[i]
		s.try(d, s.points(z.name, z.tune))
		if p, ok := s.tuned(z); ok {
			s.confirm(d, p)
		}
		if p, ok := s.usual(z); ok {
			s.confirm(d, p)
		}
	}
}

// leastRatio is how many times the tokens the parameters must be to exceed them far.
const leastRatio = 5

// answerDecay: (b). Expected are a tuned decay of at least four times 0.1 that beats 0.1 at
// its own best stop, for the middle size, and a loss that falls with every larger model.
func (s scope) answerDecay(a *Answer) {
	t := recipeTable("Size, tuned and at a decay of 0.1", "Packed anew every epoch; learning rate, epochs and decay chosen for each.", "size")
	ratios := Table{Title: "Tuned decay", Head: []string{"size", "parameters", "a training token", "tuned decay", "times 0.1", "at an end of what was tried"}}
	var tuned []Point
	verdicts := []Verdict{}
	text := ""
	for i := range s.t.sizes {
		z := &s.t.sizes[i]
		points := s.points(z.name, z.tune)
		a.Tables = append(a.Tables, s.triedTable("Tried with model "+z.name, points))
		p, ok := s.tuned(z)
		if !ok || len(s.sides(p)) == 0 {
			a.fail("the tuned recipe of model %s was not trained well", z.name)
			return
		}
		t.recipe(s, z.name+" tuned", p)
		params := s.models(p)[0].Params
		ratio := float64(params) / float64(s.r.corpus(s.corpus).Unique)
		ratios.Rows = append(ratios.Rows, []string{z.name, fmt.Sprint(params), fmt.Sprintf("%.1f", ratio), fmt.Sprint(p.Decay), fmt.Sprintf("%.0f", p.Decay/usualDecay), edges(p, points)})
		tuned = append(tuned, p)
		u, ok := s.usual(z)
		if !ok {
			continue
		}
		t.recipe(s, z.name+" at 0.1", u)
		gain, ok := s.contrast(a, fmt.Sprintf("%s: decay 0.1 at its best stop minus tuned", z.name), s.sides(u), s.sides(p))
		if !ok {
			return
		}
		if i == s.t.middle {
			v := judge(gain, 1)
			if p.Decay < 4*usualDecay && v == Shown {
				v = NotShown
			}
			verdicts = append(verdicts, v)
			text = fmt.Sprintf("the tuned decay of model %s, with %.1f parameters a token, is %g, %.0f times 0.1, and gains %v nats over 0.1 at its own best stop", z.name, ratio, p.Decay, p.Decay/usualDecay, gain)
			if ratio < leastRatio {
				a.note("with %.1f parameters a token they do not far exceed the tokens", ratio)
			}
		}
	}
	a.Tables = append(a.Tables, t, ratios)
	a.draw(s.heat(s.middle()))
	s.overRecipes(a, "Size, tuned", "millions of parameters", tuned, func(p Point) float64 { return float64(s.models(p)[0].Params) / 1e6 })
	for i := range len(tuned) - 1 {
		e, ok := s.contrast(a, fmt.Sprintf("%s tuned minus %s tuned", tuned[i].Size, tuned[i+1].Size), s.sides(tuned[i]), s.sides(tuned[i+1]))
		if !ok {
			return
		}
		v := judge(e, 1)
		verdicts = append(verdicts, v)
		text += fmt.Sprintf("; from %s to %s the tuned loss falls by %v (%s)", tuned[i].Size, tuned[i+1].Size, e, v)
	}
	if text == "" {
		a.fail("no recipe with a decay of 0.1 was tried for the middle size")
		return
	}
	a.say(all(verdicts...), "%s", text)
	s.lawOverSize(a, tuned)
}

// resamples is how many draws of documents and runs give an interval of a law.
const resamples = 400

// sizeLaw is the law of tuned losses over millions of parameters.
type sizeLaw struct {
	points []fit.Point
	sides  [][]side
	law    fit.Result
}

// sizeLawOf fits it; an error with fewer than three sizes.
func (s scope) sizeLawOf(tuned []Point) (*sizeLaw, error) {
	l := &sizeLaw{}
	for _, p := range tuned {
		list := s.sides(p)
		mean, _ := s.r.mean(s.corpus, list)
		l.sides = append(l.sides, list)
		l.points = append(l.points, fit.Point{X: float64(s.models(p)[0].Params) / 1e6, Loss: mean})
	}
	var err error
	l.law, err = fit.Fit(l.points, fit.Options{Start: fit.Params})
	return l, err
}

// draw is a draw of documents with replacement, as how often each was drawn.
type draw struct {
	count []float64
	rng   num.Stream
	n     uint64
}

func newDraw(docs int) *draw {
	return &draw{count: make([]float64, docs), rng: num.NewStream("micro resamples", 0)}
}

// everyDocument counts each document once.
func (d *draw) everyDocument() {
	for i := range d.count {
		d.count[i] = 1
	}
}

func (d *draw) next() {
	clear(d.count)
	for range d.count {
		d.count[d.below(len(d.count))]++
	}
}

func (d *draw) below(n int) int {
	d.n++
	return int(d.rng.Uintn(d.n, uint64(n)))
}

// loss is the mean loss of documents on the draw.
func (d *draw) loss(docs []float64, tokens []int64) float64 {
	var sum, n float64
	for i, c := range d.count {
		sum += c * docs[i]
		n += c * float64(tokens[i])
	}
	return sum / n
}

// points are losses over sizes on the draw, of runs that are drawn as well.
func (l *sizeLaw) draw(d *draw, tokens []int64) []fit.Point {
	points := make([]fit.Point, len(l.points))
	for i, p := range l.points {
		sum := 0.0
		for range l.sides[i] {
			sum += d.loss(l.sides[i][d.below(len(l.sides[i]))].docs, tokens)
		}
		points[i] = fit.Point{X: p.X, Loss: sum / float64(len(l.sides[i]))}
	}
	return points
}

func (s scope) lawOverSize(a *Answer, tuned []Point) {
	if len(tuned) < 3 {
		return
	}
	l, err := s.sizeLawOf(tuned)
	if err != nil {
		a.note("law over size: %v", err)
		return
	}
	d, tokens := newDraw(len(s.r.corpus(s.corpus).TestTokens)), s.r.corpus(s.corpus).TestTokens
	var ends []float64
	for range resamples {
		d.next()
		again, err := fit.Quick(l.draw(d, tokens), fit.Params)
		if err != nil {
			a.note("law over size: %v", err)
			return
		}
		ends = append(ends, again.E)
	}
	middle := fit.Middle(ends, level)
	if !l.law.Broken {
		a.note("law over size (millions of parameters): %v, rmse %.4f, limit %.3f [%.3f, %.3f] by drawing documents and runs again", l.law.Law, l.law.RMSE, l.law.E, middle[0], middle[1])
	}
	for _, w := range l.law.Warnings {
		a.note("law over size: %s", w)
	}
}
