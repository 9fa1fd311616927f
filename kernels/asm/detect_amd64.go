//go:build !purego

package asm

import "golang.org/x/sys/cpu"

// detected are the features of this processor. x/sys/cpu asks XGETBV what the system
// saves, and obeys GODEBUG: cpu.avx2=off or cpu.avx512f=off takes the next lesser set.
func detected() features {
	x := &cpu.X86
	return features{
		avx2: x.HasAVX2, fma: x.HasFMA,
		f: x.HasAVX512F, vl: x.HasAVX512VL, dq: x.HasAVX512DQ, bw: x.HasAVX512BW, bf16: x.HasAVX512BF16,
		fastBF16: madeByAMD(), offered: asked(),
	}
}

// asked asks the processor itself, for the reasons of Missing.
func asked() (w answers) {
	most, _, _, _ := cpuid(0, 0)
	if most < 1 {
		return w
	}
	_, _, w.one, _ = cpuid(1, 0)
	if w.one&bitXSAVE != 0 {
		w.saved = xgetbv()
	}
	if most >= 7 {
		var deeper uint32
		deeper, w.seven, _, _ = cpuid(7, 0)
		if deeper >= 1 {
			w.sevenOne, _, _, _ = cpuid(7, 1)
		}
	}
	return w
}

// Missing says what keeps this process from a better set of kernels; see Lack.
func Missing() Lack { return lacking(detected()) }

func cpuid(leaf, sub uint32) (a, b, c, d uint32)

// xgetbv returns the low word of XCR0: which registers the system saves. It needs
// the bit bitXSAVE.
func xgetbv() uint32

func madeByAMD() bool {
	b, d, c := vendor()
	var name []byte
	for _, w := range []uint32{b, d, c} {
		name = append(name, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	return string(name) == "AuthenticAMD"
}
