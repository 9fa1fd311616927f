package repack

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// Version is the version of the stream contract. It is part of every key, so a
// changed contract can never silently give a half-equal order.
const Version = 1

// Key is a 128-bit key of a permutation.
type Key [2]uint64

// NewKey derives the key of one permutation: the first 16 bytes of
//
//	SHA-256("refrain stream" 0x00 || u32 version || u32 len(purpose) || purpose || u64 seed || u64 index)
//
// with little-endian integers, read as two little-endian words. Seeds and
// epochs are hashed, never added: with seed+epoch, epoch 1 of seed 0 would be
// epoch 0 of seed 1 and ensemble members would share orders.
func NewKey(purpose string, seed, index uint64) Key {
	var buf [64]byte
	b := append(buf[:0], "refrain stream\x00"...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(purpose)))
	b = append(b, purpose...)
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint64(b, index)
	sum := sha256.Sum256(b)
	return Key{binary.LittleEndian.Uint64(sum[0:]), binary.LittleEndian.Uint64(sum[8:])}
}

const maxRounds = 12

// The multipliers of the round function: odd, with irregular bits (found in
// published 64-bit mixers).
const mulA, mulB = 0x9FB21C651E98DF25, 0xD6E8FEB86659FD93

// PRP is a keyed pseudorandom permutation of [0, N): a balanced Feistel network
// on 2h bits, 2^(2h) < 4N, with cycle walking. It needs no memory and evaluates
// any index on its own. The zero value is not usable; see NewPRP.
type PRP struct {
	n      uint64
	half   uint
	rounds int
	keys   [maxRounds]uint64
	table  []uint16 // see Tabulate; nil without
}

// numRounds gives small domains more rounds: the security of a Feistel network
// depends on the size of its halves, and a half of few bits mixes slowly. The
// thresholds are held by TestPRPQuality and TestPRPSmallDomains. (A Feistel network
// on 4 or more bits is an even permutation whatever its rounds, so at n = 5 or 6
// the n! orders are not exactly equally likely; places are.)
func numRounds(n uint64) int {
	switch {
	case n <= 1<<12:
		return 12
	case n < 1<<20:
		return 6
	}
	return 4
}

// mix64 is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// NewPRP returns the permutation of [0, n) under k. n must lie in [1, 2^62].
// Round key i is mix64(mix64(k0 + (i+1)*phi) + k1), phi the golden ratio word.
func NewPRP(n uint64, k Key) PRP {
	p := PRP{n: n, rounds: numRounds(n)}
	// The largest value that must be represented is n-1; taking bits of n-1 and
	// rounding up to an even count keeps n = 4^m+1 a bijection.
	p.half = uint(max(1, (bits.Len64(n-1)+1)/2))
	for i := range p.keys[:p.rounds] {
		p.keys[i] = mix64(mix64(k[0]+uint64(i+1)*0x9E3779B97F4A7C15) + k[1])
	}
	return p
}

// N returns the size of the domain.
func (p *PRP) N() uint64 { return p.n }

// At returns the image of i, which must be below N.
func (p *PRP) At(i uint64) uint64 {
	half, mask := p.half, uint64(1)<<p.half-1
	shift := (64 - half) & 63
	for {
		l, r := i>>half, i&mask
		for _, k := range p.keys[:p.rounds] {
			// The high bits of a product depend on every bit of its factors;
			// the low bits do not, which is how weak constructions fail.
			f := (r ^ k) * mulA
			f = (f ^ f>>32) * mulB
			l, r = r, l^f>>shift
		}
		if i = l<<half | r; i < p.n {
			return i
		}
	}
}

// Tabulate makes Fill several times as fast, at the price of one evaluation of every
// round for each of the 2^h values of a half. It does nothing where that does not pay:
// in tiny domains and where a half has more than 16 bits. Images stay the same.
func (p *PRP) Tabulate() {
	if p.n < 1<<8 || p.half > 16 || p.table != nil {
		return
	}
	size := uint64(1) << p.half
	p.table = make([]uint16, 0, uint64(p.rounds)*size)
	for _, k := range p.keys[:p.rounds] {
		for r := range size {
			f := (r ^ k) * mulA
			p.table = append(p.table, uint16((f^f>>32)*mulB>>(64-p.half)))
		}
	}
}

// fillBlock is how many indices Fill works on at once.
const fillBlock = 256

// Fill sets dst[i] to At(from+i). It works on many indices at once, because one
// evaluation is a single chain of dependent operations: those that must keep walking
// are gathered and evaluated together again.
func (p *PRP) Fill(dst []uint64, from uint64) {
	var x [fillBlock]uint64
	var at [fillBlock]uint8 // where in dst the image of x belongs
	for len(dst) > 0 {
		m := min(len(dst), fillBlock)
		for i := range m {
			x[i], at[i] = from+uint64(i), uint8(i)
		}
		out := dst[:m]
		dst, from = dst[m:], from+uint64(m)
		for m > 0 {
			// What is behind m is evaluated for nothing, up to a multiple of 4.
			if p.table != nil {
				p.walkTable(x[:(m+3)&^3])
			} else {
				p.walk(x[:(m+3)&^3])
			}
			k := 0
			for i, v := range x[:m] {
				j := at[i]
				out[j] = v // replaced in a later turn if it is outside
				x[k], at[k] = v, j
				if v >= p.n {
					k++
				}
			}
			m = k
		}
	}
}

// walk replaces every x, which must be below 2^2h, by its image under the network,
// which may lie outside the domain. The length is a multiple of 4.
func (p *PRP) walk(x []uint64) {
	half, mask := p.half, uint64(1)<<p.half-1
	shift := (64 - half) & 63
	for ; len(x) >= 4; x = x[4:] {
		l0, l1, l2, l3 := x[0]>>half, x[1]>>half, x[2]>>half, x[3]>>half
		r0, r1, r2, r3 := x[0]&mask, x[1]&mask, x[2]&mask, x[3]&mask
		for _, k := range p.keys[:p.rounds] {
			f0, f1, f2, f3 := (r0^k)*mulA, (r1^k)*mulA, (r2^k)*mulA, (r3^k)*mulA
			f0, f1, f2, f3 = (f0^f0>>32)*mulB, (f1^f1>>32)*mulB, (f2^f2>>32)*mulB, (f3^f3>>32)*mulB
			l0, r0 = r0, l0^f0>>shift
			l1, r1 = r1, l1^f1>>shift
			l2, r2 = r2, l2^f2>>shift
			l3, r3 = r3, l3^f3>>shift
		}
		x[0], x[1], x[2], x[3] = l0<<half|r0, l1<<half|r1, l2<<half|r2, l3<<half|r3
	}
}

// walkTable is walk by the table. Two rounds make a turn, so that halves need not
// change places; the number of rounds is even. A half is below 2^h, so no look-up
// leaves its part of the table, and bounds checks would be half of the work.
func (p *PRP) walkTable(x []uint64) {
	half := p.half & 31
	mask := uint64(1)<<half - 1
	turn := uintptr(2*2) << half // bytes of the table that two rounds use
	first := unsafe.Pointer(unsafe.SliceData(p.table))
	for ; len(x) >= 4; x = x[4:] {
		l0, l1, l2, l3 := x[0]>>half, x[1]>>half, x[2]>>half, x[3]>>half
		r0, r1, r2, r3 := x[0]&mask, x[1]&mask, x[2]&mask, x[3]&mask
		for i := range uintptr(p.rounds / 2) {
			f := unsafe.Add(first, i*turn) // never past the end, which the collector would mistake
			l0 ^= at16(f, r0)
			l1 ^= at16(f, r1)
			l2 ^= at16(f, r2)
			l3 ^= at16(f, r3)
			g := unsafe.Add(f, turn/2)
			r0 ^= at16(g, l0)
			r1 ^= at16(g, l1)
			r2 ^= at16(g, l2)
			r3 ^= at16(g, l3)
		}
		x[0], x[1], x[2], x[3] = l0<<half|r0, l1<<half|r1, l2<<half|r2, l3<<half|r3
	}
}

func at16(p unsafe.Pointer, i uint64) uint64 { return uint64(*(*uint16)(unsafe.Add(p, 2*i))) }
