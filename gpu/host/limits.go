package host

import (
	"io/fs"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// MemoryLimit is one of the bounds on the memory of this process.
type MemoryLimit struct {
	What  string // "the machine", "the control group /jobs/7", "ulimit -v"
	Bytes int64
	Free  int64 // of Bytes, what is not in use yet
	Own   bool  // of this process alone: nobody else will give any of it back
}

// CPULimit is what a control group allows.
type CPULimit struct {
	CPUs  float64 // processors' worth of time; 0 when there is no limit
	Where string  // the control group
}

// Control groups limit a process by the group it is in and by every group above that.
// /proc/self/cgroup names the group by its path from the root of the hierarchy, or,
// inside a container, by one that the container does not see: there the root of the
// mount is the group itself. So all parents are asked, and the smallest answer counts.
//
// The files are those of version 2 of the interface, and of version 1 where that holds
// the controller; see Documentation/admin-guide/cgroup-v2.rst and cgroup-v1 of Linux.

// groups lists the folders to ask for a controller, from the process's own upwards,
// with the version of the interface. fsys is the root of the file system.
func groups(fsys fs.FS, controller string) (dirs []string, version int) {
	b, err := fs.ReadFile(fsys, "proc/self/cgroup")
	if err != nil {
		return nil, 0
	}
	const mount = "sys/fs/cgroup"
	own, root := "", ""
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(part) != 3 {
			continue
		}
		switch {
		case part[0] == "0" && version == 0: // version 2; a controller of version 1 comes first
			own, root, version = part[2], mount, 2
		case part[0] != "0" && strings.Contains(","+part[1]+",", ","+controller+","):
			own, version = part[2], 1
			root = path.Join(mount, controller)
			if _, err := fs.Stat(fsys, root); err != nil {
				root = path.Join(mount, part[1])
			}
		}
	}
	if version == 0 {
		return nil, 0
	}
	for p := path.Clean("/" + own); ; p = path.Dir(p) {
		dirs = append(dirs, path.Join(root, p))
		if p == "/" {
			return dirs, version
		}
	}
}

// number reads a file that holds one number. "max" and the largest numbers, which
// version 1 writes for no limit, are not one.
func number(fsys fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil && n < math.MaxInt64>>1
}

// keyed reads the number after a word at the start of a line.
func keyed(fsys fs.FS, name, key string) int64 {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == key {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// groupName is how people know a group: by its path below the mount.
func groupName(dir string) string {
	return "the control group /" + strings.TrimPrefix(strings.TrimPrefix(dir, "sys/fs/cgroup"), "/")
}

// groupMemory returns the tightest memory limit of the control groups. Pages of files
// that were read and may be dropped do not count as in use.
func groupMemory(fsys fs.FS) (l MemoryLimit, ok bool) {
	dirs, version := groups(fsys, "memory")
	limit, used, cache := "memory.max", "memory.current", "inactive_file"
	if version == 1 {
		limit, used, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	}
	for _, dir := range dirs {
		n, set := number(fsys, path.Join(dir, limit))
		if !set || ok && n >= l.Bytes {
			continue
		}
		in, _ := number(fsys, path.Join(dir, used))
		in -= min(in, keyed(fsys, path.Join(dir, "memory.stat"), cache))
		l, ok = MemoryLimit{What: groupName(dir), Bytes: n, Free: max(0, n-in)}, true
	}
	return l, ok
}

// groupCPU returns the tightest CPU limit of the control groups.
func groupCPU(fsys fs.FS) (l CPULimit) {
	dirs, version := groups(fsys, "cpu")
	for _, dir := range dirs {
		var quota, period int64
		ok := false
		if version == 1 {
			quota, ok = number(fsys, path.Join(dir, "cpu.cfs_quota_us"))
			period, _ = number(fsys, path.Join(dir, "cpu.cfs_period_us"))
		} else if b, err := fs.ReadFile(fsys, path.Join(dir, "cpu.max")); err == nil {
			if f := strings.Fields(string(b)); len(f) == 2 {
				var errs [2]error
				quota, errs[0] = strconv.ParseInt(f[0], 10, 64) // "max" is no limit
				period, errs[1] = strconv.ParseInt(f[1], 10, 64)
				ok = errs == [2]error{}
			}
		}
		if !ok || quota <= 0 || period <= 0 {
			continue
		}
		if n := float64(quota) / float64(period); l.CPUs == 0 || n < l.CPUs {
			l = CPULimit{n, groupName(dir)}
		}
	}
	return l
}

// DefaultThreads is how many threads compute where nobody says: GOMAXPROCS, and no more
// than a control group has whole cores for. Go itself rounds up, and never goes below
// two; threads that wait for each other are then all stopped for a part of each period
// (two threads took 1.2 times as long as one, under quotas of 1 and of 1.5 cores).
func DefaultThreads() int { return threadsUnder(runtime.GOMAXPROCS(0), CPUQuota().CPUs) }

func threadsUnder(procs int, quota float64) int {
	if quota == 0 {
		return procs
	}
	return min(procs, max(1, int(quota)))
}
