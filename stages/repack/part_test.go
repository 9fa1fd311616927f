package repack

import (
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"refrain/store"
)

// partOf is a Part; slow hides that it is one.
type partOf struct {
	*memCorpus // lengths and counts
	s          *store.Store
	docs       []int
}

func (p *partOf) Part() (*store.Store, []int) { return p.s, p.docs }
func (p *partOf) Copy(doc, from, to int, dst []int32) {
	p.s.Copy(p.docs[doc], from, to, dst)
}

type slow struct{ Corpus }

// smallStore has 80 documents of 1 to 40 random ids below vocab.
func smallStore(t *testing.T, vocab int) *store.Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	w, err := store.Create(dir, store.Meta{Vocab: vocab})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, uint64(vocab)))
	for i := range uint64(80) {
		ids := make([]uint32, 1+rng.IntN(40))
		for j := range ids {
			ids[j] = rng.Uint32N(uint32(vocab))
		}
		if err := w.Append(i, "x", ids); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestPartOfAStore: the fast ways through a part give the rows of the slow one, also
// where a document is cut and the store goes on behind its end.
func TestPartOfAStore(t *testing.T) {
	for _, vocab := range []int{1 << 15, 1 << 20} {
		s := smallStore(t, vocab)
		var docs []int
		var lengths []uint32
		for doc := 0; doc < s.NumDocs(); doc += 1 + doc%3 {
			docs, lengths = append(docs, doc), append(lengths, uint32(max(1, int(s.Lengths()[doc])-doc%4)))
		}
		p := &partOf{memOf(lengths), s, docs}
		for _, T := range []int{1, 8, 16, 50} {
			for _, c := range allConfigs(T) {
				fast, plain := mustStream(t, p, c), mustStream(t, slow{p}, c)
				if fast.near == nil || plain.near != nil {
					t.Fatal("the streams are not of the two kinds")
				}
				for g := range 3 * plain.WindowsPerEpoch() {
					if a, b := readRow(t, fast, g), readRow(t, plain, g); !reflect.DeepEqual(a, b) {
						t.Fatalf("vocabulary %d, %+v, row %d:\n%v\n%v", vocab, c, g, a, b)
					}
				}
			}
		}
		for want, bad := range map[string]*partOf{
			"is not there":     {memOf([]uint32{5, s.Lengths()[7] + 1}), s, []int{0, 7}},
			"80 of the store":  {memOf([]uint32{1}), s, []int{80}},
			"for 2 documents ": {memOf([]uint32{1}), s, []int{0, 1}},
		} {
			if _, err := NewStream(bad, Config{Mode: Fixed, T: 1}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	}
}
