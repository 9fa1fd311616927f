package shards

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"refrain/stages/item"
)

// collector is an Out that keeps what it is sent.
type collector struct{ blocks []*item.Docs }

func (c *collector) Send(ctx context.Context, d *item.Docs) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.blocks = append(c.blocks, d)
	return nil
}

// none is the input of a source.
type none struct{}

func (none) Recv(context.Context) (struct{}, error) { panic("a source has no input") }

// put writes a file below dir and returns its path.
func put(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func gz(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

func zst(data []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10))
	if err != nil {
		panic(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// result is what one reading gave.
type result struct {
	docs []item.Doc
	rep  Report
	err  error
}

func (r result) texts() []string {
	var out []string
	for _, d := range r.docs {
		out = append(out, string(d.Text))
	}
	return out
}

// read discovers and reads args. It checks what must hold of any reading.
func read(t testing.TB, o Options, args ...string) result {
	t.Helper()
	ins, err := Discover(args, o)
	if err != nil {
		return result{err: err}
	}
	return readInputs(t, ins, o)
}

func readInputs(t testing.TB, ins []Input, o Options) result {
	t.Helper()
	src := New(ins, o)
	return runSource(t, src)
}

func runSource(t testing.TB, src *Source) result {
	t.Helper()
	var out collector
	err := src.Run(t.Context(), none{}, &out)
	r := result{rep: src.Report(), err: err}
	last, docs, size := int64(-1), int64(0), int64(0)
	for i, b := range out.blocks {
		if b.Seq != int64(i) {
			t.Errorf("block %d has Seq %d", i, b.Seq)
		}
		var n int64
		for _, d := range b.Docs {
			if int64(d.ID) <= last {
				t.Errorf("document ID %d follows %d", d.ID, last)
			}
			last = int64(d.ID)
			n += int64(len(d.Text))
		}
		if n != b.Bytes || len(b.Docs) == 0 {
			t.Errorf("block %d: Bytes %d, text %d, %d documents", i, b.Bytes, n, len(b.Docs))
		}
		if n < BlockBytes && (i < len(out.blocks)-1) {
			t.Errorf("block %d of %d holds only %d bytes", i, len(out.blocks), n)
		}
		r.docs = append(r.docs, b.Docs...)
		docs += int64(len(b.Docs))
		size += n
	}
	if err == nil && (docs != r.rep.Docs || size != r.rep.Bytes || last >= r.rep.Records) {
		t.Errorf("sent %d documents of %d bytes, last ID %d; report says %+v", docs, size, last, r.rep)
	}
	return r
}

// wantErr checks that err names everything it must.
func wantErr(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one naming %q", parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}

func wantTexts(t testing.TB, r result, want ...string) {
	t.Helper()
	if r.err != nil {
		t.Errorf("unexpected error: %v", r.err)
		return
	}
	if got := r.texts(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("texts %q, want %q", got, want)
	}
}
