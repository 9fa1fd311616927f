package store

import (
	"path/filepath"
	"slices"
	"testing"
	"unsafe"
)

// TestWidenWays compares the fast ways with the definition at every length up to some
// vectors and every alignment, with ids over all of uint16 and guard words around the
// results.
func TestWidenWays(t *testing.T) {
	const guard = -7
	ids := make([]uint16, 200)
	for i := range ids {
		ids[i] = uint16(i*40503 + 1)
	}
	guarded := func(n int) []int32 {
		b := make([]int32, n+16)
		for i := range b {
			b[i] = guard
		}
		return b
	}
	check := func(what string, buf []int32, at int, want []uint16) {
		t.Helper()
		for i, got := range buf {
			w := int32(guard)
			if i >= at && i-at < len(want) {
				w = int32(want[i-at])
			}
			if got != w {
				t.Fatalf("%s: word %d of %d is %d, want %d", what, i-at, len(want), got, w)
			}
		}
	}
	ahead := Ahead{ids: unsafe.Pointer(&ids[0]), lines: 3}
	ahead.Line(1, unsafe.Pointer(&ids[1]))
	for n := range 130 {
		for off := range 9 {
			src := ids[off:]
			dst := guarded(n)
			widen(dst[off:off+n], src[:n])
			check("widen", dst, off, src[:n])
			if n == 0 {
				continue
			}
			for more := range 2 {
				tokens, targets := guarded(n), guarded(n)
				m := n - 1 + more
				h := ahead
				widenPair(tokens[8:8+n], targets[off:off+m], src[:n+more:n+more], &h)
				check("tokens", tokens, 8, src[:n])
				check("targets", targets, off, src[1:m+1])
				if h.lines < 0 || h.lines > ahead.lines {
					t.Fatalf("%d of %d lines are left", h.lines, ahead.lines)
				}
				plain, shifted := guarded(n), guarded(n)
				widenPairPlain(plain[8:8+n], shifted[off:off+m], src[:n+more])
				if !slices.Equal(plain, tokens) || !slices.Equal(shifted, targets) {
					t.Fatalf("n %d, offset %d, more %d: both ways differ", n, off, more)
				}
			}
		}
	}
}

// TestCopyPair compares CopyPair with Copy on both widths, for every range of small
// documents and of one that takes several vectors.
func TestCopyPair(t *testing.T) {
	for _, vocab := range []int{1 << 16, 1<<16 + 1} {
		dir := filepath.Join(t.TempDir(), "s")
		w, err := Create(dir, Meta{Vocab: vocab})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		lengths := []int{1, 2, 9, 41, 3000}
		for d, n := range lengths {
			ids := make([]uint32, n)
			for i := range ids {
				ids[i] = uint32((i*40503 + d) % vocab)
			}
			if err := w.Append(uint64(d), "x", ids); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, OpenOptions{Resident: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for d, n := range lengths {
			step := max(1, n/40)
			for from := 0; from < n; from += step {
				for to := from + 1; to <= n; to += step {
					last := min(to+1, n)
					want, tokens, targets := make([]int32, last-from), make([]int32, to-from), make([]int32, to-from)
					s.Copy(d, from, last, want)
					var next Ahead
					next.Entry(0, s, d)
					next.First(3, s, d)
					next.IDs(s, d, from, to)
					s.CopyPair(d, from, to, tokens, targets, &next)
					next.Rest()
					if !slices.Equal(tokens, want[:to-from]) || !slices.Equal(targets[:last-from-1], want[1:]) {
						t.Fatalf("vocabulary %d, document %d, range %d to %d: wrong ids", vocab, d, from, to)
					}
					if last == to && targets[to-from-1] != 0 {
						t.Fatalf("document %d, range %d to %d: a target behind the end was written", d, from, to)
					}
				}
			}
			for _, r := range [][2]int{{-1, 1}, {0, 0}, {0, n + 1}} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("document %d, range %v: no panic", d, r)
						}
					}()
					s.CopyPair(d, r[0], r[1], make([]int32, n+2), make([]int32, n+2), &Ahead{})
				}()
			}
		}
	}
}

// TestAhead counts the lines of ids and what is left of them.
func TestAhead(t *testing.T) {
	var b [256]byte
	a := Ahead{ids: unsafe.Pointer(&b[0]), lines: 4}
	if a.passed(1); a.lines != 3 || a.ids != unsafe.Pointer(&b[64]) {
		t.Errorf("after one line: %v", a)
	}
	if a.passed(5); a.lines != 0 {
		t.Errorf("after all lines: %v", a)
	}
	a.Rest()
	(&Ahead{}).Rest()
}

// TestNarrow compares narrow with its definition at every length up to some vectors,
// with the largest id at every place and above 16 bits.
func TestNarrow(t *testing.T) {
	for n := 1; n < 70; n++ {
		for at := range n {
			for _, top := range []uint32{40_000, 65_535, 65_536, 1<<32 - 1} {
				ids := make([]uint32, n)
				for i := range ids {
					ids[i] = uint32(i*977+at) % 40_000
				}
				ids[at] = top
				got, want := make([]byte, 2*n+1), make([]byte, 2*n+1)
				got[2*n], want[2*n] = 0xa5, 0xa5
				if a, b := narrow(got, ids), narrowPlain(want, ids); a != b || b != top {
					t.Fatalf("%d ids, %d at %d: the largest is %d, plainly %d", n, top, at, a, b)
				}
				if top < 1<<16 && !slices.Equal(got, want) {
					t.Fatalf("%d ids, %d at %d: wrong words", n, top, at)
				}
			}
		}
	}
}
