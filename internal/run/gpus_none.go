//go:build !cuda

package run

import (
	"errors"
	"fmt"

	"refrain/gpu"
)

// FindGPUs returns what the CUDA driver shows; this binary has none.
func FindGPUs() GPUs {
	return GPUs{Problem: errNoCUDA}
}

var errNoCUDA = errors.New("this binary was built without CUDA")

func gpuDriver() (gpu.Driver, error) {
	return nil, fmt.Errorf("%w; make cuda builds bin/refrain-cuda, which has it", errNoCUDA)
}
