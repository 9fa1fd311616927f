package tokenize

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonScanner reads JSON from memory without building values. It is stricter than
// encoding/json: names are matched exactly, a name given twice is an error, text
// must be UTF-8, half a surrogate pair is an error, and nesting is bounded. The
// first error sticks and every later call does nothing.
type jsonScanner struct {
	b     []byte
	i     int
	depth int
	err   error
	buf   []byte // unescaped text of the last string
}

const maxJSONDepth = 32

func (s *jsonScanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: %w", s.i, fmt.Errorf(format, args...))
	}
}

// peek skips white space and returns the next byte, 0 at the end or after an error.
func (s *jsonScanner) peek() byte {
	if s.err != nil {
		return 0
	}
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *jsonScanner) expect(c byte) bool {
	if got := s.peek(); got != c {
		s.fail("want %q, found %s", c, s.found())
		return false
	}
	s.i++
	return true
}

func (s *jsonScanner) found() string {
	if s.i >= len(s.b) {
		return "the end of the file"
	}
	return strconv.QuoteRune(rune(s.b[s.i]))
}

// object calls field for every name, which must read exactly the value.
func (s *jsonScanner) object(field func(name string)) {
	seen := map[string]bool{}
	s.members(func(name []byte) {
		if seen[string(name)] {
			s.fail("key %q is given twice", name)
			return
		}
		seen[string(name)] = true
		field(string(name))
	})
}

// members is object for many names: the caller finds duplicates itself, and name is
// valid only until the next string is read.
func (s *jsonScanner) members(field func(name []byte)) {
	s.group('{', '}', func() {
		name := s.text()
		if s.expect(':') {
			field(name)
		}
	})
}

// array calls element for every element, which must read exactly one value.
func (s *jsonScanner) array(element func()) { s.group('[', ']', element) }

func (s *jsonScanner) group(begin, end byte, item func()) {
	if !s.expect(begin) {
		return
	}
	if s.depth++; s.depth > maxJSONDepth {
		s.fail("values are nested deeper than %d", maxJSONDepth)
		return
	}
	defer func() { s.depth-- }()
	if s.peek() == end {
		s.i++
		return
	}
	for s.err == nil {
		item()
		if s.peek() == ',' {
			s.i++
			continue
		}
		s.expect(end)
		return
	}
}

// text reads a string; the result is valid until the next string is read.
func (s *jsonScanner) text() []byte {
	if !s.expect('"') {
		return nil
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			raw := s.b[start:s.i]
			if !utf8.Valid(raw) {
				s.fail("a string is not UTF-8")
				return nil
			}
			s.i++
			return raw
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			s.fail("control byte %#x inside a string", c)
			return nil
		default:
			s.i++
		}
	}
	s.fail("a string without end")
	return nil
}

// escaped reads the rest of a string that has escapes.
func (s *jsonScanner) escaped(start int) []byte {
	s.buf = append(s.buf[:0], s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			if !utf8.Valid(s.buf) {
				s.fail("a string is not UTF-8")
				return nil
			}
			return s.buf
		case c < ' ':
			s.fail("control byte %#x inside a string", c)
			return nil
		case c != '\\':
			s.buf = append(s.buf, c)
			continue
		}
		if s.i >= len(s.b) {
			break
		}
		c = s.b[s.i]
		s.i++
		switch c {
		case '"', '\\', '/':
			s.buf = append(s.buf, c)
		case 'b':
			s.buf = append(s.buf, '\b')
		case 'f':
			s.buf = append(s.buf, '\f')
		case 'n':
			s.buf = append(s.buf, '\n')
		case 'r':
			s.buf = append(s.buf, '\r')
		case 't':
			s.buf = append(s.buf, '\t')
		case 'u':
			r, ok := s.hex4()
			if ok && utf16.IsSurrogate(r) {
				if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
					s.i += 2
					var low rune
					low, ok = s.hex4()
					r = utf16.DecodeRune(r, low)
				} else {
					r = utf8.RuneError
				}
				if r == utf8.RuneError {
					s.fail("half a surrogate pair")
				}
			}
			if !ok || s.err != nil {
				return nil
			}
			s.buf = utf8.AppendRune(s.buf, r)
		default:
			s.fail("unknown escape \\%c", c)
			return nil
		}
	}
	s.fail("a string without end")
	return nil
}

func (s *jsonScanner) hex4() (rune, bool) {
	if s.i+4 > len(s.b) {
		s.fail("a \\u escape is cut short")
		return 0, false
	}
	v, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 16)
	if err != nil {
		s.fail("\\u%q is not four hexadecimal digits", s.b[s.i:s.i+4])
		return 0, false
	}
	s.i += 4
	return rune(v), true
}

// id reads a whole number below the vocabulary limit.
func (s *jsonScanner) id() uint32 {
	if c := s.peek(); c < '0' || c > '9' {
		s.fail("want an id, found %s", s.found())
		return 0
	}
	start := s.i
	v := uint32(0)
	for ; s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9'; s.i++ {
		if v = v*10 + uint32(s.b[s.i]-'0'); v >= maxVocab {
			s.fail("id is above the limit of %d", maxVocab-1)
			return 0
		}
	}
	if s.b[start] == '0' && s.i-start > 1 || s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|0x20 == 'e') {
		s.fail("an id must be a plain whole number")
	}
	return v
}

// word reads one of the given literals.
func (s *jsonScanner) word(words ...string) string {
	s.peek()
	for _, w := range words {
		if s.err == nil && len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
			s.i += len(w)
			return w
		}
	}
	s.fail("want one of %q, found %s", words, s.found())
	return ""
}

func (s *jsonScanner) bool() bool { return s.word("true", "false") == "true" }

// null reads null if it is next.
func (s *jsonScanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return s.err == nil
}

// raw skips one value of any kind, checks it, and returns its text.
func (s *jsonScanner) raw() []byte {
	c := s.peek()
	start := s.i
	switch {
	case c == '{':
		s.object(func(string) { s.raw() })
	case c == '[':
		s.array(func() { s.raw() })
	case c == '"':
		s.text()
	case c == '-' || c >= '0' && c <= '9':
		for s.i < len(s.b) && isNumberByte(s.b[s.i]) {
			s.i++
		}
		if _, err := strconv.ParseFloat(string(s.b[start:s.i]), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
			s.fail("bad number %q", s.b[start:s.i])
		}
	default:
		s.word("true", "false", "null")
	}
	if s.err != nil {
		return nil
	}
	return s.b[start:s.i]
}

func isNumberByte(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c|0x20 == 'e'
}

// end checks that nothing but white space is left.
func (s *jsonScanner) end() {
	s.peek()
	if s.err == nil && s.i < len(s.b) {
		s.fail("%s after the end of the value", s.found())
	}
}
