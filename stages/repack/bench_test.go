package repack

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"refrain/store"
)

// benchStore writes a store of 32 M tokens with documents of 26 to 2,525 tokens,
// mean 1,275, and opens it resident.
func benchStore(b *testing.B) *store.Store {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "s")
	w, err := store.Create(dir, store.Meta{Vocab: 1 << 16})
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	ids := make([]uint32, 2525)
	for i := range ids {
		ids[i] = uint32(i * 40503 % (1 << 16))
	}
	for i := uint64(0); w.Tokens() < 32<<20; i++ {
		if err := w.Append(i, "bench", ids[:26+rng.IntN(2500)]); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(dir, store.OpenOptions{Resident: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkRows compares rows with their floor: the documents of a resident store
// widened one after the other into the same buffers, then the shifted targets.
func BenchmarkRows(b *testing.B) {
	c := benchStore(b)
	for _, T := range []int{512, 4096} {
		tokens, targets, starts := make([]int32, T), make([]int32, T), make([]byte, (T+7)/8)
		report := func(b *testing.B) {
			b.ReportMetric(float64(T)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
		}
		b.Run(fmt.Sprintf("copy/T=%d", T), func(b *testing.B) {
			doc, off := 0, 0
			for b.Loop() {
				for filled := 0; filled < T; {
					n := int(c.Lengths()[doc])
					take := min(n-off, T-filled)
					c.Copy(doc, off, off+take, tokens[filled:])
					filled += take
					if off += take; off == n {
						doc, off = (doc+1)%c.NumDocs(), 0
					}
				}
				copy(targets, tokens[1:])
			}
			report(b)
		})
		for _, mode := range []Mode{Fixed, Repack} {
			s := mustStream(b, c, Config{Mode: mode, Seed: 1, T: T})
			for e := range int64(2) {
				if _, err := s.Epoch(e); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprintf("%v/T=%d", mode, T), func(b *testing.B) {
				g, n := int64(0), s.FirstWindow(2)
				for b.Loop() {
					if _, err := s.ReadRow(g, tokens, targets, starts); err != nil {
						b.Fatal(err)
					}
					if g++; g == n {
						g = 0
					}
				}
				report(b)
			})
		}
	}
}

// BenchmarkPlan builds the plan of one epoch of 164,459 documents, with 51,200 windows
// of 4,096 ids or 409,700 of 512.
func BenchmarkPlan(b *testing.B) {
	lengths := make([]uint32, 164_459)
	for i := range lengths {
		lengths[i] = uint32(i%2500 + 26)
	}
	for _, T := range []int{512, 4096} {
		s := mustStream(b, memOf(lengths), Config{Mode: Repack, T: T})
		b.Run(fmt.Sprintf("T=%d", T), func(b *testing.B) {
			e := int64(0)
			for b.Loop() {
				if _, err := s.build(b.Context(), e, nil); err != nil {
					b.Fatal(err)
				}
				e++
			}
		})
	}
}

// BenchmarkFill gives the time of one image, in a domain that needs much walking.
func BenchmarkFill(b *testing.B) {
	for _, table := range []bool{false, true} {
		b.Run(fmt.Sprintf("table=%v", table), func(b *testing.B) {
			p := NewPRP(409_700, NewKey("win", 1, 1))
			if table {
				p.Tabulate()
			}
			dst := make([]uint64, 1<<14)
			for b.Loop() {
				p.Fill(dst, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(dst)), "ns/image")
		})
	}
}
