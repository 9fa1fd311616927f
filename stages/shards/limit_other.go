//go:build !linux

package shards

// limitSelf cannot bound this process here. The report of the source says so.
func limitSelf(memory, cpuSeconds int64) (bool, error) { return false, nil }
