package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"refrain/internal/num"
	"refrain/stages/repack"
	"refrain/store"
)

// LoaderConfig measures the gather of rows from a resident store on one
// thread: rows of T tokens with targets and boundary bitmap, in blocks that
// are interleaved with the copy limit.
type LoaderConfig struct {
	Store  *store.Store
	T      int
	Rows   int // rows of one sample
	Rounds int
	Modes  []repack.Mode // FIXED is always measured, since it is what the others are compared with
}

// Loader is tier T0: lines for the copy limit (the documents of the store widened
// one after the other, plus the shifted targets), FIXED, RESHUFFLE and REPACK,
// in input tokens a second of CPU time: medians of rounds and of the ratios
// inside a round.
func Loader(ctx context.Context, c LoaderConfig, emit func(Line)) error {
	runtime.LockOSThread() // the clock is the thread's
	defer runtime.UnlockOSThread()
	tokens, targets, starts := make([]int32, c.T), make([]int32, c.T), make([]byte, (c.T+7)/8)
	limit := &walker{s: c.Store}
	modes := []repack.Mode{repack.Fixed}
	for _, m := range c.Modes {
		if m != repack.Fixed {
			modes = append(modes, m)
		}
	}
	streams := make([]*repack.Stream, len(modes))
	next := make([]int64, len(modes))
	for i, m := range modes {
		s, err := repack.NewStream(c.Store, repack.Config{Mode: m, Seed: 1, T: c.T})
		if err != nil {
			return err
		}
		for e := range int64(2) { // plans are built ahead in a run as well
			if _, err := s.Epoch(e); err != nil {
				return err
			}
		}
		streams[i] = s
	}
	per := make([][]time.Duration, len(modes)+1)
	ratios := make([][]float64, len(modes)+1)
	for round := range c.Rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		t0 := threadTime()
		for range c.Rows {
			limit.row(tokens, targets)
		}
		base := threadTime() - t0
		per[0] = append(per[0], base)
		for k := range streams {
			i := (round + k) % len(streams) // what a mode finds in the caches depends on who was before it
			s := streams[i]
			n := s.FirstWindow(2)
			t0 := threadTime()
			for range c.Rows {
				if _, err := s.ReadRow(next[i], tokens, targets, starts); err != nil {
					return err
				}
				if next[i]++; next[i] == n {
					next[i] = 0
				}
			}
			d := threadTime() - t0
			per[i+1] = append(per[i+1], d)
			ratios[i+1] = append(ratios[i+1], base.Seconds()/d.Seconds())
		}
	}
	names := []string{"copy-limit"}
	for _, m := range modes {
		names = append(names, m.String())
	}
	fixed := median(per[1]).Seconds()
	for i, name := range names {
		m := median(per[i])
		l := Line{Name: fmt.Sprintf("Loader/%s/T=%d", name, c.T), Threads: 1, N: c.Rounds, PerOp: m / time.Duration(c.Rows),
			Metrics: []Metric{{float64(c.Rows*c.T) / m.Seconds() / 1e6, "Mtok/CPU-s"}}}
		if i > 0 {
			lo, mid, hi := Quartiles(ratios[i])
			l.Metrics = append(l.Metrics, Metric{mid, "of-limit"}, Metric{lo, "of-limit-q1"}, Metric{hi, "of-limit-q3"}, Metric{fixed / m.Seconds(), "of-fixed"})
		}
		emit(l)
	}
	return nil
}

// walker reads the documents of a store one after the other: what a loader
// that knows no order would do at least.
type walker struct {
	s        *store.Store
	doc, off int
}

func (w *walker) row(tokens, targets []int32) {
	lengths := w.s.Lengths()
	for filled := 0; filled < len(tokens); {
		n := int(lengths[w.doc])
		take := min(n-w.off, len(tokens)-filled)
		w.s.Copy(w.doc, w.off, w.off+take, tokens[filled:])
		filled += take
		if w.off += take; w.off == n {
			w.doc, w.off = (w.doc+1)%w.s.NumDocs(), 0
		}
	}
	copy(targets, tokens[1:])
}

// SyntheticStore writes a store of about n tokens of two bytes, in documents
// of 26 to 2,525 tokens, under dir and opens it resident.
func SyntheticStore(ctx context.Context, dir string, n int64) (*store.Store, error) {
	path := filepath.Join(dir, "store")
	w, err := store.Create(path, store.Meta{Vocab: 1 << 16})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	r := num.NewStream("bench store", 1)
	ids := make([]uint32, 2525)
	for d := uint64(0); w.Tokens() < n; d++ {
		doc := ids[:26+r.Uintn(d, 2500)]
		for i := range doc {
			doc[i] = uint32(uint64(i)*40503+d) & 0xffff
		}
		if err := w.Append(d, "synthetic", doc); err != nil {
			return nil, err
		}
	}
	if _, err := w.Close(ctx); err != nil {
		return nil, err
	}
	return store.Open(path, store.OpenOptions{Resident: true})
}
