package run_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/stages/shards"
	"refrain/stages/tokens"
	"refrain/store"
)

// texts writes n text files to dir, all different.
func texts(t testing.TB, dir string, n int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		text := strings.Repeat(fmt.Sprintf("line %d of the words in file %d\n", i*7%11, i), 3+i%4)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func ingest(t testing.TB, c run.IngestConfig) *run.IngestResult {
	t.Helper()
	r, err := run.Ingest(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// folderBytes reads all files of a folder and the folders in it.
func folderBytes(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		all[strings.TrimPrefix(p, dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestIngestIsTheSameForAnyWorkersAndPlace(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 50)
	base := run.IngestConfig{Inputs: []string{"text"}, Out: "one", Tokenizer: "train:280", Val: tokens.Val{Share: 0.2}, Workers: 1}
	first := ingest(t, base)
	if first.Cached || first.Val == nil || first.Train.Documents+first.Val.Documents != 50 {
		t.Fatalf("result %+v", first)
	}
	want := folderBytes(t, "one")
	for _, workers := range []int{2, 5} {
		c := base
		c.Out, c.Workers = fmt.Sprintf("with%d", workers), workers
		ingest(t, c)
		got := folderBytes(t, c.Out)
		if len(got) != len(want) {
			t.Errorf("%d workers write %d files, one writes %d", workers, len(got), len(want))
		}
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%d workers write another %s", workers, name)
			}
		}
	}
	// The lock of the writer is not part of a store.
	if _, ok := want["/lock"]; ok {
		t.Error("a lock file is left in the store")
	}
}

// TestIngestUsesAStoreOnlyWhenItIsTheSame changes one thing at a time.
func TestIngestUsesAStoreOnlyWhenItIsTheSame(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 40)
	base := run.IngestConfig{Inputs: []string{"text"}, Out: "store", Tokenizer: "train:280", Val: tokens.Val{Share: 0.2}}
	made := ingest(t, base)
	if again := ingest(t, base); !again.Cached || again.Train.Check != made.Train.Check {
		t.Errorf("the same ingest again: cached %v", again.Cached)
	}
	// A file moved as a whole is the same content.
	if err := os.Rename("text", "elsewhere"); err != nil {
		t.Fatal(err)
	}
	moved := base
	moved.Inputs = []string{"elsewhere"}
	if r := ingest(t, moved); !r.Cached {
		t.Error("moved inputs are not recognised")
	}
	if err := os.Rename("elsewhere", "text"); err != nil {
		t.Fatal(err)
	}
	change := map[string]func(c *run.IngestConfig){
		"vocabulary": func(c *run.IngestConfig) { c.Tokenizer = "train:281" },
		"family":     func(c *run.IngestConfig) { c.Family = "r50k" },
		"share":      func(c *run.IngestConfig) { c.Val.Share = 0.3 },
		"policy":     func(c *run.IngestConfig) { c.Options.Duplicate = shards.Keep },
		"pattern":    func(c *run.IngestConfig) { c.Options.Exclude = []string{"001.txt"} },
		"one byte": func(*run.IngestConfig) {
			b, err := os.ReadFile("text/005.txt")
			if err != nil {
				t.Fatal(err)
			}
			b[3] ^= 1
			if err := os.WriteFile("text/005.txt", b, 0o644); err != nil {
				t.Fatal(err)
			}
		},
	}
	for _, name := range []string{"vocabulary", "family", "share", "policy", "pattern", "one byte"} {
		c := base
		change[name](&c)
		_, err := run.Ingest(t.Context(), c)
		if run.ExitCode(err) != run.ExitUsage || !strings.Contains(fmt.Sprint(err), "was made from other inputs") {
			t.Errorf("another %s into the same store: %v", name, err)
		}
		// Without a name, it gets a folder of its own, and finds it again.
		c.Out = ""
		own := ingest(t, c)
		if own.Cached || filepath.Dir(own.Dir) != run.IngestDir {
			t.Errorf("another %s without a name: %s, cached %v", name, own.Dir, own.Cached)
		}
		if r := ingest(t, c); !r.Cached || r.Dir != own.Dir {
			t.Errorf("another %s again: %s, cached %v", name, r.Dir, r.Cached)
		}
	}
}

// TestEqualContentEqualBytes: a store that would be used again for other names of
// the same content is what an ingest of them would write.
func TestEqualContentEqualBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 20)
	texts(t, "other/words", 20)
	want := ingest(t, run.IngestConfig{Inputs: []string{"text"}, Out: "a", Tokenizer: "train:280"})
	for i, input := range []string{"other/words", "other/words/*.txt"} {
		got := ingest(t, run.IngestConfig{Inputs: []string{input}, Out: fmt.Sprint("b", i), Tokenizer: "train:280"})
		if got.Train.Key != want.Train.Key || got.Train.Check != want.Train.Check {
			t.Errorf("%s: key %v and bytes %v are equal", input, got.Train.Key == want.Train.Key, got.Train.Check == want.Train.Check)
		}
	}
	// The name of a single file is in its digest, and then in the manifest.
	one := ingest(t, run.IngestConfig{Inputs: []string{"text/003.txt", "other"}, Out: "c", Tokenizer: "train:280", Options: shards.Options{Duplicate: shards.Keep}})
	if in := one.Train.Inputs; len(in) != 2 || in[0].Name != "003.txt" || in[1].Name != "" || in[0].Digest == in[1].Digest || in[1].Bytes < 20*in[0].Bytes/2 {
		t.Errorf("inputs %+v", in)
	}
}

// TestIngestOfAMovingFile: what changes between fingerprint and encoding makes no
// store, which would carry the key of something else. A small text file is read only
// once, so that what is written to it later is not seen at all.
func TestIngestOfAMovingFile(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 20)
	line := []byte("{\"text\": \"something else\"}\n")
	if err := os.WriteFile("text/lines.jsonl", line, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := run.IngestConfig{Inputs: []string{"text"}, Out: "still", Tokenizer: "train:280", Workers: 1}
	want := ingest(t, cfg)
	cfg.Out = "x"
	for _, at := range []run.Phase{run.PhaseCount, run.PhaseEncode} {
		for _, name := range []string{"text/019.txt", "text/lines.jsonl"} {
			before, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			grown := false
			cfg.Progress = func(p run.IngestProgress) {
				if p.Phase == at && !grown {
					grown = true
					if err := os.WriteFile(name, append(slices.Clone(before), before...), 0o644); err != nil {
						t.Error(err)
					}
				}
			}
			r, err := run.Ingest(t.Context(), cfg)
			if !grown {
				t.Fatalf("%s did not grow in %s", name, at)
			}
			if strings.HasSuffix(name, ".txt") {
				if err != nil || r.Train.Key != want.Train.Key || r.Train.Check != want.Train.Check {
					t.Errorf("%s grown in %s: another store, or none (%v)", name, at, err)
				}
				err = os.RemoveAll("x")
			} else if run.ExitCode(err) != run.ExitData || !strings.Contains(fmt.Sprint(err), "lines.jsonl: changed") {
				t.Errorf("%s grown in %s: %v", name, at, err)
			}
			if left, _ := filepath.Glob("x*"); len(left) > 0 {
				t.Errorf("%s grown in %s: %v is left", name, at, left)
			}
			if err := os.WriteFile(name, before, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTokenizerIsTrainedOnTrainingDocuments puts a word into one document and
// looks for it in the vocabulary: it is there only when that document is not
// held out.
func TestTokenizerIsTrainedOnTrainingDocuments(t *testing.T) {
	for _, val := range []tokens.Val{{Share: 0.3}, {Docs: 10}} {
		t.Run(val.String(), func(t *testing.T) {
			t.Chdir(t.TempDir())
			texts(t, "text", 40)
			held, kept := 0, 0
			for i := range 12 {
				// Each time the marked document is another text, on either side.
				mark := fmt.Sprintf("zqxj%d ", i)
				name := "text/marked.txt"
				if err := os.WriteFile(name, []byte(strings.Repeat("zqxjzqxj ", 200)+mark), 0o644); err != nil {
					t.Fatal(err)
				}
				r := ingest(t, run.IngestConfig{Inputs: []string{"text"}, Out: fmt.Sprint("store", i), Tokenizer: "train:300", Val: val})
				inVal := sourceIn(t, filepath.Join(r.Dir, tokens.ValDir), name)
				if inVal == sourceIn(t, r.Dir, name) {
					t.Fatalf("%s is on both sides or none (validation: %v): %+v", name, inVal, r.Report)
				}
				var learned bool
				for id := range uint32(r.Tokenizer.VocabSize()) {
					b, ok := r.Tokenizer.TokenBytes(id)
					learned = learned || ok && bytes.Contains(b, []byte("zqxj"))
				}
				if learned == inVal {
					t.Errorf("document %d is held out: %v, and its word is in the vocabulary: %v", i, inVal, learned)
				}
				if inVal {
					held++
				} else {
					kept++
				}
			}
			if held == 0 || kept == 0 {
				t.Errorf("%d held out, %d kept: the test saw one side only", held, kept)
			}
		})
	}
}

func sourceIn(t testing.TB, dir, name string) bool {
	t.Helper()
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for d := range s.NumDocs() {
		if filepath.Base(s.Source(d)) == filepath.Base(name) {
			return true
		}
	}
	return false
}

func TestIngestFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 20)
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	for i := range 200 {
		fmt.Fprintf(w, "{\"text\": \"document %d\"}\n", i)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write("cut.jsonl.gz", z.Bytes()[:z.Len()-20])
	write("bad.json", []byte("{"))
	write("latin.jsonl", []byte("{\"text\": \"caf\xe9\"}\n"))
	if err := os.MkdirAll("taken/inside", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		c    run.IngestConfig
		code int
		want string
	}{
		{"no inputs", run.IngestConfig{Out: "x", Tokenizer: "train:300"}, run.ExitData, "no inputs given"},
		{"missing", run.IngestConfig{Inputs: []string{"txet"}, Out: "x", Tokenizer: "train:300"}, run.ExitData, "no such file"},
		{"twice", run.IngestConfig{Inputs: []string{"text", "text"}, Out: "x", Tokenizer: "train:300"}, run.ExitData, "named twice"},
		{"cut", run.IngestConfig{Inputs: []string{"cut.jsonl.gz"}, Out: "x", Tokenizer: "train:300"}, run.ExitData, "cut.jsonl.gz"},
		{"not UTF-8", run.IngestConfig{Inputs: []string{"latin.jsonl"}, Out: "x", Tokenizer: "train:300"}, run.ExitData, "latin.jsonl: line 1"},
		{"no tokenizer", run.IngestConfig{Inputs: []string{"text"}, Out: "x"}, run.ExitUsage, "a tokenizer is needed"},
		{"small vocabulary", run.IngestConfig{Inputs: []string{"text"}, Out: "x", Tokenizer: "train:256"}, run.ExitUsage, "want train:V"},
		{"missing tokenizer", run.IngestConfig{Inputs: []string{"text"}, Out: "x", Tokenizer: "none.json"}, run.ExitUsage, "none.json"},
		{"bad tokenizer", run.IngestConfig{Inputs: []string{"text"}, Out: "x", Tokenizer: "bad.json"}, run.ExitUsage, "bad.json"},
		{"bad policy", run.IngestConfig{Inputs: []string{"text"}, Out: "x", Tokenizer: "train:300", Options: shards.Options{BadLine: "mend"}}, run.ExitUsage, "bad_line"},
		{"folder taken", run.IngestConfig{Inputs: []string{"text"}, Out: "taken", Tokenizer: "train:300"}, run.ExitUsage, "taken is there already"},
		{"all held out", run.IngestConfig{Inputs: []string{"text"}, Out: "x", Tokenizer: "train:300", Val: tokens.Val{Docs: 20}}, run.ExitData, "none is left for training"},
		{"pipe trains", run.IngestConfig{Inputs: []string{"-"}, Out: "x", Tokenizer: "train:300"}, run.ExitUsage, "read only once"},
	} {
		_, err := run.Ingest(t.Context(), c.c)
		if run.ExitCode(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: exit %d, %v; want exit %d and %q", c.name, run.ExitCode(err), err, c.code, c.want)
		}
		for _, left := range []string{"x", "x.partial"} {
			if _, err := os.Stat(left); err == nil {
				t.Errorf("%s leaves %s behind", c.name, left)
			}
		}
	}
}

func TestIngestIsInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 300)
	for _, at := range []run.Phase{run.PhaseFingerprint, run.PhaseCount, run.PhaseMerge, run.PhaseEncode} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := run.Ingest(ctx, run.IngestConfig{Inputs: []string{"text"}, Out: "x", Tokenizer: "train:400", Progress: func(p run.IngestProgress) {
			if p.Phase == at {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted in %s: %v", at, err)
		}
		for _, left := range []string{"x", "x.partial"} {
			if _, err := os.Stat(left); err == nil {
				t.Errorf("an ingest interrupted in %s leaves %s", at, left)
			}
		}
	}
}

func TestIngestData(t *testing.T) {
	t.Chdir(t.TempDir())
	texts(t, "text", 40)
	yaml := "model: {layers: 1, dim: 32, heads: 2, ffn: 40}\ndata: {inputs: [text], tokenizer: 'train:280', val_docs: 20%, seq: 16}\ntrain: {batch: 4, steps: 2, threads: 1}\n"
	load := func(overrides ...string) *config.Resolved {
		r, err := config.Parse("c.yaml", []byte(yaml), overrides)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := load()
	got, err := run.IngestData(t.Context(), &r.Config, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Train.Manifest().Check != got.Train.Check || s.Set == nil {
		t.Errorf("the run reads %s, the ingest made %s; validation %v", r.Config.Data.Store, got.Dir, s.Set)
	}
	r = load("data.inputs=[]", "data.store=somewhere")
	if res, err := run.IngestData(t.Context(), &r.Config, nil); res != nil || err != nil {
		t.Errorf("without inputs the ingest gave %v, %v", res, err)
	}
}

func TestRecordFollowsAKilledRun(t *testing.T) {
	dir := makeStore(t, 64)
	out := filepath.Join(t.TempDir(), "run")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: out, Limit: 9}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	r, err := run.ReadRecord(out)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status() != "stopped" || r.Last.Step != 9 || len(r.Saves) == 0 || r.Config == nil {
		t.Errorf("a stopped run reads as %s at step %d with %d saves", r.Status(), r.Last.Step, len(r.Saves))
	}
	// As after a kill of a resumed run: no exit.json, a line more, the last one cut
	// short.
	if err := os.Remove(filepath.Join(out, run.ExitFile)); err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(map[string]any{"type": "step", "step": 10, "loss": 2.5})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(out, run.MetricsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(string(line) + "\n" + `{"type":"step","st`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// The clock of a file system is coarse; a step takes longer than its tick.
	later := r.Exit.At.Add(time.Second)
	if err := os.Chtimes(f.Name(), later, later); err != nil {
		t.Fatal(err)
	}
	if r, err = run.ReadRecord(out); err != nil {
		t.Fatal(err)
	}
	if r.Status() != "killed" || r.Last.Step != 10 || r.Last.Loss != 2.5 {
		t.Errorf("a killed run reads as %s at step %d", r.Status(), r.Last.Step)
	}
	held, err := run.OpenFolder(out)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = run.ReadRecord(out); err != nil || r.Status() != "running" {
		t.Errorf("a run whose folder is held reads as %s (%v)", r.Status(), err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := run.ReadRecord(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a store read as a run: %v", err)
	}
}
