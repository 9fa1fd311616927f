package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"refrain/pipeline"
	"refrain/stages/item"
)

func TestFolderOrderAndKinds(t *testing.T) {
	d := t.TempDir()
	put(t, d, "a/x.txt", []byte("five"))
	put(t, d, "a.txt", []byte("one"))
	put(t, d, "a-b/c.go", []byte("zero"))
	put(t, d, "b.md.gz", gz([]byte("six")))
	put(t, d, "b.jsonl.zst", zst([]byte("{\"text\":\"three\"}\n{\"text\":\"four\"}\n")))
	put(t, d, "noext", []byte("\xef\xbb\xbfseven"))
	put(t, d, ".hidden", []byte("never"))
	put(t, d, "._a.txt", []byte("never"))
	put(t, d, ".git/config", []byte("never"))
	put(t, d, "pic.png", []byte("\x89PNG\r\n\x1a\n\x00\x00"))
	put(t, d, "latin.txt", []byte("caf\xe9 au lait"))
	put(t, d, "empty.txt", nil)
	r := read(t, Options{}, d)
	// Byte order of slash paths: "a-b/c.go" < "a.txt" < "a/x.txt".
	wantTexts(t, r, "zero", "one", "five", "three", "four", "six", "seven")
	want := "7 files, 7 documents, 28 bytes, 1 binary file, 1 empty, 3 hidden file, 1 not utf8 file"
	if got := r.rep.String(); got != want {
		t.Errorf("report %q, want %q", got, want)
	}
	if r.docs[3].Record != 1 || r.docs[4].Record != 2 || r.docs[3].Source != "b.jsonl.zst" {
		t.Errorf("documents 3 and 4 come from %s record %d, %d", r.docs[3].Source, r.docs[3].Record, r.docs[4].Record)
	}
	// The empty file has an ID of its own, before "seven".
	if r.docs[6].ID != 7 {
		t.Errorf("last document has ID %d, want 7", r.docs[6].ID)
	}
}

// TestSourceNamesNoPlace: what goes into a store is the same wherever the files
// lie, or equal inputs would not give equal stores.
func TestSourceNamesNoPlace(t *testing.T) {
	var first []item.Doc
	for _, d := range []string{t.TempDir(), t.TempDir()} {
		put(t, d, "in/a.txt", []byte("one"))
		put(t, d, "in/deep/b.jsonl", []byte("{\"text\":\"two\"}\n"))
		put(t, d, "c.txt", []byte("three"))
		put(t, d, "glob/x/d.txt", []byte("four"))
		r := read(t, Options{}, filepath.Join(d, "in"), filepath.Join(d, "c.txt"), filepath.Join(d, "gl*", "x", "*.txt"))
		wantTexts(t, r, "one", "two", "three", "four")
		var sources []string
		for _, doc := range r.docs {
			sources = append(sources, doc.Source)
		}
		if want := []string{"a.txt", "deep/b.jsonl", "c.txt", "glob/x/d.txt"}; !slices.Equal(sources, want) {
			t.Errorf("sources %q, want %q", sources, want)
		}
		if first == nil {
			first = r.docs
		} else if !reflect.DeepEqual(first, r.docs) {
			t.Errorf("the same files elsewhere give other documents:\n%v\n%v", first, r.docs)
		}
	}
}

func TestSplitGlob(t *testing.T) {
	for _, c := range [][3]string{
		{"*.txt", ".", "*.txt"}, {"a/b/*.txt", "a/b", "*.txt"}, {"a*/b", ".", "a*/b"},
		{"/*.txt", "/", "*.txt"}, {"/a/**/b", "/a", "**/b"}, {"../x?", "..", "x?"},
	} {
		base, pattern := splitGlob(filepath.FromSlash(c[0]))
		if base != filepath.FromSlash(c[1]) || pattern != c[2] {
			t.Errorf("splitGlob(%q) = %q, %q, want %q, %q", c[0], base, pattern, c[1], c[2])
		}
	}
}

// TestWalkedNotUTF8: a walked file whose head is not UTF-8 is left out as no text
// unless a policy was chosen; deeper in a file the policy always decides.
func TestWalkedNotUTF8(t *testing.T) {
	d := t.TempDir()
	put(t, d, "a.txt", []byte("fine"))
	put(t, d, "b.txt", []byte("caf\xe9"))
	r := read(t, Options{}, d)
	wantTexts(t, r, "fine")
	if r.rep.Of(NotUTF8File) != 1 {
		t.Errorf("report %s", r.rep)
	}
	wantErr(t, read(t, Options{InvalidUTF8: Fail}, d).err, "b.txt", "0xe9 at byte 3")
	wantTexts(t, read(t, Options{InvalidUTF8: Replace}, d), "fine", "caf\ufffd")
	r = read(t, Options{InvalidUTF8: Skip}, d)
	wantTexts(t, r, "fine")
	if r.rep.Of(InvalidUTF8) != 1 || r.rep.Records != 2 {
		t.Errorf("report %s", r.rep)
	}
	put(t, d, "c.txt", append(bytes.Repeat([]byte("x"), sniffBytes), 0xe9))
	wantErr(t, read(t, Options{}, d).err, "c.txt", "0xe9 at byte 8000")
	// A rune cut by the end of the head is no fault.
	put(t, d, "c.txt", []byte(strings.Repeat("x", sniffBytes-1)+"\u00e9"))
	if r := read(t, Options{}, d); r.err != nil || r.rep.Docs != 2 {
		t.Errorf("%v %s", r.err, r.rep)
	}
}

func TestDiscoverErrors(t *testing.T) {
	d := t.TempDir()
	put(t, d, "corpus.jsonl", []byte("{}"))
	put(t, d, "doc.bin", []byte("a\x00b"))
	put(t, d, "doc.bz2", []byte("BZh91AY&SY\x00"))
	put(t, d, "utf16.txt", []byte("\xff\xfeh\x00i\x00"))
	put(t, d, "only/.hidden", []byte("x"))
	if err := os.Mkdir(filepath.Join(d, "void"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(n string) string { return filepath.Join(d, n) }
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"no inputs"}},
		{[]string{""}, []string{"empty string"}},
		{[]string{in("corpas.jsonl")}, []string{"corpas.jsonl", "no such file", "did you mean", "corpus.jsonl"}},
		{[]string{in("nowhere/at/all")}, []string{"no such file"}},
		{[]string{in("*.parquet")}, []string{"matches no file"}},
		{[]string{in("doc.bin")}, []string{"doc.bin", "NUL byte at offset 1", "data.kind"}},
		{[]string{in("doc.bz2")}, []string{"bzip2", "recompress with zstd"}},
		{[]string{in("utf16.txt")}, []string{"UTF-16", "iconv"}},
		{[]string{in("void")}, []string{"nothing to read", "empty"}},
		{[]string{in("only")}, []string{"nothing to read", "1 hidden_file"}},
		{[]string{in("corpus.jsonl"), filepath.Join(d, "only", "..", "corpus.jsonl")}, []string{"named twice"}},
	} {
		_, err := Discover(c.args, Options{})
		t.Run(fmt.Sprint(c.args), func(t *testing.T) { wantErr(t, err, c.want...) })
	}
}

func TestSymlinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege here")
	}
	outside := t.TempDir()
	put(t, outside, "secret.txt", []byte("secret"))
	d := t.TempDir()
	put(t, d, "real/a.txt", []byte("text a"))
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(d, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("real", "folder")
	link("real/a.txt", "same.txt")
	r := read(t, Options{Duplicate: Keep}, d)
	wantTexts(t, r, "text a", "text a")
	if r.rep.Of(LinkedFolder) != 1 {
		t.Errorf("report %s", r.rep)
	}
	link(filepath.Join(outside, "secret.txt"), "leak.txt")
	wantErr(t, read(t, Options{}, d).err, "leak.txt", "symbolic link", "data.exclude")
	wantTexts(t, read(t, Options{Exclude: []string{"leak.*"}}, d), "text a")
	// A root that is itself a link is the user's own choice.
	top := filepath.Join(t.TempDir(), "top")
	if err := os.Symlink(filepath.Join(d, "real"), top); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, read(t, Options{}, top), "text a")
	// A link swapped in after Discover cannot lead out of the folder.
	ins, err := Discover([]string{filepath.Join(d, "real")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(d, "real", "a.txt")); err != nil {
		t.Fatal(err)
	}
	link(filepath.Join(outside, "secret.txt"), "real/a.txt")
	wantErr(t, readInputs(t, ins, Options{}).err, "escapes")
}

func TestGlobsAndSelection(t *testing.T) {
	d := t.TempDir()
	for _, n := range []string{"a.go", "b.txt", "sub/c.go", "sub/deep/d.go", "sub/deep/e.md", "vendor/f.go"} {
		put(t, d, n, []byte("text of "+n))
	}
	for _, c := range []struct {
		arg  string
		o    Options
		want string
	}{
		{"*.go", Options{}, "a.go"},
		{"**/*.go", Options{}, "a.go sub/c.go sub/deep/d.go vendor/f.go"},
		{"sub/*", Options{}, "sub/c.go sub/deep/d.go sub/deep/e.md"},
		{"s?b/deep/*.md", Options{}, "sub/deep/e.md"},
		{"", Options{Include: []string{"*.go"}}, "a.go sub/c.go sub/deep/d.go vendor/f.go"},
		{"", Options{Include: []string{"*.go"}, Exclude: []string{"vendor/**"}}, "a.go sub/c.go sub/deep/d.go"},
		{"", Options{Include: []string{"sub/**"}, Exclude: []string{"**/deep/*.md"}}, "sub/c.go sub/deep/d.go"},
	} {
		r := read(t, c.o, filepath.Join(d, filepath.FromSlash(c.arg)))
		got := strings.ReplaceAll(strings.Join(r.texts(), " "), "text of ", "")
		if r.err != nil || got != c.want {
			t.Errorf("%q %v: %q, %v; want %q", c.arg, c.o, got, r.err, c.want)
		}
	}
}

// TestPolicies walks every policy of every fault over the kinds it applies to.
func TestPolicies(t *testing.T) {
	long := strings.Repeat("x", 300)
	jl := func(l ...string) []byte { return []byte(strings.Join(l, "\n") + "\n") }
	whole := gz(jl(`{"text":"a"}`, `{"text":"b"}`, `{"text":"`+strings.Repeat("noise 8172", 9)+`"}`))
	cases := []struct {
		name   string
		file   string
		data   []byte
		reason Reason
		fail   []string // what the error names
		kept   []string // texts left with skip
		mended []string // texts with replace
		set    func(*Options, Policy)
	}{
		{"utf8 text", "a.txt", []byte("ab\xffcd"), InvalidUTF8, []string{"a.txt", "byte 0xff at byte 2", "data.invalid_utf8"}, nil,
			[]string{"ab\ufffdcd"}, func(o *Options, p Policy) { o.InvalidUTF8 = p }},
		{"utf8 jsonl", "a.jsonl", jl(`{"text":"a"}`, "{\"text\":\"b\xff\"}", `{"text":"c"}`), InvalidUTF8, []string{"a.jsonl: line 2, byte 13", "0xff at byte 10", "data.invalid_utf8"},
			[]string{"a", "c"}, []string{"a", "b\ufffd", "c"}, func(o *Options, p Policy) { o.InvalidUTF8 = p }},
		{"surrogate jsonl", "a.jsonl", jl(`{"text":"a"}`, `{"text":"b\ud83d"}`), InvalidUTF8, []string{"line 2", `\ud83d is half`, "data.invalid_utf8"},
			[]string{"a"}, []string{"a", "b\ufffd"}, func(o *Options, p Policy) { o.InvalidUTF8 = p }},
		{"bad line", "a.jsonl.gz", gz(jl(`{"text":"a"}`, `{"text":}`, `{"text":"c"}`)), BadLine, []string{"a.jsonl.gz: line 2, byte 13", "byte 8 of the line", "data.bad_line"},
			[]string{"a", "c"}, nil, func(o *Options, p Policy) { o.BadLine = p }},
		{"truncated gz", "a.jsonl.gz", whole[:len(whole)-12], Truncated, []string{"a.jsonl.gz: line", "gzip stream ends too early", "data.truncated"},
			[]string{"a", "b"}, nil, func(o *Options, p Policy) { o.Truncated = p }},
		{"truncated line", "a.jsonl", []byte("{\"text\":\"a\"}\n{\"text\":\"b"), Truncated, []string{"a.jsonl: line 2", "no end", "data.truncated"},
			[]string{"a"}, nil, func(o *Options, p Policy) { o.Truncated = p }},
		{"long line", "a.jsonl", jl(`{"text":"a"}`, `{"text":"`+long+`"}`, `{"text":"c"}`), TooLong, []string{"line 2", "longer than 200 bytes", "data.max_line"},
			[]string{"a", "c"}, nil, func(o *Options, p Policy) { o.TooLong = p; o.MaxLine = 200 }},
		{"long text", "a.txt", []byte(long), TooLong, []string{"a.txt", "longer than 299 bytes", "data.max_doc"},
			nil, nil, func(o *Options, p Policy) { o.TooLong = p; o.MaxDoc = 299 }},
		{"empty text", "a.txt", nil, Empty, []string{"a.txt", "no text", "data.empty"}, nil, nil, func(o *Options, p Policy) { o.Empty = p }},
		{"null", "a.jsonl", jl(`{"text":"a"}`, `{"text":null}`), Empty, []string{"line 2", "null", "data.empty"}, []string{"a"}, nil, func(o *Options, p Policy) { o.Empty = p }},
		{"empty jsonl", "a.jsonl", nil, Empty, []string{"a.jsonl", "no lines", "data.empty"}, nil, nil, func(o *Options, p Policy) { o.Empty = p }},
		{"duplicate", "a.jsonl.zst", zst(jl(`{"text":"a"}`, `{"text":"b"}`, `{"text":"a"}`)), Duplicate, []string{"line 3", "equal to an earlier", "data.duplicate"},
			[]string{"a", "b"}, nil, func(o *Options, p Policy) { o.Duplicate = p }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := put(t, t.TempDir(), c.file, c.data)
			var o Options
			c.set(&o, Fail)
			r := read(t, o, p)
			wantErr(t, r.err, c.fail...)
			var e *Error
			if !errors.As(r.err, &e) || e.Reason != c.reason {
				t.Errorf("error %#v, want reason %s", r.err, c.reason)
			}
			c.set(&o, Skip)
			r = read(t, o, p)
			wantTexts(t, r, c.kept...)
			if r.rep.Of(c.reason) != 1 {
				t.Errorf("report %+v does not count one %s", r.rep, c.reason)
			}
			c.set(&o, Replace)
			r = read(t, o, p)
			if c.mended == nil {
				wantErr(t, r.err, `"replace" is not one of`)
				return
			}
			wantTexts(t, r, c.mended...)
			if r.rep.Of(Replaced) != 1 {
				t.Errorf("report %+v does not count one replacement", r.rep)
			}
		})
	}
}

// TestOneReasonForARecord: a record that was mended and then left out is counted as
// left out only, so that the counts add up to the records.
func TestOneReasonForARecord(t *testing.T) {
	d := t.TempDir()
	lines := put(t, d, "a.jsonl", []byte("{\"text\":\"caf\xe9\"}\n{\"text\":\"caf\xe9\"}\n{\"text\":\"long \xe9 long\"}\n{\"text\":\"\\ud800\"}\n{\"text\":\"ok\"}\n{\"x\":\"\xe9\",\"text\":\"\"}\n"))
	text := put(t, d, "b.txt", []byte("caf\xe9"))
	r := read(t, Options{InvalidUTF8: Replace, TooLong: Skip, MaxDoc: 8}, lines, text)
	wantTexts(t, r, "caf\ufffd", "\ufffd", "ok")
	sum := r.rep.Docs
	for _, c := range r.rep.Skipped {
		if c.Reason != Replaced {
			sum += c.Count
		}
	}
	if r.rep.Of(Replaced) != 2 || r.rep.Of(Duplicate) != 2 || r.rep.Of(TooLong) != 1 || r.rep.Of(Empty) != 1 || sum != r.rep.Records {
		t.Errorf("%s of %d records", r.rep, r.rep.Records)
	}
}

func TestSkipBudget(t *testing.T) {
	d := t.TempDir()
	var b bytes.Buffer
	for i := 0; i < 2000; i++ {
		if i%500 == 7 {
			b.WriteString("not json\n")
			continue
		}
		fmt.Fprintf(&b, "{\"text\":\"document %d\"}\n", i)
	}
	p := put(t, d, "a.jsonl", b.Bytes())
	q := put(t, d, "b.jsonl", []byte("{\"text\":\"last\"}\n"))
	r := read(t, Options{BadLine: Skip, SkipBudget: 0.002}, p, q) // 4 of 2001 is below it
	if r.err != nil || r.rep.Of(BadLine) != 4 {
		t.Errorf("within budget: %v, %s", r.err, r.rep)
	}
	r = read(t, Options{BadLine: Skip, SkipBudget: 0.0019}, p, q)
	wantErr(t, r.err, "skipped 4 of 2000 documents", "0.0019", "4 bad_line", "a.jsonl: line 8", "data.skip_budget")
	var be *BudgetError
	if !errors.As(r.err, &be) || be.Skipped != 4 {
		t.Errorf("error is %T", r.err)
	}
}

func TestOptionsValidate(t *testing.T) {
	err := Options{InvalidUTF8: "mend", Empty: Replace, SkipBudget: 2, MaxDoc: -1, MaxLine: 1 << 40, Include: []string{"[a"}, Kind: "csv"}.Validate()
	wantErr(t, err, "data.invalid_utf8", `"mend"`, "data.empty", "data.skip_budget", "data.max_doc", "data.max_line", "[a", "data.kind", "csv")
}

func TestOverrides(t *testing.T) {
	d := t.TempDir()
	p := put(t, d, "a.jsonl", []byte("{\"text\":\"a\"}\n"))
	q := put(t, d, "b.jsonl", []byte("{\"body\":\"b\"}\nrubbish\n"))
	ins, err := Discover([]string{p, q}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ins[1].Options = &Options{Field: "body", BadLine: Skip}
	wantTexts(t, readInputs(t, ins, Options{}), "a", "b")
}

func TestStdin(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want []string
	}{
		{"text", []byte("plain text\n"), []string{"plain text\n"}},
		{"jsonl", []byte("\xef\xbb\xbf{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), []string{"a", "b"}},
		{"jsonl.zst", zst([]byte("{\"text\":\"a\"}\n")), []string{"a"}},
		{"text.gz", gz([]byte("zipped")), []string{"zipped"}},
		{"empty", nil, nil},
	} {
		ins, err := Discover([]string{"-"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		src := New(ins, Options{})
		src.SetStdin(bytes.NewReader(c.data))
		t.Run(c.name, func(t *testing.T) { wantTexts(t, runSource(t, src), c.want...) })
	}
	ins, _ := Discover([]string{"-"}, Options{})
	if _, err := Digest(t.Context(), ins); err == nil {
		t.Error("standard input has a digest")
	}
	src := New(ins, Options{})
	src.SetStdin(bytes.NewReader([]byte("a\x00b")))
	wantErr(t, runSource(t, src).err, "NUL byte")
}

func TestDigest(t *testing.T) {
	make1 := func(text string) string {
		d := t.TempDir()
		put(t, d, "a.txt", []byte(text))
		put(t, d, "sub/b.txt", []byte("b"))
		ins, err := Discover([]string{d}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum, err := Digest(t.Context(), ins)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	a, b, c := make1("one"), make1("one"), make1("two")
	if a != b || a == c || len(a) != 64 {
		t.Errorf("digests %s %s %s", a, b, c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ins, _ := Discover([]string{put(t, t.TempDir(), "a", []byte("x"))}, Options{})
	if _, err := Digest(ctx, ins); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled digest: %v", err)
	}
}

func TestBlocksInPipeline(t *testing.T) {
	d := t.TempDir()
	var want int64
	for i := range 40 {
		n := 3000 * (i + 1)
		put(t, d, fmt.Sprintf("%03d.txt", i), bytes.Repeat([]byte{byte('A' + i)}, n))
		want += int64(n)
	}
	ins, err := Discover([]string{d}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := New(ins, Options{})
	p := pipeline.New()
	docs := pipeline.Source(p, "shards", pipeline.LinkConfig{Items: 2}, src)
	var got int64
	var next uint64
	pipeline.Sink(p, "count", docs, pipeline.StageFunc[*item.Docs, struct{}](
		func(ctx context.Context, in pipeline.In[*item.Docs], _ pipeline.Out[struct{}]) error {
			for b, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				for _, x := range b.Docs {
					if x.ID != next || x.Text[0] != byte('A'+x.ID) || x.Text[len(x.Text)-1] != x.Text[0] {
						t.Errorf("document %d is wrong", x.ID)
					}
					next++
				}
				got += b.Bytes
			}
			return nil
		}))
	if err := p.Run(t.Context()); err != nil || got != want {
		t.Errorf("%d bytes of %d, %v", got, want, err)
	}
	if err := src.Run(t.Context(), none{}, &collector{}); err == nil {
		t.Error("a second Run is allowed")
	}
}

func TestBadPartMatchesUnicode(t *testing.T) {
	// Table 3-8 of the Unicode Standard and its neighbours, as Python decodes them.
	for in, want := range map[string]string{
		"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64": "a\ufffd\ufffd\ufffdb\ufffdc\ufffd\ufffdd",
		"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41":                 "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA",
		"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41":                 "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA",
		"\xE2\x82":                                             "\ufffd",
		"\xF0\x9F\x98z":                                        "\ufffdz",
		"ok \u00e9":                                            "ok \u00e9",
	} {
		if got := string(toValid(nil, []byte(in))); got != want {
			t.Errorf("%x: %q, want %q", in, got, want)
		}
	}
}
