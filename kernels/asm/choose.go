package asm

import "strings"

// features are the questions that the choice of a set on amd64 asks. An answer is
// yes only where the processor has the instructions, the system saves their
// registers when it changes threads, and nobody switched them off.
type features struct {
	avx2, fma bool
	f, vl, dq bool // parts of AVX-512
	bw, bf16  bool
	fastBF16  bool // by the maker; see fastPairs
	offered   answers
}

// answers are those of CPUID and XGETBV, before anybody judges them.
type answers struct {
	one, seven, sevenOne uint32 // leaf 1 ECX, leaf 7.0 EBX, leaf 7.1 EAX
	saved                uint32 // XCR0; 0 where the system does not use XSAVE
}

// Bits of them, by the manuals of Intel and AMD.
const (
	bitFMA, bitXSAVE                 = 1 << 12, 1 << 27
	bitAVX2                          = 1 << 5
	bitF, bitDQ, bitBW, bitVL uint32 = 1 << 16, 1 << 17, 1 << 30, 1 << 31
	bitBF16                          = 1 << 5

	savedYMM = 1<<1 | 1<<2
	savedZMM = savedYMM | 1<<5 | 1<<6 | 1<<7
)

// set is a choice of kernels; vector, wide, pairs16 and fastPairs of this package are
// its fields.
type set struct{ vector, wide, pairs16, fastPairs bool }

// choose returns the best set for f. Each step needs the one before: parts of
// AVX-512 without AVX2, as a masking hypervisor can leave them, are not used.
func choose(f features) (s set) {
	s.vector = f.avx2 && f.fma
	s.wide = s.vector && f.f && f.vl && f.dq && f.bw
	s.pairs16 = s.wide && f.bf16
	s.fastPairs = s.pairs16 && f.fastBF16
	return s
}

// name names a set whose smaller part is called vector.
func (s set) name(vector string) string {
	switch {
	case s.pairs16:
		return "avx512bf16"
	case s.wide:
		return "avx512"
	case s.vector:
		return vector
	}
	return "purego"
}

// Lack says what keeps a better set of kernels from being used.
type Lack struct {
	Set    string // the better one
	Reason string // "" when there is none better
	// Mendable is set when the processor has what is missing, so that a setting of
	// the system, or of this process, is to blame.
	Mendable bool
}

// lacking explains choose.
func lacking(f features) Lack {
	s, o := choose(f), f.offered
	need := func(set, what string, missing []string, saved uint32, registers string) Lack {
		switch {
		case len(missing) > 0:
			return Lack{set, "the processor offers no " + strings.Join(missing, ", ") + ", or a hypervisor hides it", false}
		case o.one&bitXSAVE == 0 || o.saved&saved != saved:
			return Lack{set, "the processor has " + what + ", but the system does not save its " + registers + " registers", true}
		}
		return Lack{set, what + " is switched off for this process", true}
	}
	absent := func(word uint32, bits []uint32, names ...string) (list []string) {
		for i, b := range bits {
			if word&b == 0 {
				list = append(list, names[i])
			}
		}
		return list
	}
	switch {
	case !s.vector:
		missing := append(absent(o.seven, []uint32{bitAVX2}, "AVX2"), absent(o.one, []uint32{bitFMA}, "FMA")...)
		return need("avx2", "AVX2", missing, savedYMM, "256-bit")
	case !s.wide:
		missing := absent(o.seven, []uint32{bitF, bitVL, bitDQ, bitBW}, "AVX512F", "AVX512VL", "AVX512DQ", "AVX512BW")
		if len(missing) == 4 {
			missing = []string{"AVX-512"}
		}
		return need("avx512", "AVX-512", missing, savedZMM, "512-bit")
	case !s.pairs16:
		return need("avx512bf16", "AVX512_BF16", absent(o.sevenOne, []uint32{bitBF16}, "AVX512_BF16"), savedZMM, "512-bit")
	}
	return Lack{}
}
