package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/internal/num"
)

// words returns n words that depend on seed.
func words(seed uint64, n int) string {
	rng := num.NewStream("corpus test", seed)
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "w%d", rng.Uintn(uint64(i), 5000))
		if i%10 == 9 {
			b.WriteString("\n")
		} else {
			b.WriteString(" ")
		}
	}
	return b.String()
}

func TestSieveDropsCopiesAndNearCopies(t *testing.T) {
	a, b := words(1, 400), words(2, 400)
	near := strings.Replace(a, "\n", " changed\n", 4)
	indented := strings.ReplaceAll(a, "\n", "\n\t")
	inside := a[:len(a)/3]
	quoting := b[:len(b)/4] + words(3, 300) // a quarter of b, which is a third of this
	var s Sieve
	for _, c := range []struct {
		name, text string
		keep       bool
	}{
		{"first", a, true}, {"other", b, true}, {"copy", a, false}, {"near copy", near, false}, {"indented", indented, false},
		{"part of the first", inside, false}, {"quotes a quarter", quoting, true}, {"around the second", words(4, 30) + b, false},
	} {
		if got := s.Keep([]byte(c.text)); got != c.keep {
			t.Errorf("%s: kept %v", c.name, got)
		}
	}
	if s.Copies != 1 || s.NearCopies != 4 {
		t.Errorf("%d copies and %d near copies, want 1 and 4", s.Copies, s.NearCopies)
	}
}

func TestChooseAndSplit(t *testing.T) {
	root := t.TempDir()
	for i := range 40 {
		text := words(uint64(i), 300)
		if i%10 == 3 {
			text = fmt.Sprint("near copy ", i, "\n") + words(0, 300)
		}
		if i%10 == 4 {
			text = "short\n"
		}
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("f%02d.txt", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := Choice{Bytes: 40_000, Most: 1500, Least: 200, Seed: 1}
	got, err := Choose(t.Context(), root, c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Choose(t.Context(), root, c)
	if err != nil || Digest(got.Docs) != Digest(again.Docs) {
		t.Errorf("a second reading differs (%v)", err)
	}
	if got.Short == 0 || got.NearCopies == 0 {
		t.Errorf("%d short ones and %d near copies: they were not met", got.Short, got.NearCopies)
	}
	if other, err := Choose(t.Context(), root, Choice{c.Bytes, c.Most, c.Least, 2}); err != nil || Digest(other.Docs) == Digest(got.Docs) {
		t.Errorf("another seed chooses the same (%v)", err)
	}
	if _, err := Choose(t.Context(), root, Choice{Bytes: 1 << 30, Most: 1500, Least: 200}); err == nil || !strings.Contains(err.Error(), "near copies") {
		t.Errorf("too little text: %v", err)
	}

	parts, err := Split(got.Docs, []int64{5000, 8000}, 7)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]int{}
	n := 0
	for i, p := range parts {
		size := 0
		for _, d := range p {
			in[d.Name] = i
			n++
			size += len(d.Text)
		}
		if i < 2 && (size < []int{5000, 8000}[i] || size >= []int{5000, 8000}[i]+1500) {
			t.Errorf("part %d has %d bytes", i, size)
		}
	}
	if n != len(got.Docs) || len(in) != n {
		t.Errorf("%d documents in the parts, %d names, of %d", n, len(in), len(got.Docs))
	}
	// A document more or less moves few others.
	fewer, err := Split(slices.Clone(got.Docs[1:]), []int64{5000, 8000}, 7)
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for i, p := range fewer {
		for _, d := range p {
			if in[d.Name] != i {
				moved++
			}
		}
	}
	if moved > 3 {
		t.Errorf("%d documents changed their part when one left", moved)
	}
	if _, err := Split(got.Docs, []int64{1 << 30}, 7); err == nil {
		t.Error("a split that leaves nothing is no error")
	}
}
