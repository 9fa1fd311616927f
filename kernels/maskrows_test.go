package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"refrain/gpu"
)

func repeatRowsSuite() suite {
	s := suite{kernel: "repeat_rows", noGrad: "positions have no derivative", wrong: map[string]func(*builder) error{}}
	args := func(b *builder, rows, t, shards int) RepeatRowsArgs {
		return RepeatRowsArgs{Out: b.OutInts("out", 2*rows, t), In: b.Random("in", 0, 99, rows, t), Shards: shards}
	}
	for _, c := range [][3]int{{1, 1, 1}, {4, 7, 2}, {6, 3, 6}} {
		s.cases = append(s.cases, exactly(&RepeatRows, fmt.Sprint(c), func(b *builder) RepeatRowsArgs { return args(b, c[0], c[1], c[2]) }))
	}
	s.wrong["4 rows do not divide into 3 parts"] = refuse(&RepeatRows, func(b *builder) RepeatRowsArgs { return args(b, 4, 2, 3) })
	s.wrong["out is i32[4 2], want i32[8 2]"] = refuse(&RepeatRows, func(b *builder) RepeatRowsArgs {
		a := args(b, 4, 2, 2)
		a.Out = a.Out.View(0, 4, 2)
		return a
	})
	return s
}

func maskRowsArgs(b *builder, rows, t, shards int) MaskRowsArgs {
	return MaskRowsArgs{
		Out: b.OutInts("out", 2*rows, t), Tokens: b.Random("tokens", 0, 50, rows, t), Draw: drawWords(b, 77, 3),
		From: 0.1, To: 0.6, ID: -1, Vocab: 50, Row: 2, Shards: shards,
	}
}

func maskRowsSuite() suite {
	s := suite{kernel: "mask_rows", noGrad: "tokens have no derivative", wrong: map[string]func(*builder) error{}}
	for _, c := range [][3]int{{1, 1, 1}, {4, 7, 2}, {6, 65, 3}} {
		s.cases = append(s.cases, exactly(&MaskRows, fmt.Sprint(c), func(b *builder) MaskRowsArgs { return maskRowsArgs(b, c[0], c[1], c[2]) }))
	}
	for part, change := range map[string]func(a *MaskRowsArgs){
		"share from 0.1 to 1.5":                     func(a *MaskRowsArgs) { a.To = 1.5 },
		"share from 0.1 to 0.05":                    func(a *MaskRowsArgs) { a.To = 0.05 },
		"share from NaN to 0.6":                     func(a *MaskRowsArgs) { a.From = math.NaN() },
		"id 50 is outside [0,50) and not -1":        func(a *MaskRowsArgs) { a.ID = 50 },
		"vocab is 0, want at least 1":               func(a *MaskRowsArgs) { a.Vocab = 0 },
		"row is -1, want at least 0":                func(a *MaskRowsArgs) { a.Row = -1 },
		"4 rows do not divide into 3 parts":         func(a *MaskRowsArgs) { a.Shards = 3 },
		"out is i32[4 7], want i32[8 7]":            func(a *MaskRowsArgs) { a.Out = a.Out.View(0, 4, 7) },
		"tokens is i32[28], want 2 axes":            func(a *MaskRowsArgs) { a.Tokens = a.Tokens.View(0, 28) },
		"out and tokens share memory":               func(a *MaskRowsArgs) { a.Tokens = a.Out.View(0, 4, 7) },
		"draw is missing, want i32[4]":              func(a *MaskRowsArgs) { a.Draw = gpu.Tensor{} },
		"draw is i32[2], want i32[4]":               func(a *MaskRowsArgs) { a.Draw = a.Draw.View(0, 2) },
		"tokens is f32[4 7]; today this op takes i": func(a *MaskRowsArgs) { a.Tokens.DType = gpu.F32 },
	} {
		s.wrong[part] = refuse(&MaskRows, func(b *builder) MaskRowsArgs {
			a := maskRowsArgs(b, 4, 7, 2)
			change(&a)
			return a
		})
	}
	return s
}

// TestRepeatRows spells the order out.
func TestRepeatRows(t *testing.T) {
	b := &builder{}
	a := RepeatRowsArgs{Out: b.OutInts("out", 8, 1), In: b.Ints("in", func(i int) int { return i }, 4, 1), Shards: 2}
	h, body := bind(t, b, must(t, &RepeatRows, a), 1, false)
	body()
	if got, want := gpu.Int32s(h, a.Out), []int32{0, 1, 0, 1, 2, 3, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// masked runs the op over tokens of 7 in rows and returns the two copies of every row.
func masked(t *testing.T, rows, length, shards int, change func(a *MaskRowsArgs, b *builder)) (clean, second [][]int32) {
	t.Helper()
	b := &builder{}
	a := MaskRowsArgs{Out: b.OutInts("out", 2*rows, length), Tokens: b.Ints("tokens", func(int) int { return 7 }, rows, length), From: 0.3, To: 0.3, ID: 0, Vocab: 50, Shards: shards}
	change(&a, b)
	if a.Draw.IsZero() {
		a.Draw = drawWords(b, 1, 0)
	}
	h, body := bind(t, b, must(t, &MaskRows, a), 1, false)
	body()
	out := gpu.Int32s(h, a.Out)
	m := rows / shards
	for r := range 2 * rows {
		row := out[r*length : (r+1)*length]
		if r/m%2 == 0 {
			clean = append(clean, row)
		} else {
			second = append(second, row)
		}
	}
	return clean, second
}

// TestMaskRows: the first copy is untouched; of the second the given share is replaced,
// within four standard deviations, by the id, or by ids of which every one occurs about
// as often as the others.
func TestMaskRows(t *testing.T) {
	const rows, length = 8, 5000
	sd := math.Sqrt(0.3 * 0.7 / (rows * length))
	clean, second := masked(t, rows, length, 2, func(*MaskRowsArgs, *builder) {})
	lost := 0
	for r := range rows {
		for i := range length {
			if clean[r][i] != 7 {
				t.Fatalf("row %d of the clean copy holds %d at %d", r, clean[r][i], i)
			}
			if second[r][i] == 0 {
				lost++
			} else if second[r][i] != 7 {
				t.Fatalf("row %d holds %d at %d, neither the token nor the id", r, second[r][i], i)
			}
		}
	}
	if got := float64(lost) / (rows * length); math.Abs(got-0.3) > 4*sd {
		t.Errorf("%.4f of the tokens are replaced, want 0.3 +- %.4f", got, sd)
	}
	_, second = masked(t, rows, length, 1, func(a *MaskRowsArgs, _ *builder) { a.ID = -1 })
	counts := make([]float64, 50)
	for _, row := range second {
		for _, tok := range row {
			counts[tok]++ // an id out of range ends the test
		}
	}
	chi, mean := 0.0, 0.3*rows*length/50
	for id, n := range counts {
		if id != 7 {
			chi += (n - mean) * (n - mean) / mean
		}
	}
	if chi > 49+5*math.Sqrt(2*49) {
		t.Errorf("chi square of the random ids is %.1f with 49 degrees of freedom", chi)
	}
}

// TestMaskRowsDrawsShares: with a range every row has a share of its own, all of them in
// the range and neither all below nor all above its middle.
func TestMaskRowsDrawsShares(t *testing.T) {
	const rows, length = 40, 2000
	_, second := masked(t, rows, length, 1, func(a *MaskRowsArgs, _ *builder) { a.From, a.To = 0.2, 0.8 })
	low := 0
	for r, row := range second {
		lost := 0
		for _, tok := range row {
			if tok == 0 {
				lost++
			}
		}
		share := float64(lost) / length
		if share < 0.15 || share > 0.85 {
			t.Errorf("row %d lost %.3f of its tokens, outside of 0.2 to 0.8", r, share)
		}
		if share < 0.5 {
			low++
		}
	}
	if low < 8 || low > 32 {
		t.Errorf("%d of %d rows lost less than the mean share", low, rows)
	}
}

// TestMaskRowsKnowsPlaces: what a row loses does not depend on how the batch is divided.
func TestMaskRowsKnowsPlaces(t *testing.T) {
	const rows, length = 8, 33
	_, whole := masked(t, rows, length, 1, func(*MaskRowsArgs, *builder) {})
	for _, shards := range []int{2, 4} {
		_, parts := masked(t, rows, length, shards, func(*MaskRowsArgs, *builder) {})
		if fmt.Sprint(parts) != fmt.Sprint(whole) {
			t.Errorf("%d parts change what is lost", shards)
		}
		_, half := masked(t, rows/2, length, 1, func(a *MaskRowsArgs, b *builder) { a.Draw, a.Row = drawWords(b, 1, 3), 1 })
		if fmt.Sprint(half) != fmt.Sprint(whole[4:]) {
			t.Error("the second half loses other tokens on its own")
		}
	}
	if _, other := masked(t, rows, length, 1, func(a *MaskRowsArgs, b *builder) { a.Draw = drawWords(b, 2, 0) }); fmt.Sprint(other) == fmt.Sprint(whole) {
		t.Error("another step loses the same tokens")
	}
}
