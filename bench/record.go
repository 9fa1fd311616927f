package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/kernels/asm"
)

// MaxPressure is the CPU pressure, in per cent of the last ten seconds in which
// something that could run had to wait, above which nothing is recorded unless
// forced: what others do on the machine would be measured too.
const MaxPressure = 5.0

// Record is one command that measured, with all it printed.
type Record struct {
	Date     string            `json:"date"` // RFC 3339
	Command  []string          `json:"command"`
	Code     string            `json:"code"`            // revision of this program, with +dirty if its source was changed; or unknown
	Built    string            `json:"built,omitempty"` // by go build or by go run
	Go       string            `json:"go"`
	System   string            `json:"system"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Kernels  string            `json:"kernels"`            // the set in use, as doctor names it
	Pressure [2]*float64       `json:"cpu_pressure"`       // before and after, per cent; null where the system does not tell
	Forced   bool              `json:"forced"`             // recorded although the pressure was too high
	Versions map[string]string `json:"versions,omitempty"` // of the pinned peers that are installed
	Notes    []string          `json:"notes,omitempty"`    // comments: digests, trials, what peers say of themselves
	Lines    []Line            `json:"lines"`
}

// Results is a file of bench/results: the runs of one day, machine and scenario.
type Results struct {
	Format int      `json:"format"` // 1
	Runs   []Record `json:"runs"`
}

// Pressure returns the share of the last ten seconds, in per cent, in which some
// task waited for a CPU, and nil where the system does not tell.
func Pressure() *float64 {
	b, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return nil
	}
	for _, f := range strings.Fields(string(b)) {
		if v, ok := strings.CutPrefix(f, "avg10="); ok {
			p, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return nil
			}
			return &p
		}
	}
	return nil
}

// NewRecord begins the record of a command. Without force it refuses under CPU
// pressure.
func NewRecord(command []string, force bool) (*Record, error) {
	p := Pressure()
	high, err := tooHigh(p, force)
	if err != nil {
		return nil, err
	}
	code, built := stamp()
	return &Record{
		Date: time.Now().UTC().Format(time.RFC3339), Command: portable(command), Code: code, Built: built, Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, CPU: run.CPUName(), Cores: runtime.NumCPU(), Kernels: asm.Kernels(),
		Pressure: [2]*float64{p, nil}, Forced: high,
	}, nil
}

// tooHigh says whether the pressure is above MaxPressure, which is an error unless
// forced. A system that does not tell is taken to be calm.
func tooHigh(p *float64, force bool) (bool, error) {
	if p == nil || *p <= MaxPressure {
		return false, nil
	}
	if !force {
		return true, fmt.Errorf("CPU pressure is %.1f %% (some avg10), above %.0f: others are using this machine; wait, or add --force, which the record will say", *p, MaxPressure)
	}
	return true, nil
}

// portable leaves the folders of this machine and the flags of recording out of a
// command line.
func portable(command []string) (out []string) {
	for i := 0; i < len(command); i++ {
		s := command[i]
		switch {
		case s == "--record":
			i++
			continue
		case s == "--force" || strings.HasPrefix(s, "--record="):
			continue
		case filepath.IsAbs(s):
			s = filepath.Base(s)
		}
		if name, value, ok := strings.Cut(s, "="); ok && filepath.IsAbs(value) {
			s = name + "=" + filepath.Base(value)
		}
		out = append(out, s)
	}
	return out
}

// Finish takes the lines and comments of what the command printed.
func (r *Record) Finish(printed string) error {
	r.Pressure[1] = Pressure()
	for s := range strings.Lines(printed) {
		s = strings.TrimSpace(s)
		switch {
		case strings.HasPrefix(s, "Benchmark"):
			l, err := ParseLine(s)
			if err != nil {
				return err
			}
			r.Lines = append(r.Lines, l)
		case strings.HasPrefix(s, "#"):
			r.Notes = append(r.Notes, strings.TrimSpace(s[1:]))
		}
	}
	if len(r.Lines) == 0 {
		return errors.New("the command printed no measurement; there is nothing to record")
	}
	return nil
}

// PeerVersions returns what is installed of the pins in dir, the folder of the
// peers: package to version.
func PeerVersions(dir string) map[string]string {
	pins, _ := filepath.Glob(filepath.Join(dir, "requirements*.txt")) // the pattern is well formed
	out := map[string]string{}
	for _, path := range pins {
		env := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "requirements"), ".txt"), "-")
		have, err := os.ReadFile(filepath.Join(peerFolder(dir, env), "versions.txt"))
		if err != nil {
			continue // not installed
		}
		want, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(want)) {
			name, _, ok := strings.Cut(strings.TrimSpace(line), "==")
			if !ok || strings.HasPrefix(name, "#") {
				continue
			}
			for h := range strings.Lines(string(have)) {
				if got, version, ok := strings.Cut(strings.TrimSpace(h), "=="); ok && strings.EqualFold(got, name) {
					if env != "" {
						name = env + "/" + name
					}
					out[name] = version
				}
			}
		}
	}
	return out
}

// Save appends the record to DIR/DATE-CPUS-SCENARIO.json and returns the path.
func (r *Record) Save(dir, scenario string) (string, error) {
	path := filepath.Join(dir, fmt.Sprintf("%s-%dcpu-%s.json", r.Date[:len("2006-01-02")], r.Cores, scenario))
	all, err := readResults(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	all.Format = 1
	all.Runs = append(all.Runs, *r)
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return "", err
	}
	return path, fsx.WriteFileAtomic(fsx.OS{}, path, append(b, '\n'))
}

func readResults(path string) (r Results, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != 1 {
		return r, fmt.Errorf("%s has format %d; this program reads 1", path, r.Format)
	}
	return r, nil
}

// ReadRecords returns the records of all files in dir, the oldest first.
func ReadRecords(dir string) (all []Record, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	for _, p := range paths {
		r, err := readResults(p)
		if err != nil {
			return nil, err
		}
		all = append(all, r.Runs...)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return strings.Compare(a.Date, b.Date) })
	return all, nil
}
