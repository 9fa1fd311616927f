package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"refrain/gpu"
	"refrain/internal/run"
	"refrain/pipeline"
	"refrain/stages/evals"
	"refrain/stages/saves"
)

// Files of a profile, below RUN/prof.
const (
	cpuFile      = "cpu.pprof"
	traceFile    = "trace.out"
	timelineFile = "timeline.json"
)

// warmSteps are left out of a profile: caches, pools and pages are cold.
const warmSteps = 3

func (a *app) profileCommand() *cobra.Command {
	var out string
	var steps int64
	var top int
	var asJSON bool
	c := &cobra.Command{
		Use:   "profile CONFIG [key=value...]",
		Short: "Run some steps, name the bottleneck, leave profiles behind",
		Long: `Profile trains for --steps steps as train would, leaves the first three out, and
prints where the time went: the stages of the pipeline with the share of time each
was busy, starved and blocked; the kernels; the bottleneck in one sentence. The
run folder, a new one in the system's folder for temporary files unless --out
names it, then holds in prof/:

  cpu.pprof      CPU profile with the label stage on every sample
  trace.out      execution trace with a task for every stage
  timeline.json  steps, evaluations, saves and stage counters for a trace viewer`,
		Example: `  refrain profile run.yaml --steps 50
  refrain profile run.yaml train.threads=1 --out runs/profiled
  go tool pprof -tagfocus stage=device runs/profiled/prof/cpu.pprof
  go tool trace runs/profiled/prof/trace.out`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			if steps < warmSteps+1 {
				return bad(c, "--steps %d; at least %d, of which the first %d are not measured", steps, warmSteps+1, warmSteps)
			}
			s, err := a.setup(c.Context(), list, asJSON)
			if err != nil {
				return err
			}
			defer s.Close()
			if s.Options.Steps < warmSteps+1 {
				return bad(c, "the run has only %d steps; a profile needs at least %d", s.Options.Steps, warmSteps+1)
			}
			if out == "" {
				if out, err = os.MkdirTemp("", "refrain-profile-"); err != nil {
					return &run.Error{Code: run.ExitDisk, Err: err}
				}
			}
			p := &profiler{out: out, last: min(steps, s.Options.Steps)}
			rep, err := p.run(c.Context(), s, append([]string{"refrain"}, a.args...), a.verifying())
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(rep)
			}
			return a.printProfile(rep, top)
		},
	}
	f := c.Flags()
	f.StringVar(&out, "out", "", "run folder; default: a new one for temporary files")
	f.Int64Var(&steps, "steps", 50, "steps to run")
	f.IntVar(&top, "top", 20, "kernels to print")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// profileReport is what profile prints with --json.
type profileReport struct {
	Dir        string                `json:"dir"`
	First      int64                 `json:"first_step"` // measured
	Last       int64                 `json:"last_step"`
	Wall       time.Duration         `json:"wall_ns"`
	TokensSec  float64               `json:"tok_s"`
	Wait       float64               `json:"device_wait_share"`
	Bottleneck string                `json:"bottleneck"`
	Why        string                `json:"why"`
	Stages     []pipeline.StageStats `json:"stages"`
	Kernels    []gpu.KernelTime      `json:"kernels"`
	CPU        []labelTime           `json:"cpu_by_stage"`
	CPUTotal   time.Duration         `json:"cpu_ns"`
}

// labelTime is the CPU time of the samples with one stage label.
type labelTime struct {
	Stage string        `json:"stage"`
	Time  time.Duration `json:"ns"`
}

// profiler watches a run, starts the profilers once it is warm and stops them
// after the last step. Watcher calls come one at a time.
type profiler struct {
	out     string
	last    int64
	running *run.Running
	line    *timeline
	cpu     *os.File
	trace   *os.File
	on      bool
	err     error

	first         int64
	t0, t1        time.Time
	idle0, idle1  time.Duration
	stats0, stats []pipeline.StageStats
	kern0, kern   []gpu.KernelTime
}

func (p *profiler) run(ctx context.Context, s *run.Setup, args []string, onVerify func(key string, done, total int64)) (*profileReport, error) {
	log := run.NewLog(p.out, nil, p)
	var res *run.Result
	var err error
	// Goroutines inherit the label of the one that starts them, so the threads of
	// the devices have one too.
	pprof.Do(ctx, pprof.Labels("stage", "device"), func(ctx context.Context) {
		res, err = run.Train(ctx, run.Job{
			Setup: s, Out: p.out, Resume: run.ResumeNever, Args: args, Profile: true, Limit: p.last, Watch: log,
			OnStart: func(r *run.Running) { p.running = r; log.Started(s, r) }, OnVerify: onVerify,
		})
	})
	p.stop()
	logErr := log.End(res, err)
	if errors.Is(err, run.ErrStopped) {
		err = nil // what Limit asks for
	}
	if err = errors.Join(err, p.err, logErr); err != nil {
		return nil, err
	}
	if p.stats == nil {
		return nil, errors.New("the run ended before the profile began")
	}
	if err := p.line.write(filepath.Join(p.out, run.ProfDir, timelineFile)); err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	}
	wall := p.t1.Sub(p.t0)
	rep := &profileReport{
		Dir: filepath.Join(p.out, run.ProfDir), First: p.first + 1, Last: p.last, Wall: wall,
		TokensSec: float64(p.last-p.first) * float64(s.Options.Batch*s.Options.T) / wall.Seconds(),
		Wait:      float64(p.idle1-p.idle0) / float64(wall),
		Stages:    pipeline.Delta(p.stats, p.stats0), Kernels: kernelDelta(p.kern, p.kern0),
	}
	rep.Bottleneck, rep.Why = pipeline.Bottleneck(rep.Stages)
	rep.CPU, rep.CPUTotal, err = cpuByStage(filepath.Join(rep.Dir, cpuFile))
	return rep, err
}

// begin starts the profilers.
func (p *profiler) begin(step int64) error {
	dir := filepath.Join(p.out, run.ProfDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	if p.cpu, err = os.Create(filepath.Join(dir, cpuFile)); err != nil {
		return err
	}
	if p.trace, err = os.Create(filepath.Join(dir, traceFile)); err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(p.cpu); err != nil {
		return err
	}
	if err := trace.Start(p.trace); err != nil {
		pprof.StopCPUProfile()
		return err
	}
	p.on, p.first, p.t0 = true, step, time.Now()
	p.stats0, p.idle0, p.kern0 = p.running.Pipeline.Stats(), p.running.Trainer.Idle(), p.kernels()
	p.line = newTimeline(p.t0, p.stats0)
	return nil
}

// stop ends the profilers; it may be called again.
func (p *profiler) stop() {
	if !p.on {
		return
	}
	p.on = false
	trace.Stop()
	pprof.StopCPUProfile()
	p.err = errors.Join(p.err, p.cpu.Close(), p.trace.Close())
}

// kernels adds up the times of all devices.
func (p *profiler) kernels() []gpu.KernelTime {
	var all []gpu.KernelTime
	for _, d := range p.running.Devices {
		t, ok := d.(gpu.Profiler)
		if !ok {
			continue
		}
		for _, k := range t.KernelTimes() {
			i := slices.IndexFunc(all, func(x gpu.KernelTime) bool { return x.Name == k.Name })
			if i < 0 {
				all = append(all, k)
				continue
			}
			all[i].Calls += k.Calls
			all[i].Busy += k.Busy
		}
	}
	return all
}

func kernelDelta(after, before []gpu.KernelTime) []gpu.KernelTime {
	for i := range after {
		for _, b := range before {
			if b.Name == after[i].Name {
				after[i].Calls -= b.Calls
				after[i].Busy -= b.Busy
			}
		}
	}
	slices.SortFunc(after, func(a, b gpu.KernelTime) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Name, b.Name))
	})
	return after
}

// Step implements run.Watcher.
func (p *profiler) Step(i run.StepInfo) {
	if p.err != nil {
		return
	}
	switch {
	case i.Step == warmSteps:
		p.err = p.begin(i.Step)
	case p.on:
		p.line.step(i, p.running.Pipeline.Stats())
		if i.Step == p.last {
			p.t1, p.stats, p.idle1, p.kern = time.Now(), p.running.Pipeline.Stats(), p.running.Trainer.Idle(), p.kernels()
			p.stop()
		}
	}
}

// Eval implements run.Watcher.
func (p *profiler) Eval(r evals.Result) {
	if p.on {
		p.line.span("evals", fmt.Sprintf("eval %d", r.Step), time.Now(), r.Busy)
	}
}

// Save implements run.Watcher.
func (p *profiler) Save(r saves.Result) {
	if p.on {
		p.line.span("saves", fmt.Sprintf("save %d", r.Step), time.Now(), r.Busy)
	}
}

// Note implements run.Watcher.
func (p *profiler) Note(string) {}

// cpuByStage adds up the samples of a CPU profile by their stage label.
func cpuByStage(path string) (rows []labelTime, total time.Duration, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	prof, err := profile.Parse(f)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	at := -1
	for i, t := range prof.SampleType {
		if t.Unit == "nanoseconds" {
			at = i
		}
	}
	if at < 0 {
		return nil, 0, fmt.Errorf("%s holds no CPU time", path)
	}
	sums := map[string]time.Duration{}
	for _, s := range prof.Sample {
		stage := "(runtime)" // garbage collector, scheduler, signals
		if l := s.Label["stage"]; len(l) > 0 {
			stage = l[0]
		}
		sums[stage] += time.Duration(s.Value[at])
		total += time.Duration(s.Value[at])
	}
	for _, k := range sortedKeys(sums) {
		rows = append(rows, labelTime{k, sums[k]})
	}
	slices.SortStableFunc(rows, func(a, b labelTime) int { return cmp.Compare(b.Time, a.Time) })
	return rows, total, nil
}

func (a *app) printProfile(r *profileReport, top int) error {
	a.printf("steps %d to %d in %s: %s tok/s, the device waited %.3f %%\n", r.First, r.Last, round(r.Wall), short(r.TokensSec), 100*r.Wait)
	if err := pipeline.WriteTable(a.out, r.Stages); err != nil {
		return err
	}
	a.printf("bottleneck: %s\n  %s\n", r.Bottleneck, r.Why)
	if r.Bottleneck == "step" {
		a.printf("  this stage waits for the device: computing sets the pace, and the data is there in time\n")
	}
	var sum time.Duration
	for _, k := range r.Kernels {
		sum += k.Busy
	}
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "kernel\tcalls\ttime\tshare\ta call\t")
	for i, k := range r.Kernels {
		if k.Calls == 0 || i >= top {
			break
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.1f %%\t%s\t\n", k.Name, k.Calls, round(k.Busy), 100*float64(k.Busy)/float64(sum), (k.Busy / time.Duration(k.Calls)).Round(time.Microsecond))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	a.printf("CPU time %s by stage label:", round(r.CPUTotal))
	for _, x := range r.CPU {
		a.printf("  %s %.1f %%", x.Stage, 100*float64(x.Time)/float64(max(1, r.CPUTotal)))
	}
	a.printf("\n%s: %s  %s  %s\n", r.Dir, cpuFile, traceFile, timelineFile)
	return nil
}
