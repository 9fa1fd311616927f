//go:build !amd64 || purego

package asm

import "runtime"

// Missing says what keeps this process from a better set of kernels; see Lack.
func Missing() Lack {
	switch {
	case vector:
		return Lack{}
	case runtime.GOARCH == "amd64":
		return Lack{"avx2", "the program was built with the tag purego", true}
	case runtime.GOARCH == "arm64":
		return Lack{"neon", "the program was built with the tag purego", true}
	}
	return Lack{"neon", "there is no assembly for " + runtime.GOARCH, false}
}
