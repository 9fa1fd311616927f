package frontier

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"refrain/internal/fsx"
	"refrain/internal/run"
)

// StepTime is how long an optimiser step takes.
type StepTime struct {
	Params int     `json:"params,omitempty"` // of the model; 0 for every model
	Batch  int     `json:"batch"`            // rows a step
	GPUs   int     `json:"gpus"`
	MS     float64 `json:"ms"`             // milliseconds a step
	Runs   int     `json:"runs,omitempty"` // that it is the median of
	From   string  `json:"from,omitempty"` // where it was measured
}

// Times turn steps into seconds. The zero value knows none.
type Times struct {
	// PerEquivalent is given by the user: milliseconds of one optimiser-step equivalent,
	// the same for every run. 0 means none.
	PerEquivalent float64    `json:"ms_per_equivalent,omitempty"`
	Measured      []StepTime `json:"measured,omitempty"`
	Machine       string     `json:"machine,omitempty"`
}

// Known says that there is any time.
func (t *Times) Known() bool { return t.PerEquivalent > 0 || len(t.Measured) > 0 }

// step is the time of a step of r on so many GPUs in seconds. Nothing is made up for a
// batch or a number of GPUs that was not measured.
func (t *Times) step(r *Run, perGPU, gpus int) (seconds float64, ok bool) {
	if t.PerEquivalent > 0 {
		return t.PerEquivalent / 1000 * float64(Rounds(r.Batch, perGPU, gpus)), true
	}
	for _, m := range t.Measured {
		if m.Batch == r.Batch && m.GPUs == gpus && (m.Params == 0 || m.Params == r.Params) {
			return m.MS / 1000, true
		}
	}
	return 0, false
}

// seconds is the axis of wall-clock time. perGPU is that of the model.
func (t *Times) seconds(perGPU func(params int) int) axis {
	return func(r *Run) []option {
		b := perGPU(r.Params)
		var out []option
		if t.PerEquivalent > 0 {
			out = equivalents(b)(r)
			for i := range out {
				out[i].time *= t.PerEquivalent / 1000
			}
			return out
		}
		var counts []int
		for _, m := range t.Measured {
			if m.Batch == r.Batch && (m.Params == 0 || m.Params == r.Params) {
				counts = append(counts, m.GPUs)
			}
		}
		slices.Sort(counts)
		for _, g := range slices.Compact(counts) {
			s, _ := t.step(r, b, g)
			out = append(out, option{g, float64(r.Steps) * s, 0})
		}
		return out
	}
}

// check refuses times that are none, and two for one step.
func (t *Times) check() error {
	type key struct{ params, batch, gpus int }
	seen := map[key]float64{}
	for i, m := range t.Measured {
		switch {
		case m.Batch < 1 || m.GPUs < 1 || m.Params < 0:
			return fmt.Errorf("step time %d: batch %d, gpus %d, params %d; batch and gpus are 1 or more", i+1, m.Batch, m.GPUs, m.Params)
		case !(m.MS > 0) || math.IsInf(m.MS, 0):
			return fmt.Errorf("step time %d (batch %d on %d GPUs): %g ms", i+1, m.Batch, m.GPUs, m.MS)
		}
		k := key{m.Params, m.Batch, m.GPUs}
		if old, twice := seen[k]; twice {
			return fmt.Errorf("step time %d: batch %d on %d GPUs is there twice, with %g and %g ms; keep one", i+1, m.Batch, m.GPUs, old, m.MS)
		}
		seen[k] = m.MS
	}
	if t.PerEquivalent < 0 || math.IsNaN(t.PerEquivalent) || math.IsInf(t.PerEquivalent, 0) {
		return fmt.Errorf("%g ms for an optimiser-step equivalent", t.PerEquivalent)
	}
	return nil
}

// maxFile bounds a file of step times; they are written by hand or by a script.
const maxFile = 1 << 20

// ReadTimes reads a file of step times, see docs/formats/frontier.md.
func ReadTimes(path string) (*Times, error) {
	var f struct {
		Machine string     `json:"machine"`
		Steps   []StepTime `json:"step_times"`
	}
	if err := readTimings(path, &f, `machine and step_times, a list of {"batch": ROWS, "gpus": N, "ms": MILLISECONDS}`); err != nil {
		return nil, err
	}
	t := &Times{Measured: f.Steps, Machine: f.Machine}
	if len(t.Measured) == 0 {
		return nil, usage("%s: step_times is empty", path)
	}
	if err := t.check(); err != nil {
		return nil, usage("%s: %w", path, err)
	}
	return t, nil
}

// readTimings reads a JSON file into f, whose keys the error for another file names.
func readTimings(path string, f any, keys string) error {
	b, err := fsx.ReadFile(fsx.OS{}, path, maxFile)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return usage("%s: %w; it has the keys %s", path, err, keys)
	}
	return nil
}

func usage(format string, args ...any) error {
	return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf(format, args...)}
}
