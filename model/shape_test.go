package model_test

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/golden"
	"refrain/model"
)

// TestRow06ParameterCounts is the table of the papers' shapes: all parameters with
// two matrices for embedding and head, the body alone, and all with one.
func TestRow06ParameterCounts(t *testing.T) {
	for _, c := range []struct {
		name                string
		untied, body, tied1 int
	}{
		{"150M", 154147328, 22813184, 88480256},
		{"300M", 299649792, 102648576, 201149184},
		{"600M", 602457088, 339788800, 471122944},
		{"1.4B", 1431373824, 906037248, 1168705536},
		{"1.5B", 1540732416, 1146729984, 1343731200},
		{"3.2B", 3243444224, 2718107648, 2980775936},
	} {
		m, ok := model.PresetByName(c.name)
		if !ok {
			t.Errorf("no preset %s", c.name)
			continue
		}
		if m.Tie {
			t.Errorf("%s is tied; the papers' models are not", c.name)
		}
		if l := m.Layout(); l.Total != c.untied || l.BodyParams() != c.body {
			t.Errorf("%s has %d parameters, body %d; want %d and %d", c.name, l.Total, l.BodyParams(), c.untied, c.body)
		}
		m.Tie = true
		if l := m.Layout(); l.Total != c.tied1 {
			t.Errorf("%s tied has %d parameters, want %d", c.name, l.Total, c.tied1)
		}
	}
}

// TestMicroPresets: the micro shapes have about the size in their name and are valid.
func TestMicroPresets(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range model.Presets() {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if seen[p.Name] {
			t.Errorf("two presets are called %s", p.Name)
		}
		seen[p.Name] = true
		var millions float64
		if _, err := fmt.Sscanf(p.Name, "micro-%fM", &millions); err != nil {
			continue
		}
		if n := float64(p.Layout().Total) / 1e6; n < 0.8*millions || n > 1.4*millions {
			t.Errorf("%s has %.2f million parameters", p.Name, n)
		}
	}
	if _, ok := model.PresetByName("micro"); ok {
		t.Error("a preset is found by a part of its name")
	}
}

func layoutText(c model.Config) string {
	var b strings.Builder
	l := c.Layout()
	for _, p := range l.Params {
		fmt.Fprintf(&b, "%7d %6d %-9s %-50s %v fan-in %d\n", p.Off, p.Len, p.Role, p.Name, p.Shape, p.FanIn)
	}
	for r, rg := range l.Roles {
		fmt.Fprintf(&b, "%s [%d,%d)\n", model.Role(r), rg.From, rg.To)
	}
	return b.String()
}

// TestLayout is the list of tensors with names, shapes, places and roles
// (incident I-07: a norm in the wrong group is a line that changes here).
func TestLayout(t *testing.T) {
	for _, tie := range []bool{false, true} {
		golden.File(t, fmt.Sprintf("testdata/layout_tie=%v.txt", tie), []byte(layoutText(tiny(tie))))
	}
}

// TestLayoutCoversTheBufferOnce: tensors lie side by side without a gap, every
// role is one range and holds its own tensors only.
func TestLayoutCoversTheBufferOnce(t *testing.T) {
	for _, p := range model.Presets() {
		for _, tie := range []bool{false, true} {
			c := p.Config
			c.Tie = tie
			l := c.Layout()
			at, names := 0, map[string]bool{}
			var perRole [model.NumRoles]int
			for _, q := range l.Params {
				if q.Off != at {
					t.Fatalf("%s: %s begins at %d, the tensor before it ends at %d", p.Name, q.Name, q.Off, at)
				}
				if names[q.Name] {
					t.Errorf("%s: two tensors are called %s", p.Name, q.Name)
				}
				names[q.Name] = true
				if r := l.Roles[q.Role]; q.Off < r.From || q.Off+q.Len > r.To {
					t.Errorf("%s: %s lies outside the range of role %v", p.Name, q.Name, q.Role)
				}
				perRole[q.Role] += q.Len
				at += q.Len
			}
			if at != l.Total {
				t.Errorf("%s: tensors end at %d, the buffer at %d", p.Name, at, l.Total)
			}
			for r, rg := range l.Roles {
				if rg.Len() != perRole[r] {
					t.Errorf("%s: role %v has a range of %d, its tensors have %d", p.Name, model.Role(r), rg.Len(), perRole[r])
				}
			}
			if tie == names["lm_head.weight"] { // I-23: a tied matrix is one tensor
				t.Errorf("%s: tie=%v, yet lm_head.weight present is %v", p.Name, tie, names["lm_head.weight"])
			}
		}
	}
}

// TestPrograms are the ops of a one-layer model, in order, with what they read
// and write.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		file string
		s    spec
	}{
		{"testdata/program_untied.txt", spec{Config: tiny(false), B: 2, T: 8, Mask: true}},
		{"testdata/program_tied_shards.txt", spec{Config: tiny(true), B: 4, T: 8, Shards: 4, Reset: true}},
	} {
		c.s.Layers = 1
		p := record(c.s, c.s.Layout())
		if err := p.Seal(); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.Dump(&b); err != nil {
			t.Fatal(err)
		}
		golden.File(t, c.file, b.Bytes())
	}
}

// TestRow08InitMoments: every tensor's sample has the mean, the spread, the cut and
// the independence that its scheme says.
func TestRow08InitMoments(t *testing.T) {
	base := model.Config{Vocab: 512, Layers: 2, Dim: 64, Heads: 4, KVHeads: 2, FFN: 96, MaxT: 32, RopeTheta: 10000, NormEps: 1e-5}
	for _, scheme := range []model.Init{model.InitPapers, model.InitNormal002} {
		for _, tie := range []bool{false, true} {
			c := base
			c.Init, c.Tie = scheme, tie
			l := c.Layout()
			w := make([]float32, l.Total)
			for i := range w {
				w[i] = float32(math.NaN())
			}
			model.Initialize(w, c, l, 11)
			for _, p := range l.Params {
				x := w[p.Off : p.Off+p.Len]
				if p.Role == model.Norm {
					if slices.ContainsFunc(x, func(v float32) bool { return v != 1 }) {
						t.Errorf("%s: a scale is not 1", p.Name)
					}
					continue
				}
				sigma, cut, shrink := 1/math.Sqrt(float64(p.Shape[1])), 3.0, 0.986577 // a normal cut at 3 sigma
				switch {
				case scheme == model.InitNormal002:
					sigma, cut, shrink = 0.02, math.Inf(1), 1
				case p.Role == model.Embedding || p.Role == model.Tied:
					sigma = 1 / float64(c.Dim)
				}
				var mean, square, most float64
				for _, v := range x {
					mean += float64(v) / float64(p.Len)
					square += float64(v) * float64(v) / float64(p.Len)
					most = max(most, math.Abs(float64(v)))
				}
				n := math.Sqrt(float64(p.Len))
				if math.Abs(mean) > 4.5*sigma/n {
					t.Errorf("%s %s: mean %.3g of %d values of sigma %.3g", scheme, p.Name, mean, p.Len, sigma)
				}
				if sd := math.Sqrt(square); math.Abs(sd/(sigma*shrink)-1) > 4.5/math.Sqrt2/n {
					t.Errorf("%s %s: standard deviation %.5g, want %.5g", scheme, p.Name, sd, sigma*shrink)
				}
				if most > cut*sigma*(1+1e-6) || most < 2.4*sigma {
					t.Errorf("%s %s: largest value %.3g of sigma %.3g", scheme, p.Name, most, sigma)
				}
			}
		}
	}
}

// TestInitIsAFunctionOfNameAndSeed: seeds and tensors do not share values, and
// a deeper model begins like a shallower one.
func TestInitIsAFunctionOfNameAndSeed(t *testing.T) {
	c := tiny(false)
	draw := func(c model.Config, seed uint64) map[string][]float32 {
		l := c.Layout()
		w := make([]float32, l.Total)
		model.Initialize(w, c, l, seed)
		m := map[string][]float32{}
		for _, p := range l.Params {
			m[p.Name] = w[p.Off : p.Off+p.Len]
		}
		return m
	}
	a, again, b := draw(c, 1), draw(c, 1), draw(c, 2)
	deep := c
	deep.Layers = 5
	d := draw(deep, 1)
	first := map[float32]string{}
	for name, x := range a {
		if !slices.Equal(x, again[name]) || !slices.Equal(x, d[name]) {
			t.Errorf("%s depends on more than name and seed", name)
		}
		if strings.Contains(name, "norm") {
			continue
		}
		if slices.Equal(x, b[name]) {
			t.Errorf("%s is the same for two seeds", name)
		}
		if other, ok := first[x[0]]; ok && slices.Equal(x[1:8], a[other][1:8]) {
			t.Errorf("%s and %s begin alike", name, other)
		}
		first[x[0]] = name
	}
}

// TestRotaryTables: position p turns pair i by p * theta^(-2i/C), to half a unit
// in the last place of float32, against angles computed with 200 bits.
func TestRotaryTables(t *testing.T) {
	c := tiny(false) // a head of 6
	c.MaxT = 4096
	cos, sin := model.RotaryTables(c, c.MaxT)
	half := c.C() / 2
	for i := range half {
		// theta^(-2i/6) = 10000^(-i/3): the cube root by Newton's method.
		x := new(big.Float).SetPrec(200).SetInt64(1)
		root := new(big.Float).SetPrec(200).SetFloat64(math.Cbrt(10000))
		for range 6 {
			sq := new(big.Float).SetPrec(200).Mul(root, root)
			next := new(big.Float).SetPrec(200).Quo(big.NewFloat(10000).SetPrec(200), sq)
			next.Add(next, root).Add(next, root)
			root = next.Quo(next, big.NewFloat(3).SetPrec(200))
		}
		for range i {
			x.Quo(x, root)
		}
		for _, p := range []int64{0, 1, 2, 511, 4095} {
			angle, _ := new(big.Float).SetPrec(200).Mul(x, new(big.Float).SetPrec(200).SetInt64(p)).Float64()
			s, co := math.Sincos(angle)
			k := int(p)*half + i
			if math.Abs(float64(cos[k])-co) > 6e-8 || math.Abs(float64(sin[k])-s) > 6e-8 {
				t.Errorf("position %d pair %d: cos %v sin %v, want %v %v", p, i, cos[k], sin[k], co, s)
			}
		}
	}
	if cos[0] != 1 || sin[0] != 0 {
		t.Errorf("position 0 is turned: cos %v sin %v", cos[0], sin[0])
	}
}

// TestRecordingRefuses: what cannot be recorded is an error of Seal that names
// the reason.
func TestRecordingRefuses(t *testing.T) {
	for _, c := range []struct {
		want string
		s    spec
	}{
		{"do not divide into 3 shards", spec{Config: tiny(false), B: 4, T: 8, Shards: 3}},
		{"heads (5) does not divide dim (16)", spec{Config: model.Config{Vocab: 4, Layers: 1, Dim: 16, Heads: 5, KVHeads: 5, FFN: 4, MaxT: 8, RopeTheta: 1, NormEps: 1, Init: model.InitPapers}, B: 1, T: 8}},
	} {
		if err := record(c.s, c.s.Layout()).Seal(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one that says %q", err, c.want)
		}
	}
	p := gpu.NewProgram("bf16")
	c := tiny(false)
	l := c.Layout()
	w := model.NewWeights(c, l, p.Extern("w", gpu.F32, l.Total))
	b := model.Batch{B: 1, T: 8, Tokens: p.Extern("t", gpu.I32, 8), Targets: p.Extern("g", gpu.I32, 8), Starts: p.Extern("s", gpu.U8, 1, 1)}
	tab := model.Tables{Cos: p.Extern("c", gpu.F32, 8, 3), Sin: p.Extern("n", gpu.F32, 8, 3)}
	model.RecordLoss(p.On(gpu.Math), c, w, p.Extern("l", gpu.F32, 8), b, tab, model.Policy{Act: gpu.I32})
	if err := p.Seal(); err == nil || !strings.Contains(err.Error(), "i32") {
		t.Errorf("activations of integers: error %v", err)
	}
}

// TestValidate: every impossible value is named, all at once.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		change func(*model.Config)
		want   []string
	}{
		{func(c *model.Config) { c.Vocab, c.Layers, c.FFN = 0, -1, 0 }, []string{"vocab is 0", "layers is -1", "ffn is 0"}},
		{func(c *model.Config) { c.KVHeads = 3 }, []string{"kv_heads (3) does not divide heads (4)"}},
		{func(c *model.Config) { c.HeadDim = 5 }, []string{"head size (5) is odd"}},
		{func(c *model.Config) { c.HeadDim, c.Dim = 0, 18 }, []string{"heads (4) does not divide dim (18)"}},
		{func(c *model.Config) { c.NormEps, c.RopeTheta, c.Init = 0, -1, "zeros" }, []string{"norm_eps is 0", "rope_theta is -1", `init is "zeros"`}},
	} {
		m := tiny(false)
		c.change(&m)
		err := m.Validate()
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want one that says %q", err, w)
			}
		}
	}
}
