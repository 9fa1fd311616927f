package frontier

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// known are runs with an answer that can be worked out by hand: four rows a GPU.
//
//	run        batch steps   1 GPU   2 GPUs  4 GPUs   loss
//	small          4   800     800                    3.0
//	medium         8   300     600      300           3.1
//	large         16   100     400      200     100   3.3
//	wasteful      16   200     800      400     200   3.3
func known() []Run {
	return []Run{
		{Name: "wasteful", Params: 10, Batch: 16, Steps: 200, Loss: 3.3, Seeds: 1},
		{Name: "large", Params: 10, Batch: 16, Steps: 100, Loss: 3.3, Seeds: 1},
		{Name: "small", Params: 10, Batch: 4, Steps: 800, Loss: 3.0, Seeds: 1},
		{Name: "medium", Params: 10, Batch: 8, Steps: 300, Loss: 3.1, Seeds: 1},
	}
}

func build(t *testing.T, runs []Run, o Options) *Report {
	t.Helper()
	r, err := Build(runs, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRow32KnownFrontier (E row 32): the answers of the table above, GPUs really used
// among them, the Pareto set, and nothing where nothing fits.
func TestRow32KnownFrontier(t *testing.T) {
	r := build(t, known(), Options{PerGPU: 4, GPUs: []int{8, 1, 2, 4}, Deadlines: []float64{800, 99, 100, 299, 300, 400}})
	p := r.Models[0].Frontier
	type want struct {
		name string
		gpus int
	}
	none := want{}
	answers := map[int][]want{ // by deadline 99, 100, 299, 300, 400, 800
		1: {none, none, none, none, {"large", 1}, {"small", 1}},
		2: {none, none, {"large", 2}, {"medium", 2}, {"medium", 2}, {"small", 1}},
		4: {none, {"large", 4}, {"large", 2}, {"medium", 2}, {"medium", 2}, {"small", 1}},
		8: {none, {"large", 4}, {"large", 2}, {"medium", 2}, {"medium", 2}, {"small", 1}},
	}
	if len(p.Grid) != 24 {
		t.Fatalf("%d cells", len(p.Grid))
	}
	for i, c := range p.Grid {
		w := answers[c.GPUs][i%6]
		if c.Best == nil && w != none || c.Best != nil && (want{c.Best.Name, c.Best.GPUs} != w) {
			t.Errorf("%d GPUs, deadline %g: %+v instead of %+v", c.GPUs, c.Deadline, c.Best, w)
		}
	}
	var got [][3]float64
	for _, x := range p.Pareto {
		got = append(got, [3]float64{float64(x.GPUs), x.Time, x.Loss})
	}
	if want := [][3]float64{{1, 400, 3.3}, {1, 600, 3.1}, {1, 800, 3.0}, {2, 200, 3.3}, {2, 300, 3.1}, {4, 100, 3.3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("Pareto set %v instead of %v", got, want)
	}
	if x := p.Pareto[3]; x.GPUTime != 400 || x.Name != "large" || x.Batch != 16 {
		t.Errorf("%+v", x)
	}
	// Without a per-GPU batch it is the smallest, and the report says that.
	if free := build(t, known(), Options{}); free.Models[0].PerGPU != 4 || !free.Models[0].PerGPUAssumed || r.Models[0].PerGPUAssumed {
		t.Errorf("per-GPU batch %d, assumed %v", free.Models[0].PerGPU, free.Models[0].PerGPUAssumed)
	}
}

// drawRuns makes runs of two sizes with few distinct values, so that ties are common.
func drawRuns(rt *rapid.T) []Run {
	n := rapid.IntRange(1, 12).Draw(rt, "runs")
	var runs []Run
	for i := range n {
		runs = append(runs, Run{
			Name: string(rune('a' + i%5)), Params: 10 * rapid.IntRange(1, 2).Draw(rt, "params"), Batch: rapid.IntRange(1, 40).Draw(rt, "batch"),
			Steps: int64(rapid.IntRange(1, 6).Draw(rt, "steps")), Loss: float64(rapid.IntRange(1, 5).Draw(rt, "loss")), Seeds: 1,
		})
	}
	return runs
}

// TestRow32Properties (E row 32): against a search through every run and every number of
// GPUs, L* is the least loss, monotone in GPUs and time; the Pareto set is what nothing
// beats, covers all of it; and the order of records changes nothing.
func TestRow32Properties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		runs := drawRuns(rt)
		for i := range runs {
			runs[i].Params = 10
		}
		b := rapid.IntRange(1, 9).Draw(rt, "b")
		const most, longest = 41, 250
		points := all(runs, equivalents(b))
		var prev [longest]float64
		for g := 1; g <= most; g++ {
			for tm := 1; tm < longest; tm++ {
				least := math.Inf(1)
				for _, r := range runs {
					for used := 1; used <= g; used++ {
						a := (r.Batch + b*used - 1) / (b * used)
						if int64(a)*r.Steps <= int64(tm) {
							least = min(least, r.Loss)
						}
					}
				}
				got := math.Inf(1)
				if p := best(points, g, float64(tm)); p != nil {
					got = p.Loss
					if p.GPUs > g || p.Time > float64(tm) || p.Time != float64(p.Steps)*float64(Rounds(p.Batch, b, p.GPUs)) {
						rt.Fatalf("%d GPUs, time %d: %+v", g, tm, p)
					}
				}
				if got != least {
					rt.Fatalf("L*(%d,%d) = %v, the search finds %v", g, tm, got, least)
				}
				if g > 1 && got > prev[tm] || tm > 1 && got > prev[tm-1] {
					rt.Fatalf("L*(%d,%d) = %v is above that of less", g, tm, got)
				}
				prev[tm] = got
			}
		}
		checkPareto(rt, points)
		shuffled := rapid.Permutation(runs).Draw(rt, "order")
		one, other := asText(rt, runs, b), asText(rt, shuffled, b)
		if one != other {
			rt.Fatalf("another order of records gives\n%s\ninstead of\n%s", other, one)
		}
	})
}

// checkPareto compares the set with its definition.
func checkPareto(rt *rapid.T, points []Point) {
	beats := func(a, b Point) bool {
		return a.GPUs <= b.GPUs && a.Time <= b.Time && a.Loss <= b.Loss
	}
	set := pareto(points)
	for i, a := range set {
		for j, b := range set {
			if i != j && beats(a, b) {
				rt.Fatalf("%+v beats %+v", a, b)
			}
		}
	}
	for _, p := range points {
		if !slices.ContainsFunc(set, func(s Point) bool { return beats(s, p) }) {
			rt.Fatalf("nothing of the Pareto set is as good as %+v", p)
		}
	}
}

// asText is what is printed about runs, without their places in the list.
func asText(rt *rapid.T, runs []Run, b int) string {
	r, err := Build(runs, Options{PerGPU: b, Times: Times{PerEquivalent: 20}})
	if err != nil {
		rt.Fatal(err)
	}
	r.Runs = nil
	strip := func(p *Panel) {
		for i := range p.Pareto {
			p.Pareto[i].Run = 0
		}
		for i := range p.Grid {
			if p.Grid[i].Best != nil {
				p.Grid[i].Best.Run = 0
			}
		}
	}
	for i := range r.Models {
		strip(r.Models[i].Frontier)
	}
	strip(r.Wall)
	text, err := json.Marshal(r)
	if err != nil {
		rt.Fatal(err)
	}
	return string(text)
}

// TestRow32PrefixesAreLabelled (E row 32): a prefix carries its mark into cells and Pareto
// set, there is a warning, and of an equal finished run the finished one is shown.
func TestRow32PrefixesAreLabelled(t *testing.T) {
	runs := []Run{
		{Name: "long @ step 10", Params: 1, Batch: 4, Steps: 10, Loss: 3.5, Prefix: true, Seeds: 1},
		{Name: "long", Params: 1, Batch: 4, Steps: 100, Loss: 3, Seeds: 1},
		{Name: "also @ step 100", Params: 1, Batch: 4, Steps: 100, Loss: 3, Prefix: true, Seeds: 1},
	}
	r := build(t, runs, Options{})
	p := r.Models[0].Frontier
	if len(p.Pareto) != 2 || !p.Pareto[0].Prefix || p.Pareto[1].Prefix || p.Pareto[1].Name != "long" {
		t.Errorf("%+v", p.Pareto)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "2 of 3 points are prefixes") {
		t.Errorf("%q", r.Warnings)
	}
	if first := p.Grid[0].Best; first == nil || !first.Prefix {
		t.Errorf("%+v", first)
	}
}

// TestRow32MeasuredTimes (E row 32): seconds come from measured pairs of batch and GPUs
// alone; both axes are there; a batch that was not measured is said to be missing.
func TestRow32MeasuredTimes(t *testing.T) {
	times := Times{Measured: []StepTime{{Batch: 16, GPUs: 4, MS: 150}, {Batch: 16, GPUs: 1, MS: 500}, {Batch: 4, GPUs: 1, MS: 100, Params: 10}, {Batch: 8, GPUs: 1, MS: 1, Params: 77}}}
	o := Options{PerGPU: 4, Times: times}
	r := build(t, known(), o)
	var got [][3]float64
	for _, x := range r.Wall.Pareto {
		got = append(got, [3]float64{float64(x.GPUs), x.Time, x.Loss})
	}
	// small: 80 s on one; large: 50 s on one, 15 s on four; medium was measured for
	// another model only.
	if want := [][3]float64{{1, 50, 3.3}, {1, 80, 3.0}, {4, 15, 3.3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v instead of %v", got, want)
	}
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "1 of 4 runs have no measured step time") {
		t.Errorf("%q", r.Warnings)
	}
	for _, x := range r.Models[0].Frontier.Pareto {
		want := map[[2]int]float64{{16, 4}: 15, {16, 1}: 50, {4, 1}: 80}[[2]int{x.Batch, x.GPUs}]
		if (x.Seconds == nil) != (want == 0) || x.Seconds != nil && math.Abs(*x.Seconds-want) > 1e-9 {
			t.Errorf("%+v instead of %g s", x, want)
		}
	}
	a, err := r.Advise(o, 4, 60)
	if err != nil || a.Best == nil || a.Best.Name != "large" || a.Best.GPUs != 1 || len(a.Fewer) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = r.Advise(o, 4, 20); err != nil || a.Best.GPUs != 4 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = r.Advise(o, 4, 1); err != nil || a.Best != nil || a.Fastest == nil || a.Fastest.Time != 15 {
		t.Errorf("%+v, %v", a, err)
	}
	// A time for every equivalent covers all runs, and gives way to fewer GPUs.
	o.Times = Times{PerEquivalent: 100}
	r = build(t, known(), o)
	if a, err = r.Advise(o, 8, 35); err != nil || a.Best.Name != "medium" || a.Best.GPUs != 2 || len(a.Fewer) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = r.Advise(o, 8, 40); err != nil || a.Best.Name != "medium" || len(a.Fewer) != 1 || a.Fewer[0].Name != "large" || a.Fewer[0].GPUs != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestRow33LatencyFirst (E row 33): with one GPU a step, the projection is the frontier,
// number for number; with more it is another panel, marked in every point, and its times
// are those of the formula.
func TestRow33LatencyFirst(t *testing.T) {
	l, err := NewLatency(0.2, 0.05)
	if err != nil {
		t.Fatal(err)
	}
	if s := l.Speedup(1); s != 1 {
		t.Errorf("s(1) = %v", s)
	}
	if got, want := l.Speedup(4), 1/(0.2+0.8/4+0.05*2); got != want {
		t.Errorf("s(4) = %v instead of %v", got, want)
	}
	deadlines := []float64{100, 150, 300, 800}
	one := build(t, known(), Options{PerGPU: 4, Latency: l, Ways: []int{1}, Deadlines: deadlines}).Models[0]
	for i, c := range one.Projected.Grid {
		f := one.Frontier.Grid[i]
		if (c.Best == nil) != (f.Best == nil) || c.GPUs != f.GPUs || c.Deadline != f.Deadline {
			t.Fatalf("%+v, the frontier has %+v", c, f)
		}
		if c.Best == nil {
			continue
		}
		if !c.Best.Projected || f.Best.Projected || c.Best.Ways != 1 || f.Best.Ways != 0 {
			t.Errorf("not labelled: %+v, %+v", c.Best, f.Best)
		}
		same := *c.Best
		same.Projected, same.Ways, same.Speedup = false, 0, 0
		if !reflect.DeepEqual(same, *f.Best) {
			t.Errorf("%+v, the frontier has %+v", same, f.Best)
		}
	}
	two := build(t, known(), Options{PerGPU: 4, Latency: l, Ways: []int{1, 4}, GPUs: []int{4, 8, 16}, Deadlines: []float64{150, 401}}).Models[0]
	s := l.Speedup(4)
	for i, w := range []struct {
		name string
		gpus int
		time float64
	}{{"large", 4, 100}, {"small", 4, 800 / s}, {"medium", 8, 300 / s}, {"small", 4, 800 / s}, {"medium", 8, 300 / s}, {"small", 4, 800 / s}} {
		b := two.Projected.Grid[i].Best
		if b == nil || b.Name != w.name || b.GPUs != w.gpus || b.Time != w.time || !b.Projected {
			t.Errorf("cell %d: %+v instead of %+v", i, b, w)
		}
	}
	for i := range two.Frontier.Grid {
		if b := two.Frontier.Grid[i].Best; b != nil && b.Projected {
			t.Errorf("a projection in the frontier: %+v", b)
		}
	}
}

// TestRow33FittedShares (E row 33): f and c come back from step times made of them, stay
// in their bounds, and need enough times.
func TestRow33FittedShares(t *testing.T) {
	times := func(f, c float64, ways ...int) (out []ShareTime) {
		for _, p := range ways {
			out = append(out, ShareTime{p, 40 * (f + (1-f)/float64(p) + c*math.Log2(float64(p)))})
		}
		return out
	}
	for _, w := range []struct{ f, c float64 }{{0.15, 0.03}, {0, 0.1}, {0.4, 0}} {
		l, err := FitLatency(times(w.f, w.c, 1, 2, 4, 8))
		if err != nil || math.Abs(l.Serial-w.f) > 1e-9 || math.Abs(l.Communication-w.c) > 1e-9 || l.Residual > 1e-9 {
			t.Errorf("f %g, c %g come back as %+v, %v", w.f, w.c, l, err)
		}
	}
	// Better than ideal: f would be below 0.
	if l, err := FitLatency([]ShareTime{{1, 40}, {2, 19}, {4, 9}}); err != nil || l.Serial != 0 || l.Communication != 0 || l.Residual < 0.02 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, list := range [][]ShareTime{nil, times(0, 0, 1, 2), times(0, 0, 2, 4, 8), append(times(0, 0, 1, 2, 4), ShareTime{2, 3}), {{1, 1}, {2, -1}, {4, 1}}} {
		if l, err := FitLatency(list); err == nil {
			t.Errorf("%v gives %+v", list, l)
		}
	}
	for _, w := range [][2]float64{{-0.1, 0}, {1.1, 0}, {0.1, -1}, {math.NaN(), 0}, {0, math.Inf(1)}} {
		if _, err := NewLatency(w[0], w[1]); err == nil {
			t.Errorf("f %g and c %g are taken", w[0], w[1])
		}
	}
}

// TestFiles: step times and ways on the disk, and what is refused with its place.
func TestFiles(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "times.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	times, err := ReadTimes(write(`{"machine": "eight of them", "step_times": [{"batch": 64, "gpus": 8, "ms": 120.5}]}`))
	if err != nil || len(times.Measured) != 1 || times.Machine != "eight of them" || times.Measured[0].MS != 120.5 {
		t.Errorf("%+v, %v", times, err)
	}
	l, err := ReadLatency(write(`{"ways": [{"ways": 1, "ms": 10}, {"ways": 2, "ms": 6}, {"ways": 4, "ms": 4}]}`))
	if err != nil || math.Abs(l.Serial-0.2) > 1e-9 || l.From == "" {
		t.Errorf("%+v, %v", l, err)
	}
	for text, want := range map[string]string{
		`{}`: "step_times is empty",
		`{"step_times": [{"batch": 0, "gpus": 1, "ms": 1}]}`:                        "step time 1: batch 0",
		`{"step_times": [{"batch": 4, "gpus": 1, "ms": 0}]}`:                        "0 ms",
		`{"step_times": [{"batch":4,"gpus":1,"ms":1},{"batch":4,"gpus":1,"ms":2}]}`: "twice",
		`{"step_time": []}`: "unknown field",
		`nothing`:           "invalid character",
	} {
		if _, err := ReadTimes(write(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "times.json") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{`{"ways": [{"ways": 1, "ms": 10}]}`: "two or more", `{"x": 1}`: "unknown field"} {
		if _, err := ReadLatency(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestBadInput: what Build and Advise refuse.
func TestBadInput(t *testing.T) {
	nan := known()
	nan[1].Loss = math.NaN()
	for _, c := range []struct {
		runs []Run
		o    Options
		want string
	}{
		{nil, Options{}, "no run"},
		{nan, Options{}, "large has the loss NaN"},
		{[]Run{{Name: "x", Batch: 0, Steps: 3}}, Options{}, "3 steps of 0 rows"},
		{known(), Options{PerGPU: -1}, "-1 rows a GPU"},
		{known(), Options{GPUs: []int{0}}, "0 GPUs"},
		{known(), Options{Deadlines: []float64{math.NaN()}}, "a deadline of NaN"},
		{known(), Options{Ways: []int{0}}, "0 ways"},
		{known(), Options{Latency: &Latency{Serial: 2}}, "f is 2"},
		{known(), Options{Times: Times{Measured: []StepTime{{Batch: 5, GPUs: 1, MS: 1}}}}, "batches [4 8 16]"},
	} {
		if _, err := Build(c.runs, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	r := build(t, known(), Options{})
	if _, err := r.Advise(Options{}, 8, 60); err == nil || !strings.Contains(err.Error(), "step times") {
		t.Errorf("%v", err)
	}
}
