package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// hugePages returns the chosen mode of transparent huge pages.
func hugePages() (string, bool) {
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		return "", false
	}
	_, rest, ok := strings.Cut(string(b), "[")
	mode, _, ok2 := strings.Cut(rest, "]")
	return mode, ok && ok2
}

// memlock words the limit on locked memory.
func memlock() (string, bool) {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) != nil {
		return "", false
	}
	if r.Cur == unix.RLIM_INFINITY {
		return "unlimited", true
	}
	return bytesText(int64(r.Cur)), true
}

// loadAverage is the number of runnable tasks over the last minute.
func loadAverage() (float64, bool) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	var load float64
	_, err = fmt.Sscan(string(b), &load)
	return load, err == nil
}

// freeBytes is the space that a user who is not root may still fill.
func freeBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
