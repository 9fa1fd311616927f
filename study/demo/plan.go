package demo

import (
	"fmt"
	"slices"
	"time"
)

// The setting of the demonstration (research: micro-scale runs of repeated
// data): a vocabulary of 2,048, rows of 128 tokens, 8 rows a step, 65,536
// unique training tokens, 512 rows an epoch.
const (
	vocab        = 2048
	seq          = 128
	batchRows    = 8
	uniqueTokens = 65536
	valDocs      = 56
	corpusBytes  = 640_000
	learningRate = 4e-3
)

// arm is a recipe; it is run once for every seed.
type arm struct {
	Name           string
	Mode           string
	Epochs         int
	Decay, EmbedWD float64
	What           string
}

// plan is which runs are made.
type plan struct {
	Arms  []arm
	Seeds int
}

// fullPlan is the ten runs, with the repeated arms at that many epochs and the
// baseline at half of it.
func fullPlan(epochs, seeds int) plan {
	return plan{Seeds: seeds, Arms: []arm{
		{"fixed-0.1", "fixed", epochs, 0.1, 0, "same rows, same batches every epoch; usual decay"},
		{"repack-0.1", "repack", epochs, 0.1, 0, "packed anew every epoch; usual decay"},
		{"fixed-3.2", "fixed", epochs, 3.2, 3.2, "same rows every epoch; decay 3.2, embedding too"},
		{"repack-3.2", "repack", epochs, 3.2, 3.2, "packed anew every epoch; decay 3.2, embedding too"},
		{"baseline", "reshuffle", max(1, epochs/2), 0.1, 0, "fewer epochs, as one stops where the loss turns; new order of the same rows"},
	}}
}

// quickPlan is two arms and one seed.
func quickPlan(epochs int) plan {
	return plan{Seeds: 1, Arms: fullPlan(epochs, 1).Arms[:2]}
}

// Runs returns the number of runs.
func (p plan) Runs() int { return len(p.Arms) * p.Seeds }

// killArm is the arm whose first seed is run again, killed and resumed.
func (p plan) killArm() arm {
	best := p.Arms[0]
	for _, a := range p.Arms[1:] {
		if a.Epochs < best.Epochs {
			best = a
		}
	}
	return best
}

// evalsPerRun is how often a run is evaluated, the end included.
const evalsPerRun = 4

// seconds estimates the plan's duration on two workers that each read rate
// tokens a second and take the next run when they are free, the killed one last;
// a forward pass costs about a third of a step.
func (p plan) seconds(rate float64, valTokens int64) float64 {
	var busy [numWorkers]float64
	add := func(a arm) {
		first := 0
		for w := range busy {
			if busy[w] < busy[first] {
				first = w
			}
		}
		busy[first] += (float64(a.Epochs)*uniqueTokens + float64(evalsPerRun*valTokens)/3) / rate
	}
	for range p.Seeds {
		for _, a := range p.Arms {
			add(a)
		}
	}
	add(p.killArm())
	return slices.Max(busy[:])
}

// choose returns the largest plan that fits in budget, and a sentence when it
// is not the full one.
func choose(quick bool, rate float64, valTokens int64, budget time.Duration) (plan, string) {
	type option struct{ epochs, seeds int }
	options := []option{{16, 2}, {12, 2}, {8, 2}, {8, 1}, {4, 1}, {2, 1}}
	if quick {
		options = []option{{16, 1}, {12, 1}, {8, 1}, {4, 1}, {2, 1}}
	}
	var p plan
	for i, o := range options {
		if quick {
			p = quickPlan(o.epochs)
		} else {
			p = fullPlan(o.epochs, o.seeds)
		}
		if s := p.seconds(rate, valTokens); s <= budget.Seconds() || i == len(options)-1 {
			if i == 0 {
				return p, ""
			}
			return p, fmt.Sprintf("this machine reads %.0f tokens a second on each of two threads: the plan is cut to %d epochs and %s to take about %.0f s; expect smaller differences", rate, o.epochs, []string{"one seed", "two seeds"}[o.seeds-1], s)
		}
	}
	panic("demo: no plan") // the last option is always taken
}
