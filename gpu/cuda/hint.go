//go:build cuda && !cudaheaders

package cuda

// A build with the tag cuda alone would end in a message about a missing cuda.h, deep
// in another module. This one is meant to be read.
var _ = run_make_cuda_instead_it_finds_the_headers_and_builds_bin_refrain_cuda
