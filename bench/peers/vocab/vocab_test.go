package vocab

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"refrain/tokenize"
)

var llama3 = flag.String("llama3", "", "tokenizer.json of Llama 3")

// specials are the special tokens that tiktoken keeps in its source.
var specials = map[string]map[string]uint32{
	"r50k":   {"<|endoftext|>": 50256},
	"cl100k": {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276},
	"o200k":  {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
}

var families = []string{"r50k", "cl100k", "o200k"}

// loaded keeps the vocabularies, each of which takes a second to load under load.
var loaded = map[string]func() (*tokenize.Tokenizer, error){
	"r50k":   sync.OnceValues(func() (*tokenize.Tokenizer, error) { return load("r50k") }),
	"cl100k": sync.OnceValues(func() (*tokenize.Tokenizer, error) { return load("cl100k") }),
	"o200k":  sync.OnceValues(func() (*tokenize.Tokenizer, error) { return load("o200k") }),
}

func ranks(family string) ([]byte, error) { return assets.Assets.ReadFile(family + "_base.tiktoken") }

func load(family string) (*tokenize.Tokenizer, error) {
	b, err := ranks(family)
	if err != nil {
		return nil, err
	}
	return tokenize.LoadTiktoken(bytes.NewReader(b), family, specials[family])
}

func get(t testing.TB, family string) *tokenize.Tokenizer {
	t.Helper()
	tok, err := loaded[family]()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type golden struct {
	Strings []string
	R50k    [][]uint32 `json:"r50k_base"`
	CL100k  [][]uint32 `json:"cl100k_base"`
	O200k   [][]uint32 `json:"o200k_base"`
	Llama3  [][]uint32
}

func readGolden(t *testing.T) golden {
	f, err := os.Open("golden.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	if len(g.Strings) != 183 {
		t.Fatalf("%d strings", len(g.Strings))
	}
	return g
}

func compare(t *testing.T, tok *tokenize.Tokenizer, texts []string, want [][]uint32) {
	t.Helper()
	if len(want) != len(texts) {
		t.Fatalf("%d answers for %d texts", len(want), len(texts))
	}
	e := tok.NewEncoder(0)
	for pass := range 2 { // the second time from the cache
		for i, s := range texts {
			if got := e.Append(nil, []byte(s)); !slices.Equal(got, want[i]) {
				t.Errorf("pass %d %q: got %v, want %v", pass, s, got, want[i])
			}
		}
	}
	for i, s := range texts {
		b, err := tok.Decode(nil, want[i])
		if err != nil || string(b) != s {
			t.Errorf("%q decodes to %q (%v)", s, b, err)
		}
	}
}

func TestGolden(t *testing.T) {
	g := readGolden(t)
	for family, want := range map[string][][]uint32{"r50k": g.R50k, "cl100k": g.CL100k, "o200k": g.O200k} {
		t.Run(family, func(t *testing.T) { compare(t, get(t, family), g.Strings, want) })
	}
}

func TestGoldenLlama3(t *testing.T) {
	if *llama3 == "" {
		t.Skip("no -llama3 file given")
	}
	b, err := os.ReadFile(*llama3)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	tok, err := tokenize.Load(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loaded in %v: %d ids, %d merges, %d out of reach", time.Since(start), tok.VocabSize(), tok.NumMerges(), tok.Unreachable())
	g := readGolden(t)
	compare(t, tok, g.Strings, g.Llama3)
	compare(t, tok, []string{" Vi\u1ec7t", "!\u0085", "\n\nx"}, [][]uint32{{101798}, {0, 116360}, {271, 87}})
	if tok.Unreachable() != 588 {
		t.Errorf("%d tokens out of reach, want 588", tok.Unreachable())
	}
	if bos, ok := tok.BOS(); !ok || bos != 128000 {
		t.Errorf("BOS %d %v", bos, ok)
	}
	var out bytes.Buffer
	if err := tok.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	back, err := tokenize.Load(&out)
	if err != nil {
		t.Fatal(err)
	}
	if back.Hash() != tok.Hash() {
		t.Error("written and read again, the hash differs")
	}
}

// TestReports are answers to bug reports about other tokenizers.
func TestReports(t *testing.T) {
	for _, c := range []struct {
		family, text string
		want         []uint32
	}{
		{"cl100k", "\n \n", []uint32{27907}},
		{"o200k", "\n \n", []uint32{47812}},
		{"cl100k", "a\n \n  \n   b", []uint32{64, 27907, 2355, 256, 293}},
		{"r50k", "\x7f", []uint32{221}},
		{"cl100k", "\x7f", []uint32{221}},
		{"cl100k", "\ufeffabc", []uint32{3305, 13997}},
		{"o200k", "\ufeffabc", []uint32{5574, 26682}},
		{"cl100k", "a\r\n\r\nb", []uint32{64, 881, 65}},
		{"cl100k", "\x00", []uint32{188}},
		{"cl100k", "  ", []uint32{256}},
		{"r50k", "<|endoftext|>", []uint32{27, 91, 437, 1659, 5239, 91, 29}},
	} {
		tok := get(t, c.family)
		if got := tok.NewEncoder(0).Append(nil, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: got %v, want %v", c.family, c.text, got, c.want)
		}
	}
	r50k := get(t, "r50k")
	if got := r50k.NewEncoder(0).AppendSpecial(nil, []byte("<|endoftext|>")); !slices.Equal(got, []uint32{50256}) {
		t.Errorf("special: got %v", got)
	}
	cl100k := get(t, "cl100k")
	if cl100k.VocabSize() != 100277 {
		t.Errorf("cl100k has size %d", cl100k.VocabSize())
	}
	for _, hole := range []uint32{100256, 100261, 100275, 100277, 1 << 31} {
		if _, err := cl100k.Decode(nil, []uint32{hole}); !errors.Is(err, tokenize.ErrUnknownID) {
			t.Errorf("id %d decodes with %v", hole, err)
		}
	}
	for _, family := range families {
		if n := get(t, family).Unreachable(); n != 0 {
			t.Errorf("%s: %d tokens out of reach", family, n)
		}
	}
}

// TestLongRuns encodes pieces without a place to split.
func TestLongRuns(t *testing.T) {
	for _, c := range []struct {
		family, unit string
		units, want  int
	}{
		{"cl100k", "a", 1_000_000, 125_000},
		{"r50k", "^", 1_000_000, 250_000},
		{"cl100k", "^", 1_000_000, 250_000},
		{"cl100k", "_", 1_000_000, 15_625},
		{"cl100k", " ", 1_000_000, 7_813},
		{"cl100k", "0", 1_000_000, 333_334},
		{"cl100k", "a", 50_000_000, 6_250_000},
	} {
		if testing.Short() && c.units > 1_000_000 {
			continue
		}
		tok := get(t, c.family)
		e := tok.NewEncoder(0)
		text := bytes.Repeat([]byte(c.unit), c.units)
		e.Append(nil, text[:1000]) // tables that are made when first needed
		start := time.Now()
		got := len(e.Append(nil, text))
		t.Logf("%s %d of %q: %d ids in %v", c.family, c.units, c.unit, got, time.Since(start))
		if got != c.want {
			t.Errorf("%s: %d of %q give %d ids, want %d", c.family, c.units, c.unit, got, c.want)
		}
	}
}

// TestExport writes each vocabulary in both forms and reads it back.
func TestExport(t *testing.T) {
	texts := append(readGolden(t).Strings, strings.Repeat("x  y\n\n\t", 50))
	for _, family := range families {
		tok := get(t, family)
		var js, tk bytes.Buffer
		if err := tok.WriteJSON(&js); err != nil {
			t.Fatal(err)
		}
		if err := tok.WriteTiktoken(&tk); err != nil {
			t.Fatal(err)
		}
		original, err := ranks(family)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(tk.Bytes()), bytes.TrimSpace(original)) {
			t.Errorf("%s: the rank file written differs from the one read", family)
		}
		back, err := tokenize.Load(&js)
		if err != nil {
			t.Fatal(err)
		}
		if back.Hash() != tok.Hash() || back.Family() != tok.Family() {
			t.Errorf("%s: hash or family differ after tokenizer.json", family)
		}
		a, b := tok.NewEncoder(0), back.NewEncoder(0)
		for _, s := range texts {
			if x, y := a.AppendSpecial(nil, []byte(s)), b.AppendSpecial(nil, []byte(s)); !slices.Equal(x, y) {
				t.Errorf("%s %q: %v and %v", family, s, x, y)
			}
		}
	}
}

// BenchmarkEncode encodes the Go sources next to the compiler in documents of about
// 8 KB: cold with a new encoder each time, warm with one that has seen them.
func BenchmarkEncode(b *testing.B) {
	docs, total := goSources(b)
	for _, family := range families {
		tok := get(b, family)
		for _, warm := range []bool{false, true} {
			b.Run(fmt.Sprintf("family=%s/warm=%v", family, warm), func(b *testing.B) {
				b.SetBytes(total)
				var dst []uint32
				e := tok.NewEncoder(0)
				for _, d := range docs {
					dst = e.Append(dst[:0], d)
				}
				for b.Loop() {
					if !warm {
						b.StopTimer()
						e = tok.NewEncoder(0)
						b.StartTimer()
					}
					for _, d := range docs {
						dst = e.Append(dst[:0], d)
					}
				}
			})
		}
	}
}
