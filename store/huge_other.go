//go:build unix && !linux

package store

// adviseHuge does nothing: huge pages by advice are a matter of Linux.
func adviseHuge([]byte) {}
