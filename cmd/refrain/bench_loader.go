package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/stages/repack"
)

// loaderFlags are what bench loader takes.
type loaderFlags struct {
	T, B, mega int
	mode       string
	tiers      []string
	loaders    []string
	paces      []time.Duration
	limit      time.Duration
}

func (a *app) benchLoader(f *benchFlags) *cobra.Command {
	var l loaderFlags
	c := &cobra.Command{
		Use:   "loader",
		Short: "Rows from a resident store: the gather alone, whole batches, a paced consumer, peers",
		Long: `Loader measures in tiers.

T0  the gather of rows on one thread, against a widening copy
T1  whole batches of the same windows in an order (fixed, reshuffle)
T2  whole batches, documents packed anew each epoch (repack)
T4  a consumer that sleeps a step's time after each batch: how often it found one

Text to ids, T3, is bench ingest. In T1, T2 and T4 ours is the chain of a run up
to the upload. With --compare peers each peer of bench/peers answers between our
rounds at the setting that was best in a trial, and pays one copy into a ring of
four buffers, as ours does. Before that every loader delivers two whole epochs,
of which digests are taken: one that delivers other rows gets no speed but its
defect named.`,
		Example: `  refrain bench loader --mode repack --seq 4096 --batch 8
  refrain bench loader --compare peers --loaders numpy,torch,grain`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			modes, err := l.check(c, peers)
			if err != nil {
				return err
			}
			if err := a.benchHeader(); err != nil {
				return err
			}
			if slices.Contains(l.tiers, "T0") {
				if err := a.loaderGather(c.Context(), f, &l, modes); err != nil {
					return err
				}
			}
			if slices.ContainsFunc(l.tiers, func(t string) bool { return t != "T0" }) {
				return a.loaderTiers(c.Context(), f, &l, modes, peers)
			}
			return nil
		},
	}
	c.Flags().IntVar(&l.T, "seq", 512, "tokens in a row")
	c.Flags().IntVar(&l.B, "batch", 16, "rows in a batch")
	c.Flags().IntVar(&l.mega, "mtok", 32, "million tokens in the synthetic store")
	c.Flags().StringVar(&l.mode, "mode", "", "fixed, reshuffle or repack; all three without it")
	c.Flags().StringSliceVar(&l.tiers, "tiers", []string{"T0", "T1", "T2", "T4"}, "what to measure")
	c.Flags().StringSliceVar(&l.loaders, "loaders", nil, "with --compare peers: only these")
	c.Flags().DurationSliceVar(&l.paces, "pace", []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}, "steps of T4")
	c.Flags().DurationVar(&l.limit, "time", 400*time.Millisecond, "of one measurement of T1 and T2; T4 takes twice as long")
	return c
}

// check returns the modes that the tiers ask for.
func (l *loaderFlags) check(c *cobra.Command, peers bool) (modes []repack.Mode, err error) {
	for _, t := range l.tiers {
		if !slices.Contains([]string{"T0", "T1", "T2", "T4"}, t) {
			return nil, bad(c, "--tiers %q; there are T0, T1, T2 and T4, and T3 is bench ingest", t)
		}
	}
	if l.limit < 10*time.Millisecond {
		return nil, bad(c, "--time %v; use 10ms or more", l.limit)
	}
	for _, p := range l.paces {
		if p < 100*time.Microsecond {
			return nil, bad(c, "--pace %v; use 100us or more", p)
		}
	}
	var names []string
	for _, p := range bench.RowPeers() {
		names = append(names, p.Name)
	}
	for _, n := range l.loaders {
		if !slices.Contains(names, n) {
			return nil, bad(c, "--loaders %q; there are %s", n, strings.Join(names, ", "))
		}
	}
	if len(l.loaders) > 0 && !peers {
		return nil, bad(c, "--loaders names peers; add --compare peers")
	}
	for _, m := range []repack.Mode{repack.Fixed, repack.Reshuffle, repack.Repack} {
		if l.mode == "" || l.mode == m.String() {
			modes = append(modes, m)
		}
	}
	if len(modes) == 0 {
		return nil, bad(c, "--mode %q; there are fixed, reshuffle and repack", l.mode)
	}
	return modes, nil
}

// loaderGather is T0.
func (a *app) loaderGather(ctx context.Context, f *benchFlags, l *loaderFlags, modes []repack.Mode) error {
	dir, err := os.MkdirTemp("", "refrain-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := bench.SyntheticStore(ctx, dir, int64(l.mega)<<20)
	if err != nil {
		return err
	}
	defer s.Close()
	return bench.Loader(ctx, bench.LoaderConfig{Store: s, T: l.T, Rows: max(1, (8<<20)/l.T), Rounds: f.count, Modes: modes}, a.line)
}

// loaderTiers is T1, T2 and T4.
func (a *app) loaderTiers(ctx context.Context, f *benchFlags, l *loaderFlags, modes []repack.Mode, peers bool) error {
	has := func(t string) bool { return slices.Contains(l.tiers, t) }
	if !has("T4") {
		l.paces = nil
		modes = slices.DeleteFunc(modes, func(m repack.Mode) bool { return m == repack.Repack && !has("T2") || m != repack.Repack && !has("T1") })
	}
	dir, err := os.MkdirTemp("", "refrain-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	corpus, err := bench.NewRowCorpus(ctx, dir, int64(l.mega)<<20, l.T, l.B)
	if err != nil {
		return err
	}
	defer corpus.Close()
	own, done, err := bench.NewOurs(corpus)
	if err != nil {
		return err
	}
	defer done()
	a.note("corpus rows=%d of %d tokens, documents=%d, rows set=%s, documents set=%s", corpus.W, l.T, corpus.Store.NumDocs(), corpus.Canonical.Set(), corpus.Documents.Set())
	cfg := bench.TiersConfig{Corpus: corpus, Modes: modes, Rounds: f.count, Limit: l.limit, Paces: l.paces, Ours: own}
	for _, p := range bench.RowPeers() {
		if !peers || len(l.loaders) > 0 && !slices.Contains(l.loaders, p.Name) {
			continue
		}
		peer, versions, done, err := bench.StartRowPeer(ctx, f.peers, p, corpus)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			defer done()
			a.versions(p.Name, versions)
		}
		cfg.Peers = append(cfg.Peers, bench.NamedLoads{Name: p.Name, Loads: peer, Missing: err})
	}
	return bench.Tiers(ctx, cfg, a.line, func(s string) { a.note("%s", s) })
}

// note prints a comment between the lines.
func (a *app) note(format string, list ...any) {
	a.printf("# %s\n", fmt.Sprintf(format, list...))
}

// versions prints what a peer says of itself.
func (a *app) versions(name string, v map[string]string) {
	var keys []string
	for k := range v {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		a.note("peer %s: %s %s", name, k, v[k])
	}
}
