package tokens

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"refrain/internal/fsx"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/item"
	"refrain/store"
	"refrain/tokenize"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// makeTexts returns n different texts, some of which contain what looks like a
// special token; text 5 is empty.
func makeTexts(n int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the quick brown fox jumps over a lazy dog while epochs repeat and weights decay <|endoftext|> 1234 func() { return }\n \u00e9\u4e16")
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		fmt.Fprintf(&b, "%d:", i)
		for range 5 + rng.IntN(60) {
			b.WriteString(words[rng.IntN(len(words))])
			b.WriteByte(' ')
		}
		out[i] = b.String()
	}
	if n > 5 {
		out[5] = ""
	}
	return out
}

func blocks(texts []string, perBlock int) []*item.Docs {
	var out []*item.Docs
	for i := 0; i < len(texts); i += perBlock {
		d := &item.Docs{Seq: int64(len(out))}
		for j := i; j < min(i+perBlock, len(texts)); j++ {
			d.Docs = append(d.Docs, item.Doc{ID: uint64(j), Source: fmt.Sprintf("f%d.txt", j/9), Text: []byte(texts[j])})
			d.Bytes += int64(len(texts[j]))
		}
		out = append(out, d)
	}
	return out
}

func source(bs []*item.Docs) pipeline.Stage[struct{}, *item.Docs] {
	return pipeline.StageFunc[struct{}, *item.Docs](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.Docs]) error {
		for _, b := range bs {
			if err := out.Send(ctx, b); err != nil {
				return err
			}
		}
		return nil
	})
}

func trained(t testing.TB) *tokenize.Tokenizer {
	t.Helper()
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 400, Workers: 1}, func(yield func([]byte, error) bool) {
		for _, s := range makeTexts(100) {
			if !yield([]byte(s), nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func printOf(digest string) func(context.Context) (Fingerprint, error) {
	return func(context.Context) (Fingerprint, error) { return Fingerprint{Digest: digest}, nil }
}

func config(t testing.TB, tok *tokenize.Tokenizer, out string, texts []string) PrepareConfig {
	t.Helper()
	return PrepareConfig{
		Out: out, Source: source(blocks(texts, 4)), Tokenizer: tok, Workers: 2, CacheBytes: 1 << 16,
		Fingerprint: printOf(fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(texts, "\x00"))))),
		Policies:    map[string]string{"invalid_utf8": "fail"},
	}
}

func prepare(t testing.TB, c PrepareConfig) *Result {
	t.Helper()
	r, err := Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// decoded returns the text of every document by its number, and checks the
// boundary: the last id, and no other, is the end of text.
func decoded(t *testing.T, s *store.Store, tok *tokenize.Tokenizer) map[uint64]string {
	t.Helper()
	eos, _ := tok.EOS()
	out := map[uint64]string{}
	for doc := range s.NumDocs() {
		var ids []uint32
		for _, id := range s.Tokens16(doc) {
			ids = append(ids, uint32(id))
		}
		for i, id := range ids {
			if (id == eos) != (i == len(ids)-1) {
				t.Fatalf("document %d: id %d at %d of %d", doc, id, i, len(ids))
			}
		}
		text, err := tok.Decode(nil, ids[:len(ids)-1])
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := out[s.DocID(doc)]; twice {
			t.Fatalf("document %d came twice", s.DocID(doc))
		}
		out[s.DocID(doc)] = string(text)
	}
	return out
}

// R28, R32: every document ends with the one end-of-text id it has, text that
// looks like it stays text, and documents without text are counted.
func TestRow01EveryTextComesBack(t *testing.T) {
	tok, texts := trained(t), makeTexts(60)
	for _, val := range []Val{{}, {Share: 0.2}, {Docs: 7, Seed: 3}} {
		dir := filepath.Join(t.TempDir(), "s")
		c := config(t, tok, dir, texts)
		c.Val = val
		c.Counts = func() map[string]int64 { return map[string]int64{"duplicate": 2} }
		var last Progress
		c.Progress = func(p Progress) { last = p }
		r := prepare(t, c)
		all := decoded(t, open(t, dir), tok)
		bytesOf := func(m map[uint64]string) (n int64) {
			for _, s := range m {
				n += int64(len(s))
			}
			return n
		}
		if r.Store.TextBytes != bytesOf(all) {
			t.Errorf("%v: %d bytes of text, want %d", val, r.Store.TextBytes, bytesOf(all))
		}
		if val.some() {
			side := decoded(t, open(t, filepath.Join(dir, ValDir)), tok)
			if val.Docs > 0 && len(side) != 7 || len(side) == 0 || r.Val.TextBytes != bytesOf(side) || r.Val.Documents != int64(len(side)) {
				t.Errorf("%v: %d documents, manifest %+v", val, len(side), r.Val)
			}
			for id, s := range side {
				if _, both := all[id]; both {
					t.Errorf("document %d is on both sides", id)
				}
				all[id] = s
			}
		} else if r.Val != nil {
			t.Errorf("a validation store nobody asked for")
		}
		for i, s := range texts {
			got, ok := all[uint64(i)]
			if ok != (s != "") || got != s {
				t.Fatalf("%v: document %d is %q, want %q", val, i, got, s)
			}
		}
		if r.Store.Counts["no_text"] != 1 || r.Store.Counts["duplicate"] != 2 || r.Cached {
			t.Errorf("counts %v", r.Store.Counts)
		}
		if last.Docs != 60 || last.Bytes != bytesOf(all) || last.Tokens == 0 || len(r.Stats) != 3 {
			t.Errorf("last progress %+v", last)
		}
		var want bytes.Buffer
		if err := tok.WriteJSON(&want); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, TokenizerName)); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("tokenizer.json differs (%v)", err)
		}
		if err := store.Verify(t.Context(), dir, nil); err != nil {
			t.Error(err)
		}
	}
}

// tree returns every file under dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnyWorkersAnyBlocksSameBytes(t *testing.T) {
	tok, texts := trained(t), makeTexts(60)
	for _, val := range []Val{{Share: 0.2}, {Docs: 7}} {
		var want map[string]string
		for _, workers := range []int{1, 2, 8} {
			for _, per := range []int{1, 7, 100} {
				dir := filepath.Join(t.TempDir(), "s")
				c := config(t, tok, dir, texts)
				c.Val, c.Workers, c.Source = val, workers, source(blocks(texts, per))
				prepare(t, c)
				got := tree(t, dir)
				if want == nil {
					want = got
				}
				if len(got) != len(want) || len(got) < 6 {
					t.Fatalf("%d files, want %d", len(got), len(want))
				}
				for name, data := range want {
					if got[name] != data {
						t.Errorf("%v: %d workers, blocks of %d: %s differs", val, workers, per, name)
					}
				}
			}
		}
	}
}

func TestRow02SplitLooksAtTheTextOnly(t *testing.T) {
	tok, texts := trained(t), makeTexts(80)
	side := func(texts []string, val Val) map[string]bool {
		dir := filepath.Join(t.TempDir(), "s")
		c := config(t, tok, dir, texts)
		c.Val = val
		prepare(t, c)
		out := map[string]bool{}
		for _, s := range decoded(t, open(t, filepath.Join(dir, ValDir)), tok) {
			out[s] = true
		}
		return out
	}
	backwards := slices.Clone(texts)
	slices.Reverse(backwards)
	for _, val := range []Val{{Share: 0.3, Seed: 4}, {Docs: 11, Seed: 4}} {
		a, b := side(texts, val), side(backwards, val)
		if len(a) != len(b) {
			t.Fatalf("%v: %d and %d documents", val, len(a), len(b))
		}
		for s := range a {
			if !b[s] {
				t.Errorf("%v: the order of the input changed the split", val)
			}
		}
		other := val
		other.Seed++
		same := 0
		for s := range side(texts, other) {
			if a[s] {
				same++
			}
		}
		if same == len(a) {
			t.Errorf("%v: another seed chose the same documents", val)
		}
	}
	if n := len(side(texts, Val{Share: 0.3})); n < 12 || n > 36 {
		t.Errorf("a share of 0.3 of 79 is %d", n)
	}
}

// TestCopiesStayTogether: where copies of a text are kept, all of them are on one
// side, in any order of the input, and validation is never larger than asked for.
func TestCopiesStayTogether(t *testing.T) {
	tok, base := trained(t), makeTexts(12)
	texts := slices.Concat(base, base[3:9], base[5:7], base[6:7])
	backwards := slices.Clone(texts)
	slices.Reverse(backwards)
	for n := int64(1); n < 12; n++ {
		var want []string
		for _, in := range [][]string{texts, backwards} {
			dir := filepath.Join(t.TempDir(), "s")
			c := config(t, tok, dir, in)
			c.Val = Val{Docs: n}
			if _, err := Prepare(t.Context(), c); err != nil {
				if n < 4 && strings.Contains(err.Error(), "none went to validation") {
					continue // the smallest draw has four copies
				}
				t.Fatal(err)
			}
			val := slices.Collect(maps.Values(decoded(t, open(t, filepath.Join(dir, ValDir)), tok)))
			for _, s := range decoded(t, open(t, dir), tok) {
				if slices.Contains(val, s) {
					t.Errorf("%d documents: %.20q is on both sides", n, s)
				}
			}
			slices.Sort(val)
			if want == nil {
				want = val
			}
			if int64(len(val)) > n || !slices.Equal(val, want) {
				t.Errorf("%d documents: %d are kept, in another order %d", n, len(val), len(want))
			}
		}
	}
}

func TestCache(t *testing.T) {
	tok, texts := trained(t), makeTexts(30)
	dir := filepath.Join(t.TempDir(), "s")
	c := config(t, tok, dir, texts)
	c.Val = Val{Docs: 3}
	first := prepare(t, c)
	c.Source = pipeline.StageFunc[struct{}, *item.Docs](func(context.Context, pipeline.In[struct{}], pipeline.Out[*item.Docs]) error {
		return errors.New("the source was read again")
	})
	c.Workers = 1
	again := prepare(t, c)
	if !again.Cached || again.Store.Check != first.Store.Check || again.Val.Check != first.Val.Check {
		t.Errorf("%+v", again)
	}
	for name, change := range map[string]func(*PrepareConfig){
		"inputs":   func(c *PrepareConfig) { c.Fingerprint = printOf("other") },
		"nothing":  func(c *PrepareConfig) { c.Fingerprint = nil },
		"split":    func(c *PrepareConfig) { c.Val.Seed++ },
		"policy":   func(c *PrepareConfig) { c.Policies = map[string]string{"invalid_utf8": "skip"} },
		"boundary": func(c *PrepareConfig) { c.Boundary = &store.Boundary{} },
	} {
		d := c
		change(&d)
		if _, err := Prepare(t.Context(), d); !errors.Is(err, fs.ErrExist) {
			t.Errorf("other %s: %v", name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, ValDir, store.ManifestName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(t.Context(), c); !errors.Is(err, fs.ErrExist) {
		t.Errorf("without the validation manifest: %v", err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	tok, texts := trained(t), makeTexts(20)
	none, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 256, Workers: 1, Specials: []string{}}, func(yield func([]byte, error) bool) { yield([]byte("a"), nil) })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want   string
		change func(*PrepareConfig)
	}{
		{"needs an output", func(c *PrepareConfig) { c.Out = "" }},
		{"0 workers", func(c *PrepareConfig) { c.Workers = 0 }},
		{"share of 1;", func(c *PrepareConfig) { c.Val.Share = 1 }},
		{"give one", func(c *PrepareConfig) { c.Val = Val{Share: 0.1, Docs: 1} }},
		{"-1 validation documents", func(c *PrepareConfig) { c.Val.Docs = -1 }},
		{"no end-of-text token", func(c *PrepareConfig) { c.Tokenizer = none }},
		{"no document with text", func(c *PrepareConfig) { c.Source = source(nil) }},
		{"none is left for training", func(c *PrepareConfig) { c.Val.Docs = 1000 }},
		{"none went to validation", func(c *PrepareConfig) { c.Val.Share = 1e-12 }},
		{"shards", func(c *PrepareConfig) {
			c.Source = pipeline.StageFunc[struct{}, *item.Docs](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.Docs]) error {
				if err := out.Send(ctx, blocks(texts, 20)[0]); err != nil {
					return err
				}
				return errors.New("line 7 is broken")
			})
		}},
	} {
		parent := t.TempDir()
		cfg := config(t, tok, filepath.Join(parent, "s"), texts)
		c.change(&cfg)
		if _, err := Prepare(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
		if left, _ := os.ReadDir(parent); len(left) != 0 {
			t.Errorf("%s: left behind %v", c.want, left)
		}
	}
}

// A stopped ingest leaves nothing, at whatever block it is stopped.
func TestCancelLeavesNothing(t *testing.T) {
	tok, texts := trained(t), makeTexts(40)
	for stop := range 10 {
		parent := t.TempDir()
		c := config(t, tok, filepath.Join(parent, "s"), texts)
		c.Val = Val{Share: 0.2}
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		c.Progress = func(Progress) {
			if n == stop {
				cancel()
			}
			n++
		}
		_, err := Prepare(ctx, c)
		cancel()
		if err == nil {
			// The last block was written when the stop came; then the writer closes
			// under the same context and must have noticed.
			t.Errorf("stopped at block %d and nobody noticed", stop)
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("block %d: %v", stop, err)
		}
		if left, _ := os.ReadDir(parent); len(left) != 0 {
			t.Errorf("block %d: left behind %v", stop, left)
		}
	}
}

// A failure of any call of the file system is reported and leaves nothing that
// opens; afterwards the same ingest succeeds.
func TestFaultAtEveryCall(t *testing.T) {
	tok, texts := trained(t), makeTexts(20)
	ops := []fsx.Op{fsx.OpOpen, fsx.OpWrite, fsx.OpSync, fsx.OpMkdir, fsx.OpRename, fsx.OpSyncDir}
	for n := 1; ; n++ {
		mem := fsx.NewMem()
		fault := fsx.NewFault(mem, fsx.Rule{Ops: ops, Nth: n, Err: syscall.ENOSPC})
		c := config(t, tok, "s", texts)
		c.Val, c.FS = Val{Docs: 3}, fault
		_, err := Prepare(t.Context(), c)
		if fault.Fired() == 0 {
			if err != nil || n < 20 {
				t.Fatalf("%d calls, %v", n, err)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("call %d: %v", n, err)
		}
		c = config(t, tok, "s", texts)
		c.Val, c.FS = Val{Docs: 3}, mem
		if _, err := Prepare(t.Context(), c); err != nil {
			t.Fatalf("after a failure of call %d: %v", n, err)
		}
	}
}

func encoded(t *testing.T, e *encoder, d *item.Docs) *item.Tokens {
	t.Helper()
	out, err := e.encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEncodeConforms(t *testing.T) {
	tok, texts := trained(t), makeTexts(48)
	eos := uint32(0)
	b := store.Boundary{EOS: &eos, BOS: &eos}
	enc := newEncoder(tok, b, 1<<12, nil)
	var want []*item.Tokens
	for _, d := range blocks(texts, 4) {
		want = append(want, encoded(t, &enc, d))
	}
	same := func(a, b *item.Tokens) bool {
		return a.Seq == b.Seq && a.Bytes == b.Bytes && slices.Equal(a.IDs, b.IDs) && slices.Equal(a.Ends, b.Ends) &&
			slices.Equal(a.DocIDs, b.DocIDs) && slices.Equal(a.Sources, b.Sources) && slices.Equal(a.Hashes, b.Hashes)
	}
	pipelinetest.Run(t, pipelinetest.Case[*item.Docs, *item.Tokens]{
		New:    func() pipeline.Stage[*item.Docs, *item.Tokens] { return Encode(tok, b, 3, 1<<12) },
		Inputs: func() []*item.Docs { return blocks(texts, 4) },
		Equal:  same,
		Want: func(got []*item.Tokens) error {
			if !slices.EqualFunc(got, want, same) {
				return fmt.Errorf("%d blocks differ from the %d expected", len(got), len(want))
			}
			return nil
		},
	})
}

func TestWriteConforms(t *testing.T) {
	tok, texts := trained(t), makeTexts(48)
	b, err := DefaultBoundary(tok)
	if err != nil {
		t.Fatal(err)
	}
	enc := newEncoder(tok, b, 1<<12, nil)
	var last *writing
	pipelinetest.RunSink(t, pipelinetest.SinkCase[*item.Tokens]{
		New: func() pipeline.Stage[*item.Tokens, struct{}] {
			mem := fsx.NewMem()
			if err := mem.Mkdir("s", 0o700); err != nil {
				t.Fatal(err)
			}
			w, err := store.NewWriter(mem, "s", store.Meta{Vocab: tok.VocabSize(), Boundary: b})
			if err != nil {
				t.Fatal(err)
			}
			last = &writing{c: &PrepareConfig{}, split: &splitter{trainTo: w}, width: 2}
			return pipeline.StageFunc[*item.Tokens, struct{}](last.write)
		},
		Inputs: func() []*item.Tokens {
			var out []*item.Tokens
			for _, d := range blocks(texts, 4) {
				out = append(out, encoded(t, &enc, d))
			}
			return out
		},
		Done: func(received int, eof bool, err error) error {
			if got := last.progress.Docs; got > int64(4*received) || got < int64(4*(received-1)) {
				return fmt.Errorf("%d documents written of %d blocks", got, received)
			}
			if eof && last.split.trainTo.Documents()+last.empty != last.progress.Docs {
				return fmt.Errorf("%d documents stored, %d empty, %d read", last.split.trainTo.Documents(), last.empty, last.progress.Docs)
			}
			return nil
		},
	})
}
