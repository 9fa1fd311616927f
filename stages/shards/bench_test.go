package shards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/compress"
	"github.com/apache/arrow/go/v15/parquet/file"
	"github.com/apache/arrow/go/v15/parquet/schema"

	"refrain/stages/item"
)

// sink drops documents.
type sink struct{ bytes int64 }

func (s *sink) Send(_ context.Context, d *item.Docs) error { s.bytes += d.Bytes; return nil }

// BenchmarkRead is text bytes per second of each kind, files in the page cache,
// duplicates checked. The floor is one pass each of UTF-8 check, SHA-256 and copy.
func BenchmarkRead(b *testing.B) {
	const docs = 4000
	columns := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, nil)
	rec := array.NewRecordBuilder(memory.DefaultAllocator, columns)
	var lines []byte
	var texts []parquet.ByteArray
	for i := range docs {
		text := strings.Repeat(fmt.Sprintf("document %d says \"something\" new,\n", i), 120)
		line, err := json.Marshal(map[string]any{"id": i, "text": text})
		if err != nil {
			b.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
		texts = append(texts, parquet.ByteArray(text))
		rec.Field(0).(*array.StringBuilder).Append(text)
	}
	r := rec.NewRecord()
	var stream, pq bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(columns))
	for _, err := range []error{w.Write(r), w.Close(), writeParquet(&pq, texts)} {
		if err != nil {
			b.Fatal(err)
		}
	}
	d := b.TempDir()
	for _, c := range []struct {
		name string
		data []byte
	}{{"a.jsonl", lines}, {"a.jsonl.gz", gz(lines)}, {"a.jsonl.zst", zst(lines)}, {"a.arrows", stream.Bytes()}, {"a.parquet", pq.Bytes()}} {
		ins, err := Discover([]string{put(b, d, c.name, c.data)}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name[2:], func(b *testing.B) {
			var n int64
			for b.Loop() {
				var s sink
				if err := New(ins, Options{}).Run(b.Context(), none{}, &s); err != nil {
					b.Fatal(err)
				}
				n = s.bytes
			}
			b.SetBytes(n)
		})
	}
}

// writeParquet writes one required string column.
func writeParquet(w *bytes.Buffer, texts []parquet.ByteArray) error {
	leaf, err := schema.NewPrimitiveNodeLogical("text", parquet.Repetitions.Required, schema.StringLogicalType{}, parquet.Types.ByteArray, -1, -1)
	if err != nil {
		return err
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{leaf}, -1)
	if err != nil {
		return err
	}
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDictionaryDefault(false))
	f := file.NewParquetWriter(w, root, file.WithWriterProps(props))
	col, err := f.AppendRowGroup().NextColumn()
	if err != nil {
		return err
	}
	if _, err := col.(*file.ByteArrayColumnChunkWriter).WriteBatch(texts, nil, nil); err != nil {
		return err
	}
	if err := col.Close(); err != nil {
		return err
	}
	return f.Close()
}
