//go:build !linux

package bench

import "time"

// threadTime falls back to the wall clock where thread times are not at hand.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// processTime falls back to the wall clock likewise.
func processTime() time.Duration { return threadTime() }
