// Package report turns run folders into one self-contained HTML page: curves,
// tables, provenance, and the numbers behind every figure. It reads what runs
// left behind and computes nothing that is not in their files.
package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"refrain/internal/run"
)

// Step is one optimiser step of a run.
type Step struct {
	Step  int64
	Epoch float64
	Loss  float64
	Norm  float64
	LR    float64
	TokS  float64 // 0 where not logged
	Wait  float64
	Began bool // the first step of a process
}

// Eval is one validation of a run.
type Eval struct {
	Step   int64
	Epoch  float64
	Loss   float64
	Tokens int64
}

// Run is what a run folder says.
type Run struct {
	Name   string
	Folder string
	Info   run.Info
	Exit   *run.Exit // nil while the run goes on or after a kill
	Config string    // resolved, with origins
	Plan   struct {
		Params       int   `json:"params"`
		UniqueTokens int64 `json:"unique_tokens"`
	} // what was expected; zero where there is no plan.json
	Measured []Measured // by `refrain eval`
	Steps    []Step
	Evals    []Eval
	Chain    string // after the last step
}

// metricsLine is any line of metrics.jsonl.
type metricsLine struct {
	Type   string  `json:"type"`
	Step   int64   `json:"step"`
	Epoch  float64 `json:"epoch"`
	Loss   float64 `json:"loss"`
	Norm   float64 `json:"norm"`
	LR     float64 `json:"lr"`
	TokS   float64 `json:"tok_s"`
	Wait   float64 `json:"wait"`
	Tokens int64   `json:"tokens"`
	Chain  string  `json:"chain"`
}

// Load reads a run folder. Steps that a resumed run did again appear once, as
// they were done last.
func Load(folder string) (*Run, error) {
	r := &Run{Name: filepath.Base(filepath.Clean(folder)), Folder: folder}
	b, err := os.ReadFile(filepath.Join(folder, run.RunFile))
	if err != nil {
		return nil, fmt.Errorf("%s is not a run folder: %w", folder, err)
	}
	if err := json.Unmarshal(b, &r.Info); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", folder, run.RunFile, err)
	}
	if b, err = os.ReadFile(filepath.Join(folder, run.ExitFile)); err == nil {
		r.Exit = &run.Exit{}
		if err := json.Unmarshal(b, r.Exit); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", folder, run.ExitFile, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if b, err = os.ReadFile(filepath.Join(folder, run.ConfigFile)); err == nil {
		r.Config = string(b)
	}
	if b, err = os.ReadFile(filepath.Join(folder, run.PlanFile)); err == nil {
		if err := json.Unmarshal(b, &r.Plan); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", folder, run.PlanFile, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := r.measured(); err != nil {
		return nil, err
	}
	return r, r.metrics()
}

// Measured is a result of `refrain eval`.
type Measured struct {
	Name     string   // of its file, without the ending
	Step     int64    `json:"step"`
	Store    string   `json:"store"`
	DataHash string   `json:"data_hash"`
	Loss     float64  `json:"loss"`
	StdErr   *float64 `json:"stderr_over_documents"`
	Tokens   int64    `json:"tokens"`
	Seen     bool     `json:"seen"` // on windows that the run was trained on
}

func (r *Run) measured() error {
	entries, err := os.ReadDir(filepath.Join(r.Folder, run.EvalDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(r.Folder, run.EvalDir, e.Name()))
		if err != nil {
			return err
		}
		m := Measured{Name: name}
		if err := json.Unmarshal(b, &m); err != nil {
			return fmt.Errorf("%s: %s: %w", r.Folder, filepath.Join(run.EvalDir, e.Name()), err)
		}
		r.Measured = append(r.Measured, m)
	}
	return nil
}

func (r *Run) metrics() error {
	starts, err := r.starts()
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(r.Folder, run.MetricsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		var m metricsLine
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			continue // a line cut short by a kill; the step is done again
		}
		switch m.Type {
		case "step":
			for len(r.Steps) > 0 && r.Steps[len(r.Steps)-1].Step >= m.Step {
				r.Steps = r.Steps[:len(r.Steps)-1]
			}
			r.Steps = append(r.Steps, Step{m.Step, m.Epoch, m.Loss, m.Norm, m.LR, m.TokS, m.Wait, slices.Contains(starts, m.Step-1)})
			r.Chain = m.Chain
		case "eval":
			for len(r.Evals) > 0 && r.Evals[len(r.Evals)-1].Step >= m.Step {
				r.Evals = r.Evals[:len(r.Evals)-1]
			}
			r.Evals = append(r.Evals, Eval{Step: m.Step, Loss: m.Loss, Tokens: m.Tokens})
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%s: %w", run.MetricsFile, err)
	}
	for i := range r.Evals {
		for _, s := range r.Steps {
			if s.Step == r.Evals[i].Step {
				r.Evals[i].Epoch = s.Epoch
			}
		}
	}
	return nil
}

// starts returns the steps after which a process began, from the log of the run.
func (r *Run) starts() (steps []int64, err error) {
	b, err := os.ReadFile(filepath.Join(r.Folder, run.LogFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		var e struct {
			Msg  string `json:"msg"`
			Step int64  `json:"step"`
		}
		// A line cut short by a kill is not one about a start.
		if json.Unmarshal(line, &e) == nil && e.Msg == "started" {
			steps = append(steps, e.Step)
		}
	}
	return steps, nil
}

// EpochMeans returns the mean training loss of every whole or begun epoch.
func (r *Run) EpochMeans() (epoch, loss []float64) {
	var sum float64
	var n int
	cur := 0.0
	flush := func() {
		if n > 0 {
			epoch, loss = append(epoch, cur), append(loss, sum/float64(n))
		}
		sum, n = 0, 0
	}
	for _, s := range r.Steps {
		// A step that ends exactly at an epoch's end belongs to that epoch.
		e := ceil(s.Epoch)
		if e != cur {
			flush()
			cur = e
		}
		sum += s.Loss
		n++
	}
	flush()
	return epoch, loss
}

// fewEpochs is below how many epochs a curve of their means says too little.
const fewEpochs = 12

// TrainCurve is the training loss over epochs: the means of epochs, or for a run of few
// of them the means over up to 48 equal parts of its steps.
func (r *Run) TrainCurve() (epoch, loss []float64) {
	n := len(r.Steps)
	if n == 0 || r.Steps[n-1].Epoch >= fewEpochs {
		return r.EpochMeans()
	}
	parts := min(n, 48)
	for k := range parts {
		part := r.Steps[k*n/parts : (k+1)*n/parts]
		var sum float64
		for _, s := range part {
			sum += s.Loss
		}
		epoch, loss = append(epoch, part[len(part)-1].Epoch), append(loss, sum/float64(len(part)))
	}
	return epoch, loss
}

// FinalTrain is the mean training loss over the last epoch, and whether there is one.
func (r *Run) FinalTrain() (float64, bool) {
	_, loss := r.EpochMeans()
	if len(loss) == 0 {
		return 0, false
	}
	return loss[len(loss)-1], true
}

// key is the run's in the provenance.
func (r *Run) key() string { return "run " + r.Folder }

func ceil(x float64) float64 {
	i := float64(int64(x))
	if x-i > 1e-9 {
		return i + 1
	}
	return i
}

// Gaps returns, for every evaluation, its loss minus the mean training loss of
// the steps just before it, as many as there are up to the first evaluation: the
// usual distance. An evaluation without steps before it has no gap.
func (r *Run) Gaps() (epoch, gap []float64) {
	end := 0
	for _, e := range r.Evals {
		for end < len(r.Steps) && r.Steps[end].Step <= e.Step {
			end++
		}
		var sum float64
		n := 0
		for i := end - 1; i >= 0 && r.Steps[i].Step > e.Step-r.Evals[0].Step; i-- {
			sum += r.Steps[i].Loss
			n++
		}
		if n > 0 {
			epoch, gap = append(epoch, e.Epoch), append(gap, e.Loss-sum/float64(n))
		}
	}
	return epoch, gap
}

// Speed returns the median of the logged speeds in tokens a second, and the
// largest logged share of waiting. The first line of the run, and of what was
// resumed, is left out: it counts the start of the pipeline.
func (r *Run) Speed() (tokS, wait float64) {
	var v []float64
	for i, s := range r.Steps {
		if s.TokS > 0 && i > 0 && !s.Began {
			v = append(v, s.TokS)
			wait = max(wait, s.Wait)
		}
	}
	return medianOf(v), wait
}

// FinalVal returns the last validation loss, and whether there is one.
func (r *Run) FinalVal() (float64, bool) {
	if len(r.Evals) == 0 {
		return 0, false
	}
	return r.Evals[len(r.Evals)-1].Loss, true
}

func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
