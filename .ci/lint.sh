#!/usr/bin/env bash
# Formatting, vet (also with the tag purego), modules as recorded.
source "$(dirname "$0")/lib.sh"
need_go
bad=$(git ls-files --cached --others --exclude-standard '*.go' | while IFS= read -r f; do [ -f "$f" ] && printf '%s\0' "$f"; done | xargs -0 -r gofmt -l)
[ -z "$bad" ] || die "not formatted; run gofmt -w on: $bad"
go vet ./...
go vet -tags purego ./...
go mod verify
