package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/stages/evals"
	"refrain/stages/saves"
)

func (a *app) trainCommand() *cobra.Command {
	var out, resume string
	var limit int64
	c := &cobra.Command{
		Use:   "train CONFIG [key=value...]",
		Short: "Train a model; stop with Ctrl-C and continue with --resume auto",
		Long: `Train runs a configuration to its end and leaves a run folder: resolved
configuration, metrics.jsonl, checkpoints (each a Hugging Face folder), exit.json.

The first SIGINT or SIGTERM finishes the step, saves and exits with code 75; a
second one ends at once. --resume auto continues from the newest good checkpoint,
on any number of devices and threads, with the bits of a run that never stopped.`,
		Example: `  refrain train run.yaml data.store=store
  refrain train run.yaml epochs=16 optim.weight_decay=3.2 --out runs/heavy
  refrain train run.yaml --out runs/heavy --resume auto`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			mode := run.ResumeMode(resume)
			switch mode {
			case run.ResumeAuto, run.ResumeMust, run.ResumeNever:
			default:
				return fmt.Errorf("%w: --resume %q; use auto, must or never", errUsage, resume)
			}
			r, err := config.Load(list[0], list[1:])
			if err != nil {
				return err
			}
			if out == "" {
				out = run.DefaultOut(list[0])
			}
			if mode != run.ResumeNever {
				r = run.Kept(r, out)
			}
			if err := a.ingest(c.Context(), &r.Config, false); err != nil {
				return err
			}
			stop := a.graceful()
			s, err := run.NewSetup(&r.Config, r)
			if err != nil {
				return err
			}
			defer s.Close()
			job := run.Job{Setup: s, Out: out, Resume: mode, Args: append([]string{"refrain"}, a.args...), Stop: stop, Limit: limit}
			end, err := a.attend(&job, "the same command with --resume auto")
			if err != nil {
				return err
			}
			res, err := run.Train(c.Context(), job)
			end(res, err)
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "", "run folder (default runs/NAME of the configuration file)")
	c.Flags().StringVar(&resume, "resume", "never", "what to do with a run that is there: auto, must or never")
	c.Flags().Int64Var(&limit, "stop-after", 0, "stop, resumable, after this many steps in total")
	return c
}

// attend adds to a job what shows and serves a run while it goes on: step lines, log.jsonl
// and the endpoints of its configuration. again is what to type after a stop. end must be
// called when the run has ended.
func (a *app) attend(job *run.Job, again string) (end func(*run.Result, error), err error) {
	s, out := job.Setup, job.Out
	w := newWatch(a, s, out)
	w.again = again
	var watcher run.Watcher = w
	ends, err := run.OpenEndpoints(s.Config, w)
	if err != nil {
		return nil, err
	}
	if ends != nil {
		watcher = ends
	}
	log := run.NewLog(out, run.ConsoleCore(zapcore.AddSync(a.err)), watcher)
	job.Watch, job.OnVerify = log, a.verifying()
	job.OnStart = func(r *run.Running) {
		log.Started(s, r)
		w.start(r)
		if err := run.WritePlan(s, out); err != nil {
			a.notef("%v", err)
		}
		if ends != nil {
			ends.Started(r)
			a.notef("serving %s", strings.Join(ends.Addrs(), " and "))
		}
	}
	return func(res *run.Result, err error) {
		if logErr := log.End(res, err); logErr != nil {
			a.notef("%v", logErr)
		}
		w.end(res, err)
		if ends != nil {
			ends.Close()
		}
	}, nil
}

// notef prints a remark to the error output, every line marked.
func (a *app) notef(format string, list ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, list...)) {
		fmt.Fprintln(a.err, "note  "+strings.TrimSuffix(line, "\n"))
	}
}

// watch prints a run to the terminal.
type watch struct {
	a       *app
	w       io.Writer
	s       *run.Setup
	out     string
	again   string  // what goes on after a stop
	peak    float64 // measured, all threads, FLOP/s
	lastVal float64
	width   int
}

func newWatch(a *app, s *run.Setup, out string) *watch {
	return &watch{a: a, w: a.out, s: s, out: out, lastVal: math.NaN(), width: len(fmt.Sprint(s.Options.Steps))}
}

// start prints the header: what was resolved, and what will happen.
func (w *watch) start(r *run.Running) {
	w.peak = run.MeasurePeak(r.Devices[0].Info().Threads, w.s.Options.Policy) * float64(len(r.Devices))
	if w.a.quiet {
		return
	}
	for _, line := range run.Header(w.s, w.out, w.peak) {
		fmt.Fprintln(w.w, line)
	}
}

func (w *watch) Step(i run.StepInfo) {
	if !i.Logged || w.a.quiet {
		return
	}
	share := 0.0
	if w.peak > 0 {
		share = 100 * i.FLOPs / w.peak
	}
	wait := fmt.Sprintf("wait %.2f %%", 100*i.Wait)
	if i.Wait > 0.01 {
		wait = w.a.paint("33", wait) // the device waits for data: something to look into
	}
	fmt.Fprintf(w.w, "step %*d/%d  ep %.2f  loss %.4f  lr %.2e  |g| %.3f  %s tok/s  peak %.1f %%  %s  eta %s\n",
		w.width, i.Step, i.Steps, i.Epoch, i.Loss, i.LR, i.Norm, short(i.TokensSec), share, wait, round(i.ETA))
}

func (w *watch) Eval(r evals.Result) {
	if w.a.quiet {
		return
	}
	change := ""
	if !math.IsNaN(w.lastVal) {
		change = fmt.Sprintf(" (%+.4f)", r.Loss-w.lastVal)
	}
	w.lastVal = r.Loss
	fmt.Fprintf(w.w, "eval %*d/%d  val loss %.4f%s  %d tokens  took %s of the shared cores\n", w.width, r.Step, w.s.Options.Steps, r.Loss, change, r.Tokens, round(r.Busy))
}

func (w *watch) Save(r saves.Result) {
	// A failed one is reported by the console of the log.
	if r.Path != "" && !w.a.quiet {
		fmt.Fprintf(w.w, "save %*d/%d  %s  %s\n", w.width, r.Step, w.s.Options.Steps, r.Path, round(r.Busy))
	}
}

func (w *watch) Note(text string) {
	w.a.notef("%s", text)
}

// end prints the result, where it is, and what to type next.
func (w *watch) end(r *run.Result, err error) {
	if r == nil || w.a.quiet {
		return
	}
	if r.Wall > 0 {
		fmt.Fprintf(w.w, "ran %s; the device waited %.3f %% of the time between steps; chain %s\n", round(r.Wall), 100*r.Wait, r.Chain)
	}
	switch {
	case err == nil && r.Path == "":
		fmt.Fprintf(w.w, "nothing to do: all %d steps are done\n  next: refrain eval %s    refrain sample %s --prompt TEXT\n", r.Steps, w.out, w.out)
	case err == nil && r.Val != nil:
		fmt.Fprintf(w.w, "done: step %d, train loss %.4f, val loss %.4f\n  %s\n  next: refrain eval %s    refrain sample %s --prompt TEXT\n", r.Step, r.Loss, r.Val.Loss, r.Path, w.out, w.out)
	case err == nil:
		fmt.Fprintf(w.w, "done: step %d, train loss %.4f\n  %s\n  next: refrain sample %s --prompt TEXT\n", r.Step, r.Loss, r.Path, w.out)
	case run.ExitCode(err) == run.ExitResumable:
		fmt.Fprintf(w.w, "stopped after step %d of %d\n  %s\n  next: %s\n", r.Step, r.Steps, r.Path, w.again)
	}
}

// short prints a number with three significant digits and a unit.
func short(x float64) string {
	for _, u := range []struct {
		f float64
		s string
	}{{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= u.f {
			return fmt.Sprintf("%.3g%s", x/u.f, u.s)
		}
	}
	return fmt.Sprintf("%.3g", x)
}

func round(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	m := int64(d.Round(time.Minute) / time.Minute)
	return fmt.Sprintf("%dh%02dm", m/60, m%60)
}
