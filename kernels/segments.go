package kernels

import "refrain/gpu"

// SegmentsArgs are the arguments of Segments.
type SegmentsArgs struct {
	Starts gpu.Tensor // [B,ceil(T/8)] u8: bit t%8 of byte t/8 is set when a document starts at position t
	Seg    gpu.Tensor // [B,T] i32
	Mask   bool       // keep documents apart
}

// Segments turns boundary bitmaps into what attention and RoPE ask for:
// seg[b,t] is the first position of the row that belongs to the same document
// as t. It is the newest boundary at or before t, 0 when there is none, and 0
// everywhere without Mask.
var Segments = Kernel[SegmentsArgs]{
	Name: "segments",
	Check: func(a *SegmentsArgs) error {
		var c checker
		s := c.ranked("seg", a.Seg, gpu.I32, 2)
		c.is("starts", a.Starts, gpu.U8, s[0], (s[1]+7)/8)
		c.apart(names{{"seg", a.Seg}}, names{{"starts", a.Starts}})
		return c.err
	},
	Access: func(a *SegmentsArgs) (reads, writes []gpu.Span) {
		return spans(a.Starts), spans(a.Seg)
	},
	CUDA: segmentsCUDA,
	Cost: func(a *SegmentsArgs) gpu.Cost { return gpu.Cost{Bytes: bytesOf(a.Starts, a.Seg)} },
	Ref:  func(h gpu.Host, a *SegmentsArgs) { segments(h.Bytes(a.Starts.Span), gpu.Int32s(h, a.Seg), a) },
	Wide: func(h WideHost, a *SegmentsArgs) { segments(h.Bytes(a.Starts.Span), gpu.Int32s(h, a.Seg), a) },
	Fast: func(h gpu.Host, a *SegmentsArgs) func() {
		starts, seg := h.Bytes(a.Starts.Span), gpu.Int32s(h, a.Seg)
		// A few thousand integers: not worth waking a worker for.
		return func() { segments(starts, seg, a) }
	},
}

func segments(starts []byte, seg []int32, a *SegmentsArgs) {
	b, t := a.Seg.Dim(0), a.Seg.Dim(1)
	stride := (t + 7) / 8
	for r := range b {
		bits, first := starts[r*stride:], int32(0)
		for p := range t {
			if a.Mask && bits[p/8]>>(p%8)&1 == 1 {
				first = int32(p)
			}
			seg[r*t+p] = first
		}
	}
}
