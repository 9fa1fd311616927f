package fsx

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// CrashMode says what of the unsynced state a power cut leaves.
type CrashMode uint8

const (
	// LoseUnsynced keeps only what was synced.
	LoseUnsynced CrashMode = iota
	// KeepAll keeps everything, as after the end of a process.
	KeepAll
	// KeepRandom keeps or loses each name and each block of 4 KiB by chance, as
	// write-back in any order does.
	KeepRandom
	// KeepNamesZeroData keeps all names and file sizes or lengths of zero, but
	// unsynced bytes read as zero: delayed allocation, the known ext4 surprise.
	KeepNamesZeroData
)

// CrashModes lists every mode, for tests that go through all.
func CrashModes() []CrashMode {
	return []CrashMode{LoseUnsynced, KeepAll, KeepRandom, KeepNamesZeroData}
}

func (m CrashMode) String() string {
	switch m {
	case LoseUnsynced:
		return "lose-unsynced"
	case KeepAll:
		return "keep-all"
	case KeepRandom:
		return "keep-random"
	case KeepNamesZeroData:
		return "keep-names-zero-data"
	}
	return fmt.Sprintf("CrashMode(%d)", uint8(m))
}

// crashBlock is the unit in which unsynced bytes reach the disk or not.
const crashBlock = 4096

// Crash returns the image that a power cut now would leave, everything in it
// synced and no lock held. The receiver is not changed. The same history, mode
// and seed give the same image; only KeepRandom and KeepNamesZeroData look at
// the seed.
func (m *Mem) Crash(mode CrashMode, seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{mode: mode, rng: rand.New(rand.NewPCG(seed, uint64(mode)))}
	return &Mem{root: c.image(m.root), locks: map[string]bool{}}
}

type crash struct {
	mode CrashMode
	rng  *rand.Rand
}

func (c *crash) coin() bool { return c.rng.Uint64()&1 == 0 }

func (c *crash) image(n *node) *node {
	if !n.dir {
		data := c.bytes(n)
		return &node{data: data, syncedData: bytes.Clone(data)}
	}
	out := newDir()
	union := make(map[string]*node, len(n.names)+len(n.syncedNames))
	for base, child := range n.syncedNames {
		union[base] = child
	}
	for base, child := range n.names {
		union[base] = child
	}
	// Sorted, so that the random choices do not depend on map order.
	for _, base := range sortedNames(union) {
		child := n.names[base]
		was := n.syncedNames[base]
		switch {
		case child == was:
		case c.mode == LoseUnsynced, c.mode == KeepRandom && c.coin():
			child = was
		}
		if child == nil {
			continue
		}
		img := c.image(child)
		out.names[base] = img
		out.syncedNames[base] = img
	}
	return out
}

func (c *crash) bytes(n *node) []byte {
	if bytes.Equal(n.data, n.syncedData) {
		return bytes.Clone(n.data)
	}
	switch c.mode {
	case LoseUnsynced:
		return bytes.Clone(n.syncedData)
	case KeepAll:
		return bytes.Clone(n.data)
	case KeepNamesZeroData:
		if c.coin() {
			return bytes.Clone(n.syncedData) // the size did not reach the disk either
		}
		out := make([]byte, len(n.data))
		copy(out, n.syncedData)
		return out
	}
	size := len(n.data)
	if c.coin() {
		size = len(n.syncedData)
	}
	out := make([]byte, size) // blocks that neither version has read as zero
	for at := 0; at < size; at += crashBlock {
		from := n.data
		if c.coin() {
			from = n.syncedData
		}
		if at < len(from) {
			copy(out[at:min(at+crashBlock, size)], from[at:])
		}
	}
	return out
}
