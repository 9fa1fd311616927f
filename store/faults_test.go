package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"refrain/internal/fsx"
)

// ingest writes a small store through fsys and gives up on the first error.
func ingest(fsys fsx.FS, dir string, docs []doc) error {
	w, err := createOn(fsys, dir, testMeta(300))
	if err != nil {
		return err
	}
	defer w.Abort()
	w.limits = limits{batch: 100, document: 200, shard: 300, names: shardNames}
	for _, d := range docs {
		if err := w.Append(d.id, d.source, d.ids); err != nil {
			return err
		}
	}
	_, err = w.Close(context.Background())
	return err
}

// dump copies the folder name of a crash image to the real folder to.
func dump(t *testing.T, m *fsx.Mem, name, to string) {
	t.Helper()
	entries, err := m.ReadDir(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := fsx.ReadFile(m, filepath.Join(name, e.Name()), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// After a power cut at any moment either there is no store at its name, or it is
// whole.
func TestPowerCutAtEveryCall(t *testing.T) {
	docs := makeDocs(30, 300)
	mem := fsx.NewMem()
	if err := mem.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	fault := fsx.NewFault(mem)
	tmp, images, whole := t.TempDir(), 0, 0
	fault.After(func(c fsx.Call) {
		if !c.Op.Changes() {
			return
		}
		for _, mode := range fsx.CrashModes() {
			for seed := range uint64(2) {
				image := mem.Crash(mode, seed)
				images++
				ok, err := fsx.Exists(image, "data/s")
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					continue
				}
				to := filepath.Join(tmp, "s")
				dump(t, image, "data/s", to)
				if err := Verify(t.Context(), to, nil); err != nil {
					t.Errorf("after call %d (%v %s), %v: %v", c.N, c.Op, c.Name, mode, err)
				}
				whole++
				os.RemoveAll(to)
			}
		}
	})
	if err := ingest(fault, "data/s", docs); err != nil {
		t.Fatal(err)
	}
	if whole == 0 || whole == images {
		t.Errorf("%d of %d images hold a store: the test sees only one side", whole, images)
	}
}

// An error of any single call fails the ingest, leaves nothing that opens, and
// the next ingest of the same store succeeds.
func TestFaultAtEveryCall(t *testing.T) {
	docs := makeDocs(30, 300)
	for _, failure := range []error{syscall.ENOSPC, syscall.EIO} {
		for n := 1; ; n++ {
			mem := fsx.NewMem()
			ops := []fsx.Op{fsx.OpOpen, fsx.OpWrite, fsx.OpSync, fsx.OpMkdir, fsx.OpRename, fsx.OpSyncDir, fsx.OpClose}
			fault := fsx.NewFault(mem, fsx.Rule{Ops: ops, Nth: n, Err: failure, Short: true})
			err := ingest(fault, "s", docs)
			if fault.Fired() == 0 {
				if err != nil || n < 20 {
					t.Fatalf("%d calls seen, %v", n, err)
				}
				break // n is beyond the last call
			}
			if err == nil {
				t.Fatalf("call %d failed with %v and nobody noticed", n, failure)
			}
			if !errors.Is(err, failure) {
				t.Errorf("call %d: %v does not wrap %v", n, err, failure)
			}
			there, statErr := fsx.Exists(mem, "s")
			if statErr != nil {
				t.Fatal(statErr)
			}
			if !there {
				if err := ingest(mem, "s", docs); err != nil {
					t.Fatalf("after a failure of call %d the next ingest gave %v", n, err)
				}
			}
			// The last sync may fail after the rename: the store is then whole.
			to := filepath.Join(t.TempDir(), "s")
			dump(t, mem, "s", to)
			if err := Verify(t.Context(), to, nil); err != nil {
				t.Errorf("after call %d: %v", n, err)
			}
		}
	}
}
