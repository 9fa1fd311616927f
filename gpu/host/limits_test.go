package host

import (
	"runtime"
	"slices"
	"testing"
	"testing/fstest"
)

func files(m map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range m {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// TestGroups reads made-up control groups of both versions.
func TestGroups(t *testing.T) {
	const c = "sys/fs/cgroup/"
	for name, x := range map[string]struct {
		files map[string]string
		mem   MemoryLimit
		cpu   CPULimit
	}{
		"none":     {map[string]string{}, MemoryLimit{}, CPULimit{}},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/\n", c + "memory.max": "max\n", c + "cpu.max": "max 100000\n"}, MemoryLimit{}, CPULimit{}},
		"a container, which sees its group as the root": {map[string]string{
			"proc/self/cgroup": "0::/\n", c + "memory.max": "1000\n", c + "memory.current": "700\n",
			c + "memory.stat": "anon 300\nfile 400\ninactive_file 250\n", c + "cpu.max": "150000 100000\n",
		}, MemoryLimit{"the control group /", 1000, 550, false}, CPULimit{1.5, "the control group /"}},
		"a container that knows its group's name outside": {map[string]string{
			"proc/self/cgroup": "0::/pods/9/x\n", c + "memory.max": "1000\n", c + "cpu.max": "50000 100000\n",
		}, MemoryLimit{"the control group /", 1000, 1000, false}, CPULimit{0.5, "the control group /"}},
		"the tightest is above": {map[string]string{
			"proc/self/cgroup": "0::/jobs/7\n", c + "jobs/7/memory.max": "max\n", c + "jobs/memory.max": "500\n", c + "jobs/memory.current": "900\n",
			c + "jobs/7/cpu.max": "400000 100000\n", c + "jobs/cpu.max": "300000 100000\n",
		}, MemoryLimit{"the control group /jobs", 500, 0, false}, CPULimit{3, "the control group /jobs"}},
		"version 1": {map[string]string{
			"proc/self/cgroup":     "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n",
			c + "cpu/a/cpu.shares": "1", c + "cpu/a/cpu.cfs_quota_us": "-1\n", c + "cpu/cpu.cfs_quota_us": "250000\n", c + "cpu/cpu.cfs_period_us": "100000\n",
			c + "memory/a/b/memory.limit_in_bytes": "9223372036854771712\n", c + "memory/a/memory.limit_in_bytes": "800\n", c + "memory/a/memory.usage_in_bytes": "100\n",
			c + "memory/a/memory.stat": "cache 90\ntotal_inactive_file 60\n", c + "memory.max": "1\n",
		}, MemoryLimit{"the control group /memory/a", 800, 760, false}, CPULimit{2.5, "the control group /cpu"}},
		"version 1, joint mount": {map[string]string{
			"proc/self/cgroup": "5:cpuacct,cpu:/\n", c + "cpuacct,cpu/cpu.cfs_quota_us": "100000\n", c + "cpuacct,cpu/cpu.cfs_period_us": "200000\n",
		}, MemoryLimit{}, CPULimit{0.5, "the control group /cpuacct,cpu"}},
		"nonsense": {map[string]string{
			"proc/self/cgroup": "garbage\n0::../..\n", c + "memory.max": "many", c + "cpu.max": "1 2 3",
		}, MemoryLimit{}, CPULimit{}},
	} {
		fsys := files(x.files)
		if got, ok := groupMemory(fsys); got != x.mem || ok != (x.mem.Bytes > 0) {
			t.Errorf("%s: memory %+v, want %+v", name, got, x.mem)
		}
		if got := groupCPU(fsys); got != x.cpu {
			t.Errorf("%s: CPU %+v, want %+v", name, got, x.cpu)
		}
	}
}

// TestOwnLimits asks this machine.
func TestOwnLimits(t *testing.T) {
	list := MemoryLimits()
	for _, l := range list {
		if l.What == "" || l.Bytes <= 0 || l.Free < 0 || l.Free > l.Bytes {
			t.Errorf("%+v", l)
		}
	}
	if total := TotalMemory(); total > 0 && !slices.ContainsFunc(list, func(l MemoryLimit) bool { return l.Bytes == total }) {
		t.Errorf("TotalMemory says %d, the limits are %+v", total, list)
	}
}

func TestThreadsUnder(t *testing.T) {
	for _, c := range []struct {
		procs int
		quota float64
		want  int
	}{{8, 0, 8}, {8, 8, 8}, {8, 64, 8}, {8, 2.5, 2}, {2, 1.5, 1}, {2, 1, 1}, {2, 0.1, 1}, {1, 0, 1}, {1, 4, 1}} {
		if got := threadsUnder(c.procs, c.quota); got != c.want {
			t.Errorf("%d processors under a quota of %v: %d threads, want %d", c.procs, c.quota, got, c.want)
		}
	}
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	if n := DefaultThreads(); n != 1 {
		t.Errorf("%d threads under GOMAXPROCS=1", n)
	}
}
