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
	return pipeline.OrderedWith(n,
		func(int) encoder { return encoder{enc: t.NewEncoder(cacheBytes), boundary: b} },
		func(ctx context.Context, e *encoder, docs *item.Docs) (*item.Tokens, error) {
			if len(docs.Docs) > 0 {
				pipeline.AtIndex(ctx, "block from document", int64(docs.Docs[0].ID))
			}
			return e.encode(docs), nil
		})
}

// encoder is what a worker keeps between blocks.
type encoder struct {
	enc      *tokenize.Encoder
	boundary store.Boundary
	ids      []uint32 // scratch: large enough for the worst block, so results can be exact
}

func (e *encoder) encode(docs *item.Docs) *item.Tokens {
	n := len(docs.Docs)
	out := &item.Tokens{
		Seq: docs.Seq, Ends: make([]int, n),
		DocIDs: make([]uint64, n), Sources: make([]string, n), Hashes: make([][16]byte, n),
		Bytes: docs.Bytes,
	}
	ids := e.ids[:0]
	for i := range docs.Docs {
		d := &docs.Docs[i]
		if len(d.Text) > 0 {
			if e.boundary.BOS != nil {
				ids = append(ids, *e.boundary.BOS)
			}
			// With this room, the encoder does not grow the slice in small steps.
			ids = slices.Grow(ids, len(d.Text)+8)
			ids = e.enc.Append(ids, d.Text)
			if e.boundary.EOS != nil {
				ids = append(ids, *e.boundary.EOS)
			}
		}
		sum := sha256.Sum256(d.Text)
		out.Ends[i], out.DocIDs[i], out.Sources[i], out.Hashes[i] = len(ids), d.ID, d.Source, [16]byte(sum[:16])
	}
	e.ids = ids
	out.IDs = slices.Clone(ids)
	return out
}
