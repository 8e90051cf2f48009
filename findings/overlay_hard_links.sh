#!/usr/bin/env bash
# overlayfs of Linux 6.18.44 (of the system; its option `index` is off): two names of one file
#
# Guess: what is written by one name is read by the other, and both have a link count of 2.
# Behaviour: if the file lies in a lower layer, the write copies it for the one name only: the other keeps the old text,
# and the link counts are 1 and 2.
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "needs root, for a mount" >&2; exit 2; }
uname -sr
echo "index: $(cat /sys/module/overlay/parameters/index)"

mkdir lower upper scratch merged
echo old >lower/a
ln lower/a lower/b
mount -t tmpfs none scratch # of one file system with upper
mkdir scratch/upper scratch/work
at_end+=("umount scratch")
mount -t overlay none -o "lowerdir=lower,upperdir=scratch/upper,workdir=scratch/work,index=off" merged
at_end=("umount merged" "${at_end[@]}")
seen "links before" "$(stat -c %h merged/a merged/b | xargs)" "2 2"
echo new >merged/a
seen "what is read by the other name" "$(cat merged/b)" old
seen "links after" "$(stat -c %h merged/a merged/b | xargs)" "1 2"
