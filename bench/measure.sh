#!/bin/sh
# Measures what docs/performance.md speaks of, in one session, and writes
# bench/results/DATE-CPUS.txt in the Go benchmark format with the machine, the
# versions and the CPU pressure before each part. Refuses under CPU pressure, since
# what others do on the machine would be measured too; --force goes on and the
# record says so. Takes about 30 minutes on two cores.
#
#	sh bench/measure.sh [--force] [PART...]
#
# With parts (step, gemm, tokenizer, loader, ingest) it measures only those, and their
# names are in the name of the record.
set -eu
cd "$(dirname "$0")/.."
force=no
if [ "${1:-}" = --force ]; then
	force=yes
	shift
fi
for part in "$@"; do
	case $part in
	step | gemm | tokenizer | loader | ingest) ;;
	*)
		echo "measure.sh: no part $part; there are step, gemm, tokenizer, loader and ingest" >&2
		exit 2
		;;
	esac
done
only=$*
wanted() { # says whether a part is measured, and waits for a calm machine
	case " ${only:-$1} " in
	*" $1 "*) calm "$1" ;;
	*) return 1 ;;
	esac
}
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
out=bench/results/$(date +%Y-%m-%d)-$(nproc)cpu$(printf '%s' "${only:+ $only}" | tr ' ' -).txt
{
	echo "# commit $(git rev-parse --short HEAD), $(go version), forced: $force"
	sed 's/^/# peer /' bench/peers/.env/versions.txt | grep -Ei 'torch==|numpy|tiktoken|gigatoken|tokenizers|threadpoolctl'
	if wanted step; then
		for m in 1M 3M 11M; do "$bin/refrain" bench step --preset micro-$m --count 9 --compare peers; done
	fi
	if wanted gemm; then
		"$bin/refrain" bench gemm --count 8 --compare peers
	fi
	if wanted tokenizer; then
		"$bin/refrain" bench tokenizer --count 5 --compare peers --peer tokenizers --bytes 8000000
	fi
	if wanted loader; then
		"$bin/refrain" bench loader --count 15 --tiers T0
		"$bin/refrain" bench loader --count 15 --tiers T0 --seq 4096
		"$bin/refrain" bench loader --count 5 --compare peers --tiers T1,T2,T4
	fi
	if wanted ingest; then
		src=$(go env GOROOT)/src
		"$bin/refrain" tokenizer train "$src" --vocab 32768 -o "$bin/tokenizer.json" -q
		"$bin/refrain" bench ingest "$src" --tokenizer "$bin/tokenizer.json" --count 31
	fi
	calm end
} >"$out.part"
mv "$out.part" "$out"
echo "wrote $out"
