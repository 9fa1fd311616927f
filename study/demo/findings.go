package demo

import (
	"fmt"
	"math"

	"refrain/internal/run"
	"refrain/stages/evals"
)

// pooled adds up the per-document losses of an arm over its seeds.
func pooled(results []outcome, name string) (docs []evals.DocLoss, losses []float64) {
	for _, r := range results {
		if r.Arm.Name != name {
			continue
		}
		losses = append(losses, r.Val.Loss)
		if docs == nil {
			docs = make([]evals.DocLoss, len(r.Val.Docs))
		}
		for i, d := range r.Val.Docs {
			docs[i].Sum += d.Sum
			docs[i].Tokens += d.Tokens
		}
	}
	return docs, losses
}

// paired is the difference of mean losses a - b on the same documents, with
// its standard error over documents, and the difference of every seed.
type paired struct {
	Diff, StdErr float64
	Seeds        []float64
}

func pair(results []outcome, a, b string) paired {
	da, la := pooled(results, a)
	db, lb := pooled(results, b)
	var p paired
	for i := range min(len(la), len(lb)) {
		p.Seeds = append(p.Seeds, la[i]-lb[i])
	}
	var sum, tokens float64
	docs := make([]evals.DocLoss, len(da))
	for i := range da {
		docs[i] = evals.DocLoss{Sum: da[i].Sum - db[i].Sum, Tokens: da[i].Tokens}
		sum += docs[i].Sum
		tokens += float64(docs[i].Tokens)
	}
	p.Diff = sum / tokens
	p.StdErr, _ = run.StdErr(docs)
	return p
}

func (p paired) String() string {
	s := fmt.Sprintf("%+.3f +- %.3f nats", p.Diff, p.StdErr)
	for i, d := range p.Seeds {
		if i == 0 {
			s += " (by seed"
		}
		s += fmt.Sprintf(" %+.3f", d)
		if i == len(p.Seeds)-1 {
			s += ")"
		}
	}
	return s
}

// verdict words a difference that counts only beyond two standard errors.
func (p paired) verdict(better, worse string) string {
	switch {
	case p.Diff > 2*p.StdErr:
		return better
	case p.Diff < -2*p.StdErr:
		return worse
	}
	return "no clear difference"
}

func mean(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s / float64(len(x))
}

// usual is the better of the two recipes with usual decay and without repacking:
// all epochs, or half of them. Half is the better where the loss turns, and with
// few epochs it does not; to be held against the worse one proves nothing.
func (p plan) usual(results []outcome) arm {
	best, least := p.Arms[0], math.Inf(1)
	for _, a := range []arm{p.Arms[4], p.Arms[0]} {
		if _, l := pooled(results, a.Name); mean(l) < least {
			best, least = a, mean(l)
		}
	}
	return best
}

// findings says in three lines what was found.
func (d *demo) findings(results []outcome) []string {
	order := pair(results, "fixed-0.1", "repack-0.1")
	lines := []string{
		fmt.Sprintf("order: FIXED minus REPACK at decay 0.1, %d epochs: %v: %s", d.plan.Arms[0].Epochs, order,
			order.verdict("packing anew every epoch helps", "packing anew every epoch hurts here")),
	}
	if len(d.plan.Arms) > 2 {
		reg := pair(results, "repack-0.1", "repack-3.2")
		orderReg := pair(results, "fixed-3.2", "repack-3.2")
		lines = append(lines, fmt.Sprintf("decay: 0.1 minus 3.2 under REPACK: %v: %s; FIXED minus REPACK at 3.2: %v", reg,
			reg.verdict("strong decay helps", "strong decay hurts here"), orderReg))
		_, best := pooled(results, "repack-3.2")
		base := d.plan.usual(results)
		_, baseLoss := pooled(results, base.Name)
		lines = append(lines, fmt.Sprintf("against the better of the usual recipes (%s: %d epochs, decay 0.1, val %.3f): REPACK with decay 3.2 at %d epochs has val %.3f, a difference of %v",
			base.Name, base.Epochs, mean(baseLoss), d.plan.Arms[3].Epochs, mean(best), pair(results, base.Name, "repack-3.2")))
	} else {
		_, f := pooled(results, "fixed-0.1")
		_, r := pooled(results, "repack-0.1")
		lines = append(lines, fmt.Sprintf("values: FIXED %.3f, REPACK %.3f nats on %d validation tokens, one seed each: run without --quick for two seeds, strong decay and the baseline", mean(f), mean(r), d.valTok))
	}
	if len(d.plan.Arms) <= 2 {
		return append(lines, "resume: "+d.kill)
	}
	return lines
}
