package house

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// row says what a room may import from this module. A room without a row of its
// own has the row of the folder above it, and any room may import what lies
// below itself.
type row struct {
	room string
	may  []string
}

// leaves are the rooms that know nothing of this program.
var leaves = []string{"internal/num", "internal/par", "internal/fsx", "internal/flatbuf"}

// importTable is section 2 of the design, one row a room. "..." stands for
// everything but the rooms named in above.
func importTable() []row {
	with := func(more ...string) []string { return append(slices.Clone(leaves), more...) }
	stage := func(more ...string) []string { return with(append(more, "pipeline", "stages/item")...) }
	return []row{
		{"internal", nil}, // num, par, fsx, flatbuf, golden, house: the standard library only
		{"pipeline", nil},
		{"pipeline/pipelinetest", with("pipeline")},
		{"tokenize", with()},
		{"store", with()},
		{"gpu", with()},
		{"gpu/host", with("gpu", "gpu/race", "kernels/asm")},
		{"gpu/collective", with("gpu")},
		{"gpu/race", with("gpu")},
		{"gpu/cuda", with("gpu", "gpu/race")},
		{"gpu/gputest", with("gpu")},
		{"kernels", with("gpu", "kernels/asm", "kernels/gemm", "kernels/ptx")},
		{"kernels/asm", with()},
		{"kernels/gemm", with("kernels/asm")},
		{"kernels/ptx", nil},
		{"kernels/kerneltest", with("gpu", "kernels")},
		{"model", with("gpu", "kernels")},
		{"train", with("gpu", "gpu/collective", "kernels", "model", "train/ckpt", "stages/item")},
		{"train/ckpt", with()},
		{"train/eval", with("gpu", "gpu/collective", "kernels", "model", "tokenize", "train", "train/ckpt", "stages/item")},
		{"stages/item", with("gpu")},
		{"stages/shards", stage()},
		{"stages/tokens", stage("tokenize", "store")},
		{"stages/repack", stage("store")},
		{"stages/batch", stage("gpu")},
		{"stages/upload", stage("gpu")},
		{"stages/step", stage("gpu", "model", "train")},
		{"stages/evals", stage("gpu", "model", "train", "train/eval")},
		{"stages/saves", stage("gpu", "model", "train", "train/ckpt")},
		{"internal/run/config", with("model")},
		{"internal/run", []string{"..."}},
		{"study", []string{"...", "internal/run"}},
		{"study/micro", []string{"...", "internal/run", "study"}},  // a program of cells for the runner
		{"study/report", []string{"...", "internal/run", "study"}}, // records of everything
		{"study/demo", []string{"...", "internal/run", "study"}},   // writes a report
		{"bench", []string{"...", "internal/run"}},
		{"cmd/refrain", []string{"...", "internal/run", "study", "bench"}},
	}
}

// above are the rooms that "..." leaves out: they import, nobody below does.
var above = []string{"internal/run", "study", "bench", "cmd"}

// testOnly are packages for tests: no product file imports them, every test may.
var testOnly = []string{"internal/golden", "pipeline/pipelinetest", "kernels/kerneltest", "gpu/gputest", "internal/house"}

// onlyIn names the rooms that may use a dependency; an empty list means
// everyone. A module that is not here is not a dependency of this program.
var onlyIn = []struct {
	path  string
	rooms []string
}{
	{"C", []string{"gpu/cuda"}}, // the default build has no cgo
	{"gorgonia.org/cu", []string{"gpu/cuda"}},
	{"github.com/apache/arrow/go/v15", []string{"store", "stages/shards"}}, // untrusted bytes only behind the guard
	{"github.com/spf13/cobra", []string{"cmd/refrain"}},
	{"github.com/spf13/pflag", []string{"cmd/refrain"}},
	{"github.com/vbauerster/mpb/v8", []string{"cmd/refrain", "internal/run"}},
	{"github.com/goccy/go-yaml", []string{"internal/run", "study"}},
	{"github.com/prometheus/client_golang", []string{"internal/run", "cmd/refrain"}},
	{"github.com/nlpodyssey/safetensors", []string{"train/ckpt"}},
	{"gonum.org/v1/plot", []string{"study", "bench", "internal/run", "cmd/refrain"}},
	{"gonum.org/v1/gonum", []string{"study", "bench", "internal/run", "cmd/refrain"}},
	{"github.com/google/pprof", []string{"bench", "internal/run", "cmd/refrain"}},
	{"github.com/mattn/go-isatty", []string{"internal/run", "cmd/refrain"}},
	{"github.com/klauspost/compress", nil},
	{"github.com/klauspost/cpuid/v2", nil},
	{"github.com/cespare/xxhash/v2", nil},
	{"go.uber.org/zap", nil},
	{"golang.org/x/sync", nil},
	{"golang.org/x/sys", nil},
	{"golang.org/x/text", []string{"tokenize"}},
	{"github.com/google/go-cmp", []string{"(tests)"}},
	{"pgregory.net/rapid", []string{"(tests)"}},
	{"go.uber.org/goleak", []string{"(tests)", "pipeline/pipelinetest"}},
}

// rowOf finds the row of the room or of the nearest folder above it.
func rowOf(room string) (row, bool) {
	var best row
	found := false
	for _, r := range importTable() {
		if under(room, r.room) && len(r.room) >= len(best.room) {
			best, found = r, true
		}
	}
	return best, found
}

// mayImport reports whether a product file of room may import the package dep
// of this module.
func mayImport(room, dep string) bool {
	r, ok := rowOf(room)
	if !ok || slices.Contains(testOnly, dep) {
		return false
	}
	if room == dep || under(dep, room) && !isRow(dep) || under(dep, r.room) && under(room, r.room) && !isRow(dep) {
		return true // parts of one room
	}
	for _, m := range r.may {
		if m == "..." {
			if !slices.ContainsFunc(above, func(a string) bool { return under(dep, a) }) {
				return true
			}
			continue
		}
		if dep == m || under(dep, m) && !isRow(dep) {
			return true
		}
		// A room at the top may use all of the rooms it names, rows or not.
		if slices.Contains(above, m) && under(dep, m) {
			return true
		}
	}
	return under(room, "internal/run") && dep == "internal/run/config"
}

// isRow reports whether the room has a row of its own.
func isRow(room string) bool {
	return slices.ContainsFunc(importTable(), func(r row) bool { return r.room == room })
}

// checkImports lists what a file imports against the table.
func checkImports(f *file) []string {
	var bad []string
	_, known := rowOf(f.room)
	if !known && f.room != "." {
		return []string{fmt.Sprintf("%s: room %s is not in the import table; add a row to importTable in internal/house and to section 2 of the design", f.rel, f.room)}
	}
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the compiler complains better
		}
		dep, ours := strings.CutPrefix(p, module+"/")
		switch {
		case ours && f.test:
			// Tests may bring together any rooms below them, but a low room is
			// not tested through the programs above it.
			if slices.ContainsFunc(above, func(a string) bool { return under(dep, a) && !under(f.room, a) }) && !mayImport(f.room, dep) {
				bad = append(bad, fmt.Sprintf("%s: a test in %s imports %s, which stands above it; test the room by itself", f.at(spec), f.room, dep))
			}
		case ours && !mayImport(f.room, dep):
			bad = append(bad, fmt.Sprintf("%s: %s may not import %s; hand the value in through an interface or move the code (internal/house importTable)", f.at(spec), f.room, dep))
		case !ours && (p == "C" || strings.Contains(strings.Split(p, "/")[0], ".")):
			if msg := checkDependency(f, p); msg != "" {
				bad = append(bad, fmt.Sprintf("%s: %s", f.at(spec), msg))
			}
		}
	}
	return bad
}

// checkDependency complains about a dependency in the wrong room.
func checkDependency(f *file, p string) string {
	for _, o := range onlyIn {
		if !under(p, o.path) {
			continue
		}
		if len(o.rooms) == 0 || f.test && p != "C" {
			return ""
		}
		for _, r := range o.rooms {
			if under(f.room, r) {
				return ""
			}
		}
		return fmt.Sprintf("%s is for %s only; keep it behind that room", p, strings.Join(o.rooms, ", "))
	}
	return fmt.Sprintf("%s is not a chosen dependency; use what there is, or record the decision in docs/decisions and add it to onlyIn in internal/house", p)
}

func TestImports(t *testing.T) {
	var bad []string
	for _, f := range load(t).files {
		if !f.nested {
			bad = append(bad, checkImports(f)...)
		}
	}
	report(t, bad)
}

func TestImportRules(t *testing.T) {
	check := func(rel, imports string, want ...string) {
		t.Helper()
		var b strings.Builder
		b.WriteString("package p\n")
		for _, i := range strings.Fields(imports) {
			fmt.Fprintf(&b, "import _ %q\n", i)
		}
		expect(t, checkImports(mustParse(t, rel, b.String())), want...)
	}
	check("model/a.go", "fmt refrain/kernels refrain/gpu refrain/internal/num")
	check("model/a.go", "refrain/train", "model may not import train")
	check("model/a.go", "refrain/gpu/host", "model may not import gpu/host")
	check("model/a.go", "refrain/kernels/kerneltest", "model may not import kernels/kerneltest")
	check("model/a_test.go", "refrain/kernels/kerneltest refrain/gpu/host refrain/train")
	check("model/a_test.go", "refrain/internal/run", "stands above")
	check("stages/batch/a.go", "refrain/stages/item refrain/stages/repack refrain/pipeline", "stages/batch may not import stages/repack")
	check("kernels/a.go", "refrain/kernels/asm refrain/kernels/gemm")
	check("kernels/asm/a.go", "refrain/kernels", "kernels/asm may not import kernels")
	check("kernels/asm/deep/a.go", "refrain/internal/par")
	check("tokenize/a.go", "refrain/tokenize/asm refrain/internal/golden", "tokenize may not import internal/golden")
	check("internal/par/a.go", "refrain/gpu", "internal/par may not import gpu")
	check("internal/run/a.go", "refrain/gpu/host refrain/internal/run/config refrain/stages/step")
	check("internal/run/report/a.go", "refrain/internal/run/config refrain/store")
	check("internal/run/config/a.go", "refrain/internal/run refrain/model", "internal/run/config may not import internal/run")
	check("internal/run/a.go", "refrain/study", "internal/run may not import study")
	check("cmd/refrain/a.go", "refrain/study refrain/bench refrain/internal/run/config github.com/spf13/cobra")
	check("study/a.go", "refrain/bench", "study may not import bench")
	check("newroom/a.go", "fmt", "room newroom is not in the import table")
	check("store/a.go", "github.com/apache/arrow/go/v15/arrow/ipc example.com/x/y",
		"example.com/x/y is not a chosen dependency")
	check("train/a.go", "github.com/apache/arrow/go/v15/arrow", "for store, stages/shards only")
	check("train/a_test.go", "github.com/google/go-cmp/cmp")
	check("train/a.go", "github.com/google/go-cmp/cmp", "for (tests) only")
	check("gpu/host/a.go", "C", "C is for gpu/cuda only")
	check("gpu/cuda/a.go", "C gorgonia.org/cu")
}
