package tokenize

import "unicode/utf8"

// tokenizer.json names bytes by printable characters: the printable ones of
// Latin-1 by themselves, the other 68 in order by U+0100 and up.

// byteRune is the character that stands for a byte.
func byteRune(c byte) rune {
	switch {
	case c >= '!' && c <= '~', c >= 0xa1 && c <= 0xac, c >= 0xae:
		return rune(c)
	case c <= ' ':
		return 0x100 + rune(c)
	case c <= 0xa0: // 0x7f to 0xa0 follow the 33 below '!'
		return 0x100 + 33 + rune(c-0x7f)
	}
	return 0x100 + 67 // 0xad
}

// runeByte is the inverse of byteRune.
func runeByte(r rune) (byte, bool) {
	switch {
	case r < 0x100:
		c := byte(r)
		return c, r >= 0 && byteRune(c) == r
	case r <= 0x100+' ':
		return byte(r - 0x100), true
	case r < 0x100+67:
		return byte(r - 0x100 - 33 + 0x7f), true
	case r == 0x100+67:
		return 0xad, true
	}
	return 0, false
}

// byteName spells bytes in the alphabet.
func byteName(b []byte) string {
	out := make([]byte, 0, len(b)+8)
	for _, c := range b {
		out = utf8.AppendRune(out, byteRune(c))
	}
	return string(out)
}

// nameBytes is the inverse of byteName; false if a character is not of the alphabet.
func nameBytes(name string) ([]byte, bool) { return appendNameBytes(nil, []byte(name)) }

// appendNameBytes appends the bytes that name spells, which is UTF-8. Where a character
// is not of the alphabet it returns dst as it was, and false.
func appendNameBytes(dst, name []byte) ([]byte, bool) {
	from := len(dst)
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if c <= ' ' || c == 0x7f {
				return dst[:from], false
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(name[i:])
		b, ok := runeByte(r)
		if !ok {
			return dst[:from], false
		}
		dst = append(dst, b)
		i += n
	}
	return dst, true
}
