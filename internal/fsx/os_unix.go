//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fsx

import (
	"errors"
	"os"
	"syscall"
)

// syncDirFile syncs the names of an open folder. A few network file systems
// cannot sync folders and answer EINVAL or EBADF before they do anything; that is
// no lost write, so it is not reported, as databases do. EIO and the rest are.
func syncDirFile(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBADF) {
		return nil
	}
	return err
}

// tryLock takes the flock of f; held says that someone else has it. The lock
// belongs to the open file, so two opens in one process exclude each other too.
func tryLock(f *os.File) (held bool, err error) {
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
