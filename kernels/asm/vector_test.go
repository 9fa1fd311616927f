package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"refrain/kernels/asm/guard"
)

// kernelCase describes one function of the package to the common test: how many
// slices it takes, which of them it writes, the scalars it is called with, the
// two implementations and the float64 definition.
//
// call and generic return the function's result, or 0. want changes the float64
// copies in place and returns the result.
type kernelCase struct {
	name    string
	slices  int
	writes  []int
	call    func(s [][]float32) float32
	generic func(s [][]float32) float32
	want    func(s [][]float64) float64
	init    func(r *rand.Rand, slice int) float32 // nil: uniform in [-2, 2)
}

func none(f func(s [][]float32)) func(s [][]float32) float32 {
	return func(s [][]float32) float32 { f(s); return 0 }
}

// elements turns an element-wise definition into a want function.
func elements(f func(x []float64)) func(s [][]float64) float64 {
	return func(s [][]float64) float64 {
		x := make([]float64, len(s))
		for i := range s[0] {
			for j := range s {
				x[j] = s[j][i]
			}
			f(x)
			for j := range s {
				s[j][i] = x[j]
			}
		}
		return 0
	}
}

func sum(f func(x []float64) float64) func(s [][]float64) float64 {
	return func(s [][]float64) (total float64) {
		elements(func(x []float64) { total += f(x) })(s)
		return total
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// s32 and d32 are exact in float32 and float64 alike.
const s32, d32 = 0.71875, -0.40625

var adamH = [NumAdam]float32{0.9, 0.1, 0.95, 0.05, 2e-3, 1.5, 1e-8, 0.999, 0.7}

func adamInit(r *rand.Rand, slice int) float32 {
	if slice == 3 {
		return r.Float32() * 1e-2 // second moments are not negative
	}
	return r.Float32()*2 - 1
}

func adamWant(x []float64) {
	h := func(i int) float64 { return float64(adamH[i]) }
	g := x[1] * h(AdamScale)
	x[2] = x[2]*h(AdamBeta1) + g*h(AdamBeta1C)
	x[3] = x[3]*h(AdamBeta2) + g*g*h(AdamBeta2C)
	x[0] = x[0]*h(AdamKeep) - h(AdamStep)*x[2]/(math.Sqrt(x[3])*h(AdamRootBias)+h(AdamEps))
}

func cases() []kernelCase {
	return []kernelCase{
		{"Dot", 2, nil, func(s [][]float32) float32 { return Dot(s[0], s[1]) },
			func(s [][]float32) float32 { return dotGeneric(s[0], s[1]) },
			sum(func(x []float64) float64 { return x[0] * x[1] }), nil},
		{"Dot3", 3, nil, func(s [][]float32) float32 { return Dot3(s[0], s[1], s[2]) },
			func(s [][]float32) float32 { return dot3Generic(s[0], s[1], s[2]) },
			sum(func(x []float64) float64 { return x[0] * x[1] * x[2] }), nil},
		{"SumSq", 1, nil, func(s [][]float32) float32 { return SumSq(s[0]) },
			func(s [][]float32) float32 { return sumSqGeneric(s[0]) },
			sum(func(x []float64) float64 { return x[0] * x[0] }), nil},
		{"Max", 1, nil, func(s [][]float32) float32 { return Max(s[0]) },
			func(s [][]float32) float32 { return maxGeneric(s[0]) },
			func(s [][]float64) float64 {
				m := math.Inf(-1)
				for _, v := range s[0] {
					m = max(m, v)
				}
				return m
			}, nil},
		{"ExpSum", 2, []int{0}, func(s [][]float32) float32 { return ExpSum(s[0], s[1], s32, d32) },
			func(s [][]float32) float32 { return expSumGeneric(s[0], s[1], s32, d32) },
			sum(func(x []float64) float64 { x[0] = math.Exp(x[1]*s32 - d32); return x[0] }), nil},
		{"Scale", 1, []int{0}, none(func(s [][]float32) { Scale(s[0], s32) }),
			none(func(s [][]float32) { scaleGeneric(s[0], s32) }),
			elements(func(x []float64) { x[0] *= s32 }), nil},
		{"ScaleMul", 3, []int{0}, none(func(s [][]float32) { ScaleMul(s[0], s[1], s[2], s32) }),
			none(func(s [][]float32) { scaleMulGeneric(s[0], s[1], s[2], s32) }),
			elements(func(x []float64) { x[0] = x[1] * x[2] * s32 }), nil},
		{"Add", 2, []int{0}, none(func(s [][]float32) { Add(s[0], s[1]) }),
			none(func(s [][]float32) { addGeneric(s[0], s[1]) }),
			elements(func(x []float64) { x[0] += x[1] }), nil},
		{"Axpy", 2, []int{0}, none(func(s [][]float32) { Axpy(s[0], s[1], s32) }),
			none(func(s [][]float32) { axpyGeneric(s[0], s[1], s32) }),
			elements(func(x []float64) { x[0] += x[1] * s32 }), nil},
		{"Rope", 4, []int{0, 1}, none(func(s [][]float32) { Rope(s[0], s[1], s[2], s[3]) }),
			none(func(s [][]float32) { ropeGeneric(s[0], s[1], s[2], s[3]) }),
			elements(func(x []float64) { x[0], x[1] = x[0]*x[2]-x[1]*x[3], x[1]*x[2]+x[0]*x[3] }), nil},
		{"RopeInv", 4, []int{0, 1}, none(func(s [][]float32) { RopeInv(s[0], s[1], s[2], s[3]) }),
			none(func(s [][]float32) { ropeInvGeneric(s[0], s[1], s[2], s[3]) }),
			elements(func(x []float64) { x[0], x[1] = x[0]*x[2]+x[1]*x[3], x[1]*x[2]-x[0]*x[3] }), nil},
		{"SwiGLU", 3, []int{0}, none(func(s [][]float32) { SwiGLU(s[0], s[1], s[2]) }),
			none(func(s [][]float32) { swigluGeneric(s[0], s[1], s[2]) }),
			elements(func(x []float64) { x[0] = x[1] * sigmoid(x[1]) * x[2] }), nil},
		{"SwiGLUBwd", 5, []int{0, 1}, none(func(s [][]float32) { SwiGLUBwd(s[0], s[1], s[2], s[3], s[4]) }),
			none(func(s [][]float32) { swigluBwdGeneric(s[0], s[1], s[2], s[3], s[4]) }),
			elements(func(x []float64) {
				g, u, dy, s := x[2], x[3], x[4], sigmoid(x[2])
				x[0], x[1] = dy*u*s*(1+g*(1-s)), dy*g*s
			}), nil},
		{"RMSBwd", 5, []int{0, 1}, none(func(s [][]float32) { RMSBwd(s[0], s[1], s[2], s[3], s[4], s32, d32) }),
			none(func(s [][]float32) { rmsBwdGeneric(s[0], s[1], s[2], s[3], s[4], s32, d32) }),
			elements(func(x []float64) {
				x[0] += s32*x[2]*x[3] - d32*x[4]
				x[1] += s32 * x[2] * x[4]
			}), nil},
		{"DSoftmax", 2, []int{1}, none(func(s [][]float32) { DSoftmax(s[0], s[1], d32, s32) }),
			none(func(s [][]float32) { dSoftmaxGeneric(s[0], s[1], d32, s32) }),
			elements(func(x []float64) { x[1] = x[0] * (x[1] - d32) * s32 }), nil},
		{"AdamW", 4, []int{0, 2, 3}, none(func(s [][]float32) { AdamW(s[0], s[1], s[2], s[3], &adamH) }),
			none(func(s [][]float32) { adamWGeneric(s[0], s[1], s[2], s[3], &adamH) }),
			elements(adamWant), adamInit},
	}
}

const guardWords = 16

func guardWord(i int) float32 { return float32(i) - 12345 }

// TestKernels runs every function of every set over all lengths up to 100 and a
// few more, on memory that ends at an unreadable page, against float64.
func TestKernels(t *testing.T) {
	lengths := []int{127, 128, 129, 352, 1000}
	for n := range 101 {
		lengths = append(lengths, n)
	}
	for _, k := range cases() {
		for set, call := range map[string]func([][]float32) float32{"generic": k.generic, "active-" + Kernels(): k.call} {
			t.Run(k.name+"/"+set, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, 2))
				memory := make([][]float32, k.slices)
				for j := range memory {
					memory[j] = guard.Floats(t, guardWords+1000)
				}
				for _, n := range lengths {
					if err := runCase(r, k, call, memory, n); err != nil {
						t.Fatalf("n = %d: %v", n, err)
					}
				}
			})
		}
	}
}

func runCase(r *rand.Rand, k kernelCase, call func([][]float32) float32, memory [][]float32, n int) error {
	s, want, before := make([][]float32, k.slices), make([][]float64, k.slices), make([][]float32, k.slices)
	for j, m := range memory {
		for i := range guardWords {
			m[len(m)-n-guardWords+i] = guardWord(i)
		}
		s[j] = m[len(m)-n:]
		for i := range s[j] {
			s[j][i] = r.Float32()*4 - 2
			if k.init != nil {
				s[j][i] = k.init(r, j)
			}
			want[j] = append(want[j], float64(s[j][i]))
		}
		before[j] = append([]float32(nil), s[j]...)
	}
	if n > 0 && k.name == "AdamW" {
		s[1][0], before[1][0], want[1][0] = 0, 0, 0 // an element without gradient
	}
	got := call(s)
	var wantSum float64
	if n > 0 || k.name == "Max" {
		wantSum = k.want(want)
	}
	// A sum of n terms below 10 with float32 partials; products of at most six factors.
	if tol := 1e-6 * (10 + float64(n)); got != float32(wantSum) && !(math.Abs(float64(got)-wantSum) <= tol) {
		return fmt.Errorf("result %g, want %g", got, wantSum)
	}
	written := make([]bool, k.slices)
	for _, j := range k.writes {
		written[j] = true
	}
	for j := range s {
		for i, v := range s[j] {
			if !written[j] && v != before[j][i] {
				return fmt.Errorf("input %d changed at %d", j, i)
			}
			if d := math.Abs(float64(v) - want[j][i]); !(d <= 1e-6*(1+math.Abs(want[j][i]))) {
				return fmt.Errorf("slice %d at %d: %g, want %g", j, i, v, want[j][i])
			}
		}
		front := memory[j][len(memory[j])-n-guardWords:]
		for i := range guardWords {
			if front[i] != guardWord(i) {
				return fmt.Errorf("slice %d: guard word %d in front was overwritten with %g", j, i, front[i])
			}
		}
	}
	return nil
}

// TestLengthMismatch: assembly ignores bounds, so every wrapper must refuse each
// slice that differs from the others.
func TestLengthMismatch(t *testing.T) {
	for _, k := range cases() {
		for odd := range k.slices {
			if k.slices == 1 {
				continue
			}
			s := make([][]float32, k.slices)
			for j := range s {
				s[j] = make([]float32, 40)
			}
			s[odd] = s[odd][:39]
			func() {
				defer func() {
					if v := recover(); !strings.Contains(fmt.Sprint(v), k.name+": slices of") {
						t.Errorf("%s with a short slice %d: recovered %v", k.name, odd, v)
					}
				}()
				k.call(s)
			}()
		}
	}
}

// TestInPlace checks the functions whose destination may be a source.
func TestInPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 7, 8, 31, 64, 77} {
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], y[i], z[i] = r.Float32()*4-2, r.Float32()*4-2, r.Float32()*4-2
		}
		check := func(name string, got, want []float32) {
			t.Helper()
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s in place, n = %d: element %d is %g, apart %g", name, n, i, got[i], want[i])
				}
			}
		}
		clone := func(s []float32) []float32 { return append([]float32(nil), s...) }
		d, e := make([]float32, n), make([]float32, n)

		in := clone(x)
		if a, b := ExpSum(d, x, 1.5, 0.25), ExpSum(in, in, 1.5, 0.25); a != b {
			t.Fatalf("ExpSum in place, n = %d: sum %g, apart %g", n, b, a)
		}
		check("ExpSum", in, d)
		in = clone(x)
		ScaleMul(d, x, y, 3)
		ScaleMul(in, in, y, 3)
		check("ScaleMul", in, d)
		SwiGLU(d, x, y)
		in = clone(x)
		SwiGLU(in, in, y)
		check("SwiGLU over gate", in, d)
		in = clone(y)
		SwiGLU(in, x, in)
		check("SwiGLU over up", in, d)
		SwiGLUBwd(d, e, x, y, z)
		gate, up := clone(x), clone(y)
		SwiGLUBwd(gate, up, gate, up, z)
		check("SwiGLUBwd dgate over gate", gate, d)
		check("SwiGLUBwd dup over up", up, e)
		dy, up := clone(z), clone(y)
		SwiGLUBwd(up, dy, x, up, dy)
		check("SwiGLUBwd dgate over up", up, d)
		check("SwiGLUBwd dup over dy", dy, e)
	}
}

func TestNoAllocations(t *testing.T) {
	for _, k := range cases() {
		s := make([][]float32, k.slices)
		for j := range s {
			s[j] = make([]float32, 77)
		}
		if n := testing.AllocsPerRun(20, func() { k.call(s) }); n != 0 {
			t.Errorf("%s: %v allocations", k.name, n)
		}
	}
}

// TestRepeatable: equal arguments give equal bits wherever the slices lie.
func TestRepeatable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	base := make([]float32, 400)
	for i := range base {
		base[i] = r.Float32() - 0.5
	}
	for n := 1; n < 300; n += 13 {
		d, s := Dot(base[:n], base[1:n+1]), SumSq(base[:n])
		for shift := range 16 {
			x, y := make([]float32, n+shift), make([]float32, n+shift)
			copy(x[shift:], base[:n])
			copy(y[shift:], base[1:n+1])
			if Dot(x[shift:], y[shift:]) != d || SumSq(x[shift:]) != s {
				t.Fatalf("n = %d: bits change with the address", n)
			}
		}
	}
}
