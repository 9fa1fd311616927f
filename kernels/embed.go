package kernels

import (
	"fmt"

	"refrain/gpu"
)

// EmbedArgs are the arguments of Embed.
type EmbedArgs struct {
	Out    gpu.Tensor // [N,D] f32
	Tokens gpu.Tensor // [N] i32, each in [0,V)
	W      gpu.Tensor // [V,D] f32
}

// Embed looks rows up: out[n] = w[tokens[n]].
var Embed = Kernel[EmbedArgs]{
	Name: "embed",
	Check: func(a *EmbedArgs) error {
		var c checker
		w := c.ranked("w", a.W, gpu.F32, 2)
		o := c.ranked("out", a.Out, gpu.F32, 2)
		c.f32("out", a.Out, o[0], w[1])
		c.i32("tokens", a.Tokens, o[0])
		c.apart(names{{"out", a.Out}}, names{{"tokens", a.Tokens}, {"w", a.W}})
		return c.err
	},
	Access: func(a *EmbedArgs) (reads, writes []gpu.Span) {
		return spans(a.Tokens, a.W), spans(a.Out)
	},
	Cost: func(a *EmbedArgs) gpu.Cost {
		return gpu.Cost{Bytes: bytesOf(a.Out, a.Out, a.Tokens)}
	},
	Ref:  func(h gpu.Host, a *EmbedArgs) { embedRef(narrow(h), a) },
	Wide: func(h WideHost, a *EmbedArgs) { embedRef(wide(h), a) },
	Fast: embedFast,
	CUDA: embedCUDA,
}

func embedRef[T real](m memory[T], a *EmbedArgs) {
	out, w, tokens := m.reals(a.Out), m.reals(a.W), m.ints(a.Tokens)
	v, d := a.W.Dim(0), a.W.Dim(1)
	for n, tok := range tokens {
		checkToken("embed", n, tok, v)
		copy(out[n*d:(n+1)*d], w[int(tok)*d:])
	}
}

// checkToken stops on an id that is no row of the table.
func checkToken(op string, n int, tok int32, v int) {
	if uint32(tok) >= uint32(v) {
		panic(fmt.Sprintf("%s: token %d at position %d is outside [0,%d); ids are checked where batches are built", op, tok, n, v))
	}
}

// EmbedBwdArgs are the arguments of EmbedBwd.
type EmbedBwdArgs struct {
	DW         gpu.Tensor // [V,D] f32
	DX         gpu.Tensor // [N,D] f32
	Tokens     gpu.Tensor // [N] i32, each in [0,V)
	Accumulate bool
}

// EmbedBwd is the gradient of Embed: dw[v] (+)= sum of dx[n] over the n with
// tokens[n] = v, in rising n. Without Accumulate every row of dw is written,
// zero where the token does not occur.
var EmbedBwd = Kernel[EmbedBwdArgs]{
	Name: "embed_bwd",
	Check: func(a *EmbedBwdArgs) error {
		var c checker
		w := c.ranked("dw", a.DW, gpu.F32, 2)
		x := c.ranked("dx", a.DX, gpu.F32, 2)
		c.f32("dx", a.DX, x[0], w[1])
		c.i32("tokens", a.Tokens, x[0])
		c.apart(names{{"dw", a.DW}}, names{{"tokens", a.Tokens}, {"dx", a.DX}})
		return c.err
	},
	Access: func(a *EmbedBwdArgs) (reads, writes []gpu.Span) {
		reads = spans(a.DX, a.Tokens)
		if a.Accumulate {
			reads = append(reads, a.DW.Span)
		}
		return reads, spans(a.DW)
	},
	Cost: func(a *EmbedBwdArgs) gpu.Cost {
		c := gpu.Cost{FLOPs: float64(a.DX.Elems()), Bytes: bytesOf(a.DX, a.Tokens)}
		if a.Accumulate {
			c.Bytes += 2 * bytesOf(a.DX) // at most the rows that occur
		} else {
			c.Bytes += bytesOf(a.DW)
		}
		return c
	},
	Ref:  func(h gpu.Host, a *EmbedBwdArgs) { embedBwdRef(narrow(h), a) },
	Wide: func(h WideHost, a *EmbedBwdArgs) { embedBwdRef(wide(h), a) },
	Fast: embedBwdFast,
	CUDA: embedBwdCUDA,
}

func embedBwdRef[T real](m memory[T], a *EmbedBwdArgs) {
	dw, dx, tokens := m.reals(a.DW), m.reals(a.DX), m.ints(a.Tokens)
	v, d := a.DW.Dim(0), a.DW.Dim(1)
	sum := make([]float64, v*d)
	if a.Accumulate {
		for i, g := range dw {
			sum[i] = float64(g)
		}
	}
	for n, tok := range tokens {
		checkToken("embed_bwd", n, tok, v)
		row := sum[int(tok)*d : (int(tok)+1)*d]
		for i := range row {
			row[i] += float64(dx[n*d+i])
		}
	}
	for i, s := range sum {
		dw[i] = T(s)
	}
}
