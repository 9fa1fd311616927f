package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
	"refrain/kernels/gemm"
)

// from is the buffer from row n, head i on: an operand of a product whose rows
// are stride apart.
func (r headRows[T]) from(n, i int) []T { return r.buf[n*r.stride+i*r.c:] }

// packRoom is the floats a worker needs to pack the keys or values of one
// document, either way round.
func packRoom(t, c int) int {
	return (max(gemm.PackedLen(t, c), gemm.PackedLen(c, t)) + 15) &^ 15
}

// packRoom16 is packRoom for products of bf16.
func packRoom16(t, c int) int {
	return (max(gemm.PackedLen16(t, c), gemm.PackedLen16(c, t)) + 15) &^ 15
}

// forward32 are the products of Attention in f32.
type forward32 struct {
	*heads
	g            *gemm.Serial
	qkv, o       headRows[float32]
	packK, packV []float32
	keys, values gemm.Packed // of the document under way: transpose(K) and V
}

func forwardProducts32(h gpu.Host, a *AttentionArgs, k *heads) []forwardProducts {
	threads, room := h.Pool().Threads(), packRoom(a.T, a.C)
	packs := h.Scratch("attn.packed", threads*2*room)
	all := make([]forwardProducts, threads)
	for i := range all {
		all[i] = &forward32{
			heads: k, g: k.serial[i],
			qkv:   headRows[float32]{gpu.Float32s(h, a.QKV), (a.H + 2*a.KV) * a.C, a.C},
			o:     headRows[float32]{gpu.Float32s(h, a.O), a.H * a.C, a.C},
			packK: share(packs, 2*i, room), packV: share(packs, 2*i+1, room),
		}
	}
	return all
}

func (p *forward32) begin(start, end, key int) {
	n, ld := end-start, p.qkv.stride
	p.keys = gemm.PackB(p.packK, true, n, p.c, p.qkv.from(start, p.h+key), ld)
	p.values = gemm.PackB(p.packV, false, p.c, n, p.qkv.from(start, p.h+p.kv+key), ld)
}

func (p *forward32) scores(q0, rows, n, q int, s []float32) {
	p.g.GemmPacked(false, rows, n, p.c, p.qkv.from(q0, q), p.qkv.stride, p.keys, false, s, n)
}

func (p *forward32) output(q0, rows, n, q int, s, sums []float32) {
	p.g.GemmPacked(false, rows, p.c, n, s, n, p.values, false, p.o.from(q0, q), p.o.stride)
	for i, sum := range sums {
		asm.Scale(p.o.at(q0+i, q), 1/sum)
	}
}

// forward16 are the products of Attention in bf16. The weights are rounded while
// they are packed; an output is rounded once, after it has been divided.
type forward16 struct {
	*heads
	g            *gemm.Serial
	qkv, o       headRows[uint16]
	packK, packV []float32
	keys, values gemm.Packed16
	out          []float32 // [attnRows,C]
}

func forwardProducts16(h gpu.Host, a *AttentionArgs, k *heads) []forwardProducts {
	threads, room, block := h.Pool().Threads(), packRoom16(a.T, a.C), (attnRows*a.C+15)&^15
	packs, outs := h.Scratch("attn.packed", threads*2*room), h.Scratch("attn.out", threads*block)
	all := make([]forwardProducts, threads)
	for i := range all {
		all[i] = &forward16{
			heads: k, g: k.serial[i],
			qkv:   headRows[uint16]{gpu.BF16s(h, a.QKV), (a.H + 2*a.KV) * a.C, a.C},
			o:     headRows[uint16]{gpu.BF16s(h, a.O), a.H * a.C, a.C},
			packK: share(packs, 2*i, room), packV: share(packs, 2*i+1, room), out: share(outs, i, block),
		}
	}
	return all
}

func (p *forward16) begin(start, end, key int) {
	n, ld := end-start, p.qkv.stride
	p.keys = gemm.PackB16(p.packK, true, n, p.c, p.qkv.from(start, p.h+key), ld)
	p.values = gemm.PackB16(p.packV, false, p.c, n, p.qkv.from(start, p.h+p.kv+key), ld)
}

func (p *forward16) scores(q0, rows, n, q int, s []float32) {
	gemm.GemmPacked16(p.g, false, rows, n, p.c, p.qkv.from(q0, q), p.qkv.stride, p.keys, false, s, n)
}

func (p *forward16) output(q0, rows, n, q int, s, sums []float32) {
	gemm.GemmPacked16(p.g, false, rows, p.c, n, s, n, p.values, false, p.out, p.c)
	for i, sum := range sums {
		row := p.out[i*p.c : (i+1)*p.c]
		asm.Scale(row, 1/sum)
		asm.ToBF16(p.o.at(q0+i, q), row)
	}
}

// backward32 are the products of AttentionBwd in f32. Gradients of keys and values
// are summed where they are stored.
type backward32 struct {
	*heads
	g                     *gemm.Serial
	qkv, o, do, d         headRows[float32]
	packKT, packVT, packK []float32
	keysT, valuesT, keys  gemm.Packed // of the document under way
	start, key            int
}

func backwardProducts32(h gpu.Host, a *AttentionBwdArgs, k *heads) []backwardProducts {
	threads, room := h.Pool().Threads(), packRoom(a.T, a.C)
	packs := h.Scratch("attn.packed", threads*3*room)
	all := make([]backwardProducts, threads)
	for i := range all {
		all[i] = &backward32{
			heads: k, g: k.serial[i],
			qkv:    headRows[float32]{gpu.Float32s(h, a.QKV), (a.H + 2*a.KV) * a.C, a.C},
			o:      headRows[float32]{gpu.Float32s(h, a.O), a.H * a.C, a.C},
			do:     headRows[float32]{gpu.Float32s(h, a.DO), a.H * a.C, a.C},
			d:      headRows[float32]{gpu.Float32s(h, a.DQKV), (a.H + 2*a.KV) * a.C, a.C},
			packKT: share(packs, 3*i, room), packVT: share(packs, 3*i+1, room), packK: share(packs, 3*i+2, room),
		}
	}
	return all
}

func (p *backward32) begin(start, end, key int) {
	n, kh, vh, ld := end-start, p.h+key, p.h+p.kv+key, p.qkv.stride
	p.start, p.key = start, key
	for i := start; i < end; i++ {
		clear(p.d.at(i, kh))
		clear(p.d.at(i, vh))
	}
	p.keysT = gemm.PackB(p.packKT, true, n, p.c, p.qkv.from(start, kh), ld)
	p.valuesT = gemm.PackB(p.packVT, true, n, p.c, p.qkv.from(start, vh), ld)
	p.keys = gemm.PackB(p.packK, false, p.c, n, p.qkv.from(start, kh), ld)
}

func (p *backward32) scores(q0, rows, n, q int, s, ds []float32) {
	p.g.GemmPacked(false, rows, n, p.c, p.qkv.from(q0, q), p.qkv.stride, p.keysT, false, s, n)
	p.g.GemmPacked(false, rows, n, p.c, p.do.from(q0, q), p.do.stride, p.valuesT, false, ds, n)
}

func (p *backward32) dot(n, q int) float32 { return asm.Dot(p.o.at(n, q), p.do.at(n, q)) }

func (p *backward32) gradients(q0, rows, n, q int, s, ds []float32) {
	ld := p.d.stride
	p.g.GemmPacked(false, rows, p.c, n, ds, n, p.keys, false, p.d.from(q0, q), ld)
	p.g.Gemm(true, false, n, p.c, rows, ds, n, p.qkv.from(q0, q), ld, true, p.d.from(p.start, p.h+p.key), ld)
	p.g.Gemm(true, false, n, p.c, rows, s, n, p.do.from(q0, q), p.do.stride, true, p.d.from(p.start, p.h+p.kv+p.key), ld)
}

func (p *backward32) end() {}

// backward16 are the products of AttentionBwd in bf16. Gradients of keys and values
// are summed in f32 scratch and rounded at the end of their document.
type backward16 struct {
	*heads
	g                     *gemm.Serial
	qkv, o, do, d         headRows[uint16]
	packKT, packVT, packK []float32
	keysT, valuesT, keys  gemm.Packed16
	dk, dv                []float32 // [T,C] each, of the document under way
	dq                    []float32 // [attnRows,C]
	wide                  [2][]float32
	start, n, key         int
}

func backwardProducts16(h gpu.Host, a *AttentionBwdArgs, k *heads) []backwardProducts {
	threads, room := h.Pool().Threads(), packRoom16(a.T, a.C)
	sums, block := (a.T*a.C+15)&^15, (attnRows*a.C+15)&^15
	packs, grads := h.Scratch("attn.packed", threads*3*room), h.Scratch("attn.dkv", threads*2*sums)
	outs, rows := h.Scratch("attn.out", threads*block), newParts(h, 2, a.C)
	all := make([]backwardProducts, threads)
	for i := range all {
		all[i] = &backward16{
			heads: k, g: k.serial[i],
			qkv:    headRows[uint16]{gpu.BF16s(h, a.QKV), (a.H + 2*a.KV) * a.C, a.C},
			o:      headRows[uint16]{gpu.BF16s(h, a.O), a.H * a.C, a.C},
			do:     headRows[uint16]{gpu.BF16s(h, a.DO), a.H * a.C, a.C},
			d:      headRows[uint16]{gpu.BF16s(h, a.DQKV), (a.H + 2*a.KV) * a.C, a.C},
			packKT: share(packs, 3*i, room), packVT: share(packs, 3*i+1, room), packK: share(packs, 3*i+2, room),
			dk: share(grads, 2*i, sums), dv: share(grads, 2*i+1, sums), dq: share(outs, i, block),
			wide: [2][]float32{rows.at(i, 0, a.C), rows.at(i, 1, a.C)},
		}
	}
	return all
}

func (p *backward16) begin(start, end, key int) {
	kh, vh, ld := p.h+key, p.h+p.kv+key, p.qkv.stride
	p.start, p.n, p.key = start, end-start, key
	clear(p.dk[:p.n*p.c])
	clear(p.dv[:p.n*p.c])
	p.keysT = gemm.PackB16(p.packKT, true, p.n, p.c, p.qkv.from(start, kh), ld)
	p.valuesT = gemm.PackB16(p.packVT, true, p.n, p.c, p.qkv.from(start, vh), ld)
	p.keys = gemm.PackB16(p.packK, false, p.c, p.n, p.qkv.from(start, kh), ld)
}

func (p *backward16) scores(q0, rows, n, q int, s, ds []float32) {
	gemm.GemmPacked16(p.g, false, rows, n, p.c, p.qkv.from(q0, q), p.qkv.stride, p.keysT, false, s, n)
	gemm.GemmPacked16(p.g, false, rows, n, p.c, p.do.from(q0, q), p.do.stride, p.valuesT, false, ds, n)
}

func (p *backward16) dot(n, q int) float32 {
	asm.FromBF16(p.wide[0], p.o.at(n, q))
	asm.FromBF16(p.wide[1], p.do.at(n, q))
	return asm.Dot(p.wide[0], p.wide[1])
}

func (p *backward16) gradients(q0, rows, n, q int, s, ds []float32) {
	gemm.GemmPacked16(p.g, false, rows, p.c, n, ds, n, p.keys, false, p.dq, p.c)
	p.store(p.dq, q0, rows, q)
	gemm.Gemm16(p.g, true, false, n, p.c, rows, ds, n, p.qkv.from(q0, q), p.qkv.stride, true, p.dk, p.c)
	gemm.Gemm16(p.g, true, false, n, p.c, rows, s, n, p.do.from(q0, q), p.do.stride, true, p.dv, p.c)
}

func (p *backward16) end() {
	p.store(p.dk, p.start, p.n, p.h+p.key)
	p.store(p.dv, p.start, p.n, p.h+p.kv+p.key)
}

// store rounds rows of C values into head i of the gradient from row n on.
func (p *backward16) store(x []float32, n, rows, i int) {
	for r := range rows {
		asm.ToBF16(p.d.at(n+r, i), x[r*p.c:(r+1)*p.c])
	}
}
