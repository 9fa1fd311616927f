package repack

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
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

// Fill sets dst[i] to At(from+i). It works on four indices at once, because one
// evaluation is a single chain of multiplications: measured two to three times
// as fast as calling At.
func (p *PRP) Fill(dst []uint64, from uint64) {
	half, mask := p.half, uint64(1)<<p.half-1
	shift := (64 - half) & 63
	i := 0
	for ; i+4 <= len(dst); i += 4 {
		x0 := from + uint64(i)
		x1, x2, x3 := x0+1, x0+2, x0+3
		l0, l1, l2, l3 := x0>>half, x1>>half, x2>>half, x3>>half
		r0, r1, r2, r3 := x0&mask, x1&mask, x2&mask, x3&mask
		for _, k := range p.keys[:p.rounds] {
			f0, f1, f2, f3 := (r0^k)*mulA, (r1^k)*mulA, (r2^k)*mulA, (r3^k)*mulA
			f0, f1, f2, f3 = (f0^f0>>32)*mulB, (f1^f1>>32)*mulB, (f2^f2>>32)*mulB, (f3^f3>>32)*mulB
			l0, r0 = r0, l0^f0>>shift
			l1, r1 = r1, l1^f1>>shift
			l2, r2 = r2, l2^f2>>shift
			l3, r3 = r3, l3^f3>>shift
		}
		dst[i], dst[i+1], dst[i+2], dst[i+3] = l0<<half|r0, l1<<half|r1, l2<<half|r2, l3<<half|r3
		for j, x := range dst[i : i+4] {
			if x >= p.n {
				dst[i+j] = p.At(x) // keep walking
			}
		}
	}
	for ; i < len(dst); i++ {
		dst[i] = p.At(from + uint64(i))
	}
}
