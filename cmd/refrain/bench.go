package main

import (
	"context"
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
		Short: "Measure the training step, matrix products, kernels, precision, tokenizer, loader, ingest, plans or checkpoints",
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
	return group(c, a.benchStep(&f), a.benchGEMM(&f), a.benchKernels(&f), a.benchPrecision(&f), a.benchTokenizer(&f), a.benchTrainTokenizer(&f), a.benchLoader(&f), a.benchIngest(&f), a.benchPlan(&f), a.benchCkpt(&f), a.benchTable(), a.benchReport())
}

func (a *app) line(l bench.Line) { a.printf("%s\n", l) }

func (a *app) benchHeader() error { return bench.Header(a.out, run.CPUName()) }

func (f *benchFlags) numThreads() int {
	if f.threads > 0 {
		return f.threads
	}
	return host.DefaultThreads()
}

// startPeer starts a peer. Where there is none, because it is not installed or breaks,
// it says so in the place of the peer's row and returns nil without an error: what is
// ours is measured all the same.
func (a *app) startPeer(ctx context.Context, f *benchFlags, name, script string, args ...string) (*bench.Peer, error) {
	p, err := bench.StartPeer(ctx, f.peers, script, args...)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		a.lost(name, err)
		return nil, nil
	}
	a.printf("# peer %s\n", p.About)
	return p, nil
}

// lost says why a peer has no row.
func (a *app) lost(name string, err error) { a.note("peer=%s: %v", name, err) }

func presetNames() string {
	var names []string
	for _, p := range model.Presets() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
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
				p, err := a.startPeer(c.Context(), f, "gemm", "peer_gemm.py", precision)
				if err != nil {
					return err
				}
				if p == nil {
					return bench.GEMM(c.Context(), cfg, a.line)
				}
				defer p.Close()
				cfg.Lost = a.lost
				cfg.Peer = func(_ context.Context, k bench.GEMMKind, s gemm.Shape, threads, samples int) (float64, error) {
					var answer struct {
						GFLOPS float64 `json:"gflops"`
					}
					err := p.Ask(map[string]any{"m": s.M, "n": s.N, "k": s.K, "form": s.Form, "operands": k.Operands, "threads": threads, "rounds": samples}, &answer)
					return answer.GFLOPS, err
				}
			}
			return bench.GEMM(c.Context(), cfg, a.line)
		},
	}
	c.Flags().StringVar(&precision, "precision", "f32", "of the products: f32, or bf16 with float32 sums")
	return c
}

func (a *app) benchKernels(f *benchFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "kernels",
		Short: "Innermost loops alone: micro-kernels, passes over memory, exponential, parallel region",
		Long: `Kernels measures every micro-kernel of matrix products that this processor runs
against the peak of its own instructions; a norm, a gate and the optimiser on
arrays of 64 MiB against a plain copy; the exponential against the standard
library's; and an empty parallel region.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if peers, err := f.check(c); err != nil || peers {
				return errOr(err, bad(c, "kernels has no peers; leave --compare out, or use bench gemm"))
			}
			if err := a.benchHeader(); err != nil {
				return err
			}
			return bench.Kernels(c.Context(), bench.KernelsConfig{Threads: f.numThreads(), Elems: 16 << 20, Rounds: f.count}, a.line)
		},
	}
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
