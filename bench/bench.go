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
	Value float64
	Unit  string
}

// Line is one measurement in the Go benchmark format, which benchstat reads.
type Line struct {
	Name    string // without "Benchmark" and without the thread suffix
	Threads int
	N       int // operations measured
	PerOp   time.Duration
	Metrics []Metric
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
