package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"refrain/internal/fsx"
)

// doc is one document of a test store.
type doc struct {
	id     uint64
	source string
	ids    []uint32
}

// makeDocs returns n documents of 1 to 40 ids below vocab.
func makeDocs(n, vocab int) []doc {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(vocab)))
	out := make([]doc, n)
	for i := range out {
		ids := make([]uint32, 1+rng.IntN(40))
		for j := range ids {
			ids[j] = uint32(rng.IntN(vocab))
		}
		ids[0] = uint32(vocab - 1)
		out[i] = doc{uint64(3*i + 1), fmt.Sprintf("dir/file-%d.txt", i/7), ids}
	}
	return out
}

func eos(id uint32) Boundary { return Boundary{EOS: &id} }

func testMeta(vocab int) Meta {
	return Meta{Vocab: vocab, TokenizerHash: strings.Repeat("ab", 32), Boundary: eos(0), TextBytes: 12345,
		Inputs: []Input{{"dir", 99, "00ff"}}, Policies: map[string]string{"empty": "skip"}, Counts: map[string]int64{"empty": 2}}
}

// build writes docs to dir with small batches and shards.
func build(t testing.TB, dir string, docs []doc, m Meta) *Manifest {
	t.Helper()
	w, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	w.limits = limits{batch: 100, document: 200, shard: 700, names: shardNames}
	for _, d := range docs {
		if err := w.Append(d.id, d.source, d.ids); err != nil {
			t.Fatal(err)
		}
	}
	man, err := w.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	return man
}

func mustOpen(t testing.TB, dir string, o OpenOptions) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func checkDocs(t *testing.T, s *Store, docs []doc) {
	t.Helper()
	if s.NumDocs() != len(docs) {
		t.Fatalf("%d documents, want %d", s.NumDocs(), len(docs))
	}
	var total int64
	for i, d := range docs {
		n := len(d.ids)
		got := make([]int32, n)
		s.Copy(i, 0, n, got)
		for j, id := range d.ids {
			if got[j] != int32(id) {
				t.Fatalf("document %d token %d: %d, want %d", i, j, got[j], id)
			}
		}
		part := make([]int32, n)
		s.Copy(i, n/3, n, part)
		if !slices.Equal(part[:n-n/3], got[n/3:]) {
			t.Fatalf("document %d: a part differs", i)
		}
		var view []uint32
		if s.DType() == U16 {
			for _, v := range s.Tokens16(i) {
				view = append(view, uint32(v))
			}
		} else {
			view = s.Tokens32(i)
		}
		if !slices.Equal(view, d.ids) || s.DocID(i) != d.id || s.Source(i) != d.source || int(s.Lengths()[i]) != n {
			t.Fatalf("document %d: id %d source %q length %d, want %d %q %d", i, s.DocID(i), s.Source(i), s.Lengths()[i], d.id, d.source, n)
		}
		if s.Offsets()[i] != uint64(total) {
			t.Fatalf("offset of document %d", i)
		}
		total += int64(n)
	}
	if s.NumTokens() != total || s.Offsets()[len(docs)] != uint64(total) {
		t.Errorf("%d tokens, want %d", s.NumTokens(), total)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, c := range []struct {
		vocab int
		want  DType
	}{{7, U16}, {65536, U16}, {65537, U32}, {128256, U32}} {
		for _, resident := range []bool{false, true} {
			t.Run(fmt.Sprintf("vocab=%d,resident=%v", c.vocab, resident), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "s")
				docs := makeDocs(150, c.vocab)
				m := build(t, dir, docs, testMeta(c.vocab))
				s := mustOpen(t, dir, OpenOptions{Resident: resident, TokenizerHash: strings.Repeat("ab", 32)})
				if s.DType() != c.want || s.Vocab() != c.vocab || len(m.Shards) < 3 || len(m.Shards[0].Batches) < 3 {
					t.Errorf("dtype %v vocab %d shards %d", s.DType(), s.Vocab(), len(m.Shards))
				}
				checkDocs(t, s, docs)
				if fp, err := m.Fingerprint(); err != nil || fp != s.Fingerprint() {
					t.Errorf("fingerprint of the writer %x and of the reader %x (%v)", fp, s.Fingerprint(), err)
				}
				if *s.Manifest().Boundary.EOS != 0 || s.Manifest().Boundary.BOS != nil || s.Manifest().Counts["empty"] != 2 {
					t.Errorf("manifest %+v", s.Manifest())
				}
				var last, total int64
				if err := Verify(t.Context(), dir, func(d, n int64) { last, total = d, n }); err != nil || last != total || total == 0 {
					t.Errorf("verify: %v, %d of %d bytes", err, last, total)
				}
			})
		}
	}
}

// The files are what the Arrow project's own reader expects.
func TestArrowReads(t *testing.T) {
	for _, vocab := range []int{4096, 128256} {
		dir := filepath.Join(t.TempDir(), "s")
		docs := makeDocs(150, vocab)
		m := build(t, dir, docs, testMeta(vocab))
		at := 0
		for _, sh := range m.Shards {
			f, err := os.Open(filepath.Join(dir, sh.File))
			if err != nil {
				t.Fatal(err)
			}
			r, err := ipc.NewFileReader(f)
			if err != nil {
				t.Fatal(err)
			}
			for k := range r.NumRecords() {
				rec, err := r.Record(k)
				if err != nil {
					t.Fatal(err)
				}
				if int64(rec.NumRows()) != sh.Batches[k].Documents {
					t.Errorf("batch %d has %d rows", k, rec.NumRows())
				}
				at = checkRecord(t, rec, docs, at)
			}
			r.Close()
			f.Close()
		}
		if at != len(docs) {
			t.Errorf("Arrow found %d documents of %d", at, len(docs))
		}
	}
}

func checkRecord(t *testing.T, rec arrow.Record, docs []doc, at int) int {
	t.Helper()
	list := rec.Column(0).(*array.List)
	ids := rec.Column(1).(*array.Uint64)
	src := rec.Column(2).(*array.Dictionary)
	for row := range int(rec.NumRows()) {
		from, to := list.ValueOffsets(row)
		var got []uint32
		for i := from; i < to; i++ {
			switch v := list.ListValues().(type) {
			case *array.Uint16:
				got = append(got, uint32(v.Value(int(i))))
			case *array.Uint32:
				got = append(got, v.Value(int(i)))
			}
		}
		name := src.Dictionary().(*array.String).Value(src.GetValueIndex(row))
		if d := docs[at]; !slices.Equal(got, d.ids) || ids.Value(row) != d.id || name != d.source {
			t.Fatalf("document %d: Arrow reads %v %d %q", at, got, ids.Value(row), name)
		}
		at++
	}
	return at
}

// Every buffer that the format promises to be aligned is.
func TestBuffersAreAligned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	m := build(t, dir, makeDocs(150, 9), testMeta(9))
	for _, sh := range m.Shards {
		data, err := os.ReadFile(filepath.Join(dir, sh.File))
		if err != nil {
			t.Fatal(err)
		}
		_, batches, err := layout(&sh, data, U16)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			_, _, bufs, err := readRecords(data[b.offset:][:b.metadata], headerRecords, b.body, 4, 8)
			if err != nil {
				t.Fatal(err)
			}
			for i, buf := range bufs {
				if (b.offset+b.metadata+buf[0])%64 != 0 {
					t.Errorf("%s: buffer %d of the batch at %d is at byte %d", sh.File, i, b.offset, b.offset+b.metadata+buf[0])
				}
			}
		}
	}
}

func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = b
	}
	return out
}

func TestSameInputSameBytes(t *testing.T) {
	tmp := t.TempDir()
	docs := makeDocs(80, 300)
	build(t, filepath.Join(tmp, "a"), docs, testMeta(300))
	build(t, filepath.Join(tmp, "b"), docs, testMeta(300))
	a, b := files(t, filepath.Join(tmp, "a")), files(t, filepath.Join(tmp, "b"))
	if len(a) != len(b) {
		t.Fatalf("%d and %d files", len(a), len(b))
	}
	for name, x := range a {
		if !bytes.Equal(x, b[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// R40: a changed byte anywhere is found, and a changed batch is named. Every byte
// is tried in memory, every hundredth on the disk.
func TestEveryChangedByteIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	m := build(t, dir, makeDocs(60, 300), testMeta(300))
	all := files(t, dir)
	for i := range all[ManifestName] {
		bad := bytes.Clone(all[ManifestName])
		bad[i] ^= 1 << (i % 8)
		if _, err := decodeManifest(bad); err == nil {
			t.Fatalf("manifest: changed byte %d was not found", i)
		}
	}
	for _, sh := range m.Shards {
		data := all[sh.File]
		for i := range data {
			data[i] ^= 1 << (i % 8)
			if verifyShard(&sh, data) == nil {
				t.Fatalf("%s: changed byte %d was not found", sh.File, i)
			}
			data[i] ^= 1 << (i % 8)
		}
	}
	for name, data := range all {
		path := filepath.Join(dir, name)
		for i := 0; i < len(data); i += 101 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << (i % 8)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Verify(t.Context(), dir, nil); err == nil {
				t.Fatalf("%s: changed byte %d was not found", name, i)
			}
			if s, err := Open(dir, OpenOptions{Resident: true}); err == nil {
				s.Close()
				t.Fatalf("%s: opened resident with changed byte %d", name, i)
			}
		}
		for _, n := range []int{0, 1, len(data) / 2, len(data) - 1} {
			if err := os.WriteFile(path, data[:n], 0o600); err != nil {
				t.Fatal(err)
			}
			if s, err := Open(dir, OpenOptions{}); err == nil {
				s.Close()
				t.Fatalf("%s cut to %d bytes was opened", name, n)
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := m.Shards[1].Batches[2]
	path := filepath.Join(dir, m.Shards[1].File)
	data, _ := os.ReadFile(path)
	data[b.Offset+b.Bytes-70] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Verify(t.Context(), dir, nil)
	var c *CorruptError
	if !errors.As(err, &c) || c.Shard != m.Shards[1].File || c.Batch != 2 || c.Offset != b.Offset {
		t.Errorf("%v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "s")
	build(t, dir, makeDocs(20, 300), testMeta(300))
	for _, c := range []struct {
		name, dir string
		o         OpenOptions
		want      string
	}{
		{"nothing", filepath.Join(tmp, "none"), OpenOptions{}, "not a token store"},
		{"other tokenizer", dir, OpenOptions{TokenizerHash: "00"}, "built with tokenizer"},
		{"unfinished", dir + ".partial", OpenOptions{}, "unfinished ingest"},
	} {
		if s, err := Open(c.dir, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			if s != nil {
				s.Close()
			}
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  []uint32
		want string
	}{
		{"empty", nil, "no tokens"},
		{"outside the vocabulary", []uint32{1, 300}, "id 300 at token 1"},
		{"too long", make([]uint32, 201), "more than 200"},
	} {
		dir := filepath.Join(t.TempDir(), "s")
		w, err := Create(dir, testMeta(300))
		if err != nil {
			t.Fatal(err)
		}
		w.limits = limits{100, 200, 700, shardNames}
		err = w.Append(5, "f", c.ids)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, cerr := w.Close(t.Context()); !errors.Is(cerr, err) {
			t.Errorf("%s: Close after the error gave %v", c.name, cerr)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 0 {
			t.Errorf("%s: %v left behind", c.name, left)
		}
	}
	for _, m := range []Meta{{}, {Vocab: 10, Boundary: eos(10)}} {
		if _, err := Create(filepath.Join(t.TempDir(), "s"), m); err == nil {
			t.Errorf("%+v was accepted", m)
		}
	}
	w, err := Create(filepath.Join(t.TempDir(), "s"), testMeta(3))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "no documents") {
		t.Errorf("empty store: %v", err)
	}
}

func TestCreateGuardsItsFolder(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "s")
	w, err := Create(dir, testMeta(300))
	if err != nil {
		t.Fatal(err)
	}
	var locked *fsx.LockedError
	if _, err := Create(dir, testMeta(300)); !errors.As(err, &locked) {
		t.Errorf("a second writer got %v", err)
	}
	// The first writer dies: its lock ends, its files stay.
	w.limits = limits{1, 200, 1000, shardNames}
	if err := w.Append(1, "old", []uint32{1, 2}); err != nil {
		t.Fatal(err)
	}
	w.file.Close()
	w.lock.Close()
	docs := makeDocs(30, 300)
	build(t, dir, docs, testMeta(300))
	checkDocs(t, mustOpen(t, dir, OpenOptions{}), docs)
	if _, err := Create(dir, testMeta(300)); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an existing store: %v", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCloseObeysContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	w, err := Create(dir, testMeta(300))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(1, "f", []uint32{1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close gave %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBatchesStayBelowTheDocumentLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	w, err := Create(dir, testMeta(300))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	w.limits = limits{batch: 190, document: 200, shard: 1 << 20, names: shardNames}
	for i := range uint64(4) {
		if err := w.Append(i, "f", make([]uint32, 180)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range m.Shards[0].Batches {
		if b.Tokens > 200 {
			t.Errorf("a batch of %d tokens", b.Tokens)
		}
	}
}

// TestNamesEndAShard: the dictionary of a shard cannot outgrow its int32 offsets.
func TestNamesEndAShard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	w, err := Create(dir, testMeta(300))
	if err != nil {
		t.Fatal(err)
	}
	w.limits = limits{batch: 2, document: 200, shard: 1 << 20, names: 100}
	name := func(doc int) string { return fmt.Sprintf("folder/%040d", doc) }
	for doc := range 20 {
		if err := w.Append(uint64(doc), name(doc), []uint32{1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Shards) != 7 { // three names of 47 bytes each
		t.Errorf("%d shards", len(m.Shards))
	}
	s := mustOpen(t, dir, OpenOptions{})
	for doc := range 20 {
		if got := s.Source(doc); got != name(doc) {
			t.Errorf("document %d comes from %q", doc, got)
		}
	}
}

func TestSourceNamesAreMadeValid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	build(t, dir, []doc{{1, "a\xffb", []uint32{1}}}, testMeta(300))
	if got := mustOpen(t, dir, OpenOptions{}).Source(0); got != "a\uFFFDb" {
		t.Errorf("source %q", got)
	}
}

func TestWiden(t *testing.T) {
	src := make([]uint16, 100)
	for i := range src {
		src[i] = uint16(i * 7919)
	}
	for from := range 5 {
		for n := range 60 {
			dst := make([]int32, n+2)
			dst[0], dst[n+1] = -7, -7
			widen(dst[1:n+1], src[from:from+n])
			if dst[0] != -7 || dst[n+1] != -7 {
				t.Fatalf("n = %d: wrote outside", n)
			}
			for i := range n {
				if dst[1+i] != int32(src[from+i]) {
					t.Fatalf("n = %d: dst[%d] = %d, want %d", n, i, dst[1+i], src[from+i])
				}
			}
		}
	}
}

func TestCopyDoesNotAllocate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	build(t, dir, makeDocs(20, 300), testMeta(300))
	s := mustOpen(t, dir, OpenOptions{})
	dst := make([]int32, 40)
	if n := testing.AllocsPerRun(100, func() { s.Copy(3, 0, int(s.Lengths()[3]), dst) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
