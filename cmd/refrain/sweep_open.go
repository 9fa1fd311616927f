package main

import (
	"errors"

	"refrain/study"
)

// sweepJob is a sweep with its cells and its open registry, which its owner closes.
type sweepJob struct {
	spec  *study.Spec
	reg   *study.Registry
	cells []*study.Cell
	rate  float64 // FLOP/s of one core, for estimates
}

// lockRegistry opens a registry for one process alone.
func lockRegistry(dir string) (*study.Registry, error) { return study.OpenRegistry(dir, nil) }

// openSweep opens the registry of a sweep, by lockRegistry or study.JoinRegistry, and joins
// the cells with their data.
func openSweep(spec *study.Spec, open func(dir string) (*study.Registry, error)) (*sweepJob, error) {
	reg, err := open(spec.Out)
	if err != nil {
		return nil, err
	}
	j := &sweepJob{spec: spec, reg: reg}
	if j.cells, j.rate, _, err = sweepCells(spec, reg.Records()); err != nil {
		return nil, errors.Join(err, reg.Close())
	}
	return j, nil
}

// jobTodo is what an array job is to train.
type jobTodo struct {
	numbers []int // of cells, from 1, rising
	memory  int64 // of the largest
	left    int   // cells that the budget does not reach for
}

// todo finds the cells that have no final record, as far as the budget goes.
func todo(spec *study.Spec, cells []*study.Cell, records []*study.Record) (t jobTodo, err error) {
	ledger := study.NewLedger(spec.Budget)
	number := map[*study.Cell]int{}
	var left []*study.Cell
	for i, c := range cells {
		r, err := study.Find(records, c, spec.Code)
		if err != nil {
			return t, err
		}
		if r != nil && r.Final() {
			ledger.Spend(r)
			continue
		}
		number[c] = i + 1
		left = append(left, c)
	}
	within := ledger.Within(left)
	for _, c := range within {
		t.numbers = append(t.numbers, number[c])
		t.memory = max(t.memory, c.Cost.Memory)
	}
	t.left = len(left) - len(within)
	return t, nil
}

// withSystem adds a quarter to the memory of a run for the system's own.
func withSystem(bytes int64) int64 { return bytes * 5 / 4 }

// sweepWork is what brings cells of a sweep to their ends in this process, and what shows
// how far it is. End the second one.
func (a *app) sweepWork(j *sweepJob, cells []*study.Cell, o sweepOptions) (*study.Work, *sweepWatch) {
	ledger := study.NewLedger(j.spec.Budget)
	live := newSweepWatch(a, j.spec, j.reg, cells, o.json)
	return &study.Work{
		Spec: j.spec, Records: j.reg.Records, Ledger: ledger, Rate: j.rate, Each: live.record,
		Runner: &study.Local{
			Registry: j.reg, Policy: j.spec.Code, Parallel: o.parallel, Stop: a.graceful(), Watch: live, Admit: ledger.Admit,
			Args: append([]string{"refrain"}, a.args...),
		},
	}, live
}

// sweepCells resolves the cells of a sweep and estimates them; of a descent those that it
// asks for first.
func sweepCells(spec *study.Spec, records []*study.Record) (cells []*study.Cell, rate float64, from string, err error) {
	if cells, err = spec.Cells(); err != nil {
		return nil, 0, "", err
	}
	if rate, from, err = study.Rate(records, cells[0]); err != nil {
		return nil, 0, "", err
	}
	if spec.Descend != nil {
		axes, start, err := spec.Axes()
		if err != nil {
			return nil, 0, "", err
		}
		cells = nil
		for _, size := range spec.Sizes() {
			for _, p := range study.First(axes, start) {
				at, err := spec.At(spec.Point(size, p))
				if err != nil {
					return nil, 0, "", err
				}
				cells = append(cells, at...)
			}
		}
	}
	return cells, rate, from, study.Open(cells, rate)
}
