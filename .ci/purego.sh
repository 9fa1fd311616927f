#!/usr/bin/env bash
# The tests again on the plain-Go paths that other processors use. Plain Go gives the
# bits of the assembly, which TestKernelSets and TestPlainBitsStay hold it to, in about
# twice the time: so of whole commands only some are run again.
source "$(dirname "$0")/lib.sh"
need_go
mapfile -t packages < <(go list ./... | grep -v '^refrain/cmd/refrain$')
go test -tags purego -timeout 20m "${packages[@]}"
go test -tags purego -timeout 20m -run '^(TestScripts|TestInterrupted|TestDoctor|TestTokenizerOfAStore)$' ./cmd/refrain
