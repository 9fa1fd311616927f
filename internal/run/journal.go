package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"refrain/pipeline"
	"refrain/stages/evals"
	"refrain/stages/saves"
	"refrain/stages/step"
	"refrain/store"
	"refrain/train"
	"refrain/train/ckpt"
)

// Watcher is told what happens in a run. Calls are made one at a time.
type Watcher interface {
	Step(StepInfo)
	Eval(evals.Result)
	Save(saves.Result)
	Note(text string)
}

type silent struct{}

func (silent) Step(StepInfo)     {}
func (silent) Eval(evals.Result) {}
func (silent) Save(saves.Result) {}
func (silent) Note(string)       {}

// StepInfo is a finished step with the speed since the last logged one.
type StepInfo struct {
	step.Result
	Steps     int64
	Epoch     float64 // passes over the data after this step, exact
	Logged    bool    // a step line is due
	TokensSec float64 // input tokens a second, since the last logged step
	Wait      float64 // share of that time in which the device had nothing to do
	FLOPs     float64 // floating point operations a second
	ETA       time.Duration
}

// stepLine is a step in metrics.jsonl: the metrics and the ledger in one.
type stepLine struct {
	Type      string  `json:"type"` // "step"
	Step      int64   `json:"step"`
	Epoch     float64 `json:"epoch"`
	Window    int64   `json:"window"` // first window of the batch
	Rows      int     `json:"rows"`   // windows in the batch
	Tokens    int64   `json:"tokens"` // scored targets
	Loss      float64 `json:"loss"`
	Masked    float64 `json:"masked_loss,omitempty"` // of the masked rows
	Norm      float64 `json:"norm"`
	LR        float64 `json:"lr"`
	CRC       string  `json:"crc"`   // of the batch
	Chain     string  `json:"chain"` // hash of everything up to here
	TokensSec float64 `json:"tok_s,omitempty"`
	Wait      float64 `json:"wait,omitempty"`
}

type evalLine struct {
	Type   string  `json:"type"` // "eval"
	Step   int64   `json:"step"`
	Loss   float64 `json:"loss"`
	Tokens int64   `json:"tokens"`
	Rows   int64   `json:"rows"`
	BusyMS float64 `json:"busy_ms"`
}

type saveLine struct {
	Type   string  `json:"type"` // "save"
	Step   int64   `json:"step"`
	Path   string  `json:"path,omitempty"`
	Error  string  `json:"error,omitempty"`
	BusyMS float64 `json:"busy_ms"`
}

// ledger lets a save wait for the line of its step.
type ledger struct {
	mu    sync.Mutex
	step  int64         // all lines up to here are written
	moved chan struct{} // closed at the next line; nil when nobody waits
}

// reach says that the line of step is written.
func (l *ledger) reach(step int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step = step
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// wait blocks until the line of step is written or ctx ends.
func (l *ledger) wait(ctx context.Context, step int64) error {
	for {
		l.mu.Lock()
		if l.step >= step {
			l.mu.Unlock()
			return nil
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// clock measures speed between logged steps.
type clock struct {
	start, last     time.Time
	lastIdle        time.Duration
	first, lastStep int64

	// Between the first and the last finished step, which leaves out the start
	// and what follows the end.
	steady, steadyEnd         time.Time
	steadyIdle, steadyIdleEnd time.Duration
}

func (c *clock) begin(t *train.Trainer, first int64) {
	c.start = time.Now()
	c.last, c.lastIdle, c.first, c.lastStep = c.start, t.Idle(), first, first
}

// done notes that a step has finished.
func (c *clock) done(t *train.Trainer) {
	c.steadyEnd, c.steadyIdleEnd = time.Now(), t.Idle()
	if c.steady.IsZero() {
		c.steady, c.steadyIdle = c.steadyEnd, c.steadyIdleEnd
	}
}

// wait is the share of the time between the first and the last finished step
// in which the device had nothing to do.
func (c *clock) wait() float64 {
	if d := c.steadyEnd.Sub(c.steady); d > 0 {
		return float64(c.steadyIdleEnd-c.steadyIdle) / float64(d)
	}
	return 0
}

func (r *runner) logSteps(ctx context.Context, in pipeline.In[step.Result], _ pipeline.Out[struct{}]) error {
	for res, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		if err := r.logStep(&res); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) logStep(res *step.Result) error {
	o := &r.s.Options
	info := StepInfo{Result: *res, Steps: o.Steps, Epoch: r.s.Feed.Epochs(res.Cursor.Window + int64(res.Rows))}
	every := r.s.Config.Log.Every
	info.Logged = res.Step%every == 0 || res.Step == o.Steps || res.Step == r.clock.first+1
	c := &r.clock
	c.done(r.trainer)
	// A clock that has not moved since then says nothing about speed.
	if now := time.Now(); info.Logged && res.Step > c.lastStep && now.After(c.last) {
		idle, d := r.trainer.Idle(), now.Sub(c.last)
		n := float64(res.Step - c.lastStep)
		tokens := n * float64(o.Batch*o.T)
		info.TokensSec = tokens / d.Seconds()
		info.Wait = float64(idle-c.lastIdle) / float64(d)
		info.FLOPs = n * r.trainer.Cost().FLOPs * float64(o.Devices) / d.Seconds()
		info.ETA = time.Duration(float64(now.Sub(c.start)) / float64(res.Step-c.first) * float64(o.Steps-res.Step))
		c.last, c.lastIdle, c.lastStep = now, idle, res.Step
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.res.Step, r.res.Loss, r.res.Chain = res.Step, res.Loss, res.Chain
	err := r.f.Append(stepLine{
		Type: "step", Step: res.Step, Epoch: info.Epoch, Window: res.Cursor.Window, Rows: res.Rows, Tokens: res.Tokens,
		Loss: res.Loss, Masked: res.Masked, Norm: res.Norm, LR: res.LR, CRC: fmt.Sprintf("%08x", res.CRC), Chain: res.Chain.String(),
		TokensSec: info.TokensSec, Wait: info.Wait,
	})
	if err != nil {
		return &Error{ExitDisk, fmt.Errorf("metrics: %w", err)}
	}
	r.ledger.reach(res.Step)
	if text := r.s.usedUp(res.Cursor.Window, res.Cursor.Window+int64(res.Rows)); text != "" {
		r.j.Watch.Note(text)
	}
	r.j.Watch.Step(info)
	return nil
}

func (r *runner) logEvals(ctx context.Context, in pipeline.In[evals.Result], _ pipeline.Out[struct{}]) error {
	for res, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		if err := r.logEval(&res); err != nil {
			return err
		}
	}
	return nil
}

// The lock is given back even when the watcher panics: the other sinks have to
// end for the run to end.
func (r *runner) logEval(res *evals.Result) error {
	if err := checkLoss(res.Step, res.Loss); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.res.Val = res
	if err := r.f.Append(evalLine{"eval", res.Step, res.Loss, res.Tokens, res.Rows, float64(res.Busy) / 1e6}); err != nil {
		return &Error{ExitDisk, fmt.Errorf("metrics: %w", err)}
	}
	r.j.Watch.Eval(*res)
	return nil
}

func (r *runner) logSaves(ctx context.Context, in pipeline.In[saves.Result], _ pipeline.Out[struct{}]) error {
	for res, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		if err := r.logSave(&res); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) logSave(res *saves.Result) error {
	line := saveLine{Type: "save", Step: res.Step, Path: res.Path, BusyMS: float64(res.Busy) / 1e6}
	if res.Err != nil {
		line.Error = res.Err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.Path != "" {
		r.res.Path = res.Path
	} else {
		r.res.Failed++
	}
	err := r.f.Append(line)
	r.j.Watch.Save(*res)
	// Training on tokens that are gone would be for nothing.
	var gone *store.GoneError
	if errors.As(res.Err, &gone) {
		return &Error{ExitData, fmt.Errorf("checkpoint of step %d: not written: %w", res.Step, res.Err)}
	}
	// During the run a failed save only costs safety; at the end it is the result
	// itself.
	if res.Err != nil && res.Path == "" && res.Last {
		if errors.Is(res.Err, ckpt.ErrNonFinite) { // as in checkLoss
			return fmt.Errorf("the last checkpoint: %w: %w", train.ErrNotFinite, res.Err)
		}
		return &Error{ExitDisk, fmt.Errorf("the last checkpoint: %w", res.Err)}
	}
	if err != nil {
		return &Error{ExitDisk, fmt.Errorf("metrics: %w", err)}
	}
	return nil
}
