#!/usr/bin/env bash
# The quick demo, as a newcomer runs it; it must leave a report.
source "$(dirname "$0")/lib.sh"
need_go
if ! grep -qs '"demo' cmd/refrain/*.go; then
	skip "cmd/refrain has no demo yet"
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/refrain" ./cmd/refrain
"$tmp/refrain" demo --quick --out "$tmp/demo"
[ -n "$(find "$tmp/demo" -name report.html -size +1k)" ] || die "the demo left no report.html"
