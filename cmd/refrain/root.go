package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"refrain/internal/run"
)

// errReported ends a command whose complaint has been printed.
var errReported = errors.New("already reported")

// errUsage marks a mistake in the command line itself.
var errUsage = errors.New("usage")

// app is what all commands share.
type app struct {
	stdin    io.Reader
	out, err io.Writer
	signals  *signals
	args     []string // the command line, for the run folder
	quiet    bool
	bars     bool // progress is drawn on err, which is a terminal
	color    bool // out is a terminal that shows colours, and NO_COLOR is not set
}

// terminal reports whether w is one, so that bars and colours make sense.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "refrain",
		Short: "Pretrain language models on data that is read many times",
		Long: `Refrain pretrains dense Llama-style language models when unique data is finite
and compute is not: the same documents are read for many epochs, packed anew
each time, and every run stops and resumes to the bit.

Exit codes: 0 done, 1 failed, 2 command line or configuration, 3 input refused,
4 no loadable checkpoint, 5 disk, 6 loss or norm not finite, 7 device,
75 stopped and resumable, 130 second signal.`,
		Example: `  refrain demo
  refrain data prepare "$(go env GOROOT)/src" -o store --tokenizer train:4096
  refrain config init --preset micro-1M > run.yaml
  refrain train run.yaml data.store=store --out runs/first
  refrain eval runs/first && refrain sample runs/first --prompt "func main"`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       run.CodeVersion(),
	}
	c.SetOut(a.out)
	c.SetErr(a.err)
	c.SetIn(a.stdin)
	c.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "print results and errors only")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w\nsee: %s --help", errUsage, err, c.CommandPath())
	})
	group(c,
		a.doctorCommand(), a.dataCommand(), a.tokenizerCommand(), a.configCommand(), a.planCommand(),
		a.trainCommand(), a.evalCommand(), a.sampleCommand(), a.runsCommand(), a.profileCommand(), a.benchCommand(), a.sweepCommand(), a.fitCommand(), a.reportCommand(), a.demoCommand(),
		a.ensembleCommand(), a.generateCommand(), a.distillCommand(), a.frontierCommand(), a.studyCommand(),
	)
	completeChoices(c)
	return c
}

// completeChoices lets the shell complete the flags that take one of a few words,
// here and in all commands below.
func completeChoices(c *cobra.Command) {
	for _, f := range []struct {
		name  string
		words []string
	}{
		{"preset", strings.Split(presetNames(), ", ")},
		{"mode", []string{"fixed", "block", "reshuffle", "repack"}},
		{"tail", []string{"drop", "carry", "pad"}},
		{"targets", []string{"all", "inside"}},
		{"scale", []string{"threads", "devices", "size"}},
		{"resume", []string{"auto", "must", "never"}},
		{"family", []string{"r50k", "cl100k", "o200k"}},
		{"kind", []string{"text", "jsonl", "parquet", "arrow-file", "arrow-stream"}},
		{"bad-line", []string{"fail", "skip"}},
		{"duplicate", []string{"skip", "fail", "keep"}},
		{"empty", []string{"skip", "fail"}},
		{"invalid-utf8", []string{"fail", "skip", "replace"}},
		{"too-long", []string{"fail", "skip"}},
		{"truncated", []string{"fail", "skip"}},
		{"compare", []string{"peers"}},
		{"backend", []string{"local", "slurm", "k8s-render"}},
		{"peer", []string{"tokenizers", "gigatoken"}},
	} {
		if c.Flag(f.name) != nil {
			// It fails for a flag that is not there or was registered before only;
			// the second holds for --compare below bench and --mode of generate, which have it already.
			_ = c.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(f.words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, below := range c.Commands() {
		completeChoices(below)
	}
}

// group makes c a command that only has others below it: an unknown one is a
// mistake of usage that names the nearest, and none shows the help.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.AddCommand(below...)
	c.Args = func(c *cobra.Command, list []string) error {
		if len(list) == 0 {
			return nil
		}
		msg := fmt.Sprintf("unknown command %q for %q", list[0], c.CommandPath())
		if near := c.SuggestionsFor(list[0]); len(near) > 0 {
			msg += fmt.Sprintf(" - did you mean %q?", near[0])
		}
		return fmt.Errorf("%w: %s\nsee: %s --help", errUsage, msg, c.CommandPath())
	}
	c.RunE = showHelp
	c.SuggestionsMinimumDistance = 2
	return c
}

func showHelp(c *cobra.Command, _ []string) error { return c.Help() }

// bad is a mistake in the command line.
func bad(c *cobra.Command, format string, list ...any) error {
	return fmt.Errorf("%w: %s\nsee: %s --help", errUsage, fmt.Sprintf(format, list...), c.CommandPath())
}

// paint colours text where colours are shown; elsewhere it is left alone.
func (a *app) paint(code, text string) string {
	if !a.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// json prints v as one indented JSON object.
func (a *app) json(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = a.out.Write(append(b, '\n'))
	return err
}

// args wraps a cobra argument check so that its error is one of usage, and shows
// what the command takes instead of counting.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, list []string) error {
		if check(c, list) == nil {
			return nil
		}
		given := "no argument was given"
		if len(list) == 1 {
			given = fmt.Sprintf("%q was given", list[0])
		} else if len(list) > 1 {
			given = fmt.Sprintf("%d arguments were given: %q", len(list), list)
		}
		return fmt.Errorf("%w: %s; %s\nsee: %s --help", errUsage, c.UseLine(), given, c.CommandPath())
	}
}

// folderOf refuses a file to write whose folder is not there, before there is
// anything to write.
func folderOf(c *cobra.Command, path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return bad(c, "there is no folder %s to write %s in; make it first", dir, filepath.Base(path))
	}
	return nil
}
