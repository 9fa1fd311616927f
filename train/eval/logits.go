package eval

import (
	"context"
	"fmt"

	"refrain/gpu"
)

// Logits is an evaluator whose result is the logits themselves, for those who join
// several models before there is a loss. One goroutine at a time uses it.
type Logits struct{ e *Evaluator }

// NewLogits prepares an evaluator of logits on d. Load gives it weights. Beside what
// New takes it holds c.B*c.T*c.Model.Vocab floats on the device and as many in pinned
// memory.
func NewLogits(ctx context.Context, d gpu.Device, c Config) (*Logits, error) {
	e, err := open(ctx, d, c, true)
	if err != nil {
		return nil, err
	}
	return &Logits{e}, nil
}

// LogitsFootprint is Footprint for NewLogits.
func LogitsFootprint(c Config) (device, pinned int64, err error) { return footprint(c, true) }

// Load copies weights, in the layout of the model, to the device.
func (l *Logits) Load(ctx context.Context, weights []float32) error { return l.e.Load(ctx, weights) }

// Run calls visit for rows [from, to) of set, in order, with the row's targets [T] and
// logits [T,V], both valid during the call; those of masked targets mean nothing. It
// returns the scored targets of these rows. The logits of a row have the same bits for
// every B and every range that the row is in. An error of visit ends it.
func (l *Logits) Run(ctx context.Context, set Set, from, to int64, visit func(row int64, targets []int32, logits []float32) error) (scored int64, err error) {
	if from < 0 || from > to || to > set.Rows() {
		return 0, fmt.Errorf("eval: rows %d to %d of a set of %d", from, to, set.Rows())
	}
	return l.e.each(ctx, set, from, to, visit)
}

// Close waits for the evaluator's work on the device and frees its memory.
func (l *Logits) Close() error { return l.e.Close() }
