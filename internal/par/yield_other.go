//go:build !linux

package par

// osYield does nothing: Gosched has to do.
func osYield() {}
