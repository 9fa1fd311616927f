package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/study"
)

// losses reads what must be the same wherever the cells of a registry were trained.
func losses(t *testing.T, dir string) (out []string) {
	t.Helper()
	records, err := study.ReadRegistry(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		b, err := json.Marshal([]any{r.Identity, r.Label, r.Seed, r.Status, r.Steps, r.Loss, r.Val, r.Chain})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// TestSweepCells: cells trained one a process, in any order and twice, give the records of
// one sweep; numbers that are none are refused.
func TestSweepCells(t *testing.T) {
	path, out := sweepFile(t, "grid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n")
	for _, n := range []string{"3", "1", "4", "3", "2"} {
		r := object[sweepResult](t, 0, "sweep", path, "--cell", n)
		if len(r.Cells) != 1 || r.Cells[0] == nil || r.Cells[0].Status != study.Done {
			t.Errorf("cell %s: %+v", n, r)
		}
	}
	single := losses(t, out)
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	if c, _, errText := cli("", "sweep", path, "--quiet"); c != 0 {
		t.Fatal(errText)
	}
	if all := losses(t, out); len(all) != 4 || !slices.Equal(all, single) {
		t.Errorf("one by one\n%s\ntogether\n%s", strings.Join(single, "\n"), strings.Join(all, "\n"))
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--cell", "5"}, "the sweep has 4 cells"},
		{[]string{"--cell", "0"}, "numbered from 1"},
		{[]string{"--cell", "1", "--dry-run"}, "does not go with --dry-run"},
		{[]string{"--backend", "pbs"}, "use local, slurm or k8s-render"},
		{[]string{"--sbatch", "--wait"}, "needs --backend slurm"},
		{[]string{"--backend", "slurm", "--json"}, "has no result yet"},
	} {
		if code, _, errText := cli("", append([]string{"sweep", path}, c.args...)...); code != run.ExitUsage || !strings.Contains(errText, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, code, errText)
		}
	}
}

// standIn is an sbatch that runs the tasks of an array one after the other. The test
// binary needs a word more to be the program.
const standIn = `#!/bin/sh
[ "$1" = --parsable ] || exit 9
[ "$2" = --partition=cpu ] || exit 8
sed 's/ sweep / as-refrain sweep /' "$3" > "$3.run"
list=$(sed -n 's/^#SBATCH --array=\([0-9,-]*\).*/\1/p' "$3")
for part in $(echo $list | tr , ' '); do
	for n in $(seq ${part%-*} ${part#*-}); do
		SLURM_ARRAY_TASK_ID=$n SLURM_ARRAY_JOB_ID=7 sh "$3.run" > /dev/null || exit 1
	done
done
echo 7
`

// TestSweepSlurmScript: the array job that is submitted trains exactly the cells that are
// not done, and gives the records of the local backend. sbatch is a stand-in here.
func TestSweepSlurmScript(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the job is a script for sh")
	}
	path, out := sweepFile(t, "grid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sbatch"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	object[sweepResult](t, 0, "sweep", path, "--cell", "2")
	submit := []string{"sweep", path, "--backend", "slurm", "--sbatch", "--partition=cpu", "--max-parallel", "2"}
	t.Setenv("PATH", filepath.Join(bin, "nothing"))
	if code, _, errText := cli("", submit...); code != run.ExitUsage || !strings.Contains(errText, "no sbatch on this machine") {
		t.Errorf("without Slurm: exit %d, %s", code, errText)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+"/usr/bin"+string(os.PathListSeparator)+"/bin")
	code, text, errText := cli("", submit...)
	if code != 0 || !strings.Contains(text, "submitted  7  3 cells") {
		t.Fatalf("exit %d\n%s%s", code, text, errText)
	}
	script, err := os.ReadFile(filepath.Join(out, "slurm.sh"))
	if err != nil || !strings.Contains(string(script), "#SBATCH --array=1,3-4%2\n") {
		t.Errorf("%v\n%s", err, script)
	}
	array := losses(t, out)
	if code, text, _ := cli("", submit...); code != 0 || !strings.Contains(text, "nothing to submit") {
		t.Errorf("exit %d, %s", code, text)
	}
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	object[sweepResult](t, 0, "sweep", path)
	if local := losses(t, out); !slices.Equal(local, array) {
		t.Errorf("array\n%s\nlocal\n%s", strings.Join(array, "\n"), strings.Join(local, "\n"))
	}
}

// TestSweepSlurm submits to a real Slurm and waits, where there is one.
func TestSweepSlurm(t *testing.T) {
	if _, err := exec.LookPath("sbatch"); err != nil {
		t.Skip("no Slurm here (sbatch is not found); TestSweepSlurmScript runs the job's script without it")
	}
	bin := filepath.Join(t.TempDir(), "refrain")
	if b, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	path, out := sweepFile(t, "grid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n")
	if b, err := exec.Command(bin, "sweep", path, "--backend", "slurm", "--sbatch", "--wait").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	array := losses(t, out)
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command(bin, "sweep", path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if local := losses(t, out); len(local) != 4 || !slices.Equal(local, array) {
		t.Errorf("array\n%s\nlocal\n%s", strings.Join(array, "\n"), strings.Join(local, "\n"))
	}
}
