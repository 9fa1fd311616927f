package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"

	"refrain/internal/fsx"
)

const lockName = ".lock"

// movesOpen says that a folder can be renamed, and a file removed, while the lock
// file is open. Windows refuses both.
const movesOpen = runtime.GOOS != "windows"

// Partial makes and locks the empty folder dir.partial, in which a caller
// prepares what becomes dir by CommitPartial, or nothing by AbandonPartial. It
// fails when dir exists or another process holds the lock.
func Partial(fsys fsx.FS, dir string) (tmp string, lock io.Closer, err error) {
	if err := untaken(fsys, dir); err != nil {
		return "", nil, err
	}
	tmp = dir + PartialSuffix
	if err := fsx.MkdirAll(fsys, tmp, fsx.DirPerm); err != nil {
		return "", nil, fmt.Errorf("store %s: %w", dir, err)
	}
	if lock, err = fsys.Lock(filepath.Join(tmp, lockName)); err != nil {
		return "", nil, fmt.Errorf("store %s: %w", dir, err)
	}
	// Another ingest may have ended between the first look and the lock.
	if err := untaken(fsys, dir); err != nil {
		return "", nil, errors.Join(err, AbandonPartial(fsys, tmp, lock))
	}
	if err := empty(fsys, tmp); err != nil {
		lock.Close()
		return "", nil, fmt.Errorf("store %s: clear leftovers: %w", dir, err)
	}
	return tmp, lock, nil
}

func untaken(fsys fsx.FS, dir string) error {
	taken, err := fsx.Exists(fsys, dir)
	if err == nil && taken {
		return fmt.Errorf("store %s: %w: remove it or choose another folder", dir, fs.ErrExist)
	}
	return err
}

// empty removes everything in tmp but the lock file.
func empty(fsys fsx.FS, tmp string) error {
	entries, err := fsys.ReadDir(tmp)
	for _, e := range entries {
		if err == nil && e.Name() != lockName {
			err = fsx.RemoveAll(fsys, filepath.Join(tmp, e.Name()))
		}
	}
	return err
}

// CommitPartial moves the finished folder of Partial to dir and ends the lock; when
// it cannot move it, it abandons it. The folder is locked until it has its name, so
// that no other ingest can take it for a leftover; only on Windows, where an open
// file keeps a folder from being renamed, the lock has to go first. A process that
// is killed in between leaves the lock file in dir, where readers ignore it.
func CommitPartial(fsys fsx.FS, tmp, dir string, lock io.Closer) error {
	if !movesOpen {
		err := errors.Join(lock.Close(), fsys.Remove(filepath.Join(tmp, lockName)))
		if err == nil {
			err = fsx.CommitDir(fsys, tmp, dir)
		}
		if err != nil { // without a lock, what is left is the next ingest's to clear
			return fmt.Errorf("store %s: %w", dir, err)
		}
		return nil
	}
	err := fsys.SyncDir(tmp)
	if err == nil {
		err = untaken(fsys, dir)
	}
	if err == nil {
		err = fsys.Rename(tmp, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("store %s: %w", dir, err), AbandonPartial(fsys, tmp, lock))
	}
	// From here on the store is there, and an error says that it may not be durable.
	err = errors.Join(fsys.SyncDir(filepath.Dir(dir)), fsys.Remove(filepath.Join(dir, lockName)), lock.Close())
	if err != nil {
		return fmt.Errorf("store %s: %w", dir, err)
	}
	return nil
}

// AbandonPartial removes the unfinished folder of Partial and ends the lock, also
// when it fails. What is in the folder is removed under the lock. Another ingest
// may lock the empty folder before that is removed too: then it stays.
func AbandonPartial(fsys fsx.FS, tmp string, lock io.Closer) error {
	err := empty(fsys, tmp)
	if err != nil { // what is left needs no lock; the next ingest clears it
		err = errors.Join(err, lock.Close())
	} else {
		name := filepath.Join(tmp, lockName)
		if movesOpen {
			err = errors.Join(fsys.Remove(name), lock.Close())
		} else if err = lock.Close(); err == nil {
			err = fsys.Remove(name)
		}
		if err == nil {
			err = fsys.Remove(tmp)
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil // not empty: it is someone else's by now
		}
	}
	if err != nil {
		return fmt.Errorf("store %s: remove unfinished files: %w", strings.TrimSuffix(tmp, PartialSuffix), err)
	}
	return nil
}
