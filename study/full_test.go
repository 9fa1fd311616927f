package study

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"refrain/internal/fsx"
	"refrain/internal/run"
)

// TestRow40DiskFills: the disk fills in the middle of a sweep, under checkpoints and records
// of two cells at a time. The sweep ends with the code of a disk, keeps every record that it
// had, and with room again the same command comes to what an undisturbed sweep comes to.
func TestRow40DiskFills(t *testing.T) {
	data := testStore(t)
	lines := "grid:\n  optim.lr: [0.003, 0.01, 0.02]\nseeds: [0, 1]\n"
	on := func(path string, disk *fsx.Fault) ([]*Record, error) {
		spec, err := LoadSpec(path)
		if err != nil {
			t.Fatal(err)
		}
		reg, err := OpenRegistry(spec.Out, disk)
		if err != nil {
			return nil, err
		}
		defer reg.Close()
		cells, err := spec.Cells()
		if err != nil {
			t.Fatal(err)
		}
		if err := Open(cells, 1e9); err != nil {
			t.Fatal(err)
		}
		w := newWork(spec, reg, 2)
		w.Runner.(*Local).FS = disk
		return w.Sweep(t.Context(), cells)
	}
	base := filepath.Join(t.TempDir(), "base")
	disk := fsx.NewFault(fsx.OS{})
	var writes atomic.Int64
	disk.After(func(c fsx.Call) {
		if c.Op == fsx.OpWrite {
			writes.Add(1)
		}
	})
	if _, err := on(specFile(t, data, base, lines), disk); err != nil {
		t.Fatal(err)
	}
	undisturbed := results(t, base)
	var kept []int
	for part := range int64(3) {
		out := filepath.Join(t.TempDir(), "out")
		path := specFile(t, data, out, lines)
		full := fsx.NewFault(fsx.OS{}, fsx.Rule{Ops: []fsx.Op{fsx.OpWrite}, Nth: int(writes.Load() * (2*part + 1) / 6), Permanent: true, Err: syscall.ENOSPC, Short: true})
		answers, err := on(path, full)
		if run.ExitCode(err) != run.ExitDisk || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "seed") {
			t.Fatalf("at %d sixths of the writes: %v", 2*part+1, err)
		}
		before, err := ReadRegistry(out)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, len(before))
		for _, r := range before {
			if r.Status != Done || !slices.ContainsFunc(answers, func(a *Record) bool { return a != nil && a.Identity == r.Identity }) {
				t.Errorf("record %s: %s; it is not among the answers, or not done", r.Name(), r.Status)
			}
		}
		if _, err := on(path, fsx.NewFault(fsx.OS{})); err != nil {
			t.Fatal(err)
		}
		after, err := ReadRegistry(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range before {
			if !slices.ContainsFunc(after, func(a *Record) bool { return a.Finished.Equal(r.Finished) && a.Identity == r.Identity }) {
				t.Errorf("%s was trained again", r.Run)
			}
		}
		if got := results(t, out); !slices.Equal(got, undisturbed) {
			t.Errorf("after a full disk\n%s\nwithout\n%s", strings.Join(got, "\n"), strings.Join(undisturbed, "\n"))
		}
	}
	if len(slices.Compact(slices.Clone(kept))) < 2 {
		t.Errorf("the disk filled at %v records only: that shows nothing", kept)
	}
	t.Logf("%d writes; records when the disk was full: %v", writes.Load(), kept)
}
