//go:build !linux

package guard

import "testing"

// Floats returns n zeroed floats in ordinary memory: this system's unreadable
// pages are not used.
func Floats(_ testing.TB, n int) []float32 { return make([]float32, n) }
