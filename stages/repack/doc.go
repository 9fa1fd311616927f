// Package repack turns a token store into rows by the stream contract, version
// 1: what row g holds is a pure function of (corpus, seed, mode, T, tail, g).
//
//	corpus      d0 d1 d2 d3 d4 ...            documents, boundary tokens included
//	pi_e        d3 d0 d4 d1 d2 ...            document order of epoch e
//	stream      |--d3--|d0|----d4----|d1|..   N tokens, end to end
//	windows     |  0  |  1  |  2  |  3  |..   W = N div T windows of T inputs
//	sigma_e     2 0 3 1 ...                   window order of epoch e
//
// Both orders are keyed pseudorandom permutations, so any row of any epoch is
// found by arithmetic: there is no shuffle buffer, no per-worker state, and the
// whole resume state is one integer g. The full text of the contract is
// docs/formats/stream.md.
//
//	s, err := repack.NewStream(corpus, repack.Config{Mode: repack.Repack, Seed: 7, T: 512})
//	scored, err := s.ReadRow(g, tokens, targets, starts)
//
// It reads any Corpus. For the usual one, an open store.Store, it knows faster ways
// to the ids; what they change is time. It opens no files and knows nothing about
// text, devices or models.
package repack
