package tokens

import (
	"context"
	"crypto/sha256"
	"fmt"

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
		func(int) *tokenize.Encoder { return t.NewEncoder(cacheBytes) },
		func(ctx context.Context, e **tokenize.Encoder, docs *item.Docs) (*item.Tokens, error) {
			if len(docs.Docs) > 0 {
				pipeline.AtIndex(ctx, "block from document", int64(docs.Docs[0].ID))
			}
			return encode(*e, b, docs), nil
		})
}

func encode(e *tokenize.Encoder, b store.Boundary, docs *item.Docs) *item.Tokens {
	n := len(docs.Docs)
	out := &item.Tokens{
		Seq:    docs.Seq,
		IDs:    make([]uint32, 0, docs.Bytes/3+int64(2*n)), // prose and code need 3 to 5 bytes a token
		Ends:   make([]int, n),
		DocIDs: make([]uint64, n), Sources: make([]string, n), Hashes: make([][16]byte, n),
		Bytes: docs.Bytes,
	}
	for i := range docs.Docs {
		d := &docs.Docs[i]
		if len(d.Text) > 0 {
			if b.BOS != nil {
				out.IDs = append(out.IDs, *b.BOS)
			}
			out.IDs = e.Append(out.IDs, d.Text)
			if b.EOS != nil {
				out.IDs = append(out.IDs, *b.EOS)
			}
		}
		sum := sha256.Sum256(d.Text)
		out.Ends[i], out.DocIDs[i], out.Sources[i], out.Hashes[i] = len(out.IDs), d.ID, d.Source, [16]byte(sum[:16])
	}
	return out
}
