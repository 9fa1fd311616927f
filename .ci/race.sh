#!/usr/bin/env bash
# The race detector over the rooms that have goroutines. It is the one check that
# needs cgo and so a C compiler; a missing one is installed where that is possible.
source "$(dirname "$0")/lib.sh"
need_go
if ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then
	say "installing a C compiler for the race detector"
	if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
		apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev
	else
		die "the race detector needs a C compiler; install gcc"
	fi
fi
rooms=()
for r in internal/par store pipeline/... stages/... gpu/host train/... internal/run; do
	if [ -n "$(find "${r%/...}" -name '*_test.go' -print -quit 2>/dev/null)" ]; then
		rooms+=("./$r")
	else
		skip "$r has no tests yet"
	fi
done
[ ${#rooms[@]} -gt 0 ] || exit 0
CGO_ENABLED=1 go test -race -timeout 20m "${rooms[@]}"
