package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/run/config"
)

// Record is what a run folder says about its run. It is read from files alone,
// so that it can be had while the run goes on, and of runs from elsewhere.
type Record struct {
	Dir    string
	Info   Info
	Exit   *Exit            // nil while the run goes on, or when it was killed
	Config *config.Resolved // nil when the folder has none that can be read
	Last   StepRecord       // of the last step; Step is 0 before the first
	First  StepRecord
	Val    []EvalRecord // in the order of steps, the last one of each step
	Saves  []SaveRecord
	Speed  float64   // input tokens a second, median of the logged steps
	Wrote  time.Time // of the last line of metrics.jsonl
	locked bool      // a process holds the folder
}

// StepRecord, EvalRecord and SaveRecord are lines of metrics.jsonl.
type StepRecord struct {
	Step      int64   `json:"step"`
	Epoch     float64 `json:"epoch"`
	Tokens    int64   `json:"tokens"`
	Loss      float64 `json:"loss"`
	Norm      float64 `json:"norm"`
	LR        float64 `json:"lr"`
	Chain     string  `json:"chain"`
	TokensSec float64 `json:"tok_s"`
	Wait      float64 `json:"wait"`
}

// EvalRecord is an evaluation.
type EvalRecord struct {
	Step   int64   `json:"step"`
	Loss   float64 `json:"loss"`
	Tokens int64   `json:"tokens"`
}

// SaveRecord is a checkpoint, or the failure to write one.
type SaveRecord struct {
	Step  int64  `json:"step"`
	Path  string `json:"path"`
	Error string `json:"error"`
}

// ended reports whether the last start of the run ended by itself. A start takes
// exit.json away, so one that goes on, or was killed, has none.
func (r *Record) ended() bool { return r.Exit != nil }

// Status is one word for how the run stands: done, stopped, failed, running or
// killed.
func (r *Record) Status() string {
	switch {
	case r.locked:
		return "running"
	case !r.ended():
		return "killed"
	}
	return r.Exit.Status
}

// Best returns the evaluation with the lowest loss, and whether there is one.
func (r *Record) Best() (EvalRecord, bool) {
	if len(r.Val) == 0 {
		return EvalRecord{}, false
	}
	best := r.Val[0]
	for _, e := range r.Val[1:] {
		if e.Loss < best.Loss {
			best = e
		}
	}
	return best, true
}

// maxRecordFile bounds the small files of a run folder.
const maxRecordFile = 16 << 20

// ReadRecord reads the run folder dir. A missing run.json wraps fs.ErrNotExist.
func ReadRecord(dir string) (*Record, error) {
	r := &Record{Dir: dir}
	if err := readJSON(filepath.Join(dir, RunFile), &r.Info); err != nil {
		return nil, err
	}
	var e Exit
	switch err := readJSON(filepath.Join(dir, ExitFile), &e); {
	case err == nil:
		r.Exit = &e
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if c, err := config.Load(filepath.Join(dir, ConfigFile), nil); err == nil {
		r.Config = c
	}
	if err := r.readMetrics(); err != nil {
		return nil, err
	}
	r.locked = !r.ended() && locked(filepath.Join(dir, lockFile))
	return r, nil
}

func readJSON(path string, v any) error {
	b, err := fsx.ReadFile(fsx.OS{}, path, maxRecordFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// locked reports whether somebody holds the lock file. It takes the lock for a
// moment if nobody does, so it is asked only about runs that have not ended.
func locked(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	l, err := fsx.OS{}.Lock(path)
	if err != nil {
		var held *fsx.LockedError
		return errors.As(err, &held)
	}
	return l.Close() != nil
}

// maxMetricsLine is far above any line that a run writes.
const maxMetricsLine = 1 << 20

func (r *Record) readMetrics() error {
	path := filepath.Join(r.Dir, MetricsFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil {
		r.Wrote = st.ModTime()
	}
	var speeds []float64
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxMetricsLine)
	for n := 1; sc.Scan(); n++ {
		var head struct {
			Type string `json:"type"`
		}
		line := sc.Bytes()
		// A line that a kill cut short is followed by others after a resume.
		if json.Unmarshal(line, &head) != nil {
			continue
		}
		if err := r.line(head.Type, line, &speeds); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	r.Speed = medianOf(speeds)
	return sc.Err()
}

func (r *Record) line(kind string, line []byte, speeds *[]float64) error {
	switch kind {
	case "step":
		var s StepRecord
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		if r.First.Step == 0 {
			r.First = s
		}
		r.Last = s // a resumed run repeats steps, with equal values
		if s.TokensSec > 0 {
			*speeds = append(*speeds, s.TokensSec)
		}
	case "eval":
		var e EvalRecord
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		for len(r.Val) > 0 && r.Val[len(r.Val)-1].Step >= e.Step {
			r.Val = r.Val[:len(r.Val)-1]
		}
		r.Val = append(r.Val, e)
	case "save":
		var s SaveRecord
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		r.Saves = append(r.Saves, s)
	}
	return nil
}

// FindRuns returns the run folders directly inside dir, or dir itself when it
// is one, in the order of names.
func FindRuns(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, RunFile)); err == nil {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		p := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(p, RunFile)); err == nil {
			out = append(out, p)
		}
	}
	return out, nil
}

// medianOf returns the middle value, or zero of none. It sorts x.
func medianOf(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[len(x)/2]
}
