package num

import (
	"math"
	"math/bits"
)

// Key hashes a purpose and any number of words (seed, epoch, index, ...) to 64
// bits. Equal arguments give equal keys on every machine. Words are hashed in
// order, never summed, so (seed 1, epoch 2) and (seed 2, epoch 1) are
// unrelated, and so are ("a", 0) and ("a").
func Key(purpose string, words ...uint64) uint64 {
	h := KeyPrefix(purpose, len(words))
	for _, w := range words {
		h = mix(bits.RotateLeft64(h, 27)*0x9e3779b97f4a7c15 ^ mix(w+0x9e3779b97f4a7c15))
	}
	return h
}

// KeyPrefix is what Key knows before its words, of which there will be that many: for code
// on a device that takes them in itself.
func KeyPrefix(purpose string, words int) uint64 {
	// FNV-1a over the purpose, then one full-avalanche round for its length and
	// the number of words. Key adds a round for each of them.
	h := uint64(14695981039346656037)
	for i := range len(purpose) {
		h = (h ^ uint64(purpose[i])) * 1099511628211
	}
	return mix(h ^ uint64(len(purpose))<<32 ^ uint64(words))
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014, with Stafford's
// constants, variant 13): a bijection of 64-bit words.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// philox is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random
// numbers: as easy as 1, 2, 3; SC 2011): a block of 128 random bits for a
// 128-bit counter and a 64-bit key.
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	// Six variables, since the compiler keeps arrays in memory.
	c0, c1, c2, c3, k0, k1 := c[0], c[1], c[2], c[3], k[0], k[1]
	for range 10 {
		hi0, lo0 := bits.Mul32(0xd2511f53, c0)
		hi1, lo1 := bits.Mul32(0xcd9e8d57, c2)
		c0, c1, c2, c3 = hi1^c1^k0, lo1, hi0^c3^k1, lo0
		k0 += 0x9e3779b9
		k1 += 0xbb67ae85
	}
	return [4]uint32{c0, c1, c2, c3}
}

// Stream is a sequence of random values addressed by a counter: value i is a
// pure function of the key and i, so it may be read in any order, by any
// number of goroutines. The zero Stream is the stream of key 0.
type Stream struct{ key uint64 }

// NewStream returns the stream of Key(purpose, words...).
func NewStream(purpose string, words ...uint64) Stream { return Stream{Key(purpose, words...)} }

// Block returns the 128 random bits of block b, which are those of counters 2b and
// 2b+1, for who needs many small values.
func (s Stream) Block(b uint64) [4]uint32 {
	return philox([4]uint32{uint32(b), uint32(b >> 32)}, [2]uint32{uint32(s.key), uint32(s.key >> 32)})
}

// Blocks returns blocks b and b+1 in about the time of one: each round waits for the one
// before it, so the rounds of two blocks fill each other's gaps.
func (s Stream) Blocks(b uint64) (x, y [4]uint32) {
	const m0, m1 = 0xd2511f53, 0xcd9e8d57
	c0, c1, c2, c3 := uint32(b), uint32(b>>32), uint32(0), uint32(0)
	b++
	d0, d1, d2, d3 := uint32(b), uint32(b>>32), uint32(0), uint32(0)
	k0, k1 := uint32(s.key), uint32(s.key>>32)
	for range 10 {
		p0, p1 := uint64(c0)*m0, uint64(c2)*m1
		q0, q1 := uint64(d0)*m0, uint64(d2)*m1
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		d0, d1, d2, d3 = uint32(q1>>32)^d1^k0, uint32(q1), uint32(q0>>32)^d3^k1, uint32(q0)
		k0 += 0x9e3779b9
		k1 += 0xbb67ae85
	}
	return [4]uint32{c0, c1, c2, c3}, [4]uint32{d0, d1, d2, d3}
}

// Uint64 returns 64 random bits for counter i.
func (s Stream) Uint64(i uint64) uint64 {
	c := s.Block(i / 2)
	if i&1 == 0 {
		return uint64(c[1])<<32 | uint64(c[0])
	}
	return uint64(c[3])<<32 | uint64(c[2])
}

// Float64 returns a uniform value in (0,1) for counter i: an odd multiple of
// 2^-53, so neither end occurs.
func (s Stream) Float64(i uint64) float64 {
	return (float64(s.Uint64(i)>>12) + 0.5) * (1.0 / (1 << 52))
}

// Uintn returns a uniform integer in [0,n) for counter i, by multiplication;
// the bias is below n/2^64. n must be positive.
func (s Stream) Uintn(i, n uint64) uint64 {
	if n == 0 {
		panic("num: Uintn of 0")
	}
	hi, _ := bits.Mul64(s.Uint64(i), n)
	return hi
}

// Normal returns a standard normal value for counter i.
func (s Stream) Normal(i uint64) float64 { return NormalQuantile(s.Float64(i)) }

// Truncated returns, for counter i, a standard normal value conditioned on lying
// within [-limit, limit]. It is not rescaled: its standard deviation is below
// one (0.98658 for limit 3). limit must be in (0, 8].
func (s Stream) Truncated(i uint64, limit float64) float64 {
	if !(limit > 0 && limit <= 8) {
		panic("num: truncation limit outside (0, 8]")
	}
	lo := 0.5 * math.Erfc(limit/math.Sqrt2)
	u := s.Float64(i)
	p := lo + float64(u*(1-2*lo))
	return min(max(NormalQuantile(p), -limit), limit)
}

// NormalQuantile returns x with P(Z <= x) = p for a standard normal Z, to about
// 1e-15 relative: algorithm AS 241 (PPND16) of Wichura, The percentage points
// of the normal distribution, Applied Statistics 37 (1988). It returns
// infinities for 0 and 1 and NaN outside [0,1].
//
// Every product is rounded before it is added, which forbids fused
// multiply-add, so the central 85 % of values have equal bits everywhere.
func NormalQuantile(p float64) float64 {
	switch {
	case p == 0:
		return math.Inf(-1)
	case p == 1:
		return math.Inf(1)
	case !(p > 0 && p < 1):
		return math.NaN()
	}
	q := p - 0.5
	if math.Abs(q) <= 0.425 {
		r := 0.180625 - float64(q*q)
		return q * (horner(r, &centerNum) / horner(r, &centerDen))
	}
	r := p
	if q > 0 {
		r = 1 - p
	}
	r = math.Sqrt(-math.Log(r))
	var x float64
	if r <= 5 {
		r -= 1.6
		x = horner(r, &middleNum) / horner(r, &middleDen)
	} else {
		r -= 5
		x = horner(r, &tailNum) / horner(r, &tailDen)
	}
	if q < 0 {
		return -x
	}
	return x
}

// horner evaluates c[0] + c[1] x + ... + c[7] x^7 without fused operations.
func horner(x float64, c *[8]float64) float64 {
	s := c[7]
	for i := 6; i >= 0; i-- {
		s = float64(s*x) + c[i]
	}
	return s
}

// The rational approximations of AS 241, lowest power first.
var (
	centerNum = [8]float64{3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
		4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3}
	centerDen = [8]float64{1, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
		2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3}
	middleNum = [8]float64{1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
		1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4}
	middleDen = [8]float64{1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
		1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9}
	tailNum = [8]float64{6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
		2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7}
	tailDen = [8]float64{1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
		7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15}
)
