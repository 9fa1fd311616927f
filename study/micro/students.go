package micro

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"refrain/study/fit"
)

// students learn from real rows and from rows that teachers wrote: Fraction of them, so
// that epochs over the real ones take 1/(1-Fraction) as many steps.
type students struct {
	fraction float64
	tokens   int64     // that teachers write
	decays   []float64 // tried
}

// lesson is the text of one kind of teacher, with the recipes of its students.
type lesson struct {
	name    string // for people
	text    wantText
	recipes []Point
}

// lessons are those of the members of the chosen ensemble together, and of its first
// member alone, on the first pool. The papers pool samples over members, and their teacher
// of itself is a member as well (Kim et al. 2025, section 6). Students have the learning
// rate and epochs of the best single model.
func (s scope) lessons() (list []lesson, ok bool) {
	if s.t.students == nil {
		return nil, false
	}
	single, ok := s.tuned(s.middle())
	if !ok {
		return nil, false
	}
	best, _, ok := s.bestMember(s.candidates(single))
	if !ok {
		return nil, false
	}
	for _, x := range []struct {
		name    string
		members int
	}{{"the ensemble", s.t.members}, {"one member", 1}} {
		// The name holds the recipe, so that another choice has another store.
		text := wantText{
			Corpus: s.corpus, Name: fmt.Sprintf("text-%d-%08x", x.members, crc32.ChecksumIEEE([]byte(best.Label()))),
			Teacher: best, Members: x.members, Tokens: s.t.students.tokens,
		}
		l := lesson{name: x.name, text: text}
		for _, decay := range s.t.students.decays {
			p := single
			p.Decay, p.Text, p.Fraction = decay, text.Name, s.t.students.fraction
			l.recipes = append(l.recipes, p)
		}
		list = append(list, l)
	}
	return list, true
}

func (s scope) wantStudents(d *demand) {
	list, ok := s.lessons()
	if !ok {
		return
	}
	for _, l := range list {
		d.texts = append(d.texts, l.text)
		if s.r.text(s.corpus, l.text.Name) == nil {
			continue
		}
		s.try(d, l.recipes)
		if p, ok := s.best(l.recipes); ok {
			s.confirmOn(d, p, []int{1})
		}
	}
}

// answerStudents: (h). Expected are students of both kinds of teacher below the best single
// model.
func (s scope) answerStudents(a *Answer) {
	single, best, _, ok := s.found(a)
	if !ok {
		return
	}
	list, ok := s.lessons()
	if !ok {
		a.fail("there is no teacher")
		return
	}
	t := recipeTable("Students on the first pool", fmt.Sprintf("%g %% of the rows are generated.", 100*s.t.students.fraction), "")
	t.recipe(s, "best single", single)
	var verdicts []Verdict
	text := ""
	for _, l := range list {
		x := s.r.text(s.corpus, l.text.Name)
		p, ok := s.best(l.recipes)
		if x == nil || !ok {
			a.fail("no student of %s was trained well", l.name)
			return
		}
		a.Tables = append(a.Tables, s.triedTable("Tried: students of "+l.name, l.recipes))
		if at := edges(p, l.recipes); at != "" {
			a.note("student of %s: %s", l.name, at)
		}
		t.recipe(s, "student of "+l.name, p)
		e, ok := s.contrast(a, fmt.Sprintf("best single minus student of %s", l.name), s.sides(single), s.sides(p))
		if !ok {
			return
		}
		v := judge(e, 1)
		verdicts = append(verdicts, v)
		text += fmt.Sprintf("; the student of %s gains %v nats over the best single model (%s)", l.name, e, v)
		a.note("%s wrote %d tokens in %d documents (%s); the student reads %.1f of its tokens for each", l.name, x.Tokens, x.Documents, x.Recipe,
			float64(p.Epochs)*float64(s.r.corpus(s.corpus).Unique)*p.Fraction/(1-p.Fraction)/float64(x.Tokens))
		s.retention(a, l.name, single, best, p)
	}
	a.Tables = append(a.Tables, t)
	a.note("a student takes %.3g times the steps of the best single model", 1/(1-s.t.students.fraction))
	a.say(all(verdicts...), "%s", text[2:])
}

// retention is which part of what the ensemble gains over the best single model its
// student keeps, with an interval over draws of documents and runs.
func (s scope) retention(a *Answer, name string, single, best, student Point) {
	one := []int{1}
	singles, students := s.r.sides(single, one, s.t.seeds), s.r.sides(student, one, s.t.seeds)
	e := s.r.ensemble(best)
	if e == nil || lastLogit(e) == nil || len(singles) == 0 || len(students) == 0 {
		a.note("the retention of the student of %s is not known", name)
		return
	}
	tokens := s.r.corpus(s.corpus).TestTokens
	d := newDraw(len(tokens))
	of := func(list []side, drawn bool) (sum float64) {
		for i := range list {
			if drawn {
				i = d.below(len(list))
			}
			sum += d.loss(list[i].docs, tokens)
		}
		return sum / float64(len(list))
	}
	ratio := func(drawn bool) float64 {
		x := of(singles, drawn)
		return (x - of(students, drawn)) / (x - d.loss(lastLogit(e), tokens))
	}
	d.everyDocument()
	kept, gain := ratio(false), of(singles, false)-d.loss(lastLogit(e), tokens)
	if !(gain > 0) {
		a.note("the ensemble is not better than the best single model, so there is nothing for the student of %s to keep", name)
		return
	}
	var list []float64
	for range resamples {
		d.next()
		if x := ratio(true); !math.IsNaN(x) && !math.IsInf(x, 0) {
			list = append(list, x)
		}
	}
	in := fit.Middle(slices.Clone(list), level)
	a.note("the student of %s keeps %.0f %% [%.0f %%, %.0f %%] of what the ensemble gains over the best single model on the first pool", name, 100*kept, 100*in[0], 100*in[1])
}
