package main

import (
	"fmt"
	"sync"

	"refrain/internal/run"
	"refrain/study"
)

// sweepWatch shows a sweep while it goes on: on a terminal a bar and a table of points,
// drawn anew while they come to their ends; elsewhere a line for every cell that ended, with
// the best point so far.
type sweepWatch struct {
	a     *app
	spec  *study.Spec
	reg   *study.Registry
	lines bool

	mu    sync.Mutex
	cells []*study.Cell
	known map[string]bool      // by key
	steps map[string]int64     // of runs, done
	now   map[string]*liveCell // cells that go on, by key
	done  int64
	// groups are those of the cells that were known when the last one ended. The registry
	// may be read only then.
	groups []*study.Group
	bar    *progress
}

func newSweepWatch(a *app, spec *study.Spec, reg *study.Registry, cells []*study.Cell, quiet bool) *sweepWatch {
	w := &sweepWatch{a: a, spec: spec, reg: reg, lines: !quiet && !a.quiet, known: map[string]bool{}, steps: map[string]int64{}, now: map[string]*liveCell{}}
	total := int64(0)
	for _, c := range cells {
		w.add(c)
		total += c.Cost.Steps
	}
	if spec.Descend != nil {
		total = 0 // not known
	}
	answers := w.answers()
	w.groups = study.Groups(w.cells, answers)
	rows := liveRows
	if spec.Descend == nil {
		rows = min(rows, len(w.groups))
	}
	if quiet {
		rows = 0
	}
	for _, r := range answers {
		if r != nil && r.Final() {
			w.done += r.Cost.Steps
		}
	}
	w.bar = a.progressTable("sweep", total, rows, func(width int) []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return liveTable(w.cells, w.groups, w.now, rows, width)
	})
	w.bar.beginsAt(w.done)
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
	w.now[c.Key()] = &liveCell{steps: c.Cost.Steps}
}

func (w *sweepWatch) Step(c *study.Cell, i run.StepInfo) {
	w.mu.Lock()
	before := w.steps[c.Key()]
	w.steps[c.Key()] = i.Step
	if x := w.now[c.Key()]; x != nil {
		x.step = i.Step
	}
	w.done += i.Step - before
	done := w.done
	w.mu.Unlock()
	w.bar.set(done, fmt.Sprintf("%d steps, now %s seed %d step %d/%d", done, c.Label(), c.Seed, i.Step, i.Steps))
}

func (w *sweepWatch) Note(c *study.Cell, text string) {
	if w.lines {
		w.note("%s seed %d: %s", c.Label(), c.Seed, text)
	}
}

// note prints a remark, above the bar where there is one. The lock is not held: whoever
// draws the bar takes it.
func (w *sweepWatch) note(format string, args ...any) {
	if w.bar.all == nil {
		w.a.notef(format, args...)
		return
	}
	fmt.Fprintf(w.bar.all, "note  "+format+"\n", args...)
}

// record takes a cell that ended, and prints it where there is no table. It is called one
// at a time, when the registry has it.
func (w *sweepWatch) record(r *study.Record) {
	ended, cells, best := w.ended(r)
	if !w.lines {
		return
	}
	if w.bar.all == nil {
		loss := r.Val
		if loss == nil {
			loss = r.Loss
		}
		at := ""
		if best != nil {
			at = fmt.Sprintf("  best %s (%s)", withSpread(best), best.Label)
		}
		fmt.Fprintf(w.a.out, "%d/%d  %-8s loss %s  %s  %s seed %d%s\n", ended, cells, r.Status, number(loss), round(seconds(r.Seconds)), r.Label, r.Seed, at)
	}
	if r.Status != study.Done {
		w.note("%s seed %d is %s: %s", r.Label, r.Seed, r.Status, r.Reason)
	}
}

// ended notes that a cell has a record now, and returns how many have, of how many, and the
// best point.
func (w *sweepWatch) ended(r *study.Record) (ended, cells int, best *study.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.now, r.Key())
	answers := w.answers()
	for _, x := range answers {
		if x != nil {
			ended++
		}
	}
	w.groups = study.Groups(w.cells, answers)
	return ended, len(w.cells), study.BestOf(w.groups)
}

func (w *sweepWatch) end(ok bool) { w.bar.end(ok) }
