package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/gpu"
	"refrain/internal/run"
	"refrain/model"
)

// stepFlags are the flags of bench step.
type stepFlags struct {
	preset, precision, scale string
	T, B, V, shards, devices int
	kernels                  bool
}

// config is the step that the flags describe, with its sizes checked.
func (s *stepFlags) config(c *cobra.Command, f *benchFlags) (cfg bench.StepConfig, err error) {
	preset, m, err := benchPreset(c, s.preset)
	if err != nil {
		return cfg, err
	}
	m.MaxT = max(m.MaxT, s.T)
	if s.V > 0 {
		m.Vocab = s.V
	}
	policy, err := model.PolicyOf(s.precision)
	if err != nil {
		return cfg, bad(c, "--precision %q; use f32 or bf16", s.precision)
	}
	n, err := run.Shards(s.B, s.shards)
	if err != nil {
		return cfg, &run.Error{Code: run.ExitUsage, Err: err}
	}
	return bench.StepConfig{Model: m, Name: strings.TrimPrefix(preset, "micro-"), T: s.T, B: s.B, Shards: n, Devices: s.devices, Threads: f.threads, Policy: policy, Warm: 2, Steps: f.count}, nil
}

func (a *app) benchStep(f *benchFlags) *cobra.Command {
	var s stepFlags
	c := &cobra.Command{
		Use:   "step",
		Short: "A training step fed by repack, batch and upload",
		Long: `Step measures a training step that is fed by the real chain. With --scale it
compares steps that differ in one thing, in rounds of two steps each after one
that does not count:

  threads  all threads against one; the losses must be equal to the bit
  devices  2 and 4 logical devices against 1, on the same threads and the same
           batch; the losses must be equal to the bit
  batch    1, 2, 4, ... rows up to --batch: tokens a second, and the smallest batch
           within 5 % of the fastest, from which on the device is saturated; where
           that is the largest, try more
  size     models of 0.3M to 30M parameters: how far tokens a second times
           6P + 7LTD is from a constant (P parameters of multiplied matrices,
           L layers, T tokens in a row, D width)`,
		Example: `  refrain bench step --preset micro-3M --count 12 --kernels
  refrain bench step --preset micro-3M --precision bf16 --compare peers
  refrain bench step --scale threads --precision bf16
  refrain bench step --scale batch --batch 64`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			cfg, err := s.config(c, f)
			if err != nil {
				return err
			}
			if s.scale != "" {
				return a.stepScale(c, f, &s, cfg)
			}
			if err := a.benchHeader(); err != nil {
				return err
			}
			if peers {
				return a.stepWithPeer(c.Context(), f, cfg)
			}
			r, err := bench.Step(c.Context(), cfg, s.kernels)
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
	c.Flags().StringVar(&s.preset, "preset", "micro-1M", "model shape")
	c.Flags().StringVar(&s.precision, "precision", "f32", "of activations and products: f32 or bf16 (the peer then runs under autocast)")
	c.Flags().StringVar(&s.scale, "scale", "", "compare steps by threads, devices, batch or size")
	c.Flags().IntVar(&s.T, "seq", 512, "tokens in a row")
	c.Flags().IntVar(&s.B, "batch", 8, "rows in a step")
	c.Flags().IntVar(&s.V, "vocab", 0, "vocabulary; 0 means the preset's")
	c.Flags().IntVar(&s.shards, "shards", 0, "logical shards; 0 means as in training")
	c.Flags().IntVar(&s.devices, "devices", 1, "logical devices")
	c.Flags().BoolVar(&s.kernels, "kernels", false, "print the time of every kernel as comments")
	return c
}

// stepScale compares steps by what --scale names.
func (a *app) stepScale(c *cobra.Command, f *benchFlags, s *stepFlags, cfg bench.StepConfig) error {
	own := map[string]string{"threads": "devices", "devices": "devices", "size": "preset", "batch": "shards"} // what the comparison sets itself
	set, ok := own[s.scale]
	switch {
	case !ok:
		return bad(c, "--scale %q; use threads, devices, batch or size", s.scale)
	case f.compare != "" || s.kernels:
		return bad(c, "--scale compares our own steps; leave --compare and --kernels out")
	case c.Flags().Changed(set):
		return bad(c, "--scale %s chooses by itself; leave --%s out", s.scale, set)
	case s.scale == "threads" && f.numThreads() < 2:
		return bad(c, "--scale threads compares several with one; there is one (--threads, or the cores of this process)")
	case s.scale == "devices" && cfg.Shards%4 != 0:
		return bad(c, "--scale devices goes to 4 devices, which a batch of %d rows in %d shards does not divide into; use --batch 8", s.B, cfg.Shards)
	}
	if s.scale == "batch" && (s.B < 2 || cfg.Devices > 1) {
		return bad(c, "--scale batch grows to --batch rows on one device; give 2 rows or more, and leave --devices out")
	}
	cfg.Threads = f.numThreads()
	sc := bench.ScaleConfig{Warm: 1, Steps: 2, Rounds: f.count}
	label := func(b bench.StepConfig) string { return fmt.Sprintf("threads=%d", b.Threads) }
	switch s.scale {
	case "threads":
		one := cfg
		one.Threads = 1
		sc.Sides = []bench.StepConfig{one, cfg}
	case "devices":
		for _, n := range []int{1, 2, 4} {
			cfg.Devices = n
			sc.Sides = append(sc.Sides, cfg)
		}
		label = func(b bench.StepConfig) string { return fmt.Sprintf("devices=%d", b.Devices) }
	case "batch":
		for cfg.B = 1; ; cfg.B = min(2*cfg.B, s.B) {
			var err error
			if cfg.Shards, err = run.Shards(cfg.B, 0); err != nil {
				return err
			}
			if sc.Sides = append(sc.Sides, cfg); cfg.B == s.B {
				break
			}
		}
	case "size":
		for _, p := range bench.Sizes() {
			cfg.Model, cfg.Name = p.Config, p.Name
			cfg.Model.MaxT = max(cfg.Model.MaxT, s.T)
			if s.V > 0 {
				cfg.Model.Vocab = s.V
			}
			sc.Sides = append(sc.Sides, cfg)
		}
	}
	if err := a.benchHeader(); err != nil {
		return err
	}
	if s.scale == "size" {
		sc.Steps = 1
		return bench.Growth(c.Context(), sc, a.line)
	}
	if s.scale == "batch" {
		return bench.Saturation(c.Context(), sc, a.line)
	}
	return bench.StepScale(c.Context(), sc, label, a.line)
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
	p, err := a.startPeer(ctx, f, "step", "peer_step.py", string(spec))
	if err != nil {
		return err
	}
	if p == nil {
		r, err := bench.Step(ctx, cfg, false)
		if err == nil {
			a.line(r.Line)
		}
		return err
	}
	defer p.Close()
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
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			a.lost("step", err)
			a.line(r.Line)
			return nil // the rounds so far have their lines
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
