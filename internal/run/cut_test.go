package run_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/store"
)

// TestStoreCutDuringRun cuts the shard of a running training run: all of it, so that
// reading faults, or its last byte, which no read can notice. Either way the run ends
// with an error that names the file and the byte, writes no checkpoint after the cut,
// and with the file back the resumed run has the bits of one that was never disturbed.
func TestStoreCutDuringRun(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("files are read into memory on " + runtime.GOOS)
	}
	dir := makeStore(t, 64)
	shards, err := filepath.Glob(filepath.Join(dir, "part-*.arrow"))
	if err != nil || len(shards) != 1 {
		t.Fatal(shards, err)
	}
	whole, err := os.ReadFile(shards[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"all": 0, "last byte": len(whole) - 1} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			w := &watcher{onStep: func(i run.StepInfo) {
				if i.Step == 8 {
					if err := os.Truncate(shards[0], int64(size)); err != nil {
						t.Error(err)
					}
				}
			}}
			_, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: out, Watch: w})
			if writeErr := os.WriteFile(shards[0], whole, 0o644); writeErr != nil {
				t.Fatal(writeErr)
			}
			var gone *store.GoneError
			if !errors.As(err, &gone) || run.ExitCode(err) != run.ExitData || gone.Size != int64(size) || !strings.Contains(err.Error(), filepath.Base(shards[0])) {
				t.Fatalf("exit code %d, %v", run.ExitCode(err), err)
			}
			if e := exitOf(t, out); e.Code != run.ExitData || !strings.Contains(e.Reason, "while it was open") || !strings.Contains(e.Next, "--resume auto") {
				t.Errorf("exit.json says %+v", e)
			}
			saved, err := filepath.Glob(filepath.Join(out, run.CkptDir, "step-*"))
			if err != nil || len(saved) > 1 || len(saved) == 1 && filepath.Base(saved[0]) != "step-000000007" {
				t.Fatalf("checkpoints after a cut at step 8: %v, %v", saved, err)
			}
			res, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: out, Resume: run.ResumeAuto})
			if err != nil || res.Chain != want.Chain || hashOf(t, res.Path) != hashOf(t, want.Path) {
				t.Errorf("with the file back: %+v, %v; undisturbed %+v", res, err, want)
			}
		})
	}
}
