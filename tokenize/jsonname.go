package tokenize

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Vocabularies and merges are nearly all of a tokenizer.json, and nearly all of their
// names are spelled in the byte alphabet with no escape but \" and \\. These are read
// here, straight into bytes and without a second look at them. Whatever is not as
// plain is left to the ordinary reader, which gives the same or says what is wrong.

// noByte marks characters outside the alphabet.
const noByte = 0xffff

// pairBytes maps the characters of two bytes that begin with 0xc2 to 0xc5, from U+0080 to
// U+017F, to the bytes they stand for.
var pairBytes = func() (table [4 << 6]uint16) {
	for k := range table {
		table[k] = noByte
		if c, ok := runeByte(0x80 + rune(k)); ok {
			table[k] = uint16(c)
		}
	}
	return table
}()

// quickName writes the bytes of the characters from b[i] on to buf[n:], and returns the
// places after them: where a character is not of the alphabet, or b or buf is nearly at
// its end. Plain ASCII goes eight bytes at a time.
func quickName(b []byte, i int, buf []byte, n int) (next, end int) {
	if i+1 < len(b) && n < len(buf) {
		// Half of all names begin with the character of the space: no branch for that.
		buf[n] = ' '
		space := 0
		if binary.LittleEndian.Uint16(b[i:]) == spaceName {
			space = 1
		}
		i += 2 * space
		n += space
	}
	for n+8 <= len(buf) && i+9 <= len(b) {
		if b[i] < 0x80 {
			w := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(buf[n:], w)
			plain := bits.TrailingZeros64(notPlain(w)) >> 3
			i += plain
			n += plain
			if plain == 8 {
				continue
			}
		}
		switch first, second := b[i], b[i+1]; {
		case first >= 0x80:
			if first < 0xc2 || first > 0xc5 || second&0xc0 != 0x80 {
				return i, n
			}
			c := pairBytes[(first-0xc2)<<6|second&63]
			if c == noByte {
				return i, n
			}
			buf[n] = byte(c)
		case first == '\\' && (second == '"' || second == '\\'):
			buf[n] = second
		default:
			return i, n
		}
		i += 2
		n++
	}
	return i, n
}

// spaceName is the name of the space, U+0120 in UTF-8, as a word.
const spaceName = 0xa0c4

// notPlain marks the first byte of w that is not itself in a name: white space, a
// control, '"', '\\', 0x7f and what is not ASCII. Marks above the first mean nothing.
func notPlain(w uint64) uint64 {
	quote, slash := w^'"'*ones, w^'\\'*ones
	low := (w-'!'*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash
	return (low | w | (w + ones)) & (0x80 * ones)
}

// skipBlank returns the place of the first byte that is no white space.
func skipBlank(b []byte, i int) int {
	for i+8 <= len(b) && b[i] <= ' ' {
		// The usual ones are skipped eight at a time.
		w := binary.LittleEndian.Uint64(b[i:])
		n := bits.TrailingZeros64(^(equalBytes(w, ' ')|equalBytes(w, '\n'))&(0x80*ones)) >> 3
		if i += n; n < 8 {
			break
		}
	}
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// ones has a one in every byte.
const ones = 0x0101010101010101

// equalBytes marks the bytes of w that are c, each by its top bit alone.
func equalBytes(w uint64, c byte) uint64 {
	x := w ^ uint64(c)*ones
	return ^((x&(0x7f*ones) + 0x7f*ones) | x | 0x7f*ones)
}

// isAt says whether b[i] is c.
func isAt(b []byte, i int, c byte) bool { return i < len(b) && b[i] == c }

// quickEntry reads a vocabulary entry that is plain. Without one it reads nothing.
func (f *jsonFile) quickEntry(s *jsonScanner) bool {
	b := s.b
	i := skipBlank(b, s.i)
	if !isAt(b, i, '"') {
		return false
	}
	x := &f.names
	text := slices.Grow(x.text, len(f.buf))
	i, n := quickName(b, i+1, text[:len(text)+len(f.buf)], len(text))
	if !isAt(b, i, '"') {
		return false
	}
	if i = skipBlank(b, i+1); !isAt(b, i, ':') {
		return false
	}
	i = skipBlank(b, i+1)
	id, digits := uint32(0), 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9' && digits < 7; i++ {
		id = id*10 + uint32(b[i]-'0')
		digits++
	}
	if i == len(b) || digits == 0 || id >= maxVocab || digits > 1 && b[i-digits] == '0' {
		return false
	}
	if c := b[i]; c != ',' && c != '}' && c != '\n' && c != ' ' {
		return false
	}
	x.text = text[:n]
	x.offsets = append(x.offsets, uint32(len(x.text)))
	f.ids = append(f.ids, id)
	s.i = i
	return true
}

// comma reads the comma before another element, if one is there.
func (s *jsonScanner) comma() bool {
	i := skipBlank(s.b, s.i)
	if !isAt(s.b, i, ',') {
		return false
	}
	s.i = i + 1
	return true
}

// pendingMerge is a merge whose parts have not been looked up.
type pendingMerge struct {
	at          int // where it is in the file
	left, right nameKey
	whole       uint32
}

// quickMerge reads a merge of plain names, in either form, which settleMerges finishes.
// Without one it reads nothing.
func (f *jsonFile) quickMerge(s *jsonScanner) bool {
	b := s.b
	i := skipBlank(b, s.i)
	pair := isAt(b, i, '[')
	if pair {
		i = skipBlank(b, i+1)
	}
	if !isAt(b, i, '"') {
		return false
	}
	i, cut := quickName(b, i+1, f.buf[:], 0)
	if pair {
		if !isAt(b, i, '"') {
			return false
		}
		if i = skipBlank(b, i+1); !isAt(b, i, ',') {
			return false
		}
		if i = skipBlank(b, i+1); !isAt(b, i, '"') {
			return false
		}
	} else if !isAt(b, i, ' ') || cut >= len(versionMark) && string(f.buf[:len(versionMark)]) == versionMark {
		return false
	}
	i, n := quickName(b, i+1, f.buf[:], cut)
	if !isAt(b, i, '"') || cut == 0 || cut == n {
		return false
	}
	i++
	if pair {
		if i = skipBlank(b, i); !isAt(b, i, ']') {
			return false
		}
		i++
	}
	whole, ok := f.whole(f.buf[:n])
	if !ok {
		return false
	}
	p := &f.pending[f.numPending]
	p.at, p.whole = s.i, whole
	if p.left, ok = f.names.keyOf(f.buf[:cut]); !ok {
		return false
	}
	if p.right, ok = f.names.keyOf(f.buf[cut:n]); !ok {
		return false
	}
	f.numPending++
	s.i = i
	return true
}

// settleMerges looks up the parts of the merges read since the last time, all together:
// the accesses to memory overlap then, which they do not between pieces of parsing. It
// goes back to the first one with a part that is not there, for the ordinary reader.
func (f *jsonFile) settleMerges(s *jsonScanner) {
	pending := f.pending[:f.numPending]
	f.numPending = 0
	for k := range pending {
		f.touched += f.names.touchKey(&pending[k].left) + f.names.touchKey(&pending[k].right)
	}
	for k := range pending {
		p := &pending[k]
		left, ok1 := f.names.number(&p.left)
		right, ok2 := f.names.number(&p.right)
		if !ok1 || !ok2 {
			s.i = p.at
			f.slowMerge(s)
			return
		}
		f.merges = append(f.merges, merge{f.ids[left], f.ids[right], f.ids[p.whole]})
	}
}

// whole finds the number of a name that a merge makes. Mostly it is that of the merge
// before, or the next one: files list both in one order.
func (f *jsonFile) whole(b []byte) (uint32, bool) {
	for i := f.made; i < f.made+2 && i < uint32(len(f.ids)); i++ {
		if string(f.names.at(i)) == string(b) {
			f.made = i
			return i, true
		}
	}
	i, ok := f.names.find(b)
	if ok {
		f.made = i
	}
	return i, ok
}
