package run

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"refrain/gpu/host"
)

// CPUName is the processor's name, or its architecture where the system does
// not tell.
func CPUName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// numThreads is the number of threads that compute where nobody says.
func numThreads() int { return host.DefaultThreads() }
