package asm

import (
	"strings"
	"testing"
)

// judge answers the questions of features from the words of CPUID alone, by the rule of the
// manuals: an instruction counts when its bit is set and the system saves the
// registers it works on.
func judge(w answers) features {
	xsave := w.one&bitXSAVE != 0
	ymm, zmm := xsave && w.saved&savedYMM == savedYMM, xsave && w.saved&savedZMM == savedZMM
	return features{
		avx2: ymm && w.seven&bitAVX2 != 0, fma: w.one&bitFMA != 0,
		f: zmm && w.seven&bitF != 0, vl: zmm && w.seven&bitVL != 0, dq: zmm && w.seven&bitDQ != 0,
		bw: zmm && w.seven&bitBW != 0, bf16: zmm && w.sevenOne&bitBF16 != 0, offered: w,
	}
}

// TestChoice goes through processors that exist, and those that hypervisors and
// systems make of them.
func TestChoice(t *testing.T) {
	const all512 = bitF | bitVL | bitDQ | bitBW
	full := answers{bitFMA | bitXSAVE, bitAVX2 | all512, bitBF16, savedZMM}
	with := func(change func(w *answers)) answers { w := full; change(&w); return w }
	for _, c := range []struct {
		what   string
		w      answers
		set    string
		lack   string // a part of the reason
		better string
		mend   bool
	}{
		{"everything", full, "avx512bf16", "", "", false},
		{"before AVX2", answers{bitXSAVE, 0, 0, savedYMM}, "purego", "offers no AVX2, FMA, or a hypervisor", "avx2", false},
		{"AVX2 without FMA", answers{bitXSAVE, bitAVX2, 0, savedYMM}, "purego", "offers no FMA", "avx2", false},
		{"the system knows no XSAVE", answers{bitFMA, bitAVX2 | all512, bitBF16, 0}, "purego", "does not save its 256-bit registers", "avx2", true},
		{"YMM not saved", with(func(w *answers) { w.saved = 1 << 1 }), "purego", "does not save its 256-bit registers", "avx2", true},
		{"desktop with AVX2", answers{bitFMA | bitXSAVE, bitAVX2, 0, savedYMM}, "avx2", "offers no AVX-512, or", "avx512", false},
		{"AVX-512 hidden by the hypervisor", with(func(w *answers) { w.seven &^= all512 }), "avx2", "or a hypervisor hides it", "avx512", false},
		{"ZMM not saved", with(func(w *answers) { w.saved = savedYMM }), "avx2", "has AVX-512, but the system does not save its 512-bit registers", "avx512", true},
		{"opmask not saved", with(func(w *answers) { w.saved &^= 1 << 5 }), "avx2", "does not save its 512-bit", "avx512", true},
		{"AVX512F alone, as on Knights Landing", with(func(w *answers) { w.seven = bitAVX2 | bitF }), "avx2", "offers no AVX512VL, AVX512DQ, AVX512BW", "avx512", false},
		{"AVX-512 left over where AVX2 is hidden", with(func(w *answers) { w.seven &^= bitAVX2 }), "purego", "offers no AVX2", "avx2", false},
		{"server before bfloat16", with(func(w *answers) { w.sevenOne = 0 }), "avx512", "offers no AVX512_BF16", "avx512bf16", false},
	} {
		f := judge(c.w)
		if got := choose(f).name("avx2"); got != c.set {
			t.Errorf("%s: set %s, expected %s", c.what, got, c.set)
		}
		l := lacking(f)
		if !strings.Contains(l.Reason, c.lack) || l.Set != c.better || l.Mendable != c.mend || (c.lack == "") != (l.Reason == "") {
			t.Errorf("%s: %+v, expected a better set %q, %q", c.what, l, c.better, c.lack)
		}
	}
}

// TestSwitchedOff: GODEBUG takes answers away that CPUID still gives.
func TestSwitchedOff(t *testing.T) {
	f := judge(answers{bitFMA | bitXSAVE, bitAVX2 | bitF | bitVL | bitDQ | bitBW, bitBF16, savedZMM})
	f.f = false
	if l := lacking(f); choose(f).name("avx2") != "avx2" || !l.Mendable || !strings.Contains(l.Reason, "AVX-512 is switched off") {
		t.Errorf("%+v", l)
	}
	f.avx2 = false
	if l := lacking(f); choose(f).name("avx2") != "purego" || !strings.Contains(l.Reason, "AVX2 is switched off") {
		t.Errorf("%+v", l)
	}
}

// TestFastPairs: pairs of bfloat16 count as fast where there are any, and where the
// maker says so.
func TestFastPairs(t *testing.T) {
	f := judge(answers{bitFMA | bitXSAVE, bitAVX2 | bitF | bitVL | bitDQ | bitBW, bitBF16, savedZMM})
	if choose(f).fastPairs {
		t.Error("fast without the maker's word")
	}
	f.fastBF16 = true
	if !choose(f).fastPairs {
		t.Error("not fast with it")
	}
	f.bf16 = false
	if choose(f).fastPairs {
		t.Error("fast without the instruction")
	}
}
