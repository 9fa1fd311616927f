package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestTableIsCurrent: the table in docs/performance.md is the one the records make.
func TestTableIsCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := Table("results")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Splice(page, table)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		t.Error("docs/performance.md is behind bench/results; run: refrain bench table --write docs/performance.md")
	}
	if strings.Count(table, "\n") < 10 {
		t.Errorf("the records in bench/results make a table of few rows:\n%s", table)
	}
}

// TestPatterns: no figure reads the lines of another loader or kind.
func TestPatterns(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range figures() {
		if seen[f.what] {
			t.Errorf("two figures are called %q", f.what)
		}
		seen[f.what] = true
		if _, _, _, err := f.newest(nil); err != nil {
			t.Error(err)
		}
	}
	r := Record{Date: "2026-01-02T03:04:05Z", Lines: []Line{
		{Name: "Step/preset=11M", Metrics: []Metric{{9, "x-peer"}}}, {Name: "Step/preset=1M", Metrics: []Metric{{1, "x-peer"}}},
		{Name: "Step/preset=1M", Metrics: []Metric{{3, "x-peer"}}}, {Name: "Step/preset=1M/precision=bf16", Metrics: []Metric{{7, "x-peer"}}},
	}}
	f := figures()[0]
	if got, _, ok, err := f.newest([]Record{r}); got != "2.00 (1.50-2.50)" || !ok || err != nil {
		t.Errorf("%s: %q %v %v", f.what, got, ok, err)
	}
}

func TestPressure(t *testing.T) {
	calm, busy := 5.0, 5.1
	for _, k := range []struct {
		p           *float64
		force       bool
		forced, bad bool
	}{{nil, false, false, false}, {&calm, false, false, false}, {&busy, false, true, true}, {&busy, true, true, false}, {&calm, true, false, false}} {
		if forced, err := tooHigh(k.p, k.force); forced != k.forced || (err != nil) != k.bad {
			t.Errorf("%+v: %v, %v", k, forced, err)
		}
	}
}

// TestPick: of the settings of a peer the one that is nearest to ours counts.
func TestPick(t *testing.T) {
	f := figure{unit: "ours-x", pattern: "p/.*", form: "%.0f"}
	r := Record{Date: "2026-01-02T03:04:05Z", Lines: []Line{
		{Name: "p/wall", Metrics: []Metric{{9, "ours-x"}}}, {Name: "p/cpu", Metrics: []Metric{{4, "ours-x"}}}, {Name: "q/cpu", Metrics: []Metric{{1, "ours-x"}}},
	}}
	if got, _, ok, err := f.newest([]Record{r}); got != "4" || !ok || err != nil {
		t.Errorf("%q %v %v", got, ok, err)
	}
}

func TestParseLine(t *testing.T) {
	l := Line{Name: "Loader/tier=T1/loader=a-b", Threads: 2, N: 7, PerOp: 1500 * time.Nanosecond, Metrics: []Metric{{0.25, "x-peer"}, {123456, "tok/s"}}}
	got, err := ParseLine(l.String())
	if err != nil || !reflect.DeepEqual(got, l) {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", "BenchmarkX-1 1", "BenchmarkX 1 2 ns/op", "BenchmarkX-a 1 2 ns/op", "BenchmarkX-1 a 2 ns/op", "BenchmarkX-1 1 a ns/op", "X-1 1 2 ns/op"} {
		if _, err := ParseLine(s); err == nil {
			t.Errorf("%q is read as a line", s)
		}
	}
}

// TestRecord: what a command printed comes back from its file, with the folders of
// the machine left out, and another run of the day lies beside it.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	abs := filepath.Join(dir, "x", "tokenizer.json")
	for i := range 2 {
		r, err := NewRecord([]string{"refrain", "bench", "x", "--record", dir, "--force", "-t", abs, "--file=" + abs}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Finish("goos: linux\n# a note\nBenchmarkX-1 3 12 ns/op 4 tok/s\n"); err != nil {
			t.Fatal(err)
		}
		path, err := r.Save(dir, "x")
		if err != nil {
			t.Fatal(err)
		}
		all, err := ReadRecords(dir)
		if err != nil || len(all) != i+1 {
			t.Fatalf("%d records in %s: %v", len(all), path, err)
		}
		got := all[i]
		if cmd := strings.Join(got.Command, " "); cmd != "refrain bench x -t tokenizer.json --file=tokenizer.json" {
			t.Errorf("command %q", cmd)
		}
		if len(got.Lines) != 1 || got.Lines[0].Name != "X" || len(got.Notes) != 1 || got.Notes[0] != "a note" || got.Kernels == "" || got.Code == "" || got.Built == "" {
			t.Errorf("%+v", got)
		}
	}
	r, err := NewRecord(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if r.Finish("nothing") == nil {
		t.Error("a record without a measurement")
	}
	page := filepath.Join(dir, "page.html")
	if err := Report(dir, page); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "<td>4 tok/s</td>") {
		t.Errorf("the page lacks its line: %v", err)
	}
	if err := Report(t.TempDir(), page); err == nil {
		t.Error("a report of no records")
	}
}
