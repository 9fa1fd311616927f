package tokenize

import (
	"errors"
	"math/bits"
)

// none marks an absent id or merge value.
const none = ^uint32(0)

// Limits of untrusted files. maxVocab also bounds ids, so an id fits 20 bits and a
// merge value 24, which is how pairs and cache entries are packed.
const (
	maxFileBytes  = 64 << 20
	maxVocab      = 1 << 20
	maxTokenBytes = 1 << 10
	maxMergeRatio = 4 // merges per vocabulary entry; Llama 3 has 2.2
)

// mergeTable answers "what do these two tokens merge into, and how early". The
// answer is a value that orders merges by rank. When every merge makes a token of
// its own and tokens are numbered in merge order, the value is the id of the new
// token (ids is nil); otherwise it is the index of the merge and ids maps it.
type mergeTable struct {
	byteID  [256]uint32 // id of each single-byte token; none where the vocabulary lacks it
	dense   []uint32    // [65536] value for two bytes, by first<<8|second; none without a merge
	slots   []uint64    // open addressing: left(20) right(20) value+1(24); 0 is free
	shift   uint        // 64 - log2(len(slots))
	ids     []uint32    // value -> id, or nil
	touched uint64      // what was read only for having been read
	filter  []uint64    // a bit for the hash of each pair; most questions are about pairs that do not merge
}

const (
	golden64   = 0x9e3779b97f4a7c15
	valueBits  = 24
	valueMask  = 1<<valueBits - 1
	maxProbing = 1 << 12
	filterBits = 20 // 128 KiB: misses of the cache cost 3 % less with it than without
)

var errPairCluster = errors.New("merges collide too often in the pair table; the file looks crafted")

func newMergeTable(byteID [256]uint32, numPairs int) *mergeTable {
	log := bits.Len(uint(max(5*numPairs/3, 16) - 1)) // load at most three fifths
	m := &mergeTable{
		byteID: byteID,
		dense:  make([]uint32, 1<<16),
		slots:  freshTable[uint64](log),
		shift:  uint(64 - log),
		filter: make([]uint64, 1<<(filterBits-6)),
	}
	for i := range m.dense {
		m.dense[i] = none
	}
	return m
}

// touch brings the places of some merges into the cache.
func (m *mergeTable) touch(merges []merge) {
	for _, k := range merges {
		key := uint64(k.left)<<20 | uint64(k.right)
		m.touched += m.slots[key*golden64>>m.shift]
	}
}

// add records a merge; a pair that is there already gets the new value, and again says so.
func (m *mergeTable) add(left, right, value uint32) (again bool, err error) {
	key := uint64(left)<<20 | uint64(right)
	i := key * golden64 >> m.shift
	for n := 0; ; n++ {
		s := m.slots[i]
		if s == 0 || s>>valueBits == key {
			again = s != 0
			break
		}
		if n == maxProbing {
			return false, errPairCluster
		}
		i = (i + 1) & uint64(len(m.slots)-1)
	}
	f := key * golden64 >> (64 - filterBits)
	m.filter[f>>6] |= 1 << (f & 63)
	m.slots[i] = key<<valueBits | uint64(value+1)
	return again, nil
}

// setDense records the merge of two single bytes for the first round of a piece.
func (m *mergeTable) setDense(first, second byte, value uint32) {
	m.dense[int(first)<<8|int(second)] = value
}

// value returns the merge value of two tokens, or none.
func (m *mergeTable) value(left, right uint32) uint32 {
	key := uint64(left)<<20 | uint64(right)
	h := key * golden64
	f := h >> (64 - filterBits)
	if (*[1 << (filterBits - 6)]uint64)(m.filter)[f>>6]>>(f&63)&1 == 0 {
		return none
	}
	slots := m.slots
	mask := uint64(len(slots) - 1)
	for i := h >> m.shift; ; i++ {
		// A free slot ends the search with 0-1, which is none.
		if s := slots[i&mask]; s>>valueBits == key || s == 0 {
			return uint32(s&valueMask) - 1
		}
	}
}

// id turns a value into the id of the token it makes.
func (m *mergeTable) id(value uint32) uint32 {
	if m.ids == nil {
		return value
	}
	return m.ids[value]
}
