// Package tokenize turns text into token ids and back with byte-level byte pair
// encoding: it trains a vocabulary, encodes, decodes, and reads and writes the
// two file formats in use (tokenizer.json and .tiktoken).
//
// It is pure: it opens no file, reads no clock, and knows nothing of shards,
// stores or models. The only goroutines it starts are the counting workers of
// Train, which end before Train returns.
//
//	tok, err := tokenize.Load(file)
//	enc := tok.NewEncoder(0)          // one for each worker
//	ids = enc.Append(ids[:0], text)   // no allocation once the buffers have grown
//	text, err = tok.Decode(nil, ids)
//
// # How text becomes ids
//
// A split pattern cuts the text into pieces, and byte pair merging turns each
// piece into ids on its own. The patterns are those of GPT-2 (family "r50k"),
// GPT-4 and Llama 3 ("cl100k") and GPT-4o ("o200k"). They are not run by a
// regular expression engine: scan.go has a hand-written scanner for each, which
// is the definition, and mask_*.go compute the same piece ends 64 bytes at a time
// on machines with AVX2. Classes of runes come from one table (Unicode 16.0.0),
// never from the package unicode, so results do not change with the Go release.
//
// Bytes that are not UTF-8 are kept: each is a piece character of its own, of the
// class of punctuation, and decodes to itself.
package tokenize
