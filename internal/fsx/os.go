package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OS is the real file system, for paths that the operator gave. The zero value
// is ready.
type OS struct{}

// OpenFile implements FS.
func (OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not a nil *os.File inside a File
	}
	return f, nil
}

// Mkdir implements FS.
func (OS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

// Rename implements FS.
func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Stat implements FS.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return syncAndClose(f)
}

// Lock implements FS with flock on Unix and LockFileEx on Windows.
func (OS) Lock(name string) (io.Closer, error) {
	return lockNamed(name, func() (*os.File, error) { return os.OpenFile(name, os.O_RDWR|os.O_CREATE, FilePerm) }, os.Stat)
}

// Root is the real file system below one folder. Names are relative to it, and
// one that leaves it, by ".." or through a symbolic link, is refused.
type Root struct{ root *os.Root }

// OpenRoot opens folder dir; the caller closes the Root.
func OpenRoot(dir string) (*Root, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Root{root: r}, nil
}

// Close gives the folder up. Files opened through it stay open.
func (r *Root) Close() error { return r.root.Close() }

// OpenFile implements FS.
func (r *Root) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := r.root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Mkdir implements FS.
func (r *Root) Mkdir(name string, perm fs.FileMode) error { return r.root.Mkdir(name, perm) }

// Rename implements FS.
func (r *Root) Rename(oldname, newname string) error { return r.root.Rename(oldname, newname) }

// Remove implements FS.
func (r *Root) Remove(name string) error { return r.root.Remove(name) }

// ReadDir implements FS.
func (r *Root) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(r.root.FS(), filepath.ToSlash(filepath.Clean(name)))
}

// Stat implements FS.
func (r *Root) Stat(name string) (fs.FileInfo, error) { return r.root.Stat(name) }

// SyncDir implements FS.
func (r *Root) SyncDir(name string) error {
	f, err := r.root.Open(name)
	if err != nil {
		return err
	}
	return syncAndClose(f)
}

// Lock implements FS.
func (r *Root) Lock(name string) (io.Closer, error) {
	return lockNamed(name, func() (*os.File, error) { return r.root.OpenFile(name, os.O_RDWR|os.O_CREATE, FilePerm) }, r.root.Stat)
}

// StartWriting asks the system to begin to put bytes [off, off+n) of an open file on the
// disk. It does not wait for that and promises nothing: it makes a later Sync shorter,
// where f is a file of the system and the system is Linux.
func StartWriting(f File, off, n int64) {
	if f, ok := f.(*os.File); ok {
		startWriting(f, off, n)
	}
}

func syncAndClose(dir *os.File) error {
	err := syncDirFile(dir)
	return errors.Join(err, dir.Close())
}

// lockNamed opens and locks the file name. A holder may remove the file, or move its
// folder away, between the opening and the locking; then the lock is that of a file
// nobody else will look at, and another try is made.
func lockNamed(name string, open func() (*os.File, error), stat func(string) (fs.FileInfo, error)) (io.Closer, error) {
	for {
		f, err := open()
		if err != nil {
			return nil, err
		}
		lock, err := lockAndSign(f, name)
		if err != nil {
			return nil, err
		}
		mine, err := f.Stat()
		if err == nil {
			var there fs.FileInfo
			if there, err = stat(name); err == nil && os.SameFile(mine, there) {
				return lock, nil
			}
		}
		lock.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// holderPrefix precedes the process number in a lock file.
const holderPrefix = "process "

// lockAndSign locks the open file f, which it owns from here on, and writes the
// process number into it for the message of whoever comes second.
func lockAndSign(f *os.File, name string) (io.Closer, error) {
	held, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if held {
		text := make([]byte, 64)
		n, _ := f.ReadAt(text, 0) // unreadable means an unnamed holder, which the message can say
		f.Close()
		return nil, &LockedError{Name: name, Holder: holderName(string(text[:n]))}
	}
	if err := f.Truncate(0); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.WriteAt([]byte(holderPrefix+strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// holderName accepts only what lockAndSign writes; a lock file is bytes from
// outside and its text goes into a message.
func holderName(text string) string {
	text = strings.TrimSuffix(text, "\n")
	digits, ok := strings.CutPrefix(text, holderPrefix)
	if !ok {
		return ""
	}
	if n, err := strconv.Atoi(digits); err != nil || n <= 0 {
		return ""
	}
	return text
}
