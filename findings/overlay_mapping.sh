#!/usr/bin/env bash
# overlayfs of Linux 6.18.44: a file of a lower layer that is open and mapped into memory when another process writes to it
#
# Guess: a mapping shows what is written, as all of one system see the same pages; or neither the mapping nor `read` shows it.
# Behaviour: `read` on the old descriptor shows the new text. The mapping keeps the old one, and so does a new mapping of that
# same descriptor; only a mapping of the file opened again shows the new text. On tmpfs all of them do.
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "needs root, for a mount" >&2; exit 2; }
uname -sr

cat >mapping.py <<'PYTHON'
import mmap, os, sys
def mapped(file):
    return mmap.mmap(file, 0, access=mmap.ACCESS_READ)
file = os.open(sys.argv[1], os.O_RDONLY)
mapping = mapped(file)
assert mapping[:] == b"old"
with open(sys.argv[1], "r+b") as writer:
    writer.write(b"new")
again = os.open(sys.argv[1], os.O_RDONLY)
print(os.pread(file, 3, 0).decode(), *(each[:].decode() for each in (mapping, mapped(file), mapped(again))))
PYTHON
mkdir layers merged
mount -t tmpfs none layers
at_end+=("umount layers")
mkdir layers/lower layers/upper layers/work
printf old | tee layers/lower/file >layers/file
mount -t overlay none -o lowerdir=layers/lower,upperdir=layers/upper,workdir=layers/work merged
at_end=("umount merged" "${at_end[@]}")
seen "read, mapping, new mapping of the old descriptor, mapping of a new descriptor: overlayfs" "$(python3 mapping.py merged/file)" "new old old new"
seen "tmpfs" "$(python3 mapping.py layers/file)" "new new new new"
