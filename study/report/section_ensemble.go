package report

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"refrain/study/ensemble"
)

// ensembles are the panels of ensembles and the ranking of recipes by them.
func (b *builder) ensembles() {
	for _, f := range b.r.files {
		switch {
		case f.ensemble != nil:
			b.ensemble(f, f.ensemble, "")
		case f.ensembles != nil:
			for _, name := range slices.Sorted(maps.Keys(f.ensembles.Reports)) {
				b.ensemble(f, f.ensembles.Reports[name], name)
			}
			b.ranking(f)
		}
	}
}

// memberRows are the rows of members in the provenance: those of their runs, where the
// page has them too.
func (b *builder) memberRows(r *ensemble.Report) (rows []int) {
	for i, m := range r.Members {
		rows = append(rows, b.checkpointRow(fmt.Sprintf("member %d", i+1), m.Path, &ensemble.Source{InitSeed: m.InitSeed, OrderSeed: m.OrderSeed, Config: m.Config, DataHash: m.DataHash}))
	}
	return rows
}

// checkpointRow is the row of a checkpoint in the provenance: that of its run where the page
// has it, since a checkpoint is RUN/ckpt/step-N. s may be nil.
func (b *builder) checkpointRow(what, path string, s *ensemble.Source) int {
	if n, ok := b.page.Sources.at["run "+filepath.Dir(filepath.Dir(path))]; ok {
		return n
	}
	row := Source{What: what, Where: path}
	if s != nil {
		row.Seed, row.Config, row.Data = fmt.Sprint(s.InitSeed), s.Config, s.DataHash
		if s.OrderSeed != s.InitSeed {
			row.Seed += fmt.Sprintf(", order %d", s.OrderSeed)
		}
	}
	return b.page.Sources.Add("member "+path, row)
}

// fileRow is the row of a record in the provenance; data is the hash of what it was measured
// on, where there is one.
func (b *builder) fileRow(f *file, what, data string) int {
	return b.page.Sources.Add("file "+f.path, Source{What: what, Data: data, Code: f.head.Code, Where: f.path})
}

// errOf is the height of a bar: nothing where the error is not known.
func errOf(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

func (b *builder) ensemble(f *file, r *ensemble.Report, name string) {
	title := "Ensemble"
	if name != "" {
		title += " " + name
	}
	rows := b.memberRows(r)
	ref := Ref(append(rows, b.fileRow(f, "measurement of ensembles", r.DataHash))...)
	logit, prob := Series{Name: "mean of logits", Marks: true}, Series{Name: "mean of probabilities", Marks: true, Hue: 1}
	for _, p := range r.Curve {
		logit.Add(float64(p.K), p.Logit.Loss, errOf(p.Logit.GainStdErr), ref)
		prob.Add(float64(p.K), p.Prob.Loss, errOf(p.Prob.GainStdErr), ref)
	}
	alone := Series{Name: "members alone", NoLine: true, Hue: 6}
	for i, m := range r.Members {
		alone.Add(1, m.Loss, math.NaN(), Ref(rows[i]))
	}
	fig := &Figure{Title: title + ": loss over members", XLabel: "members", YLabel: "nats a token", LogX: true, Series: []Series{logit, prob, alone},
		Caption: fmt.Sprintf("Losses on %d tokens in %d documents of %s. Bars are the standard error over documents of the gain over the best member alone, which is paired.", r.Tokens, r.Docs, r.Store)}
	end := max(2, float64(len(r.Curve)))
	level := func(name string, loss float64, hue int) {
		fig.Series = append(fig.Series, Series{Name: name, Hue: hue, Dash: true, X: []float64{1, end}, Y: []float64{loss, loss}, Sources: []string{ref, ref}})
	}
	sec := Section{Title: title, Figures: []*Figure{fig}, Tables: []Table{b.curveTable(r, ref)}}
	if l := r.LogitLaw; l != nil {
		if !l.Broken {
			_, law := lawSeries(&l.Result, "", 0, nil, nil)
			law.Name, law.Dash, law.Sources = "law of mean logits", true, slices.Repeat([]string{ref}, len(law.X))
			fig.Series = append(fig.Series, law)
			fig.Caption += " The law through the mean of logits goes on to four times the members."
			end = law.X[len(law.X)-1]
			level(fmt.Sprintf("where more members lead, %.4f", l.E), l.E, 0)
		}
		t := Table{Head: append(lawHead(), "E over documents")}
		for _, x := range []struct {
			name string
			law  *ensemble.Asymptote
		}{{"members, mean of logits", r.LogitLaw}, {"members, mean of probabilities", r.ProbLaw}} {
			if x.law == nil {
				continue
			}
			docs := ""
			if d := x.law.ByDocuments; d != nil {
				docs = fmt.Sprintf("%.4f to %.4f", d[0], d[1])
			}
			t.add(ref, append(lawRow(x.name, &x.law.Result), docs)...)
			b.lawWarnings(ref, x.name, &x.law.Result)
		}
		sec.Tables = append(sec.Tables, t)
	}
	if r.Soup != nil {
		level("mean of weights, one model", r.Soup.Loss, 3)
	}
	if r.EMA != nil {
		level("moving mean of weights, one model", r.EMA.Loss, 4)
	}
	if l := r.Learned; l != nil {
		level("learned weights", l.Mean.Loss, 2)
		text := fmt.Sprintf("With weights that were fitted on %s the mean of logits gains %+.4f over equal ones", l.Store, l.OverPlain)
		if l.OverPlainError != nil {
			text += fmt.Sprintf(" (error over documents %.4f)", *l.OverPlainError)
		}
		sec.Text = append(sec.Text, text+".")
	}
	if len(r.Subsets) > 0 {
		sec.Tables = append(sec.Tables, subsetTable(r, ref))
	}
	b.studentLevels(fig, r, end)
	last := r.Curve[len(r.Curve)-1]
	of := ""
	if name != "" {
		of = " " + name
	}
	b.says(ref, "%d members%s together have a loss of %.4f (mean of logits), %s than the best of them alone.", last.K, of, last.Logit.Loss, better(last.Logit))
	if l := r.LogitLaw; l != nil && !l.Broken {
		b.says(ref, "With ever more members the loss would end at %.4f.", l.E)
	}
	for _, w := range r.Warnings {
		b.warn(ref, "%s: %s", title, w)
	}
	b.section(sec)
}

// better words a gain.
func better(m ensemble.Mean) string {
	word := "lower"
	gain := m.Gain
	if gain < 0 {
		word, gain = "higher", -gain
	}
	text := fmt.Sprintf("%.4f", gain)
	if m.GainStdErr != nil {
		text += fmt.Sprintf(" +- %.4f", *m.GainStdErr)
	}
	return text + " " + word
}

// gained is a gain with its error, for a table.
func gained(m ensemble.Mean) (gain, stdErr string) {
	gain = fmt.Sprintf("%+.4f", m.Gain)
	if m.GainStdErr != nil {
		stdErr = fmt.Sprintf("%.4f", *m.GainStdErr)
	}
	return gain, stdErr
}

func (b *builder) curveTable(r *ensemble.Report, ref string) Table {
	t := Table{Head: []string{"members", "mean of logits", "gain", "std. error", "mean of probabilities", "gain", "std. error"},
		Caption: "A gain is over the best member alone, on the same documents; above zero is better."}
	row := func(name string, logit ensemble.Mean, prob *ensemble.Mean) {
		g, e := gained(logit)
		cells := []string{name, fmt.Sprintf("%.4f", logit.Loss), g, e, "", "", ""}
		if prob != nil {
			cells[4] = fmt.Sprintf("%.4f", prob.Loss)
			cells[5], cells[6] = gained(*prob)
		}
		t.add(ref, cells...)
	}
	for _, p := range r.Curve {
		row(fmt.Sprint(p.K), p.Logit, &p.Prob)
	}
	if r.Learned != nil {
		row("learned weights", r.Learned.Mean, nil)
	}
	if r.Soup != nil {
		row("mean of weights", *r.Soup, nil)
	}
	if r.EMA != nil {
		row("moving mean of weights", *r.EMA, nil)
	}
	return t
}

// subsetTable is what losses do over all choices of so many of the members.
func subsetTable(r *ensemble.Report, ref string) Table {
	t := Table{Title: "All subsets of the members", Head: []string{"members", "subsets", "mean", "lowest", "highest", "spread", "mean, probabilities", "spread"},
		Caption: "Of the mean of logits, and of the mean of probabilities. The spread is the standard deviation over subsets, which share members and are not independent."}
	for _, s := range r.Subsets {
		t.add(ref, fmt.Sprint(s.K), fmt.Sprint(s.Subsets), loss4(s.Logit.Mean), loss4(s.Logit.Min), loss4(s.Logit.Max), loss4(s.Logit.SD), loss4(s.Prob.Mean), loss4(s.Prob.SD))
	}
	return t
}

// ranking is the order of recipes by where their ensembles end.
func (b *builder) ranking(f *file) {
	ref := Ref(b.fileRow(f, "measurement of ensembles", ""))
	sec := Section{Title: "Recipes by their ensembles"}
	for _, x := range []struct {
		name string
		list []ensemble.Ranked
	}{{"mean of logits", f.ensembles.Logit}, {"mean of probabilities", f.ensembles.Prob}} {
		t := Table{Title: x.name, Head: []string{"recipe", "place", "asymptote", "most members", "loss at most", "place alone", "loss alone"}}
		for _, r := range x.list {
			place := "broken fit"
			if r.Rank > 0 {
				place = fmt.Sprint(r.Rank)
			}
			t.add(ref, r.Name, place, fmt.Sprintf("%.4f", r.E), fmt.Sprint(r.Members), fmt.Sprintf("%.4f", r.Last), fmt.Sprint(r.SingleRank), fmt.Sprintf("%.4f", r.Single))
		}
		sec.Tables = append(sec.Tables, t)
	}
	if len(f.ensembles.Logit) > 0 && f.ensembles.Logit[0].SingleRank > 1 {
		r := f.ensembles.Logit[0]
		b.says(ref, "%s is the best recipe for members and has place %d alone.", r.Name, r.SingleRank)
	}
	b.section(sec)
}
