package shards

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

// fixtureTexts are the documents that every good fixture holds, by record
// number; nulls are missing.
func fixtureTexts(t testing.TB) map[int64]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/docs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[int64]string)
	for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var v struct{ Text *string }
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		if v.Text != nil {
			out[int64(i)] = *v.Text
		}
	}
	return out
}

// wantFixture checks that a reading gave exactly the fixture's documents, with
// records counted from base.
func wantFixture(t *testing.T, r result, base int64) {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	want := fixtureTexts(t)
	if len(r.docs) != len(want) || r.rep.Of(Empty) != 3 {
		t.Errorf("%d documents of %d, report %s", len(r.docs), len(want), r.rep)
	}
	for _, d := range r.docs {
		if w, ok := want[d.Record-base]; !ok || string(d.Text) != w {
			t.Errorf("record %d is %q, want %q", d.Record, d.Text, w)
		}
		if d.ID != uint64(d.Record-base) {
			t.Errorf("record %d has ID %d", d.Record, d.ID)
		}
	}
}

func TestFixtures(t *testing.T) {
	for _, n := range []string{"docs.jsonl", "docs.jsonl.gz", "docs.jsonl.zst"} {
		t.Run(n, func(t *testing.T) { wantFixture(t, read(t, Options{}, filepath.Join("testdata", n)), 1) })
	}
	for _, n := range []string{"string.arrow", "string.arrows", "large.arrow", "view.arrow", "zstd.arrow", "lz4.arrow", "v4.arrow",
		"dict-int8.arrows", "dict-int32.arrows", "dict-uint16.arrows", "dict.arrow", "sliced.arrow"} {
		t.Run(n, func(t *testing.T) {
			wantFixture(t, read(t, Options{}, filepath.Join("testdata", n)), 0)
			// The same bytes compressed, and from a pipe.
			raw, err := os.ReadFile(filepath.Join("testdata", n))
			if err != nil {
				t.Fatal(err)
			}
			wantFixture(t, read(t, Options{}, put(t, t.TempDir(), n+".gz", gz(raw))), 0)
			ins, _ := Discover([]string{"-"}, Options{})
			src := New(ins, Options{})
			src.SetStdin(bytes.NewReader(zst(raw)))
			wantFixture(t, runSource(t, src), 0)
		})
	}
	for n, want := range map[string][]string{
		"bad-list.arrow":   {`column "text" is list<string>`, "string, large_string"},
		"bad-int.arrow":    {`column "text" is int`},
		"bad-binary.arrow": {`column "text" is binary`},
		"bad-column.arrow": {`no column "text" among ["Text" "id"]`, `did you mean "Text"?`, "data.field"},
	} {
		t.Run(n, func(t *testing.T) {
			wantErr(t, read(t, Options{}, filepath.Join("testdata", n)).err, append(want, n)...)
		})
	}
}

// arrowSeeds are small files and streams of every kind, by name.
func arrowSeeds(t testing.TB) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	names, err := filepath.Glob("testdata/*.arrow*")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if out[n], err = os.ReadFile(n); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// readArrow reads bytes as an Arrow input, which must never panic.
func readArrow(t testing.TB, data []byte, o Options) result {
	k := KindArrowStream
	if bytes.HasPrefix(data, []byte("ARROW")) {
		k = KindArrowFile
	}
	o.Kind = k
	src := New([]Input{{Path: "-", Kind: k, Size: -1, stdin: true}}, o)
	src.SetStdin(bytes.NewReader(data))
	return runSource(t, src)
}

// TestArrowAgainstLibrary reads random columns written by the Arrow library.
func TestArrowAgainstLibrary(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	for round := range 20 {
		dt := []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString}[round%2]
		schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int16, Nullable: true}, {Name: "text", Type: dt, Nullable: true}}, nil)
		var buf bytes.Buffer
		opts := []ipc.Option{ipc.WithSchema(schema)}
		switch round % 3 {
		case 0:
			opts = append(opts, ipc.WithZstd())
		case 1:
			opts = append(opts, ipc.WithLZ4())
		}
		w := ipc.NewWriter(&buf, opts...)
		var want []string
		for range 1 + rng.Intn(4) {
			b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
			for i := range rng.Intn(50) {
				b.Field(0).(*array.Int16Builder).Append(int16(i))
				if rng.Intn(5) == 0 {
					b.Field(1).AppendNull()
					continue
				}
				s := fmt.Sprintf("%d %s", len(want), strings.Repeat("é", rng.Intn([]int{300, 9000}[round/3%2])))
				want = append(want, s)
				b.Field(1).(interface{ Append(string) }).Append(s)
			}
			if err := w.Write(b.NewRecord()); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		wantTexts(t, readArrow(t, buf.Bytes(), Options{}), want...)
	}
}

// TestArrowDelta: a dictionary that grows is refused in words.
func TestArrowDelta(t *testing.T) {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{{Name: "text", Type: dt}}, nil)
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(schema), ipc.WithDictionaryDeltas(true))
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for _, s := range []string{"a", "b", "c"} {
		if err := b.Field(0).(*array.BinaryDictionaryBuilder).AppendString(s); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(b.NewRecord()); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	wantErr(t, readArrow(t, buf.Bytes(), Options{}).err, "delta messages", "one dictionary")
}

// TestArrowCuts cuts files and streams at every length: an error that says
// truncated or damaged, and with skip a prefix of the documents.
func TestArrowCuts(t *testing.T) {
	want := fixtureTexts(t)
	for _, n := range []string{"string.arrow", "string.arrows", "dict-int8.arrows"} {
		full, err := os.ReadFile(filepath.Join("testdata", n))
		if err != nil {
			t.Fatal(err)
		}
		for cut := len(full) - 1; cut >= 8; cut -= 1 + (len(full)-cut)/16 {
			r := readArrow(t, full[:cut], Options{})
			var e *Error
			if !errors.As(r.err, &e) || e.Reason != Truncated {
				t.Fatalf("%s cut at %d of %d: %v", n, cut, len(full), r.err)
			}
			r = readArrow(t, full[:cut], Options{Truncated: Skip})
			if r.err != nil || r.rep.Of(Truncated) != 1 {
				t.Fatalf("%s cut at %d, skip: %v, %s", n, cut, r.err, r.rep)
			}
			for _, d := range r.docs {
				if string(d.Text) != want[d.Record] {
					t.Fatalf("%s cut at %d: record %d is %q", n, cut, d.Record, d.Text)
				}
			}
		}
	}
}

// mutate damages a copy of b the way disks, bugs and attackers do.
func mutate(b []byte, rng *rand.Rand) []byte {
	b = bytes.Clone(b)
	for range 1 + rng.Intn(4) {
		if len(b) < 16 {
			return b
		}
		p := rng.Intn(len(b))
		if rng.Intn(2) == 0 { // metadata and headers live near the start
			p = rng.Intn(min(len(b), 3000))
		}
		put := func(v uint64, n int) {
			q := p &^ (n - 1)
			for i := 0; i < n && q+i < len(b); i++ {
				b[q+i] = byte(v >> (8 * i))
			}
		}
		switch rng.Intn(7) {
		case 0:
			b[p] ^= 1 << rng.Intn(8)
		case 1:
			b[p] = byte(rng.Intn(256))
		case 2:
			put([]uint64{0, 1, 0x7fffffff, 0xffffffff, 0x80000000, 1 << 24, uint64(len(b))}[rng.Intn(7)], 4)
		case 3:
			put([]uint64{0, 1<<63 - 1, 1 << 62, 1<<64 - 1, 1 << 33, uint64(len(b))}[rng.Intn(6)], 8)
		case 4:
			b = b[:p]
		case 5:
			b = append(b[:p], b[min(len(b), p+rng.Intn(16)):]...)
		case 6:
			src := bytes.Clone(b[p:min(len(b), p+rng.Intn(64))])
			copy(b[rng.Intn(len(b)):], src)
		}
	}
	return b
}

// TestArrowMutations: thousands of damaged files give documents or an error
// that names the place, and never a panic.
func TestArrowMutations(t *testing.T) {
	rounds := 250
	if testing.Short() {
		rounds = 60
	}
	seeds := arrowSeeds(t)
	var names []string
	for n := range seeds {
		names = append(names, n)
	}
	slices.Sort(names)
	rng := rand.New(rand.NewSource(11))
	bad := 0
	for range rounds * len(names) {
		n := names[rng.Intn(len(names))]
		r := readArrow(t, mutate(seeds[n], rng), Options{MaxBatch: 1 << 20})
		var e *Error
		if r.err != nil {
			bad++
			if !errors.As(r.err, &e) || e.Path == "" || e.Reason == "" {
				t.Fatalf("%s: error without a place: %v", n, r.err)
			}
		}
	}
	if bad < rounds*len(names)/4 {
		t.Errorf("only %d of %d damaged inputs were noticed", bad, rounds*len(names))
	}
	t.Logf("%d inputs, %d refused", rounds*len(names), bad)
}

func FuzzArrow(f *testing.F) {
	for _, s := range arrowSeeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) { readArrow(t, data, Options{MaxBatch: 1 << 20}) })
}

// TestOffsetArithmetic checks the guard where 32 bits end: sizes are claimed,
// not allocated.
func TestOffsetArithmetic(t *testing.T) {
	le32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
		}
		return b
	}
	le64 := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = append(b, le32(uint32(x), uint32(x>>32))...)
		}
		return b
	}
	const big = 5 << 30
	for _, c := range []struct {
		name string
		err  error
		ok   bool
	}{
		{"32 at the end of 2 GiB", checkOffsets32(le32(0, 1<<31-1), 1, 1<<31-1), true},
		{"32 beyond the data", checkOffsets32(le32(0, 1<<31-1), 1, 1<<31-2), false},
		{"32 overflown", checkOffsets32(le32(0, 1<<31), 1, big), false},
		{"32 going back", checkOffsets32(le32(0, 8, 4), 2, 8), false},
		{"32 short", checkOffsets32(le32(0, 1), 2, 8), false},
		{"32 short at 2^31 rows", checkOffsets32(le32(0, 1), 1<<31-1, 8), false},
		{"32 none", checkOffsets32(nil, 0, 0), true},
		{"64 beyond 4 GiB", checkOffsets64(le64(1<<32, big), 1, big), true},
		{"64 past the data", checkOffsets64(le64(1<<32, big+1), 1, big), false},
		{"64 negative", checkOffsets64(le64(1<<63, big), 1, big), false},
		{"64 overflowing sum", checkOffsets64(le64(0, 1<<63-1), 1, big), false},
		{"bitmap short", checkValidity(extent{9, 0}, []byte{255}), false},
		{"bitmap count", checkValidity(extent{9, 1}, []byte{255, 1}), false},
		{"bitmap fits", checkValidity(extent{9, 2}, []byte{0xfe, 0xfe}), true},
		{"no bitmap", checkValidity(extent{9, 1}, nil), false},
		{"view outside", checkViews(le32(13, 0, 0, 1<<31-1), 1, [][]byte{make([]byte, 16)}), false},
		{"view of no buffer", checkViews(le32(13, 0, 7, 0), 1, [][]byte{make([]byte, 16)}), false},
		{"view negative", checkViews(le32(1<<31, 0, 0, 0), 1, nil), false},
		{"view fits", checkViews(le32(13, 0, 0, 3), 1, [][]byte{make([]byte, 16)}), true},
		{"view short", checkViews(le32(1, 0, 0), 1, nil), false},
	} {
		if (c.err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	body := func(off, n uint64, size int64) error {
		f := readMetadata(batchTable(off, n))
		f.parseBatch(f.Root(), size)
		return f.Err()
	}
	if err := body(3<<31, 1<<31, 4<<31); err != nil {
		t.Errorf("a buffer beyond 6 GiB of 8: %v", err)
	}
	for _, c := range [][2]uint64{{3 << 31, 1<<31 + 1}, {1 << 63, 8}, {8, 1 << 63}, {1<<63 - 8, 1<<63 - 8}, {4, 8}} {
		if err := body(c[0], c[1], 4<<31); err == nil {
			t.Errorf("buffer at %d of %d bytes passed", c[0], c[1])
		}
	}
}

// batchTable is a hand-made RecordBatch table with one buffer.
func batchTable(off, n uint64) []byte {
	le := func(v uint64, k int) (b []byte) {
		for i := range k {
			b = append(b, byte(v>>(8*i)))
		}
		return b
	}
	var b []byte
	b = append(b, le(16, 4)...)                                        // root table at 16
	b = append(b, le(10, 2)...)                                        // vtable at 4: size
	b = append(b, le(8, 2)...)                                         // table size
	b = append(b, 0, 0, 0, 0)                                          // fields 0 and 1 absent
	b = append(b, le(4, 2)...)                                         // field 2, buffers
	b = append(b, 0, 0)                                                // padding
	b = append(b, le(12, 4)...)                                        // table at 16: distance to the vtable
	b = append(b, le(4, 4)...)                                         // offset of the vector
	b = append(b, le(1, 4)...)                                         // one element
	return append(append(b, le(off, 8)...), append(le(n, 8), 0, 0)...) // at 28
}

// schemaOnly is a stream without batches.
func schemaOnly(t *testing.T, s *arrow.Schema) []byte {
	var buf bytes.Buffer
	if err := ipc.NewWriter(&buf, ipc.WithSchema(s)).Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestArrowLimits(t *testing.T) {
	raw, err := os.ReadFile("testdata/string.arrows")
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, readArrow(t, raw, Options{MaxBatch: 256}).err, "record batch 0", "more than 256", "data.max_batch")
	wantErr(t, readArrow(t, raw, Options{MaxDoc: 500}).err, "record batch 1, row 29", "longer than 500", "data.max_doc")
	// A metadata length that is a lie costs nothing but an error.
	huge := append([]byte("\xff\xff\xff\xff\xff\xff\xff\x00"), raw...)
	wantErr(t, readArrow(t, huge, Options{}).err, "truncated")
	huge[7] = 0x7f
	wantErr(t, readArrow(t, huge, Options{}).err, "more than 16777216")
	fields := func(n int) error {
		var fs []arrow.Field
		for i := range n - 1 {
			fs = append(fs, arrow.Field{Name: fmt.Sprint("c", i), Type: arrow.FixedWidthTypes.Boolean})
		}
		fs = append(fs, arrow.Field{Name: "text", Type: arrow.BinaryTypes.String})
		return readArrow(t, schemaOnly(t, arrow.NewSchema(fs, nil)), Options{}).err
	}
	if err := fields(maxArrowFields); err != nil {
		t.Errorf("%d fields: %v", maxArrowFields, err)
	}
	wantErr(t, fields(maxArrowFields+1), "more than 1024 fields")
	nested := func(depth int) error {
		dt := arrow.DataType(arrow.FixedWidthTypes.Boolean)
		for range depth - 1 {
			dt = arrow.ListOf(dt)
		}
		s := arrow.NewSchema([]arrow.Field{{Name: "deep", Type: dt}, {Name: "text", Type: arrow.BinaryTypes.String}}, nil)
		return readArrow(t, schemaOnly(t, s), Options{}).err
	}
	if err := nested(maxArrowDepth); err != nil {
		t.Errorf("depth %d: %v", maxArrowDepth, err)
	}
	wantErr(t, nested(maxArrowDepth+1), "nested deeper than 8")
	named := func(n int) error {
		s := arrow.NewSchema([]arrow.Field{{Name: strings.Repeat("n", n), Type: arrow.FixedWidthTypes.Boolean}, {Name: "text", Type: arrow.BinaryTypes.String}}, nil)
		return readArrow(t, schemaOnly(t, s), Options{}).err
	}
	if err := named(maxArrowName); err != nil {
		t.Errorf("a name of %d bytes: %v", maxArrowName, err)
	}
	wantErr(t, named(maxArrowName+1), "field name of 4097 bytes")
	pairs := func(n int) error {
		k := make([]string, n)
		m := arrow.NewMetadata(k, k)
		s := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String}}, &m)
		return readArrow(t, schemaOnly(t, s), Options{}).err
	}
	if err := pairs(maxArrowPairs); err != nil {
		t.Errorf("%d pairs: %v", maxArrowPairs, err)
	}
	wantErr(t, pairs(maxArrowPairs+1), "1025 metadata pairs")
	// Two thousand million rows without bytes behind them must not be walked.
	text := &arrowField{name: "text", typ: arrowUtf8, dict: true, idxBits: 32, idxSign: true}
	a := &arrowReader{r: &run{in: &Input{Path: "x"}, o: Options{}.withDefaults()}, text: text}
	for _, nulls := range []int64{0, 1<<31 - 1} {
		if err := a.indexed(extent{1<<31 - 1, nulls}, [][]byte{nil, nil}); err == nil {
			t.Error("rows without bytes passed")
		}
	}
}
