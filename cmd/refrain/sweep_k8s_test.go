package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"refrain/internal/run"
)

// TestSweepK8s: the command lines of the job that is printed, run one pod after the other,
// train exactly the cells that are not done and give the records of the local backend. What
// pods could not find is refused.
func TestSweepK8s(t *testing.T) {
	spec, _ := sweepFile(t, "grid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n")
	absolute := spec
	dir := t.TempDir()
	t.Chdir(dir)
	// The same sweep with names that are relative to the working directory.
	b, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	var conf string
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "base: "); ok {
			if conf, err = strconv.Unquote(strings.TrimSpace(rest)); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	from := filepath.ToSlash(filepath.Join(filepath.Dir(conf), "store"))
	for name, content := range map[string]string{
		"tiny.yaml": strings.ReplaceAll(string(text), from, "store"),
		"lr.yaml":   "base: tiny.yaml\nout: out\ngrid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n",
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	writeStore(t, filepath.Join(dir, "store"), 64, 1)
	writeStore(t, filepath.Join(dir, "store", "val"), 32, 2)

	object[sweepResult](t, 0, "sweep", "lr.yaml", "--cell", "2")
	render := []string{"sweep", "lr.yaml", "--backend", "k8s-render", "--k8s-image", "refrain:1", "--k8s-claim", "studies"}
	code, yaml, errText := cli("", append(render, "--max-parallel", "2", "--k8s-cpus", "2", "--k8s-namespace", "lab")...)
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, yaml, errText)
	}
	for _, want := range []string{"kind: Job", "name: refrain-lr", "namespace: lab", "completionMode: Indexed", "completions: 3", "parallelism: 2", "claimName: studies", "image: refrain:1", "workingDir: /data", "--cells", "1,3-4", "$(JOB_COMPLETION_INDEX)"} {
		if !strings.Contains(yaml, want) {
			t.Errorf("there is no %q in\n%s", want, yaml)
		}
	}
	for i := range 3 {
		object[sweepResult](t, 0, "sweep", "lr.yaml", "--cells", "1,3-4", "--index", fmt.Sprint(i))
	}
	pods := losses(t, "out")
	if code, _, errText := cli("", render...); code != run.ExitUsage || !strings.Contains(errText, "all 4 cells are done") {
		t.Errorf("with nothing left: exit %d, %s", code, errText)
	}
	if err := os.RemoveAll("out"); err != nil {
		t.Fatal(err)
	}
	object[sweepResult](t, 0, "sweep", "lr.yaml")
	if local := losses(t, "out"); len(local) != 4 || !slices.Equal(local, pods) {
		t.Errorf("pods\n%s\nlocal\n%s", strings.Join(pods, "\n"), strings.Join(local, "\n"))
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"lr.yaml", "--backend", "k8s-render", "--k8s-claim", "x"}, "needs --k8s-image"},
		{[]string{"lr.yaml", "--backend", "k8s-render", "--k8s-image", "x"}, "needs --k8s-claim"},
		{[]string{absolute, "--backend", "k8s-render", "--k8s-image", "x", "--k8s-claim", "x"}, "the root of the claim"},
		{[]string{"lr.yaml", "--k8s-image", "x"}, "--k8s-image needs --backend k8s-render"},
		{[]string{"lr.yaml", "--cells", "1"}, "belong together"},
		{[]string{"lr.yaml", "--cells", "3-1", "--index", "0"}, `"3-1": want numbers`},
		{[]string{"lr.yaml", "--cells", "1-2", "--index", "2"}, "has 2 cells, counted from 0"},
		{[]string{"lr.yaml", "--cells", "1-2", "--index", "1", "--cell", "1"}, "keep one"},
	} {
		if code, _, errText := cli("", append([]string{"sweep"}, c.args...)...); code != run.ExitUsage || !strings.Contains(errText, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, code, errText)
		}
	}
}
