package report

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"refrain/study"
)

// armRef is the rows of an arm's runs in the provenance, or that of the file where the page
// has no records of them.
func (b *builder) armRef(f *file, registry, hash string, arms ...*study.Arm) string {
	var rows []int
	for _, a := range arms {
		for _, r := range a.Runs {
			if n, ok := b.page.Sources.at["run "+filepath.Join(registry, r)]; ok {
				rows = append(rows, n)
			}
		}
	}
	if len(rows) == 0 {
		rows = append(rows, b.page.Sources.Add("file "+f.path, Source{What: "measurement of a study", Data: hash, Code: f.head.Code, Where: f.path}))
	}
	return Ref(rows...)
}

// contrastHead are the columns of a contrast.
func contrastHead() []string {
	return []string{"difference", "95 % interval", "error, documents", "error, seeds", "clear"}
}

func contrastCells(c *study.Contrast) []string {
	if c == nil {
		return []string{"", "", "", "", ""}
	}
	interval, isClear := "", "one seed"
	if c.Interval != nil {
		interval, isClear = fmt.Sprintf("%+.4f to %+.4f", c.Interval[0], c.Interval[1]), "no"
	}
	if c.Clear {
		isClear = "yes"
	}
	return []string{fmt.Sprintf("%+.4f", c.Difference), interval, loss4(errOf(c.StdErrDocuments)), loss4(errOf(c.StdErrSeeds)), isClear}
}

const contrastCaption = "Differences are in nats a token, below zero where the settings are better, over the same seeds and the same documents. The interval holds the difference in 95 of 100 such studies: it has the noise of seeds and that of documents in it; a difference is clear when it leaves out zero."

// ablations are the tables of cells held against one of them, and of effects.
func (b *builder) ablations() {
	for _, f := range b.r.files {
		a := f.ablation
		if a == nil {
			continue
		}
		cells := Table{Title: "Cells", Head: append([]string{"settings", "loss", "spread", "seeds"}, contrastHead()...),
			Caption: fmt.Sprintf("Losses on %d tokens of %s, held against %s. %s", a.Tokens, a.Store, a.Base, contrastCaption)}
		byLabel := map[string]*study.Arm{}
		var best *study.Arm
		for _, x := range a.Arms {
			byLabel[x.Label] = x
			if x.Loss != nil && (best == nil || *x.Loss < *best.Loss) {
				best = x
			}
			cells.add(b.armRef(f, a.Registry, a.DataHash, x), append([]string{x.Label, loss4(errOf(x.Loss)), loss4(errOf(x.Spread)), fmt.Sprint(len(x.Losses))}, contrastCells(x.Contrast)...)...)
		}
		sec := Section{Title: "Ablation", Tables: []Table{cells}}
		if len(a.Effects) > 0 {
			t := Table{Title: "Effects", Head: append([]string{"level", "against", "where", "pairs"}, contrastHead()...),
				Caption: "What a level does against that of the base cell, over all runs that differ in nothing else."}
			for _, e := range a.Effects {
				where, pairs := e.At, 0
				if where == "" {
					where = "over all others"
				}
				if e.Contrast != nil {
					pairs = e.Contrast.Pairs
				}
				t.add(b.armRef(f, a.Registry, a.DataHash, a.Arms...), append([]string{e.Level, e.Base, where, fmt.Sprint(pairs)}, contrastCells(e.Contrast)...)...)
			}
			sec.Tables = append(sec.Tables, t)
		}
		b.section(sec)
		if base := byLabel[a.Base]; best != nil && best != base && best.Contrast != nil {
			c := best.Contrast
			how := "which is not clear"
			if c.Clear {
				how = "which is clear"
			}
			b.says(b.armRef(f, a.Registry, a.DataHash, best, base), "The best cell of the ablation, %s, is at %.4f, %+.4f from %s, %s.", best.Label, *best.Loss, c.Difference, a.Base, how)
		}
		for _, w := range a.Warnings {
			b.warn("", "ablation of %s: %s", f.path, w)
		}
	}
}

// batches are the endpoints over the batch on every pool, and the certificates.
func (b *builder) batches() {
	for _, f := range b.r.files {
		s := f.batch
		if s == nil {
			continue
		}
		fig := &Figure{Title: "Loss over the batch, each tuned for itself", XLabel: "rows in a step", YLabel: "nats a token", LogX: true,
			Caption: fmt.Sprintf("Losses on %d tokens of %s; bars are the standard deviation over seeds. Dashed: on documents that the runs were trained on.", s.Tokens, s.Store)}
		t := Table{Title: "Endpoints", Head: append([]string{"pool", "batch", "steps", "loss", "chosen by", "on seen", "seeds"}, contrastHead()...),
			Caption: fmt.Sprintf("Settings were chosen on the first pool. Held against batch %s, the best there by the loss that settings are chosen by. %s", s.Reference, contrastCaption)}
		for i, p := range s.Pools {
			line, seen := Series{Name: p.Pool, Marks: true, Hue: i}, Series{Name: p.Pool + ", on seen", Marks: true, Dash: true, Hue: i}
			for _, e := range p.Endpoints {
				ref := b.armRef(f, s.Registry, s.DataHash, e.Arm)
				if x, err := strconv.ParseFloat(e.Batch, 64); err == nil && e.Loss != nil {
					line.Add(x, *e.Loss, errOf(e.Spread), ref)
					if e.Train != nil {
						seen.Add(x, *e.Train, math.NaN(), ref)
					}
				}
				t.add(ref, append([]string{p.Pool, e.Batch, fmt.Sprint(e.Steps), loss4(errOf(e.Loss)), loss4(errOf(e.Val)), loss4(errOf(e.Train)), fmt.Sprint(len(e.Losses))}, contrastCells(e.Contrast)...)...)
			}
			if len(line.X) > 0 {
				fig.Series = append(fig.Series, line, seen)
			}
			var arms []*study.Arm
			for _, e := range p.Endpoints {
				arms = append(arms, e.Arm)
			}
			b.says(b.armRef(f, s.Registry, s.DataHash, arms...), "Over the batch, each tuned for itself, the loss on pool %s is %s around batch %s.", p.Pool, p.Shape, s.Reference)
		}
		sec := Section{Title: "Batch study", Tables: []Table{t}}
		if len(fig.Series) > 0 {
			sec.Figures = append(sec.Figures, fig)
		}
		for _, x := range s.Tuned {
			if x.Certificate != nil {
				sec.Tables = append(sec.Tables, b.certificate(s.Registry, &study.Sized{Label: "batch " + x.Batch, Params: paramsOf(s, x.Batch), Certificate: x.Certificate}))
			}
		}
		b.section(sec)
		for _, w := range s.Warnings {
			b.warn("", "batch study of %s: %s", f.path, w)
		}
	}
}

// paramsOf is the size of the model of a batch.
func paramsOf(s *study.BatchStudy, batch string) int {
	for _, p := range s.Pools {
		for _, e := range p.Endpoints {
			if e.Batch == batch {
				return e.Params
			}
		}
	}
	return 0
}
