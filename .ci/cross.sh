#!/usr/bin/env bash
# The program must build, and its tests must compile, for the other systems.
source "$(dirname "$0")/lib.sh"
need_go
export CGO_ENABLED=0
bad=()
for target in linux/arm64 darwin/arm64 windows/amd64; do
	say "$target"
	if ! GOOS=${target%/*} GOARCH=${target#*/} go build ./... || ! GOOS=${target%/*} GOARCH=${target#*/} go vet ./...; then
		bad+=("$target")
	fi
done
[ ${#bad[@]} -eq 0 ] || die "does not build for ${bad[*]}; what a system lacks belongs in a _linux.go file with a message elsewhere"
