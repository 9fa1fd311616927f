package micro

import "math"

// arms of the question about embeddings.
func (s scope) tyingArms() (names []string, points [][]Point) {
	z := s.middle()
	for _, x := range []struct {
		name string
		list []trial
	}{{"untied, no decay", z.tune}, {"untied, decayed", s.t.decayed}, {"tied, no decay", s.t.tied}, {"tied, decayed", s.t.tiedDecayed}} {
		if x.list != nil {
			names, points = append(names, x.name), append(points, s.points(z.name, x.list))
		}
	}
	return names, points
}

func (s scope) wantTying(d *demand) {
	if s.t.decayed == nil {
		return
	}
	_, arms := s.tyingArms()
	for _, points := range arms {
		s.try(d, points)
		if p, ok := s.best(points); ok {
			s.confirm(d, p)
		}
	}
}

// answerTying: (g). Every arm is tuned by itself: the matrix that is both has a learning
// rate, a decay and a number of epochs of its own.
func (s scope) answerTying(a *Answer) {
	names, arms := s.tyingArms()
	t := recipeTable("Embedding", "Each arm tuned by itself.", "arm")
	best := map[string][]side{}
	val := map[string]float64{}
	for i, points := range arms {
		p, ok := s.best(points)
		if !ok {
			a.fail("no recipe of the arm %q was trained well", names[i])
			return
		}
		if i > 0 {
			a.Tables = append(a.Tables, s.triedTable("Tried: "+names[i], points))
			if at := edges(p, points); at != "" {
				a.note("%s: %s", names[i], at)
			}
		}
		t.recipe(s, names[i], p)
		best[names[i]], val[names[i]] = s.sides(p), meanOf(s.models(p), valOf)
	}
	a.Tables = append(a.Tables, t)
	decay, ok := s.contrast(a, "untied: no decay of the embedding minus decay", best["untied, no decay"], best["untied, decayed"])
	if !ok {
		return
	}
	if best["tied, decayed"] == nil || best["tied, no decay"] == nil {
		a.say(judge(decay, 1), "decay of the untied embedding gains %v nats", decay)
		return
	}
	tiedDecay, ok1 := s.contrast(a, "tied: no decay of the matrix minus decay", best["tied, no decay"], best["tied, decayed"])
	tying, ok2 := s.contrast(a, "untied minus tied, both decayed", best["untied, decayed"], best["tied, decayed"])
	if _, ok3 := s.contrast(a, "untied minus tied, without decay of the embedding", best["untied, no decay"], best["tied, no decay"]); !ok1 || !ok2 || !ok3 {
		return
	}
	least, at := math.Inf(1), ""
	for _, name := range names {
		if val[name] < least {
			least, at = val[name], name
		}
	}
	a.say(all(judge(decay, 1), judge(tiedDecay, 1), judge(tying, 1)), "decay gains %v nats untied (%s) and %v tied (%s); tying gains %v with decay (%s); the best arm is %s",
		decay, judge(decay, 1), tiedDecay, judge(tiedDecay, 1), tying, judge(tying, 1), at)
}
