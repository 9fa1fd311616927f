// The header that gorgonia.org/cu finds when it includes cuda.h: the toolkit's own,
// with the calls that CUDA 13.0 renamed called by the names under which every driver
// still exports them. Its folder comes before the toolkit's in CGO_CFLAGS (make cuda).
#ifndef REFRAIN_STUB_CUDA_H
#define REFRAIN_STUB_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION >= 13000

#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuDeviceGetUuid
#undef cuEventElapsedTime

#define cuCtxCreate cuCtxCreate_v2

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr at, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr at, size_t bytes, CUdevice to, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n);
CUresult CUDAAPI cuDeviceGetUuid(CUuuid *id, CUdevice device);
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end);

#endif

#endif
