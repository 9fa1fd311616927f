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

// rowUnit divides the height of a block. Gradients of keys and values are sums over
// blocks, so that a run would get other bits with another unit.
const rowUnit = 6

// blockRows is the height of blocks for rows of t positions.
func blockRows(t int) int {
	return min(attnRows, max(rowUnit, stripFloats/t/rowUnit*rowUnit))
}

// heads is what both directions share: the shape, and what a worker needs for
// itself.
type heads struct {
	seg    []int32
	t      int // positions a row
	h, kv  int
	c      int
	scale  float32
	rows   int // of a block
	strip  int // floats of a worker's strip
	serial []*gemm.Serial
}

func newHeads(h gpu.Host, seg gpu.Tensor, t, nh, nkv, c int) *heads {
	k := &heads{
		seg: gpu.Int32s(h, seg), t: t, h: nh, kv: nkv, c: c, scale: float32(1 / math.Sqrt(float64(c))), rows: blockRows(t),
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

// share cuts worker i's part, n floats long, out of s.
func share(s []float32, i, n int) []float32 { return s[i*n : (i+1)*n] }

func attentionFast(h gpu.Host, a *AttentionArgs) func() {
	k, pool := newHeads(h, a.Seg, a.T, a.H, a.KV, a.C), h.Pool()
	lse, threads := gpu.Float32s(h, a.LSE), pool.Threads()
	strips := h.Scratch("attn.scores", threads*k.strip)
	products := forwardProducts32
	if a.QKV.DType == gpu.BF16 {
		products = forwardProducts16
	}
	work := make([]attnForward, threads)
	for i, p := range products(h, a, k) {
		w := &work[i]
		*w = attnForward{heads: k, products: p, lse: lse, s: share(strips, i, k.strip)}
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
	products forwardProducts
	lse      []float32
	s        []float32
	sums     [attnRows]float32
	b, key   int
	body     func(start, end int) // document, bound once
}

// forwardProducts are the matrix products of the forward pass of one worker, in
// the type of its operands. Rows are row numbers of the buffers.
type forwardProducts interface {
	// begin prepares the keys and values of key head key in rows [start,end).
	begin(start, end, key int)
	// scores sets s, rows x n, to rows q0 and on of query head q times the first n keys.
	scores(q0, rows, n, q int, s []float32)
	// output sets rows of the output to s times the first n values, over the sums.
	output(q0, rows, n, q int, s, sums []float32)
}

func (w *attnForward) document(start, end int) {
	w.products.begin(start, end, w.key)
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
	w.products.scores(q0, rows, n, q, w.s)
	lse := w.lse[(w.b*w.h+q)*w.t-w.b*w.t:]
	for i := range rows {
		row := w.s[i*n : (i+1)*n]
		seen := row[:q0-start+i+1]
		// Rounded, or arm64 would fuse the product into the sum below.
		top := float32(asm.Max(seen) * w.scale)
		sum := asm.ExpSum(seen, seen, w.scale, top)
		w.sums[i] = sum
		clear(row[len(seen):])
		lse[q0+i] = top + float32(math.Log(float64(sum)))
	}
	// Dividing the C outputs is less work than dividing the n weights.
	w.products.output(q0, rows, n, q, w.s, w.sums[:rows])
}

func attentionBwdFast(h gpu.Host, a *AttentionBwdArgs) func() {
	k, pool := newHeads(h, a.Seg, a.T, a.H, a.KV, a.C), h.Pool()
	lse, threads := gpu.Float32s(h, a.LSE), pool.Threads()
	strips := h.Scratch("attn.scores", threads*k.strip)
	dstrips := h.Scratch("attn.dscores", threads*k.strip)
	products := backwardProducts32
	if a.QKV.DType == gpu.BF16 {
		products = backwardProducts16
	}
	work := make([]attnBackward, threads)
	for i, p := range products(h, a, k) {
		w := &work[i]
		*w = attnBackward{heads: k, products: p, lse: lse, s: share(strips, i, k.strip), ds: share(dstrips, i, k.strip)}
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

// attnBackward is one worker's backward pass over one (row, key head). It adds
// blocks, and inside a block query heads, in rising order.
type attnBackward struct {
	*heads
	products backwardProducts
	lse      []float32
	s, ds    []float32
	b, key   int
	body     func(start, end int) // document, bound once
}

// backwardProducts are the matrix products of the backward pass of one worker, in
// the type of its operands. Rows are row numbers of the buffers.
type backwardProducts interface {
	// begin prepares the keys and values of key head key in rows [start,end), and
	// sets their gradients to zero.
	begin(start, end, key int)
	// scores sets s and ds, rows x n, to rows q0 and on of query head q times the
	// first n keys, and to those of the output's gradient times the first n values.
	scores(q0, rows, n, q int, s, ds []float32)
	// dot is row n of the output times its gradient, in query head q.
	dot(n, q int) float32
	// gradients sets rows q0 and on of the gradient of query head q to ds times the
	// first n keys, and adds transpose(ds) times the queries and transpose(s) times the
	// output's gradient to those of the first n keys and values.
	gradients(q0, rows, n, q int, s, ds []float32)
	// end completes the gradients of keys and values.
	end()
}

func (w *attnBackward) document(start, end int) {
	w.products.begin(start, end, w.key)
	group := w.h / w.kv
	for q0 := start; q0 < end; q0 += w.rows {
		for q := w.key * group; q < (w.key+1)*group; q++ {
			w.block(start, q0, min(q0+w.rows, end), q)
		}
	}
	w.products.end()
}

// block takes rows [q0,q1) of query head q back to the document so far.
func (w *attnBackward) block(start, q0, q1, q int) {
	n, rows := q1-start, q1-q0
	w.products.scores(q0, rows, n, q, w.s, w.ds)
	lse := w.lse[(w.b*w.h+q)*w.t-w.b*w.t:]
	for i := range rows {
		seen := q0 - start + i + 1
		p, dp := w.s[i*n:(i+1)*n], w.ds[i*n:(i+1)*n]
		asm.ExpSum(p[:seen], p[:seen], w.scale, lse[q0+i])
		asm.DSoftmax(p[:seen], dp[:seen], w.products.dot(q0+i, q), w.scale)
		clear(p[seen:])
		clear(dp[seen:])
	}
	w.products.gradients(q0, rows, n, q, w.s, w.ds)
}
