package run_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/train/ckpt"
)

func cyclic(more ...string) []string {
	return append([]string{"train.epochs=2", "optim.schedule=cyclic", "optim.cycles=5", "save.every=2", "save.keep=2"}, more...)
}

// stepsOf lists the checkpoints of a run.
func stepsOf(t *testing.T, out string) (steps []int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(out, run.CkptDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var k int64
		if n, _ := fmt.Sscanf(e.Name(), "step-%d", &k); n == 1 {
			steps = append(steps, k)
		}
	}
	return steps
}

// TestCyclesLeaveMembers: the checkpoint at the end of every cycle stays, whatever
// save.keep says, and members.json names it; a stop in between and other devices change
// neither them nor the run.
func TestCyclesLeaveMembers(t *testing.T) {
	dir := makeStore(t, 64)
	base, out := filepath.Join(t.TempDir(), "straight"), filepath.Join(t.TempDir(), "stopped")
	s := setup(t, dir, cyclic()...)
	ends := s.Options.Optim.Cycles.Ends(s.Options.Steps)
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: base})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []int64{ends[1], ends[3] - 1} {
		if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, Limit: end}); !errors.Is(err, run.ErrStopped) {
			t.Fatal(err)
		}
		if list, err := run.Members(out); err != nil || len(list) == 0 || list[len(list)-1].Step > end {
			t.Errorf("stopped at step %d: members %v, %v", end, list, err)
		}
	}
	// As after a kill before the list was written.
	if err := os.Remove(filepath.Join(out, run.MembersFile)); err != nil {
		t.Fatal(err)
	}
	got, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, cyclic("train.devices=2")...), Out: out, Resume: run.ResumeMust})
	if err != nil {
		t.Fatal(err)
	}
	if got.Chain != want.Chain {
		t.Errorf("chain %v, the run that never stopped has %v", got.Chain, want.Chain)
	}
	for _, r := range []string{base, out} {
		list, err := run.Members(r)
		if err != nil {
			t.Fatal(err)
		}
		var steps []int64
		for i, m := range list {
			if m.Name != fmt.Sprintf("cycle-%d", i+1) {
				t.Errorf("member %d is called %s", i, m.Name)
			}
			steps = append(steps, m.Step)
			a, err := run.LoadModel(t.Context(), r+"@"+m.Name)
			if err != nil {
				t.Fatal(err)
			}
			b, err := run.LoadModel(t.Context(), filepath.Join(base, run.CkptDir, ckpt.NameOf(m.Step)))
			if err != nil || a.Step != m.Step || !slices.Equal(a.Weights, b.Weights) {
				t.Errorf("%s@%s: step %d, want %d with the weights of the run that never stopped (%v)", r, m.Name, a.Step, m.Step, err)
			}
		}
		if !slices.Equal(steps, ends) {
			t.Errorf("members of steps %v, cycles end with %v", steps, ends)
		}
		there := stepsOf(t, r)
		if others := len(there) - len(ends); others < 0 || others > 2 {
			t.Errorf("checkpoints of steps %v: the ends of cycles and at most two more should be there", there)
		}
	}
}

// TestCyclesAreEvaluated: the ends of cycles are evaluated beside the steps that are asked
// for.
func TestCyclesAreEvaluated(t *testing.T) {
	s := setup(t, makeStore(t, 64), cyclic("eval.every=4")...)
	due := run.EvalDue(s)
	ends := s.Options.Optim.Cycles.Ends(s.Options.Steps)
	for k := int64(1); k < s.Options.Steps; k++ {
		if want := k%4 == 0 || slices.Contains(ends, k); due(k) != want {
			t.Errorf("step %d: due %v, want %v", k, due(k), want)
		}
	}
}

// TestExpand: names of members, of steps, of what exists, and of what does not.
func TestExpand(t *testing.T) {
	dir := makeStore(t, 24)
	out := filepath.Join(t.TempDir(), "a@b") // a folder with the sign in its own name
	s := setup(t, dir, "train.epochs=1", "optim.schedule=cyclic", "optim.cycles=2")
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out}); err != nil {
		t.Fatal(err)
	}
	end := s.Options.Optim.Cycles.Ends(s.Options.Steps)
	at := func(k int64) string { return filepath.Join(out, run.CkptDir, ckpt.NameOf(k)) }
	got, err := run.Expand([]string{out, out + "@cycles", out + "@cycle-1", out + "@7", "elsewhere@3"})
	if want := []string{out, at(end[0]), at(end[1]), at(end[0]), at(7), "elsewhere@3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, "train.epochs=1"), Out: plain}); err != nil {
		t.Fatal(err)
	}
	young := filepath.Join(t.TempDir(), "young")
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: young, Limit: 1}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		young + "@cycles":  fmt.Sprintf("is over yet; the first ends with step %d", end[0]),
		out + "@cycle-3":   `no member "cycle-3"; it has cycle-1 to cycle-2`,
		plain + "@cycles":  "has no members (no members.json): train it with optim.schedule=cyclic",
		plain + "@cycle-1": "has no members",
	} {
		if _, err := run.Expand([]string{name}); run.ExitCode(err) != run.ExitUsage || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	// A member that should be there and is not must not make the ensemble smaller in silence.
	if err := os.Rename(at(end[0]), at(end[0])+".bad"); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Expand([]string{out + "@cycles"}); run.ExitCode(err) != run.ExitData || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("the checkpoint of cycle-1, ckpt/%s, is not there, though the run went on to step %d", ckpt.NameOf(end[0]), end[1])) {
		t.Errorf("a member is missing: %v", err)
	}
	if err := os.Rename(at(end[0])+".bad", at(end[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := run.LoadModel(t.Context(), out+"@cycles"); run.ExitCode(err) != run.ExitUsage || !strings.Contains(fmt.Sprint(err), "stands for 2 models; name one") {
		t.Errorf("two models as one: %v", err)
	}
}
