package train

import (
	"strings"
	"testing"

	"refrain/model"
)

// TestAbsurdShapesAreErrors: shapes that configurations allow, but no buffer can hold, are
// an error that says what is too large, not a panic.
func TestAbsurdShapesAreErrors(t *testing.T) {
	options := func(batch, T, vocab, dim, ffn, layers int) *Options {
		return &Options{
			Model: model.Config{Vocab: vocab, Layers: layers, Dim: dim, Heads: 2, KVHeads: 2, FFN: ffn, MaxT: T, RopeTheta: 1e4, NormEps: 1e-5, Init: model.InitPapers},
			Steps: 10, Batch: batch, T: T, Shards: 4, Devices: 1, Micro: 1, Slots: 3,
			Optim: Optim{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1, Warmup: 1},
		}
	}
	for _, c := range []struct {
		o    *Options
		want []string // nothing: it is possible
	}{
		{options(1<<20, 1<<20, 1<<20, 1<<16, 1<<18, 512), []string{"35321878216704 parameters", "1048576 rows of 1048576 tokens"}},
		{options(8, 512, 1<<20, 1<<16, 1<<18, 512), []string{"parameters"}},
		{options(1<<20, 512, 4096, 64, 64, 2), []string{"1048576 rows of 512 tokens takes"}},
		{options(64, 4096, 1<<17, 8192, 28672, 80), []string{"parameters"}},
		{options(8, 1<<20, 4096, 64, 64, 2), nil},
	} {
		_, err := Footprint(c.o)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c.o.Model, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}
