package tokenize

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// nasty are the symbols on which the patterns differ: contractions and their
// foldings, every kind of white space, numbers and letters of many widths, marks,
// symbols, and bytes that are no text.
var nasty = []string{
	"a", "Z", "b", "s", "t", "l", "L", "r", "e", "'", "'", "1", "2", "9", " ", " ", "\n", "\n", "\r", "\t", "\x0b",
	".", "(", "/", "_", "é", "中", "文", "\u00a0", "\u3000", "\u0085", "٣", "²", "\u0301", "👍", "—", "ſ", "\u200d",
	"\ufeff", "\x00", "\u2028", "ß", "ǅ", "ʰ", "\U0001d7ce", "\xff", "\xed\xa0\xbd", "\xe4\xb8", "\x7f", "\u0e31",
	"É", "ж", "K", "/",
}

// nastyText is a random text over a few of the symbols, with long runs.
func nastyText(rng *rand.Rand, size int) []byte {
	sub := make([]string, 2+rng.IntN(8))
	for i := range sub {
		sub[i] = nasty[rng.IntN(len(nasty))]
	}
	var b []byte
	for len(b) < size {
		s := sub[rng.IntN(len(sub))]
		run := 1
		if rng.IntN(4) == 0 {
			run = 1 + rng.IntN(70)
		}
		for ; run > 0; run-- {
			b = append(b, s...)
		}
	}
	return b
}

// scanEnds is the definition: the scanner on the whole text.
func scanEnds(fam *family, text []byte) []int {
	var ends []int
	for i := 0; i < len(text); {
		i = fam.next(text, i)
		ends = append(ends, i)
	}
	return ends
}

// splitEnds goes through the splitter.
func splitEnds(s *splitter, text []byte) []int {
	var ends []int
	for at := 0; at < len(text); {
		n, part := s.next(text[at:])
		if part == nil {
			ends = append(ends, at+n)
		}
		for _, e := range part {
			ends = append(ends, at+int(e))
		}
		at += n
	}
	return ends
}

// numRounds is the number of random texts for each pattern.
var numRounds = flag.Int("rounds", 12_000, "random texts for each split pattern")

// TestMasksEqualScanner compares both ways to split on random texts of all sizes
// around whole words, with random bytes after the end, and with small windows so
// that cuts fall everywhere.
func TestMasksEqualScanner(t *testing.T) {
	rounds := *numRounds
	if testing.Short() {
		rounds = min(rounds, 2_000)
	}
	for _, name := range []string{"r50k", "cl100k", "o200k"} {
		fam, err := familyByName(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			s := newSplitter(fam, true)
			for range rounds {
				size := 1 + rng.IntN(200)
				if rng.IntN(4) == 0 {
					size = 64*(1+rng.IntN(4)) - 2 + rng.IntN(5)
				}
				text := nastyText(rng, size)
				for i := range s.win {
					s.win[i] = byte(rng.Uint32()) // whatever the last window left behind
				}
				s.limit = windowBytes
				if rng.IntN(2) == 0 {
					s.limit = 64 + rng.IntN(130)
				}
				want := scanEnds(fam, text)
				if got := splitEnds(&s, text); !slices.Equal(got, want) {
					k := 0
					for k < len(got) && k < len(want) && got[k] == want[k] {
						k++
					}
					t.Fatalf("window %d, %d bytes %q: end %d differs:\n got %v\nwant %v", s.limit, len(text), text, k, got[k:min(k+5, len(got))], want[k:min(k+5, len(want))])
				}
			}
		})
	}
}

// TestEveryRune puts code points, all below U+3400 and then every fifth, between letters, numbers, spaces and newlines.
func TestEveryRune(t *testing.T) {
	frames := []string{"a%cb", "1%c2", " %c ", "\n%c\n", "'%c", ".%c", "%c"}
	step := rune(5)
	if testing.Short() {
		step = 17
	}
	for _, name := range []string{"r50k", "cl100k", "o200k"} {
		fam, err := familyByName(name)
		if err != nil {
			t.Fatal(err)
		}
		s := newSplitter(fam, true)
		var text []byte
		for r := rune(0); r <= 0x10ffff; r++ {
			if r >= 0x3400 {
				r += step - 1
			}
			if r >= 0x33480 && r < 0xe0000 {
				r = 0xe0000 // nothing between is assigned
			}
			text = text[:0]
			for _, f := range frames {
				text = fmt.Appendf(text, f, r)
			}
			if want, got := scanEnds(fam, text), splitEnds(&s, text); !slices.Equal(got, want) {
				t.Fatalf("%s U+%04X: got %v, want %v", name, r, got, want)
			}
		}
	}
}

// TestClassifyEqualsReference checks the assembly on all bytes at all places.
func TestClassifyEqualsReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 8
	var text [64 * n]byte
	var got, want [n]classBlock
	for round := range 2000 {
		for i := range text {
			switch round % 3 {
			case 0:
				text[i] = byte(rng.Uint32())
			case 1:
				text[i] = byte(i + round)
			default:
				text[i] = nasty[rng.IntN(21)][0]
			}
		}
		for k := range got {
			got[k] = classBlock{inner: 5} // not its field
			want[k] = classBlock{inner: 5}
		}
		classify(&text[0], n, &got[0])
		classifyGo(text[:], want[:])
		if got != want {
			t.Fatalf("round %d: classes differ for %x", round, text)
		}
		var gotCase, wantCase [n]caseBlock
		for k := range gotCase {
			gotCase[k] = caseBlock{both: 5, doubt: 6} // not its fields
			wantCase[k] = gotCase[k]
		}
		classifyCase(&text[0], n, &gotCase[0])
		classifyCaseGo(text[:], wantCase[:])
		if gotCase != wantCase {
			t.Fatalf("round %d: cases differ for %x", round, text)
		}
	}
}
