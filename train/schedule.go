package train

import (
	"errors"
	"fmt"
	"math"
)

// Cycles cuts a run into cycles of equal length, each of which ends like a run: the
// learning rate restarts at its peak and falls along a cosine (Loshchilov and Hutter
// 2017), while the weight decay goes the other way, from DecayFrom to DecayTo times its
// value, linearly, so that what a high rate has found is pressed down as the rate
// falls. The models at the ends are members of one ensemble (Huang et al. 2017).
type Cycles struct {
	N                  int64 // 0: one cosine over the whole run, and a constant decay
	DecayFrom, DecayTo float64
}

// check reports what is impossible for a run of that many steps.
func (c *Cycles) check(o *Optim, steps int64) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.N < 0 {
		bad("%d cycles; there must be at least 1, or 0 for none", c.N)
	}
	if c.N <= 0 {
		return errors.Join(errs...)
	}
	for _, x := range []float64{c.DecayFrom, c.DecayTo} {
		if !(x >= 0 && x <= 100) {
			bad("a cycle goes through %g times the weight decay; it must be in [0, 100]", x)
		}
	}
	if c.N > steps {
		bad("%d cycles in a run of %d steps; every cycle needs one", c.N, steps)
	} else if end := c.end(1, steps); o.Warmup > end {
		bad("the warm-up of %d steps is longer than the first of %d cycles, which ends with step %d; shorten it or take fewer cycles", o.Warmup, c.N, end)
	}
	return errors.Join(errs...)
}

// end is the last update of cycle i (1 to N). Products stay below 2^63: a run has at
// most 2^40 steps and 10^6 cycles.
func (c *Cycles) end(i, steps int64) int64 { return i * steps / c.N }

// of returns the cycle (1 to N) of update k.
func (c *Cycles) of(k, steps int64) int64 {
	i := min(max(1, k*c.N/steps), c.N)
	for i > 1 && k <= c.end(i-1, steps) {
		i--
	}
	for k > c.end(i, steps) {
		i++
	}
	return i
}

// Ends lists the updates after which a cycle is over, rising; the last is steps. It is
// empty without cycles.
func (c *Cycles) Ends(steps int64) []int64 {
	var ends []int64
	for i := int64(1); i <= c.N; i++ {
		ends = append(ends, c.end(i, steps))
	}
	return ends
}

// EndsAt reports whether a cycle is over after update k.
func (c *Cycles) EndsAt(k, steps int64) bool {
	return c.N > 0 && k >= 1 && k <= steps && c.end(c.of(k, steps), steps) == k
}

// phase is how far update k is in its cosine: 0 at the peak, and it would be 1 at the
// update after the last, so that this one still counts. Below 0 is the warm-up.
func (o *Optim) phase(k, steps int64) float64 {
	from, to := o.Warmup, steps
	if o.Cycles.N > 0 {
		i := o.Cycles.of(k, steps)
		to = o.Cycles.end(i, steps)
		if i > 1 {
			from = o.Cycles.end(i-1, steps) + 1
		}
	}
	return float64(k-from) / float64(to-from+1)
}

// Rate returns the learning rate of update k (1 to steps): linear from LR/Warmup
// to LR over the warm-up, then half a cosine that would reach MinRatio*LR at
// update steps+1, so that the last update still counts; with cycles that is so in
// each of them. It is a pure function of its arguments: there is no schedule state to
// lose.
func (o Optim) Rate(k, steps int64) float64 {
	if k <= o.Warmup {
		return o.LR * float64(k) / float64(o.Warmup)
	}
	x := o.phase(k, steps)
	// The product is rounded, so that no architecture fuses it into the sum.
	return o.LR * (o.MinRatio + float64((1-o.MinRatio)*0.5*(1+math.Cos(math.Pi*x))))
}

// DecayFactor returns what the weight decays are multiplied by at update k: 1 without
// cycles.
func (o Optim) DecayFactor(k, steps int64) float64 {
	c := o.Cycles
	if c.N == 0 {
		return 1
	}
	return c.DecayFrom + float64((c.DecayTo-c.DecayFrom)*max(0, o.phase(k, steps)))
}
