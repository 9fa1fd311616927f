package bench

import (
	"strings"
	"testing"

	"refrain/kernels/asm"
)

func TestTiles(t *testing.T) {
	best := map[string]int{}
	var sets int
	err := Tiles(t.Context(), KernelsConfig{Rounds: 2}, func(l Line) {
		sets++
		if strings.HasSuffix(l.Name, "/best") {
			best[part(l.Name, "precision=")]++
		}
		// How large it is says the machine: the peak of plain Go is that of one loop, which
		// compilers and processors may make slower than a tile.
		if x, ok := l.Get("of-peak"); !ok || !(x > 0) {
			t.Errorf("%v", l)
		}
	})
	if err != nil || best["f32"] != 1 || best["bf16"] != 1 || sets != len(asm.TileSets())+len(asm.TileSets16()) {
		t.Errorf("%d sets, the best %v: %v", sets, best, err)
	}
}

func TestPasses(t *testing.T) {
	got := map[string]Line{}
	c := KernelsConfig{Threads: 2, Elems: 1 << 14, Rounds: 2}
	emit := func(l Line) { got[l.Name] = l }
	if err := Passes(t.Context(), c, []int{1, 2}, emit); err != nil {
		t.Fatal(err)
	}
	for name, bytes := range map[string]float64{"copy": 8, "rmsnorm": 8, "swiglu": 12, "adamw": 28} { // of an element
		for _, threads := range []string{"1", "2"} {
			l, ok := got["Kernels/op="+name+"/threads="+threads]
			rate, _ := l.Get("GB/s")
			per := rate * float64(l.PerOp.Nanoseconds()) / (1 << 14)
			if x, _ := l.Get("of-copy"); !ok || x <= 0 || per < bytes-0.3 || per > bytes+0.3 {
				t.Errorf("%s moves %.2f bytes an element, want %.0f: %v", name, per, bytes, l)
			}
		}
	}
	if err := Small(t.Context(), c, emit); err != nil {
		t.Fatal(err)
	}
	if x, _ := got["Kernels/exp"].Get("x-math.Exp"); x <= 0 || got["Kernels/region/threads=2"].PerOp <= 0 {
		t.Errorf("%v", got)
	}
}
