package micro

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"refrain/study/fit"
)

// member is a recipe for the members of an ensemble, as factors of the epochs and of the
// decay of the best single model.
type member struct {
	epochs int
	decay  float64
}

// candidates are the recipes that an ensemble may be made of: that of the best single model
// and those around it. The decay does not go below the usual one.
func (s scope) candidates(single Point) []Point {
	list := []Point{single}
	for _, c := range s.t.recipes {
		p := single
		p.Epochs *= c.epochs
		p.Decay = math.Max(usualDecay, p.Decay*c.decay)
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

func (s scope) wantMembers(d *demand) {
	if s.t.members < 2 {
		return
	}
	single, ok := s.tuned(s.middle())
	if !ok {
		return
	}
	s.confirm(d, single)
	list := s.candidates(single)
	for _, p := range list {
		d.ensemble(wantEnsemble{p, s.t.members, false})
	}
	if best, _, ok := s.bestMember(list); ok {
		// The members are models of their own, too: (d) compares them with the single one.
		s.confirm(d, best)
		for _, pool := range s.pools() {
			for _, p := range []Point{single, best} {
				d.ensemble(wantEnsemble{p.in(pool), s.t.members, p == best && pool == 1})
			}
		}
	}
	for i := range s.t.sizes {
		z := &s.t.sizes[i]
		if p, ok := s.tuned(z); ok && z.members > 1 && i != s.t.middle {
			d.ensemble(wantEnsemble{half(p), z.members, false})
		}
	}
}

func half(p Point) Point {
	p.Decay = math.Max(usualDecay, p.Decay/2)
	return p
}

// ranked is a candidate with its law over members, on the split for choices.
type ranked struct {
	Point
	ensemble *Ensemble
	law      fit.Result
}

// bestMember is the candidate whose losses would end lowest with ever more members; where
// the law of one is broken, its loss with all members stands for the limit.
func (s scope) bestMember(list []Point) (best Point, all []ranked, ok bool) {
	least := math.Inf(1)
	for _, p := range list {
		e := s.r.ensemble(p)
		if e == nil {
			return best, nil, false
		}
		if len(e.Val) == 0 {
			continue // its members did not train well
		}
		var points []fit.Point
		for k, v := range e.Val {
			points = append(points, fit.Point{X: float64(k + 1), Loss: v})
		}
		law, err := fit.Fit(points, fit.Options{Start: fit.Ensemble})
		end := law.E
		if err != nil || law.Broken {
			law.Broken, end = true, e.Val[len(e.Val)-1]
		}
		all = append(all, ranked{p, e, law})
		if end < least {
			best, least, ok = p, end, true
		}
	}
	return best, all, ok
}

// ensembleSides has the losses of an ensemble once for every seed, so that they stand
// against each of the single models on the same pool.
func (s scope) ensembleSides(p Point, of func(e *Ensemble) []float64) (list []side) {
	for _, pool := range s.pools() {
		e := s.r.ensemble(p.in(pool))
		if e == nil || of(e) == nil {
			continue
		}
		for seed := range uint64(s.t.seeds) {
			list = append(list, side{pool, seed, of(e)})
		}
	}
	return list
}

func lastLogit(e *Ensemble) []float64 { return last(e.Logit) }
func lastProb(e *Ensemble) []float64  { return last(e.Prob) }

func last(list [][]float64) []float64 {
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// sigma is the standard deviation of the test loss over seeds, pooled over pools.
func (s scope) sigma(p Point) float64 {
	var squares, n float64
	for _, pool := range s.pools() {
		if list := s.r.sides(p, []int{pool}, s.t.seeds); len(list) > 1 {
			_, sd := s.r.mean(s.corpus, list)
			squares += sd * sd * float64(len(list)-1)
			n += float64(len(list) - 1)
		}
	}
	return math.Sqrt(squares / n)
}

// found are the parts that (c) and (d) share.
func (s scope) found(a *Answer) (single, best Point, all []ranked, ok bool) {
	if single, ok = s.tuned(s.middle()); !ok {
		a.fail("the best single model is not known")
		return
	}
	if best, all, ok = s.bestMember(s.candidates(single)); !ok {
		a.fail("the ensembles were not measured")
	}
	return
}

// answerMembers: (c).
func (s scope) answerMembers(a *Answer) {
	single, best, all, ok := s.found(a)
	if !ok {
		return
	}
	singles := s.sides(single)
	gain, ok := s.contrast(a, fmt.Sprintf("best single minus %d members by mean logits", s.t.members), singles, s.ensembleSides(best, lastLogit))
	if !ok {
		return
	}
	sigma := s.sigma(single)
	v := judge(gain, 1)
	if v == Shown && !(gain.Difference > 2*sigma) { // also where the spread is not known
		v = NotShown
	}
	a.say(v, "%d members of %s gain %v nats over the best single model (%s); two standard deviations over seeds are %.3f", s.t.members, best.Label(), gain, single.Label(), 2*sigma)
	s.otherMeans(a, single, best, singles)
	s.memberTable(a, all)
	a.draw(s.overMembers(single, best))
	limit := s.limits(a, best)
	if limit == "" {
		return
	}
	// The verdict is that of both halves now.
	_, text, _ := strings.Cut(a.Text, ": ")
	a.Text = capital(string(a.Verdict)) + ": " + text + " " + limit
}

// otherMeans adds what else the members can be joined by.
func (s scope) otherMeans(a *Answer, single, best Point, singles []side) {
	logit := s.ensembleSides(best, lastLogit)
	s.contrast(a, "mean logits minus mean probabilities", logit, s.ensembleSides(best, lastProb))
	if best != single {
		s.contrast(a, "members of the best single recipe minus members of the chosen one", s.ensembleSides(single, lastLogit), logit)
	}
	weighted := s.ensembleSides(best, func(e *Ensemble) []float64 { return e.Weighted })
	if len(weighted) > 0 {
		if e, ok := s.contrast(a, "equal weights minus weights fitted on a third split", logit, weighted); ok {
			a.note("weights fitted on a split of their own gain %v nats over equal ones", e)
		}
	}
	for i := range s.t.sizes {
		z := &s.t.sizes[i]
		p, ok := s.tuned(z)
		if !ok || z.members < 2 || i == s.t.middle {
			continue
		}
		other := s.ensembleSides(half(p), lastLogit)
		if e, ok := s.contrast(a, fmt.Sprintf("%s: best single minus %d members with half its decay", z.name, z.members), s.sides(p), other); ok {
			a.note("model %s: %d members with half the decay of the best single one gain %v nats", z.name, z.members, e)
		}
	}
}

func (s scope) memberTable(a *Answer, all []ranked) {
	t := Table{Title: "Ensembles on the split for choices", Head: []string{"recipe of the members", "one", "all", "limit"}, Caption: "Loss of mean logits on the first pool; the recipe of the lowest limit over members is chosen."}
	for _, x := range all {
		limit := "law broken"
		if !x.law.Broken {
			limit = number(x.law.E)
		}
		t.Rows = append(t.Rows, []string{x.Label(), number(x.ensemble.Val[0]), number(x.ensemble.Val[len(x.ensemble.Val)-1]), limit})
	}
	a.Tables = append(a.Tables, t)
}

// limits compares the limit over members of the middle size with that of tuned single
// models over size, on the same draws of documents and runs.
func (s scope) limits(a *Answer, best Point) string {
	var tuned []Point
	for i := range s.t.sizes {
		p, ok := s.tuned(&s.t.sizes[i])
		if !ok {
			return ""
		}
		tuned = append(tuned, p)
	}
	if len(tuned) < 3 || s.t.members < 3 {
		a.note("the limits over members and over size take three of each, so they are not compared")
		return ""
	}
	l, err := s.sizeLawOf(tuned)
	if err != nil {
		a.note("limit over size: %v", err)
		return ""
	}
	s.anySize(a, best, tuned, l)
	if l.law.Broken {
		a.Verdict = all(a.Verdict, NotShown)
		return fmt.Sprintf("The limit of single models over size is not known, because its law is broken (%s).", l.law.Warnings[len(l.law.Warnings)-1])
	}
	var curves [][][]float64 // by pool
	for _, pool := range s.pools() {
		if e := s.r.ensemble(best.in(pool)); e != nil && len(e.Logit) == s.t.members {
			curves = append(curves, e.Logit)
		}
	}
	if len(curves) == 0 {
		return ""
	}
	tokens := s.r.corpus(s.corpus).TestTokens
	d := newDraw(len(tokens))
	curve := func(pool func(i int) int) []fit.Point {
		points := make([]fit.Point, s.t.members)
		for k := range points {
			points[k].X = float64(k + 1)
		}
		for i := range curves {
			c := curves[pool(i)]
			for k := range points {
				points[k].Loss += d.loss(c[k], tokens) / float64(len(curves))
			}
		}
		return points
	}
	d.everyDocument()
	members, err := fit.Fit(curve(func(i int) int { return i }), fit.Options{Start: fit.Ensemble})
	if err != nil || members.Broken {
		a.Verdict = all(a.Verdict, NotShown)
		return "The limit over members is not known, because its law is broken."
	}
	var diffs []float64
	for range resamples {
		d.next()
		m, err := fit.Quick(curve(func(int) int { return d.below(len(curves)) }), fit.Ensemble)
		if err != nil {
			a.note("limits: %v", err)
			return ""
		}
		n, err := fit.Quick(l.draw(d, tokens), fit.Params)
		if err != nil {
			a.note("limits: %v", err)
			return ""
		}
		diffs = append(diffs, m.E-n.E)
	}
	in := fit.Middle(slices.Clone(diffs), level)
	verdict := NotShown
	switch {
	case in[1] < 0:
		verdict = Shown
	case in[0] > 0:
		verdict = Opposite
	}
	a.Verdict = all(a.Verdict, verdict)
	return fmt.Sprintf("Limits (%s): %.3f over members against %.3f of single models over size, a difference of %+.3f [%+.3f, %+.3f].", verdict, members.E, l.law.E, members.E-l.law.E, in[0], in[1])
}

// anySize holds the ensemble against every size that was trained, which takes no law.
func (s scope) anySize(a *Answer, best Point, tuned []Point, l *sizeLaw) {
	least, at := math.Inf(1), 0
	for i, p := range l.points {
		if p.Loss < least {
			least, at = p.Loss, i
		}
	}
	if e, ok := s.contrast(a, fmt.Sprintf("best tuned size (%s) minus %d members of %s", tuned[at].Size, s.t.members, best.Size), l.sides[at], s.ensembleSides(best, lastLogit)); ok {
		a.note("the best tuned single model of any size, %s, minus the ensemble of %s: %v nats", tuned[at].Size, best.Size, e)
	}
}

// answerOverfit: (d). Overfit is a higher loss on unseen text beside a lower one on the
// text that was trained on.
func (s scope) answerOverfit(a *Answer) {
	single, best, _, ok := s.found(a)
	if !ok {
		return
	}
	t := recipeTable("Best member and best single model", "Of the member, as a model by itself.", "")
	t.recipe(s, "best single", single)
	t.recipe(s, "best member", best)
	a.Tables = append(a.Tables, t)
	if best == single {
		a.say(NotShown, "the members whose ensemble is chosen have the recipe of the best single model (%s)", single.Label())
		return
	}
	alone, ok := s.contrast(a, "best member alone minus best single", s.sides(best), s.sides(single))
	if !ok {
		return
	}
	train := meanOf(s.models(best), trainOf) - meanOf(s.models(single), trainOf)
	v := judge(alone, 1)
	if v == Shown && !(train < 0) {
		v = NotShown
	}
	a.say(v, "the best member has %g times the decay and %g times the epochs of the best single model; alone its test loss is %v nats above, its training loss %+.3f",
		best.Decay/single.Decay, float64(best.Epochs)/float64(single.Epochs), alone, train)
}
