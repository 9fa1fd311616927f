//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package fsx

import (
	"errors"
	"os"
)

// syncDirFile syncs the names of an open folder.
func syncDirFile(dir *os.File) error { return dir.Sync() }

// tryLock fails: without a lock two processes could write into one run folder.
func tryLock(*os.File) (held bool, err error) {
	return false, errors.New("this operating system has no file lock that the program knows; it runs on Linux, macOS, the BSDs and Windows")
}
