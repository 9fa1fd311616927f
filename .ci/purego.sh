#!/usr/bin/env bash
# Every test again on the plain-Go paths that other processors use.
source "$(dirname "$0")/lib.sh"
need_go
go test -tags purego -timeout 20m ./...
