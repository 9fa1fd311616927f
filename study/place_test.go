package study

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func linear(threads int) float64 { return float64(threads) }

// TestRow35Placement: known answers on the simulated clock. Many small runs go side by
// side, one alone gets the whole machine, memory is respected, the longest begins first.
func TestRow35Placement(t *testing.T) {
	load := func(cost float64, mem int64) Load { return Load{cost, mem} }
	for _, c := range []struct {
		name     string
		loads    []Load
		m        Machine
		slots    int
		makespan float64
		order    []int
	}{
		{"many small", []Load{load(1, 1), load(4, 1), load(3, 1), load(2, 1)}, Machine{Cores: 2}, 2, 5, []int{1, 2, 3, 0}},
		{"one has the machine", []Load{load(10, 1)}, Machine{Cores: 4, Speedup: linear}, 1, 2.5, []int{0}},
		{"equal makespans: more runs", []Load{load(4, 1), load(4, 1)}, Machine{Cores: 2, Speedup: linear}, 2, 4, []int{0, 1}},
		// Side by side they do not fit, so slots of one thread would stand empty.
		{"memory for one", []Load{load(4, 6), load(4, 6)}, Machine{Cores: 2, Memory: 10, Speedup: linear}, 1, 4, []int{0, 1}},
		{"a small one passes", []Load{load(5, 8), load(4, 8), load(1, 2)}, Machine{Cores: 2, Memory: 10, Speedup: func(int) float64 { return 1 }}, 2, 9, []int{0, 2, 1}},
		{"larger than the machine", []Load{load(3, 50), load(2, 1)}, Machine{Cores: 2, Memory: 10, Speedup: func(int) float64 { return 1 }}, 2, 5, []int{0, 1}},
		{"at most one", []Load{load(1, 1), load(1, 1)}, Machine{Cores: 8, Parallel: 1, Speedup: linear}, 1, 0.25, []int{0, 1}},
		{"none", nil, Machine{Cores: 2}, 1, 0, nil},
	} {
		p := Place(c.loads, c.m)
		var order []int
		for _, s := range p.Starts {
			order = append(order, s.Run)
		}
		if p.Slots != c.slots || math.Abs(p.Makespan-c.makespan) > 1e-12 || !reflect.DeepEqual(order, c.order) {
			t.Errorf("%s: %+v, want %d slots, makespan %v, order %v", c.name, p, c.slots, c.makespan, c.order)
		}
	}
}

// TestPlacementProperties: every run begins once, no slot has two at a time, memory is
// never exceeded by more than one run alone, and the makespan is below Graham's bound.
func TestPlacementProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := make([]Load, rapid.IntRange(1, 12).Draw(t, "n"))
		sum, longest := 0.0, 0.0
		for i := range loads {
			loads[i] = Load{float64(rapid.IntRange(1, 50).Draw(t, "cost")), int64(rapid.IntRange(1, 10).Draw(t, "memory"))}
			sum += loads[i].CoreSeconds
			longest = max(longest, loads[i].CoreSeconds)
		}
		m := Machine{Cores: rapid.IntRange(1, 6).Draw(t, "cores"), Memory: int64(rapid.IntRange(0, 25).Draw(t, "bytes")), Speedup: linear}
		p := Place(loads, m)
		if !reflect.DeepEqual(p, Place(loads, m)) {
			t.Fatal("not the same twice")
		}
		seen := make([]bool, len(loads))
		for _, s := range p.Starts {
			if seen[s.Run] {
				t.Fatalf("run %d begins twice", s.Run)
			}
			seen[s.Run] = true
			used, beside := int64(0), 0
			for _, o := range p.Starts {
				if o.At <= s.At && s.At < o.End {
					used += loads[o.Run].Memory
					beside++
					if o.Slot == s.Slot && o.Run != s.Run {
						t.Fatalf("slot %d has two runs at %v", s.Slot, s.At)
					}
				}
			}
			if m.Memory > 0 && used > m.Memory && beside > 1 {
				t.Fatalf("%d bytes of %d in use at %v", used, m.Memory, s.At)
			}
		}
		if len(p.Starts) != len(loads) {
			t.Fatalf("%d of %d began", len(p.Starts), len(loads))
		}
		if m.Memory == 0 {
			slots, per := float64(p.Slots), float64(p.Threads)
			if bound := (sum/slots + longest*(1-1/slots)) / per; p.Makespan > bound+1e-9 {
				t.Fatalf("makespan %v above %v", p.Makespan, bound)
			}
		}
	})
}
