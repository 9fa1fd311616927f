package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/model"
	"refrain/tokenize"
)

func TestPlanLines(t *testing.T) {
	var lines []Line
	if err := Plan(t.Context(), PlanConfig{Docs: []int{1000, 20_000}, T: 512, Rounds: 2}, func(l Line) { lines = append(lines, l) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[1].Name != "Plan/docs=20000" {
		t.Fatalf("lines %v", lines)
	}
	// 8 bytes a document and 8 a window, of which there are 2.5 a document.
	if b, ok := lines[1].Get("B/doc"); !ok || b < 20 || b > 60 {
		t.Errorf("%v bytes a document", b)
	}
}

func TestCkptLines(t *testing.T) {
	m, ok := model.PresetByName("micro-0.3M")
	if !ok {
		t.Fatal("no small preset")
	}
	dir := t.TempDir()
	var lines []Line
	if err := Ckpt(t.Context(), CkptConfig{Model: m, Name: "0.3M", Rounds: 2, Dir: dir}, func(l Line) { lines = append(lines, l) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0].Name != "Ckpt/preset=0.3M/save" || lines[1].Name != "Ckpt/preset=0.3M/load" {
		t.Fatalf("lines %v", lines)
	}
	if mb, _ := lines[0].Get("MB"); mb != float64(12*m.Layout().Total)/1e6 {
		t.Errorf("%v MB of %d parameters", mb, m.Layout().Total)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() != "latest" { // the hint that a save leaves
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// TestIngestCompare: ours is measured where no peer is installed, and each peer's
// absence is said.
func TestIngestCompare(t *testing.T) {
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 300, Workers: 1}, func(yield func([]byte, error) bool) {
		yield([]byte(strings.Repeat("a document of its own\n", 100)), nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tok.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	c := IngestPeersConfig{File: filepath.Join(t.TempDir(), "tokenizer.json"), Name: "tiny", Workers: 2, Rounds: 2, Dir: t.TempDir(), Peers: t.TempDir()}
	if err := os.WriteFile(c.File, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	enc := tok.NewEncoder(0)
	for i := range 30 {
		d := fmt.Appendf(nil, "document %d of its own\n", i)
		c.Docs = append(c.Docs, d)
		want += int64(len(enc.Append(nil, d)))
	}
	var lines, notes []string
	err = IngestCompare(t.Context(), c, func(l Line) { lines = append(lines, l.String()) }, func(s string) { notes = append(notes, s) })
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "BenchmarkIngest/vocab=tiny/jsonl-2 2 ") || len(notes) != 2 || !strings.Contains(notes[1], "peer=datatrove: not installed") {
		t.Errorf("lines %q, notes %q", lines, notes)
	}
	got, err := c.own(t.Context(), []string{filepath.Join(c.Dir, "text", "0.jsonl"), filepath.Join(c.Dir, "text", "1.jsonl")}, 9)
	if err != nil || got.Tokens != want || got.Sum == 0 {
		t.Errorf("%d ids that add up to %d, want %d ids: %v", got.Tokens, got.Sum, want, err)
	}
}
