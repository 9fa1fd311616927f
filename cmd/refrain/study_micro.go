package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study/micro"
)

func (a *app) microCommand() *cobra.Command {
	var (
		quick, night, asJSON bool
		records, export      string
		o                    micro.Options
	)
	c := &cobra.Command{
		Use:   "micro -o DIR",
		Short: "Show the findings of repeated-data pretraining at micro scale, with intervals",
		Long: `Micro trains a fixed program of small models on real text and answers with effect
sizes and intervals, whatever the answers are: the best number of epochs at a decay
of 0.1, the tuned decay and whether larger models then help, ensembles and their
limits, whether their members are more overfit, the order of the data, the batch,
tied and decayed embeddings, students of text that ensembles write, and what more
devices buy within a deadline.

The text is the Go source tree, or a folder given with --corpus; further corpora,
such as the prose that bench/corpora/prose.sh fetches, get a shorter program that
repeats some of the questions. Near copies are left out. Recipes are chosen on one
split of the documents and reported on another; ensemble weights are fitted on a third.

The short form takes at most 100 minutes on two cores, and 2 GB in DIR; --quick takes at
most 10 minutes, --night several hours. Ctrl-C saves; the same command goes on.
DIR/results has the records, the findings and the report, and --records makes the last
two again from the first; docs/formats/micro.md describes them.`,
		Example: `  refrain study micro --quick -o micro
  refrain study micro -o micro --corpus go --corpus prose --export docs/results/micro
  refrain study micro --records docs/results/micro/records.json -o again`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			name := "short"
			switch {
			case o.Out == "":
				return bad(c, "-o is not set: the folder of the study")
			case quick && night:
				return bad(c, "--quick and --night are both there; keep one")
			case o.Parallel < 0:
				return bad(c, "--max-parallel %d: want a number of runs, or 0 for as many as the machine takes", o.Parallel)
			case records != "" && (quick || night || o.SoFar || len(o.Corpora) > 0 || export != ""):
				return bad(c, "--records trains nothing and takes form and corpora from the file; leave the other flags out")
			case records != "":
				return a.microAgain(records, o.Out, asJSON)
			case quick:
				name = "quick"
			case night:
				name = "night"
			}
			var err error
			if o.Form, err = micro.FindForm(name); err != nil {
				return err
			}
			line := newTicker(a)
			o.Say, o.Tick = line.say, line.tick
			if asJSON || a.quiet {
				o.Say, o.Tick = func(string, ...any) {}, func(string, ...any) {}
			}
			o.Stop = a.graceful()
			o.Args = append([]string{"refrain"}, a.args...)
			out, err := micro.Run(c.Context(), o)
			line.clear()
			if err != nil {
				return sameCommand(err)
			}
			if export != "" {
				if _, out.Files, err = o.Form.Write(out.Results, export); err != nil {
					return err
				}
			}
			if err := a.microAnswers(out.Answers, out.Files, asJSON); err != nil {
				return err
			}
			if n := len(out.Failed); n > 0 {
				m := out.Failed[0]
				return &run.Error{Code: run.ExitFailed, Err: fmt.Errorf("%d run(s) failed, first %s seed %d: %s; the same command tries them again", n, m.Label(), m.Seed, m.Reason)}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&o.Out, "output", "o", "", "folder of the study; the same one goes on where it was stopped")
	f.BoolVar(&quick, "quick", false, "fewer recipes, two seeds, one pool; the questions about larger models and pools stay open")
	f.BoolVar(&night, "night", false, "eight seeds, three pools and eight members")
	f.BoolVar(&o.SoFar, "so-far", false, "train nothing more, and answer what can be answered from the runs that have ended")
	f.StringArrayVar(&o.Corpora, "corpus", nil, "go, or a folder of text files; may be repeated, the first gets the whole program (default go)")
	f.IntVar(&o.Parallel, "max-parallel", 0, "most runs at a time; 0: as ends first")
	f.StringVar(&export, "export", "", "also write records, findings and report here, and nothing else")
	f.StringVar(&records, "records", "", "train nothing: make findings and report from this records.json")
	f.BoolVar(&asJSON, "json", false, "print the findings as one JSON object")
	return c
}

// microAgain makes findings and report from records.
func (a *app) microAgain(path, dir string, asJSON bool) error {
	r, err := micro.Load(path)
	if err != nil {
		return err
	}
	form, err := micro.FindForm(r.Form)
	if err != nil {
		return &run.Error{Code: run.ExitData, Err: fmt.Errorf("%s: %w", path, err)}
	}
	answers, files, err := form.Write(r, dir)
	if err != nil {
		return err
	}
	return a.microAnswers(answers, files, asJSON)
}

// microAnswers prints what was found.
func (a *app) microAnswers(answers []*micro.Answer, files []string, asJSON bool) error {
	for _, path := range files {
		if !asJSON || filepath.Base(path) != micro.FindingsFile {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return &run.Error{Code: run.ExitDisk, Err: err}
		}
		_, err = a.out.Write(b)
		return err
	}
	for _, x := range answers {
		a.printf("(%s) %s: %s\n", x.ID, x.Corpus, x.Text)
	}
	for _, path := range files {
		a.printf("%s\n", path)
	}
	return nil
}
