package bench

import (
	"fmt"
	"math"
	"testing"

	"refrain/internal/num"
)

// TestPrecision: two pairs of short runs. Equal losses would mean that both runs of a
// pair computed in one precision, losses far apart that one of them is wrong.
func TestPrecision(t *testing.T) {
	c := PrecisionConfig{Share: 0.2, Vocab: 300, Preset: "micro-0.3M", T: 32, B: 4, Steps: 16, Seeds: 2, Threads: 1, Dir: t.TempDir()}
	words := num.NewStream("bench precision test", 1)
	for i := range 120 {
		var d []byte
		for w := range 60 {
			d = fmt.Appendf(d, "word%d ", words.Uintn(uint64(i*60+w), 17))
		}
		c.Docs = append(c.Docs, d)
	}
	var lines []Line
	if err := Precision(t.Context(), c, func(l Line) { lines = append(lines, l) }); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 3 || lines[1].Name != "Precision/preset=0.3M/T=32/B=4/steps=16/seed=1" || lines[2].N != 2 {
		t.Fatalf("lines %v", lines)
	}
	for _, l := range lines[:2] {
		wide, _ := l.Get("nats-f32")
		diff, _ := l.Get("nats-diff")
		if wide > 0.9*math.Log(300) || diff == 0 || math.Abs(diff) > 0.05 {
			t.Errorf("%v", l)
		}
	}
	c.Seeds = 1
	if err := Precision(t.Context(), c, func(Line) {}); err == nil {
		t.Error("one pair has no spread")
	}
}

func TestCompare(t *testing.T) {
	got := Line{Metrics: compare([]pair{{2, 2.01}, {2.2, 2.23}, {2.4, 2.42}})}
	for unit, want := range map[string]float64{"nats-diff": 0.02, "nats-diff-se": 0.01 / math.Sqrt(3), "nats-spread": 0.2, "diff/spread": 0.1} {
		if x, _ := got.Get(unit); math.Abs(x-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", unit, x, want)
		}
	}
}
