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

// rowFloats bounds what one call of the row functions reads: about 10 us, so that the
// garbage collector is never kept waiting.
const rowFloats = 1 << 15

// attendOne sets o to the attention of query q over the first len(s) entries
// of k and v; s is scratch.
func attendOne(o, q, k, v, s []float32, scale float32) {
	c := len(q)
	rows := max(1, rowFloats/c)
	for j := 0; j < len(s); j += rows {
		end := min(j+rows, len(s))
		asm.DotRows(s[j:end], q, k[j*c:end*c])
	}
	sum := asm.ExpSum(s, s, scale, asm.Max(s)*scale)
	clear(o)
	for j := 0; j < len(s); j += rows {
		end := min(j+rows, len(s))
		asm.AxpyRows(o, s[j:end], v[j*c:end*c])
	}
	asm.Scale(o, 1/sum)
}
