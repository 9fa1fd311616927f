package tokenize

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestJSONRoundTrip writes every trained vocabulary, reads it back, and expects the
// same bytes and the same ids.
func TestJSONRoundTrip(t *testing.T) {
	edge := edgeStrings(t)
	for _, run := range hfRuns(t) {
		tok, err := Train(t.Context(), run.config(), linesOf(corpusText(t, run.Corpus)))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := tok.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		back, err := LoadWith(bytes.NewReader(out.Bytes()), LoadOptions{AllowMissingBytes: !run.FullAlphabet})
		if err != nil {
			t.Fatalf("%s-%s: %v", run.Family, run.Corpus, err)
		}
		var again bytes.Buffer
		if err := back.WriteJSON(&again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Errorf("%s-%s: a file read and written again differs", run.Family, run.Corpus)
		}
		if back.Hash() != tok.Hash() {
			t.Errorf("%s-%s: the hash differs after reading", run.Family, run.Corpus)
		}
		e, e2 := tok.NewEncoder(0), back.NewEncoder(0)
		for _, s := range edge {
			equalIDs(t, s, e2.AppendSpecial(nil, []byte(s)), e.AppendSpecial(nil, []byte(s)))
		}
	}
}

// TestLoadHuggingFaceFile reads a file as Hugging Face writes it; the same training
// here gives an equal vocabulary.
func TestLoadHuggingFaceFile(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "hf_saved.json"))
	if err != nil {
		t.Fatal(err)
	}
	saved, err := Load(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if own := trainOn(t, "cl100k", "go", 300); own.Hash() != saved.Hash() {
		t.Error("the file of Hugging Face and the vocabulary trained here have different hashes")
	}
}

// TestTiktokenRoundTrip writes ranks and reads them back.
func TestTiktokenRoundTrip(t *testing.T) {
	for _, family := range []string{"r50k", "cl100k", "o200k"} {
		tok := trainOn(t, family, "go", 900)
		var out bytes.Buffer
		if err := tok.WriteTiktoken(&out); err != nil {
			t.Fatal(err)
		}
		back, err := LoadTiktoken(bytes.NewReader(out.Bytes()), family, map[string]uint32{"<|endoftext|>": 0})
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := back.WriteTiktoken(&again); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Errorf("%s: ranks read and written again differ", family)
		}
		e, e2 := tok.NewEncoder(0), back.NewEncoder(0)
		for _, s := range edgeStrings(t) {
			equalIDs(t, s, e2.AppendSpecial(nil, []byte(s)), e.AppendSpecial(nil, []byte(s)))
		}
	}
}
