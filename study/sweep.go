package study

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/run"
)

// ErrBudget is the end of a sweep whose budget did not reach for all cells.
var ErrBudget = &run.Error{Code: run.ExitResumable, Err: errors.New("the budget is spent before all cells are done; the same command with a larger one goes on")}

// Ledger keeps a budget: what finished cells took and what those that go on are expected
// to take. Its methods may be called from any goroutine.
type Ledger struct {
	mu      sync.Mutex
	budget  Budget
	spent   Budget
	pledged map[string]Cost // by identity, of cells that go on
}

// NewLedger begins with what the records that answer for the sweep took.
func NewLedger(b Budget) *Ledger {
	return &Ledger{budget: b, pledged: map[string]Cost{}}
}

// Spend counts a record.
func (l *Ledger) Spend(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, ok := l.pledged[r.Key()]; ok {
		l.spent.CoreSeconds -= c.CoreSeconds
		l.spent.Steps -= c.Steps
		delete(l.pledged, r.Key())
	}
	l.spent.CoreSeconds += r.CoreSeconds
	l.spent.Steps += r.Steps
}

// Admit pledges the cost of a cell, if the budget still reaches for it.
func (l *Ledger) Admit(c *Cell) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.budget
	if b.CoreSeconds > 0 && l.spent.CoreSeconds+c.Cost.CoreSeconds > b.CoreSeconds ||
		b.Steps > 0 && l.spent.Steps+c.Cost.Steps > b.Steps {
		return false
	}
	l.spent.CoreSeconds += c.Cost.CoreSeconds
	l.spent.Steps += c.Cost.Steps
	l.pledged[c.Key()] = c.Cost
	return true
}

// Within returns the first of cells that the budget reaches for, in their order, on top
// of what is spent. Nothing is pledged.
func (l *Ledger) Within(cells []*Cell) []*Cell {
	l.mu.Lock()
	at := l.spent
	l.mu.Unlock()
	for i, c := range cells {
		at.CoreSeconds += c.Cost.CoreSeconds
		at.Steps += c.Cost.Steps
		if l.budget.CoreSeconds > 0 && at.CoreSeconds > l.budget.CoreSeconds || l.budget.Steps > 0 && at.Steps > l.budget.Steps {
			return cells[:i]
		}
	}
	return cells
}

// Work is a sweep with what it is done by.
type Work struct {
	Spec    *Spec
	Records func() []*Record // of the registry, now
	Runner  Runner
	Ledger  *Ledger
	Rate    float64       // FLOP/s of one core, for estimates
	Each    func(*Record) // told of every new record; nil: nobody

	tried map[string]*Record // new records of this start, by key
}

// Answers brings cells to their ends and returns a record for each, in their order: nil
// where the budget did not reach. Cells that have a final record are not trained again.
// The error is that of the runner; what there is by then is returned with it.
func (w *Work) Answers(ctx context.Context, cells []*Cell) ([]*Record, error) {
	if w.tried == nil {
		w.tried = map[string]*Record{}
	}
	answers, todo, err := w.there(cells)
	if err != nil {
		return nil, err
	}
	err = w.Runner.Run(ctx, w.Ledger.Within(todo), func(r *Record) error {
		w.tried[r.Key()] = r
		w.Ledger.Spend(r)
		if w.Each != nil {
			w.Each(r)
		}
		return nil
	})
	for i, c := range cells {
		if r := w.tried[c.Key()]; r != nil {
			answers[i] = r
		}
	}
	return answers, err
}

// there finds the records that answer for cells, and the cells that are to be trained.
func (w *Work) there(cells []*Cell) (answers []*Record, todo []*Cell, err error) {
	records := w.Records()
	answers = make([]*Record, len(cells))
	for i, c := range cells {
		if answers[i], err = Find(records, c, w.Spec.Code); err != nil {
			return nil, nil, err
		}
		if answers[i] == nil || !answers[i].Final() && w.tried[c.Key()] == nil {
			todo = append(todo, c)
		}
	}
	return answers, todo, nil
}

// Sweep brings every cell to its end; see Answers. ErrBudget says that some were left out.
func (w *Work) Sweep(ctx context.Context, cells []*Cell) ([]*Record, error) {
	records := w.Records()
	for _, c := range cells {
		r, err := Find(records, c, w.Spec.Code)
		if err != nil {
			return nil, err
		}
		if r != nil && r.Final() {
			w.Ledger.Spend(r)
		}
	}
	answers, err := w.Answers(ctx, cells)
	if err == nil && slices.Contains(answers, nil) {
		err = ErrBudget
	}
	return answers, err
}

// Group is a point of the sweep over its seeds.
type Group struct {
	Label    string            `json:"label"`
	Settings map[string]string `json:"settings"`
	Seeds    []uint64          `json:"seeds"` // that are done
	Losses   []float64         `json:"losses"`
	Runs     []string          `json:"runs"`
	Mean     *float64          `json:"mean"`   // of the losses; null when a seed is missing or did not end well
	Spread   *float64          `json:"spread"` // standard deviation over seeds; null with fewer than two
	Missing  int               `json:"missing"`
	Trouble  []string          `json:"trouble,omitempty"` // seeds that are nan, diverged or failed
}

// Groups joins the records of cells over seeds, in the order of the sweep. answers has one
// for each cell, or nil.
func Groups(cells []*Cell, answers []*Record) []*Group {
	var out []*Group
	at := map[string]*Group{}
	for i, c := range cells {
		g := at[c.Label()]
		if g == nil {
			g = &Group{Label: c.Label(), Settings: map[string]string{}}
			for _, s := range c.Settings {
				g.Settings[s.Key] = s.Value
			}
			at[c.Label()] = g
			out = append(out, g)
		}
		switch r := answers[i]; {
		case r == nil:
			g.Missing++
		case r.Status != Done:
			g.Trouble = append(g.Trouble, fmt.Sprintf("seed %d %s", r.Seed, r.Status))
		default:
			g.Seeds, g.Losses, g.Runs = append(g.Seeds, r.Seed), append(g.Losses, r.Result()), append(g.Runs, r.Run)
		}
	}
	for _, g := range out {
		g.finish()
	}
	return out
}

func (g *Group) finish() {
	if len(g.Losses) == 0 {
		return
	}
	mean, spread := stat.MeanStdDev(g.Losses, nil)
	if g.Missing == 0 && len(g.Trouble) == 0 {
		g.Mean = &mean
	}
	if len(g.Losses) > 1 {
		g.Spread = &spread
	}
}

// BestOf returns the group with the lowest mean, the first among equal ones, or nil.
func BestOf(groups []*Group) *Group {
	var best *Group
	for _, g := range groups {
		if g.Mean != nil && (best == nil || *g.Mean < *best.Mean) {
			best = g
		}
	}
	return best
}
