package tokenize

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// ranks maps the pairs of a vocabulary to their ranks.
func ranks(t *Tokenizer) map[[2]uint32]int {
	rank := make(map[[2]uint32]int, len(t.merges))
	for i, m := range t.merges {
		rank[[2]uint32{m.left, m.right}] = i
	}
	return rank
}

// mergeNaive is byte pair encoding as it is defined: look at all pairs, merge the
// leftmost of lowest rank, start again.
func mergeNaive(t *Tokenizer, rank map[[2]uint32]int, w []byte) []uint32 {
	var s []uint32
	for _, c := range w {
		if id := t.table.byteID[c]; id != none {
			s = append(s, id)
		}
	}
	for {
		best, at := len(t.merges), -1
		for i := 0; i+1 < len(s); i++ {
			if r, ok := rank[[2]uint32{s[i], s[i+1]}]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return s
		}
		s[at] = t.merges[best].id
		s = slices.Delete(s, at+1, at+2)
	}
}

// unordered is a vocabulary whose ids are not in merge order, and in which two pairs
// make the same token, so that values are ranks and not ids.
func unordered(t testing.TB) *Tokenizer {
	tok := trainOn(t, "r50k", "mixed", 700)
	s := source{fam: tok.fam, bos: none, eos: none, added: slices.Clone(tok.added)}
	flip := func(id uint32) uint32 { return uint32(tok.VocabSize()) - id }
	for _, k := range tok.ordinary() {
		s.tokens = append(s.tokens, token{k.bytes, flip(k.id)})
	}
	for _, m := range tok.merges {
		s.merges = append(s.merges, merge{flip(m.left), flip(m.right), flip(m.id)})
	}
	// A second way to make some tokens: first byte and rest, where the rest is a token.
	for _, k := range tok.ordinary() {
		if len(k.bytes) < 3 {
			continue
		}
		if rest, ok := tok.find(k.bytes[1:]); ok {
			m := merge{flip(tok.table.byteID[k.bytes[0]]), flip(rest), flip(k.id)}
			if !slices.Contains(s.merges, m) {
				s.merges = append(s.merges, m)
			}
		}
	}
	out, err := build(s)
	if err != nil {
		t.Fatal(err)
	}
	if out.table.ids == nil {
		t.Fatal("the vocabulary is in order after all")
	}
	return out
}

// TestMergersAgree compares the short, heap and backtracking merges with the
// definition on pieces of all lengths.
func TestMergersAgree(t *testing.T) {
	toks := []*Tokenizer{trainOn(t, "r50k", "mixed", 2000), trainOn(t, "cl100k", "go", 1500), unordered(t)}
	rng := rand.New(rand.NewPCG(5, 6))
	alphabets := []string{"a", "ab", "aab ", "etaoin shr", "return fmt.", "\u4e2d\u6587", "0123456789", "\n\t ", "the and of "}
	backtracked := 0
	for k, tok := range toks {
		b := tok.backtracks()
		if (b != nil) != (k < 2) {
			t.Fatalf("vocabulary %d: backtracking is %v", k, b != nil)
		}
		var g merger
		rank := ranks(tok)
		rounds := 3000
		if testing.Short() {
			rounds = 500
		}
		for range rounds {
			n := 1 + rng.IntN(90)
			if rng.IntN(20) == 0 {
				n = 1 + rng.IntN(700)
			}
			var w []byte
			switch alpha := alphabets[rng.IntN(len(alphabets))]; rng.IntN(4) {
			case 0:
				for len(w) < n {
					w = append(w, byte(rng.Uint32()))
				}
			case 1: // tokens one after another, so that many merges apply
				for len(w) < n {
					w = append(w, tok.bytesOf(uint32(1+rng.IntN(tok.VocabSize()-1)))...)
				}
			default:
				for len(w) < n {
					w = append(w, alpha[rng.IntN(len(alpha))])
				}
			}
			want := mergeNaive(tok, rank, w)
			if got, _ := g.append(nil, tok.table, w, false); !slices.Equal(got, want) {
				t.Fatalf("vocabulary %d, append %q: got %v, want %v", k, w, got, want)
			}
			if got := g.appendHeap(nil, tok.table, w); !slices.Equal(got, want) {
				t.Fatalf("vocabulary %d, heap %q: got %v, want %v", k, w, got, want)
			}
			if b != nil {
				backtracked++
				if got, _ := g.appendBacktrack(nil, b, w); !slices.Equal(got, want) {
					t.Fatalf("vocabulary %d, backtracking %q: got %v, want %v", k, w, got, want)
				}
			}
		}
	}
	if backtracked < 1000 {
		t.Errorf("%d pieces were backtracked", backtracked)
	}
}

// TestHeapWork counts the entries of the heap: the pairs at the start and at most two
// for each merge, so n log n whatever the piece.
func TestHeapWork(t *testing.T) {
	tok := unordered(t)
	var g merger
	for _, unit := range []string{"a", "ab", " ", "the ", "\u4e2d"} {
		w := bytes.Repeat([]byte(unit), 50_000/len(unit))
		g.pushed = 0
		out := g.appendHeap(nil, tok.table, w)
		if limit := len(w) + 2*(len(w)-len(out)); g.pushed > limit {
			t.Errorf("%q: %d heap entries for %d bytes and %d merges", unit, g.pushed, len(w), len(w)-len(out))
		}
	}
}

// TestLongPieceWork counts the steps of backtracking on pieces of one length and of
// twice that: about twice the steps, never four times.
func TestLongPieceWork(t *testing.T) {
	shapes := map[string]func(n int) []byte{
		"letter":  func(n int) []byte { return bytes.Repeat([]byte("a"), n) },
		"two":     func(n int) []byte { return bytes.Repeat([]byte("ab"), n/2) },
		"spaces":  func(n int) []byte { return bytes.Repeat([]byte(" "), n) },
		"dashes":  func(n int) []byte { return bytes.Repeat([]byte("-"), n) },
		"chinese": func(n int) []byte { return bytes.Repeat([]byte("\u4e2d\u6587"), n/6) },
		"random": func(n int) []byte {
			rng := rand.New(rand.NewPCG(7, 8))
			w := make([]byte, n)
			for i := range w {
				w[i] = 'a' + byte(rng.IntN(26))
			}
			return w
		},
	}
	tok := trainOn(t, "cl100k", "mixed", 2500)
	b := tok.backtracks()
	if b == nil {
		t.Fatal("no backtracking")
	}
	const n = 1 << 16
	for name, shape := range shapes {
		var g merger
		_, w1 := g.appendBacktrack(nil, b, shape(n))
		_, w2 := g.appendBacktrack(nil, b, shape(2*n))
		if ratio := float64(w2) / float64(w1); ratio > 2.3 || w1 > 40*n {
			t.Errorf("%s: %d steps for %d bytes, %d for twice that (%.2f)", name, w1, n, w2, ratio)
		}
	}
}

// TestCraftedPairs: merges that all fall on one place of the table are refused
// instead of making every question slow.
func TestCraftedPairs(t *testing.T) {
	const n = 2 * maxProbing
	m := newMergeTable([256]uint32{}, n)
	added := 0
	for pair := uint64(0); pair < 1<<40; pair++ {
		if pair*golden64>>m.shift != 0 {
			continue
		}
		if _, err := m.add(uint32(pair>>20), uint32(pair&(1<<20-1)), uint32(added)); err != nil {
			if added != maxProbing+1 {
				t.Errorf("refused after %d pairs, want %d", added, maxProbing+1)
			}
			return
		}
		if added++; added == n {
			break
		}
	}
	t.Errorf("%d pairs on one place are accepted", added)
}

// TestSelf compares the quick answer to "does the token come out of its own bytes" with
// merging, on trained vocabularies and on random ones in which many do not.
func TestSelf(t *testing.T) {
	broke := 0
	check := func(name string, tok *Tokenizer) {
		h, ok := tok.halves()
		if !ok {
			t.Fatalf("%s: the method does not apply", name)
		}
		var g merger
		for _, k := range tok.ordinary() {
			quick, want := h.self(k.id, len(k.bytes)), tok.selfByMerging(k, &g)
			if quick != want {
				t.Fatalf("%s: token %d %q: %v, merging says %v", name, k.id, k.bytes, quick, want)
			}
			if !want {
				broke++
			}
		}
	}
	check("go", trainOn(t, "cl100k", "go", 900))
	check("mixed", trainOn(t, "r50k", "mixed", 900))
	fam, err := familyByName("r50k")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := source{fam: fam, bos: none, eos: none}
		for c := range 256 {
			s.tokens = append(s.tokens, token{[]byte{byte(c)}, uint32(c)})
		}
		have := map[string]bool{}
		few := []uint32{'a', 'b', 'c'}
		for len(s.merges) < 40 {
			l, m := few[r.IntN(len(few))], few[r.IntN(len(few))]
			name := string(s.tokens[l].bytes) + string(s.tokens[m].bytes)
			if have[name] || len(name) > 30 {
				if r.IntN(50) == 0 {
					break
				}
				continue
			}
			have[name] = true
			id := uint32(len(s.tokens))
			s.tokens = append(s.tokens, token{[]byte(name), id})
			s.merges = append(s.merges, merge{l, m, id})
			few = append(few, id)
		}
		tok, err := build(s)
		if err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprint("random ", seed), tok)
	}
	if broke < 100 {
		t.Errorf("only %d tokens that do not come out of their bytes were tried", broke)
	}
}
