package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/tokenize"
)

// TestIngest runs the scenario on a few files, of which two are equal: both sides must
// see the same documents, which Ingest checks, and nothing may be left behind.
func TestIngest(t *testing.T) {
	in, dir := t.TempDir(), t.TempDir()
	for i := range 40 {
		text := strings.Repeat(fmt.Sprintf("line %d of a small file\n", i%39), 20)
		if err := os.WriteFile(filepath.Join(in, fmt.Sprintf("%02d.txt", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 300, Workers: 1}, func(yield func([]byte, error) bool) {
		yield([]byte(strings.Repeat("line of a small file\n", 100)), nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tok.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var lines []string
	err = Ingest(t.Context(), IngestConfig{
		Inputs: []string{in}, Tokenizer: tok, File: file, Name: "tiny", Workers: 2, Rounds: 2, Dir: dir,
	}, func(l Line) { lines = append(lines, l.String()) })
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "BenchmarkIngest/vocab=tiny/encoder-2 2 ") ||
		!strings.HasPrefix(lines[1], "BenchmarkIngest/vocab=tiny/prepare-2 2 ") || !strings.Contains(lines[1], " of-encoder-CPU ") {
		t.Errorf("lines %q", lines)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
