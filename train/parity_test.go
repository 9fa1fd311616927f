package train_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/model"
	"refrain/train"
	"refrain/train/ckpt"
)

// The fixture is written by bench/peers/torch/parity.py, which says how its
// weights and rows are made; raw makes the same ones.
func raw(name string, i int) uint32 {
	h := uint32(2166136261)
	for _, c := range []byte(name) {
		h = (h ^ uint32(c)) * 16777619
	}
	x := h + uint32(i)*0x9e3779b9
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

type parityCase struct {
	Vocab, Layers, Dim, Heads, FFN int
	KVHeads                        int `json:"kv_heads"`
	HeadDim                        int `json:"head_dim"`
	Theta, Eps                     float64
	Tie, Mask, Reset               bool
	B, T                           int
}

type parityOptim struct {
	LR, Beta1, Beta2, Eps, Clip float64
	Warmup                      int64
	MinRatio                    float64 `json:"min_ratio"`
	Decay                       map[string]float64
	LRMul                       map[string]float64 `json:"lr_mul"`
}

func (c parityCase) options(p parityOptim, steps int64, devices int) train.Options {
	o := train.Options{
		Model: model.Config{
			Vocab: c.Vocab, Layers: c.Layers, Dim: c.Dim, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN,
			MaxT: c.T, RopeTheta: c.Theta, NormEps: c.Eps, Tie: c.Tie, Init: model.InitPapers,
		},
		Steps: steps, Batch: c.B, T: c.T, Shards: 4, Devices: devices, Micro: 1, Slots: 2, DocMask: c.Mask, ResetPositions: c.Reset,
		Optim: train.Optim{LR: p.LR, Beta1: p.Beta1, Beta2: p.Beta2, Eps: p.Eps, Clip: p.Clip, Warmup: p.Warmup, MinRatio: p.MinRatio},
	}
	for r := range model.NumRoles {
		o.Optim.Decay[r], o.Optim.LRMul[r] = p.Decay[model.Role(r).String()], p.LRMul[model.Role(r).String()]
	}
	return o
}

// fill makes row g of the fixture: step g/B+1, row g%B.
func (c parityCase) fill(g int64, vocab int, tokens, targets []int32, starts []byte) (scored int) {
	k, at := g/int64(c.B)+1, int(g%int64(c.B))*c.T
	clear(starts)
	name := func(s string) string { return fmt.Sprintf("%s.%d", s, k) }
	for i := range tokens {
		tokens[i] = int32(raw(name("tokens"), at+i) % uint32(vocab))
		targets[i] = int32(raw(name("targets"), at+i) % uint32(vocab))
		if raw(name("starts"), at+i)%5 == 0 {
			starts[i/8] |= 1 << (i % 8)
		}
		if raw(name("masked"), at+i)%7 == 0 {
			targets[i] = -1
		} else {
			scored++
		}
	}
	return scored
}

func parityWeights(l *model.Layout) []float32 {
	w := make([]float32, l.Total)
	for _, p := range l.Params {
		for i := range p.Len {
			u := float64(raw(p.Name, i)>>8)/(1<<24) - 0.5
			if p.Role == model.Norm {
				u = 1 + u/2
			}
			w[p.Off+i] = float32(u)
		}
	}
	return w
}

// TestTenStepsOfPyTorch (N4): ten AdamW steps with clipping in every one,
// warm-up and cosine, and a decay and a learning rate for each role, against
// PyTorch in float64: losses, gradient norms and all weights.
func TestTenStepsOfPyTorch(t *testing.T) {
	b, err := os.ReadFile("testdata/parity.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	tensors, meta, err := ckpt.DecodeTensors(b)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]float32{}
	for _, x := range tensors {
		aligned := make([]byte, len(x.Data)) // the file's own bytes may lie anywhere
		copy(aligned, x.Data)
		want[x.Name] = gpu.BytesToFloat32s(aligned)
	}
	var cases map[string]parityCase
	var optim parityOptim
	var steps int64
	for key, v := range map[string]any{"cases": &cases, "optim": &optim, "steps": &steps} {
		if err := json.Unmarshal([]byte(meta[key]), v); err != nil {
			t.Fatal(err)
		}
	}
	if len(cases) < 6 || steps != 10 || len(optim.Decay) != model.NumRoles || len(optim.LRMul) != model.NumRoles {
		t.Fatalf("the fixture has %d cases of %d steps with %v", len(cases), steps, optim)
	}
	for name, c := range cases {
		for _, h := range []host.Config{{Threads: 1}, {Threads: 2, Devices: 2}, {Threads: 1, Reference: true}} {
			t.Run(fmt.Sprintf("%s,devices=%d,reference=%v", name, max(1, h.Devices), h.Reference), func(t *testing.T) {
				r := newRig(t, c.options(optim, steps, max(1, h.Devices)), h)
				r.fill = c.fill
				if err := r.tr.Restore(t.Context(), 0, parityWeights(r.tr.Layout()), nil, nil); err != nil {
					t.Fatal(err)
				}
				for i, s := range r.run(steps) {
					if l := float64(want[name+".losses"][i]); math.Abs(s.Loss-l) > 1e-4 {
						t.Errorf("step %d: loss %v, want %v", s.Step, s.Loss, l)
					}
					if n := float64(want[name+".norms"][i]); math.Abs(s.Norm-n) > 1e-4*n {
						t.Errorf("step %d: gradient norm %v, want %v", s.Step, s.Norm, n)
					}
				}
				got := r.snapshot(false).Weights
				for _, p := range r.tr.Layout().Params {
					w := want[name+".weight."+p.Name]
					if len(w) != p.Len {
						t.Fatalf("the fixture has %d values for %s", len(w), p.Name)
					}
					var diff, size float64
					for i, x := range got[p.Off : p.Off+p.Len] {
						diff += (float64(x) - float64(w[i])) * (float64(x) - float64(w[i]))
						size += float64(w[i]) * float64(w[i])
					}
					if d := math.Sqrt(diff / size); d > 1e-4 {
						t.Errorf("%s differs by %.2g of its norm after ten steps", p.Name, d)
					}
				}
			})
		}
	}
}
