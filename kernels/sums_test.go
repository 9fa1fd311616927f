package kernels

import (
	"fmt"
	"testing"
)

// flatSizes are sizes around the grains.
var flatSizes = []int{1, 5, 1024, 1025, SumBlock, SumBlock + 1, 3*SumBlock + 77}

func sumLossSuite() suite {
	s := suite{kernel: "sum_loss", noGrad: "the gradient of a sum is a constant; head_loss carries it", wrong: map[string]func(*builder) error{}}
	for _, n := range flatSizes {
		s.cases = append(s.cases, of(&SumLoss, fmt.Sprint(n), func(b *builder) SumLossArgs {
			return SumLossArgs{Out: b.Out("out", 1), X: b.Values("x", func(i int) float64 { return 3 + float64(i%7) }, n)}
		}))
	}
	s.wrong["out is f32[2], want f32[1]"] = refuse(&SumLoss, func(b *builder) SumLossArgs {
		return SumLossArgs{Out: b.Out("out", 2), X: b.Normal("x", 1, 3)}
	})
	return s
}

func sumSquaresSuite() suite {
	s := suite{kernel: "sum_squares", noGrad: "the norm of a gradient is not differentiated", wrong: map[string]func(*builder) error{}}
	for _, n := range flatSizes {
		s.cases = append(s.cases, of(&SumSquares, fmt.Sprint(n), func(b *builder) SumSquaresArgs {
			return SumSquaresArgs{Out: b.Out("out", 1), X: b.Normal("x", 1, n)}
		}))
	}
	s.cases = append(s.cases,
		of(&SumSquares, "two axes", func(b *builder) SumSquaresArgs {
			return SumSquaresArgs{Out: b.Out("out", 1), X: b.Normal("x", 1, 37, 11)}
		}))
	s.wrong["x is missing"] = refuse(&SumSquares, func(b *builder) SumSquaresArgs { return SumSquaresArgs{Out: b.Out("out", 1)} })
	return s
}

func BenchmarkSumSquares(b *testing.B) {
	bench(b, &SumSquares, func(b *builder) SumSquaresArgs {
		return SumSquaresArgs{Out: b.Out("out", 1), X: b.Normal("x", 1, 1<<20)}
	})
}
