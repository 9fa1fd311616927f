package shards

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

// TestXXH32 checks values of the reference implementation.
func TestXXH32(t *testing.T) {
	for in, want := range map[string]uint32{
		"":    0x02cc5d05,
		"a":   0x550d7456,
		"abc": 0x32d153ff,
		"Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("%q: %08x, want %08x", in, got, want)
		}
	}
}

// lz4Frames are the frames of testdata and what they hold.
func lz4Frames(t testing.TB) map[string][2][]byte {
	t.Helper()
	var text, noise []byte
	for i := range 6000 {
		text = fmt.Appendf(text, "%d: a line that repeats, %d\n", i/64, i*i%5)
	}
	for i := range uint64(3000) {
		noise = append(noise, byte(i*i*2654435761>>13))
	}
	names, err := filepath.Glob("testdata/lz4/*.lz4")
	if err != nil || len(names) != 5 {
		t.Fatalf("%d frames, %v", len(names), err)
	}
	out := make(map[string][2][]byte)
	for _, n := range names {
		raw, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out[n] = [2][]byte{raw, text[:150000]}
		if filepath.Base(n) == "stored.lz4" {
			out[n] = [2][]byte{raw, noise}
		}
	}
	return out
}

func TestLZ4(t *testing.T) {
	for name, f := range lz4Frames(t) {
		rng := rand.New(rand.NewSource(9))
		raw, want := f[0], f[1]
		got, err := inflateLZ4(raw, int64(len(want)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
		for _, n := range []int{0, len(want) - 1, len(want) + 1, 1 << 40} {
			if _, err := inflateLZ4(raw, int64(n)); err == nil {
				t.Errorf("%s decodes to %d bytes", name, n)
			}
		}
		for cut := 0; cut < len(raw); cut += 1 + rng.Intn(len(raw)/100) {
			if _, err := inflateLZ4(raw[:cut], int64(len(want))); err == nil {
				t.Errorf("%s cut at %d decodes", name, cut)
			}
		}
		for range 200 { // any result of the right size, or an error; never a panic
			m := mutate(raw, rng)
			if got, err := inflateLZ4(m, int64(len(want))); err == nil && len(got) != len(want) {
				t.Errorf("%s damaged gives %d bytes", name, len(got))
			}
		}
	}
	if _, err := inflateLZ4(append(bytes.Clone(lz4Frames(t)["testdata/lz4/stored.lz4"][0]), 0), 3000); err == nil {
		t.Error("a byte after the frame is not noticed")
	}
}

func FuzzLZ4(f *testing.F) {
	for _, x := range lz4Frames(f) {
		f.Add(x[0], int64(len(x[1])))
	}
	f.Fuzz(func(t *testing.T, b []byte, n int64) {
		if n < 0 || n > 1<<20 {
			return
		}
		if got, err := inflateLZ4(b, n); err == nil && int64(len(got)) != n {
			t.Fatalf("%d bytes of %d", len(got), n)
		}
	})
}
