#!/usr/bin/env bash
# uv 0.13.9: a policy appends a line to an installed module, on a file system without reflinks (ext4)
#
# Guess: the change is in its own environment; an environment that is made later has the package as it was published.
# Behaviour: installed files are hard links into uv's cache, so the line is in the cache, and in each environment, earlier or
# later, that has this version; nothing checks the digest again. UV_LINK_MODE=copy keeps them apart. Programs that write
# a new file in place of the old one (sed -i) do no harm.
. "$(dirname "$0")/common.sh"
touch one && cp --reflink=always one two 2>/dev/null && { echo "this file system has reflinks, with which uv copies" >&2; exit 2; }
packages uv==0.13.9
export UV_CACHE_DIR=$work/cache UV_NO_CONFIG=1
unset UV_LINK_MODE VIRTUAL_ENV
environment() {
    venv/bin/uv venv --quiet --python "$work/venv/bin/python" "$work/$1"
    venv/bin/uv pip install --quiet --python "$work/$1" six==1.17.0
}
lines() { find "$work/$1" -name six.py -exec grep -c '^CHANGED' {} + || true; }

environment before && environment policy
find policy -name six.py -exec sh -c 'echo CHANGED = 1 >>"$1"' sh {} \;
environment after
seen "changed lines in the environment, in one made before, in one made after" \
    "$(lines policy) $(lines before) $(lines after)" "1 1 1"
rm -rf cache && export UV_LINK_MODE=copy
for each in copied copied_after; do
    environment $each
    find copied -name six.py -exec sh -c 'echo CHANGED = 1 >>"$1"' sh {} \;
done
seen "with UV_LINK_MODE=copy, in one made after" "$(lines copied_after)" "0"
