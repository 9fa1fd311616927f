package kerneltest

import (
	"fmt"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/internal/par"
)

// Gradient is a forward computation with its backward ops over the same
// buffers. The scalar that is differentiated is the sum over Outs of
// Cotangent . Out, evaluated in float64.
type Gradient struct {
	Name              string
	Forward, Backward []gpu.Op
	Outs, Cotangents  []gpu.Tensor // same shapes, pairwise
	Inputs, Grads     []gpu.Tensor // same shapes, pairwise
}

// step of the central differences; their error is near step^2 = 1e-10.
const step = 1e-5

// CheckGradient compares every element of every gradient with central
// differences (N1). build returns recording errors through the testing.TB.
func CheckGradient(t *testing.T, build func(t testing.TB, b *Builder) Gradient) {
	t.Helper()
	b := &Builder{seed: 2}
	if err := tryGradient(b, build(t, b)); err != nil {
		t.Error(err)
	}
}

func tryGradient(b *Builder, g Gradient) error {
	pool := par.New(1)
	defer pool.Close()
	h := NewWide(b, pool)
	runAll := func(ops []gpu.Op) {
		for _, op := range ops {
			h.Allow(op)
			op.BindHost(h)()
		}
	}
	value := func() (s float64) {
		runAll(g.Forward)
		for i, o := range g.Outs {
			c := b.buf(g.Cotangents[i]).wide
			for k, v := range h.wide[o.Mem] {
				s += c[k] * v
			}
		}
		return s
	}
	runAll(g.Forward)
	runAll(g.Backward)
	var got [][]float64
	for _, d := range g.Grads {
		got = append(got, append([]float64(nil), h.wide[d.Mem]...))
	}
	for i, in := range g.Inputs {
		init := b.buf(in).wide
		want := make([]float64, len(init))
		for k, x := range init {
			init[k] = x + step
			h.Reset(b)
			up := value()
			init[k] = x - step
			h.Reset(b)
			want[k] = (up - value()) / (2 * step)
			init[k] = x
		}
		if err := num.Check(got[i], want, num.Float64); err != nil {
			return fmt.Errorf("gradient for %s: %w", b.buf(in).name, err)
		}
	}
	return nil
}
