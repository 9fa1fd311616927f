package tokenize

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/written_*.json.gz; then run bench/peers/tokenizers/check_written.py")

// written is a file as WriteJSON writes it and the ids of the edge strings.
type written struct {
	File string     `json:"file"`
	IDs  [][]uint32 `json:"ids"`
}

// TestWrittenBytes pins the bytes of tokenizer.json, and so the hash that stores and
// checkpoints keep: a change here breaks them. Hugging Face has read these files.
func TestWrittenBytes(t *testing.T) {
	for _, family := range []string{"r50k", "cl100k", "o200k"} {
		tok := trainOn(t, family, "go", 500)
		got := written{File: string(jsonBytes(t, tok))}
		e := tok.NewEncoder(0)
		for _, s := range edgeStrings(t) {
			got.IDs = append(got.IDs, e.AppendSpecial([]uint32{}, []byte(s)))
		}
		name := "written_" + family + ".json.gz"
		if *update {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			if err := json.NewEncoder(z).Encode(got); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join("testdata", name), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var want written
		readFixture(t, name, &want)
		if got.File != want.File {
			t.Errorf("%s: WriteJSON writes other bytes than before", family)
		}
		for i, s := range edgeStrings(t) {
			equalIDs(t, family+" "+s, got.IDs[i], want.IDs[i])
		}
	}
}
