package flatbuf

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// sample is a buffer with everything the builder can make: fields 0 to 5 of the
// root are a byte, a 16-bit and a 64-bit number, a table, a vector of two strings'
// tables, and a vector of two structs of two words; field 6 is absent.
func sample() []byte {
	var b Builder
	structs := b.Structs(2, []uint64{1, 2, 3, 1 << 63})
	var kids []int
	for _, s := range []string{"first", ""} {
		text := b.Str(s)
		b.Open(1)
		b.Object(0, text)
		kids = append(kids, b.Close())
	}
	refs := b.Refs(kids...)
	b.Open(2)
	b.Scalar(1, 7, 4)
	inner := b.Close()
	b.Open(7)
	b.Scalar(2, ^uint64(4), 8)
	b.Object(3, inner)
	b.Object(4, refs)
	b.Object(5, structs)
	b.Scalar(1, 60000, 2)
	b.Scalar(0, 200, 1)
	return b.Finish(b.Close())
}

// contents reads all of sample.
func contents(f *Reader) (numbers []int64, texts []string) {
	root := f.Root()
	inner := f.Table(root, 3)
	numbers = append(numbers, f.Number(root, 0, 1), f.Number(root, 1, 2), f.Number(root, 2, 8),
		f.Number(inner, 0, 4), f.Number(inner, 1, 4), f.Number(root, 6, 8), f.Number(root, 99, 8))
	p, n := f.Vector(root, 4, 4)
	for i := range n {
		texts = append(texts, f.Str(f.Follow(p+4*i), 0, 5))
	}
	p, n = f.Vector(root, 5, 16)
	for i := range 2 * n {
		numbers = append(numbers, f.I64(p+8*i))
	}
	absent := f.Table(root, 6)
	if p, n := f.Vector(absent, 0, 4); p != 0 || n != 0 || absent != 0 {
		numbers = append(numbers, int64(p), int64(n))
	}
	return numbers, texts
}

func TestRoundTrip(t *testing.T) {
	b := sample()
	if len(b)%8 != 0 {
		t.Errorf("%d bytes are no multiple of 8", len(b))
	}
	f := NewReader(b)
	numbers, texts := contents(f)
	if want := []int64{200, 60000, -5, 0, 7, 0, 0, 1, 2, 3, -1 << 63}; f.Err() != nil || !slices.Equal(numbers, want) {
		t.Errorf("numbers %d, want %d (%v)", numbers, want, f.Err())
	}
	if want := []string{"first", ""}; !slices.Equal(texts, want) {
		t.Errorf("texts %q, want %q", texts, want)
	}
	f = NewReader(b)
	p, _ := f.Vector(f.Root(), 4, 4)
	if s := f.Str(f.Follow(p), 0, 4); s != "" || f.Err() == nil {
		t.Errorf("a string over its limit gave %q, %v", s, f.Err())
	}
}

// TestFaultsStick: the first fault stays, and what is read after it is zero.
func TestFaultsStick(t *testing.T) {
	f := NewReader(sample())
	root := f.Root()
	if f.I64(1<<20) != 0 || !errors.Is(f.Err(), ErrOutside) {
		t.Fatalf("reading outside: %v", f.Err())
	}
	f.Fail(errors.New("a later one"))
	numbers, texts := contents(f)
	for _, n := range append(numbers, int64(f.Number(root, 0, 1)), int64(f.I32(0))) {
		if n != 0 {
			t.Errorf("numbers %d after a fault", numbers)
			break
		}
	}
	if len(texts) != 0 || !errors.Is(f.Err(), ErrOutside) {
		t.Errorf("texts %q, %v after a fault", texts, f.Err())
	}
}

// TestHostileBytes: cut at every length and with every word replaced, a buffer is
// read without a panic, and a cut one never as if it were whole.
func TestHostileBytes(t *testing.T) {
	whole := sample()
	for n := range whole {
		f := NewReader(whole[:n])
		if contents(f); f.Err() == nil && n < len(whole)-8 {
			t.Errorf("cut to %d of %d bytes: no fault", n, len(whole))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	faults := 0
	for at := 0; at+2 <= len(whole); at++ {
		for _, v := range []uint32{0, 1, 0xffff, 1 << 31, ^uint32(0), rng.Uint32()} {
			b := slices.Clone(whole)
			for i := at; i < min(at+4, len(b)); i++ {
				b[i] = byte(v >> (8 * (i - at)))
			}
			f := NewReader(b)
			if contents(f); f.Err() != nil {
				faults++
			}
		}
	}
	if faults < len(whole) {
		t.Errorf("only %d of %d changes were faults", faults, 6*len(whole))
	}
}
