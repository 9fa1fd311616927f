package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// field returns the number of a line such as "MemAvailable:  123 kB".
func field(text, key string) (int64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			if w := strings.Fields(rest); len(w) > 0 {
				n, err := strconv.ParseInt(w[0], 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

// memoryBytes returns what the process may use, and what of it is free: the
// limits of a control group count.
func memoryBytes() (total, available int64, ok bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, false
	}
	t, ok1 := field(string(b), "MemTotal")
	a, ok2 := field(string(b), "MemAvailable")
	if !ok1 || !ok2 {
		return 0, 0, false
	}
	total, available = t<<10, a<<10
	limit, used := groupValue("memory.max"), groupValue("memory.current")
	if limit > 0 && limit < total {
		total = limit
		available = min(available, max(0, limit-used))
	}
	return total, available, true
}

// groupValue reads a number of the control group of this process, as a
// container sees it; 0 when there is none.
func groupValue(name string) int64 {
	b, err := os.ReadFile("/sys/fs/cgroup/" + name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

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
