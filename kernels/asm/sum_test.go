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
	checkSums(t, "avx2.sum", "_gen", "avx2_amd64.s", "avx2_amd64.go")
}

// checkSums compares the files listed in sum, which must be the outputs and all
// sources of the generator in folder.
func checkSums(t *testing.T, sum, folder string, outputs ...string) {
	t.Helper()
	f, err := os.Open(sum)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	listed := map[string]bool{}
	for in := bufio.NewScanner(f); in.Scan(); {
		want, name, ok := strings.Cut(in.Text(), "  ")
		if !ok {
			t.Fatalf("%s: line %q is no digest and name", sum, in.Text())
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
	sources, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(append(sources, folder+"/go.mod"), outputs...) {
		if !listed[filepath.ToSlash(name)] {
			t.Errorf("%s is not in %s; run go generate ./kernels/asm", name, sum)
		}
	}
}
