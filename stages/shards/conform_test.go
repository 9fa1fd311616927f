package shards

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/item"
)

// TestConforms runs the pipeline's suite over a source of every kind, the
// Parquet child included.
func TestConforms(t *testing.T) {
	d := t.TempDir()
	for i := range 12 {
		put(t, d, fmt.Sprintf("%02d.txt", i), bytes.Repeat(fmt.Appendf(nil, "line of file %d\n", i), 12000))
	}
	for _, n := range []string{"string.arrow", "snappy.parquet", "docs.jsonl.zst"} {
		raw, err := os.ReadFile(filepath.Join("testdata", n))
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, "05-"+n, raw)
	}
	ins, err := DiscoverHeld([]string{d}, Options{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	whole := readInputs(t, ins, Options{Duplicate: Keep})
	if whole.err != nil {
		t.Fatal(whole.err)
	}
	pipelinetest.RunSource(t, pipelinetest.SourceCase[*item.Docs]{
		New: func() pipeline.Stage[struct{}, *item.Docs] { return New(ins, Options{Duplicate: Keep}) },
		Keep: func(b *item.Docs) *item.Docs { // a block that is freed lends its memory to later ones
			kept := &item.Docs{Seq: b.Seq, Bytes: b.Bytes, Docs: slices.Clone(b.Docs)}
			for i := range kept.Docs {
				kept.Docs[i].Text = bytes.Clone(kept.Docs[i].Text)
			}
			return kept
		},
		Release: func(b *item.Docs) {
			if b.Free != nil {
				b.Free()
			}
		},
		Want: func(got []*item.Docs) error {
			var docs []item.Doc
			for _, b := range got {
				docs = append(docs, b.Docs...)
			}
			if len(docs) != len(whole.docs) {
				return fmt.Errorf("%d documents, want %d", len(docs), len(whole.docs))
			}
			for i := range docs {
				if docs[i].ID != whole.docs[i].ID || !bytes.Equal(docs[i].Text, whole.docs[i].Text) {
					return fmt.Errorf("document %d differs", i)
				}
			}
			return nil
		},
	})
}

const (
	numShards  = 50
	perShard   = 4
	badShard   = 17
	totalDocs  = numShards * perShard
	beforeDocs = badShard * perShard
)

// shardText is document k of shard s.
func shardText(s, k int) string { return fmt.Sprintf("shard %d document %d %x", s, k, s*7919+k*104729) }

func jsonlShard(s int) []byte {
	var b []byte
	for k := range perShard {
		b = fmt.Appendf(b, "{\"id\":%d,\"text\":%q}\n", k, shardText(s, k))
	}
	return b
}

func arrowShard(t *testing.T, s int, column string, dt arrow.DataType) []byte {
	schema := arrow.NewSchema([]arrow.Field{{Name: column, Type: dt}}, nil)
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(schema))
	for k := range perShard {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		switch f := b.Field(0).(type) {
		case *array.StringBuilder:
			f.Append(shardText(s, k))
		case *array.Int64Builder:
			f.Append(int64(k))
		}
		if err := w.Write(b.NewRecord()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestCorruptShards spoils one of fifty shards in many ways. By default the
// reading stops and names shard, place and reason; where a policy may skip, the
// counts are exact.
func TestCorruptShards(t *testing.T) {
	plain := func(s int) []byte { return jsonlShard(s) }
	stream := func(s int) []byte { return arrowShard(t, s, "text", arrow.BinaryTypes.String) }
	type way struct {
		name  string
		ext   string
		good  func(s int) []byte
		bad   func(b []byte) []byte
		want  []string // in the error
		skip  *Options // nil: never skipped
		count Reason
		docs  int // with skip
	}
	ways := []way{
		{"truncated gz", ".jsonl.gz", func(s int) []byte { return gz(plain(s)) }, func(b []byte) []byte { return b[:len(b)-5] },
			[]string{"truncated", "gzip stream"}, &Options{Truncated: Skip}, Truncated, totalDocs},
		{"truncated Arrow", ".arrows", stream, func(b []byte) []byte { return b[:len(b)-100] },
			[]string{"truncated", "record batch 3"}, &Options{Truncated: Skip}, Truncated, totalDocs - 1},
		{"flip in zst", ".jsonl.zst", func(s int) []byte { return zst(plain(s)) }, func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
			[]string{"damaged"}, nil, "", 0},
		{"flip in Arrow", ".arrows", stream, func(b []byte) []byte {
			// The last offset of the first batch: its low byte grows beyond the data.
			i := bytes.Index(b, []byte("shard"))
			b[i-8+4] |= 0x80
			return b
		}, []string{"damaged", "record batch 0", "offset"}, nil, "", 0},
		{"length prefix", ".arrows", stream, func(b []byte) []byte { b[5] ^= 0x40; return b },
			[]string{"truncated"}, &Options{Truncated: Skip}, Truncated, totalDocs - perShard},
		{"empty jsonl", ".jsonl", plain, func([]byte) []byte { return nil },
			nil, &Options{}, Empty, totalDocs - perShard},
		{"empty zst", ".jsonl.zst", func(s int) []byte { return zst(plain(s)) }, func([]byte) []byte { return nil },
			[]string{"truncated", "zstd stream"}, &Options{Truncated: Skip}, Truncated, totalDocs - perShard},
		{"cut at a frame border", ".jsonl.zst", func(s int) []byte {
			b := plain(s)
			return append(zst(b[:len(b)-20]), zst(b[len(b)-20:])...)
		}, func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte(magicZstd))] },
			[]string{"truncated", "line 4", "no end"}, &Options{Truncated: Skip}, Truncated, totalDocs - 1},
		{"bad UTF-8", ".jsonl", plain, func(b []byte) []byte { b[bytes.Index(b, []byte("document 2"))] = 0xc3; return b },
			[]string{"line 3", "invalid utf8", "0xc3", "data.invalid_utf8"}, &Options{InvalidUTF8: Skip}, InvalidUTF8, totalDocs - 1},
		{"two values", ".jsonl", plain, func(b []byte) []byte { return bytes.Replace(b, []byte("}\n"), []byte("} {}\n"), 1) },
			[]string{"line 1", "one value", "data.bad_line"}, &Options{BadLine: Skip}, BadLine, totalDocs - 1},
		{"schema change", ".arrows", stream, func([]byte) []byte { return arrowShard(t, badShard, "text", arrow.PrimitiveTypes.Int64) },
			[]string{"schema", `column "text" is int`}, nil, "", 0},
		{"missing column", ".arrows", stream, func([]byte) []byte { return arrowShard(t, badShard, "txt", arrow.BinaryTypes.String) },
			[]string{"schema", `did you mean "txt"?`, "data.field"}, nil, "", 0},
		{"missing field", ".jsonl", plain, func(b []byte) []byte { return bytes.Replace(b, []byte(`"text"`), []byte(`"body"`), 1) },
			[]string{"line 1", `no field "text"`, "data.field"}, &Options{BadLine: Skip}, BadLine, totalDocs - 1},
		{"duplicate file", ".jsonl", plain, func([]byte) []byte { return plain(3) },
			nil, &Options{}, Duplicate, totalDocs - perShard},
		{"endless line", ".jsonl", plain, func([]byte) []byte { return bytes.Repeat([]byte("x"), 1<<20) },
			[]string{"line 1", "too long", "data.max_line"}, &Options{TooLong: Skip, MaxLine: 1 << 16}, TooLong, totalDocs - perShard},
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			d := t.TempDir()
			name := ""
			for s := range numShards {
				b := w.good(s)
				n := fmt.Sprintf("shard-%05d%s", s, w.ext)
				if s == badShard {
					name, b = n, w.bad(b)
				}
				put(t, d, n, b)
			}
			limits := Options{MaxLine: 1 << 16}
			r := read(t, limits, d)
			if w.want != nil {
				wantErr(t, r.err, append(w.want, name)...)
				if len(r.docs) > 0 {
					t.Errorf("%d documents went out before a block was full", len(r.docs))
				}
			}
			if w.skip == nil {
				for _, p := range []Options{{BadLine: Skip, Truncated: Skip, InvalidUTF8: Skip, TooLong: Skip}, {InvalidUTF8: Replace}} {
					wantErr(t, read(t, p, d).err, append(w.want, name)...)
				}
				return
			}
			r = read(t, *w.skip, d)
			again := read(t, *w.skip, d)
			lost := int64(1)
			if w.count == Duplicate {
				lost = perShard
			}
			if r.err != nil || len(r.docs) != w.docs || r.rep.Of(w.count) != lost {
				t.Fatalf("skip: %v, %d documents, want %d, %s", r.err, len(r.docs), w.docs, r.rep)
			}
			for i, doc := range r.docs {
				if doc.ID != again.docs[i].ID || (i < beforeDocs && string(doc.Text) != shardText(i/perShard, i%perShard)) {
					t.Fatalf("document %d has ID %d: %q", i, doc.ID, doc.Text)
				}
			}
			if w.want == nil {
				return
			}
			over := *w.skip
			over.SkipBudget = 0.001
			var be *BudgetError
			if r = read(t, over, d); !errors.As(r.err, &be) {
				t.Errorf("over the budget: %v", r.err)
			}
			wantErr(t, r.err, name)
		})
	}
	t.Run("symlink", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("symbolic links need a privilege here")
		}
		d := t.TempDir()
		put(t, d, "shard-0.jsonl", plain(0))
		if err := os.Symlink(put(t, t.TempDir(), "x", plain(1)), filepath.Join(d, "shard-1.jsonl")); err != nil {
			t.Fatal(err)
		}
		wantErr(t, read(t, Options{}, d).err, "shard-1.jsonl", "symbolic link")
	})
	t.Run("companions", func(t *testing.T) {
		d := t.TempDir()
		put(t, d, "train/data-0.arrow", stream(0))
		put(t, d, "train/dataset_info.json", []byte(`{"features":{}}`))
		put(t, d, "train/README.md", []byte("# A dataset"))
		put(t, d, "notes/README.md", []byte("a text of its own"))
		r := read(t, Options{}, d)
		if r.err != nil || len(r.docs) != perShard+1 || r.rep.Of(Companion) != 2 {
			t.Errorf("%v %s", r.err, r.rep)
		}
	})
	t.Run("promised kind", func(t *testing.T) {
		d := t.TempDir()
		put(t, d, "a.arrow", []byte("this is not Arrow at all"))
		wantErr(t, read(t, Options{}, d).err, "a.arrow", "does not begin with")
		d = t.TempDir()
		put(t, d, "a.parquet", []byte(strings.Repeat("no parquet ", 9)))
		wantErr(t, read(t, Options{}, d).err, "a.parquet")
	})
}
