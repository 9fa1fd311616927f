package shards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestHeldIsTheSame: whatever is kept in memory, fingerprint, documents and report are
// those of files read one by one, in every case the reading knows.
func TestHeldIsTheSame(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("a line of some length\n", 5000) // more than one read
	for name, text := range map[string]string{
		"a/one.txt": "one", "a/two.txt": "two", "a/again.txt": "one", "b/bom.txt": bom + "one", "b/mark.txt": bom + "marked",
		"b/empty.txt": "", "b/bad.txt": strings.Repeat("x", sniffBytes) + "\xff", "b/binary": "\x00\x01",
		"c/large.txt": large, "c/huge.txt": large + large, "c/sniff.txt": large[:sniffBytes], "c/sniff1.txt": large[:sniffBytes+1],
		"d/lines.jsonl": "{\"text\": \"from a line\"}\n", "d/README.md": "left out beside shards", "e/packed.txt.gz": string(gz([]byte("packed text"))),
		"top.txt": "in no folder below",
	} {
		put(t, dir, name, []byte(text))
	}
	type result struct {
		digest string
		docs   []string
		report Report
		err    string
	}
	for _, o := range []Options{
		{}, {InvalidUTF8: Skip}, {InvalidUTF8: Replace}, {InvalidUTF8: Skip, Duplicate: Keep},
		{InvalidUTF8: Skip, MaxDoc: int64(len(large)), TooLong: Skip}, {InvalidUTF8: Skip, MaxDoc: 100}, {InvalidUTF8: Skip, Empty: Fail},
		{InvalidUTF8: Skip, Include: []string{"*.txt"}}, {Kind: KindText, InvalidUTF8: Replace},
	} {
		read := func(limit int64) (r result, held, known int) {
			ins, err := DiscoverHeld([]string{dir}, o, limit)
			if limit < 0 {
				ins, err = Discover([]string{dir}, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range ins {
				if in.held != nil {
					known++
					held += len(in.held.text)
				}
			}
			src := New(ins, o)
			var c collector
			if err := src.Run(t.Context(), none{}, &c); err != nil {
				r.err = err.Error()
			}
			for _, b := range c.blocks {
				for _, d := range b.Docs {
					hash := d.Hash
					if o.Duplicate == Keep {
						hash = [16]byte{} // nobody asked for it
					}
					r.docs = append(r.docs, fmt.Sprintf("%d %s %d %x %x", d.ID, d.Source, d.Record, hash, d.Text))
				}
			}
			r.report = src.Report()
			if r.digest, err = Digest(t.Context(), ins); err != nil {
				t.Fatal(err)
			}
			return r, held, known
		}
		want, _, _ := read(-1)
		if o.MaxDoc == 0 && o.Empty == "" && o.InvalidUTF8 != "" && len(want.docs) < 5 {
			t.Fatalf("%+v: only %d documents", o, len(want.docs))
		}
		for _, limit := range []int64{0, 10, int64(len(large)), 1 << 20} {
			got, held, known := read(limit)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v with %d bytes held: %+v, want %+v", o, limit, got, want)
			}
			if int64(held) > limit || limit == 1<<20 && o.MaxDoc == 0 && held < 2*sniffBytes || limit == 1<<20 && known < 8 && o.MaxDoc == 0 {
				t.Errorf("%+v: %d of %d bytes are held, %d files are known", o, held, limit, known)
			}
		}
	}
}

// TestChangedText: a small file counts as it was when it was found; a larger one counts as
// it is when it is read first, and must then stay as it was for whoever reads it again. A
// file of another kind must stay the same between its reading and its fingerprint.
func TestChangedText(t *testing.T) {
	dir := t.TempDir()
	line := `{"text": "` + strings.Repeat("word ", 400) + "\"}\n"
	for _, c := range []struct {
		name          string
		was           string
		before, after func(was string) string // the first reading
		again, digest bool                    // whether these fail
	}{
		{"small.txt", "small", func(was string) string { return was + " more" }, func(was string) string { return was + " again" }, false, false},
		{"large.txt", strings.Repeat("x", holdMost+1), nil, nil, false, false},
		{"grown.txt", strings.Repeat("x", holdMost+1), func(was string) string { return was + "more" }, nil, false, false},
		{"cut.txt", strings.Repeat("x", holdMost+1), func(was string) string { return was[1:] }, nil, false, false},
		{"rewritten.txt", strings.Repeat("x", holdMost+1), nil, func(was string) string { return "y" + was[1:] }, true, false},
		{"lines.jsonl", line, nil, nil, false, false},
		{"more.jsonl", line, nil, func(was string) string { return was + was }, true, true},
	} {
		name := put(t, dir, c.name+"/"+c.name, []byte(c.was))
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
		ins, err := DiscoverHeld([]string{filepath.Join(dir, c.name)}, Options{}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		change := func(f func(string) string) {
			if f != nil {
				put(t, dir, c.name+"/"+c.name, []byte(f(c.was)))
			}
		}
		read := func() (string, error) {
			var got collector
			err := New(ins, Options{}).Run(t.Context(), none{}, &got)
			if err != nil || len(got.blocks) != 1 {
				return "", err
			}
			return string(got.blocks[0].Docs[0].Text), nil
		}
		change(c.before)
		first, err := read()
		if err != nil || first == "" {
			t.Fatalf("%s: %q, %v", c.name, first, err)
		}
		change(c.after)
		fails := func(what string, err error, want bool) {
			t.Helper()
			var e *Error
			if want != (err != nil) || want && (!errors.As(err, &e) || e.Reason != Changed || e.Path != name) {
				t.Errorf("%s: %s: %v", c.name, what, err)
			}
		}
		again, err := read()
		fails("read again", err, c.again)
		if err == nil && again != first {
			t.Errorf("%s: another text the second time", c.name)
		}
		digest, err := Digest(t.Context(), ins)
		fails("fingerprint", err, c.digest)
		if c.digest || c.before != nil && c.name != "small.txt" {
			continue
		}
		put(t, dir, c.name+"/"+c.name, []byte(c.was))
		fresh, err := Discover([]string{filepath.Join(dir, c.name)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want, err := Digest(t.Context(), fresh); err != nil || digest != want {
			t.Errorf("%s: the fingerprint is not that of what was read (%v)", c.name, err)
		}
	}
}
