package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"refrain/internal/fsx"
	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/train/ckpt"
)

// damaged is a run stopped after step 9 with the checkpoints of steps 7 and 9.
type damaged struct {
	s     *run.Setup
	out   string
	mem   *fsx.Mem
	files []string // of the newest checkpoint
	final *run.Result
}

func newDamaged(t *testing.T) *damaged {
	t.Helper()
	dir := makeStore(t, 64)
	d := &damaged{s: setup(t, dir, "eval.every=1000"), out: filepath.Join(t.TempDir(), "run"), mem: fsx.NewMem()}
	var err error
	if d.final, err = run.Train(t.Context(), run.Job{Setup: d.s, Out: filepath.Join(t.TempDir(), "straight"), FS: fsx.NewMem()}); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Train(t.Context(), run.Job{Setup: d.s, Out: d.out, FS: d.mem, Limit: 9}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	list, err := ckpt.List(d.mem, filepath.Join(d.out, run.CkptDir))
	if err != nil || len(list) != 2 || list[0].Step != 7 || list[1].Step != 9 {
		t.Fatalf("checkpoints %v, %v", list, err)
	}
	entries, err := d.mem.ReadDir(d.newest())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		d.files = append(d.files, e.Name())
	}
	return d
}

func (d *damaged) newest() string { return filepath.Join(d.out, run.CkptDir, "step-000000009") }

// resume continues the run on fs; with stop it ends before the first step.
func (d *damaged) resume(t *testing.T, fs fsx.FS, stop bool) (*run.Result, *watcher, error) {
	t.Helper()
	w := new(watcher)
	j := run.Job{Setup: d.s, Out: d.out, FS: fs, Resume: run.ResumeAuto, Watch: w}
	if stop {
		ch := make(chan struct{})
		close(ch)
		j.Stop = ch
	}
	res, err := run.Train(t.Context(), j)
	return res, w, err
}

// rewrite replaces a file of fs.
func rewrite(t *testing.T, fs fsx.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.OpenFile(path, os.O_WRONLY|os.O_TRUNC, fsx.FilePerm)
	if err != nil {
		t.Fatal(err)
	}
	_, werr := f.Write(b)
	if err := errors.Join(werr, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestEveryFlippedBitIsFound flips one random bit of the newest checkpoint, 500
// times: the run resumes from the one before, keeps the bad one under another
// name and says which it is.
func TestEveryFlippedBitIsFound(t *testing.T) {
	d := newDamaged(t)
	const flips = 500
	id := runID(t, d.out)
	s := num.NewStream("flips", 1)
	for i := range uint64(flips) {
		mem := d.mem.Crash(fsx.KeepAll, 0)
		name := d.files[i%uint64(len(d.files))] // small files are hit as often as large ones
		path := filepath.Join(d.newest(), name)
		b, err := fsx.ReadFile(mem, path, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		at, bit := s.Uintn(2*i, uint64(len(b))), s.Uintn(2*i+1, 8)
		b[at] ^= 1 << bit
		rewrite(t, mem, path, b)
		what := fmt.Sprintf("bit %d of byte %d of %s", bit, at, name)
		// What a resume loads, and sometimes the whole resume.
		r, err := run.LatestOf(t.Context(), d.s, mem, filepath.Join(d.out, run.CkptDir), id)
		if err != nil || r.Step != 7 {
			t.Fatalf("%s: %v, %+v", what, err, r)
		}
		d.setAside(t, mem, r.Report.String(), what)
		if i%25 != 0 {
			continue
		}
		mem = d.mem.Crash(fsx.KeepAll, 0)
		rewrite(t, mem, path, b)
		res, w, err := d.resume(t, mem, true)
		if !errors.Is(err, run.ErrStopped) || res.Step != 7 {
			t.Fatalf("%s: %v, step %d", what, err, res.Step)
		}
		d.setAside(t, mem, strings.Join(w.notes, "\n"), what)
	}
}

// runID reads the identity of a run.
func runID(t *testing.T, out string) string {
	t.Helper()
	var info run.Info
	b, err := os.ReadFile(filepath.Join(out, run.RunFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &info); err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// setAside checks that the newest checkpoint was put aside and named.
func (d *damaged) setAside(t *testing.T, fs fsx.FS, said, what string) {
	t.Helper()
	if ok, err := fsx.Exists(fs, d.newest()+".bad"); err != nil || !ok {
		t.Errorf("%s: the bad checkpoint was not kept aside: %v", what, err)
	}
	if ok, err := fsx.Exists(fs, d.newest()); err != nil || ok {
		t.Errorf("%s: the bad checkpoint is still there: %v", what, err)
	}
	if !strings.Contains(said, "skipped step-000000009") || !strings.Contains(said, "kept as step-000000009.bad") {
		t.Errorf("%s: it is not named: %q", what, said)
	}
}

// TestDamagedCheckpoints damages the newest checkpoint in coarser ways and runs
// on to the end: the bits are those of the run that was never damaged.
func TestDamagedCheckpoints(t *testing.T) {
	d := newDamaged(t)
	type change struct {
		name string
		do   func(t *testing.T, fs fsx.FS)
	}
	var list []change
	for _, name := range d.files {
		path := filepath.Join(d.newest(), name)
		for _, keep := range []float64{0, 0.5, 0.999} {
			list = append(list, change{fmt.Sprintf("%s cut to %g", name, keep), func(t *testing.T, fs fsx.FS) {
				b, err := fsx.ReadFile(fs, path, 1<<24)
				if err != nil {
					t.Fatal(err)
				}
				rewrite(t, fs, path, b[:min(int(float64(len(b))*keep), len(b)-1)])
			}})
		}
		list = append(list,
			change{name + " deleted", func(t *testing.T, fs fsx.FS) {
				if err := fs.Remove(path); err != nil {
					t.Fatal(err)
				}
			}},
			change{name + " with a byte more", func(t *testing.T, fs fsx.FS) {
				b, err := fsx.ReadFile(fs, path, 1<<24)
				if err != nil {
					t.Fatal(err)
				}
				rewrite(t, fs, path, append(slices.Clone(b), ' '))
			}},
			change{name + " of the checkpoint before", func(t *testing.T, fs fsx.FS) {
				b, err := fsx.ReadFile(fs, filepath.Join(d.out, run.CkptDir, "step-000000007", name), 1<<24)
				if err != nil {
					t.Fatal(err)
				}
				rewrite(t, fs, path, b)
			}})
	}
	for i, c := range list {
		if strings.HasPrefix(c.name, "config.json of") { // the same bytes in both
			continue
		}
		mem := d.mem.Crash(fsx.KeepAll, 0)
		c.do(t, mem)
		res, w, err := d.resume(t, mem, true)
		if !errors.Is(err, run.ErrStopped) || res.Step != 7 {
			t.Fatalf("%s: %v, step %d", c.name, err, res.Step)
		}
		d.setAside(t, mem, strings.Join(w.notes, "\n"), c.name)
		if i%5 != 0 {
			continue
		}
		// The whole way, in a copy of the folder so that the ledger is its own.
		all := &damaged{s: d.s, out: copyFolder(t, d.out), mem: fsx.NewMem(), final: d.final}
		copyFS(t, all.mem, filepath.Join(all.out, run.CkptDir), mem, filepath.Join(d.out, run.CkptDir))
		res, _, err = all.resume(t, all.mem, false)
		if err != nil || res.Chain != d.final.Chain {
			t.Errorf("%s: the run ends with %v and another chain: %v", c.name, err, res.Chain != d.final.Chain)
		}
		if n := len(ledger(t, all.out)); int64(n) != d.final.Step {
			t.Errorf("%s: %d steps in the ledger", c.name, n)
		}
	}
}

// copyFolder copies the files of a folder into a new one.
func copyFolder(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// copyFS copies the checkpoints from one file system to another.
func copyFS(t *testing.T, to fsx.FS, toDir string, from fsx.FS, dir string) {
	t.Helper()
	if err := fsx.MkdirAll(to, toDir, fsx.DirPerm); err != nil {
		t.Fatal(err)
	}
	entries, err := from.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		src, dst := filepath.Join(dir, e.Name()), filepath.Join(toDir, e.Name())
		if e.IsDir() {
			copyFS(t, to, dst, from, src)
			continue
		}
		b, err := fsx.ReadFile(from, src, 1<<24)
		if err == nil {
			err = fsx.WriteFile(to, dst, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoGoodCheckpoint damages all of them: the run does not start from zero by
// itself, says what it found, and leaves everything where a person finds it.
func TestNoGoodCheckpoint(t *testing.T) {
	d := newDamaged(t)
	mem := d.mem.Crash(fsx.KeepAll, 0)
	for _, step := range []string{"step-000000007", "step-000000009"} {
		path := filepath.Join(d.out, run.CkptDir, step, "model.safetensors")
		b, err := fsx.ReadFile(mem, path, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		rewrite(t, mem, path, b)
	}
	for range 2 { // and it stays that way
		_, _, err := d.resume(t, mem, false)
		if run.ExitCode(err) != run.ExitNoCkpt {
			t.Fatalf("exit code %d: %v", run.ExitCode(err), err)
		}
		for _, name := range []string{"step-000000007.bad", "step-000000009.bad"} {
			if ok, err := fsx.Exists(mem, filepath.Join(d.out, run.CkptDir, name)); err != nil || !ok {
				t.Errorf("%s is not there: %v", name, err)
			}
		}
		if !strings.Contains(err.Error(), "holds 2 damaged ones") {
			t.Error(err)
		}
	}
}

// TestAReadErrorIsNoDamage fails to open the newest checkpoint: no permission
// and no descriptors prove nothing about its bytes, so it is not set aside, no
// older one is taken for it, and the code is that of disks.
func TestAReadErrorIsNoDamage(t *testing.T) {
	d := newDamaged(t)
	for _, cause := range []error{syscall.EACCES, syscall.EMFILE} {
		mem := d.mem.Crash(fsx.KeepAll, 0)
		f := fsx.NewFault(mem, fsx.Rule{Ops: []fsx.Op{fsx.OpOpen}, Glob: "optimizer.safetensors", Permanent: true, Err: cause})
		_, _, err := d.resume(t, f, false)
		if !errors.Is(err, cause) || run.ExitCode(err) != run.ExitDisk {
			t.Errorf("%v: exit code %d: %v", cause, run.ExitCode(err), err)
		}
		if ok, err := fsx.Exists(mem, d.newest()); err != nil || !ok {
			t.Errorf("%v: the checkpoint was put aside: %v", cause, err)
		}
	}
}
