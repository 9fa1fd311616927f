package kernels

import (
	"math/bits"

	"refrain/gpu"
	"refrain/internal/num"
)

// RepeatRowsArgs are the arguments of RepeatRows.
type RepeatRowsArgs struct {
	Out    gpu.Tensor // [2B,T] i32
	In     gpu.Tensor // [B,T] i32
	Shards int        // equal parts of the rows; divides B
}

// RepeatRows writes every row twice, part by part: the rows of a part, then the same
// rows again, then those of the next part. So each part of the output is made of one
// part of the input.
var RepeatRows = Kernel[RepeatRowsArgs]{
	Name: "repeat_rows",
	Check: func(a *RepeatRowsArgs) error {
		var c checker
		in := c.ranked("in", a.In, gpu.I32, 2)
		c.i32("out", a.Out, 2*in[0], in[1])
		c.parts(in[0], a.Shards)
		c.apart(names{{"out", a.Out}}, names{{"in", a.In}})
		return c.err
	},
	Access: func(a *RepeatRowsArgs) (reads, writes []gpu.Span) { return spans(a.In), spans(a.Out) },
	Cost:   func(a *RepeatRowsArgs) gpu.Cost { return gpu.Cost{Bytes: bytesOf(a.In, a.Out)} },
	Ref:    func(h gpu.Host, a *RepeatRowsArgs) { repeatRows(h, a)() },
	Wide:   func(h WideHost, a *RepeatRowsArgs) { repeatRows(h, a)() },
	Fast:   repeatRows,
	CUDA:   repeatRowsCUDA,
}

// parts demands that a number of rows divides into parts.
func (c *checker) parts(rows, shards int) {
	if shards < 1 || rows%shards != 0 {
		c.failf("%d rows do not divide into %d parts", rows, shards)
	}
}

// twice returns where row r of [B,T] and its copy stand in [2B,T].
func twice(r, rows, shards int) (first, second int) {
	m := rows / shards
	first = r/m*2*m + r%m
	return first, first + m
}

func repeatRows(h gpu.Host, a *RepeatRowsArgs) func() {
	out, in := gpu.Int32s(h, a.Out), gpu.Int32s(h, a.In)
	b, t := a.In.Dim(0), a.In.Dim(1)
	return func() {
		for r := range b {
			row := in[r*t : (r+1)*t]
			i, j := twice(r, b, a.Shards)
			copy(out[i*t:], row)
			copy(out[j*t:], row)
		}
	}
}

// MaskRowsArgs are the arguments of MaskRows.
type MaskRowsArgs struct {
	Out    gpu.Tensor // [2B,T] i32
	Tokens gpu.Tensor // [B,T] i32
	Draw   gpu.Tensor // [4] i32: see DrawWords

	From, To float64 // range of the share of its tokens that a row loses, in [0,1]
	ID       int     // what a lost token becomes; -1 for any of Vocab at random
	Vocab    int
	Row      int // row of the batch that Tokens begins with, counted from the first of Draw
	Shards   int // equal parts of the rows; divides B
}

// MaskRows writes every row twice, as RepeatRows does, and replaces tokens of the second
// copy: each with the same probability, which is drawn for every row from [From,To].
// Everything is a pure function of Draw and the place in the global batch.
var MaskRows = Kernel[MaskRowsArgs]{
	Name: "mask_rows",
	Check: func(a *MaskRowsArgs) error {
		var c checker
		in := c.ranked("tokens", a.Tokens, gpu.I32, 2)
		c.i32("out", a.Out, 2*in[0], in[1])
		c.i32("draw", a.Draw, drawLen)
		c.parts(in[0], a.Shards)
		if !(a.From >= 0 && a.From <= a.To && a.To <= 1) {
			c.failf("share from %v to %v, want 0 <= from <= to <= 1", a.From, a.To)
		}
		c.positive("vocab", a.Vocab)
		if a.ID < -1 || a.ID >= a.Vocab {
			c.failf("id %d is outside [0,%d) and not -1", a.ID, a.Vocab)
		}
		if a.Row < 0 {
			c.failf("row is %d, want at least 0", a.Row)
		}
		c.apart(names{{"out", a.Out}}, names{{"tokens", a.Tokens}, {"draw", a.Draw}})
		return c.err
	},
	Access: func(a *MaskRowsArgs) (reads, writes []gpu.Span) { return spans(a.Tokens, a.Draw), spans(a.Out) },
	Cost:   func(a *MaskRowsArgs) gpu.Cost { return gpu.Cost{Bytes: bytesOf(a.Tokens, a.Out)} },
	Ref:    func(h gpu.Host, a *MaskRowsArgs) { maskRows(h, a)() },
	Wide:   func(h WideHost, a *MaskRowsArgs) { maskRows(h, a)() },
	Fast:   maskRows,
	CUDA:   maskRowsCUDA,
}

func maskRows(h gpu.Host, a *MaskRowsArgs) func() {
	out, in, draw := gpu.Int32s(h, a.Out), gpu.Int32s(h, a.Tokens), gpu.Int32s(h, a.Draw)
	b, t := a.Tokens.Dim(0), a.Tokens.Dim(1)
	return func() {
		key, first := drawKey(draw), drawRow(draw)+uint64(a.Row)
		shares, tokens := num.NewStream("mask share", key), num.NewStream("mask", key)
		for r := range b {
			i, j := twice(r, b, a.Shards)
			copy(out[i*t:], in[r*t:(r+1)*t])
			g := first + uint64(r)
			share := a.From + float64((a.To-a.From)*shares.Float64(g))
			bound := uint64(share * (1 << 32)) // of 32 random bits
			for k, tok := range in[r*t : (r+1)*t] {
				if w := tokens.Uint64(g*uint64(t) + uint64(k)); w>>32 < bound {
					tok = a.replacement(uint32(w))
				}
				out[j*t+k] = tok
			}
		}
	}
}

// replacement is what a lost token becomes, given 32 random bits.
func (a *MaskRowsArgs) replacement(random uint32) int32 {
	if a.ID >= 0 {
		return int32(a.ID)
	}
	hi, _ := bits.Mul32(random, uint32(a.Vocab))
	return int32(hi)
}
