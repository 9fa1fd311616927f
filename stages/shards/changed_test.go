package shards

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"refrain/stages/item"
)

// atBlock calls f before it takes its first block.
type atBlock struct {
	collector
	f func()
}

func (a *atBlock) Send(ctx context.Context, d *item.Docs) error {
	if len(a.blocks) == 0 {
		a.f()
	}
	return a.collector.Send(ctx, d)
}

// TestChangedInput: a file that is not, or does not stay, what was fingerprinted
// stops the reading, and the error names it.
func TestChangedInput(t *testing.T) {
	dir := t.TempDir()
	line := []byte(`{"text": "` + strings.Repeat("word ", 2000) + "\"}\n")
	put(t, dir, "a.txt", []byte("one"))
	late := put(t, dir, "b.jsonl", bytes.Repeat(line, 100))
	grow := func() { put(t, dir, "b.jsonl", bytes.Repeat(line, 101)) }
	rewrite := func() {
		info, err := os.Stat(late)
		if err != nil {
			t.Fatal(err)
		}
		at := info.ModTime().Add(time.Second)
		if err := os.Chtimes(late, at, at); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func() {}
	for _, c := range []struct {
		name          string
		before, while func()
		want          string
	}{
		{"nothing", nothing, nothing, ""},
		{"grown before", grow, nothing, "bytes and has"},
		{"rewritten before", rewrite, nothing, "it was written to at"},
		{"grown while reading", nothing, grow, "bytes and has"},
		{"rewritten while reading", nothing, rewrite, "it was written to at"},
	} {
		put(t, dir, "b.jsonl", bytes.Repeat(line, 100))
		ins, err := Discover([]string{dir}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Digest(t.Context(), ins); err != nil {
			t.Fatal(err)
		}
		c.before()
		err = New(ins, Options{Duplicate: Keep}).Run(t.Context(), none{}, &atBlock{f: c.while})
		var e *Error
		switch {
		case c.want == "" && err == nil:
		case c.want == "" || !errors.As(err, &e) || e.Path != late || e.Reason != Changed || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestInputsKnowTheirArgument: what was found for each argument can be told apart,
// and the digest corrects a size that was seen too early.
func TestInputsKnowTheirArgument(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "x/a.txt", []byte("one"))
	put(t, dir, "x/b.txt", []byte("two"))
	y := put(t, dir, "y.txt", []byte("three"))
	ins, err := Discover([]string{filepath.Join(dir, "x"), y}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(ins) != 3 || ins[0].Arg != 0 || ins[1].Arg != 0 || ins[2].Arg != 1 {
		t.Errorf("%+v", ins)
	}
	put(t, dir, "y.txt", []byte("three and four"))
	if _, err := Digest(t.Context(), ins); err != nil || ins[2].Size != 14 {
		t.Errorf("%d bytes (%v)", ins[2].Size, err)
	}
}
