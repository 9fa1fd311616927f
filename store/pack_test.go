package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPack: what is packed comes out again, in the width of the vocabulary, behind what
// was there; an id outside is an error that names its place and leaves dst as it was.
func TestPack(t *testing.T) {
	for _, c := range []struct{ vocab, size int }{{2, 2}, {1 << 16, 2}, {1<<16 + 1, 4}, {1 << 20, 4}} {
		packed := []byte{7}
		var want []uint32
		for n := range 70 {
			ids := make([]uint32, n)
			for i := range ids {
				ids[i] = uint32((n*31 + i*7919) % c.vocab)
			}
			want = append(want, ids...)
			var err error
			if packed, err = Pack(packed, ids, c.vocab); err != nil {
				t.Fatal(err)
			}
		}
		if got := slices.Collect(Unpack(packed[1:], c.vocab)); !slices.Equal(got, want) || len(packed) != 1+c.size*len(want) || packed[0] != 7 {
			t.Errorf("vocabulary %d: %d bytes for %d ids, %d come back", c.vocab, len(packed), len(want), len(got))
		}
		for at := range 40 {
			ids := make([]uint32, 40)
			ids[at] = uint32(c.vocab)
			after, err := Pack(packed, ids, c.vocab)
			if err == nil || !strings.Contains(err.Error(), "token "+strconv.Itoa(at)+" ") || len(after) != len(packed) {
				t.Errorf("vocabulary %d, id outside at %d: %v", c.vocab, at, err)
			}
		}
	}
}
