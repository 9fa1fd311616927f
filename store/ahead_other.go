//go:build !linux

package store

// Advice about mapped files is given on Linux only.

const canAhead = false

func (m *mapping) willNeed(at, n uint64) {}
func (m *mapping) atRandom()             {}
