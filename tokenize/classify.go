package tokenize

// classifyGo is what classify computes, one byte at a time.
func classifyGo(text []byte, out []classBlock) {
	for k := range out {
		b := classBlock{inner: out[k].inner}
		for i, c := range text[64*k : 64*k+64] {
			bit := uint64(1) << uint(i)
			switch {
			case c >= 0x80:
				b.high |= bit
			case c|0x20 >= 'a' && c|0x20 <= 'z':
				b.letter |= bit
			case c >= '0' && c <= '9':
				b.number |= bit
			case c == ' ':
				b.white |= bit
				b.space |= bit
			case c >= '\t' && c <= '\r':
				b.white |= bit
				if c == '\n' || c == '\r' {
					b.newline |= bit
				}
			case c == '\'':
				b.quote |= bit
			}
		}
		out[k] = b
	}
}

// classifyCaseGo is what classifyCase computes, one byte at a time.
func classifyCaseGo(text []byte, out []caseBlock) {
	for k := range out {
		c := caseBlock{both: out[k].both, doubt: out[k].doubt}
		for i, b := range text[64*k : 64*k+64] {
			bit := uint64(1) << uint(i)
			switch {
			case b >= 'A' && b <= 'Z':
				c.upper |= bit
			case b == '/':
				c.slash |= bit
			}
		}
		out[k] = c
	}
}
