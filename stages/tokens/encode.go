package tokens

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

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

// encodeWith is Encode into buffers that come back through used.
func encodeWith(t *tokenize.Tokenizer, b store.Boundary, n, cacheBytes int, used *idBuffers) pipeline.Stage[*item.Docs, *item.Tokens] {
	return pipeline.OrderedWith(n, window(n),
		func(int) encoder { return encoder{enc: t.NewEncoder(cacheBytes), boundary: b, used: used} },
		func(ctx context.Context, e *encoder, docs *item.Docs) (*item.Tokens, error) {
			if len(docs.Docs) > 0 {
				pipeline.AtIndex(ctx, "block from document", int64(docs.Docs[0].ID))
			}
			return e.encode(docs), nil
		})
}

// blocksAhead is how many blocks the other workers may encode while one is at a large
// document: one of 16 MiB, the largest by default, takes as long as 256 blocks.
// Their text and ids are about 40 MB.
const blocksAhead = 256

// window is how many blocks n workers hold.
func window(n int) int { return pipeline.Window(n) + blocksAhead }

// idBuffers hands the id buffers of written blocks back to the encoders, the one last
// written first, since the caches still hold it: an ingest goes through gigabytes of
// ids, and fresh memory costs more than the encoding of what it holds. A nil one keeps
// nothing. It never blocks for long.
type idBuffers struct {
	mu   sync.Mutex
	free [][]uint32
}

// maxSpare is the largest buffer that is kept, in ids: room for the worst text of a
// usual block.
const maxSpare = 1 << 20

// newIDBuffers keeps up to n buffers.
func newIDBuffers(n int) *idBuffers { return &idBuffers{free: make([][]uint32, 0, n)} }

// usualText is fewer bytes than an id stands for in most text, usualBlock more ids than
// most blocks have.
const (
	usualText  = 2
	usualBlock = 64 << 10
)

// get returns an empty buffer, nil when none is there.
func (u *idBuffers) get() []uint32 {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.free)
	if n == 0 {
		return nil
	}
	ids := u.free[n-1]
	u.free = u.free[:n-1]
	return ids[:0]
}

// put takes a buffer that nobody reads any more.
func (u *idBuffers) put(ids []uint32) {
	if u == nil || cap(ids) > maxSpare {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.free) < cap(u.free) {
		u.free = append(u.free, ids)
	}
}

// encoder is what a worker keeps between blocks.
type encoder struct {
	enc      *tokenize.Encoder
	boundary store.Boundary
	used     *idBuffers
}

func (e *encoder) encode(docs *item.Docs) *item.Tokens {
	n := len(docs.Docs)
	out := &item.Tokens{
		Seq: docs.Seq, Ends: make([]int, n),
		DocIDs: make([]uint64, n), Sources: make([]string, n), Hashes: make([][16]byte, n),
		Bytes: docs.Bytes,
	}
	room := int(docs.Bytes)/usualText + 10*n
	ids := e.used.get()
	if cap(ids) < room {
		// Large enough for most blocks, so that buffers are not replaced by larger ones
		// all the time.
		ids = make([]uint32, 0, max(room, usualBlock))
	}
	for i := range docs.Docs {
		d := &docs.Docs[i]
		if len(d.Text) > 0 {
			if e.boundary.BOS != nil {
				ids = append(ids, *e.boundary.BOS)
			}
			ids = e.enc.Append(ids, d.Text)
			if e.boundary.EOS != nil {
				ids = append(ids, *e.boundary.EOS)
			}
		}
		hash := d.Hash
		if hash == ([16]byte{}) {
			sum := sha256.Sum256(d.Text)
			hash = [16]byte(sum[:16])
		}
		out.Ends[i], out.DocIDs[i], out.Sources[i], out.Hashes[i] = len(ids), d.ID, d.Source, hash
	}
	if cap(ids) > maxSpare { // it is not kept, so it takes no more than it needs
		ids = slices.Clone(ids)
	}
	out.IDs = ids
	return out
}
