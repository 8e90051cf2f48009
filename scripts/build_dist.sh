#!/usr/bin/env bash
# Builds what others install tvsnap from, into dist/ or another directory:
#
#   tvsnap-VERSION-py3-none-manylinux_*.whl   with the static programs and CRIU: no compiler is needed
#   tvsnap-VERSION.tar.gz                     the source, from which pip builds where that wheel does not fit
#   tvsnap-VERSION-linked-sources.tar         the sources of all that is linked into the wheel's programs, which their
#                                             licences want to be had where the wheel is
#
#   scripts/build_dist.sh [DIRECTORY]             all three
#   scripts/build_dist.sh --wheel [DIRECTORY]     the wheel alone, without a network once CRIU was built
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
. scripts/apt_sources.sh

PY=$PWD/.venv/bin/python
OLDEST_GLIBC=2.17 # of those that wheels can be marked for, the oldest that all of today's pips know

only=
if [ "${1:-}" = --wheel ]; then only=wheel && shift; fi
DIST=$(realpath -m "${1:-dist}")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/tvsnap-dist.XXXXXX")
trap 'rm -rf "$WORK"' EXIT

# Prints the directory of a CRIU of which it was noted what was linked into it; builds one if there is none.
noted_criu() {
    local binary
    binary=$(kept_criu)
    if [ ! -e "$(dirname "$binary")/sources.txt" ]; then
        scripts/build_criu.sh >&2
        binary=$(kept_criu)
    fi
    [ -e "$(dirname "$binary")/sources.txt" ] || die "this CRIU is not static and cannot go into a wheel: $binary"
    dirname "$binary"
}

# Copies what belongs to the source, and what was compiled, so that nothing of earlier builds gets into the wheel.
copy_source() {
    mkdir "$WORK/source"
    git ls-files -z --cached --others --exclude-standard |
        tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract --directory "$WORK/source"
    cp -a tvsnap/host/bin "$WORK/source/tvsnap/host"
    rm -rf "$WORK"/source/tvsnap/host/bin/criu-*
}

# build KIND [SETTINGS]: has setuptools build a wheel or an sdist of the copy.
build() {
    (cd "$WORK/source" && "$PY" -c '
import sys
from setuptools import build_meta
getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2])' "$1" "$WORK")
}

# The oldest glibc that has all that the programs ask of one.
needed_glibc() {
    { echo "$OLDEST_GLIBC"; objdump -T tvsnap/host/bin/*.so | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p'; } | sort -V | tail -n 1
}

write_notice() { # NAME of CRIU's directory
    cat <<NOTICE
tvsnap is licensed under Apache-2.0. Two of the programs here have code of others in them:

- $1/criu is CRIU (https://criu.org), licensed under GPL-2.0: $1/COPYING. It is a program of
  its own, which tvsnap starts. It was built by ../setup/scripts/build_criu.sh with the additions in
  ../setup/native/criu, which may be used under it, too. It is static; sources.txt beside it names the source
  packages of the libraries in it, and the files beside it have their licences.
- tvsnap-init and tvsnap-launch are linked with musl: licences/.

The sources of all of these are in tvsnap-VERSION-linked-sources.tar, to be had where this wheel is.
NOTICE
}

build_wheel() {
    local criu=$1 bin=$WORK/source/tvsnap/host/bin glibc
    mkdir "$bin/${criu##*/}" "$bin/licences"
    cp -a "$criu"/* "$bin/${criu##*/}"
    rm -f "$bin/${criu##*/}"/*.orig.tar.*
    keep_licence musl-dev "$bin/licences"
    write_notice "${criu##*/}" >"$bin/NOTICE"
    glibc=$(needed_glibc)
    run_logged dist-wheel "building the wheel" build wheel
    run_logged dist-tags "marking the wheel" "$PY" -m wheel tags --remove --python-tag py3 --abi-tag none \
        --platform-tag "manylinux_${glibc/./_}_$(uname -m)" "$WORK"/tvsnap-*.whl
}

# collect_sources CRIU FOLDER: the sources of what is linked in, as their packages' archive has them, and CRIU's.
collect_sources() {
    local criu=$1 folder=$2 source suites missing=()
    mkdir "$folder"
    cp "$criu"/*.orig.tar.* "$folder"
    cp -r native scripts "$folder"
    { cat "$criu/sources.txt"; dpkg-query -W -f '${source:Package}=${source:Version}\n' musl-dev; } >"$folder/sources.txt"
    find_mirror || die "apt knows no Debian or Ubuntu archive, from which the sources could be fetched"
    mapfile -t suites < <(own_suites)
    write_private_configuration "${suites[@]}"
    run_logged dist-lists "fetching lists of sources" private_apt update
    while read -r source; do
        case $source in gcc-*) continue ;; esac # what a compiler adds to a program is under no licence (its exception)
        (cd "$folder" && private_apt source --download-only "$source") >>"$CACHE/dist-sources.log" 2>&1 </dev/null ||
            missing+=("$source")
    done <"$folder/sources.txt"
    tar --create --directory "$WORK" --file "$folder.tar" "${folder##*/}"
    [ ${#missing[@]} -eq 0 ] || say "the archive lacks the sources of ${missing[*]}:" \
        "publish them with the wheel, too (snapshot.debian.org; log: $CACHE/dist-sources.log)"
}

export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
make --no-print-directory --silent native
criu=$(noted_criu)
copy_source
if [ -z "$only" ]; then
    say "building the source archive"
    run_logged dist-source "building the source archive" build sdist
fi
say "building the wheel, with CRIU from $criu"
build_wheel "$criu"
if [ -z "$only" ]; then
    say "fetching the sources of what is linked into the programs"
    version=$(basename "$WORK"/tvsnap-*.whl | cut -d- -f2)
    collect_sources "$criu" "$WORK/tvsnap-$version-linked-sources"
fi
mkdir -p "$DIST"
for file in "$WORK"/tvsnap-*.{whl,tar.gz,tar}; do
    [ ! -e "$file" ] || { mv "$file" "$DIST" && echo "$DIST/${file##*/}"; }
done
