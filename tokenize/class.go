package tokenize

import "unicode/utf8"

// The low three bits of a table entry are the class of the rune. The order
// matters: everything from classSpace on is white space.
const (
	classOther   = 0 // punctuation, symbols, marks, controls, unassigned, bytes that are not UTF-8
	classLetter  = 1 // L
	classNumber  = 2 // N
	classSpace   = 3 // U+0020
	classNewline = 4 // \r and \n
	classBlank   = 5 // any other white space

	classMask = 7
)

// Bits above the class, independent of it.
const (
	flagUpper = 1 << 3 // Lu Lt Lm Lo M: may begin a word of the o200k pattern
	flagLower = 1 << 4 // Ll Lm Lo M: may end one
	flagWord  = 1 << 5 // \w of the pattern language: Alphabetic, M, Nd, Pc, Join_Control
)

// runeClass is the table entry of a valid rune.
func runeClass(r rune) uint8 {
	return runeBlocks[int(runeIndex[r>>8])<<8|int(r&0xff)]
}

// decodeRune is utf8.DecodeRune with the common lengths in line. A byte that is
// not UTF-8 gives U+FFFD and width 1, and U+FFFD has class other.
func decodeRune(b []byte) (rune, int) {
	if c := b[0]; c < utf8.RuneSelf {
		return rune(c), 1
	} else if c >= 0xe1 && c < 0xed && len(b) >= 3 && b[1]&0xc0 == 0x80 && b[2]&0xc0 == 0x80 {
		// 0xe0 and 0xed have overlong and surrogate forms; the slow path knows them.
		return rune(c&15)<<12 | rune(b[1]&63)<<6 | rune(b[2]&63), 3
	} else if c >= 0xc2 && c < 0xe0 && len(b) >= 2 && b[1]&0xc0 == 0x80 {
		return rune(c&31)<<6 | rune(b[1]&63), 2
	}
	return utf8.DecodeRune(b)
}

// entryAt is the table entry and width of the rune at b[i]; i < len(b).
func entryAt(b []byte, i int) (uint8, int) {
	if c := b[i]; c < utf8.RuneSelf {
		return runeBlocks[c], 1 // block 0 holds U+0000 to U+00FF
	}
	r, width := decodeRune(b[i:])
	return runeClass(r), width
}

// classAt is the class and width of the rune at b[i]; i < len(b).
func classAt(b []byte, i int) (uint8, int) {
	e, width := entryAt(b, i)
	return e & classMask, width
}

// isSpace says whether the class is white space of any kind.
func isSpace(class uint8) bool { return class >= classSpace }
