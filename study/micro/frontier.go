package micro

import (
	"fmt"
	"math"

	"refrain/study/frontier"
)

// perDevice is how many rows a device takes at a time: the smallest batch of all.
func (s scope) perDevice() int {
	least := usualBatch
	for _, b := range s.t.batches {
		least = min(least, b.batch)
	}
	return least
}

// devices are powers of two up to as many as the largest batch can use.
func (s scope) devices() (list []int) {
	most := usualBatch
	for _, b := range s.t.batches {
		most = max(most, b.batch)
	}
	for n := 1; n <= most/s.perDevice(); n *= 2 {
		list = append(list, n)
	}
	return list
}

// frontierOf is the frontier of what was tried with the middle model, on the split for
// choices, with the first seed on the first pool. ok is false before all of it has ended.
func (s scope) frontierOf() (rep *frontier.Report, points []Point, deadline float64, ok bool) {
	if s.t.batches == nil {
		return nil, nil, 0, false
	}
	single, ok := s.tuned(s.middle())
	if !ok {
		return nil, nil, 0, false
	}
	all := s.points(s.middle().name, s.middle().tune)
	for _, b := range s.t.batches {
		all = append(all, s.batchPoints(b)...)
	}
	var runs []frontier.Run
	for _, p := range all {
		m := s.r.model(p, 0)
		if m == nil {
			return nil, nil, 0, false
		}
		if m.well() {
			points = append(points, p)
			runs = append(runs, frontier.Run{Name: p.Label(), Params: m.Params, Batch: p.Batch, Steps: m.Steps, Epochs: float64(p.Epochs), Loss: *m.Val, Seeds: 1, From: []string{m.Run}})
		}
	}
	deadline = float64(s.r.model(single, 0).Steps) / 2
	rep, err := frontier.Build(runs, frontier.Options{PerGPU: s.perDevice(), GPUs: s.devices(), Deadlines: []float64{deadline / 2, deadline, deadline * 2, deadline * 4}})
	if err != nil || len(rep.Models) != 1 {
		return nil, nil, 0, false
	}
	return rep, points, deadline, true
}

// fewAndMany are the best recipes within the deadline on the fewest devices that can train
// anything, and on all.
func (s scope) fewAndMany() (few, many Point, gpus [2]int, ok bool) {
	rep, points, deadline, ok := s.frontierOf()
	if !ok {
		return few, many, gpus, false
	}
	for _, c := range rep.Models[0].Frontier.Grid {
		if c.Deadline != deadline || c.Best == nil {
			continue
		}
		if gpus[0] == 0 {
			few, gpus[0] = points[c.Best.Run], c.GPUs
		}
		many, gpus[1] = points[c.Best.Run], c.GPUs
	}
	return few, many, gpus, gpus[0] > 0
}

func (s scope) wantFrontier(d *demand) {
	if few, many, _, ok := s.fewAndMany(); ok {
		s.confirm(d, few)
		s.confirm(d, many)
	}
}

// answerFrontier: (i). Time is in steps of as many rows as one device takes at a time.
func (s scope) answerFrontier(a *Answer) {
	rep, _, deadline, ok := s.frontierOf()
	if !ok {
		a.fail("runs of the batch sizes are missing")
		return
	}
	t := Table{Title: "Least loss by devices and time", Head: []string{"devices"},
		Caption: fmt.Sprintf("Loss for choices, with the batch and the epochs that reach it. Time is in steps of the %d rows that a device takes at a time: a recipe of B rows on G devices takes ceil(B/%dG) of them a step. Every entry is a run whose schedule ended.", s.perDevice(), s.perDevice())}
	panel := rep.Models[0].Frontier
	for _, x := range panel.Deadlines {
		t.Head = append(t.Head, fmt.Sprintf("%.0f steps", x))
	}
	rows := map[int][]string{}
	for _, c := range panel.Grid {
		cell := "no run"
		if c.Best != nil {
			cell = fmt.Sprintf("%.4f  B%d e%g on %d", c.Best.Loss, c.Best.Batch, c.Best.Epochs, c.Best.GPUs)
		}
		rows[c.GPUs] = append(rows[c.GPUs], cell)
	}
	for _, n := range panel.GPUs {
		t.Rows = append(t.Rows, append([]string{fmt.Sprint(n)}, rows[n]...))
	}
	a.Tables = append(a.Tables, t)
	few, many, gpus, ok := s.fewAndMany()
	if !ok {
		a.fail("no recipe fits into %.0f steps", deadline)
		return
	}
	if few == many {
		a.say(NotShown, "within %.0f steps the best recipe on %d devices, %s, stays the best on up to %d", math.Floor(deadline), gpus[0], few.Label(), gpus[1])
		return
	}
	e, ok := s.contrast(a, fmt.Sprintf("%d devices minus %d within %.0f steps", gpus[0], gpus[1], deadline), s.sides(few), s.sides(many))
	if !ok {
		return
	}
	v := judge(e, 1)
	if v == Shown && many.Batch <= few.Batch {
		v = NotShown
	}
	a.say(v, "within %.0f steps %d devices do best with %s; %d devices use %s, which gains %v nats", deadline, gpus[0], few.Label(), gpus[1], many.Label(), e)
}
