//go:build cuda && cudaheaders

package cuda

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Simulate makes the simulated driver (gpu/cuda/sim) as if it had just been started
// with these settings, such as "devices=4 mode=lazy"; sim.hpp lists them. No device is
// open meanwhile. It fails when REFRAIN_CUDA_DRIVER did not name the simulator.
func Simulate(settings string) error {
	s := C.CString(settings)
	defer C.free(unsafe.Pointer(s))
	switch code := int(C.refrain_cuda_simulate(s)); code {
	case 0:
		return nil
	case -1:
		return fmt.Errorf("cuda: no simulated driver is open; run make test-cuda, or set REFRAIN_CUDA_DRIVER to bin/libcuda-sim.so")
	default:
		return fmt.Errorf("cuda: the simulated driver refuses %q", settings)
	}
}
