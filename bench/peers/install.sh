#!/bin/sh
# Makes the environments of the pinned peers, apart from everything else here;
# nothing in them enters our build.
#
#	sh bench/peers/install.sh [NAME...]
#
# Without a name it makes the base, .env, which is enough for bench step, gemm,
# tokenizer and the loaders numpy and torch. Others lie above the base, so that
# PyTorch is on the disk once:
#
#	loaders   Hugging Face datasets, Grain, litdata, webdataset, datatrove
#	mosaic    MosaicML Streaming, whose dependencies conflict with the above
#	megatron  Megatron-core's dataset
#	olmo      OLMo-core's dataset
#	llmc      llm.c's loader, compiled from the copy of llm.c in LLMC (a folder
#	          that holds llmc/dataloader.h); it is not fetched and not kept here
#	all       all of these; llmc only when LLMC names a folder
#
# requirements*.txt name the peers, lock-*.txt pin all that they depend on.
# What does not install is named at the end and leaves the others alone. Needs
# python3 with venv, g++ for torch.compile, and cc for llmc; jemalloc is used
# when Debian's libjemalloc2 is installed.
set -eu
cd "$(dirname "$0")"
pip() { "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2" -c "$3"; }
base() {
	[ -x .env/bin/python ] || python3 -m venv .env
	pip .env requirements.txt lock-base.txt || return 1
	lib=$(ls /usr/lib/*/libjemalloc.so.2 2>/dev/null | head -n 1 || true)
	if [ -n "$lib" ]; then
		printf %s "$lib" >.env/jemalloc
	else
		rm -f .env/jemalloc
		echo "install.sh: no libjemalloc2 (Debian: apt-get install libjemalloc2); peers run on the C library's allocator" >&2
	fi
	.env/bin/python -m pip freeze >.env/versions.txt
}
above() { # an environment over the base
	env=.env/$1
	[ -x .env/bin/python ] || base || return 1
	[ -x "$env/bin/python" ] || python3 -m venv "$env"
	site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	.env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/base.pth"
	pip "$env" "requirements-$1.txt" "lock-$1.txt" || {
		rm -rf "$env" # so that its peers say that they are not installed
		return 1
	}
	"$env/bin/python" -m pip freeze >"$env/versions.txt"
}
llmc() {
	if [ ! -f "${LLMC:-}/llmc/dataloader.h" ]; then
		echo "install.sh: llmc is skipped: set LLMC to a folder with a copy of llm.c (it holds llmc/dataloader.h)" >&2
		return 1
	fi
	mkdir -p .env/llmc
	cc -O3 -march=native -w -I "$LLMC" -o .env/llmc/loader llmc_loader.c -lm || return 1
	{ git -C "$LLMC" rev-parse HEAD 2>/dev/null || sha256sum <"$LLMC/llmc/dataloader.h"; } >.env/llmc/versions.txt
}
[ $# -gt 0 ] || set -- base
if [ "$*" = all ]; then
	set -- base loaders mosaic megatron olmo
	[ -z "${LLMC:-}" ] || set -- "$@" llmc
fi
failed=
for name in "$@"; do
	case $name in
	base | llmc) "$name" || failed="$failed $name" ;;
	loaders | mosaic | megatron | olmo) above "$name" || failed="$failed $name" ;;
	*)
		echo "install.sh: no environment $name; there are base, loaders, mosaic, megatron, olmo, llmc and all" >&2
		exit 2
		;;
	esac
done
if [ -n "$failed" ]; then
	echo "install.sh: not installed:$failed" >&2
	exit 1
fi
echo "peers installed in bench/peers: $*"
