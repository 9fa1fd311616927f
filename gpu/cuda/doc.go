// Package cuda is the CUDA driver of package gpu, through gorgonia.org/cu and the few
// driver calls that cu lacks. It is built by make cuda (tags cuda and cudaheaders): cu
// needs a header, which the Makefile finds or installs. Without the tags the package
// is empty and nothing needs cgo.
//
// The binary does not link against the driver. cu's calls go to trampolines, which
// jump to libcuda.so.1 when that can be opened and return "not initialized" when not:
// the same binary trains on the CPU of a machine without a GPU, and on the simulated
// driver of gpu/cuda/sim when REFRAIN_CUDA_DRIVER names it.
package cuda

//go:generate go run ./_gen
