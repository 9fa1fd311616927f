package tokenize

import "math/bits"

// maskO200k finds the pieces of a window by the GPT-4o pattern.
//
// It is the pattern of cl100k with three differences: a word also ends before an
// upper case letter after a lower case one; contractions are the end of a word, not
// a piece; and slashes go on with the newlines after class other. Letters without case
// count as lower case, and a mark after a letter as such a letter. Where that is not
// the same, in front of an upper case letter after one without case and at marks
// that follow no letter, the place is in doubt and the scanner decides.
func maskO200k(m *maskScratch, win []byte, n int) []uint32 {
	nb, numHigh := m.load(win, n)
	if 2*numHigh > n {
		return m.scan(win[:n]) // faster there than putting in characters one by one
	}
	m.loadCase(win, n, nb)
	wide := numHigh > 0
	if wide {
		m.wide(win[:n], nb)
	}
	var prevL, prevN, prevO, prevRaw, prevW, prevS, prevX, prevNL, prevAlone, prevLower, prevBoth uint64 // bit 0: the byte before the word
	var carryTail, carryBlank uint64
	var quotes, longNumbers, doubts uint64
	for k := range nb {
		b, c := &m.blocks[k], &m.cases[k]
		l, num, w, s, nl := b.letter, b.number, b.white, b.space, b.newline
		raw := ^(l | num | w)
		x := w &^ nl

		// Newlines right after class other belong to it, and slashes after these. Where
		// the sum carries through the run from a newline on, it leaves zeros, but for
		// further newlines after a slash.
		run := nl | c.slash
		tail := nl & (raw<<1 | prevRaw)
		sum, carry := bits.Add64(run, tail, carryTail)
		carryTail = carry
		taken := run&^sum | tail
		afterTail := sum &^ run & w
		o := raw &^ taken

		oStart := o &^ (o<<1 | prevO) &^ (s<<1 | prevS)
		alone := oStart
		if wide {
			alone = oStart&^b.high | m.alone[k]
		}
		lower := l &^ c.upper
		lStart := l &^ (l<<1 | prevL) &^ (x<<1 | prevX) &^ (alone<<1 | prevAlone)
		lStart |= c.upper & (lower<<1 | prevLower)
		nStart := num &^ (num<<1 | prevN)

		// White space is as in maskCL100k.
		last := w &^ (w>>1 | m.blocks[k+1].white<<63)
		if wide {
			last = last&^b.inner | m.runEnd[k]
		}
		last &= x
		wStart := w &^ (w<<1 | prevW) &^ taken
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
		m.quotes[k] = b.quote & (l<<1 | prevL)
		quotes |= m.quotes[k]
		longNumbers |= num & (num<<1 | prevN)
		for ; undone != 0; undone &= undone - 1 {
			m.undoBlank(k<<6 + bits.TrailingZeros64(undone) - 1)
		}
		if wide {
			c.doubt |= c.upper & (c.both<<1 | prevBoth)
			doubts |= c.doubt
			prevBoth = c.both >> 63
		}
		prevL, prevN, prevO, prevRaw, prevW, prevS = l>>63, num>>63, o>>63, raw>>63, w>>63, s>>63
		prevX, prevNL, prevAlone, prevLower = x>>63, nl>>63, alone>>63, lower>>63
	}
	if longNumbers != 0 {
		m.numberGroups(win[:n], nb, wide)
	}
	if quotes != 0 {
		doubts |= m.contractionsO200k(win[:n], nb)
	}
	if doubts != 0 {
		m.settle(win[:n], nb)
	}
	return m.emit(nb, n)
}

// scan finds the ends of a window with the scanner.
func (m *maskScratch) scan(text []byte) []uint32 {
	count := 0
	for i := 0; i < len(text); count++ {
		i = nextO200k(text, i)
		m.ends[count] = uint32(i)
	}
	return m.ends[:count]
}

// loadCase classifies the ASCII letters of a window by case, and finds its slashes.
func (m *maskScratch) loadCase(win []byte, n, nb int) {
	classifyCase(&win[0], nb, &m.cases[0])
	if r := uint(n & 63); r != 0 {
		c := &m.cases[nb-1]
		c.upper &= 1<<r - 1
		c.slash &= 1<<r - 1
	}
	m.cases[nb] = caseBlock{}
	for k := range nb + 1 {
		m.cases[k].both, m.cases[k].doubt = 0, 0
	}
}

// wideCase puts the case of the character in text[i:end], whose table entry is e, into
// the masks. It says whether it is a mark that goes on with a word, which counts as a
// letter then.
func (m *maskScratch) wideCase(text []byte, i, end int, e uint8) bool {
	const caseless = flagUpper | flagLower // other letters, modifiers and marks
	switch {
	case e&caseless == flagUpper:
		for q := i; q < end; q++ {
			m.cases[q>>6].upper |= 1 << uint(q&63)
		}
		return false
	case e&caseless == caseless:
		for q := i; q < end; q++ {
			m.cases[q>>6].both |= 1 << uint(q&63)
		}
		if e&classMask == classLetter {
			return false
		}
		if i > 0 && m.blocks[(i-1)>>6].letter>>uint((i-1)&63)&1 != 0 {
			return true
		}
	case e&classMask != classOther || i == 0 || text[i-1] != '/':
		return false
	}
	// A mark that follows no letter, or class other after a slash that may belong to
	// newlines before it.
	m.cases[i>>6].doubt |= 1 << uint(i&63)
	return false
}

// contractionsO200k puts each contraction at the end of its word. A word that ended
// with one takes no second. The result is not zero if any place is in doubt.
func (m *maskScratch) contractionsO200k(text []byte, nb int) uint64 {
	end := 0
	doubts := uint64(0)
	for k := range nb {
		for q := m.quotes[k]; q != 0; q &= q - 1 {
			i := k<<6 + bits.TrailingZeros64(q)
			if i == end {
				continue
			}
			f := contractionFold(text, i)
			if f == 0 {
				continue
			}
			for j := i; j < f; j++ {
				m.unset(j)
			}
			if end = f; end == len(text) {
				break
			}
			m.set(end)
			if text[end] >= 0x80 { // a mark there is after no letter of its piece
				m.cases[end>>6].doubt |= 1 << uint(end&63)
				doubts = 1
			}
		}
	}
	return doubts
}

// settle scans from before each place in doubt until scanner and masks agree on an end
// of a piece behind it. The scanner looks at nothing before a start, so from there on
// both find the same, up to the next place in doubt.
func (m *maskScratch) settle(text []byte, nb int) {
	agreed := 0 // both have a start here, and before it the masks are right
	for k := range nb {
		for q := m.cases[k].doubt; q != 0; q &= q - 1 {
			last := k<<6 + bits.TrailingZeros64(q)
			if last < agreed {
				continue
			}
			for i := m.startBefore(text, last, agreed); ; {
				j := nextO200k(text, i)
				for p := i + 1; p < j; p++ {
					m.unset(p)
					if m.cases[p>>6].doubt>>uint(p&63)&1 != 0 {
						last = p
					}
				}
				if i = j; i == len(text) {
					return
				}
				was := m.starts[i>>6]>>uint(i&63)&1 != 0
				m.set(i)
				if was && i > last {
					agreed = i
					break
				}
			}
		}
	}
}

// startBefore returns a start that what is at text[at] has no influence on: the last
// one found so, or least, which is one.
func (m *maskScratch) startBefore(text []byte, at, least int) int {
	for i := at - certainMargin; i > least; i-- {
		if m.starts[i>>6]>>uint(i&63)&1 != 0 && certainEnd(text[:at], i) {
			return i
		}
	}
	return least
}
