package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// bigStore writes a store of one shard with docs documents of 3,000 ids, and returns
// its folder and the path of the shard.
func bigStore(t *testing.T, docs int) (dir, shard string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "s")
	w, err := Create(dir, Meta{Vocab: 900})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uint32, 3000)
	for doc := range docs {
		for i := range ids {
			ids[i] = uint32(doc*31+i*7) % 900
		}
		if err := w.Append(uint64(doc), "a", ids); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, m.Shards[0].File)
}

func mapped(t *testing.T) {
	t.Helper()
	switch runtime.GOOS {
	case "linux", "darwin":
	default:
		t.Skip("files are read into memory on " + runtime.GOOS)
	}
}

// TestTruncatedWhileMapped cuts a shard under every way of reading it. Each gives an
// error that names file and byte, readers of what is left go on, and a fault that is
// not the store's stays a panic.
func TestTruncatedWhileMapped(t *testing.T) {
	mapped(t)
	dir, shard := bigStore(t, 40)
	s := mustOpen(t, dir, OpenOptions{})
	if err := s.Intact(); err != nil || !s.Mapped() {
		t.Fatal(s.Mapped(), err)
	}
	const cut = 64 << 10
	if err := os.Truncate(shard, cut); err != nil {
		t.Fatal(err)
	}
	tokens, targets := make([]int32, 3000), make([]int32, 3000)
	seen := uint64(0) // so that no read is left out
	catch := func(read func()) (err error) {
		defer s.Catch(Faults(), &err)
		read()
		return nil
	}
	for name, read := range map[string]func(doc int){
		"Copy":     func(doc int) { s.Copy(doc, 0, 3000, tokens) },
		"CopyPair": func(doc int) { s.CopyPair(doc, 0, 2500, tokens, targets, &Ahead{}) },
		"short":    func(doc int) { s.CopyPair(doc, 2000, 2003, tokens, targets, &Ahead{}) },
		"Tokens16": func(doc int) { seen += uint64(slices.Max(s.Tokens16(doc))) },
		"DocID":    func(doc int) { seen += s.DocID(doc) },
		"Source":   func(doc int) { seen += uint64(len(s.Source(doc))) },
	} {
		err := catch(func() { read(30) })
		var gone *GoneError
		if !errors.As(err, &gone) || gone.Shard != filepath.Base(shard) || gone.Size != cut || gone.Offset < cut {
			t.Errorf("%s of document 30: %v", name, err)
			continue
		}
		for _, part := range []string{gone.Shard, fmt.Sprint("byte ", gone.Offset), "cut from", fmt.Sprint("to ", cut), "put the whole file back"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
	if seen != 0 {
		t.Errorf("%d was read where nothing is", seen)
	}
	if err := catch(func() { s.Copy(0, 0, 3000, tokens) }); err != nil || tokens[10] != 70 {
		t.Errorf("document 0, which is still there: id %d, %v", tokens[10], err)
	}
	var gone *GoneError
	if err := s.Intact(); !errors.As(err, &gone) || gone.Size != cut {
		t.Errorf("Intact: %v", err)
	}
	func() {
		defer func() {
			if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "nil pointer") {
				t.Errorf("a fault of the program's own came out as %v", r)
			}
		}()
		err := catch(func() { var p *GoneError; p.Size = 1 })
		t.Errorf("a fault of the program's own became the error %v", err)
	}()
}

// TestTruncatedBeforeThePage: the rest of the page of a cut reads as zeros, without a
// fault. Intact sees it.
func TestTruncatedBeforeThePage(t *testing.T) {
	mapped(t)
	dir, shard := bigStore(t, 2)
	s := mustOpen(t, dir, OpenOptions{})
	info, err := os.Stat(shard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(shard, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	var gone *GoneError
	if err := s.Intact(); !errors.As(err, &gone) || gone.Offset != info.Size()-1 || !strings.Contains(err.Error(), dir) {
		t.Errorf("one byte less: %v", err)
	}
	if _, err := Open(dir, OpenOptions{}); err == nil {
		t.Error("a cut store opens")
	}
}

// TestResidentSurvives: a resident store does not care what becomes of its files.
func TestResidentSurvives(t *testing.T) {
	dir, shard := bigStore(t, 40)
	s := mustOpen(t, dir, OpenOptions{Resident: true})
	if err := os.Truncate(shard, 100); err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, 3000)
	s.Copy(39, 0, 3000, tokens)
	if want := int32((39*31 + 10*7) % 900); tokens[10] != want {
		t.Errorf("id %d, want %d", tokens[10], want)
	}
	if err := s.Intact(); err != nil || s.Mapped() {
		t.Error(s.Mapped(), err)
	}
}
