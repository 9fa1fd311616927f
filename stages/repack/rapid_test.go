package repack

import (
	"testing"

	"pgregory.net/rapid"
)

// Random corpora and settings: every token of an epoch is in exactly one row or
// accounted for, and rows read alone equal rows read in order.
func TestRow03RandomCorpora(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Uint32Range(1, 40), 1, 50).Draw(rt, "lengths")
		c := memOf(lengths)
		cfg := Config{
			Mode: Mode(rapid.IntRange(int(Fixed), int(Repack)).Draw(rt, "mode")),
			Tail: Tail(rapid.IntRange(0, 2).Draw(rt, "tail")),
			Seed: rapid.Uint64().Draw(rt, "seed"),
			T:    rapid.IntRange(1, 33).Draw(rt, "T"), TargetsInside: rapid.Bool().Draw(rt, "inside"),
		}
		if cfg.Mode == Block {
			cfg.Block = rapid.Int64Range(1, 9).Draw(rt, "block")
		}
		s, err := NewStream(c, cfg)
		if c.total < int64(cfg.T) && cfg.Tail != Pad {
			if err == nil {
				rt.Fatal("a corpus without a window was accepted")
			}
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		e := rapid.Int64Range(0, 1000).Draw(rt, "epoch")
		n, err := s.Counters(e)
		if err != nil {
			rt.Fatal(err)
		}
		if n.Tokens+n.CarriedOut+n.Padded != n.Inputs+n.Dropped+n.CarriedIn {
			rt.Fatalf("tokens do not add up: %+v", n)
		}
		seen := make([]int, c.total)
		var scored int64
		for g := s.FirstWindow(e); g < s.FirstWindow(e+1); g++ {
			if ge, row := s.Locate(g); ge != e || row != g-s.FirstWindow(e) {
				rt.Fatalf("window %d is epoch %d row %d", g, ge, row)
			}
			scored += int64(readRow(t, s, g).scored)
			spans, err := s.Spans(g)
			if err != nil {
				rt.Fatal(err)
			}
			for _, sp := range spans {
				for i := sp.From; i < sp.To; i++ {
					seen[c.first[sp.Doc]+i]++
				}
			}
		}
		var total, missing int64
		for _, k := range seen {
			total += int64(k)
			if k == 0 {
				missing++
			}
			if k > 1 && cfg.Tail != Carry {
				rt.Fatal("a token came twice in an epoch")
			}
		}
		if total != n.Inputs-n.Padded || scored != n.Scored {
			rt.Fatalf("rows hold %d tokens and score %d; counters %+v", total, scored, n)
		}
		if cfg.Tail != Carry && missing != n.Dropped {
			rt.Fatalf("%d tokens missing; counters %+v", missing, n)
		}
	})
}
