//go:build !cuda

package run

import "errors"

// FindGPUs returns what the CUDA driver shows; this binary has none.
func FindGPUs() GPUs {
	return GPUs{Problem: errors.New("this binary was built without CUDA")}
}
