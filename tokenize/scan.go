package tokenize

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The scanners of this file define where pieces end. Each takes the whole text
// and the start of a piece, and returns its end; it looks at nothing before the
// start, so any end is a place to begin again. The patterns they stand for are in
// family.go.

// notLower sets the top bit of every byte of w that is not in a to z.
func notLower(w uint64) uint64 {
	const high = 0x8080808080808080
	geA := (w | high) - 0x6161616161616161
	leZ := 0xfafafafafafafafa - (w &^ high)
	return ^(geA & leZ &^ w) & high
}

// letterRun returns the end of the run of letters that begins at b[i] or is empty.
// ASCII letters are tested eight at a time.
func letterRun(b []byte, i int) int {
	for i < len(b) {
		if i+8 <= len(b) {
			m := notLower(binary.LittleEndian.Uint64(b[i:]) | 0x2020202020202020)
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		c, width := classAt(b, i)
		if c != classLetter {
			return i
		}
		i += width
	}
	return len(b)
}

// classRun returns the end of the run of one class that begins at b[i] or is empty.
func classRun(b []byte, i int, want uint8) int {
	for i < len(b) {
		c, width := classAt(b, i)
		if c != want {
			break
		}
		i += width
	}
	return i
}

// spaceRun describes the white space that begins at b[i]: its end, the start of
// its last character, and the index after its last newline (-1 without one).
func spaceRun(b []byte, i int) (end, last, newline int) {
	newline = -1
	last = i
	for i < len(b) {
		c, width := classAt(b, i)
		if !isSpace(c) {
			break
		}
		last = i
		i += width
		if c == classNewline {
			newline = i
		}
	}
	return i, last, newline
}

// numberGroup returns the end of at most three numbers; b[i] begins after the first.
func numberGroup(b []byte, i int) int {
	for k := 1; k < 3 && i < len(b); k++ {
		c, width := classAt(b, i)
		if c != classNumber {
			break
		}
		i += width
	}
	return i
}

// contraction returns the end of 's 't 're 've 'm 'll 'd at b[i], which is the
// apostrophe, or 0.
func contraction(b []byte, i int) int {
	if i+1 < len(b) {
		switch b[i+1] {
		case 's', 'd', 'm', 't':
			return i + 2
		case 'l':
			if i+2 < len(b) && b[i+2] == 'l' {
				return i + 3
			}
		case 'v', 'r':
			if i+2 < len(b) && b[i+2] == 'e' {
				return i + 3
			}
		}
	}
	return 0
}

// contractionFold is contraction under simple case folding: upper case too, and
// U+017F (bytes c5 bf), which folds to s. No other letter of the contractions has
// a partner outside ASCII.
func contractionFold(b []byte, i int) int {
	if i+1 < len(b) {
		switch b[i+1] | 0x20 {
		case 's', 'd', 'm', 't':
			return i + 2
		case 'l':
			if i+2 < len(b) && b[i+2]|0x20 == 'l' {
				return i + 3
			}
		case 'v', 'r':
			if i+2 < len(b) && b[i+2]|0x20 == 'e' {
				return i + 3
			}
		case 0xc5 | 0x20:
			if i+2 < len(b) && b[i+1] == 0xc5 && b[i+2] == 0xbf {
				return i + 3
			}
		}
	}
	return 0
}

// nextR50k is the GPT-2 pattern.
func nextR50k(b []byte, i int) int {
	c, width := classAt(b, i)
	switch c {
	case classLetter:
		return letterRun(b, i+width)
	case classNumber:
		return classRun(b, i+width, classNumber)
	case classOther:
		if b[i] == '\'' {
			if e := contraction(b, i); e != 0 {
				return e
			}
		}
		return classRun(b, i+width, classOther)
	}
	// One space, and only U+0020, belongs to the run after it.
	if c == classSpace && i+1 < len(b) {
		d, w := classAt(b, i+1)
		switch d {
		case classLetter:
			return letterRun(b, i+1+w)
		case classNumber, classOther:
			return classRun(b, i+1+w, d)
		}
	}
	end, last, _ := spaceRun(b, i)
	if end == len(b) || last == i {
		return end
	}
	return last
}

// spacePiece ends a piece of white space of the cl100k and o200k patterns: up to
// the last newline if there is one; else the whole run at the end of the text or
// when it is one character; else all but the last character.
func spacePiece(b []byte, i int) int {
	end, last, newline := spaceRun(b, i)
	switch {
	case newline > 0:
		return newline
	case end == len(b) || last == i:
		return end
	}
	return last
}

// nextCL100k is the GPT-4 and Llama 3 pattern.
func nextCL100k(b []byte, i int) int {
	c, width := classAt(b, i)
	j := i + width
	switch c {
	case classLetter:
		return letterRun(b, j)
	case classNumber:
		return numberGroup(b, j)
	case classNewline:
		return spacePiece(b, i)
	case classSpace, classBlank:
		if j == len(b) {
			return j
		}
		switch d, w := classAt(b, j); {
		case d == classLetter:
			return letterRun(b, j+w)
		case d == classOther && c == classSpace:
			return otherTail(b, j+w, false)
		case !isSpace(d):
			return j
		}
		return spacePiece(b, i)
	}
	if b[i] == '\'' {
		if e := contractionFold(b, i); e != 0 {
			return e
		}
	}
	if j == len(b) {
		return j
	}
	if d, w := classAt(b, j); d == classLetter {
		return letterRun(b, j+w)
	}
	return otherTail(b, j, false)
}

// otherTail ends a run of class other and takes the newlines (and slashes) after it.
func otherTail(b []byte, i int, slash bool) int {
	i = classRun(b, i, classOther)
	for i < len(b) && (b[i] == '\n' || b[i] == '\r' || slash && b[i] == '/') {
		i++
	}
	return i
}

// wordO200k matches one of the two word alternatives of the o200k pattern at b[i],
// without prefix and suffix. both is true for the first alternative (upper* lower+),
// which the pattern tries first, also for other starts; end is 0 without a match.
//
// Backtracking as a scan: the longest run of upper is taken; if a lower follows
// that is no upper, the word goes on through the lowers. Otherwise the run must
// give back characters until one that is also lower ends the word. If none is,
// only the second alternative (upper+ lower*) matches, and it takes the whole run.
func wordO200k(b []byte, i int) (end int, both bool) {
	lastLower := 0
	j := i
	for j < len(b) {
		if c := b[j]; c < utf8.RuneSelf { // no ASCII letter is both upper and lower
			if c >= 'A' && c <= 'Z' {
				j++
				continue
			}
			if c >= 'a' && c <= 'z' {
				return lowerRun(b, j+1), true
			}
			break
		}
		e, width := entryAt(b, j)
		if e&flagUpper == 0 {
			if e&flagLower != 0 {
				return lowerRun(b, j+width), true
			}
			break
		}
		j += width
		if e&flagLower != 0 {
			lastLower = j
		}
	}
	if lastLower > 0 {
		return lastLower, true
	}
	if j > i {
		return j, false
	}
	return 0, false
}

// lowerRun returns the end of the run of lowers that begins at b[i] or is empty.
func lowerRun(b []byte, i int) int {
	for i < len(b) {
		if i+8 <= len(b) {
			m := notLower(binary.LittleEndian.Uint64(b[i:]))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		if c := b[i]; c < utf8.RuneSelf {
			if c < 'a' || c > 'z' {
				return i
			}
			i++
			continue
		}
		e, width := entryAt(b, i)
		if e&flagLower == 0 {
			return i
		}
		i += width
	}
	return i
}

// nextO200k is the GPT-4o pattern.
func nextO200k(b []byte, i int) int {
	e, width := entryAt(b, i)
	c := e & classMask
	if end := startO200k(b, i, e, width); end > 0 {
		if end < len(b) && b[end] == '\'' {
			if f := contractionFold(b, end); f != 0 {
				return f
			}
		}
		return end
	}
	switch {
	case c == classNumber:
		return numberGroup(b, i+width)
	case isSpace(c):
		if c == classSpace && i+1 < len(b) {
			if d, w := classAt(b, i+1); d == classOther {
				return otherTail(b, i+1+w, true)
			}
		}
		return spacePiece(b, i)
	}
	return otherTail(b, i+width, true)
}

// startO200k tries the word alternatives at b[i] in the order of the pattern:
// first alternative with the optional prefix, first without it, second with, second
// without. Only a mark can be both a prefix and the start of a word.
func startO200k(b []byte, i int, e uint8, width int) int {
	switch e & classMask {
	case classLetter:
		end, _ := wordO200k(b, i)
		return end
	case classNumber, classNewline:
		return 0
	}
	second := 0
	if i+width < len(b) {
		end, both := wordO200k(b, i+width)
		if both {
			return end
		}
		second = end
	}
	if e&flagLower != 0 {
		if end, both := wordO200k(b, i); both {
			return end
		}
	}
	return second
}
