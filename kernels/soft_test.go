package kernels

import (
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/kernels/kerneltest"
)

func softArgs(b *builder, n, v, k int, scale float32) SoftTargetsArgs {
	a := SoftTargetsArgs{Logits: b.Normal("teacher", 3, n, v), Entropy: b.Out("entropy", n), Scale: scale}
	if k > 0 {
		a.IDs, a.P = b.OutInts("ids", n, k), b.Out("p", n, k)
	}
	return a
}

func softTargetsSuite() suite {
	s := suite{kernel: "soft_targets", noGrad: "teachers do not learn", wrong: map[string]func(*builder) error{}}
	for name, c := range map[string]struct {
		n, v, k int
		scale   float32
	}{
		"one": {1, 1, 0, 1}, "all": {7, 33, 0, 0.5}, "wide": {5, 5000, 0, 0.25}, "one kept": {6, 40, 1, 1},
		"some kept": {9, 300, 17, 0.5}, "every id kept": {3, 12, 12, 2}, "wide kept": {5, 5000, 64, 0.125},
	} {
		s.cases = append(s.cases, of(&SoftTargets, name, func(b *builder) SoftTargetsArgs { return softArgs(b, c.n, c.v, c.k, c.scale) }))
	}
	s.cases = append(s.cases, of(&SoftTargets, "equal logits", func(b *builder) SoftTargetsArgs {
		a := softArgs(b, 4, 50, 9, 1)
		a.Logits = b.Values("equal", func(i int) float64 { return float64(i * 7 % 5) }, 4, 50)
		return a
	}))
	s.wrong["ids has 13 of a vocabulary of 12"] = refuse(&SoftTargets, func(b *builder) SoftTargetsArgs { return softArgs(b, 2, 12, 13, 1) })
	s.wrong["scale is 0"] = refuse(&SoftTargets, func(b *builder) SoftTargetsArgs { return softArgs(b, 2, 12, 0, 0) })
	s.wrong["p is missing"] = refuse(&SoftTargets, func(b *builder) SoftTargetsArgs {
		a := softArgs(b, 2, 12, 3, 1)
		a.P = gpu.Tensor{}
		return a
	})
	return s
}

// TestSoftTargetsPickTheLargest compares the heap with a sort, on logits with many equal ones.
func TestSoftTargetsPickTheLargest(t *testing.T) {
	s := num.NewStream("pick")
	for n := range uint64(200) {
		v := 1 + int(s.Uintn(3*n, 60))
		k := 1 + int(s.Uintn(3*n+1, uint64(v)))
		z, order := make([]float32, v), make([]int32, v)
		for i := range z {
			z[i], order[i] = float32(s.Uintn(1000+n<<8+uint64(i), 6)), int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return int(z[b] - z[a]) })
		ids, best := make([]int32, k), make([]float32, k)
		pick(ids, best, z)
		if !slices.Equal(ids, order[:k]) {
			t.Fatalf("of %v the first %d are %v, want %v", z, k, ids, order[:k])
		}
		for j, id := range ids {
			if best[j] != z[id] {
				t.Fatalf("logit of %d is %v, want %v", id, best[j], z[id])
			}
		}
	}
}

// distillCase is an arrangement of HeadDistill; k is 0 for all probabilities.
type distillCase struct {
	headCase
	k            int
	weight, temp float32
}

func distillArgs(b *builder, c distillCase) HeadDistillArgs {
	h := headLossArgs(b, c.headCase)
	a := HeadDistillArgs{
		Loss: h.Loss, X: h.X, W: h.W, Targets: h.Targets, Scale: h.Scale, DX: h.DX, DW: h.DW, Logits: h.Logits,
		Weight: c.weight, Temperature: c.temp, AccumulateDW: h.AccumulateDW,
	}
	width := c.k
	if c.k == 0 {
		width = c.v
	}
	s := num.NewStream("teacher")
	q, entropy := make([]float64, c.n*width), make([]float64, c.n)
	for n := range c.n {
		row := q[n*width : (n+1)*width]
		for i := range row {
			row[i] = 2 * s.Normal(uint64(n*width+i))
		}
		entropy[n] = softmaxRef(row, row, 1)
	}
	a.Entropy = b.Values("entropy", func(i int) float64 { return entropy[i] }, c.n)
	if c.k == 0 {
		a.Q = b.Values("q", func(i int) float64 { return q[i] }, c.n, c.v)
		return a
	}
	a.P = b.Values("p", func(i int) float64 { return q[i] }, c.n, c.k)
	a.IDs = b.Ints("ids", func(i int) int { return (i/c.k*3 + i%c.k*step(c.v)) % c.v }, c.n, c.k)
	return a
}

// step is a number without a common factor with v, so that its multiples are all ids.
func step(v int) int {
	for s := v/2 + 1; ; s++ {
		a, b := s, v
		for b > 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
}

func headDistillSuite() suite {
	s := suite{kernel: "head_distill", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	none := func(int) bool { return false }
	odd := func(n int) bool { return n%2 == 1 }
	all := func(int) bool { return true }
	for name, c := range map[string]distillCase{
		"one":              {headCase{1, 1, 1, 1, true, true, false, none}, 0, 0.5, 1},
		"full":             {headCase{29, 16, 50, 8, true, true, false, odd}, 0, 0.5, 1},
		"full, warm":       {headCase{29, 16, 50, 8, true, true, true, odd}, 0, 0.5, 2},
		"top":              {headCase{29, 16, 50, 8, true, true, false, odd}, 7, 0.25, 1},
		"top, warm":        {headCase{24, 16, 50, 8, true, true, false, none}, 7, 0.75, 4},
		"teacher only":     {headCase{13, 5, 12, 4, true, true, false, odd}, 0, 1, 1.5},
		"targets only":     {headCase{13, 5, 12, 4, true, true, false, odd}, 3, 0, 1},
		"forward only":     {headCase{20, 7, 33, 6, false, false, false, odd}, 0, 0.5, 3},
		"dx only":          {headCase{13, 5, 12, 4, true, false, false, odd}, 0, 0.5, 1},
		"dw only":          {headCase{13, 5, 12, 4, false, true, true, odd}, 4, 0.5, 2},
		"all masked, adds": {headCase{9, 5, 12, 4, true, true, true, all}, 0, 0.5, 1},
		"wide":             {headCase{6, 4, 9000, 5, true, true, false, odd}, 0, 0.5, 2},
	} {
		s.cases = append(s.cases, both(&HeadDistill, name, func(b *builder) HeadDistillArgs { return distillArgs(b, c) }, "x", "w", "dx")...)
	}
	for name, c := range map[string]distillCase{
		"full":         {headCase{5, 3, 7, 2, true, true, false, odd}, 0, 0.5, 1},
		"full, warm":   {headCase{5, 3, 7, 2, true, true, false, none}, 0, 0.5, 2.5},
		"top":          {headCase{5, 3, 7, 2, true, true, false, odd}, 3, 0.5, 1},
		"top, warm":    {headCase{5, 3, 7, 2, true, true, false, none}, 3, 0.75, 0.5},
		"teacher only": {headCase{5, 3, 7, 2, true, true, false, none}, 0, 1, 2},
	} {
		s.gradients[name] = func(t testing.TB, b *builder) kerneltest.Gradient {
			a := distillArgs(b, c)
			return kerneltest.Gradient{
				Forward: ops(must(t, &HeadDistill, a)), Outs: tensors(a.Loss), Cotangents: tensors(b.Values("weight", scaled(0.125), 5)),
				Inputs: tensors(a.X, a.W), Grads: tensors(a.DX, a.DW),
			}
		}
	}
	small := distillCase{headCase{4, 3, 5, 2, true, true, false, none}, 0, 0.5, 1}
	wrong := func(part string, change func(a *HeadDistillArgs)) {
		s.wrong[part] = refuse(&HeadDistill, func(b *builder) HeadDistillArgs {
			a := distillArgs(b, small)
			change(&a)
			return a
		})
	}
	wrong("weight is 1.5, want 0 to 1", func(a *HeadDistillArgs) { a.Weight = 1.5 })
	wrong("weight is NaN", func(a *HeadDistillArgs) { a.Weight = float32(math.NaN()) })
	wrong("temperature is 0", func(a *HeadDistillArgs) { a.Temperature = 0 })
	wrong("q and ids are both there", func(a *HeadDistillArgs) { a.IDs = a.Targets })
	wrong("q is missing", func(a *HeadDistillArgs) { a.Q = gpu.Tensor{} })
	wrong("entropy is missing", func(a *HeadDistillArgs) { a.Entropy = gpu.Tensor{} })
	return s
}

// TestHeadDistillOfTheTeacherItself: a student that predicts what its teacher predicts
// has no second term and no gradient from it, and with weight 0 the op is HeadLoss.
func TestHeadDistillOfTheTeacherItself(t *testing.T) {
	for _, reference := range []bool{true, false} {
		b := &builder{}
		c := distillCase{headCase{n: 6, d: 5, v: 40, chunk: 4, dx: true, dw: true}, 0, 1, 2}
		a := distillArgs(b, c)
		x, w := b.Initial(a.X), b.Initial(a.W)
		q, entropy := make([]float64, 6*40), make([]float64, 6)
		for n := range 6 {
			for k := range 40 {
				q[n*40+k] = dot(x[n*5:n*5+5], w[k*5:k*5+5])
			}
			row := q[n*40 : (n+1)*40]
			entropy[n] = softmaxRef(row, row, 0.5)
		}
		a.Q = b.Values("own", func(i int) float64 { return q[i] }, 6, 40)
		a.Entropy = b.Values("own entropy", func(i int) float64 { return entropy[i] }, 6)
		h, run := bind(t, b, must(t, &HeadDistill, a), 1, reference)
		run()
		for name, list := range map[string][]float32{"loss": gpu.Float32s(h, a.Loss), "dx": gpu.Float32s(h, a.DX), "dw": gpu.Float32s(h, a.DW)} {
			for i, v := range list {
				if math.Abs(float64(v)) > 1e-5 {
					t.Errorf("reference %v: %s %d is %v, want 0", reference, name, i, v)
				}
			}
		}
	}
	b := &builder{}
	c := distillCase{headCase{n: 9, d: 5, v: 40, chunk: 4, dx: true, dw: true}, 0, 0, 1}
	a := distillArgs(b, c)
	plain := a.base()
	plain.Loss, plain.DX, plain.DW = b.Out("l", 9), b.Out("x'", 9, 5), b.Out("w'", 40, 5)
	h, run := bind(t, b, must(t, &HeadDistill, a), 1, false)
	run()
	got := slices.Concat(gpu.Float32s(h, a.Loss), gpu.Float32s(h, a.DX), gpu.Float32s(h, a.DW))
	op := must(t, &HeadLoss, plain)
	h.Allow(op)
	op.BindHost(h)()
	if want := slices.Concat(gpu.Float32s(h, plain.Loss), gpu.Float32s(h, plain.DX), gpu.Float32s(h, plain.DW)); !slices.Equal(got, want) {
		t.Error("weight 0 has other bits than head_loss")
	}
}

func TestHeadDistillRefusesTargets(t *testing.T) {
	b := &builder{}
	a := distillArgs(b, distillCase{headCase{n: 3, d: 4, v: 5, chunk: 2}, 0, 0.5, 1})
	a.Targets = b.Ints("bad", func(i int) int { return 5 * (i / 2) }, 3)
	_, run := bind(t, b, must(t, &HeadDistill, a), 1, false)
	if msg := panics(run); !strings.Contains(msg, "target 5 at position 2 is outside [0,5)") {
		t.Errorf("%q", msg)
	}
}
