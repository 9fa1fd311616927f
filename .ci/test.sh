#!/usr/bin/env bash
# The test command of the README.
source "$(dirname "$0")/lib.sh"
need_go
go test ./...
