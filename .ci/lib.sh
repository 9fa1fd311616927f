# Functions for the scripts beside this file. Source it; it changes to the root
# of the repository and stops at the first failing command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The checks need nothing but Go, and they need the same Go everywhere.
export CGO_ENABLED="${CGO_ENABLED:-0}"
export GOFLAGS="${GOFLAGS:--mod=readonly}"

say() { printf '%s\n' "$*"; }

# skip REASON: a step whose subject is not in the tree yet.
skip() { say "skipped: $*"; }

die() {
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}

# has PATTERN...: whether any path matches.
has() { compgen -G "$1" >/dev/null; }

# need_go: a clear word when Go is missing or too old.
need_go() {
	command -v go >/dev/null || die "Go is not installed; version 1.26 or newer is needed (on Debian: apt-get install golang-1.26)"
	local v
	v=$(go env GOVERSION)
	case "$v" in
	go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.2[0-5]*) die "$v is too old; version 1.26 or newer is needed" ;;
	esac
}
