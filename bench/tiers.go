package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"refrain/stages/repack"
)

// TiersConfig compares loaders on one corpus. Ours is measured first in every
// round, then each peer at the setting that was best in a short trial.
type TiersConfig struct {
	Corpus *RowCorpus
	Modes  []repack.Mode
	Rounds int
	Limit  time.Duration   // of one measurement
	Paces  []time.Duration // of T4; empty leaves T4 out
	Ours   Loads
	Peers  []NamedLoads
}

// NamedLoads is a loader with its name, or with the reason why it is not there.
type NamedLoads struct {
	Name string
	Loads
	Missing error
}

// oursName is our loader's in the lines, limitName that of what no loader is beyond.
const (
	oursName  = "refrain"
	limitName = "limit"
)

// limits are what a loader can be run as to find out what part of its own work costs.
// They deliver no rows of the corpus, so they are measured but do not compete.
type limits interface{ Limits() []string }

// contestant is a loader with the setting that it is measured at.
type contestant struct {
	name, set string
	l         Loads
	tok, cpu  []float64 // tokens a second and a CPU-second, of each round
	waits     []Delivery
	ratio     []float64 // ours over this, a CPU-second, inside a round
	ceiling   []float64 // likewise, writing alone over this
	failed    error
}

// Tiers returns, for every mode, a line for our loader, for its limits and for every
// peer: input tokens a second of wall time and of the CPU time of all its processes, waits for
// a batch, and how many times as much ours, and writing the ring alone, delivered a
// CPU-second in the same round. note gets digests, trials, and the reason for every row that has no
// line: a loader that delivers other rows than the corpus has gets its defect
// named instead of a speed.
func Tiers(ctx context.Context, c TiersConfig, emit func(Line), note func(string)) error {
	all := append([]NamedLoads{{Name: oursName, Loads: c.Ours}}, c.Peers...) // ours first: it is what ratios are to
	for _, mode := range c.Modes {
		var list []*contestant
		for _, l := range all {
			if l.Missing != nil {
				note(fmt.Sprintf("loader=%s mode=%v: %v", l.Name, mode, l.Missing))
				continue
			}
			got, err := enter(ctx, c, l, mode, note)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				if l.Name == oursName {
					return err
				}
				note(fmt.Sprintf("loader=%s mode=%v: %v", l.Name, mode, err))
				continue
			}
			list = append(list, got...)
			if own, ok := c.Ours.(limits); ok && l.Name == oursName {
				for _, set := range own.Limits() {
					list = append(list, &contestant{name: limitName, set: set, l: c.Ours})
				}
			}
		}
		if err := race(ctx, c, mode, list); err != nil {
			return err
		}
		for _, k := range list {
			if k.failed != nil {
				note(fmt.Sprintf("loader=%s mode=%v setting=%s: %v", k.name, mode, k.set, k.failed))
				continue
			}
			emit(c.line(mode, k))
		}
		if err := paced(ctx, c, mode, list, emit, note); err != nil {
			return err
		}
	}
	return nil
}

// enter finds a loader's best settings, by tokens a second and, where another one
// is better there, by tokens a CPU-second, and proves what it delivers in them.
// Ours enters with all of its settings.
func enter(ctx context.Context, c TiersConfig, l NamedLoads, mode repack.Mode, note func(string)) (list []*contestant, err error) {
	sets := l.Settings()
	if l.Name != oursName {
		if sets, err = trial(ctx, c, l, mode, note); err != nil {
			return nil, err
		}
	}
	for _, set := range sets {
		var rows, docs []Digest
		for e := range 2 {
			r, d, err := l.Epoch(ctx, set, mode, e)
			if err != nil {
				return nil, fmt.Errorf("setting %s: %w", set, err)
			}
			rows, docs = append(rows, r), append(docs, d)
		}
		note(fmt.Sprintf("loader=%s mode=%v setting=%s: %d rows an epoch, set=%s,%s order=%s,%s",
			l.Name, mode, set, rows[0].Rows, rows[0].Set(), rows[1].Set(), rows[0].Order(), rows[1].Order()))
		if why := c.Corpus.Defect(mode, rows, docs); why != "" {
			return nil, fmt.Errorf("setting %s: wrong digest: %s", set, why)
		}
		list = append(list, &contestant{name: l.Name, set: set, l: l})
	}
	return list, nil
}

// trial measures every setting for a short time and returns the best.
func trial(ctx context.Context, c TiersConfig, l NamedLoads, mode repack.Mode, note func(string)) ([]string, error) {
	sets := l.Settings()
	tok, cpu := make([]float64, len(sets)), make([]float64, len(sets))
	best, thrift := 0, 0
	why := errors.New("no setting of it runs")
	for i, s := range sets {
		d, err := l.Deliver(ctx, s, mode, 2, c.Limit/2, 0)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, errMode) {
			return nil, err
		}
		if err != nil {
			note(fmt.Sprintf("loader=%s mode=%v setting=%s: %v", l.Name, mode, s, err))
			why = err
			continue
		}
		tok[i], cpu[i] = rate(d.Tokens, d.Wall), rate(d.Tokens, d.CPU)
		if tok[i] > tok[best] {
			best = i
		}
		if cpu[i] > cpu[thrift] {
			thrift = i
		}
		note(fmt.Sprintf("loader=%s mode=%v setting=%s: trial %s tok/s %s tok/cpu-s", l.Name, mode, s, number(tok[i]), number(cpu[i])))
	}
	if tok[best] == 0 {
		return nil, why
	}
	if thrift != best && cpu[thrift] > 1.05*cpu[best] {
		return []string{sets[best], sets[thrift]}, nil
	}
	return []string{sets[best]}, nil
}

func rate(tokens int64, d time.Duration) float64 {
	// The clock of other processes ticks a hundred times a second.
	return float64(tokens) / max(d.Seconds(), 1e-9)
}

// race measures all in turns.
func race(ctx context.Context, c TiersConfig, mode repack.Mode, list []*contestant) error {
	writes := slices.IndexFunc(list, func(k *contestant) bool { return k.name == limitName && k.set == limitWrite })
	for round := range c.Rounds {
		for i, k := range list {
			if k.failed != nil {
				continue
			}
			d, err := k.l.Deliver(ctx, k.set, mode, 2+round, c.Limit, 0)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil && i == 0 {
				return err
			}
			if err != nil {
				k.failed = err
				continue
			}
			k.tok, k.cpu = append(k.tok, rate(d.Tokens, d.Wall)), append(k.cpu, rate(d.Tokens, d.CPU))
			k.waits = append(k.waits, d)
			k.ratio = append(k.ratio, list[0].cpu[round]/k.cpu[len(k.cpu)-1])
			if writes >= 0 && i > writes && len(list[writes].cpu) > round { // a limit stands before those it is a limit of
				k.ceiling = append(k.ceiling, list[writes].cpu[round]/k.cpu[len(k.cpu)-1])
			}
		}
	}
	return nil
}

func (c TiersConfig) name(tier string, mode repack.Mode, k *contestant) string {
	return fmt.Sprintf("Loader/tier=%s/mode=%v/loader=%s/set=%s/T=%d/B=%d", tier, mode, k.name, settingName(k.set), c.Corpus.T, c.Corpus.B)
}

// settingName is a setting as part of the name of a line.
func settingName(s string) string {
	b := []byte(s)
	for i, x := range b {
		switch x {
		case ' ', '/', '=':
			b[i] = '-'
		}
	}
	return string(b)
}

func (c TiersConfig) line(mode repack.Mode, k *contestant) Line {
	_, tok, _ := Quartiles(k.tok)
	_, cpu, _ := Quartiles(k.cpu)
	var p50, p99, most, first []float64
	for _, d := range k.waits {
		p50, p99 = append(p50, d.Wait.P50.Seconds()), append(p99, d.Wait.P99.Seconds())
		most, first = append(most, d.Wait.Most.Seconds()), append(first, d.First.Seconds())
	}
	mid := func(v []float64) float64 { _, m, _ := Quartiles(v); return m }
	tier := "T1"
	if mode == repack.Repack {
		tier = "T2"
	}
	l := Line{Name: c.name(tier, mode, k), Threads: 1, N: len(k.tok), PerOp: seconds(float64(c.Corpus.B*c.Corpus.T) / tok),
		Metrics: []Metric{{tok, "tok/s"}, {cpu, "tok/cpu-s"}, {1e6 * mid(p50), "wait-p50-us"}, {1e6 * mid(p99), "wait-p99-us"},
			{1e6 * mid(most), "wait-max-us"}, {1e3 * mid(first), "first-ms"}}}
	lo, m, hi := Quartiles(k.ratio)
	switch {
	case k.name != oursName:
		l.Metrics = append(l.Metrics, Metric{m, "ours-x"}, Metric{lo, "ours-x-q1"}, Metric{hi, "ours-x-q3"})
		if k.name != limitName && len(k.ceiling) > 0 {
			_, most, _ := Quartiles(k.ceiling)
			l.Metrics = append(l.Metrics, Metric{most, "limit-x"})
		}
	case k.set == oursChain:
		l.Metrics = append(l.Metrics, Metric{1 / m, "of-gathered"}, Metric{1 / hi, "of-gathered-q1"}, Metric{1 / lo, "of-gathered-q3"})
	}
	return l
}

// paced is tier T4: a consumer that sleeps as long as a step takes. A peer sleeps
// at the setting that finds most batches in a trial; ours is the chain, as in a run.
func paced(ctx context.Context, c TiersConfig, mode repack.Mode, list []*contestant, emit func(Line), note func(string)) error {
	for _, pace := range c.Paces {
		seen := map[string]bool{}
		for _, k := range list {
			if k.failed != nil || k.name == limitName || seen[k.name] || k.name != oursName && mode != c.Modes[0] {
				continue // peers are paced in one mode
			}
			seen[k.name] = true
			sets := []string{oursChain}
			if k.name != oursName {
				sets = k.l.Settings()
			}
			set, err := mostFound(ctx, c, k.l, sets, mode, pace)
			var d Delivery
			if err == nil {
				d, err = k.l.Deliver(ctx, set, mode, 2, 2*c.Limit, pace)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				note(fmt.Sprintf("loader=%s mode=%v pace=%v: %v", k.name, mode, pace, err))
				continue
			}
			n := int(d.Tokens) / (c.Corpus.B * c.Corpus.T)
			us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
			at := &contestant{name: k.name, set: set}
			emit(Line{Name: fmt.Sprintf("%s/pace=%v", c.name("T4", mode, at), pace), Threads: 1, N: n, PerOp: d.Wall / time.Duration(max(1, n)),
				Metrics: []Metric{{100 * d.Found, "found%"}, {us(d.Wait.P50), "wait-p50-us"}, {us(d.Wait.P99), "wait-p99-us"}, {us(d.Wait.Most), "wait-max-us"}}})
		}
	}
	return nil
}

// mostFound returns the setting in which most steps found a batch.
func mostFound(ctx context.Context, c TiersConfig, l Loads, sets []string, mode repack.Mode, pace time.Duration) (set string, err error) {
	if len(sets) == 1 {
		return sets[0], nil
	}
	best, wait := -1.0, time.Duration(0)
	for _, s := range sets {
		d, derr := l.Deliver(ctx, s, mode, 2, c.Limit/2+4*pace, pace)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if derr != nil {
			err = derr
			continue
		}
		if d.Found > best || d.Found == best && d.Wait.P50 < wait {
			set, best, wait = s, d.Found, d.Wait.P50
		}
	}
	if best < 0 {
		return "", err
	}
	return set, nil
}
