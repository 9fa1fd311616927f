package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"refrain/kernels/asm/guard"
)

// TestRows: the functions over rows have the bits of Dot and Axpy on every row, whatever the
// numbers of rows and columns, and touch nothing outside their slices.
func TestRows(t *testing.T) {
	const most = 150
	r := rand.New(rand.NewPCG(7, 8))
	vec, list, m := guard.Floats(t, guardWords+most), guard.Floats(t, guardWords+most), guard.Floats(t, guardWords+most*9)
	tail := func(mem []float32, n int) []float32 {
		for i := range guardWords {
			mem[len(mem)-n-guardWords+i] = guardWord(i)
		}
		s := mem[len(mem)-n:]
		for i := range s {
			s[i] = r.Float32()*4 - 2
		}
		return s
	}
	intact := func(what string, mem []float32, n int) {
		t.Helper()
		for i := range guardWords {
			if mem[len(mem)-n-guardWords+i] != guardWord(i) {
				t.Fatalf("%s: guard word %d in front was overwritten", what, i)
			}
		}
	}
	for _, size := range [][2]int{{0, 5}, {5, 0}, {0, 0}} {
		DotRows(make([]float32, size[0]), make([]float32, size[1]), nil)
		AxpyRows(make([]float32, size[0]), make([]float32, size[1]), nil)
	}
	for c := 1; c <= most; c++ {
		for _, rows := range []int{1, 2, 3, 9} {
			what := fmt.Sprintf("%d rows of %d", rows, c)
			x, y, rowsOf := tail(vec, c), tail(list, rows), tail(m, rows*c)
			q, p, before := append([]float32(nil), x...), append([]float32(nil), y...), append([]float32(nil), rowsOf...)
			want := make([]float32, rows)
			for j := range want {
				want[j] = Dot(q, before[j*c:(j+1)*c])
			}
			DotRows(y, x, rowsOf)
			same(t, what+": DotRows", y, want)
			same(t, what+": q", x, q)
			copy(y, p)
			sum := append([]float32(nil), q...)
			for j, s := range p {
				Axpy(sum, before[j*c:(j+1)*c], s)
			}
			AxpyRows(x, y, rowsOf)
			same(t, what+": AxpyRows", x, sum)
			same(t, what+": p", y, p)
			same(t, what+": m", rowsOf, before)
			intact(what, vec, c)
			intact(what, list, rows)
			intact(what, m, rows*c)
		}
	}
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// TestRowsRefuse: a matrix of another size than its vectors say is refused, and nothing is
// allocated for one that fits.
func TestRowsRefuse(t *testing.T) {
	a, b, m := make([]float32, 7), make([]float32, 9), make([]float32, 63)
	for name, f := range map[string]func(m []float32){"DotRows": func(m []float32) { DotRows(a, b, m) }, "AxpyRows": func(m []float32) { AxpyRows(a, b, m) }} {
		for _, wrong := range [][]float32{m[:62], append(m[:63:63], 0), nil} {
			func() {
				defer func() {
					if v := recover(); !strings.Contains(fmt.Sprint(v), name+": slices of") {
						t.Errorf("%s of %d floats: recovered %v", name, len(wrong), v)
					}
				}()
				f(wrong)
			}()
		}
		if n := testing.AllocsPerRun(20, func() { f(m) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRows(b *testing.B) {
	for _, c := range []int{32, 64, 128} {
		const rows = 256
		q, s, m := make([]float32, c), make([]float32, rows), make([]float32, rows*c)
		for name, f := range map[string]func(){
			"dot":  func() { DotRows(s, q, m) },
			"axpy": func() { AxpyRows(q, s, m) },
			"dot, a call a row": func() {
				for j := range s {
					s[j] = Dot(q, m[j*c:(j+1)*c])
				}
			},
			"axpy, a call a row": func() {
				for j := range s {
					Axpy(q, m[j*c:(j+1)*c], s[j])
				}
			},
		} {
			b.Run(fmt.Sprintf("%s/c=%d", name, c), func(b *testing.B) {
				b.SetBytes(4 * rows * int64(c))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
