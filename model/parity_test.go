package model_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/model"
	"refrain/train/ckpt"
)

// The fixture is written by bench/peers/torch/parity.py, which says how its
// weights and rows are made; the functions below make the same ones.

// raw is value i of the array called name.
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

// parityCase is one entry of the fixture's list of cases.
type parityCase struct {
	Vocab, Layers, Dim, Heads, FFN int
	KVHeads                        int `json:"kv_heads"`
	HeadDim                        int `json:"head_dim"`
	Theta, Eps                     float64
	Tie, Mask, Reset               bool
	B, T                           int
}

func (c parityCase) spec() spec {
	return spec{
		Config: model.Config{
			Vocab: c.Vocab, Layers: c.Layers, Dim: c.Dim, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, FFN: c.FFN,
			MaxT: c.T, RopeTheta: c.Theta, NormEps: c.Eps, Tie: c.Tie, Init: model.InitPapers,
		},
		B: c.B, T: c.T, Shards: 2, Mask: c.Mask, Reset: c.Reset,
	}
}

func parityWeights(l *model.Layout) []float64 {
	w := make([]float64, l.Total)
	for _, p := range l.Params {
		for i := range p.Len {
			u := float64(raw(p.Name, i)>>8)/(1<<24) - 0.5
			if p.Role == model.Norm {
				u = float64(float32(1 + u/2))
			}
			w[p.Off+i] = u
		}
	}
	return w
}

func parityRows(s spec) rows {
	n, sr := s.B*s.T, (s.T+7)/8
	r := rows{make([]int32, n), make([]int32, n), make([]byte, s.B*sr)}
	for i := range n {
		r.tokens[i] = int32(raw("tokens.0", i) % uint32(s.Vocab))
		r.targets[i] = int32(raw("targets.0", i) % uint32(s.Vocab))
		if raw("masked.0", i)%7 == 0 {
			r.targets[i] = -1
		}
		if raw("starts.0", i)%5 == 0 {
			r.starts[i/s.T*sr+i%s.T/8] |= 1 << (i % s.T % 8)
		}
	}
	return r
}

// readFixture returns the tensors by name and the cases.
func readFixture(t *testing.T, path string) (map[string][]float64, map[string]parityCase) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors, meta, err := ckpt.DecodeTensors(b)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]float64{}
	for _, x := range tensors {
		if x.DType != "F32" {
			t.Fatalf("%s has type %s", x.Name, x.DType)
		}
		aligned := make([]byte, len(x.Data)) // the file's own bytes may lie anywhere
		copy(aligned, x.Data)
		m[x.Name] = widen(gpu.BytesToFloat32s(aligned))
	}
	var cases map[string]parityCase
	if err := json.Unmarshal([]byte(meta["cases"]), &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 6 {
		t.Fatalf("%d cases in %s", len(cases), path)
	}
	return m, cases
}

// TestParityWithPyTorch (N4): logits, loss and every gradient against a plain
// PyTorch model in float64 that agrees with transformers: tied or not, grouped
// heads with a head size of their own, document mask, positions that restart.
func TestParityWithPyTorch(t *testing.T) {
	want, cases := readFixture(t, "testdata/parity.safetensors")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.spec()
			for _, bd := range []body{fast, reference, wide} {
				e := on(t, bd, s, parityWeights(s.Layout()), parityRows(s))
				logits, z := e.get("logits"), want[name+".logits"]
				for i := range z {
					if math.Abs(logits[i]-z[i]) > 1e-4 {
						t.Fatalf("%s: logit %d of position %d is %v, want %v", bd, i%s.Vocab, i/s.Vocab, logits[i], z[i])
					}
				}
				if got, l := e.mean(), want[name+".loss"][0]; math.Abs(got-l) > 1e-5 {
					t.Errorf("%s: loss %v, want %v", bd, got, l)
				}
				grads := e.get("grads")
				seen := 0
				for _, p := range e.l.Params {
					g, ok := want[name+".grad."+p.Name]
					if !ok || len(g) != p.Len || norm(g) == 0 {
						t.Fatalf("the fixture has %d values for the gradient of %s", len(g), p.Name)
					}
					if d := relative(grads[p.Off:p.Off+p.Len], g); d > 1e-3 {
						t.Errorf("%s: gradient of %s differs by %.2g of its norm", bd, p.Name, d)
					}
					seen++
				}
				for n := range want {
					if strings.HasPrefix(n, name+".grad.") {
						seen--
					}
				}
				if seen != 0 {
					t.Errorf("the model and the fixture differ by %d tensors", seen)
				}
			}
		})
	}
}
