package kernels

import (
	"fmt"
	"slices"
	"testing"

	"refrain/gpu"
)

// bitmap packs the positions where documents start, rows of t positions.
func bitmap(b *builder, rows, t int, starts ...int) gpu.Tensor {
	stride := (t + 7) / 8
	bits := make([]byte, rows*stride)
	for _, p := range starts {
		bits[p/t*stride+p%t/8] |= 1 << (p % t % 8)
	}
	return b.Bytes("starts", func(i int) byte { return bits[i] }, rows, stride)
}

func segmentsSuite() suite {
	s := suite{kernel: "segments", noGrad: "positions have no derivative", wrong: map[string]func(*builder) error{}}
	for _, c := range [][2]int{{1, 1}, {2, 7}, {3, 8}, {2, 65}} {
		for _, mask := range []bool{false, true} {
			s.cases = append(s.cases, exactly(&Segments, fmt.Sprint(c, mask), func(b *builder) SegmentsArgs {
				return SegmentsArgs{Starts: bitmap(b, c[0], c[1], 0, c[1]/2, c[0]*c[1]-1), Seg: b.OutInts("seg", c[0], c[1]), Mask: mask}
			}))
		}
	}
	s.wrong["starts is u8[2 1], want u8[2 2]"] = refuse(&Segments, func(b *builder) SegmentsArgs {
		return SegmentsArgs{Starts: bitmap(b, 2, 8), Seg: b.OutInts("seg", 2, 9)}
	})
	s.wrong["seg is f32[2 8]; today this op takes i32 only"] = refuse(&Segments, func(b *builder) SegmentsArgs {
		return SegmentsArgs{Starts: bitmap(b, 2, 8), Seg: b.Out("seg", 2, 8)}
	})
	return s
}

// TestSegments spells the definition out: two rows of ten, the first begins in
// the middle of a document, the second has documents of one token.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		mask bool
		want []int32
	}{
		{true, []int32{0, 0, 0, 3, 3, 3, 3, 3, 8, 8 /**/, 0, 1, 2, 2, 2, 2, 2, 2, 2, 9}},
		{false, make([]int32, 20)},
	} {
		b := &builder{}
		a := SegmentsArgs{Starts: bitmap(b, 2, 10, 3, 8, 10, 11, 12, 19), Seg: b.OutInts("seg", 2, 10), Mask: c.mask}
		h, run := bind(t, b, must(t, &Segments, a), 1, false)
		run()
		if got := gpu.Int32s(h, a.Seg); !slices.Equal(got, c.want) {
			t.Errorf("mask %v: %v, want %v", c.mask, got, c.want)
		}
	}
}

func BenchmarkSegments(b *testing.B) {
	bench(b, &Segments, func(b *builder) SegmentsArgs {
		return SegmentsArgs{Starts: bitmap(b, 8, 512, 100, 1000, 2000), Seg: b.OutInts("seg", 8, 512), Mask: true}
	})
}
