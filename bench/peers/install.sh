#!/bin/sh
# Makes bench/peers/.env: the pinned peers, apart from everything else here.
# Nothing in it enters our build. Needs python3 with venv, and g++ for
# torch.compile; jemalloc is used when Debian's libjemalloc2 is installed.
set -eu
cd "$(dirname "$0")"
[ -x .env/bin/python ] || python3 -m venv .env
.env/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
lib=$(ls /usr/lib/*/libjemalloc.so.2 2>/dev/null | head -n 1 || true)
if [ -n "$lib" ]; then
	printf %s "$lib" >.env/jemalloc
else
	rm -f .env/jemalloc
	echo "install.sh: no libjemalloc2 (Debian: apt-get install libjemalloc2); peers run on the C library's allocator" >&2
fi
.env/bin/python -m pip freeze >.env/versions.txt
echo "peers installed in bench/peers/.env"
