package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestEncoding compares the encoder with GNU as for all 32,768 choices of
// registers.
func TestEncoding(t *testing.T) {
	if _, err := exec.LookPath("as"); err != nil || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("GNU as for linux/amd64 is not installed; the encodings were not compared")
	}
	var source strings.Builder
	var want []byte
	for dst := range 32 {
		for x := range 32 {
			for y := range 32 {
				source.WriteString(gnu(dst, x, y) + "\n")
				want = append(want, vdpbf16ps(dst, x, y)...)
			}
		}
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o")
	if err := os.WriteFile(in, []byte(source.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command("as", "--64", "-o", out, in).CombinedOutput(); err != nil {
		t.Fatalf("as: %v\n%.2000s", err, msg)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		t.Logf("%d encodings are those of GNU as", len(want)/6)
		return
	}
	for i, line := range strings.Split(strings.TrimSpace(source.String()), "\n") {
		if g := got[min(6*i, len(got)):min(6*i+6, len(got))]; !bytes.Equal(g, want[6*i:6*i+6]) {
			t.Fatalf("%s: ours %x, as %x", line, want[6*i:6*i+6], g)
		}
	}
	t.Fatalf("as wrote %d bytes, expected %d", len(got), len(want))
}
