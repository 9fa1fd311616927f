package repack

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
)

// memCorpus is a corpus whose token ids are counted through all documents, so
// that an id names its document and place.
type memCorpus struct {
	lengths []uint32
	first   []int64 // id of token 0 of each document
	total   int64
}

func memOf(lengths []uint32) *memCorpus {
	c := &memCorpus{lengths: lengths, first: make([]int64, len(lengths))}
	for i, n := range lengths {
		c.first[i] = c.total
		c.total += int64(n)
	}
	return c
}

func (c *memCorpus) NumDocs() int      { return len(c.lengths) }
func (c *memCorpus) NumTokens() int64  { return c.total }
func (c *memCorpus) Lengths() []uint32 { return c.lengths }

func (c *memCorpus) Copy(doc, from, to int, dst []int32) {
	if from < 0 || to > int(c.lengths[doc]) || from > to {
		panic("copy outside the document")
	}
	base := c.first[doc] + int64(from)
	for i := range dst[:to-from] {
		dst[i] = int32((base + int64(i)) & 0x7fffffff)
	}
}

func (c *memCorpus) Fingerprint() [32]byte {
	var b []byte
	for _, n := range c.lengths {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return sha256.Sum256(b)
}

func mustStream(t testing.TB, c Corpus, cfg Config) *Stream {
	t.Helper()
	s, err := NewStream(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// row is one row read with fresh buffers.
type row struct {
	tokens, targets []int32
	starts          []byte
	scored          int
}

func readRow(t testing.TB, s *Stream, g int64) row {
	t.Helper()
	T := s.T()
	// Poison shows what ReadRow leaves unwritten.
	r := row{make([]int32, T), make([]int32, T), make([]byte, (T+7)/8), 0}
	for i := range T {
		r.tokens[i], r.targets[i] = -99, -99
	}
	for i := range r.starts {
		r.starts[i] = 0xff
	}
	var err error
	if r.scored, err = s.ReadRow(g, r.tokens, r.targets, r.starts); err != nil {
		t.Fatal(err)
	}
	return r
}

// digest chains the rows [from, to) as they are shown.
func digest(t testing.TB, s *Stream, from, to int64) [32]byte {
	t.Helper()
	h := sha256.New()
	for g := from; g < to; g++ {
		r := readRow(t, s, g)
		binary.Write(h, binary.LittleEndian, r.tokens)
		binary.Write(h, binary.LittleEndian, r.targets)
		h.Write(r.starts)
	}
	return [32]byte(h.Sum(nil))
}

// multiset is an order-free digest of the rows [from, to).
func multiset(t testing.TB, s *Stream, from, to int64) uint64 {
	t.Helper()
	var sum uint64
	for g := from; g < to; g++ {
		d := digest(t, s, g, g+1)
		sum += binary.LittleEndian.Uint64(d[:])
	}
	return sum
}

// toy is 60 documents of 1 to 23 tokens, total not a multiple of 16.
func toy() *memCorpus {
	lengths := make([]uint32, 60)
	for i := range lengths {
		lengths[i] = uint32(1 + (i*i*7+i*3)%23)
	}
	return memOf(lengths)
}

// allConfigs lists every mode with every tail policy.
func allConfigs(T int) []Config {
	var out []Config
	for m := Fixed; m <= Repack; m++ {
		for tail := Drop; tail <= Pad; tail++ {
			for _, inside := range []bool{false, true} {
				c := Config{Mode: m, Seed: 5, T: T, Tail: tail, TargetsInside: inside}
				if m == Block {
					c.Block = 7
				}
				out = append(out, c)
			}
		}
	}
	return out
}
