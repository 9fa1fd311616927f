package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// systems returns every implementation with the name of a folder to work in.
func systems(t *testing.T) map[string]struct {
	fsys FS
	dir  string
} {
	t.Helper()
	root, err := OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return map[string]struct {
		fsys FS
		dir  string
	}{
		"os":    {OS{}, t.TempDir()},
		"root":  {root, "."},
		"mem":   {NewMem(), "."},
		"fault": {NewFault(NewMem()), "/"},
	}
}

func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	b, err := ReadFile(fsys, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteFileAtomic(t *testing.T) {
	for name, s := range systems(t) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(s.dir, "a", "b")
			if err := MkdirAll(s.fsys, dir, DirPerm); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "x.json")
			for _, text := range []string{"one", "twotwo", ""} {
				if err := WriteFileAtomic(s.fsys, file, []byte(text)); err != nil {
					t.Fatal(err)
				}
				if got := read(t, s.fsys, file); got != text {
					t.Errorf("got %q, want %q", got, text)
				}
			}
			entries, err := s.fsys.ReadDir(dir)
			if err != nil || len(entries) != 1 {
				t.Errorf("folder holds %v (%v), want x.json alone", entries, err)
			}
			if _, err := ReadFile(s.fsys, dir, 100); err == nil {
				t.Error("reading a folder as a file succeeded")
			}
			if err := WriteFile(s.fsys, file, nil); !errors.Is(err, fs.ErrExist) {
				t.Errorf("WriteFile over a file: %v, want fs.ErrExist", err)
			}
		})
	}
}

func TestReadFileLimit(t *testing.T) {
	m := NewMem()
	if err := WriteFile(m, "f", []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(m, "f", 5); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := ReadFile(m, "f", 4); err == nil {
		t.Error("above the limit: no error")
	}
}

func TestCommitDir(t *testing.T) {
	for name, s := range systems(t) {
		t.Run(name, func(t *testing.T) {
			tmp, final := filepath.Join(s.dir, "tmp"), filepath.Join(s.dir, "final")
			for i := range 2 {
				if err := s.fsys.Mkdir(tmp, DirPerm); err != nil {
					t.Fatal(err)
				}
				if err := WriteFile(s.fsys, filepath.Join(tmp, "f"), fmt.Append(nil, i)); err != nil {
					t.Fatal(err)
				}
				err := CommitDir(s.fsys, tmp, final)
				if i == 0 && err != nil {
					t.Fatal(err)
				}
				if i == 1 && !errors.Is(err, fs.ErrExist) {
					t.Fatalf("second commit: %v, want fs.ErrExist", err)
				}
			}
			if got := read(t, s.fsys, filepath.Join(final, "f")); got != "0" {
				t.Errorf("final holds %q, want the first commit's", got)
			}
		})
	}
	// An empty folder is taken too, although rename would replace it.
	m := NewMem()
	for _, d := range []string{"tmp", "final"} {
		if err := m.Mkdir(d, DirPerm); err != nil {
			t.Fatal(err)
		}
	}
	if err := CommitDir(m, "tmp", "final"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("commit onto an empty folder: %v, want fs.ErrExist", err)
	}
}

func TestLock(t *testing.T) {
	for name, s := range systems(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(s.dir, "lock")
			first, err := s.fsys.Lock(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.fsys.Lock(file)
			var locked *LockedError
			if !errors.As(err, &locked) {
				t.Fatalf("second lock: %v, want *LockedError", err)
			}
			if want := fmt.Sprintf("process %d", os.Getpid()); (name == "os" || name == "root") && !strings.Contains(err.Error(), want) {
				t.Errorf("message %q does not name %q", err, want)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := s.fsys.Lock(file)
			if err != nil {
				t.Fatalf("lock after unlock: %v", err)
			}
			again.Close()
		})
	}
}

func TestHolderName(t *testing.T) {
	for text, want := range map[string]string{
		"process 17\n": "process 17", "process 17": "process 17", "": "", "process -1": "",
		"process \x1b[2J": "", "someone": "", "process 1 2": "",
	} {
		if got := holderName(text); got != want {
			t.Errorf("holderName(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestRootRefusesToLeave(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	r, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, name := range []string{"link/secret", "../" + filepath.Base(outside) + "/secret", filepath.Join(outside, "secret")} {
		if f, err := Open(r, name); err == nil {
			f.Close()
			t.Errorf("opened %s", name)
		}
		if err := WriteFileAtomic(r, name, []byte("x")); err == nil {
			t.Errorf("wrote %s", name)
		}
	}
	if _, err := r.ReadDir("link"); err == nil {
		t.Error("listed a folder outside")
	}
	if _, err := r.ReadDir(".."); err == nil {
		t.Error("listed the parent")
	}
	if err := RemoveAll(r, "link"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Errorf("RemoveAll followed a link: %v", err)
	}
}

func TestMkdirAllOverFile(t *testing.T) {
	m := NewMem()
	if err := WriteFile(m, "f", nil); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(m, "f/g", DirPerm); err == nil {
		t.Error("made a folder below a file")
	}
}

// class reduces an error to what callers branch on.
func class(err error) string {
	switch {
	case err == nil:
		return "ok"
	case err == io.EOF:
		return "EOF"
	case errors.Is(err, syscall.ENOTEMPTY):
		return "not empty"
	case errors.Is(err, fs.ErrNotExist):
		return "missing"
	case errors.Is(err, fs.ErrExist):
		return "exists"
	}
	return "other"
}

// TestMemAgreesWithOS runs the same random calls on the memory and on the real
// file system and compares every answer: a crash test proves nothing on a
// memory file system that behaves unlike a disk.
func TestMemAgreesWithOS(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("error classes of Windows differ")
	}
	names := []string{"a", "b", "d", "d/a", "d/b", "e", "e/d", "e/d/a"}
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		mem := NewMem()
		disk, err := OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 150 {
			op, x, y, n := rng.IntN(9), names[rng.IntN(len(names))], names[rng.IntN(len(names))], rng.IntN(20)
			run := func(f FS) string { return randomCall(f, op, x, y, n) }
			if got, want := run(mem), run(disk); got != want {
				t.Fatalf("seed %d call %d: op %d on %s, %s: memory says %s, disk says %s", seed, i, op, x, y, got, want)
			}
		}
		disk.Close()
	}
}

func randomCall(f FS, op int, x, y string, n int) string {
	switch op {
	case 0:
		return class(f.Mkdir(x, DirPerm))
	case 1:
		if x == y || strings.HasPrefix(y, x+"/") || strings.HasPrefix(x, y+"/") {
			return "skipped: systems word these differently"
		}
		return class(f.Rename(x, y))
	case 2:
		return class(f.Remove(x))
	case 3:
		return class(RemoveAll(f, x))
	case 4:
		entries, err := f.ReadDir(x)
		out := class(err)
		for _, e := range entries {
			out += fmt.Sprintf(" %s:%v", e.Name(), e.IsDir())
		}
		return out
	case 5:
		info, err := f.Stat(x)
		if err != nil || info.IsDir() {
			return class(err)
		}
		return fmt.Sprint("ok ", info.Size(), info.IsDir())
	case 6:
		return class(WriteFile(f, x, make([]byte, n)))
	case 7:
		flags := []int{os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDONLY}
		file, err := f.OpenFile(x, flags[n%len(flags)], FilePerm)
		if err != nil {
			return class(err)
		}
		defer file.Close()
		return fileCalls(file, n)
	default:
		b, err := ReadFile(f, x, 1<<20)
		return fmt.Sprint(class(err), b)
	}
}

func fileCalls(file File, n int) string {
	if info, err := file.Stat(); err != nil || info.IsDir() {
		return class(err)
	}
	var out strings.Builder
	say := func(n any, err error) { fmt.Fprint(&out, n, class(err), " ") }
	w, err := file.Write([]byte("hello")[:n%6])
	say(w, err)
	pos, err := file.Seek(int64(n%4), io.SeekStart)
	say(pos, err)
	w, err = file.Write([]byte("XY"))
	say(w, err)
	if n%3 == 0 {
		say("", file.Truncate(int64(n)))
	}
	pos, err = file.Seek(-1, io.SeekEnd)
	say(pos, err)
	buf := make([]byte, 3)
	r, err := file.Read(buf)
	say(string(buf[:r]), err)
	r, err = file.ReadAt(buf, 1)
	say(string(buf[:r]), err)
	say("", file.Sync())
	return out.String()
}

// TestLockOfAMovedFile: a lock on a file that lost its name meanwhile is no lock.
func TestLockOfAMovedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file keeps its name on this system")
	}
	name := filepath.Join(t.TempDir(), "lock")
	opens := 0
	lock, err := lockNamed(name, func() (*os.File, error) {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, FilePerm)
		if opens++; opens == 1 && err == nil {
			err = os.Remove(name)
		}
		return f, err
	}, os.Stat)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	var locked *LockedError
	if _, err := (OS{}).Lock(name); opens != 2 || !errors.As(err, &locked) {
		t.Errorf("%d tries, and then another lock: %v", opens, err)
	}
}
