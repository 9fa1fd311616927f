package shards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

func TestJSONLines(t *testing.T) {
	deep := strings.Repeat("[", 63) + strings.Repeat("]", 63)
	many := func(dup bool) string {
		var b strings.Builder
		b.WriteString("{")
		for i := range 100 {
			fmt.Fprintf(&b, "\"k%d\":%d,", i, i)
		}
		if dup {
			b.WriteString(`"k7":0,`)
		}
		return b.String() + `"text":"t"}`
	}
	for _, c := range []struct{ line, text, fault string }{
		{`{"text":"plain"}`, "plain", ""},
		{` { "a" : [1, -2.5e+3, 0.1, true, false, null, {"text":"no"}] , "text" : "yes" } `, "yes", ""},
		{`{"text":"\"\\\/\b\f\n\r\té€😀"}`, "\"\\/\b\f\n\r\té€😀", ""},
		{`{"\u0074ext":"escaped name"}`, "escaped name", ""},
		{`{"text":"\u0000"}`, "\x00", ""},
		{`{"text":"x","a":` + deep + `}`, "x", ""},
		{many(false), "t", ""},
		{many(true), "", `"k7" appears twice`},
		{`{"text":"x","a":[` + deep + `]}`, "", "nested deeper than 64"},
		{`{"text":"a","text":"b"}`, "", `"text" appears twice`},
		{`{"text":"a","t\u0065xt":"b"}`, "", `"text" appears twice`},
		{`{"text":"a","m":{"k":1,"k":2}}`, "", `"k" appears twice`},
		{`{"Text":"a"}`, "", `no field "text"; did you mean "Text"?`},
		{`{"content":"a","id":1}`, "", `no field "text" among ["content" "id"]`},
		{`{"text":7}`, "", "not a string"},
		{`{"text":["a"]}`, "", "not a string"},
		{`["text"]`, "", "must be one JSON object"},
		{`"text"`, "", "must be one JSON object"},
		{`{"text":"a"} {"text":"b"}`, "", "one value"},
		{`{"text":"a"},`, "", "one value"},
		{`{"text":"a",}`, "", "expected a name"},
		{`{,"text":"a"}`, "", "expected a name"},
		{`{text:"a"}`, "", "expected a name"},
		{`{"text" "a"}`, "", "expected a colon"},
		{`{"text":"a" "b":1}`, "", "expected a comma"},
		{"{\"text\":\"a\tb\"}", "", "control character 0x09"},
		{`{"text":"\x41"}`, "", `\x is no escape`},
		{`{"text":"\u12g4"}`, "", "four hexadecimal"},
		{`{"text":"a","n":01}`, "", "expected a comma"},
		{`{"text":"a","n":+1}`, "", "cannot start a value"},
		{`{"text":"a","n":1.}`, "", "expected a digit"},
		{`{"text":"a","n":.5}`, "", "cannot start a value"},
		{`{"text":"a","n":-}`, "", "expected a digit"},
		{`{"text":"a","n":1e}`, "", "expected a digit"},
		{`{"text":"a","n":NaN}`, "", "cannot start a value"},
		{`{"text":"a","n":nul}`, "", "expected null"},
		{`{"text":"a","n":[1,]}`, "", "cannot start a value"},
		{`{"text":"a`, "", "ends inside"},
		{`{"text":"a"`, "", "ends inside"},
		{`{"text":tru`, "", "ends inside"},
		{`{"text":"\ud800x"}`, "", "half of a surrogate"},
		{`{"text":"\udc00\ud800"}`, "", "half of a surrogate"},
	} {
		j := &jsonReader{field: "text"}
		got, _, err := j.find([]byte(c.line))
		switch {
		case c.fault == "" && (err != nil || string(got) != c.text):
			t.Errorf("%s: %q, %v", c.line, got, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %q, %v; want %s", c.line, got, err, c.fault)
		}
	}
}

func TestJSONLFraming(t *testing.T) {
	d := t.TempDir()
	p := put(t, d, "a.jsonl", []byte("\xef\xbb\xbf{\"text\":\"a\"}\r\n\r\n   \n\t\n{\"text\":\"b\"}"))
	r := read(t, Options{}, p)
	wantTexts(t, r, "a", "b")
	if r.rep.BlankLines != 3 || r.docs[1].Record != 5 {
		t.Errorf("report %+v, record %d", r.rep, r.docs[1].Record)
	}
	// A byte order mark anywhere else is no white space.
	p = put(t, d, "b.jsonl", []byte("{\"text\":\"a\"}\n\xef\xbb\xbf{\"text\":\"b\"}\n"))
	wantErr(t, read(t, Options{}, p).err, "b.jsonl: line 2", "must be one JSON object")
}

func TestLineLimits(t *testing.T) {
	d := t.TempDir()
	line := func(n int) string { // a valid line of n bytes
		return `{"text":"` + strings.Repeat("x", n-len(`{"text":""}`)) + `"}`
	}
	const limit = 1 << 19 // beyond one buffer of the reader
	for _, end := range []string{"\n", "\r\n", ""} {
		p := put(t, d, "at.jsonl", []byte(line(limit)+end))
		if r := read(t, Options{MaxLine: limit}, p); r.err != nil || len(r.docs) != 1 {
			t.Errorf("end %q: a line at the limit gives %v", end, r.err)
		}
		p = put(t, d, "over.jsonl", []byte(line(limit+1)+end))
		wantErr(t, read(t, Options{MaxLine: limit}, p).err, "line 1, byte 0", "longer than 524288")
	}
	p := put(t, d, "skip.jsonl", []byte(line(50)+"\n"+line(3*limit)+"\n"+line(60)+"\n"))
	r := read(t, Options{MaxLine: limit, TooLong: Skip}, p)
	if r.err != nil || len(r.docs) != 2 || r.rep.Of(TooLong) != 1 || r.docs[1].Record != 3 {
		t.Errorf("%v %+v", r.err, r.rep)
	}
	p = put(t, d, "doc.txt", bytes.Repeat([]byte("y"), 1000))
	if r := read(t, Options{MaxDoc: 1000}, p); r.err != nil || len(r.docs) != 1 {
		t.Errorf("a document at the limit gives %v", r.err)
	}
	wantErr(t, read(t, Options{MaxDoc: 999}, p).err, "longer than 999")
}

// TestGigabyteLine feeds a line without end: it must stop at the limit, in
// little memory, however long the input is.
func TestGigabyteLine(t *testing.T) {
	ins, _ := Discover([]string{"-"}, Options{})
	src := New(ins, Options{Kind: KindJSONL})
	c := &countReader{r: io.LimitReader(endless{}, 1<<30)}
	src.SetStdin(c)
	wantErr(t, runSource(t, src).err, "line 1", "longer than 16777216")
	if c.n > DefaultMaxLine+1<<20 {
		t.Errorf("read %d bytes of it", c.n)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestDecompression(t *testing.T) {
	d := t.TempDir()
	var text []byte
	rng := rand.New(rand.NewSource(1))
	for i := range 800 {
		text = fmt.Appendf(text, "{\"text\":\"line %d %x\"}\n", i, rng.Int63())
	}
	gzip1, zstd1 := gz(text), zst(text)
	t.Run("members", func(t *testing.T) {
		two := append(gz([]byte("{\"text\":\"a\"}\n")), gz([]byte("{\"text\":\"b\"}\n"))...)
		wantTexts(t, read(t, Options{}, put(t, d, "m.jsonl.gz", two)), "a", "b")
		two = append(zst([]byte("{\"text\":\"a\"}\n")), "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz"...)
		two = append(two, zst([]byte("{\"text\":\"b\"}\n"))...)
		wantTexts(t, read(t, Options{}, put(t, d, "m.jsonl.zst", two)), "a", "b")
	})
	t.Run("every cut", func(t *testing.T) {
		for name, full := range map[string][]byte{"c.jsonl.gz": gzip1, "c.jsonl.zst": zstd1} {
			for cut := 0; cut < len(full); cut += 1 + cut/16 {
				r := read(t, Options{}, put(t, d, name, full[:cut]))
				wantErr(t, r.err, name, "truncated", "data.truncated")
				if t.Failed() {
					t.Fatalf("%s cut at %d of %d: %v", name, cut, len(full), r.err)
				}
				if r = read(t, Options{Truncated: Skip}, put(t, d, name, full[:cut])); r.err != nil || r.rep.Of(Truncated) != 1 {
					t.Fatalf("%s cut at %d, skip: %v, %s", name, cut, r.err, r.rep)
				}
				for i, doc := range r.docs {
					if !bytes.HasPrefix(doc.Text, fmt.Appendf(nil, "line %d ", i)) {
						t.Fatalf("%s cut at %d: document %d is %q", name, cut, i, doc.Text)
					}
				}
			}
		}
	})
	t.Run("frame border", func(t *testing.T) {
		half := len(text)/2 + 7 // inside a line, as frames of a fixed size end
		two := zst(text[:half])
		r := read(t, Options{}, put(t, d, "b.jsonl.zst", two)) // the second frame is missing
		wantErr(t, r.err, "b.jsonl.zst", "truncated", "no end")
	})
	t.Run("flips", func(t *testing.T) {
		found := 0
		for i := range 150 {
			name, b := "f.jsonl.gz", bytes.Clone(gzip1)
			if i%2 == 1 {
				name, b = "f.jsonl.zst", bytes.Clone(zstd1)
			}
			p := 12 + rng.Intn(len(b)-12)
			b[p] ^= 1 << rng.Intn(8)
			r := read(t, Options{Truncated: Skip, Duplicate: Keep}, put(t, d, name, b))
			if r.err != nil || r.rep.Of(Truncated) > 0 {
				found++
				continue
			}
			t.Errorf("flip at byte %d of %s was not noticed", p, name)
		}
		if found == 0 {
			t.Error("no flip was noticed")
		}
	})
	t.Run("tail", func(t *testing.T) {
		r := read(t, Options{}, put(t, d, "t.jsonl.gz", append(bytes.Clone(gzip1), "more than a header of garbage"...)))
		wantErr(t, r.err, "t.jsonl.gz", "damaged")
		r = read(t, Options{}, put(t, d, "t.jsonl.zst", append(bytes.Clone(zstd1), "garbage"...)))
		wantErr(t, r.err, "t.jsonl.zst", "damaged")
	})
	t.Run("not what it says", func(t *testing.T) {
		wantErr(t, read(t, Options{}, put(t, d, "n.jsonl.gz", []byte("{\"text\":\"a\"}\n"))).err, "n.jsonl.gz", "damaged")
		wantTexts(t, read(t, Options{}, put(t, d, "n.jsonl", gz([]byte("{\"text\":\"a\"}\n")))), "a")
	})
	t.Run("window", func(t *testing.T) {
		// A frame that declares a 64 MiB window is refused, whatever it holds.
		b := []byte("\x28\xb5\x2f\xfd\x00\x80\x01\x00\x00")
		wantErr(t, read(t, Options{}, put(t, d, "w.jsonl.zst", b)).err, "w.jsonl.zst", "damaged", "window")
	})
}

// TestDecompressionBomb: 128 MiB of blank lines in some 10 kB must be refused soon
// after the free 64 MiB.
func TestDecompressionBomb(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	chunk := append(bytes.Repeat([]byte(" "), 1<<20-1), '\n')
	for range 128 {
		w.Write(chunk)
	}
	w.Close()
	r := read(t, Options{}, put(t, t.TempDir(), "bomb.jsonl.zst", b.Bytes()))
	wantErr(t, r.err, "bomb.jsonl.zst", "over the limit", "200:1")
	// Under the free amount the same ratio is fine.
	small := zst(bytes.Repeat(chunk, 8))
	if r := read(t, Options{}, put(t, t.TempDir(), "ok.jsonl.zst", small)); r.err != nil {
		t.Errorf("8 MiB of blank lines: %v", r.err)
	}
}

// FuzzJSONL checks the line parser against encoding/json: what we accept it
// accepts with the same text, and the parser never panics.
func FuzzJSONL(f *testing.F) {
	for _, s := range []string{
		`{"text":"a"}`, `{"text":"é\n\\","n":[1,2.5e-7,{"k":null}]}`, `{"text":"😀","text2":""}`, `{"text":null}`,
		`{"text":"a","text":"b"}`, `{"a":{"b":[[[]]]}} x`, `{"text":"`, "\xef\xbb\xbf{}", `{"text":"\ud800"}`, `{"text":-0.0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if !utf8.Valid(line) || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		j := &jsonReader{field: "text"}
		text, isNull, err := j.find(line)
		if err != nil {
			return
		}
		var want struct{ Text *string }
		fields := map[string]json.RawMessage{}
		if e := json.Unmarshal(line, &fields); e != nil {
			t.Fatalf("%q accepted; encoding/json says %v", line, e)
		}
		if e := json.Unmarshal(fields["text"], &want.Text); e != nil {
			t.Fatalf("%q: %v", line, e)
		}
		if isNull != (want.Text == nil) || (!isNull && string(text) != *want.Text) {
			t.Fatalf("%q: %q, null %v", line, text, isNull)
		}
		if !utf8.Valid(text) {
			t.Fatalf("%q gives invalid text %q", line, text)
		}
	})
}

// TestJSONRoundTrip: every string that encoding/json writes comes back.
func TestJSONRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	j := &jsonReader{field: "text"}
	for range 2000 {
		var s []rune
		for range rng.Intn(40) {
			r := rune(rng.Intn([]int{0x80, 0x800, 0x10000, 0x110000}[rng.Intn(4)]))
			if r >= 0xd800 && r <= 0xdfff {
				r = 0xfffd
			}
			s = append(s, r)
		}
		line, _ := json.Marshal(map[string]any{"text": string(s), "z": []any{nil, 1.5, string(s)}})
		got, _, err := j.find(line)
		if err != nil || string(got) != string(s) {
			t.Fatalf("%s: %q, %v", line, got, err)
		}
	}
}
