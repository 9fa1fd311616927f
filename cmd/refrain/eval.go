package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/train/eval"
)

// evalReport is what eval prints with --json and leaves in the run folder.
type evalReport struct {
	Path     string   `json:"path"`
	Step     int64    `json:"step"`
	Store    string   `json:"store"`
	DataHash string   `json:"data_hash"`
	Loss     float64  `json:"loss"`                  // mean over tokens, nats
	StdErr   *float64 `json:"stderr_over_documents"` // null with fewer than two documents
	Tokens   int64    `json:"tokens"`
	Rows     int64    `json:"rows"`
	Docs     int      `json:"documents"`
	Seq      int      `json:"seq"`
	DocMask  bool     `json:"doc_mask"`
	Seen     bool     `json:"seen,omitempty"` // on windows that the run was trained on
}

func (a *app) evalCommand() *cobra.Command {
	var asJSON, seen bool
	var rows int64
	var files []string
	c := &cobra.Command{
		Use:   "eval RUN... [key=value...]",
		Short: "Measure the validation loss of a run's newest checkpoint, or its answers to questions",
		Long: `Eval computes the mean loss in nats over all tokens of the validation store,
with the standard error over documents. The value does not depend on the batch.
The result is printed and kept in RUN/eval/; one of some rows only, or of other
settings than the run's, under a name of its own.

--seen measures what the run knows by heart: the loss of the same checkpoint on the last
windows that it was trained on, as many as the validation set has and one epoch at most.

--choices FILE scores multiple-choice questions instead, a JSON object a line with
context, choices and label (docs/formats/choices.md): the answer is the choice whose text
is most likely after the context. acc is the share of right answers, acc_norm with log
probabilities divided by the characters of a choice, acc_bytes by its bytes. Several runs,
which only --choices takes, are scored alone and as an ensemble, by mean logits and by mean probabilities.`,
		Example: `  refrain eval runs/first
  refrain eval runs/s1 runs/s2 runs/s3 --choices arc_easy.jsonl --choices piqa.jsonl
  refrain eval runs/first --json
  refrain eval runs/first && refrain eval runs/first --seen
  refrain eval runs/first data.val=other/val`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			if len(files) > 0 {
				if c.Flags().Changed("rows") {
					return bad(c, "--rows are of the validation store; leave it out with --choices")
				}
				if seen {
					return bad(c, "--seen is about windows of documents; leave it out with --choices")
				}
				return a.evalChoices(c, list, files, asJSON)
			}
			if in, ok := strings.CutSuffix(filepath.Dir(filepath.Clean(list[0])), string(filepath.Separator)+run.CkptDir); ok {
				return bad(c, "%s is in the run %s; eval takes the run, and reads its newest checkpoint", list[0], in)
			}
			for _, arg := range list[1:] {
				if st, err := os.Stat(arg); err == nil && st.IsDir() {
					return bad(c, "%s and %s: without --choices eval takes one run; refrain ensemble takes several", list[0], arg)
				}
			}
			s, err := run.OpenRun(list[0], append([]string{fmt.Sprintf("eval.rows=%d", rows)}, list[1:]...))
			if err != nil {
				return err
			}
			defer s.Close()
			if s.Set == nil && !seen {
				return &run.Error{Code: run.ExitData, Err: fmt.Errorf("there is no validation store at %s; name one with data.val=STORE", s.Config.Data.Val)}
			}
			m, err := run.LoadModel(c.Context(), list[0])
			if err != nil {
				return err
			}
			rep, store, what, err := a.measure(c, s, m, list, seen)
			if err != nil {
				return err
			}
			out := evalReport{
				Path: m.Path, Step: m.Step, Store: store, DataHash: rep.DataHash, Loss: rep.Loss,
				Tokens: rep.Tokens, Rows: rep.Rows, Docs: rep.Docs, Seq: s.Options.T, DocMask: s.Options.DocMask, Seen: seen,
			}
			spread := "" // one document says nothing about the others
			if rep.Docs > 1 {
				out.StdErr, spread = &rep.StdErr, fmt.Sprintf(" +- %.4f", rep.StdErr)
			}
			b, err := json.MarshalIndent(out, "", "  ")
			if err != nil {
				return err
			}
			own, err := config.Load(filepath.Join(list[0], run.ConfigFile), nil)
			if err != nil {
				return err
			}
			dir := filepath.Join(list[0], run.EvalDir)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return &run.Error{Code: run.ExitDisk, Err: err}
			}
			if err := fsx.WriteFileAtomic(fsx.OS{}, filepath.Join(dir, evalName(&out, s.Config, &own.Config)), append(b, '\n')); err != nil {
				return &run.Error{Code: run.ExitDisk, Err: err}
			}
			if asJSON {
				a.printf("%s\n", b)
				return nil
			}
			a.printf("%s %.4f%s nats over %d tokens in %d documents\n  %s (step %d) on %s\n", what, out.Loss, spread, out.Tokens, out.Docs, out.Path, out.Step, out.Store)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().Int64Var(&rows, "rows", 0, "evaluate this many rows only; 0 means all")
	c.Flags().BoolVar(&seen, "seen", false, "measure on the last windows that the run was trained on")
	c.Flags().StringArrayVar(&files, "choices", nil, "score this file of multiple-choice questions; may be repeated")
	return c
}

// measure is the loss of m on the validation set, or on windows that the run has seen, with
// the store of the rows and what the loss is called.
func (a *app) measure(c *cobra.Command, s *run.Setup, m *run.Model, list []string, seen bool) (*run.Evaluation, string, string, error) {
	if !seen {
		rep, err := run.Evaluate(c.Context(), s, m)
		return rep, s.Config.Data.Val, "val loss", err
	}
	limit := s.Stream.WindowsPerEpoch()
	if s.Set != nil {
		limit = s.Set.Rows()
	}
	if n := s.Config.Eval.Rows; n > 0 {
		limit = n
	}
	set, err := run.SeenSet(list[0], s, list[1:], m.Step, limit)
	if err != nil {
		return nil, "", "", err
	}
	rep, err := run.EvaluateOn(c.Context(), s, m, set, s.Corpus.Fingerprint())
	return rep, s.Config.Data.Store, "loss on seen windows", err
}

// evalName is the file of a result. Only the loss of the whole validation set of
// the run, under the run's own settings, has the plain name of its step.
func evalName(r *evalReport, c, own *config.Config) string {
	name := fmt.Sprintf("step-%09d", r.Step)
	if r.Seen {
		name += "-seen"
	}
	if c.Eval.Rows > 0 {
		name += fmt.Sprintf("-rows%d", c.Eval.Rows)
	}
	if c.Data.Val != own.Data.Val && !r.Seen {
		name += fmt.Sprintf("-val%.8s", r.DataHash)
	}
	if c.Data.Seq != own.Data.Seq {
		name += fmt.Sprintf("-seq%d", c.Data.Seq)
	}
	if c.Data.DocMask != own.Data.DocMask {
		name += fmt.Sprintf("-doc_mask_%t", c.Data.DocMask)
	}
	if c.Data.ResetPositions != own.Data.ResetPositions {
		name += fmt.Sprintf("-reset_positions_%t", c.Data.ResetPositions)
	}
	return name + ".json"
}

func (a *app) sampleCommand() *cobra.Command {
	var prompt string
	var n, topK int
	var seed uint64
	var temp float64
	c := &cobra.Command{
		Use:   "sample RUN",
		Short: "Generate text from a run's newest checkpoint",
		Long: `Sample continues a prompt, up to --tokens tokens, the end of the document or
the length that the model was trained on. RUN may also be one checkpoint's folder, or
stand for one: RUN@120, RUN@cycle-2. It computes in f32 whatever train.precision was.
Equal seeds give equal text.`,
		Example: `  refrain sample runs/first --prompt "func main() {" --tokens 100 --seed 1
  refrain sample runs/first --prompt "" --temperature 0`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			switch {
			case n < 0:
				return bad(c, "--tokens %d; use 0 or more", n)
			case topK < 0:
				return bad(c, "--top-k %d; use 0 or more", topK)
			case !(temp >= 0) || math.IsInf(temp, 1):
				return bad(c, "--temperature %g; use a number from 0 up", temp)
			}
			m, err := run.LoadModel(c.Context(), list[0])
			if err != nil {
				return err
			}
			if m.Tokenizer == nil {
				return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s has no tokenizer.json, so there is no text to sample", m.Path)}
			}
			ids := m.Tokenizer.NewEncoder(1<<20).Append(nil, []byte(prompt))
			_, conf, err := run.ConfigOf(m, nil)
			if err != nil {
				return err
			}
			cfg := eval.SampleConfig{Seed: seed, Temperature: temp, TopK: topK}
			if eos, ok := m.Tokenizer.EOS(); ok {
				cfg.Stop = append(cfg.Stop, eos)
				// A document begins after a boundary. Where attention stayed inside a document in
				// training, the boundary belongs to the one before: only the first token sees it.
				cfg.Begin = len(ids) == 0 && (conf == nil || conf.Data.DocMask)
				if cfg.Begin || conf != nil && !conf.Data.DocMask {
					ids = append([]uint32{eos}, ids...)
				}
			}
			devs, err := run.OpenDevices(1, 0, false)
			if err != nil {
				return err
			}
			defer devs.Close()
			maxT := min(m.Config.MaxT, len(ids)+n)
			if len(ids) >= m.Config.MaxT {
				return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("the prompt has %d tokens; the model covers %d positions", len(ids), m.Config.MaxT)}
			}
			s, err := eval.NewSampler(c.Context(), devs[0], m.Config, maxT, m.Weights)
			if err != nil {
				return err
			}
			defer s.Close()
			return a.generate(c, s, m, prompt, ids, min(n, maxT-len(ids)), cfg)
		},
	}
	c.Flags().StringVar(&prompt, "prompt", "", "text to continue; empty starts a new document")
	c.Flags().IntVar(&n, "tokens", 100, "most tokens to generate")
	c.Flags().Uint64Var(&seed, "seed", 0, "seed of the draw")
	c.Flags().Float64Var(&temp, "temperature", 0.8, "0 takes the most likely token")
	c.Flags().IntVar(&topK, "top-k", 0, "keep this many of the most likely tokens; 0 keeps all")
	return c
}

// generate streams the text as it is made.
func (a *app) generate(c *cobra.Command, s *eval.Sampler, m *run.Model, prompt string, ids []uint32, n int, cfg eval.SampleConfig) error {
	dec := m.Tokenizer.NewDecoder()
	if _, err := io.Copy(a.out, strings.NewReader(prompt)); err != nil {
		return err
	}
	var buf []byte
	err := s.Generate(c.Context(), ids, n, cfg, func(id uint32) error {
		var err error
		buf, err = dec.Append(buf[:0], id)
		if err != nil {
			return err
		}
		_, err = a.out.Write(buf)
		return err
	})
	_, werr := a.out.Write(append(dec.Flush(nil), '\n'))
	return errors.Join(err, werr)
}
