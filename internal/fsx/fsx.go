// Package fsx is the door through which everything durable is written.
//
// The rest of the program says what must survive a power cut (Sync a file,
// SyncDir a folder, Rename into place) through the small FS interface, and never
// calls package os for it. Three things follow. The real file system is OS, or
// Root when names come from outside and must not leave a folder. Mem keeps, for
// every file and folder, both what was written and what was synced, so that a
// test can cut the power after any operation and look at what is left. Fault
// wraps either one and makes chosen calls fail as full or dying disks do.
//
// The package knows nothing of checkpoints, stores or runs.
//
//	err := fsx.WriteFileAtomic(fsx.OS{}, "run/exit.json", data)
package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Default permissions of what the program creates: readable by its owner only.
const (
	DirPerm  fs.FileMode = 0o700
	FilePerm fs.FileMode = 0o600
)

// FS is the set of operations that durable writing needs. Every method may be
// called from several goroutines. Names are paths as package filepath makes
// them. Errors wrap the system's, so errors.Is works with fs.ErrNotExist,
// fs.ErrExist and syscall errors.
type FS interface {
	// OpenFile opens name with the os.O_ flags; the caller closes the file.
	// os.O_CREATE makes the file, but the name is durable only after SyncDir of
	// its folder.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Mkdir makes one folder; it is durable after SyncDir of its parent.
	Mkdir(name string, perm fs.FileMode) error
	// Rename moves oldname to newname. It replaces a file that has the new name
	// and refuses, with fs.ErrExist, to replace a folder.
	Rename(oldname, newname string) error
	// Remove deletes a file or an empty folder.
	Remove(name string) error
	// ReadDir lists a folder in byte order of the names.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes a file or folder; it follows symbolic links.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir blocks until the names in folder name are on the disk.
	SyncDir(name string) error
	// Lock takes the exclusive lock file name, creating it when missing, without
	// waiting. When somebody else has it the error is a *LockedError. The lock
	// ends with Close or with the process, and the file stays behind.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.WriterAt
	io.Seeker
	io.Closer
	// Sync blocks until the bytes are on the disk. After it has failed the file
	// must be given up: the kernel may have dropped the pages and reports the
	// loss only once, so a second Sync that succeeds proves nothing.
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	Name() string
}

// LockedError says that another holder has a lock.
type LockedError struct {
	Name   string // the lock file
	Holder string // what the holder wrote about itself, such as "process 4711"; may be empty
}

func (e *LockedError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("%s is locked by %s: wait for it to end, or use another folder", e.Name, holder)
}

// Create makes a new file for writing. It fails with fs.ErrExist when the name
// is taken: durable writers never write over a file in place.
func Create(fsys FS, name string) (File, error) {
	return fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, FilePerm)
}

// Open opens name for reading.
func Open(fsys FS, name string) (File, error) {
	return fsys.OpenFile(name, os.O_RDONLY, 0)
}

// Exists reports whether name is there. Any other failure to look is an error.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

// MkdirAll makes a folder and its missing parents, and syncs every parent in
// which it made something, so that the path is durable when it returns.
func MkdirAll(fsys FS, name string, perm fs.FileMode) error {
	name = filepath.Clean(name)
	info, err := fsys.Stat(name)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is a file where a folder is needed", name)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := MkdirAll(fsys, parent, perm); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// RemoveAll deletes name and everything below it, one Remove at a time; it does
// not follow symbolic links. A missing name is no error. It is not atomic: rename
// a folder out of the way first when a half-deleted one would be mistaken for a
// whole one.
func RemoveAll(fsys FS, name string) error {
	first := fsys.Remove(name)
	if first == nil || errors.Is(first, fs.ErrNotExist) {
		return nil
	}
	entries, err := fsys.ReadDir(name)
	if err != nil {
		// Not a folder, or not readable: the first error says why it stays.
		return first
	}
	for _, e := range entries {
		child := filepath.Join(name, e.Name())
		if e.IsDir() {
			err = RemoveAll(fsys, child)
		} else {
			err = fsys.Remove(child)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReadFile returns the whole of name, and an error when it has more than limit
// bytes: what is read may come from outside.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := Open(fsys, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %d", name, info.Size(), limit)
	}
	// One byte more than announced, to notice a file that grows meanwhile.
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than the limit of %d bytes", name, limit)
	}
	return data, nil
}

// WriteFile makes the new file name, writes data, syncs and closes it. On an
// error it removes what it made. The name itself is durable only after SyncDir.
func WriteFile(fsys FS, name string, data []byte) (err error) {
	f, err := Create(fsys, name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fsys.Remove(name) // best effort: the first error is the one that counts
		}
	}()
	if n, err := f.Write(data); err != nil || n != len(data) {
		f.Close()
		return writeError(name, n, len(data), err)
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return fmt.Errorf("sync %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", name, err)
	}
	return nil
}

func writeError(name string, n, want int, err error) error {
	if err == nil {
		err = io.ErrShortWrite
	}
	return fmt.Errorf("write %s: %d of %d bytes: %w", name, n, want, err)
}

// WriteFileAtomic gives name the content data so that after a power cut the
// file holds either its old content or all of the new. It writes and syncs
// ".tmp-" + base beside it, renames, and syncs the folder. One writer per name
// at a time.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	dir, base := filepath.Split(filepath.Clean(name))
	if dir == "" {
		dir = "."
	}
	tmp := filepath.Join(dir, ".tmp-"+base)
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove leftover %s: %w", tmp, err)
	}
	if err := WriteFile(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		fsys.Remove(tmp) // best effort: the rename's error is the one that counts
		return err
	}
	return fsys.SyncDir(dir)
}

// CommitDir publishes the finished folder tmp, whose files are already synced,
// as final: it syncs tmp's names, renames, and syncs the parent. It fails with
// fs.ErrExist, changing nothing, when final is taken. When the last sync fails
// final may be visible without being durable; the caller decides.
func CommitDir(fsys FS, tmp, final string) error {
	if err := fsys.SyncDir(tmp); err != nil {
		return fmt.Errorf("sync folder %s: %w", tmp, err)
	}
	// Rename refuses a folder too, but not every kind of file in the way.
	taken, err := Exists(fsys, final)
	if err != nil {
		return err
	}
	if taken {
		return &fs.PathError{Op: "commit", Path: final, Err: fs.ErrExist}
	}
	if err := fsys.Rename(tmp, final); err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(final))
	if err := fsys.SyncDir(parent); err != nil {
		return fmt.Errorf("sync folder %s: %w", parent, err)
	}
	return nil
}
