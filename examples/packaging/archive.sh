#!/bin/sh
# Writes the source archive of a tag or commit and its checksum: sh archive.sh TAG FOLDER
#
# The same commit gives the same bytes with the same git and xz. Needs no network.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
if [ "$#" -ne 2 ] || [ ! -d "$2" ]; then sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; fi
tag=$1 folder=$2
git -C "$root" rev-parse --quiet --verify "$tag^{commit}" >/dev/null || { echo "error: there is no tag or commit $tag" >&2; exit 1; }
version=$(git -C "$root" show "$tag:meson.build" | sed -n "s/^project(.*, version: '\([^']*\)'.*/\1/p" | head -n 1)
case $tag in v[0-9]*) [ "$tag" = "v$version" ] || { echo "error: the tag is $tag, the version in meson.build $version" >&2; exit 1; } ;; esac
archive=mpigrad-$version.tar.xz
git -C "$root" archive --format=tar --prefix="mpigrad-$version/" "$tag^{commit}" | xz -6 --threads=1 >"$folder/$archive"
cd "$folder"
sha256sum "$archive" | tee "$archive.sha256"
