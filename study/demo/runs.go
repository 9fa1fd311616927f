package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"refrain/gpu"
	"refrain/internal/run"
	"refrain/stages/evals"
	"refrain/stages/saves"
)

// outcome is one finished run of the plan.
type outcome struct {
	Arm    arm
	Seed   int
	Name   string
	Folder string
	Steps  int64
	Loss   float64 // last training step
	Val    evals.Result
	Chain  string
}

// speed returns input tokens a second of one device while all are busy.
func (d *demo) speed(ctx context.Context, devs []gpu.Device) (float64, error) {
	rates := make([]float64, len(devs))
	g, ctx := errgroup.WithContext(ctx)
	for i, dev := range devs {
		g.Go(func() error {
			a := fullPlan(16, 1).Arms[1]
			a.Name = fmt.Sprintf("measure%d", i)
			s, name, err := d.setup(a, 0)
			if err != nil {
				return err
			}
			defer s.Close()
			out := filepath.Join(d.o.Out, name)
			defer os.RemoveAll(out)
			defer os.Remove(out + ".yaml")
			w := &rateWatch{}
			_, err = run.Train(ctx, run.Job{Setup: s, Out: out, Devices: []gpu.Device{dev}, Limit: 65, Watch: w})
			if !errors.Is(err, run.ErrStopped) {
				return errors.Join(errors.New("measuring the speed"), err)
			}
			rates[i] = w.rate
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum / float64(len(rates)), nil
}

// rateWatch keeps the speed of the last logged step.
type rateWatch struct{ rate float64 }

func (w *rateWatch) Step(i run.StepInfo) {
	if i.Logged && i.Step > 1 {
		w.rate = i.TokensSec
	}
}
func (w *rateWatch) Eval(evals.Result) {}
func (w *rateWatch) Save(saves.Result) {}
func (w *rateWatch) Note(string)       {}

// progress adds up the steps of all runs for the progress line.
type progress struct {
	mu    sync.Mutex
	d     *demo
	done  int64
	total int64
	began time.Time
	last  time.Time
}

func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if now := time.Now(); now.Sub(p.last) > 500*time.Millisecond {
		p.last = now
		el := now.Sub(p.began).Seconds()
		eta := el / float64(p.done) * float64(p.total-p.done)
		p.d.o.Tick("[%4.0fs] %d of %d steps, %.0f k tokens/s, about %.0f s left", time.Since(p.d.start).Seconds(), p.done, p.total,
			float64(p.done*batchRows*seq)/el/1e3, eta)
	}
}

type stepWatch struct{ p *progress }

func (w stepWatch) Step(run.StepInfo) { w.p.step() }
func (w stepWatch) Eval(evals.Result) {}
func (w stepWatch) Save(saves.Result) {}
func (w stepWatch) Note(string)       {}

// runAll makes the runs of the plan, two at a time, and the one that is killed.
func (d *demo) runAll(ctx context.Context) ([]outcome, error) {
	devs, err := openDevices()
	if err != nil {
		return nil, err
	}
	defer devs.Close()
	stepsOf := func(a arm) int64 { return int64(a.Epochs) * (uniqueTokens / seq / batchRows) }
	p := &progress{d: d, began: time.Now()}
	results := make([]outcome, d.plan.Runs())
	jobs := make(chan int, d.plan.Runs()+1)
	// Seeds inside arms: the arms of one seed are spread over time alike.
	for i := range d.plan.Runs() {
		a := d.plan.Arms[i%len(d.plan.Arms)]
		results[i] = outcome{Arm: a, Seed: i / len(d.plan.Arms)}
		p.total += stepsOf(a)
		jobs <- i
	}
	const killJob = -1
	jobs <- killJob
	close(jobs)
	var killed string
	g, ctx := errgroup.WithContext(ctx)
	for _, dev := range devs {
		g.Go(func() error {
			for i := range jobs {
				if i == killJob {
					var err error
					d.say("kill       a copy of the cheapest run, in a process of its own")
					if killed, err = d.killAndResume(ctx); err != nil {
						return fmt.Errorf("kill and resume: %w", err)
					}
					continue
				}
				if err := d.one(ctx, dev, &results[i], p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	d.compareKilled(results, killed)
	return results, nil
}

func (d *demo) one(ctx context.Context, dev gpu.Device, r *outcome, p *progress) error {
	s, name, err := d.setup(r.Arm, r.Seed)
	if err != nil {
		return err
	}
	defer s.Close()
	r.Name, r.Folder = name, filepath.Join(d.o.Out, name)
	res, err := run.Train(ctx, run.Job{
		Setup: s, Out: r.Folder, Devices: []gpu.Device{dev}, Watch: stepWatch{p},
		Args: []string{"refrain", "train", filepath.Join(d.o.Out, name+".yaml"), "--out", r.Folder},
	})
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	r.Steps, r.Loss, r.Val, r.Chain = res.Step, res.Loss, *res.Val, res.Chain.String()
	d.say("run        %-18s val %.4f  train %.4f  (%d epochs)", name, r.Val.Loss, r.Loss, r.Arm.Epochs)
	return nil
}

// killAndResume trains the cheapest arm again in a process of its own, ends
// that process without warning in the middle, starts it again, and returns the
// hash chain of the finished run.
func (d *demo) killAndResume(ctx context.Context) (chain string, err error) {
	a := d.plan.killArm()
	s, name, err := d.setup(a, 0)
	if err != nil {
		return "", err
	}
	steps := s.Options.Steps
	if err := s.Close(); err != nil {
		return "", err
	}
	out := filepath.Join(d.o.Out, "killed")
	// The number of threads is free to differ: bits do not depend on it. In the
	// quick form this run comes last and has the machine to itself.
	threads := 1
	if d.o.Quick {
		threads = numWorkers
	}
	child := func() *exec.Cmd {
		return exec.CommandContext(ctx, d.o.Binary, "train", filepath.Join(d.o.Out, name+".yaml"), fmt.Sprintf("train.threads=%d", threads), "--out", out, "--resume", "auto", "--quiet")
	}
	if err := killAfter(child(), steps*3/5, func() (int64, error) {
		last, _, err := lastStep(out)
		return last, err
	}); err != nil {
		return "", err
	}
	at, _, err := lastStep(out)
	if err != nil {
		return "", err
	}
	if b, err := child().CombinedOutput(); err != nil {
		return "", fmt.Errorf("the resumed run: %w\n%s", err, b)
	}
	last, chain, err := lastStep(out)
	if err != nil {
		return "", err
	}
	if last != steps {
		return "", fmt.Errorf("the resumed run ended at step %d of %d", last, steps)
	}
	d.kill = fmt.Sprintf("run %s was killed without warning at step %d of %d in a second process and resumed", name, at, steps)
	return chain, nil
}

// killAfter starts c and kills it when step reports at least that many steps.
func killAfter(c *exec.Cmd, steps int64, step func() (int64, error)) error {
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	var g errgroup.Group
	g.Go(func() error {
		ended <- c.Wait()
		return nil
	})
	defer g.Wait()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the run ended before it could be killed: %w", errors.Join(err))
		case <-time.After(50 * time.Millisecond):
		}
		// The file may not be there yet, and its last line may be half written.
		if last, err := step(); err == nil && last >= steps {
			return c.Process.Kill()
		}
	}
}

// compareKilled ends the sentence about the killed run.
func (d *demo) compareKilled(results []outcome, chain string) {
	a := d.plan.killArm()
	for _, r := range results {
		if r.Arm.Name != a.Name || r.Seed != 0 {
			continue
		}
		if r.Chain == chain {
			d.kill += fmt.Sprintf(": every batch, loss and norm equals the run that never stopped, bit for bit (chain %.12s)", chain)
		} else {
			d.kill += fmt.Sprintf(": the bits DIFFER from the run that never stopped (chain %.12s against %.12s)", chain, r.Chain)
		}
	}
	d.say("resume     %s", d.kill)
}

// lastStep returns the last step in a run's metrics and the chain after it.
func lastStep(folder string) (step int64, chain string, err error) {
	f, err := os.Open(filepath.Join(folder, run.MetricsFile))
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var m struct {
			Type  string `json:"type"`
			Step  int64  `json:"step"`
			Chain string `json:"chain"`
		}
		if json.Unmarshal(sc.Bytes(), &m) == nil && m.Type == "step" {
			step, chain = m.Step, m.Chain
		}
	}
	return step, chain, nil
}
