//go:build !linux

package asm

import "testing"

// guarded returns plain memory: without mmap only the words in front are guarded.
func guarded(_ testing.TB, n int) []float32 { return make([]float32, n) }
