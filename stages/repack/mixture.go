package repack

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"

	"refrain/pipeline"
	"refrain/stages/item"
)

// MixBlock is the largest number of windows of a block of a Mixture.
const MixBlock = 2048

// maxMixDen bounds the denominator of a share, so that counts of windows stay exact.
const maxMixDen = 1_000_000

// Share is a fraction of windows, Num of Den. It is exact, so that how many windows of
// a source stand before any place is integer arithmetic.
type Share struct{ Num, Den int64 }

// Mixture is the stream that reads two others side by side: the windows of real in
// their order, and among them those of synth in theirs, so many to a block. Both are
// read on, epoch after epoch, when they are used up. What window g holds is a pure
// function of the two streams, the share and g. It is safe for concurrent use.
//
// docs/formats/stream.md, "Mixtures", has the rule.
type Mixture struct {
	real, synth *Stream
	share       Share // of synth
	block       int64
	print       [32]byte

	mu     sync.Mutex
	blocks [mixBlocks]*mixBlock
	next   int // the place of the block that is made next
}

// mixBlocks is how many blocks are kept: what readers, the source that is ahead of them
// and the log, which is behind, look at.
const mixBlocks = 4

// mixBlock says for the windows of one block how many synthetic ones stand before each.
type mixBlock struct {
	number int64
	synth  int64   // synthetic windows before the block
	before []int32 // [block+1]
}

// NewMixture mixes two streams, of one window length and seed; share is that of the
// windows of synth, above 0 and below 1.
func NewMixture(real, synth *Stream, share Share) (*Mixture, error) {
	switch {
	case share.Num < 1 || share.Den <= share.Num || share.Den > maxMixDen:
		return nil, fmt.Errorf("mixture: a share of %d/%d; it must be above 0 and below 1, in parts of at most a millionth", share.Num, share.Den)
	case real.cfg.T != synth.cfg.T:
		return nil, fmt.Errorf("mixture: windows of %d and of %d tokens; they must be equally long", real.cfg.T, synth.cfg.T)
	case real.cfg.Seed != synth.cfg.Seed:
		return nil, fmt.Errorf("mixture: streams of seeds %d and %d; one seed gives the order of both", real.cfg.Seed, synth.cfg.Seed)
	}
	m := &Mixture{real: real, synth: synth, share: share, block: 1}
	for pass := m.WindowsPerEpoch(); m.block < MixBlock && 2*m.block <= pass; {
		m.block *= 2
	}
	h := sha256.New()
	h.Write([]byte("refrain mixture 1\n"))
	a, b := real.corpus.Fingerprint(), synth.corpus.Fingerprint()
	h.Write(a[:])
	h.Write(b[:])
	var n [16]byte
	binary.LittleEndian.PutUint64(n[:8], uint64(share.Num))
	binary.LittleEndian.PutUint64(n[8:], uint64(share.Den))
	h.Write(n[:])
	h.Sum(m.print[:0])
	return m, nil
}

// Fingerprint identifies both corpora and the share.
func (m *Mixture) Fingerprint() [32]byte { return m.print }

// Synthetic returns the stream of the synthetic windows.
func (m *Mixture) Synthetic() *Stream { return m.synth }

// Block returns the number of windows of a block: the largest power of two up to MixBlock
// that a pass over the real windows fills.
func (m *Mixture) Block() int64 { return m.block }

// WindowsPerEpoch returns the windows, of both kinds, in which the real ones are read
// once: W/(1-share), rounded down.
func (m *Mixture) WindowsPerEpoch() int64 {
	return scaled(m.real.perEpoch, m.share.Den, m.share.Den-m.share.Num)
}

// scaled is x*num/den, rounded down, through 128 bits. The result must fit in 63.
func scaled(x, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(num))
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(q)
}

// synthBefore is the number of synthetic windows in the first b blocks: floor(b*m*share),
// so that a block has floor or ceil of m*share of them and no rounding adds up.
func (m *Mixture) synthBefore(b int64) int64 { return scaled(b*m.block, m.share.Num, m.share.Den) }

// Counts returns how many real and how many synthetic windows stand in [0, g).
func (m *Mixture) Counts(g int64) (real, synth int64) {
	b := m.blockOf(g / m.block)
	synth = b.synth + int64(b.before[g%m.block])
	return g - synth, synth
}

// At returns the place of window g in its own stream, and whether that is the synthetic
// one.
func (m *Mixture) At(g int64) (window int64, synthetic bool) {
	b, i := m.blockOf(g/m.block), g%m.block
	synth := b.synth + int64(b.before[i])
	if b.before[i+1] > b.before[i] {
		return synth, true
	}
	return g - synth, false
}

// blockOf returns the table of a block, which it makes when it is not at hand.
func (m *Mixture) blockOf(number int64) *mixBlock {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.blocks {
		if b != nil && b.number == number {
			return b
		}
	}
	b := &mixBlock{number: number, synth: m.synthBefore(number), before: make([]int32, m.block+1)}
	count := uint64(m.synthBefore(number+1) - b.synth)
	order := NewPRP(uint64(m.block), NewKey("mix", m.real.cfg.Seed, uint64(number)))
	for i := range m.block {
		b.before[i+1] = b.before[i]
		if order.At(uint64(i)) < count {
			b.before[i+1]++
		}
	}
	m.blocks[m.next] = b
	m.next = (m.next + 1) % mixBlocks
	return b
}

// ReadRow fills the row of window g; see Stream.ReadRow.
func (m *Mixture) ReadRow(g int64, tokens, targets []int32, starts []byte) (scored int, err error) {
	if g < 0 || g > m.maxWindow() {
		return 0, fmt.Errorf("mixture: window %d is outside 0..%d", g, m.maxWindow())
	}
	if w, synthetic := m.At(g); synthetic {
		return m.synth.ReadRow(w, tokens, targets, starts)
	} else {
		return m.real.ReadRow(w, tokens, targets, starts)
	}
}

// Epochs returns the position of window g as a number of passes over the real windows.
func (m *Mixture) Epochs(g int64) float64 {
	real, _ := m.Counts(g)
	return m.real.Epochs(real)
}

// SyntheticEpochs returns the same for the synthetic ones.
func (m *Mixture) SyntheticEpochs(g int64) float64 {
	_, synth := m.Counts(g)
	return m.synth.Epochs(synth)
}

// maxWindow is below that of either stream, whose windows are some of these.
func (m *Mixture) maxWindow() int64 {
	return min(m.real.maxWindow(), m.synth.maxWindow(), 1<<62) - 2*m.block
}

// CheckBatch returns an error when a global batch of n rows cannot be served: it must be
// positive and no larger than the windows in which the real ones are read once.
func (m *Mixture) CheckBatch(n int) error {
	if n < 1 {
		return fmt.Errorf("mixture: a batch of %d rows; it must be at least 1", n)
	}
	if int64(n) > m.WindowsPerEpoch() {
		return fmt.Errorf("mixture: a batch of %d rows is larger than an epoch of %d windows, synthetic ones included; "+
			"use a smaller batch, a shorter window or more data", n, m.WindowsPerEpoch())
	}
	return nil
}

// State returns the state in which g is the next window: that of the real stream, with
// the fingerprint of the mixture.
func (m *Mixture) State(g int64) State {
	st := m.real.State(g)
	st.Fingerprint = base64.RawURLEncoding.EncodeToString(m.print[:])
	return st
}

// Resume checks that st belongs to this mixture and returns the next window.
func (m *Mixture) Resume(st State) (g int64, err error) {
	return resume(st, m.State(st.G), m.maxWindow())
}

// ahead looks after both streams.
func (m *Mixture) ahead(ctx context.Context, group *pipeline.Group) lookout {
	real, synth := m.real.ahead(ctx, group), m.synth.ahead(ctx, group)
	return func(g int64, n int) (item.Cursor, error) {
		r0, s0 := m.Counts(g)
		r1, s1 := m.Counts(g + int64(n))
		if s1 > s0 {
			if _, err := synth(s0, int(s1-s0)); err != nil {
				return item.Cursor{}, err
			}
		}
		c := item.Cursor{Window: g}
		if r1 == r0 {
			c.Epoch, c.Row = m.real.locate(r0)
			return c, nil
		}
		at, err := real(r0, int(r1-r0))
		c.Epoch, c.Row = at.Epoch, at.Row
		return c, err
	}
}
