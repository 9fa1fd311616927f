package shards

import "syscall"

// limitSelf bounds address space and processor time of this process and forbids
// core files. The race detector maps far more address space than any limit that
// would be useful, so under it only the time is bounded.
func limitSelf(memory, cpuSeconds int64) (bool, error) {
	set := func(resource int, n uint64) error {
		return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: n, Max: n})
	}
	if err := set(syscall.RLIMIT_CORE, 0); err != nil {
		return false, err
	}
	if err := set(syscall.RLIMIT_CPU, uint64(cpuSeconds)); err != nil {
		return false, err
	}
	if raceEnabled {
		return false, nil
	}
	return true, set(syscall.RLIMIT_AS, uint64(memory))
}
