package fsx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// put makes a file, syncing bytes and name as told.
func put(t *testing.T, f FS, name string, data []byte, sync bool) {
	t.Helper()
	file, err := Create(f, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(data); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCrashModes(t *testing.T) {
	m := NewMem()
	data := bytes.Repeat([]byte("x"), 3*crashBlock)
	put(t, m, "durable", data, true)
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	put(t, m, "name-unsynced", data, true)
	put(t, m, "bytes-unsynced", data, false)

	lose := m.Crash(LoseUnsynced, 0)
	if got, want := lose.String(), fmt.Sprintf("/durable %d bytes\n", len(data)); got != want {
		t.Errorf("lose-unsynced keeps\n%swant\n%s", got, want)
	}
	if got := m.Crash(KeepAll, 0).String(); got != m.String() {
		t.Errorf("keep-all keeps\n%swant\n%s", got, m)
	}
	seen := map[string]bool{}
	for seed := range uint64(64) {
		zero := m.Crash(KeepNamesZeroData, seed)
		if got := read(t, zero, "name-unsynced"); got != string(data) {
			t.Fatal("synced bytes were lost")
		}
		got := read(t, zero, "bytes-unsynced")
		if got != "" && got != string(make([]byte, len(data))) {
			t.Fatalf("unsynced bytes survive as %q...", got[:10])
		}
		seen[fmt.Sprint("zero ", len(got))] = true

		random := m.Crash(KeepRandom, seed)
		if random.String() != m.Crash(KeepRandom, seed).String() {
			t.Fatal("the same seed gives two images")
		}
		if read(t, random, "durable") != string(data) {
			t.Fatal("a synced file was lost")
		}
		for _, name := range []string{"name-unsynced", "bytes-unsynced"} {
			if there, _ := Exists(random, name); !there {
				seen["no "+name] = true
				continue
			}
			b := read(t, random, name)
			if name == "name-unsynced" && b != string(data) {
				t.Fatal("synced bytes were lost")
			}
			var blocks string
			for at := 0; at < len(b); at += crashBlock {
				blocks += b[at : at+1]
			}
			seen[name+" "+blocks] = true
		}
	}
	for _, want := range []string{"zero 0", fmt.Sprint("zero ", len(data)), "no name-unsynced", "no bytes-unsynced",
		"name-unsynced xxx", "bytes-unsynced x\x00x", "bytes-unsynced \x00xx", "bytes-unsynced "} {
		if !seen[want] {
			t.Errorf("64 seeds never gave %q", want)
		}
	}
}

func TestCrashBringsBackRemovedNames(t *testing.T) {
	m := NewMem()
	put(t, m, "f", []byte("old"), true)
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove("f"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.Crash(LoseUnsynced, 0), "f"); got != "old" {
		t.Errorf("an unsynced removal lost the file: %q", got)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if there, _ := Exists(m.Crash(LoseUnsynced, 0), "f"); there {
		t.Error("a synced removal did not last")
	}
}

// TestAtomicWritesSurviveEveryCrash cuts the power after every call of an atomic
// write and of a folder commit, and finds the old or the new content each time.
func TestAtomicWritesSurviveEveryCrash(t *testing.T) {
	oldData, newData := bytes.Repeat([]byte("old"), 3000), bytes.Repeat([]byte("new!"), 4000)
	m := NewMem()
	f := NewFault(m)
	if err := WriteFileAtomic(f, "x", oldData); err != nil {
		t.Fatal(err)
	}
	images := 0
	f.After(func(c Call) {
		for _, mode := range CrashModes() {
			for seed := range uint64(8) {
				img := m.Crash(mode, seed)
				got := read(t, img, "x")
				if got != string(oldData) && got != string(newData) {
					t.Fatalf("crash %v seed %d after %v %s leaves %d bytes that are neither", mode, seed, c.Op, c.Name, len(got))
				}
				// What is left over must not be in the way of the next write.
				if err := WriteFileAtomic(img, "x", newData); err != nil {
					t.Fatalf("write after crash %v seed %d after %v: %v", mode, seed, c.Op, err)
				}
				images++
			}
		}
	})
	if err := WriteFileAtomic(f, "x", newData); err != nil {
		t.Fatal(err)
	}
	f.After(nil)
	if got := read(t, m.Crash(LoseUnsynced, 0), "x"); got != string(newData) {
		t.Error("the new content is not durable after WriteFileAtomic returned")
	}
	if images < 5*32 {
		t.Errorf("only %d images", images)
	}
}

// TestCrashTestFindsSloppyWriter proves that the crash test can fail: the same
// write without Sync must leave broken images.
func TestCrashTestFindsSloppyWriter(t *testing.T) {
	m := NewMem()
	put(t, m, ".tmp", bytes.Repeat([]byte("new!"), 4000), false)
	if err := m.Rename(".tmp", "x"); err != nil {
		t.Fatal(err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, mode := range CrashModes() {
		if len(bytes.Trim([]byte(read(t, m.Crash(mode, 1), "x")), "new!")) > 0 || read(t, m.Crash(mode, 1), "x") == "" {
			broken++
		}
	}
	if broken < 2 {
		t.Errorf("an unsynced rename broke %d of 4 modes", broken)
	}
}

func TestFaultRules(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rule  Rule
		fails []bool // of five writes to files w0..w4
	}{
		{"third", Rule{Ops: []Op{OpWrite}, Nth: 3, Err: syscall.ENOSPC}, []bool{false, false, true, false, false}},
		{"from third", Rule{Ops: []Op{OpWrite}, Nth: 3, Err: syscall.ENOSPC, Permanent: true}, []bool{false, false, true, true, true}},
		{"by name", Rule{Glob: "w[13]", Ops: []Op{OpWrite}, Err: syscall.EIO, Permanent: true}, []bool{false, true, false, true, false}},
		{"short", Rule{Ops: []Op{OpWrite}, Nth: 2, Short: true}, []bool{false, true, false, false, false}},
		{"open", Rule{Ops: []Op{OpOpen}, Nth: 1, Err: syscall.EMFILE}, []bool{true, false, false, false, false}},
		{"sync", Rule{Ops: []Op{OpSync}, Nth: 5, Err: syscall.EIO}, []bool{false, false, false, false, true}},
		{"close", Rule{Ops: []Op{OpClose}, Nth: 5, Err: syscall.EDQUOT}, []bool{false, false, false, false, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := NewMem()
			f := NewFault(m, tc.rule)
			fired := 0
			for i, want := range tc.fails {
				err := WriteFile(f, fmt.Sprintf("w%d", i), []byte("data"))
				if (err != nil) != want {
					t.Fatalf("write %d: %v, want a failure: %v", i, err, want)
				}
				if want {
					fired++
					wantErr := tc.rule.Err
					if wantErr == nil {
						wantErr = io.ErrShortWrite
					}
					if !errors.Is(err, wantErr) {
						t.Errorf("write %d: %v, want %v", i, err, wantErr)
					}
					if there, _ := Exists(m, fmt.Sprintf("w%d", i)); there {
						t.Errorf("write %d left its file", i)
					}
				}
			}
			if f.Fired() != fired {
				t.Errorf("Fired() = %d, want %d", f.Fired(), fired)
			}
		})
	}
}

// TestFailedSyncLosesPages checks the trap that Fault sets for those who call
// Sync again: it reports success and the bytes are not on the disk.
func TestFailedSyncLosesPages(t *testing.T) {
	m := NewMem()
	f := NewFault(m, Rule{Ops: []Op{OpSync}, Err: syscall.EIO})
	file, err := Create(f, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatalf("the second sync says %v", err)
	}
	if err := f.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.Crash(LoseUnsynced, 0), "x"); got != "" {
		t.Errorf("bytes %q became durable by a second sync", got)
	}
	// A new file under the same name is a new file.
	if err := f.Remove("x"); err != nil {
		t.Fatal(err)
	}
	if err := WriteFileAtomic(f, "x", []byte("fresh")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.Crash(LoseUnsynced, 0), "x"); got != "fresh" {
		t.Errorf("after a new write: %q", got)
	}
}

func TestFaultDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFault(NewMem(), Rule{Ops: []Op{OpSync}, Delay: 30 * time.Second})
		start := time.Now()
		if err := WriteFile(f, "x", []byte("data")); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("took %v, want exactly 30s", got)
		}
	})
}

func TestMemRefusesDotDot(t *testing.T) {
	m := NewMem()
	if err := m.Mkdir("../x", DirPerm); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v, want fs.ErrInvalid", err)
	}
}
