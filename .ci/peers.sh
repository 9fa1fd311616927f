#!/usr/bin/env bash
# Go tests under bench/peers that need data or modules of others; each is a module
# of its own, so that the product does not depend on them.
source "$(dirname "$0")/lib.sh"
need_go
export GOFLAGS=-mod=mod
n=0
for dir in $(git ls-files --cached --others --exclude-standard 'bench/peers/*go.mod' | xargs -r -n1 dirname); do
	n=$((n + 1))
	say "$dir"
	(cd "$dir" && go vet ./... && go test ./...)
done
[ $n -gt 0 ] || skip "no peer modules yet"
