package kernels

import "refrain/gpu"

// AttnDecodeArgs are the arguments of AttnDecode.
type AttnDecodeArgs struct {
	O              gpu.Tensor // [B,H*C] f32
	QKV            gpu.Tensor // [B,Q] f32, after RoPEAt
	KCache, VCache gpu.Tensor // [B,KV,Tmax,C] f32, in place: entry pos[b] is written, entries before it are read
	Pos            gpu.Tensor // [B] i32, each in [0,Tmax)
	H, KV, C       int
}

// AttnDecode is Attention for one token a row: it appends the token's keys and
// values to the caches at pos[b] and attends to entries 0 to pos[b].
var AttnDecode = Kernel[AttnDecodeArgs]{
	Name: "attn_decode",
	Check: func(a *AttnDecodeArgs) error {
		var c checker
		k := c.ranked("kcache", a.KCache, gpu.F32, 4)
		c.heads(k[0], k[2], a.H, a.KV, a.C)
		c.f32("kcache", a.KCache, k[0], a.KV, k[2], a.C)
		c.f32("vcache", a.VCache, k[0], a.KV, k[2], a.C)
		c.f32("qkv", a.QKV, k[0], (a.H+2*a.KV)*a.C)
		c.f32("o", a.O, k[0], a.H*a.C)
		c.i32("pos", a.Pos, k[0])
		c.apart(names{{"o", a.O}, {"kcache", a.KCache}, {"vcache", a.VCache}}, names{{"qkv", a.QKV}, {"pos", a.Pos}})
		return c.err
	},
	Access: func(a *AttnDecodeArgs) (reads, writes []gpu.Span) {
		return spans(a.QKV, a.KCache, a.VCache, a.Pos), spans(a.O, a.KCache, a.VCache)
	},
	Cost: func(a *AttnDecodeArgs) gpu.Cost {
		// At full caches; how much of them is used is known only when it runs.
		return gpu.Cost{FLOPs: 4 * float64(a.KCache.Elems()) * float64(a.H/a.KV), Bytes: bytesOf(a.KCache, a.VCache, a.QKV, a.O)}
	},
	Ref:  func(h gpu.Host, a *AttnDecodeArgs) { attnDecodeRef(narrow(h), a) },
	Wide: func(h WideHost, a *AttnDecodeArgs) { attnDecodeRef(wide(h), a) },
	Fast: attnDecodeFast,
}

// cacheAt is the entries of one head of one row of a cache, [Tmax,C].
func cacheAt[T real](a *AttnDecodeArgs, cache []T, b, kv int) []T {
	n := a.KCache.Dim(2) * a.C
	return cache[(b*a.KV+kv)*n : (b*a.KV+kv+1)*n]
}

func attnDecodeRef[T real](m memory[T], a *AttnDecodeArgs) {
	o, kc, vc := m.reals(a.O), m.reals(a.KCache), m.reals(a.VCache)
	qkv := headRows[T]{m.reals(a.QKV), (a.H + 2*a.KV) * a.C, a.C}
	limit, group := a.KCache.Dim(2), a.H/a.KV
	p := make([]float64, limit)
	acc := make([]float64, a.C)
	// One query row behind the keys of the cache, for softmaxScores.
	work := headRows[T]{make([]T, (limit+1)*2*a.C), 2 * a.C, a.C}
	for b, pos := range m.ints(a.Pos) {
		last := checkPosition("attn_decode", b, pos, limit)
		for kv := range a.KV {
			k, v := cacheAt(a, kc, b, kv), cacheAt(a, vc, b, kv)
			copy(k[last*a.C:(last+1)*a.C], qkv.at(b, a.H+kv))
			copy(v[last*a.C:(last+1)*a.C], qkv.at(b, a.H+a.KV+kv))
			for j := range last + 1 {
				copy(work.at(j, 1), k[j*a.C:(j+1)*a.C])
			}
			for h := kv * group; h < (kv+1)*group; h++ {
				copy(work.at(last, 0), qkv.at(b, h))
				softmaxScores(p, work, last, 0, 0, 1)
				clear(acc)
				for j := range last + 1 {
					for i := range acc {
						acc[i] += p[j] * float64(v[j*a.C+i])
					}
				}
				for i, s := range acc {
					o[(b*a.H+h)*a.C+i] = T(s)
				}
			}
		}
	}
}
