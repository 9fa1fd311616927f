package main

import (
	"errors"
	"fmt"
	"io"
	"os"

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
	quiet    bool
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
	c.AddCommand(a.trainCommand(), a.evalCommand(), a.sampleCommand(), a.planCommand(), a.configCommand())
	return c
}

// args wraps a cobra argument check so that its error is one of usage.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, list []string) error {
		if err := check(c, list); err != nil {
			return fmt.Errorf("%w: %w\nsee: %s --help", errUsage, err, c.CommandPath())
		}
		return nil
	}
}
