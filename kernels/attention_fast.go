package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/kernels/asm"
	"refrain/kernels/gemm"
)

// The fast versions work on one (row, key head) at a time, and inside it on one
// document after another, each in blocks of query rows [q0,q1). A block needs
// the keys from the document's start to q1, so its scores are a strip
//
//	        start            q0      q1
//	     q0  | x x x x x x x | x . . |
//	         | x x x x x x x | x x . |    x computed and used
//	     q1  | x x x x x x x | x x x |    . computed, then set to zero
//
// which stays in the L2 cache: softmax sees whole rows and needs no rescaling.
// Keys of other documents are not even multiplied by zero.

// attnRows is the height of a block; 48 to 192 were equal within noise on Zen 3.
const attnRows = 96

// stripFloats bounds a strip of scores to 512 KiB, by lower blocks for long rows.
const stripFloats = 1 << 17

// blockRows is the height of blocks for rows of t positions.
func blockRows(t int) int {
	return min(attnRows, max(asm.MR, stripFloats/t/asm.MR*asm.MR))
}

// heads is what both directions share: where operands lie, and what a worker
// needs for itself.
type heads struct {
	qkv    headRows[float32]
	seg    []int32
	t      int // positions a row
	h, kv  int
	c      int
	scale  float32
	rows   int // of a block
	strip  int // floats of a worker's strip
	serial []*gemm.Serial
}

func newHeads(h gpu.Host, qkv, seg gpu.Tensor, t, nh, nkv, c int) *heads {
	k := &heads{
		qkv: headRows[float32]{gpu.Float32s(h, qkv), (nh + 2*nkv) * c, c}, seg: gpu.Int32s(h, seg),
		t: t, h: nh, kv: nkv, c: c, scale: float32(1 / math.Sqrt(float64(c))), rows: blockRows(t),
	}
	k.strip = (k.rows*t + 15) &^ 15
	packs, threads := packing(h), h.Pool().Threads()
	k.serial = h.Cached("gemm.serial", func() any {
		s := make([]*gemm.Serial, threads)
		for i := range s {
			s[i] = gemm.NewSerial(packs)
		}
		return s
	}).([]*gemm.Serial)
	return k
}

// from is the buffer from row n, head i on: an operand of a product whose rows
// are stride apart.
func (r headRows[T]) from(n, i int) []T { return r.buf[n*r.stride+i*r.c:] }

// documents calls f for every document of row b, as row numbers [start,end) of
// the buffers.
func (k *heads) documents(b int, f func(start, end int)) {
	for start := b * k.t; start < (b+1)*k.t; {
		end := start + 1
		for end < (b+1)*k.t && k.seg[end] == k.seg[start] {
			end++
		}
		f(start, end)
		start = end
	}
}

// packRoom is the floats a worker needs to pack the keys or values of one
// document, either way round.
func packRoom(t, c int) int {
	return (max(gemm.PackedLen(t, c), gemm.PackedLen(c, t)) + 15) &^ 15
}

// share cuts worker i's part, n floats long, out of s.
func share(s []float32, i, n int) []float32 { return s[i*n : (i+1)*n] }

func attentionFast(h gpu.Host, a *AttentionArgs) func() {
	if a.QKV.DType == gpu.BF16 {
		return nil
	}
	k, pool := newHeads(h, a.QKV, a.Seg, a.T, a.H, a.KV, a.C), h.Pool()
	lse := gpu.Float32s(h, a.LSE)
	o := headRows[float32]{gpu.Float32s(h, a.O), a.H * a.C, a.C}
	threads, room := pool.Threads(), packRoom(a.T, a.C)
	strips := h.Scratch("attn.scores", threads*k.strip)
	packs := h.Scratch("attn.packed", threads*2*room)
	work := make([]attnForward, threads)
	for i := range work {
		w := &work[i]
		*w = attnForward{heads: k, o: o, lse: lse, g: k.serial[i], s: share(strips, i, k.strip),
			packK: share(packs, 2*i, room), packV: share(packs, 2*i+1, room)}
		w.body = w.document
	}
	tasks := func(worker, lo, hi int) {
		w := &work[worker]
		for i := lo; i < hi; i++ {
			w.b, w.key = i/a.KV, i%a.KV
			k.documents(w.b, w.body)
		}
	}
	return func() { pool.For(a.B*a.KV, 1, tasks) }
}

// attnForward is one worker's forward pass over one (row, key head).
type attnForward struct {
	*heads
	o            headRows[float32]
	lse          []float32
	g            *gemm.Serial
	s            []float32
	packK, packV []float32
	keys, values gemm.Packed // of the document under way: transpose(K) and V
	sums         [attnRows]float32
	b, key       int
	body         func(start, end int) // document, bound once
}

func (w *attnForward) document(start, end int) {
	n, kh, vh, ld := end-start, w.h+w.key, w.h+w.kv+w.key, w.qkv.stride
	w.keys = gemm.PackB(w.packK, true, n, w.c, w.qkv.from(start, kh), ld)
	w.values = gemm.PackB(w.packV, false, w.c, n, w.qkv.from(start, vh), ld)
	group := w.h / w.kv
	for q0 := start; q0 < end; q0 += w.rows {
		for q := w.key * group; q < (w.key+1)*group; q++ {
			w.block(start, q0, min(q0+w.rows, end), q)
		}
	}
}

// block attends from rows [q0,q1) of query head q to the document so far.
func (w *attnForward) block(start, q0, q1, q int) {
	n, rows := q1-start, q1-q0
	w.g.GemmPacked(false, rows, n, w.c, w.qkv.from(q0, q), w.qkv.stride, w.keys, false, w.s, n)
	lse := w.lse[(w.b*w.h+q)*w.t-w.b*w.t:]
	for i := range rows {
		row := w.s[i*n : (i+1)*n]
		seen := row[:q0-start+i+1]
		top := asm.Max(seen) * w.scale
		sum := asm.ExpSum(seen, seen, w.scale, top)
		w.sums[i] = sum
		clear(row[len(seen):])
		lse[q0+i] = top + float32(math.Log(float64(sum)))
	}
	w.g.GemmPacked(false, rows, w.c, n, w.s, n, w.values, false, w.o.from(q0, q), w.o.stride)
	// Dividing the C outputs is less work than dividing the n weights.
	for i, sum := range w.sums[:rows] {
		asm.Scale(w.o.at(q0+i, q), 1/sum)
	}
}

func attentionBwdFast(h gpu.Host, a *AttentionBwdArgs) func() {
	if a.QKV.DType == gpu.BF16 {
		return nil
	}
	k, pool := newHeads(h, a.QKV, a.Seg, a.T, a.H, a.KV, a.C), h.Pool()
	lse := gpu.Float32s(h, a.LSE)
	o := headRows[float32]{gpu.Float32s(h, a.O), a.H * a.C, a.C}
	do := headRows[float32]{gpu.Float32s(h, a.DO), a.H * a.C, a.C}
	d := headRows[float32]{gpu.Float32s(h, a.DQKV), k.qkv.stride, a.C}
	threads, room := pool.Threads(), packRoom(a.T, a.C)
	strips := h.Scratch("attn.scores", threads*k.strip)
	dstrips := h.Scratch("attn.dscores", threads*k.strip)
	packs := h.Scratch("attn.packed", threads*3*room)
	work := make([]attnBackward, threads)
	for i := range work {
		w := &work[i]
		*w = attnBackward{heads: k, o: o, do: do, d: d, lse: lse, g: k.serial[i],
			s: share(strips, i, k.strip), ds: share(dstrips, i, k.strip),
			packKT: share(packs, 3*i, room), packVT: share(packs, 3*i+1, room), packK: share(packs, 3*i+2, room)}
		w.body = w.document
	}
	tasks := func(worker, lo, hi int) {
		w := &work[worker]
		for i := lo; i < hi; i++ {
			w.b, w.key = i/a.KV, i%a.KV
			for n := w.b * a.T; n < (w.b+1)*a.T; n++ {
				clear(d.at(n, a.H+w.key))
				clear(d.at(n, a.H+a.KV+w.key))
			}
			k.documents(w.b, w.body)
		}
	}
	return func() { pool.For(a.B*a.KV, 1, tasks) }
}

// attnBackward is one worker's backward pass over one (row, key head). It adds
// blocks, and inside a block query heads, in rising order.
type attnBackward struct {
	*heads
	o, do, d              headRows[float32]
	lse                   []float32
	g                     *gemm.Serial
	s, ds                 []float32
	packKT, packVT, packK []float32
	keysT, valuesT, keys  gemm.Packed // of the document under way
	b, key                int
	body                  func(start, end int) // document, bound once
}

func (w *attnBackward) document(start, end int) {
	n, kh, vh, ld := end-start, w.h+w.key, w.h+w.kv+w.key, w.qkv.stride
	w.keysT = gemm.PackB(w.packKT, true, n, w.c, w.qkv.from(start, kh), ld)
	w.valuesT = gemm.PackB(w.packVT, true, n, w.c, w.qkv.from(start, vh), ld)
	w.keys = gemm.PackB(w.packK, false, w.c, n, w.qkv.from(start, kh), ld)
	group := w.h / w.kv
	for q0 := start; q0 < end; q0 += w.rows {
		for q := w.key * group; q < (w.key+1)*group; q++ {
			w.block(start, q0, min(q0+w.rows, end), q)
		}
	}
}

// block takes rows [q0,q1) of query head q back to the document so far.
func (w *attnBackward) block(start, q0, q1, q int) {
	n, rows, kh, vh, ld := q1-start, q1-q0, w.h+w.key, w.h+w.kv+w.key, w.qkv.stride
	w.g.GemmPacked(false, rows, n, w.c, w.qkv.from(q0, q), ld, w.keysT, false, w.s, n)
	w.g.GemmPacked(false, rows, n, w.c, w.do.from(q0, q), w.do.stride, w.valuesT, false, w.ds, n)
	lse := w.lse[(w.b*w.h+q)*w.t-w.b*w.t:]
	for i := range rows {
		seen := q0 - start + i + 1
		p, dp := w.s[i*n:(i+1)*n], w.ds[i*n:(i+1)*n]
		asm.ExpSum(p[:seen], p[:seen], w.scale, lse[q0+i])
		asm.DSoftmax(p[:seen], dp[:seen], asm.Dot(w.o.at(q0+i, q), w.do.at(q0+i, q)), w.scale)
		clear(p[seen:])
		clear(dp[seen:])
	}
	w.g.GemmPacked(false, rows, w.c, n, w.ds, n, w.keys, false, w.d.from(q0, q), ld)
	w.g.Gemm(true, false, n, w.c, rows, w.ds, n, w.qkv.from(q0, q), ld, true, w.d.from(start, kh), ld)
	w.g.Gemm(true, false, n, w.c, rows, w.s, n, w.do.from(q0, q), w.do.stride, true, w.d.from(start, vh), ld)
}
