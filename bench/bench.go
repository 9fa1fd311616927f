// Package bench holds measurements as library code: a Config and a function
// for every scenario, results as Go benchmark lines. Nothing here decides
// whether a number is good; docs/performance.md and bench/results say what was
// measured, against what, and by which command.
package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Metric is one figure of a line beside ns/op.
type Metric struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Line is one measurement in the Go benchmark format, which benchstat reads.
type Line struct {
	Name    string        `json:"name"` // without "Benchmark" and without the thread suffix
	Threads int           `json:"threads"`
	N       int           `json:"n"` // operations measured
	PerOp   time.Duration `json:"ns_per_op"`
	Metrics []Metric      `json:"metrics"`
}

// String formats the line:
//
//	BenchmarkStep/preset=1M-2 10 365000000 ns/op 11200 tok/s 0.02 wait%
func (l Line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s-%d %d %d ns/op", l.Name, l.Threads, l.N, l.PerOp.Nanoseconds())
	for _, m := range l.Metrics {
		b.WriteString(" " + number(m.Value) + " " + m.Unit)
	}
	return b.String()
}

// ParseLine reads what String writes.
func ParseLine(s string) (l Line, err error) {
	f := strings.Fields(s)
	if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
		return l, fmt.Errorf("%q is no benchmark line", s)
	}
	name := strings.TrimPrefix(f[0], "Benchmark")
	dash := strings.LastIndexByte(name, '-')
	if dash < 0 {
		return l, fmt.Errorf("%q has no number of threads", s)
	}
	l.Name = name[:dash]
	if l.Threads, err = strconv.Atoi(name[dash+1:]); err != nil {
		return l, fmt.Errorf("threads of %q: %w", s, err)
	}
	if l.N, err = strconv.Atoi(f[1]); err != nil {
		return l, fmt.Errorf("count of %q: %w", s, err)
	}
	for i := 2; i < len(f); i += 2 {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return l, fmt.Errorf("figure of %q: %w", s, err)
		}
		if f[i+1] == "ns/op" {
			l.PerOp = time.Duration(v)
			continue
		}
		l.Metrics = append(l.Metrics, Metric{v, f[i+1]})
	}
	return l, nil
}

// Get returns the figure of a unit, and whether the line has it.
func (l Line) Get(unit string) (float64, bool) {
	for _, m := range l.Metrics {
		if m.Unit == unit {
			return m.Value, true
		}
	}
	return 0, false
}

// number prints four significant digits without an exponent.
func number(x float64) string {
	switch {
	case x >= 1000 || x <= -1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x == 0:
		return "0"
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// Header writes the lines that benchstat groups by.
func Header(w io.Writer, cpu string) error {
	_, err := fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: refrain/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cpu)
	return err
}

// median of at least one duration.
func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	n := len(d)
	if n%2 == 1 {
		return d[n/2]
	}
	return (d[n/2-1] + d[n/2]) / 2
}
