package asm

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedFiles compares the generator's sources and its output with the
// digests it left: neither may change without the other.
func TestGeneratedFiles(t *testing.T) {
	f, err := os.Open("avx2.sum")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	listed := map[string]bool{}
	for in := bufio.NewScanner(f); in.Scan(); {
		want, name, ok := strings.Cut(in.Text(), "  ")
		if !ok {
			t.Fatalf("avx2.sum: line %q is no digest and name", in.Text())
		}
		listed[name] = true
		b, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want {
			t.Errorf("%s changed since the last generation; run go generate ./kernels/asm", name)
		}
	}
	sources, err := filepath.Glob("_gen/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(sources, "_gen/go.mod", "avx2_amd64.s", "avx2_amd64.go") {
		if !listed[filepath.ToSlash(name)] {
			t.Errorf("%s is not in avx2.sum; run go generate ./kernels/asm", name)
		}
	}
}
