package train_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/gpu/host"
	"refrain/train"
)

func cyclic(n int64) train.Optim {
	return train.Optim{LR: 1, MinRatio: 0.1, Warmup: 3, Cycles: train.Cycles{N: n, DecayFrom: 0.5, DecayTo: 1.5}}
}

// TestCyclesAreRuns: one cycle has the learning rates of no cycles; of several, each but
// the first has those of a run of its length whose warm-up is one step.
func TestCyclesAreRuns(t *testing.T) {
	const steps = 40
	one, plain := cyclic(1), cyclic(0)
	for k := int64(1); k <= steps; k++ {
		if one.Rate(k, steps) != plain.Rate(k, steps) {
			t.Errorf("update %d of one cycle: rate %v, without cycles %v", k, one.Rate(k, steps), plain.Rate(k, steps))
		}
	}
	o, short := cyclic(4), cyclic(0)
	for k := int64(1); k <= steps; k++ {
		short.Warmup = 1
		if k <= 10 {
			short.Warmup = 3
		}
		if got, want := o.Rate(k, steps), short.Rate((k-1)%10+1, 10); got != want {
			t.Errorf("update %d of four cycles: rate %v, want %v", k, got, want)
		}
	}
}

// TestCycleEnds: ends rise to the last update, lengths differ by at most one, and every
// update belongs to the cycle whose ends surround it.
func TestCycleEnds(t *testing.T) {
	for _, steps := range []int64{1, 7, 40, 101, 1 << 40} {
		for _, n := range []int64{1, 2, 3, 7, 40, 1000} {
			if n > steps {
				continue
			}
			c := train.Cycles{N: n}
			ends := c.Ends(steps)
			before := int64(0)
			for i, e := range ends {
				if l := e - before; l < steps/n || l > steps/n+1 {
					t.Fatalf("%d steps in %d cycles: cycle %d has %d", steps, n, i+1, l)
				}
				if !c.EndsAt(e, steps) || e-1 > before && c.EndsAt(e-1, steps) || e+1 <= steps && c.EndsAt(e+1, steps) && e+1 != ends[i+1] {
					t.Errorf("%d steps in %d cycles: EndsAt disagrees about %d", steps, n, e)
				}
				before = e
			}
			if before != steps || c.EndsAt(0, steps) || c.EndsAt(steps+1, steps) {
				t.Errorf("%d steps in %d cycles end with %d", steps, n, before)
			}
		}
	}
	if c := (train.Cycles{}); c.EndsAt(5, 5) || c.Ends(5) != nil {
		t.Error("without cycles one ends")
	}
}

// TestDecayIsInAntiPhase: within a cycle the decay rises while the rate falls, from its
// first factor on and not quite to the second; without cycles it is 1.
func TestDecayIsInAntiPhase(t *testing.T) {
	const steps = 60
	o := cyclic(3)
	for k := int64(1); k <= steps; k++ {
		rate, f := o.Rate(k, steps), o.DecayFactor(k, steps)
		if (k-1)%20 == 0 {
			if f != 0.5 || k > 1 && rate != 1 {
				t.Errorf("update %d begins a cycle with rate %v and decay factor %v", k, rate, f)
			}
			continue
		}
		if k > 3 && (rate >= o.Rate(k-1, steps) && k > 4 || k > 4 && f <= o.DecayFactor(k-1, steps)) {
			t.Errorf("update %d: rate %v after %v, factor %v after %v", k, rate, o.Rate(k-1, steps), f, o.DecayFactor(k-1, steps))
		}
		if k%20 == 0 && (math.Abs(f-1.5) > 0.06 || math.Abs(rate-0.1) > 0.01) {
			t.Errorf("update %d ends a cycle with rate %v and decay factor %v", k, rate, f)
		}
		if f := cyclic(0).DecayFactor(k, steps); f != 1 {
			t.Fatalf("factor %v without cycles", f)
		}
	}
}

// TestCyclesReachTheWeights: with a constant factor of 1 one cycle is a plain run, bit for
// bit; with another factor it is not, and devices and resumes change nothing.
func TestCyclesReachTheWeights(t *testing.T) {
	weights := func(c train.Cycles) []uint32 {
		o := tinyOptions(1)
		o.Optim.Cycles = c
		r := newRig(t, o, host.Config{Threads: 1})
		r.run(o.Steps)
		return bits(r.snapshot(false).Weights)
	}
	plain := weights(train.Cycles{})
	if !slices.Equal(weights(train.Cycles{N: 1, DecayFrom: 1, DecayTo: 1}), plain) {
		t.Error("one cycle of constant decay differs from none")
	}
	if slices.Equal(weights(train.Cycles{N: 1, DecayFrom: 0.65, DecayTo: 1.5}), plain) || slices.Equal(weights(train.Cycles{N: 3, DecayFrom: 1, DecayTo: 1}), plain) {
		t.Error("cycles change nothing")
	}
	restoreEquals(t, func(devices int) train.Options {
		o := tinyOptions(devices)
		o.Optim.Cycles = train.Cycles{N: 3, DecayFrom: 0.65, DecayTo: 1.5}
		return o
	})
}

func TestCyclesRefused(t *testing.T) {
	for want, change := range map[string]func(o *train.Options){
		"-1 cycles; there must be at least 1":                  func(o *train.Options) { o.Optim.Cycles.N = -1 },
		"13 cycles in a run of 12 steps":                       func(o *train.Options) { o.Optim.Cycles.N = 13 },
		"a cycle goes through -0.5 times the weight decay":     func(o *train.Options) { o.Optim.Cycles.DecayFrom = -0.5 },
		"a cycle goes through NaN times the weight decay":      func(o *train.Options) { o.Optim.Cycles.DecayTo = math.NaN() },
		"the warm-up of 5 steps is longer than the first of 3": func(o *train.Options) { o.Optim.Warmup = 5 },
	} {
		o := tinyOptions(1)
		o.Optim.Cycles = train.Cycles{N: 3, DecayFrom: 0.65, DecayTo: 1.5}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
