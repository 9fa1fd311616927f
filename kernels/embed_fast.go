package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
)

// Grains of parallel loops: how many rows or elements a worker takes at once.
// They are constants, so that the borders of chunks do not depend on threads.
const (
	rowGrain     = 32
	elementGrain = 16384 // 64 KiB of float32: a few microseconds of streaming
)

func embedFast(h gpu.Host, a *EmbedArgs) func() {
	out, w, tokens := gpu.Float32s(h, a.Out), gpu.Float32s(h, a.W), gpu.Int32s(h, a.Tokens)
	v, d, pool := a.W.Dim(0), a.W.Dim(1), h.Pool()
	rows := func(_, lo, hi int) {
		for n := lo; n < hi; n++ {
			checkToken("embed", n, tokens[n], v)
			copy(out[n*d:(n+1)*d], w[int(tokens[n])*d:])
		}
	}
	return func() { pool.For(len(tokens), rowGrain, rows) }
}

// embedBwdFast sorts positions by token with a counting sort, which is stable,
// then gives each vocabulary row to one worker, who adds its positions in
// rising order.
func embedBwdFast(h gpu.Host, a *EmbedBwdArgs) func() {
	dw, dx, tokens := gpu.Float32s(h, a.DW), gpu.Float32s(h, a.DX), gpu.Int32s(h, a.Tokens)
	v, d, pool := a.DW.Dim(0), a.DW.Dim(1), h.Pool()
	end := make([]int32, v+1) // positions of token t are order[end[t]:end[t+1]] after sorting
	order := make([]int32, len(tokens))
	rows := func(_, lo, hi int) {
		for t := lo; t < hi; t++ {
			row := dw[t*d : (t+1)*d]
			if !a.Accumulate {
				clear(row)
			}
			for _, n := range order[end[t]:end[t+1]] {
				asm.Add(row, dx[int(n)*d:(int(n)+1)*d])
			}
		}
	}
	return func() {
		sortByToken(end, order, tokens)
		pool.For(v, rowGrain, rows)
	}
}

// sortByToken fills order with the positions of tokens, by token and then by
// position, and end so that order[end[t]:end[t+1]] are those of token t.
func sortByToken(end, order, tokens []int32) {
	v := len(end) - 1
	clear(end)
	for n, tok := range tokens {
		checkToken("embed_bwd", n, tok, v)
		end[tok+1]++
	}
	for t := range v {
		end[t+1] += end[t]
	}
	// end[t] is where token t begins; placing from the back keeps that.
	for n := len(tokens) - 1; n >= 0; n-- {
		tok := tokens[n]
		end[tok+1]--
		order[end[tok+1]] = int32(n)
	}
	// Now end[t+1] is where token t begins: move down by one.
	copy(end, end[1:])
	end[v] = int32(len(tokens))
}
