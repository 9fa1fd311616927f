package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"refrain/model"
)

// tinyStep is a step that takes about a millisecond.
func tinyStep(layers int) StepConfig {
	m := model.Config{Vocab: 96, Layers: layers, Dim: 16, Heads: 2, KVHeads: 2, FFN: 24, MaxT: 32, RopeTheta: 10000, NormEps: 1e-5, Tie: true, Init: model.InitPapers}
	return StepConfig{Model: m, Name: fmt.Sprint("tiny", layers), T: 32, B: 8, Shards: 4, Devices: 1, Threads: 1}
}

func TestRow34Step(t *testing.T) {
	cfg := tinyStep(1)
	cfg.Warm, cfg.Steps = 2, 5
	r, err := Step(t.Context(), cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "Step/preset=tiny1/precision=f32" || r.N != 5 || r.Threads != 1 || len(r.Kernels) == 0 || r.Best > r.PerOp || r.Wait < 0 || r.Wait > 1 {
		t.Errorf("%+v", r)
	}
	if calls := r.Kernels[0].Calls; calls == 0 {
		t.Errorf("%+v", r.Kernels[0])
	}
}

func TestStepScale(t *testing.T) {
	two, four := tinyStep(1), tinyStep(1)
	two.Threads, four.Devices = 2, 4
	c := ScaleConfig{Sides: []StepConfig{tinyStep(1), two, four}, Warm: 1, Steps: 2, Rounds: 3}
	label := func(s StepConfig) string { return fmt.Sprintf("devices=%d", s.Devices) }
	var lines []Line
	if err := StepScale(t.Context(), c, label, func(l Line) { lines = append(lines, l) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 3 || lines[2].Name != "StepScale/by=devices/preset=tiny1/precision=f32/devices=4" || lines[1].Threads != 2 || lines[2].N != 6 {
		t.Fatalf("lines %v", lines)
	}
	if _, has := lines[0].Get("x-first"); has {
		t.Error("the first side is compared with itself")
	}
	x, _ := lines[1].Get("x-first")
	lo, _ := lines[1].Get("x-first-q1")
	hi, _ := lines[1].Get("x-first-q3")
	if x <= 0 || lo > x || x > hi {
		t.Errorf("ratio %v, quartiles %v and %v", x, lo, hi)
	}

	c.Sides = []StepConfig{tinyStep(1), tinyStep(2)} // other work
	err := StepScale(t.Context(), c, label, func(Line) {})
	if err == nil || !strings.Contains(err.Error(), "these steps are not the same") {
		t.Errorf("two different models are compared: %v", err)
	}
	c.Sides[1].Shards = 3 // does not divide the batch
	if err := StepScale(t.Context(), c, label, func(Line) {}); err == nil {
		t.Error("3 shards of 8 rows")
	}
}

func TestGrowth(t *testing.T) {
	c := ScaleConfig{Sides: []StepConfig{tinyStep(1), tinyStep(4)}, Warm: 1, Steps: 1, Rounds: 2}
	var lines []Line
	if err := Growth(t.Context(), c, func(l Line) { lines = append(lines, l) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 3 || lines[1].Name != "StepScale/by=size/preset=tiny4/precision=f32" || lines[2].Name != "StepScale/by=size/all=tiny1..tiny4/precision=f32" {
		t.Fatalf("lines %v", lines)
	}
	tok, _ := lines[1].Get("tok/s")
	rule, _ := lines[1].Get("rule-GFLOP/s")
	share, _ := lines[1].Get("of-peak")
	// Matrices of a layer: q, k, v, out of 16x16, gate, up, down of 16x24; the tied one.
	want := 6*(4*(4*16*16+3*16*24+2*16)+96*16+16) + 7*4*32*16
	if got := rule * 1e9 / tok; math.Abs(got/float64(want)-1) > 1e-9 || share <= 0 || share > 1 {
		t.Errorf("%v operations a token, want %d; %v of the peak", got, want, share)
	}
	off, _ := lines[2].Get("off%")
	spread, _ := lines[2].Get("spread%")
	if off <= 0 || spread < off {
		t.Errorf("off %v %%, spread %v %%", off, spread)
	}
}

// TestRow34Saturation: a larger batch is a side of its own, and the smallest one near the
// best speed is named.
func TestRow34Saturation(t *testing.T) {
	c := ScaleConfig{Warm: 1, Steps: 2, Rounds: 3}
	for _, b := range []int{1, 2, 8} {
		s := tinyStep(1)
		s.B, s.Shards = b, 1
		c.Sides = append(c.Sides, s)
	}
	var lines []Line
	if err := Saturation(t.Context(), c, func(l Line) { lines = append(lines, l) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 4 || lines[1].Name != "StepScale/by=batch/preset=tiny1/precision=f32/batch=2" || lines[3].Name != "StepScale/by=batch/preset=tiny1/precision=f32/all=1..8" {
		t.Fatalf("lines %v", lines)
	}
	want := 0.0
	for i, b := range []float64{1, 2, 8} {
		of, _ := lines[i].Get("of-best")
		if of <= 0 || of > 1 {
			t.Errorf("%v of the best with %v rows", of, b)
		}
		if tok, _ := lines[i].Get("tok/s"); tok <= 0 {
			t.Errorf("%v tokens a second", tok)
		}
		if want == 0 && of >= 0.95 {
			want = b
		}
	}
	if rows, _ := lines[3].Get("rows"); rows != want {
		t.Errorf("saturated with %v rows, want %v", rows, want)
	}
}

// TestSizes: the models over which growth is measured are as large as their names.
func TestSizes(t *testing.T) {
	for _, p := range Sizes() {
		var m float64
		if _, err := fmt.Sscanf(p.Name, "%fM", &m); err != nil {
			t.Fatal(err)
		}
		if n := float64(p.Config.Layout().Total) / 1e6; n < 0.9*m || n > 1.35*m {
			t.Errorf("%s has %.2f M parameters", p.Name, n)
		}
		if err := p.Config.Validate(); err != nil {
			t.Error(err)
		}
	}
	untied, tied := tinyStep(1).Model, tinyStep(1).Model
	untied.Tie = false
	if a, b := TokenFLOPs(untied, 32), TokenFLOPs(tied, 32); a != b {
		t.Errorf("a lookup counts as a product: %v and %v", a, b)
	}
}

// TestSideEnds: a side whose context ends says so and can be closed.
func TestSideEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := openStep(ctx, tinyStep(1), 100, false)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.round(1, 2); err != nil || len(r.times) != 2 || r.sum() <= 0 || r.sum() > time.Minute {
		t.Fatalf("%+v, %v", r, err)
	}
	why := errors.New("enough")
	cancel(why)
	<-s.ended
	if _, err := s.round(1, 2); !errors.Is(err, why) {
		t.Errorf("a round after the end: %v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
