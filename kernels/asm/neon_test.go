package asm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestNeonEncoding assembles the comment behind every WORD of neon_arm64.s with
// the GNU assembler, which must give that word. It runs on every system that has
// the assembler for arm64.
func TestNeonEncoding(t *testing.T) {
	as, err := exec.LookPath("aarch64-linux-gnu-as")
	if err != nil {
		t.Skip("needs aarch64-linux-gnu-as (on Debian: apt-get install binutils-aarch64-linux-gnu)")
	}
	code, err := os.ReadFile("neon_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	var words []uint32
	var source bytes.Buffer
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\tWORD \$0x([0-9a-f]{8})(?: // (.*))?$`).FindAllSubmatch(code, -1) {
		w, err := strconv.ParseUint(string(m[1]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		if seen[string(m[0])] {
			continue
		}
		seen[string(m[0])] = true
		words = append(words, uint32(w))
		fmt.Fprintf(&source, "%s\n", m[2])
	}
	if got, want := bytes.Count(code, []byte("WORD")), 300; got < want || len(words) < want/3 {
		t.Fatalf("%d WORD in neon_arm64.s, %d different ones with an instruction behind them: too few; was the format changed?", got, len(words))
	}
	object := filepath.Join(t.TempDir(), "o")
	cmd := exec.Command(as, "-o", object, "-")
	cmd.Stdin = &source
	lines := strings.Split(source.String(), "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", as, err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) != 4*len(words) {
		t.Fatalf("%d instructions make %d bytes", len(words), len(text))
	}
	for i, w := range words {
		if want := binary.LittleEndian.Uint32(text[4*i:]); w != want {
			t.Errorf("WORD $0x%08x // %s: the GNU assembler gives 0x%08x", w, lines[i], want)
		}
	}
	t.Logf("%d encodings", len(words))
}

// TestNeonGenerated: the NEON files are those of the generator as it is.
func TestNeonGenerated(t *testing.T) {
	checkSums(t, "neon.sum", "_neon_gen", "neon_arm64.s", "neon_arm64.go")
}
