package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"refrain/gpu/host"
	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/stages/evals"
	"refrain/stages/saves"
)

// Runner trains cells. Run calls each, one call at a time, for every cell that ended, in
// the order in which they end, and returns when none goes on any more. A cell that fails
// is a record; an error is what keeps all of them from running: run.ErrStopped when it was
// asked to stop, a full disk, a cancelled context. The records so far count then too.
type Runner interface {
	Run(ctx context.Context, cells []*Cell, each func(*Record) error) error
}

// Progress is told about runs while they go on, possibly from several goroutines.
type Progress interface {
	Began(c *Cell, dir string)
	Step(c *Cell, i run.StepInfo)
	Note(c *Cell, text string)
}

// Local trains cells in this process, several at a time on the cores of the machine.
type Local struct {
	Registry *Registry
	Policy   CodePolicy
	Parallel int             // most runs at a time; 0: what Place finds
	Cores    int             // 0: all that the process may use
	Memory   int64           // bytes for all runs; 0: what is free now
	Stop     <-chan struct{} // closed: save all runs and end with run.ErrStopped
	Args     []string        // command line, for run.json
	Watch    Progress        // nil: nobody watches
	FS       fsx.FS          // of checkpoints; nil is the operating system
	// Admit, when not nil, is asked before a cell begins, one call at a time; what it
	// refuses is left out, without a record.
	Admit func(c *Cell) bool
}

// Placement is how Run will share the machine among cells.
func (l *Local) Placement(cells []*Cell) Placement {
	return Place(loadsOf(cells), l.machine())
}

func (l *Local) machine() Machine {
	m := Machine{Cores: l.Cores, Memory: l.Memory, Parallel: l.Parallel}
	if m.Cores == 0 {
		m.Cores = runtime.GOMAXPROCS(0)
	}
	if m.Memory == 0 {
		for _, limit := range host.MemoryLimits() {
			if m.Memory == 0 || limit.Free < m.Memory {
				m.Memory = limit.Free
			}
		}
	}
	return m
}

func loadsOf(cells []*Cell) []Load {
	var loads []Load
	for _, c := range cells {
		loads = append(loads, Load{c.Cost.CoreSeconds, c.Cost.Memory})
	}
	return loads
}

// Run implements Runner. Each slot of the placement is a goroutine that takes the longest
// cell that fits, until there is none.
func (l *Local) Run(ctx context.Context, cells []*Cell, each func(*Record) error) error {
	if len(cells) == 0 {
		return nil
	}
	m := l.machine()
	p := Place(loadsOf(cells), m)
	h := &hand{l: l, cells: cells, threads: p.Threads, each: each, stop: make(chan struct{}), q: newQueue(loadsOf(cells), m.Memory)}
	h.free.L = &h.mu
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-l.Stop:
			h.fail(run.ErrStopped)
		case <-ctx.Done():
			h.fail(context.Cause(ctx))
		case <-ended:
		}
	})
	var g errgroup.Group
	for range p.Slots {
		g.Go(func() error {
			h.slot(ctx)
			return nil
		})
	}
	err := g.Wait()
	close(ended)
	watch.Wait()
	return errors.Join(err, h.err)
}

// hand gives cells out to slots and takes their records.
type hand struct {
	l       *Local
	cells   []*Cell
	threads int
	each    func(*Record) error
	stop    chan struct{} // closed when no cell begins any more and those that go on save

	mu   sync.Mutex
	free sync.Cond // a run ended, or the end has come
	q    *queue
	err  error
}

// fail ends the handing out. The first error counts.
func (h *hand) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
		close(h.stop)
		h.free.Broadcast()
	}
}

// next waits for a cell to begin; nil when there is none left or the end has come.
func (h *hand) next() (int, *Cell) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if h.err != nil || len(h.q.left) == 0 {
			return 0, nil
		}
		i, ok := h.q.next()
		switch {
		case !ok:
			h.free.Wait()
		case h.l.Admit != nil && !h.l.Admit(h.cells[i]):
			h.q.done(i)
			h.free.Broadcast()
		default:
			return i, h.cells[i]
		}
	}
}

func (h *hand) slot(ctx context.Context) {
	for {
		i, c := h.next()
		if c == nil {
			return
		}
		r, err := h.l.train(ctx, c, h.threads, h.stop)
		if err == nil {
			err = h.record(r)
		}
		if err != nil {
			h.fail(err)
		}
		h.mu.Lock()
		h.q.done(i)
		h.free.Broadcast()
		h.mu.Unlock()
	}
}

// record writes a record and hands it on, one at a time.
func (h *hand) record(r *Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.l.Registry.Put(r); err != nil {
		return err
	}
	return h.each(r)
}

// train brings one cell to its end, from wherever a start before left it. The error is
// what concerns more than this cell.
func (l *Local) train(ctx context.Context, c *Cell, threads int, stop <-chan struct{}) (*Record, error) {
	dir, err := l.Registry.Begun(c, l.Policy)
	if err != nil {
		return nil, err
	}
	r := newRecord(c, dir)
	r.Threads = threads
	s, err := c.setup(threads)
	if err != nil {
		return nil, fmt.Errorf("cell %s seed %d: %w", c.Label(), c.Seed, err) // it was well before
	}
	defer s.Close()
	out := l.Registry.path(dir)
	if l.Watch != nil {
		l.Watch.Began(c, out)
	}
	w := &cellWatch{c: c, to: l.Watch}
	begin := time.Now()
	_, err = run.Train(ctx, run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, Args: l.Args, FS: l.FS, Stop: stop, Watch: w})
	took := time.Since(begin).Seconds()
	switch code := run.ExitCode(err); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, run.ErrStopped):
		return nil, err
	case errors.As(err, new(*fsx.LockedError)):
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("cell %s seed %d is being trained by somebody else: %w", c.Label(), c.Seed, err)}
	case code == run.ExitDisk:
		// The next cell would meet the same disk.
		return nil, fmt.Errorf("cell %s seed %d: %w", c.Label(), c.Seed, err)
	}
	rec, readErr := run.ReadRecord(out)
	if readErr != nil {
		rec = nil
		err = errors.Join(err, readErr)
	}
	r.ended(s, rec, err)
	r.Seconds = took
	switch {
	case w.first > 1 && w.last >= w.first:
		// Some steps were made before a stop or a kill: at the same speed, as far as is known.
		r.Seconds = took * float64(w.last) / float64(w.last-w.first+1)
	case w.first == 0 && rec != nil && rec.Speed > 0:
		r.Seconds = float64(c.Cost.Tokens) / rec.Speed
	}
	r.CoreSeconds = math.Round(r.Seconds*float64(threads)*1e3) / 1e3
	r.Finished = time.Now().UTC()
	return r, nil
}

// cellWatch notes which steps were made in this start.
type cellWatch struct {
	c           *Cell
	to          Progress
	first, last int64
}

func (w *cellWatch) Step(i run.StepInfo) {
	if w.first == 0 {
		w.first = i.Step
	}
	w.last = i.Step
	if w.to != nil {
		w.to.Step(w.c, i)
	}
}
func (w *cellWatch) Eval(evals.Result) {}
func (w *cellWatch) Save(saves.Result) {}
func (w *cellWatch) Note(text string) {
	if w.to != nil {
		w.to.Note(w.c, text)
	}
}
