#!/usr/bin/env bash
# The NEON kernels, and what else differs on arm64, on an emulated processor. On an
# arm64 machine the step "test" covers them.
source "$(dirname "$0")/lib.sh"
need_go

# Go may fuse x*y+z into one rounding on arm64, where float32(x*y)+z would forbid it.
# What decides about the values of a run must not be fused, or they would differ from
# those of amd64. References (functions of *Ref and what they call), estimates of cost
# and products by powers of two are allowed.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
GOARCH=arm64 GOOS=linux go build -o "$tmp/refrain" ./cmd/refrain
go tool objdump -s '^refrain/(kernels|train|gpu|model|pipeline|stages|store|internal/num)' "$tmp/refrain" >"$tmp/code"
fused=$(awk '/^TEXT/ {name = $2} /\tFN?M(ADD|SUB)[SD] / {print name, $1}' "$tmp/code" |
	grep -vE 'Ref\[|kernels\.(crossEntropy|softmaxScores|rotateRow)\[|kernels\.init\.func|num\.Stream\.Truncated' | sort -u) || true
[ -z "$fused" ] || die "fused on arm64; round the product with a conversion: $fused"
grep -q 'FMADD[SD] ' "$tmp/code" || die "no fused operation found at all, not even in the references; did the disassembly change?"
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
# Emulation takes ten to fifty times as long. It does not pass advice about memory on,
# and says no address with a bus fault.
GOARCH=arm64 go test -short -timeout 20m -exec qemu-aarch64 -skip '^(TestReadAhead|TestTruncatedWhileMapped)$' ./kernels/gemm ./tokenize ./store ./stages/batch
