package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"refrain/bench"
	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/run"
	"refrain/kernels/gemm"
	"refrain/model"
	"refrain/stages/shards"
	"refrain/tokenize"
)

// benchFlags are what the scenarios share.
type benchFlags struct {
	count   int
	threads int
	compare string
	peers   string
}

// check says whether peers answer too. It refuses sizes of c that nothing can be
// measured at: every whole number of a scenario is at least 1, or at least 0
// where 0 is the default and stands for a choice.
func (f *benchFlags) check(c *cobra.Command) (peers bool, err error) {
	c.Flags().VisitAll(func(g *pflag.Flag) {
		if g.Value.Type() != "int" || err != nil {
			return
		}
		least := 1
		if g.DefValue == "0" {
			least = 0
		}
		if n, perr := strconv.Atoi(g.Value.String()); perr != nil || n < least {
			err = bad(c, "--%s %s; use %d or more", g.Name, g.Value, least)
		}
	})
	switch {
	case err != nil:
		return false, err
	case f.compare == "":
		return false, nil
	case f.compare == "peers":
		return true, nil
	}
	return false, bad(c, "--compare %q; the only comparison is peers", f.compare)
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the training step, matrix products, tokenizer, loader, ingest, plans or checkpoints",
		Long: `Bench prints Go benchmark lines, which benchstat reads. With --compare peers
the pinned peers of bench/peers answer between our rounds, and the lines carry
ratios with quartiles; sh bench/peers/install.sh makes their environment.`,
		Example: `  refrain bench step --preset micro-1M --count 10
  refrain bench loader --compare peers`,
	}
	c.PersistentFlags().IntVar(&f.count, "count", 10, "measured rounds")
	c.PersistentFlags().IntVar(&f.threads, "threads", 0, "threads; 0 means all")
	c.PersistentFlags().StringVar(&f.compare, "compare", "", "peers: measure the pinned peers in the same session")
	c.PersistentFlags().StringVar(&f.peers, "peers-dir", filepath.Join("bench", "peers"), "folder of the peers")
	a.recordFlags(c, &f)
	return group(c, a.benchStep(&f), a.benchGEMM(&f), a.benchTokenizer(&f), a.benchTrainTokenizer(&f), a.benchLoader(&f), a.benchIngest(&f), a.benchPlan(&f), a.benchCkpt(&f), a.benchTable(), a.benchReport())
}

func (a *app) line(l bench.Line) { a.printf("%s\n", l) }

func (a *app) benchHeader() error { return bench.Header(a.out, run.CPUName()) }

func (f *benchFlags) numThreads() int {
	if f.threads > 0 {
		return f.threads
	}
	return runtime.GOMAXPROCS(0)
}

func (a *app) benchStep(f *benchFlags) *cobra.Command {
	var preset, precision string
	var T, B, V, shards, devices int
	var kernels bool
	c := &cobra.Command{
		Use:   "step",
		Short: "A training step fed by repack, batch and upload",
		Example: `  refrain bench step --preset micro-3M --count 12 --kernels
  refrain bench step --preset micro-3M --precision bf16 --compare peers`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			m, ok := model.PresetByName(preset)
			if !ok {
				return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("no preset %q; there are %s", preset, presetNames())}
			}
			m.MaxT = max(m.MaxT, T)
			if V > 0 {
				m.Vocab = V
			}
			policy, err := model.PolicyOf(precision)
			if err != nil {
				return bad(c, "--precision %q; use f32 or bf16", precision)
			}
			n, err := run.Shards(B, shards)
			if err != nil {
				return &run.Error{Code: run.ExitUsage, Err: err}
			}
			cfg := bench.StepConfig{Model: m, Name: strings.TrimPrefix(preset, "micro-"), T: T, B: B, Shards: n, Devices: devices, Threads: f.threads, Policy: policy, Warm: 2, Steps: f.count}
			if err := a.benchHeader(); err != nil {
				return err
			}
			if peers {
				return a.stepWithPeer(c.Context(), f, cfg)
			}
			r, err := bench.Step(c.Context(), cfg, kernels)
			if err != nil {
				return err
			}
			a.line(r.Line)
			for _, k := range r.Kernels {
				a.printf("# %-14s %6d calls %12v\n", k.Name, k.Calls, k.Busy)
			}
			return nil
		},
	}
	c.Flags().StringVar(&preset, "preset", "micro-1M", "model shape")
	c.Flags().StringVar(&precision, "precision", "f32", "of activations and products: f32 or bf16 (the peer then runs under autocast)")
	c.Flags().IntVar(&T, "seq", 512, "tokens in a row")
	c.Flags().IntVar(&B, "batch", 8, "rows in a step")
	c.Flags().IntVar(&V, "vocab", 0, "vocabulary; 0 means the preset's")
	c.Flags().IntVar(&shards, "shards", 0, "logical shards; 0 means as in training")
	c.Flags().IntVar(&devices, "devices", 1, "logical devices")
	c.Flags().BoolVar(&kernels, "kernels", false, "print the time of every kernel as comments")
	return c
}

func presetNames() string {
	var names []string
	for _, p := range model.Presets() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// stepWithPeer alternates a few of our steps with a few of the peer's.
func (a *app) stepWithPeer(ctx context.Context, f *benchFlags, cfg bench.StepConfig) error {
	m := cfg.Model
	spec, err := json.Marshal(map[string]any{
		"vocab": m.Vocab, "dim": m.Dim, "layers": m.Layers, "heads": m.Heads, "kv_heads": m.KVHeads, "ffn": m.FFN, "tie": m.Tie,
		"t": cfg.T, "b": cfg.B, "threads": f.numThreads(), "compile": true, "bf16": cfg.Policy.Act == gpu.BF16,
	})
	if err != nil {
		return err
	}
	p, err := bench.StartPeer(ctx, f.peers, "peer_step.py", string(spec))
	if err != nil {
		return &run.Error{Code: run.ExitUsage, Err: err}
	}
	defer p.Close()
	a.printf("# peer %s\n", p.About)
	const part = 3 // steps of each side in a round
	var ratios []float64
	for range f.count {
		one := cfg
		one.Steps = part
		r, err := bench.Step(ctx, one, false)
		if err != nil {
			return err
		}
		var answer struct {
			Median float64 `json:"median_s"`
		}
		if err := p.Ask(map[string]int{"steps": part}, &answer); err != nil {
			return err
		}
		ratio := answer.Median / r.PerOp.Seconds()
		ratios = append(ratios, ratio)
		r.Metrics = append(r.Metrics, bench.Metric{Value: float64(cfg.B*cfg.T) / answer.Median, Unit: "peer-tok/s"}, bench.Metric{Value: ratio, Unit: "x-peer"})
		a.line(r.Line)
	}
	lo, mid, hi := bench.Quartiles(ratios)
	a.printf("# %s: %.3f times torch.compile %s (quartiles %.3f to %.3f, %d rounds)\n", cfg.Name, mid, cfg.Policy, lo, hi, len(ratios))
	return nil
}

func (a *app) benchGEMM(f *benchFlags) *cobra.Command {
	var precision string
	c := &cobra.Command{
		Use:     "gemm",
		Short:   "The 27 matrix products of small transformers, against the multiply-add peak",
		Example: `  refrain bench gemm --precision bf16 --compare peers`,
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			if precision != "f32" && precision != "bf16" {
				return bad(c, "--precision %q; use f32 or bf16", precision)
			}
			cfg := bench.GEMMConfig{Kinds: bench.GEMMKinds(precision), Threads: []int{1}, Rounds: f.count, Alloc: host.HugeFloats()}
			if n := f.numThreads(); n > 1 {
				cfg.Threads = append(cfg.Threads, n)
			}
			if err := a.benchHeader(); err != nil {
				return err
			}
			if peers {
				p, err := bench.StartPeer(c.Context(), f.peers, "peer_gemm.py", precision)
				if err != nil {
					return &run.Error{Code: run.ExitUsage, Err: err}
				}
				defer p.Close()
				a.printf("# peer %s\n", p.About)
				cfg.Peer = func(_ context.Context, k bench.GEMMKind, s gemm.Shape, threads int) (float64, error) {
					var answer struct {
						GFLOPS float64 `json:"gflops"`
					}
					err := p.Ask(map[string]any{"m": s.M, "n": s.N, "k": s.K, "form": s.Form, "operands": k.Operands, "threads": threads, "rounds": f.count}, &answer)
					return answer.GFLOPS, err
				}
			}
			return bench.GEMM(c.Context(), cfg, a.line)
		},
	}
	c.Flags().StringVar(&precision, "precision", "f32", "of the products: f32, or bf16 with float32 sums")
	return c
}

// benchInputs is list, or the Go source tree where list names nothing.
func benchInputs(ctx context.Context, list []string) ([]string, error) {
	if len(list) > 0 {
		return list, nil
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("no text was named and there is no Go source tree: %w", err)}
	}
	return []string{filepath.Join(strings.TrimSpace(string(root)), "src")}, nil
}

// readTexts reads documents of the inputs until limit bytes.
func readTexts(ctx context.Context, inputs []string, limit int) ([]byte, error) {
	in, err := shards.Discover(inputs, shards.Options{Include: nil})
	if err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: err}
	}
	var text []byte
	for _, f := range in {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if f.Skip != "" || f.Kind != shards.KindText || f.Compression != "" {
			continue
		}
		b, err := os.ReadFile(f.Path)
		if err != nil {
			return nil, &run.Error{Code: run.ExitData, Err: err}
		}
		if text = append(text, b...); len(text) >= limit {
			return text[:limit], nil
		}
	}
	return text, nil
}

func benchVocabulary(ctx context.Context, file string, text []byte) (*tokenize.Tokenizer, string, error) {
	if file == "" {
		t, err := tokenize.Train(ctx, tokenize.TrainConfig{Vocab: 32768, Workers: runtime.GOMAXPROCS(0)}, func(yield func([]byte, error) bool) {
			for _, d := range bench.CutDocs(text[:min(len(text), 8<<20)], 64<<10) {
				if !yield(d, nil) {
					return
				}
			}
		})
		return t, "trained-32k", err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, "", &run.Error{Code: run.ExitUsage, Err: err}
	}
	defer f.Close()
	t, err := tokenize.Load(f)
	if err != nil {
		return nil, "", &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s: %w", file, err)}
	}
	return t, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), nil
}
