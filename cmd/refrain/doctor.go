package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/kernels/asm"
	"refrain/model"
)

// verdict is how a check came out.
type verdict string

const (
	good   verdict = "ok"
	warned verdict = "warn"
	failed verdict = "fail"
)

// finding is one line of doctor: what was looked at, what was found, and what
// to do about it unless it is good.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Found   string  `json:"found"`
	Do      string  `json:"do,omitempty"`
}

// machine is what doctor measured, for programs.
type machine struct {
	CPU         string    `json:"cpu"`
	OS          string    `json:"os"`
	Arch        string    `json:"arch"`
	Go          string    `json:"go"`
	Code        string    `json:"code"`
	Cores       int       `json:"cores"`
	Threads     int       `json:"threads"`             // that may run at once
	Quota       float64   `json:"cpu_quota,omitempty"` // cores' worth of time that a control group allows
	Kernels     string    `json:"kernels"`
	Missing     string    `json:"kernels_missing,omitempty"` // the better set, and what keeps it from being used
	Peak1       float64   `json:"fma_peak_1_thread_flops"`
	Peak        float64   `json:"fma_peak_flops"`
	PeakBF16    float64   `json:"bf16_peak_flops"`
	Precision   string    `json:"precision"` // what train.precision = auto means here
	CopyBytes   float64   `json:"copy_bytes_per_second,omitempty"`
	Memory      int64     `json:"memory_bytes,omitempty"`
	Available   int64     `json:"memory_available_bytes,omitempty"`
	HugePages   string    `json:"huge_pages,omitempty"`
	Memlock     string    `json:"memlock,omitempty"`
	Load        float64   `json:"load,omitempty"` // runnable tasks, mean of a minute
	DiskDir     string    `json:"disk_dir"`
	DiskFree    int64     `json:"disk_free_bytes,omitempty"`
	DiskWrite   float64   `json:"disk_write_bytes_per_second,omitempty"` // with fsync
	DiskSyncSec float64   `json:"disk_fsync_seconds,omitempty"`          // of one block of 4 KiB
	CUDA        int       `json:"cuda_driver,omitempty"`                 // newest version that it supports
	GPUs        []run.GPU `json:"gpus,omitempty"`
	Findings    []finding `json:"findings"`
}

func (m *machine) find(check string, v verdict, do, format string, list ...any) {
	if v == good {
		do = ""
	}
	m.Findings = append(m.Findings, finding{check, v, fmt.Sprintf(format, list...), do})
}

// worse is warned or failed when the condition holds, else good.
func worse(cond bool, v verdict) verdict {
	if cond {
		return v
	}
	return good
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, quick bool
	var dir string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at this machine: what it can do, what stands in the way",
		Long: `Doctor measures processor, memory and disk for about two seconds (--quick: half a
second) and says of each whether it is fit for training and what to do if not.
The exit code is 1 when a check failed. Nothing is changed; a file of up to 128 MB
is written to --dir and removed.`,
		Example: `  refrain doctor
  refrain doctor --dir /data --json`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			m := examine(dir, quick)
			bad := 0
			for _, f := range m.Findings {
				if f.Verdict == failed {
					bad++
				}
			}
			if asJSON {
				if err := a.json(m); err != nil {
					return err
				}
			} else {
				a.printFindings(m)
			}
			if bad > 0 {
				return &run.Error{Code: run.ExitFailed, Err: fmt.Errorf("%d check(s) failed", bad)}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&quick, "quick", false, "measure less, in half a second")
	c.Flags().StringVar(&dir, "dir", ".", "folder whose disk is measured")
	return c
}

func (a *app) printFindings(m *machine) {
	color := map[verdict]string{good: "32", warned: "33", failed: "31"}
	for _, f := range m.Findings {
		a.printf("%s  %-11s %s", a.paint(color[f.Verdict], fmt.Sprintf("%-4s", f.Verdict)), f.Check, f.Found)
		if f.Do != "" {
			a.printf("\n      -> %s", f.Do)
		}
		a.printf("\n")
	}
}

// examine measures everything.
func examine(dir string, quick bool) *machine {
	m := &machine{
		CPU: run.CPUName(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), Code: run.CodeVersion(),
		Cores: runtime.NumCPU(), Threads: host.DefaultThreads(), Kernels: asm.Kernels(), DiskDir: dir,
	}
	m.find("program", good, "", "%s, %s, %s/%s", m.Code, m.Go, m.OS, m.Arch)
	m.find("processor", good, "", "%s, %d cores, %d threads at once%s", m.CPU, m.Cores, m.Threads, features())
	m.quota(host.CPUQuota())
	m.kernels(asm.Missing())
	m.compute(quick)
	m.memory()
	if !quick {
		m.CopyBytes = copySpeed()
		m.find("memory copy", worse(m.CopyBytes < 2e9, warned), "other programs use the memory; stop them", "%.1f GB/s on one thread", m.CopyBytes/1e9)
	}
	m.disk(quick)
	m.gpus(run.FindGPUs())
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err != nil {
		m.find("demo corpus", warned, "put the go command on the path, or give the demo --corpus DIR", "no go command")
	} else {
		m.find("demo corpus", good, "", "%s", filepath.Join(strings.TrimSpace(string(out)), "src"))
	}
	return m
}

// quota says what a control group takes away; see host.DefaultThreads.
func (m *machine) quota(l host.CPULimit) {
	if l.CPUs == 0 || l.CPUs >= float64(m.Cores) {
		return
	}
	m.Quota = l.CPUs
	m.find("cpu quota", worse(l.CPUs < 1, warned), "the threads stand still for a part of each period; raise the quota to a core at least",
		"%s allows %.3g of %d cores", l.Where, l.CPUs, m.Cores)
}

// gpus says what the CUDA driver shows. A machine without a GPU is as good as any: the
// CPU is the default.
func (m *machine) gpus(g run.GPUs) {
	m.CUDA, m.GPUs = g.Version, g.List
	for i, d := range g.List {
		m.find("gpu", good, "", "%d: %s, %s (kernels: %s), %.0f GiB, %s; CUDA %d.%d", i, d.Name, d.Arch, d.Image, float64(d.Bytes)/(1<<30), d.PCI, g.Version/1000, g.Version%1000/10)
	}
	switch {
	case !g.Built:
		m.find("gpu", good, "", "none is used: %v (make cuda)", g.Problem)
	case errors.Is(g.Problem, gpu.ErrNoDriver):
		m.find("gpu", good, "", "%v; CPU only", g.Problem)
	case g.Problem != nil:
		m.find("gpu", warned, "mend the driver, or train on the CPU", "%v", g.Problem)
	}
}

// kernels says which set is in use, and what keeps a better one from being used.
func (m *machine) kernels(l asm.Lack) {
	why := ""
	if l.Reason != "" {
		m.Missing = l.Set + ": " + l.Reason
		why = "; not " + m.Missing
	}
	do := "plain Go is several times slower; use an amd64 processor with AVX2 and FMA, and build without the tag purego"
	if l.Mendable {
		do = "allow it: in the hypervisor's processor model, the kernel's command line (noxsave, clearcpuid), GODEBUG, or the tags of the build"
	}
	m.find("kernels", worse(m.Kernels == "purego" || l.Mendable, warned), do, "%s%s", m.Kernels, why)
}

// features words the instruction sets that the kernels look for.
func features() string {
	var list []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"AVX2", cpu.X86.HasAVX2}, {"FMA", cpu.X86.HasFMA}, {"AVX-512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW},
		{"AVX512_BF16", cpu.X86.HasAVX512BF16}, {"NEON", cpu.ARM64.HasASIMD},
	} {
		if f.has {
			list = append(list, f.name)
		}
	}
	if list == nil {
		return ""
	}
	return ", " + strings.Join(list, " ")
}

// compute measures multiply-adds, the ceiling of every matrix product.
func (m *machine) compute(quick bool) {
	m.Peak1 = run.MeasurePeak(1, model.Policy{})
	m.Peak = m.Peak1
	if m.Threads > 1 {
		m.Peak = run.MeasurePeak(m.Threads, model.Policy{})
	}
	if !quick { // the best of three: other programs come and go
		for range 2 {
			m.Peak1, m.Peak = max(m.Peak1, run.MeasurePeak(1, model.Policy{})), max(m.Peak, run.MeasurePeak(m.Threads, model.Policy{}))
		}
	}
	scale := m.Peak / (m.Peak1 * float64(m.Threads))
	m.find("FMA peak", worse(scale < 0.6, warned),
		"the threads share cores with each other or with other programs; stop those, or set train.threads to the number of real cores",
		"%.0f GFLOP/s on one thread, %.0f on %d (%.0f %% of ideal)", m.Peak1/1e9, m.Peak/1e9, m.Threads, 100*scale)
	m.PeakBF16, m.Precision = run.MeasurePeak(m.Threads, model.Policy{Act: gpu.BF16}), model.AutoPolicy().String()
	m.find("precision", good, "", "%s where train.precision is auto; products of bf16 have a peak of %.0f GFLOP/s on %d threads", m.Precision, m.PeakBF16/1e9, m.Threads)
	if load, ok := loadAverage(); ok {
		m.Load = load
		m.find("load", worse(load > 0.5*float64(m.Cores), warned), "other programs are running: speeds measured now mean little", "%.1f runnable tasks on %d cores", load, m.Cores)
	}
}

// memory looks at what can be allocated.
func (m *machine) memory() {
	m.memoryLimits(host.MemoryLimits())
	if mode, ok := hugePages(); ok {
		m.HugePages = mode
		m.find("huge pages", worse(mode == "never", warned), "steps are 5 to 15 % slower without; as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", "%s", mode)
	}
	if limit, ok := memlock(); ok {
		m.Memlock = limit
		m.find("memlock", good, "", "%s (pinned memory; matters for GPUs only)", limit)
	}
}

// memoryLimits names all bounds on memory, and judges the tightest.
func (m *machine) memoryLimits(limits []host.MemoryLimit) {
	if len(limits) == 0 {
		m.find("memory", good, "", "not measured on %s", runtime.GOOS)
		return
	}
	m.Memory, m.Available = limits[0].Bytes, limits[0].Free
	var parts []string
	for _, l := range limits {
		m.Memory, m.Available = min(m.Memory, l.Bytes), min(m.Available, l.Free)
		parts = append(parts, fmt.Sprintf("%s has %s, %s available", l.What, bytesText(l.Bytes), bytesText(l.Free)))
	}
	v := worse(m.Available < 4<<30, warned)
	if m.Available < 512<<20 {
		v = failed
	}
	m.find("memory", v, "refrain plan prints what a run needs; close other programs, raise the limit, or choose a smaller model", "%s", strings.Join(parts, "; "))
}

// copySpeed is the speed of copying 64 MiB, the best of some, in bytes read a
// second.
func copySpeed() float64 {
	src, dst := make([]byte, 64<<20), make([]byte, 64<<20)
	best := 0.0
	for range 4 {
		t0 := time.Now()
		copy(dst, src)
		best = max(best, float64(len(src))/time.Since(t0).Seconds())
	}
	return best
}

// disk writes, syncs and locks in the folder where runs would go.
func (m *machine) disk(quick bool) {
	if n, ok := freeBytes(m.DiskDir); ok {
		m.DiskFree = n
		v := worse(n < 4<<30, warned)
		if n < 256<<20 {
			v = failed
		}
		m.find("disk space", v, "checkpoints take 12 bytes a parameter each; free some space or use another --out", "%s free in %s", bytesText(n), m.DiskDir)
	}
	err := m.writeSpeed(quick)
	if err != nil {
		m.find("disk", failed, "use a folder on a local disk that you may write to", "%v", err)
		return
	}
	v := worse(m.DiskWrite < 50e6 || m.DiskSyncSec > 0.2, warned)
	m.find("disk", v, "saving will be slow (training goes on meanwhile); use a local disk for --out",
		"%.0f MB/s written and synced, %.1f ms to sync one block, locks work", m.DiskWrite/1e6, 1e3*m.DiskSyncSec)
}

func (m *machine) writeSpeed(quick bool) (err error) {
	fs := fsx.OS{}
	dir, err := os.MkdirTemp(m.DiskDir, ".refrain-doctor-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lock, err := fs.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	_, second := fs.Lock(filepath.Join(dir, "lock"))
	if err := lock.Close(); err != nil {
		return err
	}
	if second == nil {
		return fmt.Errorf("file locks have no effect in %s: two processes could write one run folder", m.DiskDir)
	}
	block := make([]byte, 4<<20)
	for i := range block { // not zeros: some file systems do not write those
		block[i] = byte(i * 2654435761 >> 13)
	}
	f, err := fs.OpenFile(filepath.Join(dir, "data"), os.O_WRONLY|os.O_CREATE, fsx.FilePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n := 32
	if quick {
		n = 4
	}
	t0 := time.Now()
	for range n {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	m.DiskWrite = float64(n*len(block)) / time.Since(t0).Seconds()
	const syncs = 5
	t0 = time.Now()
	for range syncs {
		if _, err := io.Copy(f, &io.LimitedReader{R: zeros{}, N: 4096}); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	m.DiskSyncSec = time.Since(t0).Seconds() / syncs
	return nil
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
