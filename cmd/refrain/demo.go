package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"refrain/study/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show it all in three minutes: ten small runs on real text, a kill, a report",
		Long: `Demo trains a tokenizer on the Go source tree, prepares a token store, and reads
the same 65,536 tokens many times with several recipes: the same rows every
epoch or packed anew, usual or strong weight decay, two seeds, and a baseline
that stops early. It kills one run and resumes it, and writes report.html. On a
slow machine it measures first, says so, and makes fewer epochs.`,
		Example: `  refrain demo
  refrain demo --quick --out quick-demo
  refrain demo --corpus ~/notes`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("finding this program, to run and kill a copy of it: %w", err)
			}
			o.Binary = exe
			line := newTicker(a)
			o.Say, o.Tick = line.say, line.tick
			res, err := demo.Run(c.Context(), o)
			line.clear()
			if err != nil {
				return err
			}
			for _, f := range res.Findings {
				a.printf("%s\n", f)
			}
			a.printf("report: %s\n", res.Report)
			return nil
		},
	}
	c.Flags().StringVar(&o.Out, "out", "refrain-demo", "folder for runs and report; an earlier demo's is replaced")
	c.Flags().BoolVar(&o.Quick, "quick", false, "two recipes, one seed, about a minute")
	c.Flags().StringVar(&o.Corpus, "corpus", "", "read this folder of text files instead of the Go source tree")
	return c
}

// ticker prints lines, and on a terminal one more that is rewritten in place.
// Elsewhere the rewritten line is printed every twentieth time, so that a log
// shows life without filling up.
type ticker struct {
	a    *app
	tty  bool
	n    int
	last int // length of the line shown
}

func newTicker(a *app) *ticker { return &ticker{a: a, tty: terminal(a.out)} }

func (t *ticker) clear() {
	if t.last > 0 {
		fmt.Fprint(t.a.out, "\r"+strings.Repeat(" ", t.last)+"\r")
		t.last = 0
	}
}

func (t *ticker) say(format string, args ...any) {
	t.clear()
	fmt.Fprintf(t.a.out, format+"\n", args...)
}

func (t *ticker) tick(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !t.tty {
		if t.n++; t.n%20 == 0 {
			fmt.Fprintln(t.a.out, line)
		}
		return
	}
	t.clear()
	fmt.Fprint(t.a.out, line)
	t.last = len(line)
}
