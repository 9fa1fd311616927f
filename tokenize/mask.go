package tokenize

import "math/bits"

// Splitting by masks: a window of text is classified 64 bytes at a time into bit
// masks, one bit a byte, and the starts of all pieces come out of shifts, carries
// and logic on whole words. Bit i of word k stands for byte 64*k+i. The scanners of
// scan.go say what the result must be.
//
//	text     f o o ( b a r )   x
//	letter   1 1 1 . 1 1 1 . . 1
//	starts   1 . . 1 . . . 1 1 .      (cl100k: "(bar" is one piece, " x" another)

const (
	windowBytes = 8 << 10 // text, masks and ends of a window stay in the first-level cache
	windowPad   = 64      // readable bytes after the text of a window
	maxBlocks   = windowBytes / 64
)

// classBlock holds the masks of 64 bytes. The first seven are filled for ASCII by
// classify; classes of other characters are put in by wide, for all their bytes.
type classBlock struct {
	letter  uint64
	number  uint64
	white   uint64 // white space of any kind
	space   uint64 // U+0020
	quote   uint64 // apostrophe
	high    uint64 // bytes from 0x80 up
	newline uint64
	inner   uint64 // bytes of white space characters after their first
}

// caseBlock holds more masks of 64 bytes, for the pattern that knows case. The first two
// are filled for ASCII by classifyCase.
type caseBlock struct {
	upper uint64 // letters that are only upper (or title) case
	slash uint64
	both  uint64 // letters and marks outside ASCII that are both upper and lower case
	doubt uint64 // where the masks may be wrong about the pieces around
}

// maskScratch is the memory for one window.
type maskScratch struct {
	blocks  [maxBlocks + 1]classBlock
	starts  [maxBlocks + 1]uint64
	keep    [maxBlocks + 1]uint64 // white space starts that stay whatever follows
	numbers [maxBlocks + 1]uint64 // starts of runs of numbers
	quotes  [maxBlocks + 1]uint64 // apostrophes that may begin a contraction
	runEnd  [maxBlocks + 1]uint64 // first byte of each wide white space character that ends its run
	alone   [maxBlocks + 1]uint64 // last byte of each wide character of class other that begins a piece
	cases   [maxBlocks + 1]caseBlock
	cased   bool // letters have case: cases is in use
	ends    [windowBytes + 8]uint32
}

// load finds the ASCII classes of win[:n], 0 < n <= windowBytes, which is followed by windowPad
// readable bytes. Past the end of the text everything counts as white space. It
// returns the number of words and of bytes that are not ASCII; with any, wide comes next.
func (m *maskScratch) load(win []byte, n int) (numBlocks, numHigh int) {
	nb := (n + 63) >> 6
	classify(&win[0], nb, &m.blocks[0])
	if r := uint(n & 63); r != 0 {
		b := &m.blocks[nb-1]
		in := uint64(1)<<r - 1
		b.letter &= in
		b.number &= in
		b.space &= in
		b.quote &= in
		b.high &= in
		b.newline &= in
		b.white |= ^in
	}
	m.blocks[nb] = classBlock{white: 1}
	for k := range nb {
		numHigh += bits.OnesCount64(m.blocks[k].high)
	}
	return nb, numHigh
}

// wide puts the classes of all characters outside ASCII into the masks.
func (m *maskScratch) wide(text []byte, nb int) {
	for k := range nb + 1 {
		m.blocks[k].inner = 0
		m.runEnd[k] = 0
		m.alone[k] = 0
	}
	for k := range nb {
		high := m.blocks[k].high
		for high != 0 {
			i := k<<6 + bits.TrailingZeros64(high)
			e, width := entryAt(text, i)
			end, class := i+width, e&classMask
			if m.cased && m.wideCase(text, i, end, e) {
				class = classLetter
			}
			switch {
			case class == classOther:
				if m.beginsPiece(i) {
					m.alone[(end-1)>>6] |= 1 << uint((end-1)&63)
				}
			case isSpace(class):
				if end < len(text) {
					if next, _ := classAt(text, end); !isSpace(next) {
						m.runEnd[k] |= 1 << uint(i&63)
					}
				}
				for q := i; q < end; q++ {
					b := &m.blocks[q>>6]
					b.white |= 1 << uint(q&63)
					if q > i {
						b.inner |= 1 << uint(q&63)
					}
				}
			case class == classLetter:
				for q := i; q < end; q++ {
					m.blocks[q>>6].letter |= 1 << uint(q&63)
				}
			default:
				for q := i; q < end; q++ {
					m.blocks[q>>6].number |= 1 << uint(q&63)
				}
			}
			if end>>6 != k {
				// The rest of the character lies in the next word.
				m.blocks[end>>6].high &^= 1<<uint(end&63) - 1
				break
			}
			high &^= 1<<uint(end&63) - 1
		}
	}
}

// beginsPiece says whether a character of class other at i begins its piece: it is
// not when another of its class or a space is before it.
func (m *maskScratch) beginsPiece(i int) bool {
	if i == 0 {
		return true
	}
	b := &m.blocks[(i-1)>>6]
	bit := uint64(1) << uint((i-1)&63)
	return b.space&bit == 0 && (b.letter|b.number|b.white)&bit != 0
}

func (m *maskScratch) set(i int)   { m.starts[i>>6] |= 1 << uint(i&63) }
func (m *maskScratch) unset(i int) { m.starts[i>>6] &^= 1 << uint(i&63) }

// emit turns the starts into the ends of all pieces of a window of n bytes.
func (m *maskScratch) emit(nb, n int) []uint32 {
	if r := uint(n & 63); r != 0 {
		m.starts[nb-1] &= 1<<r - 1
	}
	count := 0
	for k := range nb {
		s := m.starts[k]
		base := uint32(k << 6)
		// Four at a time without asking whether there are as many; the surplus is
		// overwritten by the next word.
		at := count
		for {
			out := (*[4]uint32)(m.ends[at:])
			out[0] = base + uint32(bits.TrailingZeros64(s))
			s &= s - 1
			out[1] = base + uint32(bits.TrailingZeros64(s))
			s &= s - 1
			out[2] = base + uint32(bits.TrailingZeros64(s))
			s &= s - 1
			out[3] = base + uint32(bits.TrailingZeros64(s))
			s &= s - 1
			if s == 0 {
				break
			}
			at += 4
		}
		count += bits.OnesCount64(m.starts[k])
	}
	m.ends[count] = uint32(n)
	return m.ends[1 : count+1] // the first start is 0
}

// maskR50k finds the pieces of a window by the GPT-2 pattern.
func maskR50k(m *maskScratch, win []byte, n int) []uint32 {
	nb, numHigh := m.load(win, n)
	wide := numHigh > 0
	if wide {
		m.wide(win[:n], nb)
	}
	var prevL, prevN, prevO, prevW, prevS uint64 // class of the byte before the word, in bit 0
	var quotes uint64
	for k := range nb {
		b := &m.blocks[k]
		l, num, w, s := b.letter, b.number, b.white, b.space
		o := ^(l | num | w)
		// A change of class begins a piece, unless the byte before is a space.
		st := l&^(l<<1|prevL) | num&^(num<<1|prevN) | o&^(o<<1|prevO)
		st &^= s<<1 | prevS
		// White space begins a piece where its run does and at its last character.
		last := w &^ (w>>1 | m.blocks[k+1].white<<63)
		if wide {
			last = last&^b.inner | m.runEnd[k]
		}
		st |= w&^(w<<1|prevW) | last
		if k == 0 {
			st |= 1
		}
		m.starts[k] = st
		m.quotes[k] = b.quote & st
		quotes |= b.quote & st
		prevL, prevN, prevO, prevW, prevS = l>>63, num>>63, o>>63, w>>63, s>>63
	}
	if quotes != 0 {
		m.contractionsR50k(win[:n], nb)
	}
	return m.emit(nb, n)
}

// contractionsR50k makes each contraction one piece and begins another after it.
func (m *maskScratch) contractionsR50k(text []byte, nb int) {
	for k := range nb {
		for q := m.quotes[k]; q != 0; q &= q - 1 {
			i := k<<6 + bits.TrailingZeros64(q)
			end := contraction(text, i)
			for j := i + 1; j < end; j++ {
				m.unset(j)
			}
			if end != 0 && end < len(text) {
				m.set(end)
			}
		}
	}
}
