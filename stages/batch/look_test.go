package batch

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"

	"refrain/stages/item"
)

// slow is look by its definition, one word and one bit at a time.
func slow(crc uint32, words []int32, add int32) (sum, top uint32) {
	sum = ^crc
	for _, w := range words {
		top = max(top, uint32(w+add))
		sum ^= uint32(w)
		for range 32 {
			sum = sum>>1 ^ reversed&-(sum&1)
		}
	}
	return ^sum, top
}

// TestLook compares look, and what it is made of, with the definition at every length
// up to several of the largest blocks, wherever the words begin.
func TestLook(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]int32, 700)
	for i := range words {
		words[i] = int32(r.Uint32())
	}
	for n := range len(words) - 16 {
		for _, off := range []int{0, 1, 2, 3, 5, 8, 15} {
			w, crc, add := words[off:off+n], r.Uint32(), int32(off&1)
			sum, top := slow(crc, w, add)
			for name, f := range map[string]func(uint32, []int32, int32) (uint32, uint32){"look": look, "lookPlain": lookPlain} {
				if s, m := f(crc, w, add); s != sum || m != top {
					t.Fatalf("%s of %d words from %d: %08x and %d, want %08x and %d", name, n, off, s, m, sum, top)
				}
			}
			if m := largest(w, add); m != top {
				t.Fatalf("largest of %d words from %d: %d, want %d", n, off, m, top)
			}
		}
	}
}

// TestLookFindsEachPlace puts one word that is larger than the others at every place.
func TestLookFindsEachPlace(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 128, 200, 448} {
		words := make([]int32, n)
		for i := range words {
			words[i] = int32(i % 100)
		}
		for i := range words {
			was := words[i]
			for _, v := range []int32{100, 1<<31 - 1, -1 << 31, -2} {
				words[i] = v
				for add := range int32(2) {
					_, top := look(0, words, add)
					if want := uint32(v + add); top != want || largest(words, add) != want || largestPlain(words, add) != want {
						t.Fatalf("%d words, %d at %d, plus %d: the largest is %d", n, v, i, add, top)
					}
				}
			}
			words[i] = was
		}
	}
}

// TestFoldConstants computes the table of look_amd64.s.
func TestFoldConstants(t *testing.T) {
	code, err := os.ReadFile("look_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, m := range regexp.MustCompile(`(?m)^DATA \S+, \$(\S+)`).FindAllSubmatch(code, -1) {
		v, err := strconv.ParseUint(string(m[1]), 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	distances := []int64{2048, 512, 384, 256, 128}
	if len(got) != 2*len(distances)+2 {
		t.Fatalf("%d constants", len(got))
	}
	for i, d := range distances {
		if a, b := uint64(power(d+32))<<1, uint64(power(d-32))<<1; got[2*i] != a || got[2*i+1] != b {
			t.Errorf("distance %d: %#x and %#x, want %#x and %#x", d, got[2*i], got[2*i+1], a, b)
		}
	}
}

// TestJoin compares the CRC of two pieces, joined, with that of the whole.
func TestJoin(t *testing.T) {
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	for cut := 0; cut <= len(b); cut += 77 {
		p, q := crc32.Checksum(b[:cut], castagnoli), crc32.Checksum(b[cut:], castagnoli)
		if got, want := times(power(int64(8*(len(b)-cut))), p)^q, crc32.Checksum(b, castagnoli); got != want {
			t.Fatalf("cut at %d: %08x, want %08x", cut, got, want)
		}
	}
}

// TestStamp holds the sum of batches of many shapes, with rows that are gathered one by
// one and several at a time, and sections that need alignment, against their memory.
func TestStamp(t *testing.T) {
	d := open(t)
	for _, shape := range [][2]int{{1, 1}, {3, 5}, {2, 8}, {5, 16}, {7, 63}, {4, 64}, {9, 512}, {17, 512}, {16, 513}, {3, 4096}, {2, 4100}, {1, 9001}} {
		s, err := New(d, Config{N: shape[0], T: shape[1], Ring: 2, Vocab: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for k := range int64(3) {
			b, err := s.ring.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rows := item.Rows{Batch: k, Cursor: item.Cursor{Window: k * int64(b.N)}, N: b.N, Reader: &reader{}}
			if err := s.fill(work{rows, b}); err != nil {
				t.Fatal(err)
			}
			if want := crc32.Checksum(b.Host.Bytes(), castagnoli); b.CRC != want {
				t.Errorf("%d rows of %d: CRC %08x, of the memory %08x", b.N, b.T, b.CRC, want)
			}
			if want := int64(b.N * (b.T - 1)); b.Valid != want {
				t.Errorf("%d rows of %d: %d targets, want %d", b.N, b.T, b.Valid, want)
			}
			b.Release()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFirstDefect: of several defects the one that comes first in the batch is named,
// also when rows are looked at together.
func TestFirstDefect(t *testing.T) {
	const n, length, vocab = 40, 300, 50_000
	d := open(t)
	type bad struct {
		row, at int
		target  bool
		id      int32
	}
	for _, c := range []struct {
		bad    []bad
		failAt int64
		want   string
	}{
		{[]bad{{20, 299, false, vocab}, {21, 0, false, -1}}, 0, "window 1020: position 299 holds token 50000, outside [0,50000)"},
		{[]bad{{20, 3, true, vocab}, {20, 200, false, vocab}}, 0, "window 1020: position 200 holds token 50000"},
		{[]bad{{39, 299, true, -2}}, 0, "window 1039: position 299 has target -2, outside [-1,50000)"},
		{[]bad{{12, 0, true, 1<<31 - 1}, {13, 0, false, -1}}, 0, "window 1012: position 0 has target 2147483647"},
		{[]bad{{12, 0, false, vocab}}, 1012, errRow.Error()},
		{[]bad{{11, 0, false, vocab}}, 1012, "window 1011: position 0 holds token 50000"},
		{[]bad{{12, 0, false, vocab - 1}, {12, 1, true, vocab - 1}, {12, 2, true, -1}}, 0, ""},
	} {
		s, err := New(d, Config{N: n, T: length, Ring: 2, Vocab: vocab})
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{failAt: c.failAt, change: func(g int64, tokens, targets []int32) {
			for _, b := range c.bad {
				if g == int64(1000+b.row) {
					map[bool][]int32{false: tokens, true: targets}[b.target][b.at] = b.id
				}
			}
		}}
		b, err := s.ring.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = s.fill(work{item.Rows{Batch: 7, Cursor: item.Cursor{Window: 1000}, N: n, Reader: r}, b})
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || c.want != "" && !regexp.MustCompile("^batch 7, window 10[0-9]+: ").MatchString(got) || c.want != "" && !regexp.MustCompile(regexp.QuoteMeta(c.want)).MatchString(got) {
			t.Errorf("%v: %v, want %q", c.bad, err, c.want)
		}
		b.Release()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkLook(b *testing.B) {
	words := make([]int32, 4096)
	b.SetBytes(int64(4 * len(words)))
	for b.Loop() {
		look(0, words, 1)
	}
}
