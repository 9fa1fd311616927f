package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/kernels/asm"
)

// attnDecodeFast walks the cache once a query head: it is bound by memory, so
// dot products and scaled additions do.
func attnDecodeFast(h gpu.Host, a *AttnDecodeArgs) func() {
	o, kc, vc, pos := gpu.Float32s(h, a.O), gpu.Float32s(h, a.KCache), gpu.Float32s(h, a.VCache), gpu.Int32s(h, a.Pos)
	qkv := headRows[float32]{gpu.Float32s(h, a.QKV), (a.H + 2*a.KV) * a.C, a.C}
	limit, group, pool := a.KCache.Dim(2), a.H/a.KV, h.Pool()
	stride := (limit + 15) &^ 15
	scores := h.Scratch("attn.scores", pool.Threads()*stride)
	scale := float32(1 / math.Sqrt(float64(a.C)))
	heads := func(worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			b, kv := i/a.KV, i%a.KV
			last := checkPosition("attn_decode", b, pos[b], limit)
			k, v := cacheAt(a, kc, b, kv), cacheAt(a, vc, b, kv)
			copy(k[last*a.C:(last+1)*a.C], qkv.at(b, a.H+kv))
			copy(v[last*a.C:(last+1)*a.C], qkv.at(b, a.H+a.KV+kv))
			s := scores[worker*stride : worker*stride+last+1]
			for q := kv * group; q < (kv+1)*group; q++ {
				attendOne(o[(b*a.H+q)*a.C:(b*a.H+q+1)*a.C], qkv.at(b, q), k, v, s, scale)
			}
		}
	}
	return func() { pool.For(len(pos)*a.KV, 1, heads) }
}

// attendOne sets o to the attention of query q over the first len(s) entries
// of k and v; s is scratch.
func attendOne(o, q, k, v, s []float32, scale float32) {
	c := len(q)
	for j := range s {
		s[j] = asm.Dot(q, k[j*c:(j+1)*c])
	}
	sum := asm.ExpSum(s, s, scale, asm.Max(s)*scale)
	clear(o)
	for j, p := range s {
		asm.Axpy(o, v[j*c:(j+1)*c], p)
	}
	asm.Scale(o, 1/sum)
}
