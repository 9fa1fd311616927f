package bench

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"

	"refrain/internal/num"
	"refrain/stages/repack"
	"refrain/store"
)

// Digest says what a loader delivered in one epoch: two loaders with equal
// multisets delivered the same rows, whatever their order, and with equal chains
// in the same order. A row is its T inputs and the target of the last.
type Digest struct {
	Rows     int64
	Multiset [2]uint64 // sum of the first 16 bytes of each row's SHA-256, mod 2^128
	Chain    [32]byte  // SHA-256(chain before, SHA-256 of the row)
	buf      []byte
}

// Add counts one row in.
func (d *Digest) Add(row []int32) {
	d.buf = d.buf[:0]
	for _, id := range row {
		d.buf = binary.LittleEndian.AppendUint32(d.buf, uint32(id))
	}
	h := sha256.Sum256(d.buf)
	d.sum(h)
	d.Chain = sha256.Sum256(append(d.Chain[:], h[:]...))
	d.Rows++
}

func (d *Digest) sum(h [32]byte) {
	var carry uint64
	d.Multiset[0], carry = bits.Add64(d.Multiset[0], binary.LittleEndian.Uint64(h[:]), 0)
	d.Multiset[1], _ = bits.Add64(d.Multiset[1], binary.LittleEndian.Uint64(h[8:]), carry)
}

// Set is the multiset in hexadecimal.
func (d *Digest) Set() string { return fmt.Sprintf("%016x%016x", d.Multiset[1], d.Multiset[0]) }

// Order is the start of the chain in hexadecimal.
func (d *Digest) Order() string { return hex.EncodeToString(d.Chain[:8]) }

// RowCorpus is a corpus that several loaders read: a token store for ours, and
// for peers the stream of the contract's first epoch, so that the windows of
// FIXED and RESHUFFLE are the same rows for all of them.
type RowCorpus struct {
	Dir   string
	Store *store.Store
	T, W  int    // W windows of T inputs; the store has W*T+1 tokens, so that no row is short
	B     int    // rows of a batch, a divisor of W
	Seed  uint64 // of the contract
	// Stream is a file of the W*T+1 tokens end to end, Rows one of the W rows of
	// T+1 tokens, and Docs one of the documents of the store, end to end, whose
	// lengths are in Lengths; u16 but for the lengths, which are u32.
	Stream, Rows, Docs, Lengths string
	// Canonical is the digest of Rows in the order of the stream, Documents the
	// multiset of the documents.
	Canonical, Documents Digest
	docs                 map[[32]byte]int // how often each document is in the corpus, by the digest of one alone
}

// NewRowCorpus writes a corpus of about n tokens in documents of 26 to 2,525
// tokens under dir, and opens the store resident. The order of the stream comes
// from the contract's permutation of documents, not from the loader that is
// measured. Close gives the store back.
func NewRowCorpus(ctx context.Context, dir string, n int64, T, B int) (c *RowCorpus, err error) {
	W := int(n) / T / B * B
	if W < 1 {
		return nil, fmt.Errorf("bench: %d tokens hold no batch of %d rows of %d tokens", n, B, T)
	}
	c = &RowCorpus{
		Dir: dir, T: T, W: W, B: B, Seed: 1,
		Stream: filepath.Join(dir, "stream.u16"), Rows: filepath.Join(dir, "rows.u16"),
		Docs: filepath.Join(dir, "docs.u16"), Lengths: filepath.Join(dir, "lengths.u32"), docs: map[[32]byte]int{},
	}
	docs, err := c.write(ctx, int64(W)*int64(T)+1)
	if err != nil {
		return nil, err
	}
	if err := c.cut(docs); err != nil {
		return nil, err
	}
	c.Store, err = store.Open(filepath.Join(dir, "store"), store.OpenOptions{Resident: true})
	return c, err
}

// Close closes the store; the files stay.
func (c *RowCorpus) Close() error { return c.Store.Close() }

// write makes the store, Docs and Lengths.
func (c *RowCorpus) write(ctx context.Context, total int64) (docs [][]uint16, err error) {
	w, err := store.Create(filepath.Join(c.Dir, "store"), store.Meta{Vocab: 1 << 16})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	r := num.NewStream("bench store", 1)
	ids := make([]uint32, 2525)
	row := make([]int32, 2525)
	for d := uint64(0); w.Tokens() < total; d++ {
		doc := ids[:min(26+int64(r.Uintn(d, 2500)), total-w.Tokens())]
		if left := total - w.Tokens() - int64(len(doc)); left > 0 && left < 26 {
			doc = ids[:int64(len(doc))+left] // no document is shorter than 26
		}
		short := make([]uint16, len(doc))
		for i := range doc {
			doc[i] = uint32(uint64(i)*40503+d*7919) & 0xffff
			short[i], row[i] = uint16(doc[i]), int32(doc[i])
		}
		if err := w.Append(d, "synthetic", doc); err != nil {
			return nil, err
		}
		c.Documents.Add(row[:len(doc)])
		c.docs[documentDigest(row[:len(doc)], []int{0}).Chain]++
		docs = append(docs, short)
	}
	if _, err := w.Close(ctx); err != nil {
		return nil, err
	}
	lengths := make([]uint32, len(docs))
	for i, d := range docs {
		lengths[i] = uint32(len(d))
	}
	return docs, errors.Join(
		writeWords(c.Docs, func(out io.Writer) error {
			for _, d := range docs {
				if err := binary.Write(out, binary.LittleEndian, d); err != nil {
					return err
				}
			}
			return nil
		}),
		writeWords(c.Lengths, func(out io.Writer) error { return binary.Write(out, binary.LittleEndian, lengths) }))
}

// cut writes Stream and Rows and takes the canonical digest.
func (c *RowCorpus) cut(docs [][]uint16) error {
	order := repack.NewPRP(uint64(len(docs)), repack.NewKey("doc", c.Seed, 0))
	stream := make([]uint16, 0, c.W*c.T+1)
	for i := range docs {
		stream = append(stream, docs[order.At(uint64(i))]...)
	}
	row := make([]int32, c.T+1)
	return errors.Join(
		writeWords(c.Stream, func(out io.Writer) error { return binary.Write(out, binary.LittleEndian, stream) }),
		writeWords(c.Rows, func(out io.Writer) error {
			for j := range c.W {
				part := stream[j*c.T : j*c.T+c.T+1]
				for i, id := range part {
					row[i] = int32(id)
				}
				c.Canonical.Add(row)
				if err := binary.Write(out, binary.LittleEndian, part); err != nil {
					return err
				}
			}
			return nil
		}))
}

func writeWords(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = fill(b)
	return errors.Join(err, b.Flush(), f.Close())
}

// partsFile digests an epoch of repack that a peer wrote: rows of T+1 ids that follow
// each other in the stream without overlap, each followed by T+1 marks of where
// documents start. What an epoch drops at its end is less than a batch; documents
// that lie in it count as delivered when nothing else is wrong, so that docs is then
// the corpus's.
func (c *RowCorpus) partsFile(path string) (rows, docs Digest, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return rows, docs, err
	}
	width := c.T + 1
	if len(raw)%(8*width) != 0 {
		return rows, docs, fmt.Errorf("rows of a peer: %d bytes are no rows of %d ids and marks", len(raw), width)
	}
	var stream []int32
	var starts []int
	for ; len(raw) > 0; raw = raw[8*width:] {
		for i := range width {
			if binary.LittleEndian.Uint32(raw[4*(width+i):]) != 0 {
				starts = append(starts, len(stream))
			}
			stream = append(stream, int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		rows.Add(stream[len(stream)-width:])
	}
	if len(starts) == 0 || starts[0] != 0 {
		return rows, docs, nil // no document begins where the epoch does
	}
	left, tokens := maps.Clone(c.docs), 0
	whole := starts
	if one := documentDigest(stream[starts[len(starts)-1]:], []int{0}); left[one.Chain] == 0 {
		whole, tokens = starts[:len(starts)-1], len(stream)-starts[len(starts)-1] // the last one is cut
	}
	for i, at := range whole {
		end := len(stream)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		one := documentDigest(stream[at:end], []int{0})
		if left[one.Chain] == 0 {
			return rows, docs, nil // not a document of the corpus, or one too many
		}
		left[one.Chain]--
		tokens += end - at
	}
	if tokens != len(stream) || c.W*c.T+1-len(stream) >= c.B*width {
		return rows, docs, nil // more is missing than the end of an epoch
	}
	return rows, c.Documents, nil
}

// digestFile digests rows of T+1 int32 in a file that a peer wrote.
func digestFile(path string, T int) (d Digest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	raw, row := make([]byte, 4*(T+1)), make([]int32, T+1)
	for {
		if _, err := io.ReadFull(in, raw); err == io.EOF {
			return d, nil
		} else if err != nil {
			return d, fmt.Errorf("rows of a peer: %w", err)
		}
		for i := range row {
			row[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		d.Add(row)
	}
}

// documentDigest digests the documents of an epoch whose rows are given in the
// order of the stream: inputs end to end, the last target, and where documents
// start.
func documentDigest(stream []int32, starts []int) (d Digest) {
	for i, at := range starts {
		end := len(stream)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		d.Add(stream[at:end])
	}
	return d
}

// Defect names what is wrong with epochs that were delivered in the mode, or is
// empty. In fixed and reshuffle the rows are those of the corpus; in repack it is
// the documents, whose digests are in docs.
func (c *RowCorpus) Defect(mode repack.Mode, epochs, docs []Digest) string {
	joined := int64((c.W*c.T + 1) / (c.T + 1) / c.B * c.B) // rows that do not overlap
	for e, d := range epochs {
		switch {
		case d.Rows != int64(c.W) && (mode != repack.Repack || d.Rows != joined):
			return fmt.Sprintf("epoch %d has %d rows instead of %d", e, d.Rows, c.W)
		case mode != repack.Repack && d.Multiset != c.Canonical.Multiset:
			return fmt.Sprintf("epoch %d has as many rows as the corpus but not the same", e)
		case mode == repack.Repack && docs[e].Multiset != c.Documents.Multiset:
			return fmt.Sprintf("epoch %d does not hold the documents of the corpus, each once and whole", e)
		}
	}
	same := func(a, b Digest) bool { return a.Chain == b.Chain }
	if mode == repack.Fixed && !same(epochs[0], epochs[1]) {
		return "the order changes from epoch to epoch"
	}
	if mode != repack.Fixed && same(epochs[0], epochs[1]) {
		return "the order is the same in both epochs"
	}
	if mode == repack.Repack && epochs[0].Multiset == epochs[1].Multiset {
		return "the windows are the same in both epochs"
	}
	return ""
}

// waits sums up how long a consumer waited for each batch, in seconds.
func waits(v []float64) (p50, p99, most float64) {
	if len(v) == 0 {
		return 0, 0, 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	at := func(p float64) float64 { return v[min(int(p*float64(len(v))), len(v)-1)] }
	return at(0.5), at(0.99), v[len(v)-1]
}
