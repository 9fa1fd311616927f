package model_test

import (
	"math"
	"strings"
	"testing"

	"refrain/model"
)

// TestRow28RopeScaling (E row 28): the rotary tables of a Llama 3.2 shape against the three
// cases of the formula, worked out here; and text and config.json carry the scaling there
// and back.
func TestRow28RopeScaling(t *testing.T) {
	s, err := model.ParseRopeScaling("llama3:32:1:4:8192")
	if err != nil || s != (model.RopeScaling{Factor: 32, Low: 1, High: 4, Original: 8192}) || s.String() != "llama3:32:1:4:8192" {
		t.Fatalf("%+v, %v", s, err)
	}
	c := model.Config{Vocab: 128256, Layers: 16, Dim: 2048, Heads: 32, KVHeads: 8, FFN: 8192, MaxT: 131072, RopeTheta: 500000, RopeScaling: s, NormEps: 1e-5, Tie: true, Init: model.InitPapers}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	plain := c
	plain.RopeScaling = model.RopeScaling{}
	// A position at a time would do; 3 tells sine and cosine apart.
	const at, half = 3, 32
	cos, sin := model.RotaryTables(c, at+1)
	was, _ := model.RotaryTables(plain, at+1)
	same, slowed, between := 0, 0, 0
	for i := range half {
		f := math.Pow(500000, -float64(i)/half)
		wave := 2 * math.Pi / f
		want := f
		switch {
		case wave > 8192:
			want = f / 32
			slowed++
		case wave < 2048:
			same++
		default: // 8192/wave runs from 1 to 4, the share of the old frequency from 0 to 1
			share := (8192/wave - 1) / 3
			want = f/32 + share*(f-f/32)
			between++
		}
		if x, y := float64(cos[at*half+i]), float64(sin[at*half+i]); math.Abs(x-math.Cos(at*want)) > 1e-7 || math.Abs(y-math.Sin(at*want)) > 1e-7 {
			t.Errorf("pair %d: cos %v, sin %v instead of %v, %v", i, x, y, math.Cos(at*want), math.Sin(at*want))
		}
		if wave < 2048 && cos[at*half+i] != was[at*half+i] {
			t.Errorf("pair %d is changed", i)
		}
	}
	if same < 10 || slowed < 10 || between < 2 {
		t.Errorf("%d pairs stay, %d are slowed down, %d between", same, slowed, between)
	}
	b, err := model.HFConfig(c, model.HF{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := model.ParseHFConfig(b); err != nil || got != c {
		t.Errorf("%+v came back as %+v, %v", c, got, err)
	}
	// As it is published, without the newer spelling.
	old := strings.Replace(string(b), `"rope_parameters"`, `"other"`, 1)
	if got, _, err := model.ParseHFConfig([]byte(old)); err != nil || got != c {
		t.Errorf("%+v came back as %+v, %v", c, got, err)
	}
	contradiction := strings.Replace(string(b), `"factor": 32`, `"factor": 8`, 1)
	if _, _, err := model.ParseHFConfig([]byte(contradiction)); err == nil || !strings.Contains(err.Error(), "must agree") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"llama3", "yarn:32:1:4:8192", "llama3:x:1:4:8192", "llama3:32:4:1:8192", "llama3:0:1:4:8192", "llama3:32:1:4:0", "llama3:32:1:4:1e3", "llama3:NaN:1:4:8192"} {
		if s, err := model.ParseRopeScaling(text); err == nil || !strings.Contains(err.Error(), "rope_scaling") {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
}
