package ptx

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFresh: the image was made from the sources that are here.
func TestFresh(t *testing.T) {
	b, err := os.ReadFile("kernels.sum")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "source ") {
			want = append(want, strings.TrimSpace(line))
		}
	}
	var have []string
	for _, p := range []string{"../*.cu", "../*.cuh"} {
		files, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, fmt.Sprintf("source %s %x", filepath.Base(f), sha256.Sum256(text)))
		}
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("kernels/ptx/kernels.fatbin is stale: run make cuda-toolchain kernels\nhere:\n%s\nin the image:\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}
