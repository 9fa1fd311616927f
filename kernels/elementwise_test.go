package kernels

import (
	"fmt"
	"testing"
)

func fillSuite() suite {
	s := suite{kernel: "fill", noGrad: "a constant", wrong: map[string]func(*builder) error{}}
	for _, n := range flatSizes {
		s.cases = append(s.cases, exactly(&Fill, fmt.Sprint(n), func(b *builder) FillArgs { return FillArgs{X: b.Out("x", n), Value: 1.5} }))
	}
	s.wrong["x is bf16[3]; today this op takes f32 only"] = refuse(&Fill, func(b *builder) FillArgs { return FillArgs{X: bf16(b.Out("x", 3))} })
	return s
}

func copySuite() suite {
	s := suite{kernel: "copy", noGrad: "the identity", wrong: map[string]func(*builder) error{}}
	for _, n := range flatSizes {
		s.cases = append(s.cases, exactly(&Copy, fmt.Sprint(n), func(b *builder) CopyArgs { return CopyArgs{Dst: b.Out("dst", n), Src: b.Normal("src", 1, n)} }))
	}
	s.wrong["dst is f32[2 2], want 3 elements"] = refuse(&Copy, func(b *builder) CopyArgs { return CopyArgs{Dst: b.Out("dst", 2, 2), Src: b.Normal("src", 1, 3)} })
	s.wrong["dst and src share memory"] = refuse(&Copy, func(b *builder) CopyArgs {
		x := b.Normal("x", 1, 9)
		return CopyArgs{Dst: x.View(0, 5), Src: x.View(4, 5)}
	})
	return s
}

func castSuite() suite {
	s := suite{kernel: "cast", noGrad: "the identity but for rounding", wrong: map[string]func(*builder) error{}}
	args := func(n int) func(b *builder) CastArgs {
		return func(b *builder) CastArgs {
			b.Halve("dst")
			return CastArgs{Dst: b.Out("dst", n), Src: b.Normal("src", 1, n)}
		}
	}
	for _, n := range flatSizes {
		s.cases = append(s.cases, exactly(&Cast, fmt.Sprint(n), args(n)))
	}
	s.wrong["dst is bf16[4], want 3 elements"] = refuse(&Cast, func(b *builder) CastArgs {
		a := args(4)(b)
		a.Src = b.Normal("short", 1, 3)
		return a
	})
	s.wrong["dst is f32[3]; today this op takes bf16 only"] = refuse(&Cast, func(b *builder) CastArgs {
		return CastArgs{Dst: b.Out("dst", 3), Src: b.Normal("src", 1, 3)}
	})
	return s
}

func addToSuite() suite {
	s := suite{kernel: "add_to", noGrad: "the identity twice", wrong: map[string]func(*builder) error{}}
	for _, n := range flatSizes {
		s.cases = append(s.cases, exactly(&AddTo, fmt.Sprint(n), func(b *builder) AddToArgs { return AddToArgs{Dst: b.Normal("dst", 1, n), Src: b.Normal("src", 1, n)} }))
	}
	s.wrong["dst is f32[4], want 3 elements"] = refuse(&AddTo, func(b *builder) AddToArgs { return AddToArgs{Dst: b.Normal("dst", 1, 4), Src: b.Normal("src", 1, 3)} })
	return s
}

func BenchmarkCopy(b *testing.B) {
	bench(b, &Copy, func(b *builder) CopyArgs { return CopyArgs{Dst: b.Out("dst", 1<<20), Src: b.Normal("src", 1, 1<<20)} })
}

func BenchmarkAddTo(b *testing.B) {
	bench(b, &AddTo, func(b *builder) AddToArgs {
		return AddToArgs{Dst: b.Normal("dst", 1, 1<<20), Src: b.Normal("src", 1, 1<<20)}
	})
}
