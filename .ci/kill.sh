#!/usr/bin/env bash
# A run is killed at random moments, KILLS times in all, and must end with the
# weights of a run that was left alone.
source "$(dirname "$0")/lib.sh"
need_go
if ! grep -qs 'func TestKill' cmd/refrain/*_test.go; then
	skip "cmd/refrain has no TestKill yet"
	exit 0
fi
go test ./cmd/refrain -run TestKill -count=1 -timeout 20m -v -kills="${KILLS:-40}" | grep -v '^=== '
