package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/store"
	"refrain/study/generate"
)

func (a *app) generateCommand() *cobra.Command {
	var r generate.Request
	var mode string
	var asJSON bool
	c := &cobra.Command{
		Use:   "generate RUN... [key=value...] -o STORE",
		Short: "Let one or several runs write documents, many at a time, as a token store",
		Long: `Generate draws documents from trained models without a prompt and writes them as a token
store, on which runs train as on any other: the first half of distillation.

--mode says from what: "single" from one run; "average" draws every token from the mean
of the logits of all; "pool" lets every run write its share, document i by run i mod K.
A RUN is a run folder, of which the newest checkpoint counts, one checkpoint, or RUN@cycles
for the members that a run with a cyclic schedule has kept. Runs need one tokenizer and one
data.doc_mask; their shapes may differ. key=value arguments are read over the configurations
of all.

It ends with the first document that makes it --tokens, or with --documents. A document
ends with the end-of-text token, or at --max-length, by default a row (data.seq) of the run
with the shortest.

Many documents are worked on at a time (--batch), so that every weight is read once for all
of them, and a document that ends makes room for the next one at once; --compare shows the
rate of one at a time beside it. Document i draws from a random stream of its own, of the
seed and i: the store is the same, byte for byte, for every --batch, --devices and --threads.
The manifest names mode, temperature, seed and every teacher with the hash of its weights.`,
		Example: `  refrain generate runs/s1 -o synthetic --tokens 2000000
  refrain generate runs/s1 runs/s2 runs/s3 runs/s4 --mode pool -o pooled --tokens 2e6 --seed 1
  refrain generate runs/s1 runs/s2 --mode average -o mean --documents 5000 --compare --json
  refrain data inspect pooled --docs 5
  refrain train run.yaml data.store=pooled data.val=store/val --out runs/student`,
		RunE: func(c *cobra.Command, list []string) error {
			for _, arg := range list {
				if _, err := os.Stat(arg); err != nil && strings.Contains(arg, "=") {
					r.Overrides = append(r.Overrides, arg)
				} else {
					r.Runs = append(r.Runs, arg)
				}
			}
			r.Mode = generate.Mode(mode)
			if err := checkGenerate(c, &r); err != nil {
				return err
			}
			return a.generateStore(c, r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVarP(&r.Out, "output", "o", "", "folder of the new store")
	f.StringVar(&mode, "mode", "", "single, average or pool; one run needs none")
	f.Var((*count)(&r.Tokens), "tokens", "end with the document that makes it this many tokens, such as 2000000 or 2e6")
	f.Var((*count)(&r.Documents), "documents", "end with this many documents")
	f.Float64Var(&r.Temperature, "temperature", 1, "divides the logits; 1 draws from the model's own distribution")
	f.Uint64Var(&r.Seed, "seed", 0, "seed of the draws")
	f.IntVar(&r.MaxLength, "max-length", 0, "most tokens of a document, boundary ids included; 0 means a row of the run")
	f.IntVar(&r.Slots, "batch", generate.DefaultSlots, "documents worked on at a time; changes memory and speed, and no token")
	f.IntVar(&r.Devices, "devices", 1, "devices that share the documents (logical ones on the CPU); changes no token")
	f.IntVar(&r.Threads, "threads", 0, "worker threads; 0 means one a processor")
	f.BoolVar(&r.Reuse, "reuse", false, "take the store that is there when it was made in the same way by the same models")
	f.BoolVar(&r.Compare, "compare", false, "also measure the rate of one document at a time")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	// Its words are not those of --mode elsewhere. It fails for a flag that is not there only.
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{string(generate.Single), string(generate.Average), string(generate.Pool)}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// count is a flag for a whole number that may be written as 2e6.
type count int64

func (n *count) String() string { return fmt.Sprint(int64(*n)) }
func (n *count) Type() string   { return "int" }

// Set reads a number.
func (n *count) Set(text string) error {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return fmt.Errorf("%q is not a whole number up to 2^53, such as 2000000 or 2e6", text)
	}
	*n = count(x)
	return nil
}

// checkGenerate reports mistakes of the command line.
func checkGenerate(c *cobra.Command, r *generate.Request) error {
	switch {
	case len(r.Runs) == 0:
		return bad(c, "%s; no run was named", c.UseLine())
	case r.Out == "":
		return bad(c, "name the store with -o STORE")
	case r.Mode != "" && r.Mode != generate.Single && r.Mode != generate.Average && r.Mode != generate.Pool:
		return bad(c, "--mode %s; use single, average or pool", r.Mode)
	case r.Mode == "" && len(r.Runs) > 1:
		return bad(c, "%d runs were named; say --mode average, to draw every token from the mean of their logits, or --mode pool, to let each write its share", len(r.Runs))
	case r.Mode == generate.Single && len(r.Runs) > 1:
		return bad(c, "--mode single takes one run, and %d were named; use average or pool", len(r.Runs))
	case r.Tokens == 0 && r.Documents == 0:
		return bad(c, "say with --tokens or --documents where to end")
	case r.Tokens < 0 || r.Documents < 0:
		return bad(c, "--tokens and --documents are above 0")
	case r.Temperature == 0:
		return bad(c, "--temperature 0 would write the same document every time; use a number above 0")
	case !(r.Temperature >= 1e-3 && r.Temperature <= 1e3):
		return bad(c, "--temperature %g; use a number from 0.001 to 1000", r.Temperature)
	case r.MaxLength < 0 || r.Slots < 1 || r.Devices < 1 || r.Threads < 0:
		return bad(c, "--max-length and --threads are 0 or more, --batch and --devices 1 or more")
	}
	return nil
}

func (a *app) generateStore(c *cobra.Command, r generate.Request, asJSON bool) error {
	total, byDocs := r.Tokens, r.Tokens == 0
	if byDocs {
		total = r.Documents
	}
	bar := a.progress("generate", total)
	start := time.Now()
	r.Progress = func(documents, tokens int64) {
		done := tokens
		if byDocs {
			done = documents
		}
		bar.set(done, fmt.Sprintf("%d documents, %.0f tokens/s", documents, float64(tokens)/max(time.Since(start).Seconds(), 1e-9)))
	}
	res, err := generate.Run(c.Context(), r)
	bar.end(err == nil)
	if err != nil {
		return err
	}
	if asJSON {
		return a.record("generate", res)
	}
	a.showGenerated(res)
	return nil
}

func (a *app) showGenerated(r *generate.Result) {
	if r.Cached {
		a.printf("%s is there already, made in the same way by the same models\n", r.Store)
	}
	a.printf("%s: %d documents, %d tokens, %.1f a document; fingerprint %.12s\n", r.Store, r.Documents, r.Tokens, float64(r.Tokens)/float64(r.Documents), r.Fingerprint)
	a.printGenerated(r.Generated)
	if !r.Cached {
		a.printf("%.0f tokens/s with %d documents at a time (%.0f %% of the slots filled)", r.Rate, r.Slots, 100*r.Filled)
		if r.OneAtATime > 0 {
			a.printf(", %.0f tokens/s one at a time: %.1f times as fast", r.OneAtATime, r.Rate/r.OneAtATime)
		}
		a.printf("; %s on devices\n", run.BytesText(r.DeviceBytes))
	}
	for _, n := range r.Notes {
		a.notef("%s", n)
	}
}

// printGenerated says who wrote a store, and how.
func (a *app) printGenerated(g *store.Generated) {
	a.printf("  written by models: %s at temperature %g, seed %d; %d documents cut at %d tokens, %d empty\n", g.Mode, g.Temperature, g.Seed, g.Cut, g.MaxLength, g.Empty)
	for _, t := range g.Teachers {
		share := ""
		if t.Documents > 0 {
			share = fmt.Sprintf("  %d documents, %d tokens", t.Documents, t.Tokens)
		}
		a.printf("  %s %s  weights %.12s%s\n", t.Run, t.Checkpoint, t.Weights, share)
	}
}
