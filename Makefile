# Everything here is a short name for a command that works by itself; the checks
# live in .ci and need nothing but Go.
.PHONY: build test race lint bench gen gen-check fuzz check ci clean cuda cuda-headers cuda-toolchain kernels kernels-check sim test-cuda

build: ## bin/refrain
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/refrain

test: ## the whole suite
	@bash .ci/test.sh

race: ## the race detector over the concurrent rooms
	@bash .ci/race.sh

lint: ## gofmt, vet, module sums
	@bash .ci/lint.sh

bench: ## micro benchmarks beside the code, six counts, for benchstat
	go test -run '^$$' -bench . -count 6 ./...

gen: ## rewrite generated code
	go generate ./...

gen-check: ## generated code is fresh
	@bash .ci/gen.sh

fuzz: ## every fuzz target, FUZZTIME=30s each
	@bash .ci/fuzz.sh

check: ## what to run before a commit
	@STEPS="lint gen purego test" bash .ci/run

ci: ## all that must hold before a change lands
	@bash .ci/run

# The CUDA build. cu needs a cuda.h: the first that is found, or NVIDIA's own package
# of headers (2 MB), which is installed into the ignored folder .cuda.
CUDA_DIR := $(CURDIR)/.cuda
CUDA_HEADERS = $(firstword $(patsubst %/cuda.h,%,$(wildcard $(addsuffix /cuda.h,$(if $(CUDA_HOME),$(CUDA_HOME)/include) \
	/usr/local/cuda/include /opt/cuda/include /usr/include $(CUDA_DIR)/nvidia/cu13/include))))
CUDA_GO = CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -I$(CURDIR)/gpu/cuda/stub/include -I$(CUDA_HEADERS)" go
CUDA_TAGS := -tags cuda,cudaheaders

cuda: cuda-headers ## bin/refrain-cuda
	$(CUDA_GO) build -trimpath $(CUDA_TAGS) -o bin/refrain-cuda ./cmd/refrain

cuda-headers:
	@[ -n "$(CUDA_HEADERS)" ] || { echo "no cuda.h here: installing NVIDIA's headers into .cuda"; \
		python3 -m pip install --quiet --disable-pip-version-check --no-deps --target $(CUDA_DIR) nvidia-cuda-runtime==13.0.96; }

# NVIDIA's compiler (270 MB), for who changes a kernel: the images are committed.
cuda-toolchain:
	python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(CUDA_DIR) nvidia-cuda-runtime==13.0.96 \
		nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85

NVCC := $(CUDA_DIR)/nvidia/cu13/bin/nvcc

kernels: ## compile the kernels for real GPUs: kernels/ptx
	@[ -x $(NVCC) ] || $(MAKE) cuda-toolchain
	cd kernels && go run ./_images -nvcc $(NVCC)

kernels-check: ## the images are what the sources give, and nothing spills
	@[ -x $(NVCC) ] || $(MAKE) cuda-toolchain
	cd kernels && go run ./_images -nvcc $(NVCC) -check

# The simulated driver and the kernels, both compiled by g++.
SIM_CXX := g++ -std=c++20 -O2 -g -fPIC -shared -fvisibility=hidden -ffp-contract=off -Wall -Wextra
SIM_HEADERS := $(wildcard gpu/cuda/sim/*.hpp kernels/*.cuh)

sim: bin/libcuda-sim.so bin/kernels-sim.so ## the simulated driver and its kernels

bin/libcuda-sim.so: $(filter-out gpu/cuda/sim/emu.cpp,$(wildcard gpu/cuda/sim/*.cpp)) $(SIM_HEADERS)
	@mkdir -p bin
	$(SIM_CXX) -o $@ $(filter %.cpp,$^) -ldl -lpthread

bin/kernels-sim.so: gpu/cuda/sim/emu.cpp $(filter-out kernels/all.cu,$(wildcard kernels/*.cu)) $(SIM_HEADERS)
	@mkdir -p bin
	$(SIM_CXX) -x c++ -DREFRAIN_EMU -o $@ $(filter %.cpp %.cu,$^)

test-cuda: cuda-headers sim ## the CUDA driver on the simulated GPUs
	REFRAIN_CUDA_DRIVER=$(CURDIR)/bin/libcuda-sim.so $(CUDA_GO) test -count=1 $(CUDA_TAGS) ./gpu/cuda && REFRAIN_CUDA_DRIVER=$(CURDIR)/bin/libcuda-sim.so $(CUDA_GO) test -count=1 $(CUDA_TAGS) -run 'CUDA|Chosen' ./kernels ./kernels/ptx ./internal/run

clean:
	rm -rf bin
