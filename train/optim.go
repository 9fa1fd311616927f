// Package train turns a recorded model into an optimiser step on one or more
// devices: gradient tree over logical shards, clipping, AdamW by parameter
// role, schedule, and the rule that nothing is updated once a loss or a norm is
// not finite. It knows no files and no stages.
package train

import (
	"errors"
	"fmt"
	"math"

	"refrain/internal/num"
	"refrain/kernels"
	"refrain/model"
)

// Optim is AdamW, decoupled and scaled by the learning rate:
//
//	m = beta1*m + (1-beta1)*g ; v = beta2*v + (1-beta2)*g*g
//	w -= lr_t * mul * ( mhat / (sqrt(vhat) + eps) + decay*w )
//
// with mhat = m/(1-beta1^t), vhat = v/(1-beta2^t), and g the gradient after
// clipping by the global norm.
type Optim struct {
	LR           float64
	Beta1, Beta2 float64
	Eps          float64
	Clip         float64 // largest global gradient norm; 0 turns clipping off
	Warmup       int64   // steps of linear warm-up, at least 1
	MinRatio     float64 // learning rate at the end, as a share of LR
	Decay        [model.NumRoles]float64
	LRMul        [model.NumRoles]float64
	Cycles       Cycles
}

// Validate reports every impossible value at once.
func (o Optim) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.LR > 0 && o.LR <= 10, "lr is %g; it must be in (0, 10]", o.LR)
	check(o.Beta1 >= 0 && o.Beta1 < 1, "beta1 is %g; it must be in [0, 1)", o.Beta1)
	check(o.Beta2 >= 0 && o.Beta2 < 1, "beta2 is %g; it must be in [0, 1)", o.Beta2)
	check(o.Eps > 0, "eps is %g; it must be positive", o.Eps)
	check(o.Clip >= 0, "clip is %g; it must not be negative", o.Clip)
	check(o.Warmup >= 1, "warmup is %d steps; it must be at least 1", o.Warmup)
	check(o.MinRatio >= 0 && o.MinRatio <= 1, "min_lr_ratio is %g; it must be in [0, 1]", o.MinRatio)
	for r := range o.Decay {
		check(o.Decay[r] >= 0 && o.Decay[r] <= 1000, "decay of %v is %g; it must be in [0, 1000]", model.Role(r), o.Decay[r])
		check(o.LRMul[r] >= 0, "learning-rate multiplier of %v is %g; it must not be negative", model.Role(r), o.LRMul[r])
	}
	return errors.Join(errs...)
}

// Beta2For returns the decay of the second moment at a batch, given the beta2 that is meant
// for a reference batch: beta2^(batch/reference), which halves the moment over as many
// tokens (Marek et al. 2025, arXiv 2507.07101). A reference of 0 leaves beta2 as it is.
func Beta2For(beta2 float64, reference, batch int) float64 {
	if reference == 0 || reference == batch {
		return beta2
	}
	return math.Pow(beta2, float64(batch)/float64(reference))
}

// hyperLen is the number of floats uploaded for every step: the eight of
// kernels.AdamW, then the gradient divisor and what the noise of a step needs.
const (
	hyperScale  = 8  // index of 1 / scored targets
	hyperMasked = 9  // the same times the weight of the masked loss
	hyperDraw   = 10 // four words of kernels.DrawWords, in the bits of the floats
	drawLen     = 4
	hyperDecay  = 14 // factor of the weight decays
	hyperLen    = 16
)

// hyper fills h for update k, whose batch scores valid targets and begins on this device
// with its row first.
func (o *Options) hyper(h []float32, words []int32, k, valid int64, first int) {
	adam := kernels.AdamHyper(o.Optim.Rate(k, o.Steps), o.Optim.Beta1, o.Optim.Beta2, o.Optim.Eps, k)
	copy(h, adam[:])
	h[hyperScale], h[hyperMasked] = 0, 0
	if valid > 0 { // a batch with every target masked has no gradient
		h[hyperScale] = float32(1 / float64(valid))
		h[hyperMasked] = float32(o.Masked.Weight / float64(valid))
	}
	h[hyperDecay] = float32(o.Optim.DecayFactor(k, o.Steps))
	if o.noisy() {
		draw := kernels.DrawWords(num.Key("noise", o.Seed, uint64(k)), first)
		copy(words[hyperDraw:], draw[:])
	}
}
