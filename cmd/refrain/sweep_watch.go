package main

import (
	"fmt"
	"io"
	"sync"

	"refrain/internal/run"
	"refrain/study"
)

// sweepWatch shows a sweep while it goes on: a bar on a terminal, and a line for every
// cell that ended, with the best point so far.
type sweepWatch struct {
	a     *app
	spec  *study.Spec
	reg   *study.Registry
	lines bool

	mu    sync.Mutex
	cells []*study.Cell
	known map[string]bool  // by key
	steps map[string]int64 // of runs, done
	done  int64
	bar   *progress
}

func newSweepWatch(a *app, spec *study.Spec, reg *study.Registry, cells []*study.Cell, quiet bool) *sweepWatch {
	w := &sweepWatch{a: a, spec: spec, reg: reg, lines: !quiet && !a.quiet, known: map[string]bool{}, steps: map[string]int64{}}
	total := int64(0)
	for _, c := range cells {
		w.add(c)
		total += c.Cost.Steps
	}
	if spec.Descend != nil {
		total = 0 // not known
	}
	w.bar = a.progress("sweep", total)
	for _, r := range w.answers() {
		if r != nil && r.Final() {
			w.done += r.Cost.Steps
		}
	}
	return w
}

func (w *sweepWatch) add(c *study.Cell) {
	if !w.known[c.Key()] {
		w.known[c.Key()] = true
		w.cells = append(w.cells, c)
	}
}

// answers are the records so far of the cells that are known.
func (w *sweepWatch) answers() []*study.Record {
	out := make([]*study.Record, len(w.cells))
	for i, c := range w.cells {
		out[i], _ = study.Find(w.reg.Records(), c, w.spec.Code) // the sweep itself tells of an error
	}
	return out
}

// all returns the records of everything a descent has come to.
func (w *sweepWatch) all() []*study.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers()
}

func (w *sweepWatch) Began(c *study.Cell, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(c)
}

func (w *sweepWatch) Step(c *study.Cell, i run.StepInfo) {
	w.mu.Lock()
	before := w.steps[c.Key()]
	w.steps[c.Key()] = i.Step
	w.done += i.Step - before
	done := w.done
	w.mu.Unlock()
	w.bar.set(done, fmt.Sprintf("%d steps, now %s seed %d step %d/%d", done, c.Label(), c.Seed, i.Step, i.Steps))
}

func (w *sweepWatch) Note(c *study.Cell, text string) {
	if w.lines {
		w.a.notef("%s seed %d: %s", c.Label(), c.Seed, text)
	}
}

// record prints a cell that ended. It is called one at a time, when the registry has it.
func (w *sweepWatch) record(r *study.Record) {
	if !w.lines {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := w.answers()
	ended := 0
	for _, x := range answers {
		if x != nil {
			ended++
		}
	}
	best := ""
	if g := study.BestOf(study.Groups(w.cells, answers)); g != nil {
		best = fmt.Sprintf("  best %s (%s)", withSpread(g), g.Label)
	}
	loss := r.Val
	if loss == nil {
		loss = r.Loss
	}
	var out io.Writer = w.a.out
	if w.bar.all != nil {
		out = w.bar.all // above the bar
	}
	fmt.Fprintf(out, "%d/%d  %-8s loss %s  %s  %s seed %d%s\n", ended, len(w.cells), r.Status, number(loss), round(seconds(r.Seconds)), r.Label, r.Seed, best)
	if r.Status != study.Done {
		w.a.notef("%s seed %d is %s: %s", r.Label, r.Seed, r.Status, r.Reason)
	}
}

func (w *sweepWatch) end(ok bool) { w.bar.end(ok) }
