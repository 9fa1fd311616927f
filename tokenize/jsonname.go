package tokenize

// Vocabularies and merges are nearly all of a tokenizer.json, and nearly all of their
// names are spelled in the byte alphabet with no escape but \" and \\. These are read
// here, straight into bytes and without a second look at them. Whatever is not as
// plain is left to the ordinary reader, which gives the same or says what is wrong.

// alphabetSize is the first code point above the byte alphabet.
const alphabetSize = 0x100 + 68

// noByte marks characters outside the alphabet.
const noByte = 0xffff

// alphabetBytes maps characters of the byte alphabet to their bytes.
var alphabetBytes = func() (table [alphabetSize]uint16) {
	for r := range table {
		table[r] = noByte
		if c, ok := runeByte(rune(r)); ok {
			table[r] = uint16(c)
		}
	}
	return table
}()

// quickName writes the bytes of the characters from b[i] on to buf[n:], and returns the
// places after them: where a character is not of the alphabet, or buf is full.
func quickName(b []byte, i int, buf []byte, n int) (next, end int) {
	for i+1 < len(b) && n < len(buf) {
		switch c := b[i]; {
		case c < 0x80:
			if c == '"' || c <= ' ' || c == 0x7f {
				return i, n
			}
			if c == '\\' {
				if c = b[i+1]; c != '"' && c != '\\' {
					return i, n
				}
				i++
			}
			buf[n] = c
			i++
		case c >= 0xc2 && c <= 0xc5 && b[i+1]&0xc0 == 0x80:
			r := int(c&31)<<6 | int(b[i+1]&63)
			if r >= alphabetSize || alphabetBytes[r] == noByte {
				return i, n
			}
			buf[n] = byte(alphabetBytes[r])
			i += 2
		default:
			return i, n
		}
		n++
	}
	return i, n
}

// skipBlank returns the place of the first byte that is no white space.
func skipBlank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
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
	i, n := quickName(b, i+1, f.buf[:], 0)
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
	x := &f.names
	x.text = append(x.text, f.buf[:n]...)
	x.offsets = append(x.offsets, uint32(len(x.text)))
	f.ids = append(f.ids, id)
	s.i = i
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
		f.touched += f.names.touchKey(pending[k].left) + f.names.touchKey(pending[k].right)
	}
	for k := range pending {
		p := &pending[k]
		left, ok1 := f.names.number(p.left)
		right, ok2 := f.names.number(p.right)
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
