package tokenize

import "math/bits"

// maskCL100k finds the pieces of a window by the GPT-4 and Llama 3 pattern.
func maskCL100k(m *maskScratch, win []byte, n int) []uint32 {
	nb, numHigh := m.load(win, n)
	wide := numHigh > 0
	if wide {
		m.wide(win[:n], nb)
	}
	var prevL, prevN, prevO, prevW, prevS, prevX, prevNL, prevAlone uint64 // bit 0: the byte before the word
	var carryTail, carryBlank uint64
	var quotes, longNumbers uint64
	for k := range nb {
		b := &m.blocks[k]
		l, num, w, s, nl := b.letter, b.number, b.white, b.space, b.newline
		o := ^(l | num | w)
		x := w &^ nl

		// A run of class other begins a piece unless a space is before it. Its first
		// character, if a piece begins there, is the prefix of letters after it, and
		// so is any blank: such letters begin nothing.
		oStart := o &^ (o<<1 | prevO) &^ (s<<1 | prevS)
		alone := oStart
		if wide {
			// The first byte of a wide character is not its last, where letters look.
			// High bits of words already passed may be gone, but those were no starts.
			alone = oStart&^b.high | m.alone[k]
		}
		lStart := l &^ (l<<1 | prevL) &^ (x<<1 | prevX) &^ (alone<<1 | prevAlone)
		nStart := num &^ (num<<1 | prevN)

		// White space: the last character of a run, if it is a blank, may be a prefix.
		last := w &^ (w>>1 | m.blocks[k+1].white<<63)
		if wide {
			last = last&^b.inner | m.runEnd[k]
		}
		last &= x

		// Newlines right after class other belong to it. The sum carries from the
		// first of them through all to the byte after.
		tail := nl & (o<<1 | prevO)
		sum, carry := bits.Add64(nl, tail, carryTail)
		carryTail = carry
		wStart := w &^ (w<<1 | prevW) &^ tail
		afterTail := sum &^ nl & w

		// Blanks after a newline begin a piece, but not if another newline ends them:
		// only the last newline of a run ends its piece.
		xStart := x & (nl<<1 | prevNL)
		sum, carry = bits.Add64(x, xStart, carryBlank)
		carryBlank = carry
		undone := sum &^ x & nl

		st := oStart | lStart | nStart | last | wStart | afterTail | xStart
		if k == 0 {
			st |= 1
		}
		m.starts[k] = st
		m.keep[k] = wStart | afterTail
		m.numbers[k] = nStart
		m.quotes[k] = b.quote & oStart
		quotes |= m.quotes[k]
		// A run of four bytes or more may need cutting.
		longNumbers |= num & (num<<1 | prevN)
		for ; undone != 0; undone &= undone - 1 {
			m.undoBlank(k<<6 + bits.TrailingZeros64(undone) - 1)
		}
		prevL, prevN, prevO, prevW, prevS = l>>63, num>>63, o>>63, w>>63, s>>63
		prevX, prevNL, prevAlone = x>>63, nl>>63, alone>>63
	}
	if longNumbers != 0 {
		m.numberGroups(win[:n], nb, wide)
	}
	if quotes != 0 {
		m.contractionsCL100k(win[:n], nb)
	}
	return m.emit(nb, n)
}

// undoBlank takes back the start of the run of blanks that ends at i, right before a
// newline, unless it begins there for another reason.
func (m *maskScratch) undoBlank(i int) {
	for i >= 0 && (m.blocks[i>>6].white&^m.blocks[i>>6].newline)>>uint(i&63)&1 != 0 {
		i--
	}
	i++
	if m.keep[i>>6]>>uint(i&63)&1 == 0 {
		m.unset(i)
	}
}

// numberGroups cuts runs of more than three numbers into threes from the left.
func (m *maskScratch) numberGroups(text []byte, nb int, wide bool) {
	for k := range nb {
		// Only runs of four bytes or more can hold more than three numbers.
		num, after := m.blocks[k].number, m.blocks[k+1].number
		long := m.numbers[k] & (num>>1 | after<<63) & (num>>2 | after<<62) & (num>>3 | after<<61)
		for ; long != 0; long &= long - 1 {
			i := k<<6 + bits.TrailingZeros64(long)
			if !wide {
				for i += 3; m.digit(i); i += 3 {
					m.set(i)
					if !m.digit(i+1) || !m.digit(i+2) {
						break
					}
				}
				continue
			}
			for count := 0; i < len(text); count++ {
				class, width := classAt(text, i)
				if class != classNumber {
					break
				}
				if count%3 == 0 {
					m.set(i)
				}
				i += width
			}
		}
	}
}

// digit says whether byte i belongs to a number.
func (m *maskScratch) digit(i int) bool {
	return m.blocks[i>>6].number>>uint(i&63)&1 != 0
}

// contractionsCL100k begins a piece after each contraction. Its own letters begin
// none, since the apostrophe is a prefix of letters like any other character.
func (m *maskScratch) contractionsCL100k(text []byte, nb int) {
	for k := range nb {
		for q := m.quotes[k]; q != 0; q &= q - 1 {
			if end := contractionFold(text, k<<6+bits.TrailingZeros64(q)); end != 0 && end < len(text) {
				m.set(end)
			}
		}
	}
}
