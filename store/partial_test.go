package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"refrain/internal/fsx"
)

// TestNobodyTakesOver: at no call of an ingest can another one of the same folder
// begin, up to the moment at which the first has its name.
func TestNobodyTakesOver(t *testing.T) {
	if !movesOpen {
		t.Skip("the lock has to go before the rename on this system")
	}
	for name, fsys := range map[string]fsx.FS{"mem": fsx.NewMem(), "os": fsx.OS{}} {
		dir := "s"
		if name == "os" {
			dir = filepath.Join(t.TempDir(), "s")
		}
		fault := fsx.NewFault(fsys)
		begun, tried := false, 0
		fault.After(func(c fsx.Call) {
			// Before the writer's own lock another one may well be first.
			begun = begun || c.Op == fsx.OpReadDir
			if !begun {
				return
			}
			tried++
			_, lock, err := Partial(fsys, dir)
			var locked *fsx.LockedError
			if err == nil {
				lock.Close()
			}
			if !errors.As(err, &locked) && !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: after call %d (%v %s) another ingest got %v", name, c.N, c.Op, c.Name, err)
			}
		})
		if err := ingest(fault, dir, makeDocs(10, 300)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tried < 20 {
			t.Errorf("%s: tried %d times", name, tried)
		}
		for _, left := range []string{dir + PartialSuffix, filepath.Join(dir, lockName)} {
			if there, err := fsx.Exists(fsys, left); there || err != nil {
				t.Errorf("%s: %s stays (%v)", name, left, err)
			}
		}
	}
}

// TestAbandonTakesOnlyItsOwn: whoever locks the folder of an ingest that is being
// abandoned keeps what it writes there.
func TestAbandonTakesOnlyItsOwn(t *testing.T) {
	if !movesOpen {
		t.Skip("an open lock file cannot be removed on this system")
	}
	dir := filepath.Join(t.TempDir(), "s")
	fault := fsx.NewFault(fsx.OS{})
	tmp, lock, err := Partial(fault, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(tmp, n), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	theirs := filepath.Join(tmp, "theirs")
	took := false
	fault.After(func(c fsx.Call) {
		if took || c.Op != fsx.OpRemove {
			return
		}
		if _, next, err := Partial(fsx.OS{}, dir); err == nil {
			took = true
			t.Cleanup(func() { next.Close() })
			for _, n := range []string{"a", "b"} {
				if _, err := os.Stat(filepath.Join(tmp, n)); err == nil {
					t.Errorf("%s is still there", n)
				}
			}
			if err := os.WriteFile(theirs, []byte("y"), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	if err := AbandonPartial(fault, tmp, lock); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(theirs); !took || err != nil {
		t.Errorf("taken over: %v, and what was written there: %v", took, err)
	}
}

// TestLateLoser: an ingest that passed its first look before another one finished
// stops at its second look and leaves no folder behind.
func TestLateLoser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	fault := fsx.NewFault(fsx.OS{})
	first := true
	fault.After(func(c fsx.Call) {
		if first && c.Op == fsx.OpStat && c.Name == dir {
			first = false
			if err := ingest(fsx.OS{}, dir, makeDocs(10, 300)); err != nil {
				t.Error(err)
			}
		}
	})
	_, _, err := Partial(fault, dir)
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir + PartialSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished folder stays: %v", err)
	}
	if err := Verify(t.Context(), dir, nil); err != nil {
		t.Error(err)
	}
}
