package run

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"refrain/internal/run/config"
	"refrain/stages/repack"
	"refrain/store"
)

// selectDocs returns the documents of base that c.data.subset and c.data.pool
// choose: a pure function of the corpus and the subset's own seed, so that the
// seeds of order and initialisation never change which documents are read.
func selectDocs(base *store.Store, c *config.Config) (repack.Corpus, error) {
	sub := c.Data.Subset
	k, n, err := c.Data.PoolOf()
	if err != nil {
		return nil, fmt.Errorf("data.pool: %w", err)
	}
	if sub.Tokens == 0 && sub.Docs == 0 && n <= 1 {
		return base, nil
	}
	d := uint64(base.NumDocs())
	order := repack.NewPRP(d, repack.NewKey("subset", sub.Seed, 0))
	// Pool k is a contiguous part of the permuted documents; a subset is the
	// start of its pool. Pools are disjoint, and a larger subset holds a smaller, to
	// the token: the document that crosses a budget of tokens is the one that is cut.
	from, to := uint64(0), d
	if n > 1 {
		from, to = d*uint64(k-1)/uint64(n), d*uint64(k)/uint64(n)
	}
	v := &view{base: base}
	lengths := base.Lengths()
	for i := from; i < to; i++ {
		if sub.Docs > 0 && int64(len(v.docs)) >= sub.Docs || sub.Tokens > 0 && v.tokens >= sub.Tokens {
			break
		}
		doc := int(order.At(i))
		v.docs = append(v.docs, doc)
		v.tokens += int64(lengths[doc])
	}
	if sub.Docs > 0 && int64(len(v.docs)) < sub.Docs {
		return nil, fmt.Errorf("data.subset.docs = %d, but there are %d documents to choose from", sub.Docs, len(v.docs))
	}
	if sub.Tokens > 0 && v.tokens < sub.Tokens {
		return nil, fmt.Errorf("data.subset.tokens = %d, but there are %d tokens to choose from", sub.Tokens, v.tokens)
	}
	if len(v.docs) == 0 {
		return nil, fmt.Errorf("data.pool = %s holds none of the %d documents; use fewer pools", c.Data.Pool, d)
	}
	crossing := v.docs[len(v.docs)-1]
	slices.Sort(v.docs)
	for _, doc := range v.docs {
		n := lengths[doc]
		if over := v.tokens - sub.Tokens; sub.Tokens > 0 && doc == crossing {
			n -= uint32(over) // less than n, since all others are below the budget
		}
		v.lengths = append(v.lengths, n)
	}
	if sub.Tokens > 0 {
		v.tokens = sub.Tokens
	}
	v.seal()
	return v, nil
}

// view is a corpus of some documents of a store, in the same order, one of which may
// be cut. It implements repack.Part.
type view struct {
	base    *store.Store
	docs    []int
	lengths []uint32
	tokens  int64
	print   [32]byte
}

func (v *view) seal() {
	h := sha256.New()
	fp := v.base.Fingerprint()
	h.Write([]byte("refrain corpus view 1\n"))
	h.Write(fp[:])
	var b [12]byte
	for i, d := range v.docs {
		binary.LittleEndian.PutUint64(b[:8], uint64(d))
		binary.LittleEndian.PutUint32(b[8:], v.lengths[i])
		h.Write(b[:])
	}
	h.Sum(v.print[:0])
}

func (v *view) NumDocs() int          { return len(v.docs) }
func (v *view) NumTokens() int64      { return v.tokens }
func (v *view) Lengths() []uint32     { return v.lengths }
func (v *view) Fingerprint() [32]byte { return v.print }
func (v *view) Part() (*store.Store, []int) {
	return v.base, v.docs
}
func (v *view) Copy(doc, from, to int, dst []int32) {
	v.base.Copy(v.docs[doc], from, to, dst)
}

// ValSet is a validation store as a fixed list of rows. It implements
// eval.Set, and knows the document of every target.
type ValSet struct {
	stream *repack.Stream
	first  int64 // window of row 0
	rows   int64
	docs   int
}

// NewValSet packs c into rows of T tokens once, in an order of its own seed;
// limit, if positive, keeps the first rows of that order.
func NewValSet(c repack.Corpus, T int, limit int64) (*ValSet, error) {
	if c.NumTokens() == 1 {
		return nil, errors.New("one token has none after it to predict; prepare the store with more documents for validation")
	}
	s, err := repack.NewStream(c, repack.Config{Mode: repack.Fixed, T: T, Tail: repack.Pad})
	if err != nil {
		return nil, err
	}
	v := &ValSet{stream: s, rows: s.WindowsPerEpoch(), docs: c.NumDocs()}
	if limit > 0 {
		v.rows = min(v.rows, limit)
	}
	return v, nil
}

// Rows returns the number of rows.
func (v *ValSet) Rows() int64 { return v.rows }

// NumDocs returns the number of documents of the store.
func (v *ValSet) NumDocs() int { return v.docs }

// ReadRow fills row i; see item.RowReader.
func (v *ValSet) ReadRow(i int64, tokens, targets []int32, starts []byte) (int, error) {
	return v.stream.ReadRow(v.first+i, tokens, targets, starts)
}

// Docs calls at for the runs of targets of row i that fall on one document. The
// target of input p is the token after it, which is the next document's first
// where p is a document's last.
func (v *ValSet) Docs(i int64, at func(doc, from, to int)) {
	spans, err := v.stream.Spans(v.first + i)
	if err != nil {
		return // the row was read before; its spans exist
	}
	pos := 0
	for _, s := range spans {
		n := int(s.To - s.From)
		at(int(s.Doc), pos, pos+n)
		pos += n
	}
}
