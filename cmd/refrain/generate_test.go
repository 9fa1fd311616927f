package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/store"
	"refrain/study/generate"
	"refrain/train/ckpt"
)

// generated is generate --json.
func generated(t *testing.T, args ...string) (r generate.Result) {
	t.Helper()
	code, out, msg := cli("", append([]string{"generate", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("generate %q: exit %d: %s", args, code, msg)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	onThePage(t, "Generated documents", "generate", r)
	return r
}

const otherStore = "the other store"

// bordered is trainMembers on a store whose documents end with an id that it knows of; plain
// is one that does not know. otherStore among the overrides stands for one with another tokenizer.
func bordered(t *testing.T, overrides ...[]string) (plain, conf string, runs []string) {
	t.Helper()
	base := filepath.ToSlash(t.TempDir())
	plain = base + "/plain"
	writeStore(t, plain, 64, 1)
	for _, hash := range []string{"none", "other"} {
		from, err := store.Open(plain, store.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eos := uint32(0)
		w, err := store.Create(base+"/"+hash, store.Meta{Vocab: tinyVocab, TokenizerHash: hash, Boundary: store.Boundary{EOS: &eos}})
		if err != nil {
			t.Fatal(err)
		}
		for d := range from.NumDocs() {
			var ids []uint32
			for _, id := range from.Tokens16(d) {
				ids = append(ids, uint32(id))
			}
			if err := w.Append(uint64(d), "test", ids); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := from.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range overrides {
		hash := "none"
		if k := slices.Index(overrides[i], otherStore); k >= 0 {
			hash, overrides[i] = "other", slices.Delete(overrides[i], k, k+1)
		}
		overrides[i] = append(overrides[i], "data.store="+base+"/"+hash, "train.epochs=1")
	}
	conf, runs = trainMembers(t, overrides...)
	return plain, conf, runs
}

// TestRow24Generate (E row 24): stores that runs wrote, alone, together and in shares. They
// are verified, name their teachers, are the same for any batch, and train a run. Mistakes and
// damage are errors with place and fix, and leave no store.
func TestRow24Generate(t *testing.T) {
	plain, conf, runs := bordered(t, seed(1, 1), seed(2, 2), append(seed(3, 3), "data.doc_mask=false"), append(seed(4, 4), otherStore))
	t.Run("stores", func(t *testing.T) { generateStores(t, conf, runs) })
	t.Run("killed", func(t *testing.T) { generateKilled(t, runs[0]) })
	t.Run("refusals", func(t *testing.T) { generateRefuses(t, plain, runs) })
}

func generateStores(t *testing.T, conf string, runs []string) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	single := generated(t, runs[0], "-o", at("single"), "--tokens", "2e3", "--seed", "3", "--compare")
	if g := single.Generated; single.Tokens < 2000 || single.Tokens > 2016 || g.Mode != "single" || g.Temperature != 1 || g.Seed != 3 || g.MaxLength != 16 || single.Rate <= 0 || single.OneAtATime <= 0 {
		t.Errorf("%+v, %+v", single, g)
	}
	s, err := store.Open(at("single"), store.OpenOptions{Resident: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := run.LoadModel(t.Context(), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	if g := s.Manifest().Generated; len(g.Teachers) != 1 || !reflect.DeepEqual(g, single.Generated) ||
		g.Teachers[0].Weights != m.Manifest.WeightsHash() || g.Teachers[0].RunID != m.Manifest.RunID || g.Teachers[0].Run != "s1" || g.Teachers[0].Checkpoint != filepath.Base(m.Path) {
		t.Errorf("the manifest names %+v, the teacher is %s with %s", g, m.Path, m.Manifest.WeightsHash())
	}
	if s.Source(0) != "s1" || s.DocID(5) != 5 || *s.Manifest().Boundary.EOS != 0 {
		t.Errorf("document of %s, number %d, boundary %+v", s.Source(0), s.DocID(5), s.Manifest().Boundary)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	pool := generated(t, runs[0], runs[1], "--mode", "pool", "-o", at("pool"), "--documents", "41", "--temperature", "0.7")
	if g := pool.Generated.Teachers; pool.Documents != 41 || g[0].Documents != 21 || g[1].Documents != 20 || g[0].Tokens+g[1].Tokens != pool.Tokens || g[0].Weights == g[1].Weights {
		t.Errorf("%+v of %+v", pool, g)
	}
	// Settings can be said for all.
	if r := generated(t, runs[1], runs[2], "data.doc_mask=false", "--mode", "pool", "-o", at("unmasked"), "--documents", "3"); r.Documents != 3 {
		t.Errorf("%+v", r)
	}
	mean := generated(t, runs[0], runs[1], "--mode", "average", "-o", at("mean"), "--tokens", "500", "--max-length", "9")
	again := generated(t, runs[0], runs[1], "--mode", "average", "-o", at("again"), "--tokens", "500", "--max-length", "9", "--batch", "3", "--devices", "2", "--threads", "3")
	if mean.Fingerprint != again.Fingerprint || mean.Generated.MaxLength != 9 || mean.Generated.Teachers[0].Documents != 0 {
		t.Errorf("%+v, in another batch %+v", mean, again)
	}
	if code, out, msg := cli("", "data", "verify", at("mean")); code != 0 {
		t.Errorf("verify: exit %d: %s%s", code, out, msg)
	}

	// The store that is there is taken on request only, and only when it is the same.
	args := []string{"generate", runs[0], "-o", at("single"), "--tokens", "2000", "--seed", "3"}
	if code, _, msg := cli("", args...); code != run.ExitUsage || !strings.Contains(msg, "already exists") && !strings.Contains(msg, "file exists") {
		t.Errorf("a second time: exit %d: %s", code, msg)
	}
	if code, out, msg := cli("", append(args, "--reuse")...); code != 0 || !strings.Contains(out, "is there already, made in the same way") {
		t.Errorf("again: exit %d: %s%s", code, out, msg)
	}
	if code, _, msg := cli("", append(args, "--reuse", "--temperature", "0.9")...); code != run.ExitUsage || !strings.Contains(msg, "was not made by these models in this way") {
		t.Errorf("at another temperature: exit %d: %s", code, msg)
	}

	if code, _, msg := cli("", "train", conf, "--out", at("student"), "data.store="+filepath.ToSlash(at("pool")), "train.epochs=2", "eval.every=0"); code != 0 {
		t.Errorf("training on the store: exit %d: %s", code, msg)
	}
	if left, err := filepath.Glob(at("*" + store.PartialSuffix)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// generateKilled: what a killed process leaves is no store, and the next one clears it away.
func generateKilled(t *testing.T, teacher string) {
	dir := t.TempDir()
	out, whole := filepath.Join(dir, "out"), filepath.Join(dir, "whole")
	p := start(t, nil, asProgram, "generate", teacher, "-o", out, "--documents", "1e9")
	p.until(t, "documents", func() bool {
		_, err := os.Stat(filepath.Join(out+store.PartialSuffix, "part-00000.arrow"))
		return err == nil
	})
	p.kill()
	if _, err := os.Stat(out); err == nil {
		t.Error("the store is there")
	}
	if _, err := store.Open(out+store.PartialSuffix, store.OpenOptions{}); err == nil {
		t.Error("what is left opens as a store")
	}
	a, b := generated(t, teacher, "-o", out, "--documents", "30"), generated(t, teacher, "-o", whole, "--documents", "30")
	if a.Fingerprint != b.Fingerprint || a.Documents != 30 {
		t.Errorf("after the kill %+v, without one %+v", a, b)
	}
	if _, err := os.Stat(out + store.PartialSuffix); err == nil {
		t.Error("the rest of the killed one is still there")
	}
}

func generateRefuses(t *testing.T, plain string, runs []string) {
	m, err := run.LoadModel(t.Context(), runs[2])
	if err != nil {
		t.Fatal(err)
	}
	newest, name := m.Path, filepath.Join(m.Path, ckpt.ModelFile)
	damage := func() {
		b, err := os.ReadFile(name)
		if err == nil {
			b[len(b)-1] ^= 1
			err = os.WriteFile(name, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	enough := []string{"-o", out, "--tokens", "100"}
	for _, v := range []struct {
		args []string
		code int
		want string
	}{
		{enough, run.ExitUsage, "no run was named"},
		{[]string{runs[0], "--tokens", "5"}, run.ExitUsage, "name the store with -o"},
		{[]string{runs[0], "-o", out}, run.ExitUsage, "--tokens or --documents"},
		{append([]string{runs[0], "--tokens", "1.5"}, enough[:2]...), run.ExitUsage, "is not a whole number"},
		{append([]string{runs[0], runs[1]}, enough...), run.ExitUsage, "2 runs were named; say --mode average"},
		{append([]string{runs[0], "--mode", "best"}, enough...), run.ExitUsage, "use single, average or pool"},
		{append([]string{runs[0], "--temperature", "0"}, enough...), run.ExitUsage, "the same document every time"},
		{append([]string{runs[0], "--max-length", "17"}, enough...), run.ExitUsage, "covers 16 positions"},
		{append([]string{out}, enough...), run.ExitUsage, "neither a run folder"},
		{append([]string{runs[0], runs[2], "--mode", "pool"}, enough...), run.ExitData, "data.doc_mask is false in"},
		{append([]string{runs[0], runs[3], "--mode", "average"}, enough...), run.ExitData, runs[3] + " was trained with another tokenizer (hash other) than " + runs[0] + " (none)"},
		{append([]string{runs[0], "data.store=" + plain}, enough...), run.ExitData, "no boundary ids"},
		{append([]string{runs[0], "data.store=gone"}, enough...), run.ExitData, "put its store back"},
		{[]string{runs[0], "-o", filepath.Dir(runs[0]), "--tokens", "100"}, run.ExitUsage, "remove it or choose another folder"},
		{append([]string{newest}, enough...), run.ExitFailed, "teacher " + newest + ": damaged checkpoint"},
		{append([]string{runs[2]}, enough...), run.ExitData, "this would be an older model than was trained"},
	} {
		if len(v.args) > 0 && v.args[0] == newest {
			damage()
		}
		code, _, msg := cli("", append([]string{"generate"}, v.args...)...)
		if code != v.code || !strings.Contains(msg, v.want) {
			t.Errorf("generate %q: exit %d, want %d with %q: %s", v.args, code, v.code, v.want, msg)
		}
	}
	for _, name := range []string{out, out + store.PartialSuffix} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}
