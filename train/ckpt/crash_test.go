package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"refrain/internal/fsx"
)

// TestEveryCrashLeavesACheckpoint cuts the power after every changing call of a
// save, a retention and a load that sets a bad one aside, in every mode and with 8
// seeds for those that use one, and loads what is left. The old or the new step must load, equal in every
// byte, and the next save must succeed among the leftovers.
func TestEveryCrashLeavesACheckpoint(t *testing.T) {
	save := func(step int64) func(t *testing.T, f fsx.FS) {
		return func(t *testing.T, f fsx.FS) { mustSave(t, f, "run/ckpt", step) }
	}
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, f fsx.FS)
		act     func(t *testing.T, f fsx.FS)
		steps   []int64 // that may load; 0 stands for a fresh start
		calls   int     // at least so many are interrupted
	}{
		{"first save", func(t *testing.T, f fsx.FS) {}, save(10), []int64{0, 10}, 25},
		{"second save", save(10), save(20), []int64{10, 20}, 25},
		{"save over leftovers", func(t *testing.T, f fsx.FS) {
			mustSave(t, f, "run/ckpt", 10)
			for _, dir := range []string{".tmp-step-000000020", ".tmp-step-000000015"} {
				if err := fsx.MkdirAll(f, "run/ckpt/"+dir+"/deeper", fsx.DirPerm); err != nil {
					t.Fatal(err)
				}
				set(t, f, "run/ckpt/"+dir+"/model.safetensors", []byte("half"))
			}
			set(t, f, "run/ckpt/.tmp-latest", []byte("step"))
		}, save(20), []int64{10, 20}, 30},
		{"retention", func(t *testing.T, f fsx.FS) {
			mustSave(t, f, "run/ckpt", 5, 10, 20, 30)
		}, func(t *testing.T, f fsx.FS) {
			removed, err := Retain(t.Context(), f, "run/ckpt", Policy{Keep: 2})
			if err != nil || len(removed) != 2 {
				t.Fatalf("removed %v: %v", removed, err)
			}
		}, []int64{30}, 20},
		{"setting aside", func(t *testing.T, f fsx.FS) {
			mustSave(t, f, "run/ckpt", 10, 20)
			set(t, f, "run/ckpt/step-000000020/state.json", []byte("{}"))
		}, func(t *testing.T, f fsx.FS) {
			if _, _, err := LoadLatest(t.Context(), f, "run/ckpt", LoadOptions{}); err != nil {
				t.Fatal(err)
			}
		}, []int64{10}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := fsx.NewMem()
			tc.prepare(t, m)
			f := fsx.NewFault(m)
			calls, images, loaded := 0, 0, map[int64]bool{}
			f.After(func(c fsx.Call) {
				if !c.Op.Changes() {
					return
				}
				calls++
				for _, mode := range fsx.CrashModes() {
					for seed := range seeds(mode) {
						step, err := checkImage(t, m.Crash(mode, seed+uint64(calls)<<8), seed == 0)
						if err == nil && !slices.Contains(tc.steps, step) {
							err = fmt.Errorf("step %d loads", step)
						}
						if err != nil {
							t.Fatalf("crash %v, seed %d, after call %d, %v %s: %v", mode, seed, c.N, c.Op, c.Name, err)
						}
						loaded[step] = true
						images++
					}
				}
			})
			tc.act(t, f)
			f.After(nil)
			if calls < tc.calls {
				t.Errorf("only %d calls were interrupted", calls)
			}
			if testing.Short() {
				tc.steps = tc.steps[len(tc.steps)-1:] // too few seeds to see each side
			}
			for _, step := range tc.steps {
				if !loaded[step] {
					t.Errorf("no crash left step %d: the test does not reach both sides", step)
				}
			}
			// What has returned is durable.
			last := tc.steps[len(tc.steps)-1]
			if step, err := checkImage(t, m.Crash(fsx.LoseUnsynced, 0), true); err != nil || step != last {
				t.Errorf("after the end step %d loads, want %d: %v", step, last, err)
			}
			t.Logf("%d calls, %d images", calls, images)
		})
	}
}

// seeds is how many images a mode gives: 8 where it looks at the seed, else 1. The
// short mode, meant for the race detector, takes 2.
func seeds(mode fsx.CrashMode) uint64 {
	switch {
	case mode != fsx.KeepRandom && mode != fsx.KeepNamesZeroData:
		return 1
	case testing.Short():
		return 2
	}
	return 8
}

// checkImage loads what a crash left and compares it with what was saved. With
// deep it also goes on: cleans up, saves the next step, and loads that.
func checkImage(t *testing.T, img *fsx.Mem, deep bool) (step int64, err error) {
	l, r, err := LoadLatest(t.Context(), img, "run/ckpt", LoadOptions{Want: Identity{RunID: "run-1"}})
	switch {
	case errors.Is(err, ErrNone):
	case err != nil:
		return 0, fmt.Errorf("%w\n%v\n%v", err, r, img)
	default:
		step = l.Manifest.Step
		if err := sameState(l, snap(step)); err != nil {
			return step, err
		}
	}
	if !deep {
		return step, nil
	}
	if _, err := Retain(t.Context(), img, "run/ckpt", Policy{Keep: 2}); err != nil {
		return step, fmt.Errorf("retain: %w", err)
	}
	next := step + 1
	if _, err := Save(t.Context(), img, "run/ckpt", snap(next), SaveOptions{}); err != nil {
		return step, fmt.Errorf("next save: %w", err)
	}
	l, r, err = LoadLatest(t.Context(), img, "run/ckpt", LoadOptions{})
	if err != nil || l.Manifest.Step != next || len(r.Skipped) > 0 {
		return step, fmt.Errorf("after the next save: %v, %v", r, err)
	}
	s, err := scan(img, "run/ckpt")
	if err != nil || len(s.tmps) > 0 || len(s.trash) > 0 {
		return step, fmt.Errorf("leftovers stay: %v %v %v", s.tmps, s.trash, err)
	}
	return step, nil
}

// TestCrashTestCanFail runs the same check on a writer that forgets one sync and
// expects it to be caught, for every sync there is.
func TestCrashTestCanFail(t *testing.T) {
	base := fsx.NewMem()
	mustSave(t, base, "run/ckpt", 10)
	count := fsx.NewFault(base.Crash(fsx.KeepAll, 0))
	syncs := 0
	count.After(func(c fsx.Call) {
		if isSync(c.Op) {
			syncs++
		}
	})
	mustSave(t, count, "run/ckpt", 20)
	for skip := 1; skip <= syncs; skip++ {
		m := base.Crash(fsx.KeepAll, 0)
		caught := false
		crash := func() {
			for _, mode := range fsx.CrashModes() {
				for seed := range seeds(mode) {
					step, err := checkImage(t, m.Crash(mode, seed), false)
					// Saved means durable: losing step 20 whole counts as caught.
					caught = caught || err != nil || step != 20
				}
			}
		}
		// The step must be durable before the hint is written and at the end.
		lazy := &forgetful{FS: m, skip: skip, atHint: crash}
		mustSave(t, lazy, "run/ckpt", 20)
		crash()
		hint := lazy.what == ".tmp-latest" || lazy.last
		if !caught && !hint {
			t.Errorf("sync %d of %d, of %s, can be left out unnoticed", skip, syncs, lazy.what)
		}
	}
}

func isSync(op fsx.Op) bool { return op == fsx.OpSync || op == fsx.OpSyncDir }

// forgetful leaves out the sync number skip.
type forgetful struct {
	fsx.FS
	skip, seen int
	what       string
	last       bool // it was the sync of the hint's name, after everything else
	atHint     func()
}

func (f *forgetful) SyncDir(name string) error {
	f.seen++
	if f.seen == f.skip {
		f.what = filepath.Base(name)
		data, err := fsx.ReadFile(f.FS, filepath.Join(name, latestFile), 100)
		f.last = err == nil && string(data) == "step-000000020\n"
		return nil
	}
	return f.FS.SyncDir(name)
}

func (f *forgetful) OpenFile(name string, flag int, perm fs.FileMode) (fsx.File, error) {
	if filepath.Base(name) == tmpPrefix+latestFile {
		f.atHint()
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &forgetfulFile{File: file, f: f}, nil
}

type forgetfulFile struct {
	fsx.File
	f *forgetful
}

func (x *forgetfulFile) Sync() error {
	x.f.seen++
	if x.f.seen == x.f.skip {
		x.f.what = filepath.Base(x.Name())
		return nil
	}
	return x.File.Sync()
}
