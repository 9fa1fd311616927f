package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
)

func decodeArgs(b *builder, rows, limit, h, kv, c int) AttnDecodeArgs {
	return AttnDecodeArgs{
		O: b.Out("o", rows, h*c), QKV: b.Normal("qkv", 1, rows, (h+2*kv)*c),
		KCache: b.Normal("kcache", 1, rows, kv, limit, c), VCache: b.Normal("vcache", 1, rows, kv, limit, c),
		Pos: b.Random("pos", 0, limit, rows), H: h, KV: kv, C: c,
	}
}

func attnDecodeSuite() suite {
	s := suite{kernel: "attn_decode", noGrad: "only decoding uses it", wrong: map[string]func(*builder) error{}}
	for _, c := range [][5]int{{1, 1, 1, 1, 1}, {3, 9, 4, 2, 6}, {5, 100, 3, 3, 32}, {2, 70, 8, 1, 16}} {
		s.cases = append(s.cases, of(&AttnDecode, fmt.Sprint(c), func(b *builder) AttnDecodeArgs { return decodeArgs(b, c[0], c[1], c[2], c[3], c[4]) }))
	}
	s.wrong["kcache and vcache share memory"] = refuse(&AttnDecode, func(b *builder) AttnDecodeArgs {
		a := decodeArgs(b, 2, 9, 2, 1, 4)
		a.VCache = a.KCache
		return a
	})
	s.wrong["pos is i32[3], want i32[2]"] = refuse(&AttnDecode, func(b *builder) AttnDecodeArgs {
		a := decodeArgs(b, 2, 9, 2, 1, 4)
		a.Pos = b.Random("three", 0, 9, 3)
		return a
	})
	return s
}

// TestDecodeIsAttention feeds a sequence one token at a time through the
// caches, which start as NaN: outputs equal those of attention over the whole.
func TestDecodeIsAttention(t *testing.T) {
	s := shape{1, 30, 4, 2, 8}
	value := func(i int) float64 { return math.Sin(float64(i) * 1.7) }
	want, _ := attend(t, s, true, nil, value, value)
	for _, reference := range []bool{true, false} {
		b := &builder{}
		a := AttnDecodeArgs{
			O: b.Out("o", 1, s.h*s.c), QKV: b.Out("qkv", 1, s.q()), Pos: b.Ints("pos", func(int) int { return 0 }, 1),
			KCache: b.Out("kcache", 1, s.kv, s.t, s.c), VCache: b.Out("vcache", 1, s.kv, s.t, s.c), H: s.h, KV: s.kv, C: s.c,
		}
		h, run := bind(t, b, must(t, &AttnDecode, a), 2, reference)
		for p := range s.t {
			gpu.Int32s(h, a.Pos)[0] = int32(p)
			for i := range s.q() {
				gpu.Float32s(h, a.QKV)[i] = float32(value(p*s.q() + i))
			}
			run()
			if err := num.Check(gpu.Float32s(h, a.O), want[p*s.h*s.c:(p+1)*s.h*s.c], num.Float32); err != nil {
				t.Fatalf("reference %v, position %d: %v", reference, p, err)
			}
		}
		gpu.Int32s(h, a.Pos)[0] = int32(s.t)
		if msg := panics(run); !strings.Contains(msg, "position 30 of row 0 is outside [0,30)") {
			t.Errorf("beyond the cache: %q", msg)
		}
	}
}

func BenchmarkAttnDecode(b *testing.B) {
	bench(b, &AttnDecode, func(b *builder) AttnDecodeArgs {
		a := decodeArgs(b, 1, 512, 5, 5, 64)
		a.Pos = b.Ints("last", func(int) int { return 511 }, 1)
		return a
	})
}
