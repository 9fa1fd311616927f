package tokenize

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// reference encodes by the definition: scanner, naive merging, no cache.
func reference(t *Tokenizer, rank map[[2]uint32]int, text []byte) []uint32 {
	var out []uint32
	for i := 0; i < len(text); {
		j := t.fam.next(text, i)
		if id, ok := t.find(text[i:j]); ok && t.wholePiece {
			out = append(out, id)
		} else {
			out = append(out, mergeNaive(t, rank, text[i:j])...)
		}
		i = j
	}
	return out
}

// TestEncoderEqualsReference runs both paths, with large and with tiny caches, over
// random texts; every text is encoded twice, so that the second time the cache answers.
func TestEncoderEqualsReference(t *testing.T) {
	whole := trainOn(t, "cl100k", "go", 900)
	whole.wholePiece = true
	toks := []*Tokenizer{
		trainOn(t, "r50k", "mixed", 1500), trainOn(t, "cl100k", "mixed", 1500), trainOn(t, "o200k", "go", 1000), unordered(t), whole,
	}
	for k, tok := range toks {
		rank := ranks(tok)
		rng := rand.New(rand.NewPCG(9, uint64(k)))
		encoders := map[string]*Encoder{
			"masks": newEncoder(tok, 0, true), "scanner": newEncoder(tok, 0, false), "small cache": newEncoder(tok, 1, true),
		}
		rounds := 1000
		if testing.Short() {
			rounds = 200
		}
		for range rounds {
			text := nastyText(rng, 1+rng.IntN(300))
			if rng.IntN(3) == 0 {
				c := corpusText(t, "mixed")
				at := rng.IntN(len(c) - 400)
				text = c[at : at+rng.IntN(400)]
			}
			want := reference(tok, rank, text)
			for name, e := range encoders {
				for range 2 {
					if got := e.Append(nil, text); !slices.Equal(got, want) {
						t.Fatalf("vocabulary %d, %s, %q: got %v, want %v", k, name, text, got, want)
					}
				}
			}
			if b := mustDecode(t, tok, want); !bytes.Equal(b, text) {
				t.Fatalf("vocabulary %d: %q decodes to %q", k, text, b)
			}
		}
	}
}

// TestEncodeWholeCorpora compares both paths on texts much longer than a window.
func TestEncodeWholeCorpora(t *testing.T) {
	for _, family := range []string{"r50k", "cl100k", "o200k"} {
		tok := trainOn(t, family, "mixed", 2000)
		for _, corpus := range []string{"go", "mixed"} {
			text := corpusText(t, corpus)
			text = bytes.Repeat(text, 1+500_000/len(text))
			a := newEncoder(tok, 0, true).Append(nil, text)
			b := newEncoder(tok, 0, false).Append(nil, text)
			if !slices.Equal(a, b) {
				t.Errorf("%s %s: masks and scanner give different ids", family, corpus)
			}
			if !bytes.Equal(mustDecode(t, tok, a), text) {
				t.Errorf("%s %s: the text does not come back", family, corpus)
			}
		}
	}
}

// TestCacheBudget fills small caches with distinct pieces of all lengths and looks at
// what they take.
func TestCacheBudget(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 600)
	for _, budget := range []int{1, 1 << 20, 4 << 20} {
		e := tok.NewEncoder(budget)
		plain := newEncoder(tok, 64<<20, false)
		rng := rand.New(rand.NewPCG(10, 11))
		for round := range 60 {
			var text []byte
			for len(text) < 100_000 {
				for n := 1 + rng.IntN(40); n > 0; n-- {
					text = append(text, 'a'+byte(rng.IntN(26)))
				}
				text = append(text, ' ')
			}
			got := e.Append(nil, text)
			if round%20 == 0 && !slices.Equal(got, plain.Append(nil, text)) {
				t.Fatalf("budget %d: ids depend on the cache", budget)
			}
			limit := max(budget, 128<<10)
			if size := cacheBytes(e); size > limit {
				t.Fatalf("budget %d: the cache has %d bytes", budget, size)
			}
		}
		if e.cache.wipes == 0 {
			t.Errorf("budget %d: 6 MB of distinct words never filled the cache", budget)
		}
	}
}

// cacheBytes is the memory of the cache, in use or kept.
func cacheBytes(e *Encoder) int {
	c := &e.cache
	size := 4*pageSlots*len(c.pages) + entryBytes*cap(c.recent)
	for _, b := range c.blocks {
		size += 8 * cap(b)
	}
	return size
}

// uniqueMB is the text of TestUniqueWords; 1024 is what the budget is promised for.
var uniqueMB = flag.Int("unique-mb", 12, "megabytes of words that do not come again")

// TestUniqueWords: words that never come again fill the cache over and over. It stays
// within its budget, ids are those without a cache, and once it has its memory nothing
// more is allocated.
func TestUniqueWords(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 600)
	const budget = 1 << 20
	e := tok.NewEncoder(budget)
	word := uint64(0)
	text := make([]byte, 0, 80<<10)
	dst := make([]uint32, 0, 100<<10)
	fill := func() {
		text = text[:0]
		for len(text) < 64<<10 {
			word++
			// Eight letters that are different for each word, and up to forty more.
			text = append(text, ' ')
			for k, w := 0, word*golden64; k < 8+int(word%5)*10; k++ {
				text = append(text, 'a'+byte(w>>(4*(k&15))&15))
			}
		}
	}
	for done := 0; done < *uniqueMB<<20; done += len(text) {
		fill()
		dst = e.Append(dst[:0], text)
		if size := cacheBytes(e); size > budget {
			t.Fatalf("%d bytes in the cache after %d of text; the budget is %d", size, done, budget)
		}
		if done>>22 != (done+len(text))>>22 {
			if !slices.Equal(dst, newEncoder(tok, 0, false).Append(nil, text)) {
				t.Fatalf("ids depend on the cache after %d bytes", done)
			}
		}
	}
	if e.cache.wipes < 10 {
		t.Fatalf("the cache was emptied %d times: not a test of that", e.cache.wipes)
	}
	n := testing.AllocsPerRun(10, func() {
		fill()
		dst = e.Append(dst[:0], text)
	})
	if n != 0 {
		t.Errorf("%v allocations for 64 KB of new words in a cache that has its memory", n)
	}
}

// TestCacheBudgetShift: memory that the one kind of content took is given to the other.
func TestCacheBudgetShift(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 600)
	e := tok.NewEncoder(1)
	rng := rand.New(rand.NewPCG(15, 16))
	for round, from := range []string{"abcdefgh", "etaoinsr", "e"} {
		for range 100 {
			var text []byte
			for range 20 {
				for n := 6 + rng.IntN(9) + round%2*200; n > 0; n-- {
					text = append(text, from[rng.IntN(len(from))]^byte(round&1)<<5)
				}
				text = append(text, ' ')
			}
			got := e.Append(nil, text)
			if size := cacheBytes(e); size > minBudget {
				t.Fatalf("round %d: %d bytes in a cache of %d", round, size, minBudget)
			}
			if !slices.Equal(got, newEncoder(tok, 0, false).Append(nil, text)) {
				t.Fatalf("round %d: ids depend on the cache", round)
			}
		}
	}
	if e.cache.wipes == 0 {
		t.Error("the cache never was full")
	}
}

// TestAppendAllocates nothing in steady state.
func TestAppendAllocates(t *testing.T) {
	for _, family := range []string{"r50k", "cl100k", "o200k"} {
		tok := trainOn(t, family, "go", 900)
		var docs [][]byte
		for doc := range bytes.SplitSeq(corpusText(t, "mixed"), []byte("\n\n")) {
			docs = append(docs, doc)
		}
		for _, masks := range []bool{true, false} {
			e := newEncoder(tok, 0, masks)
			dst := make([]uint32, 0, 1<<16)
			all := func() {
				for _, d := range docs {
					dst = e.Append(dst[:0], d)
				}
			}
			all()
			if n := testing.AllocsPerRun(5, all); n != 0 {
				t.Errorf("%s masks=%v: %v allocations for %d documents", family, masks, n, len(docs))
			}
		}
	}
}

// TestConcurrentEncoders shares one tokenizer among workers; -race watches.
func TestConcurrentEncoders(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 900)
	text := append(corpusText(t, "mixed"), strings.Repeat("x", 1000)...)
	want := tok.NewEncoder(0).Append(nil, text)
	fresh, err := Load(bytes.NewReader(jsonBytes(t, tok)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := fresh.NewEncoder(1<<20).Append(nil, text); !slices.Equal(got, want) {
				t.Error("a worker gives other ids")
			}
			if fresh.Hash() != tok.Hash() {
				t.Error("a worker sees another hash")
			}
		})
	}
	wg.Wait()
}

func jsonBytes(t testing.TB, tok *Tokenizer) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tok.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestTextNeverBecomesSpecial encodes texts made of the parts of special tokens.
func TestTextNeverBecomesSpecial(t *testing.T) {
	tok, err := Train(t.Context(), TrainConfig{Vocab: 600, Specials: []string{"<|endoftext|>", "<|im_start|>", "\u2581", "  "}}, linesOf(corpusText(t, "go")))
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{"<|endoftext|>", "<|", "|>", "endoftext", "<|im_start|>", "\u2581", "  ", " ", "\n", "x"}
	rng := rand.New(rand.NewPCG(12, 13))
	e := tok.NewEncoder(0)
	found := false
	for range 3000 {
		var text []byte
		for n := rng.IntN(8); n >= 0; n-- {
			text = append(text, parts[rng.IntN(len(parts))]...)
		}
		for _, id := range e.Append(nil, text) {
			if tok.special[id] {
				t.Fatalf("%q yields the special id %d", text, id)
			}
		}
		with := e.AppendSpecial(nil, text)
		for _, id := range with {
			found = found || tok.special[id]
		}
		if b := mustDecode(t, tok, with); !bytes.Equal(b, text) {
			t.Fatalf("%q comes back as %q", text, b)
		}
	}
	if !found {
		t.Error("AppendSpecial never found a special token")
	}
}

// TestSingleBytes: every byte has at least one id and comes back, alone and in pairs.
func TestSingleBytes(t *testing.T) {
	for _, family := range []string{"r50k", "cl100k", "o200k"} {
		tok := trainOn(t, family, "go", 600)
		e := tok.NewEncoder(0)
		var got []uint32
		for a := range 256 {
			for b := range 257 {
				text := []byte{byte(a), byte(b)}
				if b == 256 {
					text = text[:1]
				}
				got = e.Append(got[:0], text)
				if len(got) == 0 || !bytes.Equal(mustDecode(t, tok, got), text) {
					t.Fatalf("%s %x: ids %v", family, text, got)
				}
			}
		}
	}
}

// TestMissingBytes: what no token covers is dropped and counted, also from the cache.
func TestMissingBytes(t *testing.T) {
	cfg := TrainConfig{Vocab: 100, AlphabetFromData: true}
	tok, err := Train(t.Context(), cfg, docsOf("hello world, hello", "low hell"))
	if err != nil {
		t.Fatal(err)
	}
	if tok.MissingBytes() != 247 {
		t.Errorf("%d bytes are missing", tok.MissingBytes())
	}
	doc := jsonBytes(t, tok)
	if _, err := Load(bytes.NewReader(doc)); err == nil {
		t.Error("Load accepts a vocabulary without all bytes")
	}
	back, err := LoadWith(bytes.NewReader(doc), LoadOptions{AllowMissingBytes: true})
	if err != nil {
		t.Fatal(err)
	}
	e := back.NewEncoder(0)
	for k := range 3 {
		got := mustDecode(t, back, e.Append(nil, []byte("hello zebra\n")))
		if string(got) != "hello er" || e.Dropped() != int64(4*(k+1)) {
			t.Errorf("round %d: %q with %d dropped", k, got, e.Dropped())
		}
	}
}

func TestDecode(t *testing.T) {
	tok, err := Load(strings.NewReader(tinyJSON(`"abc": 257`, `"abc": 257, "zz": 300`)))
	if err != nil {
		t.Fatal(err)
	}
	if b := mustDecode(t, tok, []uint32{256, 257, 258, 300, 'x'}); string(b) != "ababc<|eos|>zzx" {
		t.Errorf("decoded %q", b)
	}
	for _, bad := range []uint32{259, 299, 301, none} {
		dst := []byte("kept")
		got, err := tok.Decode(dst, []uint32{'a', bad})
		if !errors.Is(err, ErrUnknownID) || !strings.Contains(err.Error(), "position 1") || string(got) != "kept" {
			t.Errorf("id %d: %q, %v", bad, got, err)
		}
		if _, ok := tok.TokenBytes(bad); ok {
			t.Errorf("id %d has bytes", bad)
		}
	}
}

// TestDecoder streams ids and checks that characters come out whole and once.
func TestDecoder(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 300)
	e := tok.NewEncoder(0)
	for _, text := range []string{"plain", "\U0001f468\u200d\U0001f469\u200d\U0001f467 x", "中文é", "a\xffb", "cut \xe4\xb8", "\xf0\x9f\x91", "\xed\xa0\xbd", "\xf4\x90\x80\x80", "\xc0\xaf"} {
		d := tok.NewDecoder()
		var out []byte
		for _, id := range e.Append(nil, []byte(text)) {
			from := len(out)
			var err error
			if out, err = d.Append(out, id); err != nil {
				t.Fatal(err)
			}
			if utf8.ValidString(text) && !utf8.Valid(out[from:]) {
				t.Errorf("%q: a part of a character came out: %x", text, out[from:])
			}
		}
		if len(text)-len(out) > 3 {
			t.Errorf("%q: more than a character is held back: %q", text, out)
		}
		before := len(out)
		if out = d.Flush(out); string(out) != text {
			t.Errorf("%q came out as %q", text, out)
		}
		if utf8.ValidString(text) && len(out) != before {
			t.Errorf("%q: %d bytes were held back at the end", text, len(out)-before)
		}
		if _, err := d.Append(nil, none); !errors.Is(err, ErrUnknownID) {
			t.Errorf("unknown id: %v", err)
		}
	}
}

// TestRoom: with the room that Append asks for, dst is never moved.
func TestRoom(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 600)
	e := tok.NewEncoder(0)
	for _, text := range [][]byte{[]byte("x"), bytes.Repeat([]byte("\xff"), 100), bytes.Repeat([]byte("a b "), 9000), bytes.Repeat([]byte("q"), 30000)} {
		dst := make([]uint32, 3, 3+len(text)+4)
		got := e.Append(dst, text)
		if &got[0] != &dst[0] {
			t.Errorf("%d bytes: dst was moved", len(text))
		}
		if fmt.Sprint(got[:3]) != "[0 0 0]" {
			t.Errorf("%d bytes: what was in dst changed", len(text))
		}
	}
}
