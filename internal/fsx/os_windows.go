package fsx

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// syncDirFile does nothing: Windows offers no way to flush a folder's names, and
// NTFS journals them itself.
func syncDirFile(*os.File) error { return nil }

// lockOffset is where the locked byte lies. Windows locks keep other processes
// from reading the locked range, so it is far behind the text of the file.
const lockOffset = 1 << 30

// tryLock takes the exclusive lock of f; held says that someone else has it.
func tryLock(f *os.File) (held bool, err error) {
	at := &windows.Overlapped{Offset: lockOffset}
	flags := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY)
	err = windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return true, nil
	}
	return false, err
}
