package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
	"refrain/model"
)

func benchLine(list ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(append([]string{"bench"}, list...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestBenchRecord: a command that measures leaves a record of what it printed, which
// the page and the table can be made of; one that does not measure refuses to.
func TestBenchRecord(t *testing.T) {
	dir := t.TempDir()
	code, out, errs := benchLine("loader", "--mode", "repack", "--seq", "64", "--batch", "4", "--mtok", "1", "--tiers", "T2", "--count", "1", "--time", "10ms", "--record", dir, "--force")
	if code != 0 || !strings.Contains(out, "BenchmarkLoader/tier=T2/mode=repack/loader=refrain/set=chain/T=64/B=4-1 1 ") || !strings.Contains(errs, "recorded in ") {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*cpu-loader.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("records %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Results
	if err := json.Unmarshal(b, &r); err != nil || len(r.Runs) != 1 || len(r.Runs[0].Lines) < 2 || len(r.Runs[0].Notes) < 3 {
		t.Fatalf("%v: %s", err, b)
	}
	page := filepath.Join(dir, "page.html")
	if code, _, errs := benchLine("report", "--results", dir, "-o", page); code != 0 {
		t.Errorf("report: exit %d, %s", code, errs)
	}
	if b, err := os.ReadFile(page); err != nil || !bytes.Contains(b, []byte("refrain bench loader --mode repack")) {
		t.Errorf("the page does not name the command: %v", err)
	}
	for _, list := range [][]string{{"table", "--record", dir}, {"loader", "--record", filepath.Join(dir, "none")}, {"loader", "--mode", "sideways"},
		{"loader", "--tiers", "T3"}, {"loader", "--loaders", "numpy"}, {"loader", "--compare", "peers", "--loaders", "nobody"}, {"plan", "--docs", "0"}, {"ckpt", "--preset", "none"},
		{"step", "--scale", "colour"}, {"step", "--scale", "size", "--preset", "micro-1M"}, {"step", "--scale", "devices", "--batch", "6"},
		{"step", "--scale", "batch", "--batch", "1"}, {"step", "--scale", "batch", "--shards", "2"}, {"step", "--scale", "threads", "--threads", "1"}, {"step", "--scale", "threads", "--compare", "peers"}, {"step", "--preset", "none"},
		{"precision", "--count", "1"}, {"precision", "--compare", "peers"}, {"precision", "--preset", "2M"}, {"kernels", "--compare", "peers"}} {
		if code, _, errs := benchLine(list...); code != run.ExitUsage {
			t.Errorf("%v: exit %d, %s", list, code, errs)
		}
	}
}

// TestBenchPreset: the shapes for a CPU go by their size too.
func TestBenchPreset(t *testing.T) {
	for name, want := range map[string]string{"3M": "micro-3M", "micro-3M": "micro-3M", "150M": "150M"} {
		full, m, err := benchPreset(&cobra.Command{}, name)
		if same, _ := model.PresetByName(want); err != nil || full != want || m != same {
			t.Errorf("%s is %s, %+v, %v", name, full, m, err)
		}
	}
	code, out, errs := benchLine("step", "--preset", "0.3M", "--seq", "16", "--vocab", "64", "--count", "1")
	if code != 0 || !strings.Contains(out, "BenchmarkStep/preset=0.3M/precision=f32-") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
}
