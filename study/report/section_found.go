package report

import (
	"fmt"

	"refrain/study/choices"
)

// choices are shares of right answers to questions with several answers.
func (b *builder) choices() {
	for _, f := range b.r.files {
		r := f.choices
		if r == nil {
			continue
		}
		rows := []int{b.fileRow(f, "answers to questions", "")}
		for i, m := range r.Members {
			rows = append(rows, b.checkpointRow(fmt.Sprintf("member %d", i+1), m.Path, &r.Members[i].Source))
		}
		sec := Section{Title: "Multiple-choice questions"}
		head := []string{"model", "acc", "error", "acc_norm", "error", "acc_bytes", "error"}
		for _, x := range r.Files {
			t := Table{Title: x.File, Head: head, Caption: fmt.Sprintf("%d questions with %d answers. The shares that are right: by log probability, by that over the characters of an answer, and over its bytes; errors are over questions.", x.Items, x.Rows)}
			add := func(name, ref string, v *choices.Result) {
				if v == nil {
					return
				}
				row := []string{name}
				for _, a := range []choices.Accuracy{v.Acc, v.Norm, v.Bytes} {
					row = append(row, fmt.Sprintf("%.4f", a.Acc), loss4(errOf(a.StdErr)))
				}
				t.add(ref, row...)
			}
			for i := range x.Members {
				add(fmt.Sprintf("member %d", i+1), Ref(rows[0], rows[i+1]), &x.Members[i])
			}
			add("mean of logits", Ref(rows...), x.Logit)
			add("mean of probabilities", Ref(rows...), x.Prob)
			sec.Tables = append(sec.Tables, t)
			if last := x.Logit; last != nil {
				b.says(Ref(rows...), "%d models together answer %.1f %% of the %d questions of %s.", len(x.Members), 100*last.Norm.Acc, x.Items, x.File)
			} else {
				b.says(Ref(rows...), "The model answers %.1f %% of the %d questions of %s.", 100*x.Members[0].Norm.Acc, x.Items, x.File)
			}
		}
		if len(r.Files) > 1 && len(r.Means) == len(r.Members) {
			t := Table{Title: fmt.Sprintf("Mean of %d files", len(r.Files)), Head: []string{"model", "acc", "acc_norm", "acc_bytes"}}
			add := func(name, ref string, m *choices.Means) {
				if m != nil {
					t.add(ref, name, fmt.Sprintf("%.4f", m.Acc), fmt.Sprintf("%.4f", m.Norm), fmt.Sprintf("%.4f", m.Bytes))
				}
			}
			for i := range r.Means {
				add(fmt.Sprintf("member %d", i+1), Ref(rows[0], rows[i+1]), &r.Means[i])
			}
			add("mean of logits", Ref(rows...), r.Logit)
			add("mean of probabilities", Ref(rows...), r.Prob)
			sec.Tables = append(sec.Tables, t)
		}
		b.section(sec)
		for _, w := range r.Warnings {
			b.warn(Ref(rows...), "questions of %s: %s", f.path, w)
		}
	}
}

// micros are the answers of a study at micro scale.
func (b *builder) micros() {
	for _, f := range b.r.files {
		if f.micro == nil {
			continue
		}
		ref := Ref(b.fileRow(f, "findings of a study at micro scale, form "+f.micro.Form, ""))
		several := false
		for _, a := range f.micro.Answers {
			several = several || a.Corpus != f.micro.Answers[0].Corpus
		}
		for _, a := range f.micro.Answers {
			name := fmt.Sprintf("(%s) %s", a.ID, a.Title)
			if several {
				name += " on " + a.Corpus
			}
			b.says(ref, "%s. %s", name, a.Text)
			sec := Section{Title: name, Text: append([]string{a.Question, a.Text}, a.Notes...)}
			if len(a.Effects) > 0 {
				t := Table{Title: "Differences", Head: append([]string{"first minus second", "pairs"}, contrastHead()...), Caption: "Of test losses in nats a token; above zero the second is better. A pool with a seed counts as a seed."}
				for i := range a.Effects {
					e := &a.Effects[i]
					t.add(ref, append([]string{e.Name, fmt.Sprint(e.Pairs)}, contrastCells(&e.Contrast)...)...)
				}
				sec.Tables = append(sec.Tables, t)
			}
			for _, x := range a.Tables {
				t := Table{Title: x.Title, Caption: x.Caption, Head: x.Head}
				for _, row := range x.Rows {
					t.add(ref, row...)
				}
				sec.Tables = append(sec.Tables, t)
			}
			b.section(sec)
		}
	}
}
