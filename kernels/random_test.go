package kernels

import (
	"fmt"
	"slices"
	"testing"

	"refrain/internal/num"
	"refrain/kernels/kerneltest"
)

// draw hands out small sizes from one stream, so that a failing shape is
// found again from the number in its name.
type draw struct {
	s num.Stream
	i uint64
}

// upTo returns a size in [1,n].
func (d *draw) upTo(n int) int {
	d.i++
	return 1 + int(d.s.Uintn(d.i, uint64(n)))
}

func (d *draw) coin() bool { return d.upTo(2) == 2 }

// shape draws an arrangement of attention with documents.
func (d *draw) shape() (s shape, docs []int) {
	kv := d.upTo(3)
	s = shape{d.upTo(3), d.upTo(230), kv * d.upTo(3), kv, d.upTo(40)}
	for range d.upTo(5) - 1 {
		docs = append(docs, d.upTo(s.t)-1)
	}
	slices.Sort(docs)
	return s, docs
}

// maybeHalved is of, in every second draw with these tensors in bfloat16.
func maybeHalved[A any](d *draw, k *Kernel[A], name string, args func(b *builder) A, half ...string) trial {
	if d.coin() {
		return halved(k, name, args, half...)
	}
	return of(k, name, args)
}

// random are the kernels whose fast versions split work in ways that depend on
// the shape.
var random = map[string]func(d *draw) trial{
	"attn": func(d *draw) trial {
		s, docs := d.shape()
		return maybeHalved(d, &Attention, fmt.Sprint(s, docs), func(b *builder) AttentionArgs { return attentionArgs(b, s, docs...) }, "o", "qkv")
	},
	"attn_bwd": func(d *draw) trial {
		s, docs := d.shape()
		return maybeHalved(d, &AttentionBwd, fmt.Sprint(s, docs), func(b *builder) AttentionBwdArgs { return attentionBwdArgs(b, s, docs...) }, halfAttention...)
	},
	"head_loss": func(d *draw) trial {
		c := headCase{n: d.upTo(60), d: d.upTo(40), v: d.upTo(120), dx: d.coin(), dw: d.coin()}
		c.chunk = d.upTo(c.n)
		c.accumulateDW = c.dw && d.coin()
		from, to := d.upTo(c.n)-1, d.upTo(c.n)
		c.masked = func(n int) bool { return n >= from && n < to }
		return maybeHalved(d, &HeadLoss, fmt.Sprintf("%+v masked %d:%d", c, from, to), func(b *builder) HeadLossArgs { return headLossArgs(b, c) }, "x", "w", "dx")
	},
	"head_distill": func(d *draw) trial {
		c := distillCase{headCase: headCase{n: d.upTo(40), d: d.upTo(40), v: d.upTo(120), dx: d.coin(), dw: d.coin()}, weight: float32(d.upTo(5)-1) / 4, temp: float32(d.upTo(3))}
		c.chunk = d.upTo(c.n)
		c.accumulateDW = c.dw && d.coin()
		if d.coin() {
			c.k = d.upTo(c.v)
		}
		from, to := d.upTo(c.n)-1, d.upTo(c.n)
		c.masked = func(n int) bool { return n >= from && n < to }
		return maybeHalved(d, &HeadDistill, fmt.Sprintf("%+v masked %d:%d", c, from, to), func(b *builder) HeadDistillArgs { return distillArgs(b, c) }, "x", "w", "dx")
	},
	"soft_targets": func(d *draw) trial {
		n, v := d.upTo(20), d.upTo(3000)
		k := (d.upTo(2) - 1) * d.upTo(min(v, 300))
		return of(&SoftTargets, fmt.Sprint(n, v, k), func(b *builder) SoftTargetsArgs { return softArgs(b, n, v, k, 0.5) })
	},
	"rmsnorm_bwd": func(d *draw) trial {
		n, w, acc := d.upTo(150), d.upTo(700), d.coin()
		return maybeHalved(d, &RMSNormBwd, fmt.Sprint(n, w, acc), func(b *builder) RMSNormBwdArgs { return rmsnormBwdArgs(b, n, w, acc) }, "dy")
	},
	"embed_bwd": func(d *draw) trial {
		n, v, w, acc := d.upTo(300), d.upTo(200), d.upTo(50), d.coin()
		return of(&EmbedBwd, fmt.Sprint(n, v, w, acc), func(b *builder) EmbedBwdArgs { return embedBwdArgs(b, n, v, w, acc) })
	},
	"attn_decode": func(d *draw) trial {
		kv := d.upTo(3)
		rows, limit, h, c := d.upTo(4), d.upTo(90), kv*d.upTo(3), d.upTo(40)
		return of(&AttnDecode, fmt.Sprint(rows, limit, h, kv, c), func(b *builder) AttnDecodeArgs { return decodeArgs(b, rows, limit, h, kv, c) })
	},
}

func TestRandomShapes(t *testing.T) {
	for name, f := range random {
		for i := range uint64(10) {
			c := f(&draw{s: num.NewStream("shapes/"+name, i)})
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Log(c.Name)
				kerneltest.Run(t, c.Case)
			})
		}
	}
}
