package tokenize

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestByteIndex adds more strings than were announced, twice.
func TestByteIndex(t *testing.T) {
	x := newByteIndex(3)
	x.offsets = []uint32{0}
	const n = 5000
	key := func(i int) []byte { return binary.AppendUvarint(nil, uint64(i*i)) }
	for i := range n {
		x.text = append(x.text, key(i)...)
		x.offsets = append(x.offsets, uint32(len(x.text)))
		if at, ok := x.add(uint32(i)); !ok {
			t.Fatalf("string %d is taken for %d", i, at)
		}
	}
	for i := range n {
		if at, ok := x.find(key(i)); !ok || at != uint32(i) {
			t.Fatalf("string %d is found as %d, %v", i, at, ok)
		}
		if at, ok := x.add(uint32(i)); ok || at != uint32(i) {
			t.Fatalf("string %d is added again (%d)", i, at)
		}
	}
	if _, ok := x.find([]byte("not there at all")); ok {
		t.Error("a string that was not added is found")
	}
}

// TestLoadMergesFirst: the order of keys in a file says nothing.
func TestLoadMergesFirst(t *testing.T) {
	want := trainOn(t, "cl100k", "go", 500)
	var out bytes.Buffer
	if err := want.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	doc := out.Bytes()
	i := bytes.Index(doc, []byte("    \"vocab\": {"))
	j := bytes.Index(doc, []byte("    \"merges\": ["))
	end := bytes.LastIndexByte(doc, ']') + 1
	swapped := append(append(append(append([]byte(nil), doc[:i]...), doc[j:end]...), ",\n"...), bytes.TrimRight(doc[i:j], ",\n ")...)
	got, err := Load(bytes.NewReader(append(swapped, doc[end:]...)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash() != want.Hash() {
		t.Error("the tokenizer is another one")
	}
}

// BenchmarkLoad compares the loading of a large tokenizer.json, checks and tables
// included, with encoding/json filling maps and slices of the same content.
func BenchmarkLoad(b *testing.B) {
	tok := wide(b, 1<<17)
	var out bytes.Buffer
	if err := tok.WriteJSON(&out); err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(out.Len()))
		for b.Loop() {
			if _, err := Load(bytes.NewReader(out.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(out.Len()))
		for b.Loop() {
			var f struct {
				Model struct {
					Vocab  map[string]uint32
					Merges [][2]string
				}
			}
			if err := json.Unmarshal(out.Bytes(), &f); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// wide is a vocabulary of n entries: numbers in four letters and what they are made of.
func wide(t testing.TB, n int) *Tokenizer {
	fam, err := familyByName("cl100k")
	if err != nil {
		t.Fatal(err)
	}
	s := source{fam: fam, bos: none, eos: none}
	byName := map[string]uint32{}
	add := func(name string) uint32 {
		if id, ok := byName[name]; ok {
			return id
		}
		id := uint32(len(s.tokens))
		byName[name] = id
		s.tokens = append(s.tokens, token{[]byte(name), id})
		return id
	}
	for c := range 256 {
		add(string([]byte{byte(c)}))
	}
	for i := 0; len(s.tokens) < n; i++ {
		name := fmt.Sprintf(" %c%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576%26)
		for end := 2; end <= len(name); end++ {
			if _, ok := byName[name[:end]]; !ok {
				left, right := byName[name[:end-1]], byName[name[end-1:end]]
				s.merges = append(s.merges, merge{left, right, add(name[:end])})
			}
		}
	}
	tok, err := build(s)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestLoadSpellings: the quick reader of plain names and the ordinary one give the same
// vocabulary, whatever the file looks like.
func TestLoadSpellings(t *testing.T) {
	want := trainOn(t, "cl100k", "mixed", 1500)
	doc := jsonBytes(t, want)
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(doc, []byte("\"vocab\""))
	files := map[string][]byte{"compact": compact.Bytes()}
	// Every letter of every second name as an escape, which only the ordinary reader knows.
	escaped := append([]byte(nil), doc[:at]...)
	names := 0
	for rest := doc[at:]; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == '\\':
			escaped, n = append(escaped, rest[:2]...), 2
		case r == '"':
			names++
			escaped = append(escaped, '"')
		case names%4 == 1 && (r > 0x7f || r >= 'a' && r <= 'z'):
			escaped = fmt.Appendf(escaped, "\\u%04x", r)
		default:
			escaped = append(escaped, rest[:n]...)
		}
		rest = rest[n:]
	}
	files["escaped"] = escaped
	// The older form of merges.
	lines := regexp.MustCompile(`\[("(?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*")\]`)
	m := bytes.Index(doc, []byte("\"merges\""))
	files["lines"] = append(append([]byte(nil), doc[:m]...), lines.ReplaceAll(doc[m:], []byte("$1 $2"))...)
	files["wide"] = append(append([]byte(nil), doc[:m]...), lines.ReplaceAll(doc[m:], []byte("[ $1\"\t,\n$2 ]"))...)
	files["wide"] = bytes.ReplaceAll(files["wide"], []byte("\t,\n"), []byte("\t,\n\""))
	for name, file := range files {
		if bytes.Equal(file, doc) {
			t.Fatalf("%s: not another spelling", name)
		}
		got, err := Load(bytes.NewReader(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got.Hash() != want.Hash() {
			t.Errorf("%s: another vocabulary", name)
		}
	}
}

// TestLoadLateErrors: what is looked up later is still named, wherever in a block of
// lookups it is.
func TestLoadLateErrors(t *testing.T) {
	doc := string(jsonBytes(t, trainOn(t, "cl100k", "go", 600)))
	vocab, merges := strings.Index(doc, "\"vocab\""), strings.Index(doc, "\"merges\"")
	for _, k := range []int{1, 63, 64, 65, 200, 330} {
		at := merges
		for range k + 1 { // the first one begins the list
			at += 1 + strings.IndexByte(doc[at+1:], '[')
		}
		bad := doc[:at] + `["qqq", "z"],` + doc[at:]
		_, err := Load(strings.NewReader(bad))
		if err == nil || !strings.Contains(err.Error(), `needs "qqq", which is not in the vocabulary`) && !strings.Contains(err.Error(), `needs "qqqz"`) {
			t.Errorf("merge %d: %v", k, err)
		}
		at = vocab
		for range k {
			at += 1 + strings.IndexByte(doc[at+1:], '\n')
		}
		bad = doc[:at] + "\n\"!\": 5," + doc[at:]
		if _, err := Load(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), `vocabulary entry "!" is given twice`) {
			t.Errorf("entry %d: %v", k, err)
		}
	}
}
