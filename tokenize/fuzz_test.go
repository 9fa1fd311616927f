package tokenize

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzTokenizerJSON: whatever is accepted can be written, read again with the same
// hash, and used.
func FuzzTokenizerJSON(f *testing.F) {
	f.Add([]byte(tinyJSON()))
	f.Add([]byte(tinyJSON(`"abc": 257`, `"abc": 257, "<|eos|>": 258`)))
	f.Add([]byte(tinyJSON(`"<|eos|>", "single_word": false, "lstrip": false`, `" \u00e9\"", "single_word": true, "lstrip": true`)))
	f.Add([]byte(`{"model":{"vocab":{},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}}`))
	saved, err := os.ReadFile(filepath.Join("testdata", "hf_saved.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(saved)
	f.Fuzz(func(t *testing.T, doc []byte) {
		tok, err := LoadWith(bytes.NewReader(doc), LoadOptions{AllowMissingBytes: true})
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := tok.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		back, err := LoadWith(&out, LoadOptions{AllowMissingBytes: true})
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		if back.Hash() != tok.Hash() {
			t.Fatal("the hash changes in writing and reading")
		}
		useAny(t, tok)
	})
}

// useAny encodes and decodes with a vocabulary of unknown content.
func useAny(t *testing.T, tok *Tokenizer) {
	text := []byte("the abcab of \u4e2d\u6587 don't <|eos|>\n\n  x" + strings.Repeat("ab", 300))
	e := tok.NewEncoder(1)
	ids := e.Append(nil, text)
	for _, id := range ids {
		if tok.special[id] {
			t.Fatalf("text yields the special id %d", id)
		}
	}
	for _, ids := range [][]uint32{ids, e.AppendSpecial(nil, text)} {
		b, err := tok.Decode(nil, ids)
		if err != nil {
			t.Fatal(err)
		}
		if e.Dropped() == 0 && !bytes.Equal(b, text) {
			for _, a := range tok.added {
				if a.LStrip || a.RStrip { // these swallow white space
					return
				}
			}
			t.Fatalf("%q comes back as %q", text, b)
		}
	}
}

// FuzzTiktoken does the same for rank files.
func FuzzTiktoken(f *testing.F) {
	f.Add([]byte(rankFile()), "<|eos|>")
	f.Add([]byte(rankFile(base64Of("ab")+" 256", base64Of("abc")+" 257", base64Of("xyz")+" 300")), "")
	f.Add([]byte("YQ== 0\r\n\r\nYg== 1"), "\n")
	f.Fuzz(func(t *testing.T, doc []byte, special string) {
		var specials map[string]uint32
		if special != "" {
			specials = map[string]uint32{special: 70000}
		}
		tok, err := LoadTiktoken(bytes.NewReader(doc), "cl100k", specials)
		if err != nil {
			return
		}
		var js, tk bytes.Buffer
		if err := tok.WriteJSON(&js); err != nil {
			t.Fatal(err)
		}
		back, err := Load(&js)
		if err != nil {
			t.Fatalf("tokenizer.json of a rank file is refused: %v", err)
		}
		if back.Hash() != tok.Hash() {
			t.Fatal("the hash changes in writing and reading")
		}
		if err := tok.WriteTiktoken(&tk); err != nil {
			t.Fatalf("ranks that were read cannot be written: %v", err)
		}
		again, err := LoadTiktoken(&tk, "cl100k", specials)
		if err != nil || again.Hash() != tok.Hash() {
			t.Fatalf("ranks written and read again differ: %v", err)
		}
		useAny(t, tok)
	})
}

// FuzzEncode: all paths give the same ids, the text comes back, and a document
// encodes the same whatever lies behind it.
func FuzzEncode(f *testing.F) {
	for _, s := range edgeStrings(f) {
		f.Add([]byte(s), uint8(70))
	}
	f.Add([]byte("\xff\xfe\xed\xa0\xbd x \xf0\x9f"), uint8(64))
	toks := map[string]*Tokenizer{}
	encoders := map[string][2]*Encoder{}
	for _, family := range []string{"r50k", "cl100k", "o200k"} {
		tok := trainOn(f, family, "mixed", 1500)
		toks[family] = tok
		encoders[family] = [2]*Encoder{newEncoder(tok, 1, true), newEncoder(tok, 0, false)}
	}
	f.Fuzz(func(t *testing.T, text []byte, window uint8) {
		for _, family := range []string{"r50k", "cl100k", "o200k"} {
			e := encoders[family]
			e[0].split.limit = 64 + int(window)
			whole := append(slices.Clone(text), "garbage behind"...)
			a := e[0].Append(nil, whole[:len(text)])
			b := e[1].Append(nil, text)
			if !slices.Equal(a, b) {
				t.Fatalf("%s %q: masks give %v, the scanner %v", family, text, a, b)
			}
			if got := mustDecode(t, toks[family], a); !bytes.Equal(got, text) {
				t.Fatalf("%s %q comes back as %q", family, text, got)
			}
			d := toks[family].NewDecoder()
			var out []byte
			for _, id := range a {
				var err error
				if out, err = d.Append(out, id); err != nil {
					t.Fatal(err)
				}
			}
			if utf8.Valid(text) && !bytes.Equal(out, text) || !bytes.Equal(d.Flush(out), text) {
				t.Fatalf("%s %q: streaming gives %q", family, text, out)
			}
		}
	})
}
