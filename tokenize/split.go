package tokenize

// splitter cuts text into pieces, a window at a time.
type splitter struct {
	fam   *family
	masks *maskScratch // nil where pieces come from the scanner
	win   []byte       // [windowBytes+windowPad] copy of the window and readable bytes after it
	ends  []uint32
	limit int // text in a window; windowBytes outside tests
}

func newSplitter(fam *family, masks bool) splitter {
	s := splitter{fam: fam, win: make([]byte, windowBytes+windowPad), limit: windowBytes}
	if masks {
		s.masks = &maskScratch{cased: fam.cased}
	} else {
		s.ends = make([]uint32, 0, windowBytes)
	}
	return s
}

// next finds the pieces at the start of text and returns how many bytes they take
// and where they end. The bytes are also at the start of s.win, so that reading
// windowPad bytes past a piece is safe. Without any end the first piece is longer
// than a window and n is its length. Both results are valid until the next call.
func (s *splitter) next(text []byte) (n int, ends []uint32) {
	n = copy(s.win[:s.limit], text)
	if s.masks != nil {
		ends = s.fam.masks(s.masks, s.win, n)
		if n == len(text) {
			return n, ends
		}
		if k := s.certain(ends, n); k > 0 {
			return int(ends[k-1]), ends[:k]
		}
	}
	return s.scan(text)
}

// scan does the same with the scanner, which sees the whole text.
func (s *splitter) scan(text []byte) (int, []uint32) {
	s.ends = s.ends[:0]
	for i := 0; i < len(text); {
		j := s.fam.next(text, i)
		if j > s.limit {
			if i == 0 {
				return j, nil
			}
			break
		}
		s.ends = append(s.ends, uint32(j))
		i = j
	}
	return int(s.ends[len(s.ends)-1]), s.ends
}

// certain returns how many of the ends in a window that is cut off after n bytes do
// not depend on what was cut off.
func (s *splitter) certain(ends []uint32, n int) int {
	for k := len(ends); k > 0; k-- {
		if q := int(ends[k-1]); q+certainMargin <= n && certainEnd(s.win[:n], q) {
			return k
		}
	}
	return 0
}

// certainMargin is how many bytes after an end must be known, at least, for it to be
// certain: a contraction or a character.
const certainMargin = 8

// certainEnd says whether the end of a piece at text[q] would be one whatever came
// after text, which goes on for certainMargin bytes or more.
//
// What decides an end lies in the runs of letters, numbers, white space and others
// before it, in the character at it, and in the few bytes of a contraction. So an end
// is certain if the character there is no part of a longer run of letters or white
// space that may go on: a number, punctuation, or a space before something that is
// no white space.
func certainEnd(text []byte, q int) bool {
	e, width := entryAt(text, q)
	switch class := e & classMask; {
	case class == classNumber, class == classOther && e&(flagUpper|flagLower) == 0:
		return true
	case class == classSpace:
		after, _ := classAt(text, q+width)
		return !isSpace(after)
	}
	return false
}
