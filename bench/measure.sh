#!/bin/sh
# Measures what docs/performance.md speaks of, in one session: each command writes a
# dated JSON record to bench/results, and the table in the page is brought up to
# date. A command refuses under CPU pressure, since what others do on the machine
# would be measured too; --force goes on and the records say so. Takes about an
# hour on two cores.
#
#	sh bench/measure.sh [--force] [PART...]
#
# With parts (step, gemm, kernels, precision, tokenizer, loader, ingest, plan, ckpt) it measures only those.
set -eu
cd "$(dirname "$0")/.."
force=
if [ "${1:-}" = --force ]; then
	force=--force
	shift
fi
for part in "$@"; do
	case $part in
	step | gemm | kernels | precision | tokenizer | loader | ingest | plan | ckpt) ;;
	*)
		echo "measure.sh: no part $part; there are step, gemm, kernels, precision, tokenizer, loader, ingest, plan and ckpt" >&2
		exit 2
		;;
	esac
done
only=$*
[ -x bench/peers/.env/bin/python ] || {
	echo "measure.sh: no pinned peers; run: sh bench/peers/install.sh all" >&2
	exit 1
}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -buildvcs=auto -o "$bin/refrain" ./cmd/refrain
mkdir -p bench/results
measure() { # runs a scenario if it is wanted, on a machine that has forgotten what ran before
	case " ${only:-$1} " in
	*" $1 "*) ;;
	*) return 0 ;;
	esac
	sleep 12
	"$bin/refrain" bench "$@" --record bench/results $force
}
for p in f32 bf16; do
	for m in 1M 3M 11M; do
		measure step --preset micro-$m --precision $p --count 9 --compare peers
		measure step --scale threads --preset micro-$m --precision $p --count 7
	done
	measure step --scale size --precision $p --count 7
	measure gemm --precision $p --count 8 --compare peers
done
for m in 1M 3M 11M; do measure step --scale devices --preset micro-$m --count 7; done
measure kernels
measure precision --count 8
measure tokenizer --count 5 --compare peers --peer gigatoken --corpus "$(go env GOROOT)" --corpus "$(go env GOMODCACHE)" --bytes 250000000
measure tokenizer --count 3 --compare peers --peer tiktoken,tokenizers --bytes 16000000
measure loader --tiers T0 --count 15
measure loader --tiers T0 --count 15 --seq 4096
measure loader --tiers T1,T2,T4 --count 7 --compare peers
case " ${only:-ingest} " in
*" ingest "*)
	src=$(go env GOROOT)/src
	"$bin/refrain" tokenizer train "$src" --vocab 32768 -o "$bin/tokenizer.json" -q
	measure ingest "$src" --tokenizer "$bin/tokenizer.json" --count 31
	measure ingest "$src" --tokenizer "$bin/tokenizer.json" --count 5 --compare peers
	;;
esac
measure plan
measure ckpt
"$bin/refrain" bench table --write docs/performance.md
