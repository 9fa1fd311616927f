package asm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// emitted finds an instruction that stands in the assembly as bytes, with the text
// of it in the comment before.
var emitted = regexp.MustCompile(`// (vdpbf16ps .*)\n\tLONG +\$0x([0-9a-f]{8})\n\tWORD +\$0x([0-9a-f]{4})`)

// TestEmittedBytes assembles the comments of all emitted instructions with GNU as
// and compares the bytes.
func TestEmittedBytes(t *testing.T) {
	b, err := os.ReadFile("avx2_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	all := emitted.FindAllStringSubmatch(string(b), -1)
	// Every raw directive must belong to an instruction that was found.
	if raw := strings.Count(string(b), "\tLONG ") + strings.Count(string(b), "\tWORD ") + strings.Count(string(b), "\tBYTE "); raw != 2*len(all) || len(all) == 0 {
		t.Fatalf("avx2_amd64.s has %d raw directives, %d of them with their instruction in a comment", raw, 2*len(all))
	}
	if _, err := exec.LookPath("as"); err != nil || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("GNU as for linux/amd64 is not installed; the emitted bytes were not compared")
	}
	var text strings.Builder
	var want []byte
	for _, m := range all {
		text.WriteString(m[1] + "\n")
		long, err1 := strconv.ParseUint(m[2], 16, 32)
		word, err2 := strconv.ParseUint(m[3], 16, 16)
		if err1 != nil || err2 != nil {
			t.Fatal(m)
		}
		want = binary.LittleEndian.AppendUint32(want, uint32(long))
		want = binary.LittleEndian.AppendUint16(want, uint16(word))
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o")
	if err := os.WriteFile(in, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command("as", "--64", "-o", out, in).CombinedOutput(); err != nil {
		if strings.Contains(string(msg), "no such instruction") {
			t.Skip("this GNU as is too old for vdpbf16ps; the emitted bytes were not compared")
		}
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
	for i, m := range all {
		if at := 6 * i; len(got) < at+6 || !bytes.Equal(got[at:at+6], want[at:at+6]) {
			t.Fatalf("%s stands as %x, as writes %x", m[1], want[at:at+6], got[min(at, len(got)):min(at+6, len(got))])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("as wrote %d bytes, expected %d", len(got), len(want))
	}
	t.Logf("%d emitted instructions are those of GNU as", len(all))
}
