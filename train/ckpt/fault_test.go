package ckpt

import (
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"testing"

	"refrain/internal/fsx"
)

// TestEverySingleFault makes call number n of a save fail, for every n and every
// error that disks give, until a save no longer meets the fault. The older
// checkpoints stay as they are, nothing half-written stays, the result of Save is
// true even if the power is cut right after, and the next save succeeds.
func TestEverySingleFault(t *testing.T) {
	base := fsx.NewMem()
	mustSave(t, base, "c", 10, 20)
	want := tree(t, base, "c/"+oldest) + tree(t, base, "c/"+newest)
	for _, rule := range []fsx.Rule{
		{Err: syscall.EIO}, {Err: syscall.ENOSPC}, {Err: syscall.EROFS}, {Err: syscall.EMFILE},
		{Ops: []fsx.Op{fsx.OpWrite}, Short: true},
		{Ops: []fsx.Op{fsx.OpWrite}, Short: true, Err: syscall.ENOSPC},
		{Ops: []fsx.Op{fsx.OpSync, fsx.OpSyncDir, fsx.OpClose}, Err: syscall.EDQUOT},
	} {
		if testing.Short() && len(rule.Ops) == 0 && rule.Err != syscall.EIO {
			continue
		}
		t.Run(fmt.Sprintf("%v short=%v %v", rule.Err, rule.Short, rule.Ops), func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				rule.Nth = n
				m := base.Crash(fsx.KeepAll, 0)
				f := fsx.NewFault(m, rule)
				if err := faultySave(t, m, f, want); err != nil {
					t.Fatalf("fault at call %d: %v", n, err)
				}
				if f.Fired() == 0 {
					if n < 8 {
						t.Fatalf("only %d calls could fail", n-1)
					}
					t.Logf("%d calls failed one at a time", n-1)
					return
				}
			}
		})
	}
}

// faultySave saves step 30 through f and checks all that must hold.
func faultySave(t *testing.T, m *fsx.Mem, f *fsx.Fault, want string) error {
	saved, err := Save(t.Context(), f, "c", snap(30), SaveOptions{VerifyHash: true})
	step := int64(20)
	if err == nil {
		step = 30
	}
	if f.Fired() == 0 && (err != nil || saved.HintErr != nil) {
		return fmt.Errorf("without a fault: %v, %+v", err, saved)
	}
	f.SetRules()
	left := []string{"latest", oldest, newest}
	if err == nil {
		left = append(left, "step-000000030")
	}
	if got := files(t, m, "c"); !reflect.DeepEqual(got, left) {
		return fmt.Errorf("after error %v the folder holds %v", err, got)
	}
	if tree(t, m, "c/"+oldest)+tree(t, m, "c/"+newest) != want {
		return fmt.Errorf("an older checkpoint changed")
	}
	for _, mode := range fsx.CrashModes() {
		l, r, lerr := LoadLatest(t.Context(), m.Crash(mode, 7), "c", LoadOptions{})
		if lerr != nil || l.Manifest.Step != step || len(r.Skipped) > 0 {
			return fmt.Errorf("save said %v, but after a crash (%v): %v, %v", err, mode, r, lerr)
		}
	}
	next := int64(30) // the same step again where it failed
	if err == nil {
		next = 40
	}
	if _, err := Save(t.Context(), f, "c", snap(next), SaveOptions{}); err != nil {
		return fmt.Errorf("next save: %w", err)
	}
	l, _, err := LoadLatest(t.Context(), m.Crash(fsx.LoseUnsynced, 0), "c", LoadOptions{})
	if err != nil || l.Manifest.Step != next {
		return fmt.Errorf("after the next save: %v", err)
	}
	return sameState(l, snap(next))
}

// TestDiskStaysBroken makes every call from number n on fail, as a full or
// read-only disk does, and then mends it: the older checkpoints load at any time,
// and the next save clears what could not be removed.
func TestDiskStaysBroken(t *testing.T) {
	base := fsx.NewMem()
	mustSave(t, base, "c", 10, 20)
	growing := []fsx.Op{fsx.OpOpen, fsx.OpWrite, fsx.OpMkdir, fsx.OpSync}
	for _, rule := range []fsx.Rule{
		{Err: syscall.EIO, Permanent: true},
		{Ops: growing, Err: syscall.ENOSPC, Permanent: true},
		{Ops: []fsx.Op{fsx.OpOpen, fsx.OpWrite, fsx.OpMkdir, fsx.OpSync, fsx.OpRename, fsx.OpRemove}, Err: syscall.EROFS, Permanent: true},
	} {
		for n := 1; ; n++ {
			rule.Nth = n
			m := base.Crash(fsx.KeepAll, 0)
			f := fsx.NewFault(m, rule)
			_, err := Save(t.Context(), f, "c", snap(30), SaveOptions{})
			if f.Fired() == 0 {
				break
			}
			if err != nil && !errors.Is(err, rule.Err) {
				t.Fatalf("%v from call %d: the error %v does not tell", rule.Err, n, err)
			}
			f.SetRules()
			for _, mode := range fsx.CrashModes() {
				img := m.Crash(mode, 3)
				l, r, lerr := LoadLatest(t.Context(), img, "c", LoadOptions{})
				if lerr != nil || len(r.Skipped) > 0 || err == nil && l.Manifest.Step != 30 || l.Manifest.Step < 20 {
					t.Fatalf("%v from call %d, save said %v, crash %v: %v, %v\n%v", rule.Err, n, err, mode, r, lerr, img)
				}
				next := l.Manifest.Step + 10
				if _, err := Save(t.Context(), img, "c", snap(next), SaveOptions{}); err != nil {
					t.Fatalf("%v from call %d: next save: %v", rule.Err, n, err)
				}
				if s, err := scan(img, "c"); err != nil || len(s.tmps) > 0 {
					t.Fatalf("%v from call %d: leftovers stay: %v, %v", rule.Err, n, s.tmps, err)
				}
			}
		}
	}
}

// TestFaultsInRetention: whatever call fails, the newest two load and a second
// attempt finishes the work.
func TestFaultsInRetention(t *testing.T) {
	base := fsx.NewMem()
	mustSave(t, base, "c", 5, 10, 20)
	for _, permanent := range []bool{false, true} {
		for n := 1; ; n++ {
			m := base.Crash(fsx.KeepAll, 0)
			f := fsx.NewFault(m, fsx.Rule{Nth: n, Err: syscall.EIO, Permanent: permanent})
			_, err := Retain(t.Context(), f, "c", Policy{Keep: 2})
			fired := f.Fired()
			f.SetRules()
			for _, step := range []string{oldest, newest} {
				if _, err := Load(t.Context(), m, "c/"+step, LoadOptions{}); err != nil {
					t.Fatalf("fault at call %d (%v): %v", n, err, err)
				}
			}
			if entries, _ := List(m, "c"); len(entries) == 3 {
				if _, lerr := Load(t.Context(), m, "c/step-000000005", LoadOptions{}); lerr != nil {
					t.Fatalf("fault at call %d (%v): the old one is half deleted under its own name: %v", n, err, lerr)
				}
			}
			if _, err := Retain(t.Context(), m, "c", Policy{Keep: 2}); err != nil {
				t.Fatal(err)
			}
			if got := files(t, m, "c"); !reflect.DeepEqual(got, []string{"latest", oldest, newest}) {
				t.Fatalf("fault at call %d: left %v", n, got)
			}
			if fired == 0 {
				break
			}
		}
	}
}
