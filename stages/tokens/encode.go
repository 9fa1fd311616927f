package tokens

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/store"
	"refrain/tokenize"
)

// DefaultBoundary is the policy used unless another is asked for: the tokenizer's
// end-of-text id after every document and nothing before it, so that there are as
// many of them as documents.
func DefaultBoundary(t *tokenize.Tokenizer) (store.Boundary, error) {
	eos, ok := t.EOS()
	if !ok {
		return store.Boundary{}, fmt.Errorf("the tokenizer has no end-of-text token to put after documents; add one such as <|endoftext|>, or choose the boundary ids explicitly")
	}
	return store.Boundary{EOS: &eos}, nil
}

// Encode is the stage that encodes blocks of documents on n workers, each with an
// encoder of its own and a word cache of cacheBytes; the order is kept. Text is
// encoded as text: content that looks like a special token never becomes one. The
// boundary ids are put around every document, except that a document without text
// gets no ids at all.
//
// Hashes[i] of a result is the first 16 bytes of the SHA-256 of the text.
func Encode(t *tokenize.Tokenizer, b store.Boundary, n, cacheBytes int) pipeline.Stage[*item.Docs, *item.Tokens] {
	return encodeWith(t, b, n, cacheBytes, nil)
}

// encodeWith is Encode into buffers that come back through used: an ingest goes through
// gigabytes of ids.
func encodeWith(t *tokenize.Tokenizer, b store.Boundary, n, cacheBytes int, used *pipeline.Spare) pipeline.Stage[*item.Docs, *item.Tokens] {
	return pipeline.OrderedWith(n, window(n),
		func(int) encoder { return newEncoder(t, b, cacheBytes, used) },
		func(ctx context.Context, e *encoder, docs *item.Docs) (*item.Tokens, error) {
			if len(docs.Docs) > 0 {
				pipeline.AtIndex(ctx, "block from document", int64(docs.Docs[0].ID))
			}
			return e.encode(docs)
		})
}

// blocksAhead is how many blocks the other workers may encode while one is at a large
// document: one of 16 MiB, the largest by default, takes as long as 256 blocks.
// Their text and ids are about 30 MB.
const blocksAhead = 256

// window is how many blocks n workers hold.
func window(n int) int { return pipeline.Window(n) + blocksAhead }

// maxSpare is the largest buffer of packed ids that is kept for another block.
const maxSpare = 1 << 20

// usualText is fewer bytes than an id stands for in most text.
const usualText = 2

// maxIDs is the most ids a worker keeps room for between blocks: those of a document
// as large as documents may be by default, in most text.
const maxIDs = 8 << 20

// encoder is what a worker keeps between blocks.
type encoder struct {
	enc      *tokenize.Encoder
	vocab    int
	boundary store.Boundary
	used     *pipeline.Spare
	ids      []uint32 // of the document being encoded
}

func newEncoder(t *tokenize.Tokenizer, b store.Boundary, cacheBytes int, used *pipeline.Spare) encoder {
	return encoder{enc: t.NewEncoder(cacheBytes), vocab: t.VocabSize(), boundary: b, used: used}
}

func (e *encoder) encode(docs *item.Docs) (*item.Tokens, error) {
	n := len(docs.Docs)
	out := &item.Tokens{
		Seq: docs.Seq, Ends: make([]int, n),
		DocIDs: make([]uint64, n), Sources: make([]string, n), Hashes: make([][16]byte, n),
		Bytes: docs.Bytes,
	}
	packed := e.used.Get((int(docs.Bytes)/usualText + 2*n) * store.DTypeFor(e.vocab).Size())
	for i := range docs.Docs {
		d := &docs.Docs[i]
		ids := slices.Grow(e.ids[:0], min(len(d.Text)/usualText, maxIDs)) // at once: what grows step by step is memory touched twice
		if len(d.Text) > 0 {
			if e.boundary.BOS != nil {
				ids = append(ids, *e.boundary.BOS)
			}
			ids = e.enc.Append(ids, d.Text)
			if e.boundary.EOS != nil {
				ids = append(ids, *e.boundary.EOS)
			}
		}
		var err error
		if packed, err = store.Pack(packed, ids, e.vocab); err != nil {
			return nil, fmt.Errorf("document %d (%s): %w", d.ID, d.Source, err)
		}
		if cap(ids) <= maxIDs {
			e.ids = ids
		}
		hash := d.Hash
		if hash == ([16]byte{}) {
			sum := sha256.Sum256(d.Text)
			hash = [16]byte(sum[:16])
		}
		out.Ends[i], out.DocIDs[i], out.Sources[i], out.Hashes[i] = len(packed), d.ID, d.Source, hash
	}
	out.IDs = packed
	if docs.Free != nil {
		docs.Free()
	}
	return out, nil
}
