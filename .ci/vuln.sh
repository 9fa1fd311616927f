#!/usr/bin/env bash
# No advisory of a dependency may be reachable from our code (govulncheck).
#
# The database is made from the module golang.org/x/vulndb, fetched by the go
# command, so no advisory server is needed. It is pinned: the result of a commit
# does not change by itself. VULNDB=latest looks at today's; the pin is raised in
# a commit of its own. A control module with a known hole proves on every run that
# the check can see.
#
# When the database cannot be fetched, the step says so and fails if CI=true;
# elsewhere, for work without a network, it is skipped.
source "$(dirname "$0")/lib.sh"
need_go

VULNDB=${VULNDB:-v0.0.0-20261105234957-e22db6528018}
GOVULNCHECK=v1.9.0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

unavailable() {
	say "the advisory database is not available: $1"
	[ "${CI:-}" = true ] && die "in CI the check must run"
	skip "advisory check; run it again with a network"
	exit 0
}

if ! json=$(cd "$tmp" && go mod download -json "golang.org/x/vulndb@$VULNDB" 2>"$tmp/err"); then
	unavailable "$(cat "$tmp/err") $json"
fi
src=$(printf '%s\n' "$json" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p')
[ -d "$src/data/osv" ] || unavailable "golang.org/x/vulndb@$VULNDB has no data/osv"
newest=$(cd "$tmp" && GOFLAGS=-mod=mod go list -m -f '{{.Version}}' golang.org/x/vulndb@latest 2>/dev/null || true)
if [ -n "$newest" ] && [ "$newest" != "$VULNDB" ] && [ "$VULNDB" != latest ]; then
	say "note: a newer database exists ($newest); raise VULNDB in .ci/vuln.sh"
fi
GOBIN="$tmp/bin" go install "golang.org/x/vuln/cmd/govulncheck@$GOVULNCHECK" 2>"$tmp/err" ||
	unavailable "$(cat "$tmp/err")"
go build -o "$tmp/vulndb" .ci/vulndb/main.go
"$tmp/vulndb" build "$src" "$tmp/db"
check() { "$tmp/bin/govulncheck" -db "file://$tmp/db" -format json "$@"; }

# The control: a program that calls a function with an advisory.
mkdir "$tmp/control"
cat >"$tmp/control/main.go" <<'GO'
package main

import "github.com/klauspost/compress/fse"

func main() {
	var s fse.Scratch
	out, err := fse.Compress([]byte("control"), &s)
	println(len(out), err)
}
GO
cat >"$tmp/control/go.mod" <<'GO'
module control

go 1.26.0

require github.com/klauspost/compress v1.18.0
GO
(
	cd "$tmp/control"
	export GOFLAGS=-mod=mod
	go mod download github.com/klauspost/compress@v1.18.0
	check ./... | "$tmp/vulndb" expect GO-2026-6865
)

check ./... | "$tmp/vulndb" judge
