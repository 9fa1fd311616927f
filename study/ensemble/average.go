package ensemble

import (
	"context"
	"fmt"
	"math"
)

// Soup is the one model whose weights are the mean of the members' weights. It costs one
// forward pass instead of one a member, and is a baseline: between members trained from
// different initial weights it predicts little (Kim et al. 2025). The members
// must have one shape. It blocks until all have been read, one at a time, beside a sum in
// float64 that is taken in their order.
func Soup(ctx context.Context, members []Member) (Member, error) {
	factors := make([]float64, len(members))
	for i := range factors {
		factors[i] = 1
	}
	return average(ctx, "the weight average", members, factors)
}

// EMA is the exponential moving average of the members' weights in their order, which are
// checkpoints of one run from the first to the last: the average begins with the first
// and takes of every other one the share 1-decay. decay is from 0, which is the last
// member, to below 1.
func EMA(ctx context.Context, members []Member, decay float64) (Member, error) {
	if !(decay >= 0 && decay < 1) {
		return Member{}, fmt.Errorf("ensemble: a decay of %g; use 0 or more, and below 1", decay)
	}
	factors := make([]float64, len(members))
	for i := range factors {
		factors[i] = math.Pow(decay, float64(len(members)-1-i))
		if i > 0 {
			factors[i] *= 1 - decay
		}
	}
	return average(ctx, "the moving average of weights", members, factors)
}

// average is the sum of factor times weights, divided by the sum of the factors.
func average(ctx context.Context, name string, members []Member, factors []float64) (Member, error) {
	if len(members) == 0 {
		return Member{}, fmt.Errorf("ensemble: there are no members to average")
	}
	first, total := members[0], 0.0
	for i, m := range members {
		if m.Model != first.Model {
			return Member{}, fmt.Errorf("ensemble: %s has another shape than %s: weights of different shapes have no average; leave one of them out, or the average", m.Name, first.Name)
		}
		total += factors[i]
	}
	sum := make([]float64, first.Model.Layout().Total)
	for i, m := range members {
		w, err := m.Weights(ctx)
		if err != nil {
			return Member{}, err
		}
		if len(w) != len(sum) {
			return Member{}, fmt.Errorf("ensemble: %s has %d weights, its shape says %d", m.Name, len(w), len(sum))
		}
		for j, v := range w {
			sum[j] += factors[i] * float64(v)
		}
	}
	mean := make([]float32, len(sum))
	for i, s := range sum {
		mean[i] = float32(s / total)
	}
	return Member{Name: name, Model: first.Model, Policy: first.Policy, Weights: func(context.Context) ([]float32, error) { return mean, nil }}, nil
}
