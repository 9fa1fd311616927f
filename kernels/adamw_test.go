package kernels

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
)

func guardArgs(b *builder, sumsq, loss float64, maxNorm float32, halt int) GuardArgs {
	return GuardArgs{Scale: b.Out("scale", 1), Halt: b.Ints("halt", func(int) int { return halt }, 1),
		SumSq: b.Values("sumsq", scaled(sumsq), 1), Loss: b.Values("loss", scaled(loss), 1), MaxNorm: maxNorm}
}

// guardTable is the definition of Guard by example.
var guardTable = []struct {
	name        string
	sumsq, loss float64
	maxNorm     float32
	halt        int
	scale       float32
	stop        int32
}{
	{"below", 0.25, 3, 1, 0, 1, 0},
	{"at the limit", 1, 3, 1, 0, 1, 0},
	{"clipped", 16, 3, 1, 0, 0.25, 0},
	{"no clipping", 1e6, 3, 0, 0, 1, 0},
	{"zero gradient", 0, 3, 1, 0, 1, 0},
	{"NaN gradient", math.NaN(), 3, 1, 0, 0, 1},
	{"infinite gradient", math.Inf(1), 3, 1, 0, 0, 1},
	{"NaN loss", 1, math.NaN(), 1, 0, 0, 1},
	{"infinite loss", 1, math.Inf(-1), 1, 0, 0, 1},
	{"sticky", 1, 3, 1, 1, 0, 1},
}

func guardSuite() suite {
	s := suite{kernel: "guard", noGrad: "a decision", wrong: map[string]func(*builder) error{}}
	for _, c := range guardTable {
		s.cases = append(s.cases, exactly(&Guard, c.name, func(b *builder) GuardArgs { return guardArgs(b, c.sumsq, c.loss, c.maxNorm, c.halt) }))
	}
	s.wrong["maxnorm is -1"] = refuse(&Guard, func(b *builder) GuardArgs { return guardArgs(b, 1, 1, -1, 0) })
	s.wrong["maxnorm is NaN"] = refuse(&Guard, func(b *builder) GuardArgs { return guardArgs(b, 1, 1, float32(math.NaN()), 0) })
	return s
}

func TestGuard(t *testing.T) {
	for _, c := range guardTable {
		for _, reference := range []bool{true, false} {
			b := &builder{}
			a := guardArgs(b, c.sumsq, c.loss, c.maxNorm, c.halt)
			h, run := bind(t, b, must(t, &Guard, a), 1, reference)
			run()
			if s, stop := gpu.Float32s(h, a.Scale)[0], gpu.Int32s(h, a.Halt)[0]; s != c.scale || stop != c.stop {
				t.Errorf("%s: scale %v, halt %d; want %v, %d", c.name, s, stop, c.scale, c.stop)
			}
		}
	}
}

func adamwArgs(b *builder, n int, step int64, halt int) AdamWArgs {
	h := AdamHyper(3e-3, 0.9, 0.95, 1e-8, step)
	return AdamWArgs{
		P: b.Normal("p", 1, n), G: b.Normal("g", 1, n), M: b.Normal("m", 0.1, n),
		V:     b.Values("v", func(i int) float64 { return 0.01 * float64(1+i%13) }, n),
		Hyper: b.Values("hyper", func(i int) float64 { return float64(h[i]) }, 8),
		Scale: b.Values("scale", scaled(0.5), 1), Halt: b.Ints("halt", func(int) int { return halt }, 1),
		WeightDecay: 0.1, LRMul: 0.75,
	}
}

func adamwSuite() suite {
	s := suite{kernel: "adamw", noGrad: "the optimiser is not differentiated", wrong: map[string]func(*builder) error{}}
	for _, n := range flatSizes {
		for _, step := range []int64{1, 1000} {
			s.cases = append(s.cases, of(&AdamW, fmt.Sprint(n, step), func(b *builder) AdamWArgs { return adamwArgs(b, n, step, 0) }))
		}
	}
	s.cases = append(s.cases, of(&AdamW, "decay factor", func(b *builder) AdamWArgs {
		a := adamwArgs(b, 77, 5, 0)
		a.WeightDecay, a.DecayFactor = 30, b.Values("factor", scaled(1.5), 1)
		return a
	}))
	s.wrong["decay factor is f32[2], want f32[1]"] = refuse(&AdamW, func(b *builder) AdamWArgs {
		a := adamwArgs(b, 4, 1, 0)
		a.DecayFactor = b.Normal("factor", 1, 2)
		return a
	})
	s.cases = append(s.cases, exactly(&AdamW, "halted", func(b *builder) AdamWArgs { return adamwArgs(b, 50, 1, 1) }))
	s.wrong["m is f32[3], want 4 elements"] = refuse(&AdamW, func(b *builder) AdamWArgs {
		a := adamwArgs(b, 4, 1, 0)
		a.M = b.Normal("short", 1, 3)
		return a
	})
	s.wrong["weight decay is -0.1"] = refuse(&AdamW, func(b *builder) AdamWArgs {
		a := adamwArgs(b, 4, 1, 0)
		a.WeightDecay = -0.1
		return a
	})
	s.wrong["p and g share memory"] = refuse(&AdamW, func(b *builder) AdamWArgs {
		a := adamwArgs(b, 4, 1, 0)
		a.G = a.P
		return a
	})
	return s
}

// TestAdamWDecayFactor: a factor of 1 changes no bit, and one of 2 is twice the decay.
func TestAdamWDecayFactor(t *testing.T) {
	run := func(decay float32, factor float64) []float32 {
		b := &builder{}
		a := adamwArgs(b, 60, 3, 0)
		a.WeightDecay = decay
		if factor != 0 {
			a.DecayFactor = b.Values("factor", func(int) float64 { return factor }, 1)
		}
		h, body := bind(t, b, must(t, &AdamW, a), 1, false)
		body()
		return append([]float32(nil), gpu.Float32s(h, a.P)...)
	}
	if !slices.Equal(run(0.5, 0), run(0.5, 1)) {
		t.Error("a factor of 1 changes weights")
	}
	if !slices.Equal(run(0.5, 0), run(0.25, 2)) || slices.Equal(run(0.5, 0), run(0.25, 0)) {
		t.Error("twice a decay of 0.25 is not one of 0.5")
	}
}

// TestAdamWHaltTouchesNothing: a step that was stopped leaves every bit, also
// when the gradient is not finite.
func TestAdamWHaltTouchesNothing(t *testing.T) {
	for _, reference := range []bool{true, false} {
		b := &builder{}
		a := adamwArgs(b, 100, 5, 1)
		a.G = b.Values("nan", scaled(math.NaN()), 100)
		h, run := bind(t, b, must(t, &AdamW, a), 2, reference)
		var before [][]float32
		for _, x := range tensors(a.P, a.M, a.V) {
			before = append(before, append([]float32(nil), gpu.Float32s(h, x)...))
		}
		run()
		for i, x := range tensors(a.P, a.M, a.V) {
			for k, v := range gpu.Float32s(h, x) {
				if v != before[i][k] {
					t.Fatalf("reference %v: array %d changed at %d", reference, i, k)
				}
			}
		}
	}
}

// bigAdam is AdamW in 200-bit arithmetic from decimal hyperparameters, rounding
// the state to float32 where it is stored.
type bigAdam struct{ p, m, v *big.Float }

func dec(s string) *big.Float {
	f, _, err := big.ParseFloat(s, 10, 200, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	return f
}

func mul(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(200).Mul(x, y) }
func add(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(200).Add(x, y) }
func sub(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(200).Sub(x, y) }
func quo(x, y *big.Float) *big.Float { return new(big.Float).SetPrec(200).Quo(x, y) }
func round32(x *big.Float) *big.Float {
	f, _ := x.Float32()
	return new(big.Float).SetPrec(200).SetFloat64(float64(f))
}

func (s *bigAdam) step(g float32, t int, lr, b1, b2, eps, decay string) {
	one := dec("1")
	pow := func(b *big.Float) *big.Float {
		r := one
		for range t {
			r = mul(r, b)
		}
		return r
	}
	gr := new(big.Float).SetPrec(200).SetFloat64(float64(g))
	s.m = round32(add(mul(dec(b1), s.m), mul(sub(one, dec(b1)), gr)))
	s.v = round32(add(mul(dec(b2), s.v), mul(mul(sub(one, dec(b2)), gr), gr)))
	mhat := quo(s.m, sub(one, pow(dec(b1))))
	vhat := quo(s.v, sub(one, pow(dec(b2))))
	root := new(big.Float).SetPrec(200).Sqrt(vhat)
	p := mul(s.p, sub(one, mul(dec(lr), dec(decay))))
	s.p = round32(sub(p, mul(dec(lr), quo(mhat, add(root, dec(eps))))))
}

// TestRow09AdamWAgainstBigArithmetic (N12): steps 1 to 3 and 1000 to 1002, beta2
// 0.999, where 1-beta2 computed in float32 would be off by 1e-5. The parameter
// may be one ulp off at each step, the moments two.
func TestRow09AdamWAgainstBigArithmetic(t *testing.T) {
	for _, decay := range []float32{0.1, 12.8} {
		testAdamWSteps(t, decay)
	}
}

func testAdamWSteps(t *testing.T, weightDecay float32) {
	const lr, b1, b2, eps = "0.003", "0.9", "0.999", "0.00000001"
	decay := fmt.Sprint(weightDecay)
	s := num.NewStream("adam")
	for _, first := range []int{1, 1000} {
		for _, reference := range []bool{true, false} {
			const n = 64
			b := &builder{}
			a := adamwArgs(b, n, 1, 0)
			a.LRMul, a.WeightDecay, a.Scale = 1, weightDecay, b.Values("unit", scaled(1), 1)
			if first == 1 {
				a.M, a.V = b.Values("m0", scaled(0), n), b.Values("v0", scaled(0), n)
			}
			h, run := bind(t, b, must(t, &AdamW, a), 1, reference)
			p, g, m, v := gpu.Float32s(h, a.P), gpu.Float32s(h, a.G), gpu.Float32s(h, a.M), gpu.Float32s(h, a.V)
			for step := first; step < first+3; step++ {
				hyper := AdamHyper(0.003, 0.9, 0.999, 1e-8, int64(step))
				copy(gpu.Float32s(h, a.Hyper), hyper[:])
				var want [n]bigAdam
				for i := range n {
					g[i] = float32(s.Normal(uint64(step*n + i)))
					f := func(x float32) *big.Float { return new(big.Float).SetPrec(200).SetFloat64(float64(x)) }
					want[i] = bigAdam{f(p[i]), f(m[i]), f(v[i])}
					want[i].step(g[i], step, lr, b1, b2, eps, decay)
				}
				run()
				for i := range n {
					check := func(what string, got float32, want *big.Float, ulp uint32) {
						w, _ := want.Float32()
						if d := num.ULP32(got, w); d > ulp {
							t.Errorf("decay %s, reference %v, step %d, %s[%d]: %v, want %v (%d ulp)", decay, reference, step, what, i, got, w, d)
						}
					}
					// Where the sum of the terms cancels, an ulp of the result is
					// smaller than one of the terms; the bound is on the latter.
					check("v", v[i], want[i].v, 2)
					if math.Abs(float64(m[i])) > 0.02 {
						check("m", m[i], want[i].m, 8)
					}
					if math.Abs(float64(p[i])) > 0.05 {
						check("p", p[i], want[i].p, 2)
					}
				}
			}
		}
	}
}

func TestAdamHyper(t *testing.T) {
	got := AdamHyper(1e-3, 0.9, 0.999, 1e-8, 1)
	want := [8]float32{1e-3, 0.9, 0.999, 1e-8, 10, 1000, 0.1, 0.001}
	for i := range got {
		if num.ULP32(got[i], want[i]) > 1 {
			t.Errorf("value %d is %v, want %v", i, got[i], want[i])
		}
	}
	if late := AdamHyper(1e-3, 0.9, 0.999, 1e-8, 1e6); late[4] != 1 || late[5] != 1 {
		t.Errorf("after a million steps the corrections are %v and %v, want 1", late[4], late[5])
	}
}

func BenchmarkAdamW(b *testing.B) {
	bench(b, &AdamW, func(b *builder) AdamWArgs { return adamwArgs(b, 1<<22, 10, 0) })
}
