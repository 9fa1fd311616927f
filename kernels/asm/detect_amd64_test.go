//go:build !purego

package asm

import (
	"os"
	"strings"
	"testing"
)

// TestDetected: what the processor itself says, judged by the manuals' rule, is what
// the choice went by.
func TestDetected(t *testing.T) {
	if strings.Contains(os.Getenv("GODEBUG"), "cpu.") {
		t.Skip("GODEBUG switches instructions off")
	}
	f, w := detected(), asked()
	want := judge(w)
	want.fastBF16 = madeByAMD()
	if f != want {
		t.Errorf("x/sys/cpu says %+v, the processor %+v", f, want)
	}
	if got := choose(want).name("avx2"); got != Kernels() {
		t.Errorf("%s is used, %s chosen", Kernels(), got)
	}
}
