#!/usr/bin/env bash
# The NEON kernels, and what else differs on arm64, on an emulated processor. On an
# arm64 machine the step "test" covers them.
source "$(dirname "$0")/lib.sh"
need_go
if [ "$(go env GOHOSTARCH)" = arm64 ]; then
	skip "this is an arm64 machine, where the tests run on it"
	exit 0
fi
if ! command -v qemu-aarch64 >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	say "installing qemu-user and the GNU assembler for arm64"
	apt-get install -y -q qemu-user binutils-aarch64-linux-gnu >/dev/null 2>&1 ||
		{ apt-get update -q && apt-get install -y -q qemu-user binutils-aarch64-linux-gnu; } >/dev/null 2>&1 || true
fi
if ! command -v qemu-aarch64 >/dev/null; then
	skip "qemu-aarch64 is not installed and could not be (on Debian: apt-get install qemu-user), so NEON is not tested"
	exit 0
fi
command -v aarch64-linux-gnu-as >/dev/null || say "aarch64-linux-gnu-as is absent (on Debian: apt-get install binutils-aarch64-linux-gnu): encodings are not compared"
go test -run TestNeon ./kernels/asm
GOARCH=arm64 go test -exec qemu-aarch64 ./kernels/asm
# Emulation takes ten to fifty times as long.
GOARCH=arm64 go test -short -timeout 20m -exec qemu-aarch64 ./kernels/gemm ./kernels ./tokenize ./store
