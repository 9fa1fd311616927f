#!/bin/sh
# Measures everything docs/performance.md speaks of, in one session, and writes
# bench/results/DATE-HOST-CPUS.txt in the Go benchmark format with the machine, the
# versions and the CPU pressure before each part. Refuses under CPU pressure, since
# what others do on the machine would be measured too; --force goes on and the
# record says so. Takes about 25 minutes on two cores.
set -eu
cd "$(dirname "$0")/.."
force=no
[ "${1:-}" != --force ] || force=yes
pressure() { sed -n 's/^some avg10=\([0-9.]*\).*/\1/p' /proc/pressure/cpu 2>/dev/null || true; }
calm() {
	sleep 12 # what we ran ourselves is forgotten by then
	p=$(pressure)
	echo "# cpu pressure before $1: ${p:-unknown} %"
	if [ -n "$p" ] && [ "$(printf '%.0f' "$p")" -gt 5 ] && [ $force = no ]; then
		echo "measure.sh: CPU pressure is $p % (some avg10): others are using this machine; wait, or add --force" >&2
		exit 1
	fi
}
[ -x bench/peers/.env/bin/python ] || {
	echo "measure.sh: no pinned peers; run: sh bench/peers/install.sh" >&2
	exit 1
}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/refrain" ./cmd/refrain
mkdir -p bench/results
out=bench/results/$(date +%Y-%m-%d)-$(nproc)cpu.txt
{
	echo "# commit $(git rev-parse --short HEAD), $(go version), forced: $force"
	sed 's/^/# peer /' bench/peers/.env/versions.txt | grep -Ei 'torch==|numpy|tiktoken|gigatoken|tokenizers|threadpoolctl'
	calm step
	for m in 1M 3M 11M; do "$bin/refrain" bench step --preset micro-$m --count 9 --compare peers; done
	calm gemm
	"$bin/refrain" bench gemm --count 8 --compare peers
	calm tokenizer
	"$bin/refrain" bench tokenizer --count 5 --compare peers --peer tokenizers --bytes 8000000
	calm loader
	"$bin/refrain" bench loader --count 9 --compare peers
	"$bin/refrain" bench loader --count 9 --seq 4096
	calm end
} >"$out.part"
mv "$out.part" "$out"
echo "wrote $out"
