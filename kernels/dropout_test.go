package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"refrain/gpu"
	"refrain/kernels/kerneltest"
)

// drawWords makes the argument Draw of a step.
func drawWords(b *builder, key uint64, row int) gpu.Tensor {
	w := DrawWords(key, row)
	return b.Ints("draw", func(i int) int { return int(w[i]) }, drawLen)
}

func dropoutArgs(b *builder, n, d int, rate float64, residual bool) DropoutArgs {
	a := DropoutArgs{Y: b.Out("y", n, d), X: b.Normal("x", 1, n, d), Draw: drawWords(b, 0x9e3779b97f4a7c15, 2), Rate: rate, Site: 3, Row: 1, Each: 5}
	if residual {
		a.Add = b.Normal("add", 1, n, d)
	}
	return a
}

func dropoutSuite() suite {
	s := suite{kernel: "dropout", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range [][2]int{{1, 1}, {5, 3}, {40, 8}, {333, 57}, {600, 64}} {
		for _, rate := range []float64{0, 0.1, 0.9} {
			s.cases = append(s.cases,
				exactly(&Dropout, fmt.Sprint(c, rate), func(b *builder) DropoutArgs { return dropoutArgs(b, c[0], c[1], rate, false) }),
				exactly(&Dropout, fmt.Sprint(c, rate, " with a residual"), func(b *builder) DropoutArgs { return dropoutArgs(b, c[0], c[1], rate, true) }))
		}
	}
	s.cases = append(s.cases, exactly(&Dropout, "in place", func(b *builder) DropoutArgs {
		a := dropoutArgs(b, 37, 9, 0.5, true)
		a.Y = a.X
		return a
	}))
	for _, residual := range []bool{false, true} {
		s.gradients[fmt.Sprintf("residual=%v", residual)] = func(t testing.TB, b *builder) kerneltest.Gradient {
			a := dropoutArgs(b, 15, 4, 0.4, residual)
			back := a
			back.X, back.Y, back.Add = b.Normal("dy", 1, 15, 4), b.Out("dx", 15, 4), gpu.Tensor{}
			return kerneltest.Gradient{
				Forward: ops(must(t, &Dropout, a)), Backward: ops(must(t, &Dropout, back)),
				Outs: tensors(a.Y), Cotangents: tensors(back.X), Inputs: tensors(a.X), Grads: tensors(back.Y),
			}
		}
	}
	for part, change := range map[string]func(a *DropoutArgs){
		"rate is 1, want":               func(a *DropoutArgs) { a.Rate = 1 },
		"rate is NaN, want":             func(a *DropoutArgs) { a.Rate = math.NaN() },
		"rate is 0.999999, want":        func(a *DropoutArgs) { a.Rate = 0.999999 },
		"site -1":                       func(a *DropoutArgs) { a.Site = -1 },
		"row -2":                        func(a *DropoutArgs) { a.Row = -2 },
		"each is 0, want at least 1":    func(a *DropoutArgs) { a.Each = 0 },
		"y is f32[4 3], want f32[5 3]":  func(a *DropoutArgs) { a.Y = a.Y.View(0, 4, 3) },
		"y and x share memory":          func(a *DropoutArgs) { a.Y, a.X = a.X.View(0, 4, 3), a.X.View(3, 4, 3) },
		"draw is i32[3], want i32[4]":   func(a *DropoutArgs) { a.Draw = a.Draw.View(0, 3) },
		"draw is missing, want i32[4]":  func(a *DropoutArgs) { a.Draw = gpu.Tensor{} },
		"x is i32[4]; today this op ta": func(a *DropoutArgs) { a.X = a.Draw },
	} {
		s.wrong[part] = refuse(&Dropout, func(b *builder) DropoutArgs {
			a := dropoutArgs(b, 5, 3, 0.1, false)
			change(&a)
			return a
		})
	}
	return s
}

// dropped runs the op over ones and returns what came of them.
func dropped(t *testing.T, n, d int, change func(a *DropoutArgs, b *builder)) []float32 {
	t.Helper()
	b := &builder{}
	a := DropoutArgs{Y: b.Out("y", n, d), X: b.Values("x", func(int) float64 { return 1 }, n, d), Rate: 0.25, Each: 4}
	change(&a, b)
	if a.Draw.IsZero() {
		a.Draw = drawWords(b, 1, 0)
	}
	h, body := bind(t, b, must(t, &Dropout, a), 2, false)
	body()
	return gpu.Float32s(h, a.Y)
}

// TestDropoutIsUnbiased: the share of what is dropped is the rate, within four standard
// deviations, and what is kept is scaled by exactly 1/(1-rate).
func TestDropoutIsUnbiased(t *testing.T) {
	const n, d = 500, 200
	y := dropped(t, n, d, func(*DropoutArgs, *builder) {})
	zeros := 0
	for i, v := range y {
		switch v {
		case 0:
			zeros++
		case float32(4.0 / 3):
		default:
			t.Fatalf("element %d is %v, want 0 or 4/3", i, v)
		}
	}
	if got, sd := float64(zeros)/(n*d), math.Sqrt(0.25*0.75/(n*d)); math.Abs(got-0.25) > 4*sd {
		t.Errorf("%.4f of the elements are dropped, want 0.25 +- %.4f", got, sd)
	}
}

// TestDropoutMasksDiffer: other keys, places and rows have unrelated masks: two masks of
// rate 1/4 agree in 10/16 of the elements.
func TestDropoutMasksDiffer(t *testing.T) {
	const n, d = 64, 96
	base := dropped(t, n, d, func(*DropoutArgs, *builder) {})
	for name, change := range map[string]func(a *DropoutArgs, b *builder){
		"another step":  func(a *DropoutArgs, b *builder) { a.Draw = drawWords(b, 2, 0) },
		"high bits":     func(a *DropoutArgs, b *builder) { a.Draw = drawWords(b, 1|1<<40, 0) },
		"another place": func(a *DropoutArgs, _ *builder) { a.Site = 1 },
		"another row":   func(a *DropoutArgs, _ *builder) { a.Row = n / 4 },
		"another device": func(a *DropoutArgs, b *builder) {
			a.Draw = drawWords(b, 1, n/4)
		},
	} {
		same := 0
		for i, v := range dropped(t, n, d, change) {
			if (v == 0) == (base[i] == 0) {
				same++
			}
		}
		if got, sd := float64(same)/(n*d), math.Sqrt(10*6.0/(256*n*d)); math.Abs(got-0.625) > 4*sd {
			t.Errorf("%s: %.4f of the mask agrees, want 0.625 +- %.4f", name, got, sd)
		}
	}
}

// TestDropoutKnowsPlaces: the mask of a part of a batch is that part of the mask of the
// batch, whichever way the part is named, for widths that blocks of eight cut through.
func TestDropoutKnowsPlaces(t *testing.T) {
	const rows, each = 6, 4
	for _, d := range []int{3, 8, 13} {
		whole := dropped(t, rows*each, d, func(*DropoutArgs, *builder) {})
		for from := 1; from < rows; from++ {
			part := whole[from*each*d:]
			for device := range from + 1 {
				got := dropped(t, (rows-from)*each, d, func(a *DropoutArgs, b *builder) {
					a.Draw, a.Row = drawWords(b, 1, device), from-device
				})
				if !slices.Equal(got, part) {
					t.Errorf("width %d, rows from %d on of a device that begins with %d: another mask than in the whole", d, from, device)
				}
			}
		}
	}
}

// TestDropoutKeepsSigns: without a residual a kept zero keeps its sign, wherever the borders
// of blocks are.
func TestDropoutKeepsSigns(t *testing.T) {
	for _, reference := range []bool{false, true} {
		b := &builder{}
		a := DropoutArgs{Y: b.Out("y", 3, 7), X: b.Values("x", func(int) float64 { return math.Copysign(0, -1) }, 3, 7), Draw: drawWords(b, 5, 0), Each: 3}
		h, body := bind(t, b, must(t, &Dropout, a), 1, reference)
		body()
		for i, v := range gpu.Float32s(h, a.Y) {
			if !math.Signbit(float64(v)) {
				t.Fatalf("reference=%v: element %d is %v, want -0", reference, i, v)
			}
		}
	}
}

// TestDropoutSkips: what is dropped is not read into the sum, also where it is NaN, and
// rate 0 changes no bit.
func TestDropoutSkips(t *testing.T) {
	for _, reference := range []bool{false, true} {
		b := &builder{}
		a := DropoutArgs{Y: b.Out("y", 8, 40), X: b.Values("x", func(int) float64 { return math.NaN() }, 8, 40), Add: b.Normal("add", 1, 8, 40), Draw: drawWords(b, 5, 0), Rate: 0.5, Each: 8}
		h, body := bind(t, b, must(t, &Dropout, a), 1, reference)
		body()
		y, add := gpu.Float32s(h, a.Y), gpu.Float32s(h, a.Add)
		skipped := 0
		for i := range y {
			if y[i] == add[i] {
				skipped++
			} else if y[i] == y[i] {
				t.Fatalf("element %d is %v, neither NaN nor the residual %v", i, y[i], add[i])
			}
		}
		if skipped == 0 || skipped == len(y) {
			t.Errorf("%d of %d elements are the residual alone", skipped, len(y))
		}
	}
	for _, v := range dropped(t, 9, 9, func(a *DropoutArgs, _ *builder) { a.Rate = 0 }) {
		if v != 1 {
			t.Fatalf("rate 0 made %v of 1", v)
		}
	}
}

func BenchmarkDropout(b *testing.B) {
	bench(b, &Dropout, func(b *builder) DropoutArgs { return dropoutArgs(b, 4096, 320, 0.1, true) })
}
