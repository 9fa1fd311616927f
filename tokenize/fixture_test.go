package tokenize

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// readFixture reads a file of testdata written by bench/peers/tokenizers.
func readFixture(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) == ".gz" {
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := out.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		b = out.Bytes()
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// edgeStrings are the strings on which the peers were run.
func edgeStrings(t testing.TB) []string {
	var f struct{ Strings []string }
	readFixture(t, "edge.json", &f)
	if len(f.Strings) != 183 {
		t.Fatalf("%d edge strings, want 183", len(f.Strings))
	}
	return f.Strings
}

func corpusText(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "corpus", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// linesOf yields the lines of a text, each with its newline.
func linesOf(text []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for line := range bytes.Lines(text) {
			if !yield(line, nil) {
				return
			}
		}
	}
}

// docsOf yields documents in a buffer that is overwritten, as a careless source would.
func docsOf(docs ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var buf []byte
		for _, d := range docs {
			for i := range buf {
				buf[i] = '#'
			}
			buf = append(buf[:0], d...)
			if !yield(buf, nil) {
				return
			}
		}
	}
}

// trainOn trains a small vocabulary for tests that need any.
func trainOn(t testing.TB, family, corpus string, vocab int) *Tokenizer {
	t.Helper()
	tok, err := Train(t.Context(), TrainConfig{Vocab: vocab, Family: family}, linesOf(corpusText(t, corpus)))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func mustDecode(t testing.TB, tok *Tokenizer, ids []uint32) []byte {
	t.Helper()
	b, err := tok.Decode(nil, ids)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func equalIDs(t testing.TB, label string, got, want []uint32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: ids\n got %v\nwant %v", label, got, want)
	}
}
