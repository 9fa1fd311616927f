package repack

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/store"
)

// TestReadAhead reads two epochs through the source, from a store that is fetched ahead
// and from one that is not, with every tail: the rows are the same.
func TestReadAhead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	w, err := store.Create(dir, store.Meta{Vocab: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for doc := range 200 {
		ids := make([]uint32, 1+doc*37%300)
		for i := range ids {
			ids[i] = uint32(doc*17+i) % 5000
		}
		if err := w.Append(uint64(doc), "a", ids); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const T, batch = 64, 5
	read := func(ahead bool, tail Tail) (all []int32) {
		s, err := store.Open(dir, store.OpenOptions{ReadAhead: ahead})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		st := mustStream(t, s, Config{Mode: Repack, Seed: 3, T: T, Tail: tail})
		p := pipeline.New()
		end := 2 * st.WindowsPerEpoch() / batch
		rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 4}, Source(st, batch, 0, end))
		tokens, targets, starts := make([]int32, T), make([]int32, T), make([]byte, T/8)
		pipeline.Sink(p, "read", rows, pipeline.StageFunc[item.Rows, struct{}](func(ctx context.Context, in pipeline.In[item.Rows], _ pipeline.Out[struct{}]) error {
			for r, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				for i := range r.N {
					if _, err := r.Reader.ReadRow(r.Cursor.Window+int64(i), tokens, targets, starts); err != nil {
						return err
					}
					all = append(append(all, tokens...), targets...)
				}
			}
			return nil
		}))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, tail := range []Tail{Drop, Carry, Pad} {
		plain, ahead := read(false, tail), read(true, tail)
		if len(plain) < 2*30000 || !slices.Equal(plain, ahead) {
			t.Errorf("tail %v: %d values, %d when fetched ahead, or others", tail, len(plain), len(ahead))
		}
	}
}
