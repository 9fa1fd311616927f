#!/usr/bin/env bash
# Every fuzz target for FUZZTIME (30 s). Targets are found by name, so a new one
# needs no entry here. What crashes is kept in testdata/fuzz of its package: commit
# it together with the fix.
source "$(dirname "$0")/lib.sh"
need_go
FUZZTIME=${FUZZTIME:-30s}
n=0
while IFS=: read -r file line; do
	name=$(printf '%s\n' "$line" | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p')
	pkg=./$(dirname "$file")
	say "$pkg $name"
	go test "$pkg" -run '^$' -fuzz "^$name\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 5s -timeout 20m | grep -v '^fuzz: elapsed' || {
		find "$pkg/testdata/fuzz/$name" -newer go.mod -type f -exec sh -c 'echo "$1"; cat "$1"' _ {} \; 2>/dev/null | head -c 4000
		die "$pkg $name"
	}
	n=$((n + 1))
done < <(git ls-files --cached --others --exclude-standard '*_test.go' | grep -v -e '/_gen/' -e '^bench/peers/' | xargs -r grep -H '^func Fuzz' | sort)
[ $n -gt 0 ] || skip "no fuzz targets yet"
say "$n targets, $FUZZTIME each"
