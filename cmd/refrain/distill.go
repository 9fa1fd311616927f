package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/pipeline"
	"refrain/study/distill"
	"refrain/study/generate"
)

// distillFlags are what the command line says beside the configuration.
type distillFlags struct {
	config    string
	overrides []string
	teachers  []string
	single    string
	self      bool
	synthetic string
	tokens    int64
	mode      string
	temp      float64
	fraction  float64
	logits    bool
	out       string
	rows      int64
	samples   int
	seed      uint64
	asJSON    bool
}

func (a *app) distillCommand() *cobra.Command {
	var f distillFlags
	c := &cobra.Command{
		Use:   "distill CONFIG --teacher RUN... -o DIR [key=value...]",
		Short: "Train one student of several runs and say how much of their gain it keeps",
		Long: `Distill trains the model of CONFIG to predict what an ensemble of finished runs predicts, and
reports the losses of the best single model, of the ensemble (the mean of its logits) and of
the student on the same validation documents, with

  retention = (L_single - L_student) / (L_single - L_ensemble)

and its interval over documents drawn with replacement. Where the ensemble gains nothing,
there is no retention, and the report says so.

The student learns from documents that the teachers wrote, mixed with the real ones: those
of --synthetic, or new ones (--generate-tokens), of which --fraction of its rows are taken.
train.epochs counts passes over the real documents, so a run takes 1/(1-fraction) as many
steps. --mode pool lets every teacher write its share, --mode average draws from the mean of
their logits. With --logits it learns from the teachers' predictions on its own rows instead,
or as well: distill.weight, distill.temperature and distill.top_k say how.

--self makes the first --teacher the only one that the student learns from; the report still
compares it with the ensemble of all. --single names the best single model, which members of
an ensemble that were tuned for it are not; without it the best of the teachers stands for it.
The published student has optim.weight_decay=0.1 and 16 real epochs at a fraction of 0.9.

DIR gets the store (synthetic), the run (student) and the report (distill.json). The same
command continues what was stopped.`,
		Example: `  for s in 1 2 3 4; do refrain train run.yaml train.seed=$s --out runs/s$s; done
  refrain distill run.yaml --teacher runs/s1,runs/s2,runs/s3,runs/s4 --generate-tokens 2e6 --fraction 0.75 -o students/pool
  refrain distill run.yaml --teacher runs/s1 --self --synthetic store1 --single runs/best -o students/self
  refrain distill run.yaml --teacher runs/s1,runs/s2 --logits distill.temperature=2 -o students/logits --json`,
		RunE: func(c *cobra.Command, list []string) error {
			for _, arg := range list {
				switch _, err := os.Stat(arg); {
				case err != nil && strings.Contains(arg, "="):
					f.overrides = append(f.overrides, arg)
				case f.config == "":
					f.config = arg
				default:
					return bad(c, "%s and %s: one configuration is that of the student; runs to learn from come after --teacher", f.config, arg)
				}
			}
			if err := f.check(c); err != nil {
				return err
			}
			return a.distill(c, &f)
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.teachers, "teacher", nil, "a run to learn from, or several with commas between; repeat it for more")
	fl.StringVar(&f.single, "single", "", "run of the best single model (default the best of the teachers)")
	fl.BoolVar(&f.self, "self", false, "learn from the first teacher only")
	fl.StringVar(&f.synthetic, "synthetic", "", "store of documents that the teachers wrote (refrain generate)")
	fl.Var((*count)(&f.tokens), "generate-tokens", "let the teachers write this many tokens, such as 2e6")
	fl.StringVar(&f.mode, "mode", "pool", "how several teachers write: pool or average")
	fl.Float64Var(&f.temp, "temperature", 1, "of what the teachers write")
	fl.Float64Var(&f.fraction, "fraction", 0.75, "share of the student's rows that are synthetic")
	fl.BoolVar(&f.logits, "logits", false, "learn from the teachers' predictions on the student's rows")
	fl.StringVarP(&f.out, "output", "o", "", "folder of store, run and report")
	fl.Int64Var(&f.rows, "rows", 0, "measure on this many validation rows only; 0 means all")
	fl.IntVar(&f.samples, "samples", 1000, "of documents, for the interval of the retention; 0 leaves it out")
	fl.Uint64Var(&f.seed, "seed", 0, "of what is generated, and of the samples")
	fl.BoolVar(&f.asJSON, "json", false, "print the report as one JSON object")
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{string(generate.Average), string(generate.Pool)}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// check reports mistakes of the command line.
func (f *distillFlags) check(c *cobra.Command) error {
	mixes := f.synthetic != "" || f.tokens > 0
	switch {
	case f.config == "":
		return bad(c, "%s; no configuration was named", c.UseLine())
	case len(f.teachers) == 0:
		return bad(c, "name the runs to learn from with --teacher RUN,RUN,...")
	case f.out == "":
		return bad(c, "name the folder of the results with -o DIR")
	case f.synthetic != "" && f.tokens > 0:
		return bad(c, "--synthetic names documents that are there and --generate-tokens asks for new ones; give one of them")
	case f.tokens < 0:
		return bad(c, "--generate-tokens is above 0")
	case !mixes && !f.logits:
		return bad(c, "say what the student learns from: --synthetic STORE, --generate-tokens N, or --logits")
	case !mixes && c.Flags().Changed("fraction"):
		return bad(c, "--fraction is the share of synthetic rows; give --synthetic STORE or --generate-tokens N")
	case mixes && !(f.fraction > 0 && f.fraction < 1):
		return bad(c, "--fraction %g; use a share above 0 and below 1", f.fraction)
	case f.mode != string(generate.Pool) && f.mode != string(generate.Average):
		return bad(c, "--mode %s; use pool or average", f.mode)
	case !(f.temp >= 1e-3 && f.temp <= 1e3):
		return bad(c, "--temperature %g; use a number from 0.001 to 1000", f.temp)
	case f.rows < 0 || f.samples < 0:
		return bad(c, "--rows and --samples are 0 or more")
	}
	return nil
}

// learned are the teachers that the student learns from.
func (f *distillFlags) learned() []string {
	if f.self {
		return f.teachers[:1]
	}
	return f.teachers
}

// distill works the recipe through.
func (a *app) distill(c *cobra.Command, f *distillFlags) error {
	ctx := c.Context()
	quiet := a.quiet
	a.quiet = quiet || f.asJSON // standard output is the report's
	defer func() { a.quiet = quiet }()
	recipe := distill.Recipe{Synthetic: f.synthetic, Fraction: f.fraction}
	if f.tokens > 0 {
		recipe.Synthetic = filepath.Join(f.out, "synthetic")
	}
	if f.logits {
		recipe.Teachers = f.learned()
	}
	more, err := recipe.Overrides()
	if err != nil {
		return err
	}
	// Before hours are spent: what is wrong with the student's configuration, and with what it
	// will be compared with.
	r, err := config.Load(f.config, append(more, f.overrides...))
	if err != nil {
		return err
	}
	if err := a.ingest(ctx, &r.Config, false); err != nil {
		return err
	}
	student := filepath.Join(f.out, "student")
	if there, err := fsx.Exists(fsx.OS{}, filepath.Join(f.out, run.RunFile)); err != nil {
		return err
	} else if there {
		return bad(c, "-o %s is the folder of a run; choose another for the student and its report", f.out)
	}
	compared := distill.Request{
		Student: student, Teachers: f.teachers, Single: f.single, Self: f.self, Rows: f.rows, Samples: f.samples, Seed: f.seed,
	}
	if err := distill.Ready(ctx, compared, &r.Config); err != nil {
		return err
	}
	if f.tokens > 0 {
		if err := a.generateFor(c, f, recipe.Synthetic); err != nil {
			return err
		}
	}
	if err := a.trainStudent(ctx, run.Kept(r, student), student); err != nil {
		return sameCommand(err)
	}
	var rep *distill.Report
	err = pipeline.Until(ctx, a.graceful(), func(ctx context.Context) (err error) {
		rep, err = distill.Measure(ctx, compared)
		return err
	})
	if errors.Is(err, pipeline.ErrStopRequested) {
		return sameCommand(run.ErrStopped)
	}
	if err != nil {
		return err
	}
	rep.Learned = distill.LearnedFrom(&r.Config)
	text, err := a.recordText("distill", rep)
	if err != nil {
		return err
	}
	saved := filepath.Join(f.out, "distill.json")
	if err := fsx.WriteFileAtomic(fsx.OS{}, saved, text); err != nil {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	if f.asJSON {
		_, err = a.out.Write(text)
		return err
	}
	a.showDistilled(rep)
	a.printf("report %s\n", saved)
	return nil
}

// trainStudent trains r in the folder out, from where it was stopped.
func (a *app) trainStudent(ctx context.Context, r *config.Resolved, out string) (err error) {
	stop := a.graceful()
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	job := run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, Args: append([]string{"refrain"}, a.args...), Stop: stop}
	end, err := a.attend(&job, "the same command")
	if err != nil {
		return err
	}
	res, err := run.Train(ctx, job)
	end(res, err)
	return err
}

// generateFor lets the teachers write the store, unless a start before has.
func (a *app) generateFor(c *cobra.Command, f *distillFlags, out string) error {
	if err := fsx.MkdirAll(fsx.OS{}, f.out, fsx.DirPerm); err != nil {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	r := generate.Request{Runs: f.learned(), Out: out, Tokens: f.tokens, Temperature: f.temp, Seed: f.seed, Reuse: true}
	if paths, err := run.Expand(r.Runs); err != nil {
		return err
	} else if len(paths) > 1 {
		r.Mode = generate.Mode(f.mode)
	}
	bar := a.progress("generate", r.Tokens)
	r.Progress = func(documents, tokens int64) { bar.set(tokens, fmt.Sprintf("%d documents", documents)) }
	res, err := generate.Run(c.Context(), r)
	bar.end(err == nil)
	if err == nil && !a.quiet {
		a.showGenerated(res)
	}
	return err
}

// showDistilled prints a report.
func (a *app) showDistilled(r *distill.Report) {
	a.printf("on %s: %d tokens in %d documents, data.seq %d\n", r.Store, r.Tokens, r.Docs, r.Seq)
	line := func(name string, m distill.Model, note string) {
		se := ""
		if m.StdErr != nil {
			se = fmt.Sprintf(" +- %.4f", *m.StdErr)
		}
		a.printf("  %-12s loss %.4f%-10s  %s%s\n", name, m.Loss, se, m.Path, note)
	}
	note := ""
	if r.OfMany {
		note = "  (the best of the teachers)"
	}
	line("best single", r.Single, note)
	for i, m := range r.Members {
		mark := ""
		if r.Self && i == 0 {
			mark = "  the student's own"
		}
		line(fmt.Sprintf("teacher %d", i+1), m, mark)
	}
	line("ensemble", r.Ensemble, fmt.Sprintf("mean logits of %d", len(r.Members)))
	line("student", r.Student, "")
	a.printf("student against best single %s, against the ensemble %s", gainText(r.OverSingle.Difference, r.OverSingle.StdErr), gainText(r.OverEnsemble.Difference, r.OverEnsemble.StdErr))
	if r.OverOwn != nil {
		a.printf(", against its own teacher %s", gainText(r.OverOwn.Difference, r.OverOwn.StdErr))
	}
	a.printf(" nats (below 0 the student is better)\n")
	k := r.Retention
	switch {
	case k.Value == nil:
		a.printf("retention is undefined: %s\n", k.Undefined)
	case k.Interval == nil:
		a.printf("retention %.1f %%\n", 100**k.Value)
		if k.Undefined != "" {
			a.notef("%s", k.Undefined)
		}
	default:
		a.printf("retention %.1f %% (%g %% over documents: %.1f to %.1f)\n", 100**k.Value, 100*k.Level, 100*k.Interval[0], 100*k.Interval[1])
		if k.Without > 0 {
			a.notef("in %d of %d samples of documents the ensemble gains nothing; the interval is of the others", k.Without, k.Samples)
		}
	}
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
}
