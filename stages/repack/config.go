package repack

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"refrain/store"
)

// Mode says what changes from epoch to epoch.
type Mode uint8

// The modes of the contract. pi is the order of documents, sigma of windows.
const (
	Fixed     Mode = iota + 1 // pi_0, sigma_0: every epoch is the same
	Block                     // pi_0, fresh order inside each block of m windows
	Reshuffle                 // pi_0, sigma_e: same windows, new order
	Repack                    // pi_e, sigma_e: new windows, new order
)

var modeNames = [...]string{Fixed: "fixed", Block: "block", Reshuffle: "reshuffle", Repack: "repack"}

func (m Mode) String() string {
	if m >= Fixed && int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode reads "fixed", "block", "reshuffle" or "repack".
func ParseMode(s string) (Mode, error) {
	for m := Fixed; int(m) < len(modeNames); m++ {
		if s == modeNames[m] {
			return m, nil
		}
	}
	return 0, fmt.Errorf("unknown mode %q; use fixed, block, reshuffle or repack", s)
}

// Tail says what happens to the tokens that do not fill a last window.
type Tail uint8

// The tail policies. The zero value is Drop.
const (
	Drop  Tail = iota // left out of the epoch and counted; fewer than T tokens
	Carry             // the last window runs on into the next epoch
	Pad               // the last window is filled with token 0, targets masked
)

var tailNames = [...]string{Drop: "drop", Carry: "carry", Pad: "pad"}

func (t Tail) String() string {
	if int(t) < len(tailNames) {
		return tailNames[t]
	}
	return fmt.Sprintf("tail(%d)", uint8(t))
}

// ParseTail reads "drop", "carry" or "pad".
func ParseTail(s string) (Tail, error) {
	for t := range tailNames {
		if s == tailNames[t] {
			return Tail(t), nil
		}
	}
	return 0, fmt.Errorf("unknown tail policy %q; use drop, carry or pad", s)
}

// Masked is the target of a position that is not scored.
const Masked = -1

// The limits keep the text of a State below 200 bytes and every table index in
// 32 bits.
const (
	maxT     = 1 << 24
	maxBlock = 1 << 40
)

// Corpus is an ordered list of documents of token ids, boundary tokens
// included. It must not change while a Stream uses it, and its methods must be
// safe for concurrent use. store.Store is one.
type Corpus interface {
	NumDocs() int
	NumTokens() int64
	// Lengths returns the token count of every document. The caller only reads it.
	Lengths() []uint32
	// Copy writes tokens [from, to) of a document to dst[0:to-from].
	Copy(doc, from, to int, dst []int32)
	// Fingerprint identifies the content.
	Fingerprint() [32]byte
}

// Part is a Corpus of documents of a store, for which a Stream then has the faster
// ways that it has for the store itself. Part returns the store and, for each
// document, its number there; the document is that one or the start of it. Neither
// changes while a Stream uses it.
type Part interface {
	Corpus
	Part() (s *store.Store, docs []int)
}

// Config chooses a stream over a corpus.
type Config struct {
	Mode          Mode
	Seed          uint64
	T             int   // inputs per window
	Block         int64 // windows per block; for Mode Block only
	Tail          Tail
	TargetsInside bool // mask the last target of every window
}

// validate returns every complaint about c over a corpus of d documents and n
// tokens, or nil.
func (c Config) validate(d int, n int64) error {
	var bad []string
	add := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if c.Mode < Fixed || c.Mode > Repack {
		add("%v is not a mode; use fixed, block, reshuffle or repack", c.Mode)
	}
	if int(c.Tail) >= len(tailNames) {
		add("%v is not a tail policy; use drop, carry or pad", c.Tail)
	}
	if c.Mode == Block && (c.Block < 1 || c.Block > maxBlock) {
		add("mode block needs a block of 1 to 2^40 windows, not %d", c.Block)
	}
	if c.Mode != Block && c.Block != 0 {
		add("block = %d has no meaning in mode %v", c.Block, c.Mode)
	}
	switch {
	case c.T < 1 || c.T > maxT:
		add("window length %d is outside 1..%d", c.T, maxT)
	case d == 0 || n == 0:
		add("the corpus is empty (%d documents, %d tokens)", d, n)
	case n < int64(c.T) && c.Tail != Pad:
		add("an epoch would hold no window: the corpus has %d tokens and a window needs T = %d; "+
			"use a shorter window, more data, or the tail policy pad", n, c.T)
	case n/int64(c.T) >= math.MaxUint32:
		add("%d windows an epoch are more than the 2^32-2 a plan holds; use a longer window", n/int64(c.T))
	}
	if int64(d) > math.MaxUint32 {
		add("%d documents are more than the 2^32-1 a plan holds", d)
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("stream: %s", strings.Join(bad, "; "))
}

// modeText is the mode as a State writes it: "repack", "block:512".
func (c Config) modeText() string {
	if c.Mode == Block {
		return c.Mode.String() + ":" + strconv.FormatInt(c.Block, 10)
	}
	return c.Mode.String()
}

func (c Config) targetsText() string {
	if c.TargetsInside {
		return "inside"
	}
	return "next"
}
