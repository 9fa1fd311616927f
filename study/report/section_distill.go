package report

import (
	"fmt"
	"math"
	"path/filepath"

	"refrain/study/distill"
	"refrain/study/ensemble"
)

// studentLevels adds the students that were measured on the same rows to the panel of an
// ensemble.
func (b *builder) studentLevels(fig *Figure, r *ensemble.Report, end float64) {
	hue := 5
	for _, f := range b.r.files {
		d := f.distill
		if d == nil || d.DataHash != r.DataHash || d.Tokens != r.Tokens || d.Seq != r.Seq || d.DocMask != r.DocMask {
			continue
		}
		ref := Ref(b.modelRow(f, d, "student", &d.Student))
		fig.Series = append(fig.Series, Series{Name: studentName(d) + ", one model", Hue: hue, Dash: true,
			X: []float64{1, end}, Y: []float64{d.Student.Loss, d.Student.Loss}, Sources: []string{ref, ref}})
		hue++
	}
}

func studentName(d *distill.Report) string {
	if d.Self {
		return "self-distilled student"
	}
	return "distilled student"
}

// modelRow is the row of a model of a distillation.
func (b *builder) modelRow(f *file, d *distill.Report, what string, m *distill.Model) int {
	if m.Path == "" { // a mean of models
		return b.fileRow(f, "measurement of a student", d.DataHash)
	}
	return b.checkpointRow(what, m.Path, m.Source)
}

// students are what was distilled, beside what it was distilled from.
func (b *builder) students() {
	for _, f := range b.r.files {
		if f.distill != nil {
			b.student(f, f.distill)
		}
	}
}

func (b *builder) student(f *file, d *distill.Report) {
	own := b.fileRow(f, "measurement of a student", d.DataHash)
	t := Table{Title: "Models", Head: []string{"model", "loss", "error over documents"},
		Caption: fmt.Sprintf("Losses on %d tokens in %d documents of %s.", d.Tokens, d.Docs, d.Store)}
	fig := &Figure{Title: "Student, teachers and ensemble", XLabel: "models that are evaluated", YLabel: "nats a token", LogX: true,
		Caption: "Bars are the standard error over documents; those of differences, in the table, are smaller, since models find the same documents hard. Dashed: the level of the student."}
	rows := []int{own}
	point := func(name string, m *distill.Model, x float64, hue int) int {
		n := b.modelRow(f, d, name, m)
		rows = append(rows, n)
		t.add(Ref(n, own), name, loss4(m.Loss), loss4(errOf(m.StdErr)))
		if x > 0 {
			s := Series{Name: name, NoLine: true, Hue: hue}
			s.Add(x, m.Loss, errOf(m.StdErr), Ref(n, own))
			fig.Series = append(fig.Series, s)
		}
		return n
	}
	k := float64(len(d.Members))
	single := "best single model"
	if d.OfMany {
		single = "best of the teachers"
	}
	at := 1.0
	if d.OfMany {
		at = 0 // it is among them
	}
	point(single, &d.Single, at, 1)
	teachers := Series{Name: "teachers alone", NoLine: true, Hue: 6}
	for i := range d.Members {
		n := point(fmt.Sprintf("teacher %d", i+1), &d.Members[i], 0, 0)
		teachers.Add(1, d.Members[i].Loss, math.NaN(), Ref(n, own))
	}
	fig.Series = append(fig.Series, teachers)
	point("ensemble, mean of logits", &d.Ensemble, k, 0)
	n := point(studentName(d), &d.Student, 1, 5)
	fig.Series = append(fig.Series, Series{Name: "level of the student", Hue: 5, Dash: true, X: []float64{1, max(2, k)}, Y: []float64{d.Student.Loss, d.Student.Loss}, Sources: []string{Ref(n, own), Ref(n, own)}})
	ref := Ref(rows...)
	diffs := Table{Title: "Differences", Head: []string{"student minus", "difference", "error over documents"}, Caption: "Paired over documents; below zero the student is better."}
	for _, x := range []struct {
		name string
		p    *distill.Paired
	}{{single, &d.OverSingle}, {"ensemble", &d.OverEnsemble}, {"its own teacher", d.OverOwn}} {
		if x.p != nil {
			diffs.add(ref, x.name, fmt.Sprintf("%+.4f", x.p.Difference), loss4(errOf(x.p.StdErr)))
		}
	}
	sec := Section{Title: "Distillation", Text: []string{learnedText(&d.Learned)}, Figures: []*Figure{fig}, Tables: []Table{t, diffs}}
	b.says(ref, "The %s has a loss of %.4f, the %s %.4f, the ensemble %.4f; %s.", studentName(d), d.Student.Loss, single, d.Single.Loss, d.Ensemble.Loss, retentionText(&d.Retention))
	if r := &d.Retention; r.Without > 0 {
		b.warn(ref, "%s: in %d of %d samples of documents the ensemble gains nothing; the interval of the retention is of the others", f.path, r.Without, r.Samples)
	}
	if r := &d.Retention; r.Value != nil && r.Undefined != "" {
		b.warn(ref, "%s: %s", f.path, r.Undefined)
	}
	for _, w := range d.Warnings {
		b.warn(ref, "distillation of %s: %s", f.path, w)
	}
	b.section(sec)
}

// retentionText words the share of the gain that is kept.
func retentionText(r *distill.Retention) string {
	switch {
	case r.Value == nil:
		return "the share of the gain that it keeps is undefined: " + r.Undefined
	case r.Interval == nil:
		return fmt.Sprintf("it keeps %.1f %% of the gain", 100**r.Value)
	}
	return fmt.Sprintf("it keeps %.1f %% of the gain (%g %% over documents: %.1f to %.1f)", 100**r.Value, 100*r.Level, 100*r.Interval[0], 100*r.Interval[1])
}

// learnedText words what a student learned from.
func learnedText(l *distill.Learned) string {
	text := "The student"
	if l.Epochs > 0 {
		text += fmt.Sprintf(" made %s epochs over the real documents", number(l.Epochs))
	} else {
		text += " learned from the real documents"
	}
	if l.Synthetic != "" {
		text += fmt.Sprintf(", with a share of %s of its rows from documents of %s", number(l.Fraction), l.Synthetic)
	}
	if n := len(l.Teachers); n > 0 {
		text += fmt.Sprintf(", and from predictions of %d model(s) with a weight of %s at temperature %s", n, number(l.Weight), number(l.Temperature))
		if l.TopK > 0 {
			text += fmt.Sprintf(", the %d likeliest tokens", l.TopK)
		}
	}
	return text + "."
}

// chains are members that teach each other in a row, and their ensembles.
func (b *builder) chains() {
	for _, f := range b.r.files {
		c := f.chain
		if c == nil {
			continue
		}
		own, data := b.fileRow(f, "chain of members", ""), ""
		if c.Ensemble != nil {
			data = c.Ensemble.DataHash
			b.page.Sources.list[own-1].Data = data
		}
		hashes := map[string]int{} // rows of members by run
		if c.Ensemble != nil {
			for i, n := range b.memberRows(c.Ensemble) {
				hashes[filepath.Dir(filepath.Dir(c.Ensemble.Members[i].Path))] = n
			}
		}
		t := Table{Title: "Members", Head: []string{"member", "seed", "steps", "loss of the last step", "val loss", "teacher"},
			Caption: fmt.Sprintf("Every member but the first also learns from the one before it, with a weight of %s at temperature %s; the loss of a step has the teacher's term.", number(c.Weight), number(c.Temperature))}
		var rows []int
		for _, m := range c.Members {
			n, ok := hashes[m.Run]
			if !ok {
				if n, ok = b.page.Sources.at["run "+m.Run]; !ok {
					n = b.page.Sources.Add("run "+m.Run, Source{What: "member of a chain", Seed: fmt.Sprint(m.Seed), Code: f.head.Code, Where: m.Run})
				}
			}
			rows = append(rows, n)
			teacher := "none"
			if m.Teacher != "" {
				teacher = filepath.Base(m.Teacher)
			}
			t.add(Ref(n, own), filepath.Base(m.Run), fmt.Sprint(m.Seed), fmt.Sprint(m.Steps), loss4(m.Loss), loss4(errOf(m.Val)), teacher)
		}
		b.section(Section{Title: "Chain", Tables: []Table{t}})
		if c.Ensemble == nil {
			b.warn(Ref(rows...), "the chain of %s has no validation store, so its ensemble was not measured", f.path)
			continue
		}
		b.ensemble(f, c.Ensemble, "of the chain")
	}
}

// written are stores of documents that models wrote.
func (b *builder) written() {
	for _, f := range b.r.files {
		g := f.generate
		if g == nil {
			continue
		}
		own := b.page.Sources.Add("file "+f.path, Source{What: "documents that models wrote", Seed: fmt.Sprint(g.Generated.Seed), Data: g.Fingerprint, Code: f.head.Code, Where: g.Store})
		t := Table{Head: []string{"written by", "checkpoint", "weights", "documents", "tokens"}}
		for _, x := range g.Generated.Teachers {
			docs, tokens := "", ""
			if x.Documents > 0 {
				docs, tokens = fmt.Sprint(x.Documents), fmt.Sprint(x.Tokens)
			}
			t.add(Ref(own), x.Run, x.Checkpoint, short(x.Weights), docs, tokens)
		}
		text := fmt.Sprintf("%s has %d documents with %d tokens (%s, temperature %s); %d were ended by their length of %d, %d are empty.",
			g.Store, g.Documents, g.Tokens, g.Generated.Mode, number(g.Generated.Temperature), g.Generated.Cut, g.Generated.MaxLength, g.Generated.Empty)
		if !g.Cached && g.Rate > 0 {
			text += fmt.Sprintf(" They were written at %.0f tokens a second, %d at a time", g.Rate, g.Slots)
			if g.OneAtATime > 0 {
				text += fmt.Sprintf("; one at a time %.0f", g.OneAtATime)
			}
			text += "."
		}
		b.section(Section{Title: "Generated documents", Text: []string{text}, Tables: []Table{t}})
		for _, n := range g.Notes {
			b.warn(Ref(own), "%s: %s", g.Store, n)
		}
	}
}
