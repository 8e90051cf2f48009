#!/usr/bin/env bash
# btrfs of Linux 6.18.44 (of the system): a snapshot of a subvolume that contains another
#
# Guess: the inner one is in the snapshot, too; or there is nothing at its place.
# Behaviour: there is an empty directory at its place with inode 2, in which not even root can make anything.
. "$(dirname "$0")/common.sh"
[ "$(id -u)" = 0 ] || { echo "needs root, for a mount" >&2; exit 2; }
needs mkfs.btrfs btrfs
uname -sr
btrfs --version

truncate -s 200M image
mkfs.btrfs -q image >said 2>&1
mkdir m
mount -o loop image m
at_end+=("umount m")
btrfs subvolume create m/outer >said
btrfs subvolume create m/outer/inner >said
echo text >m/outer/inner/file
btrfs subvolume snapshot m/outer m/copy >said
seen "what is in the inner one of the snapshot" "$(find m/copy/inner -mindepth 1 | wc -l)" 0
seen "its inode" "$(stat -c %i m/copy/inner)" 2
seen "mkdir in it" "$(mkdir m/copy/inner/new 2>&1 | sed 's/.*: //')" "Operation not permitted"
