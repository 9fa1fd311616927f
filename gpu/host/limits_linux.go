package host

import (
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// MemoryLimits returns what bounds the memory of this process: the machine first, then
// the tightest control group, the address space (ulimit -v) and the data segment
// (ulimit -d), as far as they are limited.
func MemoryLimits() []MemoryLimit {
	fsys := os.DirFS("/")
	var list []MemoryLimit
	if total := keyed(fsys, "proc/meminfo", "MemTotal:"); total > 0 {
		list = append(list, MemoryLimit{What: "the machine", Bytes: total << 10, Free: keyed(fsys, "proc/meminfo", "MemAvailable:") << 10})
	}
	if l, ok := groupMemory(fsys); ok {
		list = append(list, l)
	}
	for _, r := range []struct {
		resource int
		what     string
		inUse    func(fs.FS) int64
	}{
		{unix.RLIMIT_AS, "ulimit -v", func(fsys fs.FS) int64 { return keyed(fsys, "proc/self/status", "VmSize:") << 10 }},
		{unix.RLIMIT_DATA, "ulimit -d", func(fsys fs.FS) int64 { return keyed(fsys, "proc/self/status", "VmData:") << 10 }},
	} {
		var lim unix.Rlimit
		if unix.Getrlimit(r.resource, &lim) != nil || lim.Cur >= math.MaxInt64 {
			continue
		}
		list = append(list, MemoryLimit{r.what, int64(lim.Cur), max(0, int64(lim.Cur)-r.inUse(fsys)), true})
	}
	return list
}

// CPUQuota returns what control groups allow.
func CPUQuota() CPULimit { return groupCPU(os.DirFS("/")) }

// TotalMemory is the memory this process may use: the least of what the machine has
// and a control group allows; 0 when unknown.
func TotalMemory() int64 {
	fsys := os.DirFS("/")
	total := keyed(fsys, "proc/meminfo", "MemTotal:") << 10
	if l, ok := groupMemory(fsys); ok && (total == 0 || l.Bytes < total) {
		total = l.Bytes
	}
	return total
}
