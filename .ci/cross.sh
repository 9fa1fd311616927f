#!/usr/bin/env bash
# The program must build, and its tests must compile, for the other systems.
source "$(dirname "$0")/lib.sh"
need_go
export CGO_ENABLED=0
for target in linux/arm64 darwin/arm64 windows/amd64; do
	say "$target"
	GOOS=${target%/*} GOARCH=${target#*/} go build ./...
	GOOS=${target%/*} GOARCH=${target#*/} go vet ./...
done
