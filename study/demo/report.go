package demo

import (
	"fmt"
	"strings"

	"refrain/internal/run"
	"refrain/study/corpus"
	"refrain/study/report"
)

// report writes the page of the demonstration.
func (d *demo) report(path string, results []outcome, findings []string) error {
	p := &report.Page{Title: "Reading the same 65,536 tokens many times", Findings: findings}
	for i := range results {
		r, err := report.Load(results[i].Folder)
		if err != nil {
			return err
		}
		p.Runs = append(p.Runs, r)
	}
	// Arms first, so that curves of one arm stand together.
	p.Runs = byArm(d.plan, p.Runs)
	p.Group = func(r *report.Run) string { return armName(r.Name) }
	facts, commands := report.Provenance(p.Runs)
	p.Facts = append([][2]string{
		{"corpus", fmt.Sprintf("%s: %d files, %d bytes, digest %.16s", d.corpus.What, len(d.corpus.Docs), d.corpus.Bytes, corpus.Digest(d.corpus.Docs))},
		{"tokenizer", fmt.Sprintf("byte-level BPE, %d entries, trained on the training documents", d.tok.VocabSize())},
		{"validation", fmt.Sprintf("%d documents, %d tokens, chosen by text hash", valDocs, d.valTok)},
		{"speed measured first", fmt.Sprintf("%.0f tokens a second on each of %d threads", d.rate, numWorkers)},
	}, facts...)
	p.Commands = append([]string{"refrain demo" + d.flags()}, commands...)
	p.Notes = append(p.Notes, "Every run reads the same documents; the seed changes initial weights and order only. Differences are paired on the same validation documents, and their standard error is over documents: the documents, not the tokens, are the independent draws.")
	if d.note != "" {
		p.Notes = append(p.Notes, strings.ToUpper(d.note[:1])+d.note[1:]+".")
	}
	if len(d.plan.Arms) > 2 { // else it is among the findings
		p.Notes = append(p.Notes, "Kill and resume: "+d.kill+".")
	}
	p.Tables = append(p.Tables, d.armTable(results))
	if t := d.pairTable(results); len(t.Rows) > 0 {
		p.Tables = append(p.Tables, t)
	}
	return p.Write(path)
}

func (d *demo) flags() string {
	s := ""
	if d.o.Quick {
		s += " --quick"
	}
	if d.o.Corpus != "" {
		s += " --corpus DIR"
	}
	return s
}

// armName is the name of a run without its seed.
func armName(run string) string {
	if i := strings.LastIndex(run, "-seed"); i >= 0 {
		return run[:i]
	}
	return run
}

func byArm(p plan, runs []*report.Run) (out []*report.Run) {
	for _, a := range p.Arms {
		for _, r := range runs {
			if strings.HasPrefix(r.Name, a.Name+"-seed") {
				out = append(out, r)
			}
		}
	}
	return out
}

func (d *demo) armTable(results []outcome) report.Table {
	t := report.Table{Title: "Recipes", Head: []string{"recipe", "order", "epochs", "decay", "embedding decay", "seeds", "val loss", "spread", "std. error"},
		Caption: "Validation loss at the last step, mean over seeds, in nats a token. Spread is the largest difference between seeds. The standard error of a single loss over documents is large; compare recipes by the paired table."}
	for _, a := range d.plan.Arms {
		docs, losses := pooled(results, a.Name)
		se, _ := run.StdErr(docs)
		lo, hi := losses[0], losses[0]
		for _, l := range losses {
			lo, hi = min(lo, l), max(hi, l)
		}
		spread := "one seed"
		if len(losses) > 1 {
			spread = fmt.Sprintf("%.4f", hi-lo)
		}
		t.Rows = append(t.Rows, []string{a.Name, strings.ToUpper(a.Mode), fmt.Sprint(a.Epochs), fmt.Sprint(a.Decay), fmt.Sprint(a.EmbedWD),
			fmt.Sprint(len(losses)), fmt.Sprintf("%.4f", mean(losses)), spread, fmt.Sprintf("%.4f", se)})
	}
	return t
}

func (d *demo) pairTable(results []outcome) report.Table {
	t := report.Table{Title: "Paired differences", Head: []string{"first minus second", "difference", "std. error", "by seed"},
		Caption: "Mean loss of the first recipe minus that of the second on the same documents; above zero the second is better."}
	add := func(a, b string) {
		p := pair(results, a, b)
		var seeds []string
		for _, s := range p.Seeds {
			seeds = append(seeds, fmt.Sprintf("%+.4f", s))
		}
		t.Rows = append(t.Rows, []string{a + " - " + b, fmt.Sprintf("%+.4f", p.Diff), fmt.Sprintf("%.4f", p.StdErr), strings.Join(seeds, "  ")})
	}
	add("fixed-0.1", "repack-0.1")
	if len(d.plan.Arms) > 2 {
		add("fixed-3.2", "repack-3.2")
		add("fixed-0.1", "fixed-3.2")
		add("repack-0.1", "repack-3.2")
		add("fixed-0.1", "repack-3.2")
		add("baseline", "repack-0.1")
		add("baseline", "repack-3.2")
	}
	return t
}
