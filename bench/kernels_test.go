package bench

import (
	"strings"
	"testing"

	"refrain/kernels/asm"
)

func TestKernels(t *testing.T) {
	best := map[string]int{}
	var sets int
	err := Kernels(t.Context(), KernelsConfig{Rounds: 2}, func(l Line) {
		sets++
		if strings.HasSuffix(l.Name, "/best") {
			best[part(l.Name, "precision=")]++
		}
		// No loop is faster than its own instructions; the margin is for what else the
		// machine does between two samples.
		if x, ok := l.Get("of-peak"); !ok || x <= 0 || x > 1.5 {
			t.Errorf("%v", l)
		}
	})
	if err != nil || best["f32"] != 1 || best["bf16"] != 1 || sets != len(asm.TileSets())+len(asm.TileSets16()) {
		t.Errorf("%d sets, the best %v: %v", sets, best, err)
	}
}
