#!/usr/bin/env bash
# The CUDA driver without a GPU: its binary builds and starts where there is no driver,
# and its tests pass on the simulated one. Needs g++, and python3 where there is no
# cuda.h: NVIDIA's headers (2 MB) come from PyPI then.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in make g++ python3; do
	command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 0; }
done
(cd gpu/cuda && go run ./_gen -check)
make test-cuda kernels-check
make cuda
if ldd bin/refrain-cuda | grep -iE 'libcuda|libnv|libcublas|libnccl'; then
	echo "the binary is linked against NVIDIA's libraries"
	exit 1
fi
bin/refrain-cuda doctor --quick | grep "gpu .*CPU only"
REFRAIN_CUDA_DRIVER=$PWD/bin/libcuda-sim.so bin/refrain-cuda doctor --quick | grep "gpu .*Simulated GPU"
if go build -tags cuda ./gpu/cuda 2>hint.tmp; then
	echo "a build with the tag alone passes, which it should not"
	exit 1
fi
grep -q run_make_cuda_instead hint.tmp || { cat hint.tmp; exit 1; }
rm -f hint.tmp
