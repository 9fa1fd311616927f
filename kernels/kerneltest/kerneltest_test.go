package kerneltest

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"refrain/gpu"
)

// double is y = 2*x with two tensors and a body to spoil.
type double struct {
	x, y, other gpu.Tensor
	cost        gpu.Cost
	body        func(h gpu.Host, d *double) func()
	wide        func(x, y []float64)
}

func (d *double) Name() string { return "double" }
func (d *double) Access() (reads, writes []gpu.Span) {
	return []gpu.Span{d.x.Span}, []gpu.Span{d.y.Span}
}
func (d *double) Cost() gpu.Cost              { return d.cost }
func (d *double) Launch(l gpu.Launcher) error { return nil }
func (d *double) BindHost(h gpu.Host) func() {
	if w, ok := h.(*Wide); ok {
		return func() { d.wide(w.Float64s(d.x), w.Float64s(d.y)) }
	}
	if h.Reference() {
		return good(h, d)
	}
	return d.body(h, d)
}

func good(h gpu.Host, d *double) func() {
	x, y := gpu.Float32s(h, d.x), gpu.Float32s(h, d.y)
	return func() {
		for i := range x {
			y[i] = 2 * x[i]
		}
	}
}

func goodWide(x, y []float64) {
	for i := range x {
		y[i] = 2 * x[i]
	}
}

// after is good followed by a misdeed.
func after(bad func(h gpu.Host, d *double, x, y []float32)) func(h gpu.Host, d *double) func() {
	return func(h gpu.Host, d *double) func() {
		do, x, y := good(h, d), gpu.Float32s(h, d.x), gpu.Float32s(h, d.y)
		return func() {
			do()
			bad(h, d, x, y)
		}
	}
}

// sink keeps an allocation alive.
type sink struct{ b []byte }

// defect spoils a correct op; want is a part of the complaint.
type defect struct {
	name, want string
	spoil      func(d *double)
}

// accessDefects touch what they should not, or do not say what they cost.
func accessDefects() []defect {
	return []defect{
		{"nothing", "", func(d *double) {}},
		{"no cost", "cost is", func(d *double) { d.cost = gpu.Cost{} }},
		{"undeclared span", "does not declare", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) { h.Bytes(d.other.Span) })
		}},
		{"write to an input", "x is not declared as written, but changed", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) { x[3]++ })
		}},
		{"write behind the end", "guard words around y", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) {
				*(*float32)(unsafe.Add(unsafe.Pointer(&y[0]), 4*len(y))) = 1
			})
		}},
		{"write before the start", "guard words around y", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) {
				*(*float32)(unsafe.Add(unsafe.Pointer(&y[0]), -4)) = 1
			})
		}},
		{"write behind scratch", "guard words behind scratch s", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) {
				s := h.Scratch("s", 8)
				*(*float32)(unsafe.Add(unsafe.Pointer(&s[0]), 32)) = 1
			})
		}},
	}
}

// valueDefects compute something else.
func valueDefects() []defect {
	return []defect{
		{"element left out", "element 99 of y was not written", func(d *double) {
			d.body = func(h gpu.Host, d *double) func() {
				x, y := gpu.Float32s(h, d.x), gpu.Float32s(h, d.y)
				return func() {
					for i := range x[:99] {
						y[i] = 2 * x[i]
					}
				}
			}
		}},
		{"wrong element", "worst element 7", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) { y[7] += 3e-4 })
		}},
		{"wrong everywhere", "fast version against reference: y: relative norm", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) {
				for i := range y {
					y[i] *= 1 + 2e-5
				}
			})
		}},
	}
}

// stateDefects depend on threads, scratch, earlier runs, or allocate.
func stateDefects(kept *sink) []defect {
	return []defect{
		{"bits by threads", "3 threads against 1: y: other bits", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) {
				if h.Pool().Threads() == 3 {
					y[0] *= 1 + 1.0/(1<<22)
				}
			})
		}},
		{"trusts scratch", "element 5 is NaN", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) { y[5] = h.Scratch("s", 8)[0] })
		}},
		{"reads its output", "fast version against reference", func(d *double) {
			d.body = func(h gpu.Host, d *double) func() {
				x, y := gpu.Float32s(h, d.x), gpu.Float32s(h, d.y)
				return func() {
					for i := range x {
						y[i] = 2*x[i] + 0*y[i]
					}
				}
			}
		}},
		{"remembers", "replayed: y: other bits", func(d *double) {
			d.body = func(h gpu.Host, d *double) func() {
				do, y, n := good(h, d), gpu.Float32s(h, d.y), 0
				return func() {
					do()
					n++
					if n > 1 {
						y[0] *= 1 + 1.0/(1<<22)
					}
				}
			}
		}},
		{"cached value used wrongly", "bound a second time: y: other bits", func(d *double) {
			d.body = func(h gpu.Host, d *double) func() {
				do, y := good(h, d), gpu.Float32s(h, d.y)
				binds := h.Cached("n", func() any { return new(int) }).(*int)
				*binds++
				late := *binds > 1
				return func() {
					do()
					if late {
						y[0] *= 1 + 1.0/(1<<22)
					}
				}
			}
		}},
		{"allocates", "a replay allocates 1 times", func(d *double) {
			d.body = after(func(h gpu.Host, d *double, x, y []float32) { kept.b = make([]byte, 100) })
		}},
		{"other formula", "reference against its float64 form: y: relative norm", func(d *double) {
			d.wide = func(x, y []float64) {
				for i := range x {
					y[i] = 2.001 * x[i]
				}
			}
		}},
		{"not finite", "y: element 0 is NaN", func(d *double) { d.wide = func(x, y []float64) {} }},
	}
}

// TestTrialsFindDefects spoils a correct op in every way that the trials are
// there for, and expects each to be named.
func TestTrialsFindDefects(t *testing.T) {
	var kept sink
	for _, c := range slices.Concat(accessDefects(), valueDefects(), stateDefects(&kept)) {
		err := Try(Case{Build: func(b *Builder) (gpu.Op, error) {
			d := &double{x: b.Normal("x", 1, 100), y: b.Out("y", 100), other: b.Normal("other", 1, 4), cost: gpu.Cost{Bytes: 1}, body: good, wide: goodWide}
			c.spoil(d)
			return d, nil
		}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestGradientFindsDefects checks y = 2x against right and wrong gradients.
func TestGradientFindsDefects(t *testing.T) {
	for _, factor := range []float64{2, 2.00001, 1.9} {
		b := &Builder{}
		x, y, dy, dx := b.Normal("x", 1, 5), b.Out("y", 5), b.Normal("dy", 1, 5), b.Out("dx", 5)
		op := func(x, y gpu.Tensor, f float64) gpu.Op {
			return &double{x: x, y: y, wide: func(x, y []float64) {
				for i := range x {
					y[i] = f * x[i]
				}
			}}
		}
		err := tryGradient(b, Gradient{
			Forward: []gpu.Op{op(x, y, 2)}, Backward: []gpu.Op{op(dy, dx, factor)},
			Outs: []gpu.Tensor{y}, Cotangents: []gpu.Tensor{dy}, Inputs: []gpu.Tensor{x}, Grads: []gpu.Tensor{dx},
		})
		if (err == nil) != (factor == 2) {
			t.Errorf("gradient with factor %v of 2: error %v", factor, err)
		}
	}
}
