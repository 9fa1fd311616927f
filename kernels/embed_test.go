package kernels

import (
	"fmt"
	"strings"
	"testing"

	"refrain/kernels/kerneltest"
)

func embedArgs(b *builder, n, v, d int) EmbedArgs {
	return EmbedArgs{Out: b.Out("out", n, d), Tokens: b.Random("tokens", 0, v, n), W: b.Normal("w", 1, v, d)}
}

func embedSuite() suite {
	s := suite{kernel: "embed", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range [][3]int{{1, 1, 1}, {1, 7, 3}, {33, 5, 17}, {200, 300, 40}} {
		s.cases = append(s.cases, exactly(&Embed, fmt.Sprint(c), func(b *builder) EmbedArgs { return embedArgs(b, c[0], c[1], c[2]) }))
	}
	s.gradients["repeated tokens"] = embedGradient
	s.wrong["out is f32[4 3], want f32[4 2]"] = refuse(&Embed, func(b *builder) EmbedArgs {
		return EmbedArgs{Out: b.Out("out", 4, 3), Tokens: b.Random("tokens", 0, 5, 4), W: b.Normal("w", 1, 5, 2)}
	})
	s.wrong["today this op takes f32 only"] = refuse(&Embed, func(b *builder) EmbedArgs {
		a := embedArgs(b, 4, 5, 2)
		a.W = bf16(a.W)
		return a
	})
	return s
}

func embedGradient(t testing.TB, b *builder) kerneltest.Gradient {
	a := embedArgs(b, 9, 5, 3)
	dx, dw := b.Normal("dx", 1, 9, 3), b.Out("dw", 5, 3)
	return kerneltest.Gradient{
		Forward:  ops(must(t, &Embed, a)),
		Backward: ops(must(t, &EmbedBwd, EmbedBwdArgs{DW: dw, DX: dx, Tokens: a.Tokens})),
		Outs:     tensors(a.Out), Cotangents: tensors(dx),
		Inputs: tensors(a.W), Grads: tensors(dw),
	}
}

func embedBwdArgs(b *builder, n, v, d int, acc bool) EmbedBwdArgs {
	a := EmbedBwdArgs{DX: b.Normal("dx", 1, n, d), Tokens: b.Random("tokens", 0, v, n), Accumulate: acc}
	if acc {
		a.DW = b.Normal("dw", 1, v, d)
	} else {
		a.DW = b.Out("dw", v, d)
	}
	return a
}

func embedBwdSuite() suite {
	s := suite{kernel: "embed_bwd", noGrad: "checked with embed", wrong: map[string]func(*builder) error{}}
	for _, c := range [][3]int{{1, 1, 1}, {3, 70, 5}, {500, 3, 16}, {333, 257, 33}} {
		for _, acc := range []bool{false, true} {
			s.cases = append(s.cases, of(&EmbedBwd, fmt.Sprint(c, acc), func(b *builder) EmbedBwdArgs { return embedBwdArgs(b, c[0], c[1], c[2], acc) }))
		}
	}
	s.wrong["share memory"] = refuse(&EmbedBwd, func(b *builder) EmbedBwdArgs {
		a := embedBwdArgs(b, 4, 4, 2, true)
		a.DX = a.DW
		return a
	})
	return s
}

func TestEmbedRefusesTokensOutsideTheTable(t *testing.T) {
	for _, reference := range []bool{true, false} {
		for _, bad := range []int{-1, 5} {
			b := &builder{}
			tokens := b.Ints("tokens", func(i int) int { return bad * (i & 1) }, 4)
			_, fwd := bind(t, b, must(t, &Embed, EmbedArgs{Out: b.Out("out", 4, 2), Tokens: tokens, W: b.Normal("w", 1, 5, 2)}), 1, reference)
			want := fmt.Sprintf("token %d at position 1 is outside [0,5)", bad)
			if msg := panics(fwd); !strings.Contains(msg, want) {
				t.Errorf("forward: %q, want %q", msg, want)
			}
			b = &builder{}
			tokens = b.Ints("tokens", func(i int) int { return bad * (i & 1) }, 4)
			_, bwd := bind(t, b, must(t, &EmbedBwd, EmbedBwdArgs{DW: b.Out("dw", 5, 2), Tokens: tokens, DX: b.Normal("dx", 1, 4, 2)}), 1, reference)
			if msg := panics(bwd); !strings.Contains(msg, want) {
				t.Errorf("backward: %q, want %q", msg, want)
			}
		}
	}
}

func TestSortByToken(t *testing.T) {
	tokens := []int32{2, 0, 2, 1, 2, 0, 4}
	end, order := make([]int32, 6), make([]int32, len(tokens))
	sortByToken(end, order, tokens)
	if got, want := fmt.Sprint(end, order), "[0 2 3 6 6 7] [1 5 3 0 2 4 6]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkEmbed(b *testing.B) {
	bench(b, &Embed, func(b *builder) EmbedArgs { return embedArgs(b, 4096, 4096, 320) })
}

func BenchmarkEmbedBwd(b *testing.B) {
	bench(b, &EmbedBwd, func(b *builder) EmbedBwdArgs { return embedBwdArgs(b, 4096, 4096, 320, false) })
}
